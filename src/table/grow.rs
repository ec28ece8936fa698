//! Growth: a table twice as long takes over, bucket by bucket, while all operations go on.
//!
//! Moving one old bucket to its two new ones: (1) freeze the old control word: nothing is committed or
//! cleaned there any more; (2) freeze each occupied slot word, and with it the decision which of the
//! two new buckets it goes to; (3) place the live words in fixed slots of the new buckets, by CAS from
//! zero; (4) publish each new bucket by one CAS of its control word, UNINIT to READY. Every step is
//! decided by what the steps before have frozen, so any number of threads may do them at once, and a
//! thread that stops half-way holds up nobody. See DESIGN.md section 3.4.

use std::ptr;

use super::bucket::Bucket;
use super::reclaim::{Guard, Kind, check_read};
use super::word::{BucketState, Control, Word, bits};
use super::{Map, Node, Rehash, Table};
use crate::sync::{AcqRel, Acquire};

/// Old buckets that one insert moves while the table grows.
const STEPS: usize = 2;

impl<N: Node, H: Rehash<N>> Map<N, H> {
    /// Begins to grow to twice the length, unless a growth is under way. Returns whether it began.
    ///
    /// Allocates; if there is not enough memory the table stays as it is, and chains get longer.
    #[cold]
    pub(crate) fn start_growth(&self, guard: &Guard) -> bool {
        // The pointer itself, not one made from a reference: whoever ends this growth frees it.
        let old = self.root.load(Acquire);
        // SAFETY: I5: as in `root`.
        let table = unsafe { &*old };
        if Self::previous(table, guard).is_some() {
            return false;
        }
        let Some(new) = Table::try_new(table.buckets.len() * 2, old) else {
            return false;
        };
        let new = Box::into_raw(new);
        // ORDERING (P4): Release publishes the new table.
        if self.root.compare_exchange(old, new, AcqRel, Acquire).is_err() {
            // SAFETY: another growth won the race; nobody has seen this one.
            drop(unsafe { Box::from_raw(new) });
            return false;
        }
        self.hint.set(self.root(guard));
        true
    }

    /// Whether a growth is under way.
    #[inline]
    pub(crate) fn is_growing(&self, guard: &Guard) -> bool {
        Self::previous(self.root(guard), guard).is_some()
    }

    /// Moves a few buckets of a growth that is under way.
    #[cold]
    pub(crate) fn help_growth(&self, guard: &Guard) {
        let table = self.root(guard);
        let Some(previous) = Self::previous(table, guard) else { return };
        for _ in 0..STEPS {
            // ORDERING (P2): Acquire/Release: the buckets before `moved` are READY for whoever reads it.
            let index = table.moved.load(Acquire);
            if index == previous.buckets.len() {
                self.finish_growth(table, guard);
                return;
            }
            self.move_bucket(table, previous, index, guard);
            // Counted only once it is done, so `moved` never runs ahead of a thread that stalls. A
            // lost race means that another thread counted the same bucket.
            let _ = table.moved.compare_exchange(index, index + 1, AcqRel, Acquire);
        }
    }

    fn finish_growth(&self, table: &Table, guard: &Guard) {
        let old = table.previous.load(Acquire);
        if old.is_null() {
            return;
        }
        // ORDERING (P4): Release: who reads null finds every bucket READY.
        if table.previous.compare_exchange(old, ptr::null_mut(), AcqRel, Acquire).is_ok() {
            // SAFETY: I5: all its buckets have moved and it is unlinked; one thread wins this CAS.
            unsafe { self.limbo.retire(old.cast(), Kind::Table, guard) };
        }
    }

    /// Sees to it that a bucket of the newest table is in use.
    #[cold]
    pub(super) fn make_ready(&self, table: &Table, index: usize, guard: &Guard) {
        let bucket = table.buckets.at(index);
        while bucket.control() == Control::UNINIT {
            match Self::previous(table, guard) {
                Some(previous) => self.move_bucket(table, previous, index / 2, guard),
                // No older table (or no longer: then the bucket is READY and this fails).
                None => {
                    bucket.change_control(Control::UNINIT, Control::ready(0));
                }
            }
        }
    }

    /// Moves one old bucket; both its new ones are in use when this returns.
    fn move_bucket(&self, table: &Table, previous: &Table, index: usize, guard: &Guard) {
        let old = previous.buckets.at(index);
        let frozen = Self::freeze_control(old);
        for slot in bits(frozen.occupied()) {
            self.freeze_slot(table, old, slot, guard);
        }
        for side in 0..2 {
            let new = table.buckets.at(2 * index + side);
            self.publish(old, frozen, new, side, guard);
        }
    }

