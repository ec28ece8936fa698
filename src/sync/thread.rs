//! A small index for each live thread, so that a thread finds its own stripe of a counter.
//!
//! Indices are dense: a thread takes the lowest free one and gives it back when it ends. At most one
//! live thread owns an index; threads beyond the last index share [`Stripe::SHARED`].

use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 4;

/// Bit set: the index is owned by a live thread. A plain static, also under loom: it is no part of
/// any model.
static OWNED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// The index of a thread among the live ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe(usize);

impl Stripe {
    /// The index of all threads that found no index of their own.
    pub(crate) const SHARED: Stripe = Stripe(usize::MAX);

    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// Owns an index for the life of a thread.
#[derive(Debug)]
pub(crate) struct OwnedStripe(Stripe);

impl OwnedStripe {
    pub(crate) fn claim() -> OwnedStripe {
        for (word, owned) in OWNED.iter().enumerate() {
            let mut bits = owned.load(Ordering::Relaxed);
            while bits != u64::MAX {
                let bit = (!bits).trailing_zeros();
                // ORDERING (T1): Acquire pairs with the Release of `drop`: what the former owner of
                // this index wrote to its stripes without read-modify-write is visible to the new one.
                match owned.compare_exchange_weak(
                    bits,
                    bits | 1 << bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return OwnedStripe(Stripe(word * 64 + bit as usize)),
                    Err(now) => bits = now,
                }
            }
        }
        OwnedStripe(Stripe::SHARED)
    }
}

impl OwnedStripe {
    #[inline]
    pub(crate) fn get(&self) -> Stripe {
        self.0
    }
}

impl Drop for OwnedStripe {
    fn drop(&mut self) {
        let Stripe(index) = self.0;
        if self.0 != Stripe::SHARED {
            // ORDERING (T1): Release, see `claim`.
            OWNED[index / 64].fetch_and(!(1 << (index % 64)), Ordering::Release);
        }
    }
}

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_owners_never_have_one_index() {
        let (mine, other) = (OwnedStripe::claim(), OwnedStripe::claim());
        assert_ne!(mine.get(), other.get());
    }

    #[test]
    fn an_index_is_given_back() {
        let highest = (0..if cfg!(miri) { 30 } else { 600 })
            .map(|_| OwnedStripe::claim().get().index())
            .max()
            .unwrap();
        assert!(highest < 300, "index {highest} for one owner after the other");
    }
}
