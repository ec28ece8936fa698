//! When keys that are only remembered may be forgotten.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Told;
use crate::flight::Entry;
use crate::sync::{AtomicU64, Relaxed};

/// How many keys one call forgets beside its own work: more than one, so that they do not pile up.
pub(super) const AT_ONCE: usize = 4;

type Kept<K> = Arc<Entry<K, Told>>;

pub(super) struct Memory<K> {
    /// Soonest first. Held for the work on the heap, which runs nothing of the user's.
    heap: Mutex<BinaryHeap<Reverse<Due<K>>>>,
    /// The moment of the first; `u64::MAX` if there is none. A hint: written under the lock.
    first: AtomicU64,
}

struct Due<K> {
    at: u64,
    entry: Kept<K>,
}

impl<K> PartialEq for Due<K> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<K> Eq for Due<K> {}

impl<K> PartialOrd for Due<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Due<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl<K> Memory<K> {
    pub(super) fn new() -> Self {
        Memory { heap: Mutex::new(BinaryHeap::new()), first: AtomicU64::new(u64::MAX) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut BinaryHeap<Reverse<Due<K>>>) -> R) -> R {
        let mut heap: MutexGuard<'_, _> = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut heap);
        let first = heap.peek().map_or(u64::MAX, |Reverse(due)| due.at);
        self.first.store(first, Relaxed);
        result
    }

    /// Remembers an entry until a moment.
    pub(super) fn keep(&self, entry: &Kept<K>, at: u64) {
        let entry = Arc::clone(entry);
        self.with(|heap| heap.push(Reverse(Due { at, entry })));
    }

    /// Hands out entries whose moment has come, for the caller to take out and to drop.
    pub(super) fn due(&self, now: u64, most: usize) -> Vec<Kept<K>> {
        let mut due = Vec::new();
        if self.first.load(Relaxed) > now {
            return due;
        }
        self.with(|heap| {
            while due.len() < most && heap.peek().is_some_and(|Reverse(it)| it.at <= now) {
                due.extend(heap.pop().map(|Reverse(it)| it.entry));
            }
            heap.shrink_to(2 * heap.len());
        });
        due
    }
}
