//! Ghosts: what was evicted from the small region lately, so that a key that comes back goes to main.
//!
//! A ghost is 16 bits, four to a word, eight words to a group of eight buckets. It is found by the tag
//! and the bucket that the key's slot word told anyway, so that evicting reads no node. A ghost goes to
//! one of two words (two-choice), so that a busy bucket may use its neighbours' room. All accesses are
//! relaxed loads and stores: a lost race loses a hint.
//!
//! ```text
//! ghost   15..11 age   10..8 place of the bucket in its group   7..0 tag      zero: empty
//! ```

use crate::sync::{AtomicU64, Relaxed};

use super::{AGES, distance};

/// Ghosts older than this many units of age (sixteenths of the capacity) count no more.
const WINDOW: u8 = 24;

const LANES: u32 = 4;
const ID: u64 = 0x07FF;

/// A key's place among the ghosts of its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id {
    place: usize,
    tag: u8,
}

impl Id {
    pub(super) fn new(place: usize, tag: u8) -> Id {
        Id { place, tag }
    }

    fn bits(self) -> u64 {
        (self.place as u64) << 8 | u64::from(self.tag)
    }

    /// The two words that a key's ghost may be in.
    fn words(self) -> [usize; 2] {
        [self.place, self.place ^ (1 + usize::from(self.tag) % 7)]
    }
}

fn lane(word: u64, lane: u32) -> u64 {
    word >> (16 * lane) & 0xFFFF
}

fn with_lane(word: u64, lane: u32, ghost: u64) -> u64 {
    word & !(0xFFFF << (16 * lane)) | ghost << (16 * lane)
}

fn age_of(ghost: u64) -> u8 {
    (ghost >> 11) as u8 % AGES
}

/// How many units of age ago a key was evicted, if that was lately; forgets that it was.
pub(super) fn take(words: &[AtomicU64], id: Id, now: u8) -> Option<u8> {
    for index in id.words() {
        let word = words[index].load(Relaxed);
        for position in 0..LANES {
            let ghost = lane(word, position);
            let age = distance(now, age_of(ghost));
            if ghost != 0 && ghost & ID == id.bits() && age <= WINDOW {
                words[index].store(with_lane(word, position, 0), Relaxed);
                return Some(age);
            }
        }
    }
    None
}

/// Notes that a key was evicted, in the place of the oldest ghost of its two words.
pub(super) fn put(words: &[AtomicU64], id: Id, now: u8) {
    let mut oldest = (0, 0, 0, 0);
    for index in id.words() {
        let word = words[index].load(Relaxed);
        for position in 0..LANES {
            let ghost = lane(word, position);
            let age = if ghost == 0 { AGES } else { distance(now, age_of(ghost)) };
            if age >= oldest.0 {
                oldest = (age, index, word, position);
            }
        }
    }
    let (_, index, word, position) = oldest;
    let ghost = u64::from(now) << 11 | id.bits();
    words[index].store(with_lane(word, position, ghost), Relaxed);
}

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;

    fn group() -> Vec<AtomicU64> {
        (0..8).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_ghost_is_found_once() {
        let words = group();
        let id = Id::new(3, 77);
        assert_eq!(take(&words, id, 5), None);
        put(&words, id, 5);
        assert_eq!(take(&words, Id::new(2, 77), 5), None);
        assert_eq!(take(&words, Id::new(3, 76), 5), None);
        assert_eq!(take(&words, id, 6), Some(1));
        assert_eq!(take(&words, id, 6), None);
    }

    #[test]
    fn a_ghost_beyond_the_window_counts_no_more() {
        let words = group();
        let id = Id::new(0, 1);
        put(&words, id, 30);
        assert_eq!(take(&words, id, (30 + WINDOW + 1) % AGES), None);
        assert_eq!(take(&words, id, (30 + WINDOW) % AGES), Some(WINDOW));
    }

    #[test]
    fn the_oldest_ghost_makes_room() {
        let words = group();
        for age in 0..12 {
            put(&words, Id::new(4, 14 * age + 1), age);
        }
        // All share one pair of words: eight lanes for the twelve of them.
        let kept: Vec<u8> =
            (0..12).filter(|&age| take(&words, Id::new(4, 14 * age + 1), 12).is_some()).collect();
        assert_eq!(kept, [4, 5, 6, 7, 8, 9, 10, 11]);
    }
}