    fn freeze_control(old: &Bucket) -> Control {
        loop {
            let control = old.control();
            if control.state() == BucketState::Frozen {
                return control;
            }
            if old.change_control(control, control.frozen()) {
                return control.frozen();
            }
        }
    }

    /// Freezes a slot word together with the decision where it goes. The decision is part of the CAS,
    /// so a hash function that contradicts itself cannot place a node twice.
    fn freeze_slot(&self, table: &Table, old: &Bucket, slot: u32, guard: &Guard) {
        loop {
            let word = old.word(slot);
            if word.is_frozen() {
                return;
            }
            let side = if word.is_removed() {
                0
            } else {
                check_read(word.node::<N>(), guard);
                // SAFETY: I4: the word is not frozen, so neither new bucket is in use, so the node
                // was not retired before we pinned.
                let node = unsafe { &*word.node::<N>() };
                table.buckets.index_of(self.hasher.rehash(node)) & 1
            };
            if old.change_word(slot, word, word.frozen(side)) {
                return;
            }
        }
    }

    /// Places one side's nodes in the new bucket and puts it to use.
    fn publish(&self, old: &Bucket, frozen: Control, new: &Bucket, side: usize, guard: &Guard) {
        let mut place = 0;
        for slot in bits(frozen.occupied()) {
            let word = old.word(slot);
            if word.is_removed() || word.side() != side {
                continue;
            }
            if new.control() != Control::UNINIT {
                return;
            }
            Self::place(new, place, word.thawed());
            place += 1;
        }
        if new.change_control(Control::UNINIT, Control::ready(place)) && side == 0 {
            self.retire_removed(old, frozen, guard);
        }
    }

    /// Puts a word into a fixed slot of the new bucket, unless another helper has done so.
    ///
    /// The slot has never been used if this succeeds: a slot that is freed becomes `FREE`, not unused.
    /// So nothing is put into a bucket that is in use already.
    fn place(new: &Bucket, slot: u32, word: Word) {
        new.slot_or_extend(slot).expect("I6: not more slots than the old bucket has");
        new.change_word(slot, Word::UNUSED, word);
    }

    /// Retires the nodes that were removed in the old bucket but not cleaned: they did not move.
    fn retire_removed(&self, old: &Bucket, frozen: Control, guard: &Guard) {
        for slot in bits(frozen.occupied()) {
            let word = old.word(slot);
            if word.is_removed() {
                // SAFETY: I2: a REMOVED word is followed by nobody; a frozen bucket is not cleaned, so
                // only the thread that published the first new bucket comes here, once.
                unsafe { self.limbo.retire(word.node::<()>(), Kind::Whole, guard) };
            }
        }
    }
}

impl<N: Node, H> Drop for Map<N, H> {
    fn drop(&mut self) {
        // ORDERING: none needed: `&mut self`.
        let root = self.root.load(Acquire);
        // SAFETY: `&mut self`: no operation is running; made by `Box::into_raw`.
        let table = unsafe { Box::from_raw(root) };
        for index in 0..table.buckets.len() {
            free_nodes::<N>(table.buckets.at(index), |_| true);
        }
        let previous = table.previous.load(Acquire);
        if !previous.is_null() {
            // SAFETY: as above; not retired, or it would have been unlinked.
            let previous = unsafe { Box::from_raw(previous) };
            for index in 0..previous.buckets.len() {
                let moved = |side| table.buckets.at(2 * index + side).control() != Control::UNINIT;
                let (first, second) = (moved(0), moved(1));
                free_nodes::<N>(previous.buckets.at(index), |word| {
                    // What moved belongs to the new bucket; what was REMOVED was retired when the
                    // first new bucket was published.
                    if word.is_removed() || !word.is_frozen() || word.side() == 0 {
                        !first
                    } else {
                        !second
                    }
                });
            }
        }
    }
}

/// Frees the nodes in the occupied slots of a bucket that nobody uses any more.
fn free_nodes<N: Node>(bucket: &Bucket, owned: impl Fn(Word) -> bool) {
    for slot in bits(bucket.control().occupied()) {
        let word = bucket.word(slot);
        if owned(word) {
            let free = || {
                // SAFETY: the caller has exclusive access; a node is in one slot, or `owned` says
                // which of two counts; REMOVED words still own their node until cleaned.
                unsafe { N::free(word.node::<()>(), Kind::Whole) };
            };
            // A destructor that panics must not leak the other nodes.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(free));
        }
    }
}
