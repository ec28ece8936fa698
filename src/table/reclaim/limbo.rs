//! A cache's garbage, from retirement until it is freed.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::heap::{Batch, Heap, PENDING};
use super::{Garbage, Kind};
use crate::epoch::{self, Guard};
use crate::sync::{AtomicUsize, Relaxed, Release, Stripe, Striped};

/// Fewer than these are not worth a batch.
const FEWEST: usize = if cfg!(any(miri, seawall_small)) { 2 } else { 32 };
/// After so many retirements a thread frees as many objects, of those that no pin holds any more. Allocators
/// keep a few pieces of each size for the thread that frees them (glibc seven): freed by the hundred, most
/// would go back to what all threads share.
const STEP: usize = if cfg!(any(miri, seawall_small)) { 1 } else { 6 };

/// All garbage of one cache.
pub(crate) struct Limbo<G: Garbage> {
    heaps: Striped<Heap>,
    /// Which stripe is looked at next for garbage left behind by an idle thread.
    patrol: AtomicUsize,
    owns: PhantomData<G>,
}

impl<G: Garbage> fmt::Debug for Limbo<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limbo").field("waiting", &self.waiting()).finish()
    }
}

impl<G: Garbage> Limbo<G> {
    pub(crate) fn new() -> Self {
        Limbo { heaps: Striped::new(), patrol: AtomicUsize::new(0), owns: PhantomData }
    }

    /// Returns how many retired objects are not freed yet.
    pub(crate) fn waiting(&self) -> u64 {
        let sum: i64 = self.heaps.iter().map(|heap| heap.retired.get() - heap.freed.get()).sum();
        sum.max(0).unsigned_abs()
    }

    /// Whether [`Self::free_ready`] is worth calling for a thread's stripe.
    #[inline]
    pub(crate) fn is_due(&self, stripe: Stripe) -> bool {
        self.heaps.of(stripe).0.due.load(Relaxed)
    }

    /// Retires an object.
    ///
    /// # Safety
    /// The object is unreachable for every thread that pins from now on, it is retired once, and
    /// `G::free` accepts it under `kind`.
    pub(crate) unsafe fn retire(&self, object: *mut (), kind: Kind, guard: &Guard) {
        let (heap, own) = self.heaps.of(guard.stripe());
        heap.retired.add(1, own);
        let tagged = object.map_addr(|addr| addr | kind as usize);
        if own {
            // The slot is empty: only the owner fills slots, and the cursor has not been here
            // since they were emptied.
            let cursor = heap.cursor.load(Relaxed);
            // ORDERING (R1): Release, see `gather`.
            heap.pending[cursor].store(tagged, Release);
            heap.cursor.store(cursor + 1, Relaxed);
            if cursor + 1 == PENDING {
                self.seal(heap, None);
            } else if cursor % STEP == 0 && !heap.ready.load(Relaxed).is_null() {
                heap.due.store(true, Relaxed);
            }
        } else {
            let placed = heap.pending.iter().any(|slot| {
                // ORDERING (R1): Release, see `gather`.
                slot.compare_exchange(ptr::null_mut(), tagged, Release, Relaxed).is_ok()
            });
            if !placed {
                self.seal(heap, Some(tagged));
            }
        }
    }

    /// Makes a batch of what the thread's stripe has pending before it is full, if that is worth it.
    ///
    /// A full stripe is cheapest; but the values of a small cache, or a few heavy ones, should not wait
    /// for it.
    pub(crate) fn seal_early(&self, guard: &Guard) {
        let (heap, own) = self.heaps.of(guard.stripe());
        if !own || heap.cursor.load(Relaxed) >= FEWEST {
            self.seal(heap, None);
        }
    }

    /// Makes a batch of the pending garbage of a stripe, and of what found no place there.
    #[cold]
    fn seal(&self, heap: &Heap, more: Option<*mut ()>) {
        let mut batch = heap.blank();
        batch.items.reserve(PENDING);
        heap.gather(&mut batch.items);
        batch.items.extend(more);
        heap.cursor.store(0, Relaxed);
        heap.seals.store(heap.seals.load(Relaxed).wrapping_add(1), Relaxed);
        self.help_another(&mut batch);
        Self::enclose(heap, batch);
        heap.unseen.store(true, Relaxed);
        heap.due.store(true, Relaxed);
    }

    /// Takes over what another stripe has had pending since this was last called for that; and all its
    /// batches, if it was not sealed since. A thread that is as busy as others is not helped: an allocator
    /// takes back best what the same thread has allocated.
    fn help_another(&self, batch: &mut Batch) {
        let position = self.patrol.fetch_add(1, Relaxed) % self.heaps.len();
        let other = self.heaps.at(position);
        let seals = other.seals.load(Relaxed);
        let mark = seals.wrapping_mul(PENDING + 1).wrapping_add(other.cursor.load(Relaxed));
        let seen = other.seen.swap(mark, Relaxed);
        if seen == mark {
            other.gather(&mut batch.items);
        }
        if seen / (PENDING + 1) == seals {
            for theirs in other.batches() {
                batch.append(theirs);
            }
        }
    }

    fn enclose(heap: &Heap, mut batch: Box<Batch>) {
        if batch.items.is_empty() && batch.older.is_none() {
            heap.keep(batch);
            return;
        }
        if !heap.has_room() {
            // A pin has been held for long. Older garbage may as well wait for newer.
            if let Some(older) = Heap::take(&heap.sealed[0]) {
                batch.append(older);
            }
        }
        // The epochs of what hangs behind it have ended before this one.
        batch.epoch = epoch::advance();
        heap.put_sealed(batch);
    }

