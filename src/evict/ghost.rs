//! Ghosts: what was evicted from the small region lately, so that a key that comes back goes to main.
//!
//! A ghost is 16 bits, four to a word, eight words to a group of eight buckets. It is found by the tag
//! and the bucket that the key's slot word told anyway, so that evicting reads no node. A ghost goes to
//! one of two words (two-choice), so that a busy bucket may use its neighbours' room. All accesses are
//! relaxed loads and stores: a lost race loses a hint.
//!
//! Its age tells when the key was inserted: nobody has asked for it from then until it comes back, so
//! that is how often it is asked for, however long it was kept meanwhile.
//!
//! ```text
//! ghost   15..11 age   10..8 place of the bucket in its group   7..0 tag      zero: empty
//! ```

use crate::sync::{AtomicU64, Relaxed};

use super::{AGES, distance};

/// Ghosts of keys that were inserted more than this many units of age ago count no more: twice the
/// capacity.
const WINDOW: u8 = 28;

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

/// One in each lane.
const EACH: u64 = 0x0001_0001_0001_0001;
/// The highest bit of each lane.
const HIGH: u64 = EACH << 15;

fn lane(word: u64, lane: u32) -> u64 {
    word >> (16 * lane) & 0xFFFF
}

fn with_lane(word: u64, lane: u32, ghost: u64) -> u64 {
    word & !(0xFFFF << (16 * lane)) | ghost << (16 * lane)
}

fn age_of(ghost: u64) -> u8 {
    (ghost >> 11) as u8 % AGES
}

/// Whether any lane may hold a ghost of this key; never false if one does.
#[inline]
fn may_hold(word: u64, id: Id) -> bool {
    // A lane of zero borrows from its highest bit when one is taken off it.
    let differences = (word ^ (EACH * id.bits())) & (EACH * ID);
    differences.wrapping_sub(EACH) & !differences & HIGH != 0
}

/// In each lane how old its ghost is, or [`AGES`] and more if it is empty.
#[inline]
fn ages(word: u64, now: u8) -> u64 {
    let most = u64::from(AGES - 1);
    let stamps = (word >> 11) & (EACH * most);
    let ages = (EACH * (u64::from(AGES) + u64::from(now)) - stamps) & (EACH * most);
    let used = (((word & !HIGH) + !HIGH) | word) & HIGH;
    ages | ((used ^ HIGH) >> (15 - AGES.trailing_zeros()))
}

/// How many units of age ago a key that was evicted had been inserted, if that was lately; forgets it.
pub(super) fn take(words: &[AtomicU64], id: Id, now: u8) -> Option<u8> {
    for index in id.words() {
        let word = words[index].load(Relaxed);
        if !may_hold(word, id) {
            continue;
        }
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

/// Notes that a key was evicted which had been inserted at `born`, in the place of the oldest ghost of its
/// two words.
pub(super) fn put(words: &[AtomicU64], id: Id, born: u8, now: u8) {
    let [first, second] = id.words();
    let pair = [words[first].load(Relaxed), words[second].load(Relaxed)];
    let [first_ages, second_ages] = pair.map(|word| ages(word, now));
    // Each lane's age, and below it where it is.
    let place = |position: u32| {
        let first = lane(first_ages, position) << 3 | u64::from(position);
        first.max(lane(second_ages, position) << 3 | u64::from(LANES + position))
    };
    let oldest = (0..LANES).map(place).max().unwrap_or(0) as u32 % (2 * LANES);
    let (which, position) = ((oldest / LANES) as usize, oldest % LANES);
    let ghost = u64::from(born) << 11 | id.bits();
    words[[first, second][which]].store(with_lane(pair[which], position, ghost), Relaxed);
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
        put(&words, id, 3, 5);
        assert_eq!(take(&words, Id::new(2, 77), 5), None);
        assert_eq!(take(&words, Id::new(3, 76), 5), None);
        assert_eq!(take(&words, id, 6), Some(3));
        assert_eq!(take(&words, id, 6), None);
    }

    #[test]
    fn a_ghost_beyond_the_window_counts_no_more() {
        let words = group();
        let id = Id::new(0, 1);
        put(&words, id, 30, 31);
        assert_eq!(take(&words, id, (30 + WINDOW + 1) % AGES), None);
        assert_eq!(take(&words, id, (30 + WINDOW) % AGES), Some(WINDOW));
    }

    #[test]
    fn the_oldest_ghost_makes_room() {
        let words = group();
        for age in 0..12 {
            put(&words, Id::new(4, 14 * age + 1), age, age);
        }
        // All share one pair of words: eight lanes for the twelve of them.
        let kept: Vec<u8> =
            (0..12).filter(|&age| take(&words, Id::new(4, 14 * age + 1), 12).is_some()).collect();
        assert_eq!(kept, [4, 5, 6, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn lanes_are_judged_together_as_they_are_one_by_one() {
        let mut word = 0x9E37_79B9_7F4A_7C15_u64;
        for step in 0..10_000_u64 {
            word = word.rotate_left(7).wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(step);
            let word = if step % 3 == 0 { with_lane(word, (step / 3 % 4) as u32, 0) } else { word };
            let now = (step % 32) as u8;
            for position in 0..LANES {
                let ghost = lane(word, position);
                let together = lane(ages(word, now), position);
                if ghost == 0 {
                    assert!(together >= u64::from(AGES));
                } else {
                    assert_eq!(together, u64::from(distance(now, age_of(ghost))));
                    let id = Id::new((ghost >> 8 & 7) as usize, ghost as u8);
                    assert!(may_hold(word, id));
                }
            }
        }
        assert!(!may_hold(0x0102_0304_0506_0708, Id::new(7, 7)));
    }
}
