//! The one rule: probe, then one compare-and-swap. Insert (claim and commit), replace, remove, clean.

use super::bucket::{Bucket, CHAIN};
use super::reclaim::{Guard, Kind};
use super::word::{BucketState, Control, Policy, Word, bits};
use super::{Commit, Found, Map, Node, Owned, Probe, Rehash, Seen, Vacant, first_choice};
use crate::sync::Acquire;

impl<N: Node, H> Map<N, H> {
    /// Finds a node for a writer, or proves that the key is not there.
    pub(crate) fn probe<'g>(
        &'g self,
        hash: u64,
        eq: impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Probe<'g, N>
    where
        H: Rehash<N>,
    {
        let tag = Word::tag_of(hash);
        loop {
            let table = self.root(guard);
            let index = table.buckets.index_of(hash);
            let bucket = table.buckets.at(index);
            let control = bucket.control();
            match control.state() {
                BucketState::Uninit => self.make_ready(table, index, guard),
                BucketState::Frozen => {}
                BucketState::Ready => match Self::scan(bucket, control, tag, None, &eq, guard) {
                    None => {
                        let first = first_choice(hash);
                        return Probe::Vacant(Vacant { bucket, control, tag, first });
                    }
                    Some(found) if bucket.control() == control => return Probe::Found(found),
                    Some(_) => {}
                },
            }
        }
    }

    /// Puts a node into the bucket that was probed: claim, then commit. It takes effect at the commit.
    pub(crate) fn commit<'g>(
        &'g self,
        vacant: &Vacant<'g>,
        mut node: Owned<'g, N>,
        policy: Policy,
        guard: &'g Guard,
    ) -> Commit<'g, N> {
        let Vacant { bucket, control, tag, first } = *vacant;
        let word = Word::new(node.as_ptr().cast(), tag, policy);
        let Some(slot) = self.claim(bucket, control, first, word, guard) else {
            // Either all slots are taken, or the bits have changed and the caller must look again.
            let full = bucket.control() == control;
            return if full { Commit::Full(node) } else { Commit::Lost(node) };
        };
        node.set_exposed();
        if bucket.change_control(control, control.with(slot)) {
            let node = node.release();
            return Commit::Done(Found { bucket, seen: Seen { slot, word }, node });
        }
        // Lost the race: some bit changed, perhaps for this very key. The claim is still ours alone:
        // nobody acts on a word whose bit is clear.
        let given_back = bucket.change_word(slot, word, Word::FREE);
        debug_assert!(given_back, "I3: a claim is changed by its claimer only");
        Commit::Lost(node)
    }

    /// Claims a free slot: its bit is clear and its word zero. Cleans removed slots on the way if there
    /// is no other room.
    pub(super) fn claim(
        &self,
        bucket: &Bucket,
        control: Control,
        first: u32,
        word: Word,
        guard: &Guard,
    ) -> Option<u32> {
        let vacant = !control.occupied() & ((1 << CHAIN) - 1);
        for slot in bits(vacant & 1 << first).chain(bits(vacant & !(1 << first))) {
            // ORDERING (P1): Acquire, as in `Bucket::word`.
            let mut seen = Word::from_raw(bucket.slot_or_extend(slot)?.load(Acquire));
            if seen.is_removed() {
                // Its bit is clear already; whoever cleared it has not come to zeroing it.
                self.clean(bucket, Seen { slot, word: seen }, guard);
                seen = Word::FREE;
            }
            if seen.is_free() && bucket.change_word(slot, seen, word) {
                return Some(slot);
            }
        }
        for slot in bits(control.occupied()) {
            let seen = Seen { slot, word: bucket.word(slot) };
            if seen.word.is_removed() {
                self.clean(bucket, seen, guard);
            }
        }
        None
    }

    /// Replaces a found node. The winner has retired the old one; the loser gets its node back.
    pub(crate) fn replace<'g>(
        &'g self,
        found: &Found<'g, N>,
        node: Owned<'g, N>,
        policy: Policy,
        guard: &'g Guard,
    ) -> Result<Found<'g, N>, Owned<'g, N>> {
        let Found { bucket, seen: Seen { slot, word: old }, .. } = *found;
        let word = Word::new(node.as_ptr().cast(), old.tag(), policy);
        if !old.is_plain() || !bucket.change_word(slot, old, word) {
            return Err(node);
        }
        // SAFETY: I2: the CAS took the node out of its slot, so no new reader finds it, and only one
        // thread can have won it.
        unsafe { self.limbo.retire(old.node::<()>(), Kind::Whole, guard) };
        Ok(Found { bucket, seen: Seen { slot, word }, node: node.release() })
    }

    /// Removes a found node; returns whether this call did. It takes effect before cleaning.
    pub(crate) fn remove(&self, found: &Found<'_, N>, guard: &Guard) -> bool {
        let Found { bucket, seen: Seen { slot, word }, .. } = *found;
        let removed = word.removed();
        if !word.is_plain() || !bucket.change_word(slot, word, removed) {
            return false;
        }
        self.clean(bucket, Seen { slot, word: removed }, guard);
        true
    }

    /// Frees a slot whose word is REMOVED: clears its bit, and only then the word. Anyone may help;
    /// who zeroes the word retires the node.
    pub(super) fn clean(&self, bucket: &Bucket, removed: Seen, guard: &Guard) {
        let Seen { slot, word } = removed;
        loop {
            let control = bucket.control();
            if !control.is_occupied(slot) {
                break;
            }
            if !control.is_ready() || bucket.word(slot) != word {
                // Frozen: whoever moves the bucket retires the node. Changed: somebody was quicker.
                return;
            }
            if bucket.change_control(control, control.without(slot)) {
                break;
            }
        }
        // I3: the bit has been clear since the word was REMOVED, or the word is no longer there.
        if bucket.change_word(slot, word, Word::FREE) {
            // SAFETY: I2: the word is in no slot any more; one thread zeroes it.
            unsafe { self.limbo.retire(word.node::<()>(), Kind::Whole, guard) };
        }
    }
}
