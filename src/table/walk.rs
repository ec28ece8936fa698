//! Walking over buckets: iteration and sweeping.

use super::bucket::Snapshot;
use super::reclaim::{Guard, check_read};
use super::word::Control;
use super::{Found, GROUP, Map, Node, Rehash, Table, prefetch, wrapped};
use crate::sync::AtomicU64;

impl<N: Node, H: Rehash<N>> Map<N, H> {
    /// Calls `visit` with each live node of the bucket that a hash belongs to; all their keys were there
    /// at one instant. Returns the lowest hash of the next bucket, or `None` after the last.
    pub(crate) fn visit<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        mut visit: impl FnMut(Found<'g, N>),
    ) -> Option<u64> {
        let mut seen = Snapshot::new();
        let (table, index) = loop {
            let table = self.root(guard);
            let index = table.buckets.index_of(hash);
            let bucket = table.buckets.at(index);
            if bucket.snapshot(&mut seen) {
                break (table, index);
            }
            if bucket.control() == Control::UNINIT {
                if Self::previous(table, guard).is_none() {
                    return table.buckets.end_of(index);
                }
                self.make_ready(table, index, guard);
            }
        };
        let bucket = table.buckets.at(index);
        for &seen in &seen {
            check_read(seen.word.node::<N>(), guard);
            // SAFETY: I2: the snapshot was validated, after we pinned.
            let node = unsafe { &*seen.word.node::<N>() };
            visit(Found { bucket, seen, node });
        }
        table.buckets.end_of(index)
    }

    pub(super) fn make_ready_if_growing(&self, table: &Table, index: usize, guard: &Guard) {
        let bucket = table.buckets.at(index);
        if bucket.control() == Control::UNINIT && Self::previous(table, guard).is_some() {
            self.make_ready(table, index, guard);
        }
    }

    /// Calls `visit` with each live node of the bucket at a position; positions beyond the last bucket
    /// wrap round.
    pub(crate) fn visit_at<'g>(
        &'g self,
        position: u64,
        guard: &'g Guard,
        visit: impl FnMut(Found<'g, N>),
    ) {
        let buckets = &self.root(guard).buckets;
        let index = wrapped(position, buckets.len());
        let hash = index.checked_sub(1).and_then(|before| buckets.end_of(before)).unwrap_or(0);
        self.visit(hash, guard, visit);
    }

    /// The eight ghost words of the group that a hash's bucket belongs to, and the bucket's place in
    /// the group.
    pub(crate) fn ghosts<'g>(&'g self, hash: u64, guard: &'g Guard) -> (&'g [AtomicU64], usize) {
        let table = self.root(guard);
        Self::ghosts_of(table, table.buckets.index_of(hash))
    }

    /// Asks for the ghosts that [`Self::ghosts`] will return.
    #[inline]
    pub(crate) fn prefetch_ghosts(&self, hash: u64, guard: &Guard) {
        let table = self.root(guard);
        prefetch(&raw const table.ghosts[table.buckets.index_of(hash) / GROUP * GROUP]);
    }

    /// As [`Self::ghosts`], of the bucket at an index.
    pub(crate) fn ghosts_at<'g>(
        &'g self,
        index: usize,
        guard: &'g Guard,
    ) -> (&'g [AtomicU64], usize) {
        let table = self.root(guard);
        Self::ghosts_of(table, index % table.buckets.len())
    }

    pub(super) fn ghosts_of(table: &Table, index: usize) -> (&[AtomicU64], usize) {
        let group = index / GROUP * GROUP;
        (&table.ghosts[group..group + GROUP], index % GROUP)
    }
}
