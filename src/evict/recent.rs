//! Where a thread put its last new entries: for finding one of the small region when that is so small
//! that a sample holds none. Only hints: the entries may be gone or promoted, and other threads' are not
//! among them.

use crate::sync::{AtomicU64, Relaxed};

const KEPT: usize = 16;

/// Hashes of the last few entries, oldest first. Relaxed throughout; a lost race loses hints.
#[derive(Debug, Default)]
pub(super) struct Recent {
    hashes: [AtomicU64; KEPT],
    noted: AtomicU64,
    taken: AtomicU64,
}

impl Recent {
    pub(super) fn note(&self, hash: u64) {
        let noted = self.noted.load(Relaxed);
        self.hashes[noted as usize % KEPT].store(hash, Relaxed);
        self.noted.store(noted + 1, Relaxed);
    }

    /// Takes out the oldest that is kept.
    pub(super) fn take(&self) -> Option<u64> {
        let noted = self.noted.load(Relaxed);
        let next = self.taken.load(Relaxed).max(noted.saturating_sub(KEPT as u64));
        (next < noted).then(|| {
            self.taken.store(next + 1, Relaxed);
            self.hashes[next as usize % KEPT].load(Relaxed)
        })
    }
}

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_few_come_out_oldest_first() {
        let recent = Recent::default();
        assert_eq!(recent.take(), None);
        let count = KEPT as u64 + 4;
        (0..count).for_each(|hash| recent.note(hash));
        let taken: Vec<u64> = std::iter::from_fn(|| recent.take()).collect();
        assert_eq!(taken, (4..count).collect::<Vec<_>>());
        recent.note(99);
        assert_eq!((recent.take(), recent.take()), (Some(99), None));
    }
}
