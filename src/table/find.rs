//! The reader's way to a node.

use std::marker::PhantomData;

use super::bucket::{self, Bucket};
use super::reclaim::{Guard, check_read};
use super::word::{BucketState, Control, Word, bits};
use super::{Found, Hit, Map, Node, Seen, first_choice};
use crate::sync::Acquire;

impl<N: Node, H> Map<N, H> {
    /// Finds a node for a reader: never writes, never moves a bucket.
    ///
    /// A hit takes effect when its slot word was loaded. A miss takes effect when the control word was
    /// loaded, or, if the key's slot changed after that, when it did.
    #[inline]
    pub(crate) fn find<'g>(
        &'g self,
        hash: u64,
        eq: impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Hit<'g, N>> {
        let buckets = &self.root(guard).buckets;
        let bucket = buckets.at(buckets.index_of(hash));
        let tag = Word::tag_of(hash);
        loop {
            let control = bucket.control();
            if !control.is_ready() {
                return self.find_slowly(hash, &eq, guard);
            }
            // Most keys are in their first choice of a slot, from where it is one load to the node.
            let first = first_choice(hash);
            let slot = bucket.own_slot(first);
            // ORDERING (P1): as in `Bucket::word`.
            let word = Word::from_raw(slot.load(Acquire));
            let hit = if control.is_occupied(first) && Self::is_match(word, tag, &eq, guard) {
                Some(Hit { slot, word, node: PhantomData })
            } else {
                Self::find_in_line(bucket, control, tag, &eq, guard)
            };
            match hit {
                None if Bucket::is_extended(control) => {
                    return self.find_slowly(hash, &eq, guard);
                }
                None => return None,
                // I1: no bit changed, so the slot's bit was set when its word was loaded.
                Some(hit) if bucket.control() == control => return Some(hit),
                Some(_) => {}
            }
        }
    }

    #[inline]
    pub(super) fn find_in_line<'g>(
        bucket: &'g Bucket,
        control: Control,
        tag: usize,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Hit<'g, N>> {
        let mut matches = bucket.tagged(tag) & control.occupied();
        while matches != 0 {
            let slot = bucket.own_slot(matches.trailing_zeros());
            // ORDERING (P1): as in `Bucket::word`.
            let word = Word::from_raw(slot.load(Acquire));
            if Self::is_match(word, tag, eq, guard) {
                return Some(Hit { slot, word, node: PhantomData });
            }
            matches &= matches - 1;
        }
        None
    }

    #[inline]
    pub(super) fn is_match(
        word: Word,
        tag: usize,
        eq: &impl Fn(&N) -> bool,
        guard: &Guard,
    ) -> bool {
        word.is_candidate(tag) && {
            check_read(word.node::<N>(), guard);
            // SAFETY: I2: the word was loaded from a slot whose bit was set after we pinned, so the
            // node was not retired before; in an old bucket also by I4.
            eq(unsafe { &*word.node::<N>() })
        }
    }

    /// Looks for a key among the occupied slots. What it returns is not validated.
    #[inline]
    pub(super) fn scan<'g>(
        bucket: &'g Bucket,
        control: Control,
        tag: usize,
        side: Option<usize>,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Found<'g, N>> {
        let mut matches = bucket.tagged(tag) & control.occupied();
        while matches != 0 {
            let slot = matches.trailing_zeros();
            if let Some(found) = Self::look(bucket, slot, tag, side, eq, guard) {
                return Some(found);
            }
            matches &= matches - 1;
        }
        if Bucket::is_extended(control) {
            return Self::scan_extensions(bucket, control, tag, side, eq, guard);
        }
        None
    }

    #[cold]
    pub(super) fn scan_extensions<'g>(
        bucket: &'g Bucket,
        control: Control,
        tag: usize,
        side: Option<usize>,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Found<'g, N>> {
        bits(control.occupied() >> bucket::BASE)
            .find_map(|slot| Self::look(bucket, slot + bucket::BASE, tag, side, eq, guard))
    }

    #[inline]
    pub(super) fn look<'g>(
        bucket: &'g Bucket,
        slot: u32,
        tag: usize,
        side: Option<usize>,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Found<'g, N>> {
        let word = bucket.word(slot);
        if side.is_some_and(|side| word.is_frozen() && word.side() != side) {
            // I4: the other new bucket may be in use, and this node freed.
            return None;
        }
        if !Self::is_match(word, tag, eq, guard) {
            return None;
        }
        // SAFETY: I2: as in `is_match`.
        let node = unsafe { &*word.node::<N>() };
        Some(Found { bucket, seen: Seen { slot, word }, node })
    }

    /// The reader's way when its bucket has extension lines or is not in use: not yet (its keys are in
    /// the old bucket), or no longer (the root has moved on).
    #[cold]
    #[inline(never)]
    pub(super) fn find_slowly<'g>(
        &'g self,
        hash: u64,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Hit<'g, N>> {
        let tag = Word::tag_of(hash);
        loop {
            let table = self.root(guard);
            let index = table.buckets.index_of(hash);
            let bucket = table.buckets.at(index);
            let control = bucket.control();
            match control.state() {
                BucketState::Ready => match Self::scan(bucket, control, tag, None, eq, guard) {
                    None => return None,
                    Some(found) if bucket.control() == control => return Some(found.hit()),
                    Some(_) => {}
                },
                // The root is newer than the one we loaded.
                BucketState::Frozen => {}
                BucketState::Uninit => {
                    let Some(previous) = Self::previous(table, guard) else {
                        if bucket.control() == Control::UNINIT {
                            return None;
                        }
                        continue;
                    };
                    let old = previous.buckets.at(previous.buckets.index_of(hash));
                    let old_control = old.control();
                    let found = Self::scan(old, old_control, tag, Some(index & 1), eq, guard);
                    // I4: the old bucket spoke for this key as long as the new one was not in use.
                    let unmoved = bucket.control() == Control::UNINIT;
                    match found {
                        None if unmoved => return None,
                        Some(found) if unmoved && old.control() == old_control => {
                            return Some(found.hit());
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
