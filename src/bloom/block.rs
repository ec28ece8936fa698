//! One cache line of a filter: eight words, of which a key sets one bit each.
//!
//! Bits are only ever set, but by `clear`. Inserting needs no ordering: whoever learns of an insert
//! learns it by something that orders the two threads, and then cannot read the words as they were
//! before. A reader that may meet a `clear` and must not trust what it sees then needs pair B1.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | B1 | `clear` stores a word | `contains_acquire`, `words` load it | what was done before the clear: the block left the state that the reader saw |

use std::array;

use super::avx2::{self, Avx2, Task};
use super::batch::Line;
use crate::sync::{Acquire, AtomicU64, Relaxed, Release, ask_for_huge_pages};

/// Words in a block, and bits that a key sets. Fewer in models, which try every order of every access.
pub(super) const WORDS: usize = if cfg!(seawall_loom) { 2 } else { 8 };
/// Bytes of a block.
pub(super) const BYTES: usize = WORDS * 8;
/// Bits of the hash that choose a bit of a word.
pub(super) const INDEX_BITS: usize = 6;
/// The scalar code of a single query stops here when a bit is missing. A branch a word would be
/// mispredicted for most absent keys; none at all would cost them the second half of the work.
const FIRST: usize = WORDS / 2;

/// The block that a key belongs to, of a number of them.
#[inline]
pub(super) fn index(hash: u128, blocks: usize) -> usize {
    let high = (hash >> 64) as u64;
    ((u128::from(high) * blocks as u128) >> 64) as usize
}

/// The bit of a word that a key sets.
#[inline]
fn mask(low: u64, word: usize) -> u64 {
    1 << ((low >> (INDEX_BITS * word)) & 63)
}

/// Room for a number of blocks; `None` if the allocator refuses.
pub(super) fn room(blocks: usize) -> Option<Vec<Block>> {
    let mut room = Vec::new();
    room.try_reserve_exact(blocks).ok()?;
    ask_for_huge_pages(room.as_ptr(), blocks * BYTES);
    Some(room)
}

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Block([AtomicU64; WORDS]);

impl Block {
    pub(super) fn new(words: [u64; WORDS]) -> Self {
        Block(words.map(AtomicU64::new))
    }

    /// Sets a key's bits; returns whether one of them was clear.
    #[inline]
    pub(super) fn insert(&self, low: u64) -> bool {
        let mut new = false;
        for (i, word) in self.0.iter().enumerate() {
            new |= set(word, mask(low, i));
        }
        new
    }

    #[inline]
    pub(super) fn contains(&self, avx2: Option<Avx2>, low: u64) -> bool {
        contains(avx2, &self.0, low, |word| word.load(Relaxed))
    }

    /// As [`Self::contains`]; if it returns `false` because of a `clear`, that is visible.
    #[inline]
    pub(super) fn contains_acquire(&self, avx2: Option<Avx2>, low: u64) -> bool {
        // ORDERING (B1): Acquire pairs with `clear`. A word that was cleared and has had bits set since
        // still carries it: those were read-modify-writes.
        contains(avx2, &self.0, low, |word| word.load(Acquire))
    }

    pub(super) fn words(&self) -> [u64; WORDS] {
        // ORDERING (B1): Acquire, as for `contains_acquire`.
        array::from_fn(|i| self.0[i].load(Acquire))
    }

    pub(super) fn union(&self, words: [u64; WORDS]) {
        for (word, bits) in self.0.iter().zip(words) {
            set(word, bits);
        }
    }

    pub(super) fn clear(&self) {
        for word in &self.0 {
            // ORDERING (B1): Release, see `contains_acquire`.
            if cfg!(seawall_loom) {
                // After a store, loom lets its thread read that again although it has changed the word
                // since: it learns of another thread's older change too late to order all three.
                word.swap(0, Release);
            } else {
                word.store(0, Release);
            }
        }
    }
}

impl Line for Block {
    #[inline(always)]
    fn first(&self) -> u64 {
        self.0[0].load(Relaxed)
    }

    #[inline(always)]
    fn has_all(&self, low: u64) -> bool {
        count(&self.0, low, |word| word.load(Relaxed)) == WORDS as u64
    }

    /// Not by vectors: to move eight words into them one by one takes longer where no wait for memory hides
    /// it. But with AVX2 come shifts by any register, and those need no addition with carry.
    #[inline(always)]
    fn has_all_avx2(&self, _: Avx2, mut low: u64) -> bool {
        let mut all = 1;
        for word in &self.0 {
            all &= word.load(Relaxed) >> (low & 63);
            low >>= INDEX_BITS;
        }
        all == 1
    }
}

/// Whether all of a key's bits are set.
#[inline]
pub(super) fn contains<W>(
    avx2: Option<Avx2>,
    words: &[W; WORDS],
    low: u64,
    load: impl Fn(&W) -> u64,
) -> bool {
    avx2::run(avx2, Query { words, low: &low, load })
}

/// The hash is given by reference, as a vector of copies is made of one in memory by the load alone.
struct Query<'q, W, L> {
    words: &'q [W; WORDS],
    low: &'q u64,
    load: L,
}

impl<W, L: Fn(&W) -> u64> Task for Query<'_, W, L> {
    type Output = bool;

    #[inline(always)]
    fn vectors(self, avx2: Avx2) -> bool {
        avx2.has_all(&array::from_fn(|i| (self.load)(&self.words[i])), *self.low)
    }

    /// Looks at the second half only if the first has its bits.
    #[inline(always)]
    fn scalar(self) -> bool {
        let (first, second) = self.words.split_at(FIRST);
        count(first, *self.low, &self.load) == FIRST as u64
            && count(second, *self.low >> (INDEX_BITS * FIRST), &self.load)
                == (WORDS - FIRST) as u64
    }
}

/// Counts those of a key's bits that are set: a bit test and an addition with carry for each word.
#[inline]
pub(super) fn count<W>(words: &[W], mut low: u64, load: impl Fn(&W) -> u64) -> u64 {
    let mut set = 0;
    for word in words {
        set += (load(word) >> (low & 63)) & 1;
        low >>= INDEX_BITS;
    }
    set
}

/// Sets bits of a word; returns whether one of them was clear. A word that has them is not written, so
/// that its line stays shared.
#[inline]
fn set(word: &AtomicU64, bits: u64) -> bool {
    let mut now = word.load(Relaxed);
    while now & bits != bits {
        // Relaxed: the bits publish nothing but themselves.
        match word.compare_exchange(now, now | bits, Relaxed, Relaxed) {
            Ok(_) => return true,
            // Another thread set or cleared some; look again.
            Err(other) => now = other,
        }
    }
    false
}