    /// Frees what no pin holds any more, of the thread's own stripe.
    ///
    /// Runs the user's destructors, so the caller must not be in the middle of anything.
    #[cold]
    pub(crate) fn free_ready(&self, stripe: Stripe) {
        let (heap, own) = self.heaps.of(stripe);
        heap.due.store(false, Relaxed);
        if !heap.unseen.load(Relaxed) {
            return Self::free_step(heap, STEP, own);
        }
        heap.unseen.store(false, Relaxed);
        // What the steps have left, so that they keep up.
        Self::free_step(heap, PENDING, own);
        // Threads that work on a cache move the bound by themselves. Those that do not are waited for until
        // there is no room for more.
        let bound = epoch::bound(!heap.has_room());
        // What waited for a long pin is freed over several operations.
        if Self::free_ready_of(heap, bound, 1, heap, own) {
            heap.unseen.store(true, Relaxed);
            heap.due.store(true, Relaxed);
        }
    }

    /// Frees some of what is ready.
    fn free_step(heap: &Heap, most: usize, own: bool) {
        let Some(mut batch) = Heap::take(&heap.ready) else { return };
        let rest = batch.items.len().saturating_sub(most);
        // SAFETY: what is ready was seen by no pin that is left; the items are taken out of the batch, and
        // that was taken out of its slot: they are freed here and nowhere else.
        unsafe { Self::free_all(batch.items.drain(rest..).as_slice(), heap, own) };
        Self::prefetch(&batch.items[rest.saturating_sub(most)..]);
        let batch = if rest == 0 { heap.keep(batch) } else { Some(batch) };
        if let Some(batch) = batch {
            heap.put_ready(batch);
        }
    }

    /// Frees what is ready in a heap, up to `most` batches of each slot. Returns whether some is left. With
    /// one, a full batch is left to the steps of the stripe's owner.
    fn free_ready_of(heap: &Heap, bound: u64, most: usize, count: &Heap, own: bool) -> bool {
        let mut left = false;
        for batch in heap.sealed.iter().filter_map(Heap::take) {
            if batch.epoch >= bound {
                heap.put_sealed(batch);
            } else if own && most == 1 && batch.items.len() >= PENDING {
                heap.put_ready(batch);
            } else {
                // SAFETY: every pin that could have seen these objects has ended; the batch was taken
                // out of its slot: they are freed here and nowhere else.
                if let Some(back) = unsafe { Self::free_some(batch, most, count, own) } {
                    left = true;
                    heap.put_sealed(back);
                }
            }
        }
        left
    }

    /// Frees up to `most` batches of a chain; returns the rest.
    ///
    /// # Safety
    /// As [`Self::free_all`].
    unsafe fn free_some(
        batch: Box<Batch>,
        most: usize,
        count: &Heap,
        own: bool,
    ) -> Option<Box<Batch>> {
        let mut next = Some(batch);
        for _ in 0..most {
            let Some(batch) = next else { break };
            // SAFETY: by the caller.
            unsafe { Self::free_all(&batch.items, count, own) };
            next = count.keep(batch);
        }
        next
    }

    fn prefetch(items: &[*mut ()]) {
        for &tagged in items {
            super::super::prefetch(tagged.map_addr(|addr| addr & !Kind::MASK));
        }
    }

    /// # Safety
    /// Nobody reads the objects any more and nobody else frees them.
    unsafe fn free_all(items: &[*mut ()], count: &Heap, own: bool) {
        Self::prefetch(items);
        for &tagged in items {
            let kind = Kind::of(tagged);
            let object = tagged.map_addr(|addr| addr & !Kind::MASK);
            // A destructor that panics must not keep the others from running. Its panic ends
            // here: it belongs to no call of this thread.
            // SAFETY: by the caller; `retire` put the kind into the low bits.
            let freed = catch_unwind(AssertUnwindSafe(|| unsafe { G::free(object, kind) }));
            if let Err(panic) = freed {
                // Not dropped: its destructor might panic in turn.
                let _ = ManuallyDrop::new(panic);
            }
        }
        count.freed.add(i64::try_from(items.len()).unwrap_or(i64::MAX), own);
    }

    /// Frees what can be freed now, of all stripes: everything, if no other thread is pinned.
    pub(crate) fn flush(&self) {
        for heap in self.heaps.iter() {
            let mut batch = heap.blank();
            heap.gather(&mut batch.items);
            Self::enclose(heap, batch);
        }
        let bound = epoch::bound(true);
        let (count, own) = self.heaps.of(epoch::stripe());
        for heap in self.heaps.iter() {
            Self::free_ready_of(heap, bound, usize::MAX, count, own);
            if let Some(batch) = Heap::take(&heap.ready) {
                // SAFETY: as in `free_step`.
                unsafe { Self::free_some(batch, usize::MAX, count, own) };
            }
        }
    }
}

impl<G: Garbage> Drop for Limbo<G> {
    fn drop(&mut self) {
        for heap in self.heaps.iter() {
            let mut items = Vec::new();
            heap.gather(&mut items);
            // SAFETY: `&mut self`: no operation is running and no guard of this cache is left,
            // since both borrow the cache; so nobody reads, and the items were taken out.
            unsafe { Self::free_all(&items, heap, false) };
            for batch in heap.batches() {
                // SAFETY: as above.
                unsafe { Self::free_some(batch, usize::MAX, heap, false) };
            }
        }
    }
}
