//! A cache's garbage, from retirement until it is freed.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::{Garbage, Kind};
use crate::epoch::{self, Guard};
use crate::sync::{
    AcqRel, Acquire, AtomicBool, AtomicPtr, AtomicUsize, Cell, Relaxed, Release, Stripe, Striped,
};

const PENDING: usize = if cfg!(any(miri, seawall_small)) { 4 } else { 256 };
/// Fewer than these are not worth a batch.
const FEWEST: usize = if cfg!(any(miri, seawall_small)) { 2 } else { 32 };
const SEALED: usize = 4;
const SPARE: usize = 2;
/// After so many retirements a thread frees as many objects, of those that no pin holds any more. Allocators
/// keep a few pieces of each size for the thread that frees them (glibc seven): freed by the hundred, most
/// would go back to what all threads share.
const STEP: usize = if cfg!(any(miri, seawall_small)) { 1 } else { 6 };

const NONE: usize = usize::MAX;

/// Retired objects that are freed together, and with them those of an older batch.
struct Batch {
    /// The last epoch in which any of it may have been reachable, also of what hangs behind it.
    epoch: u64,
    items: Vec<*mut ()>,
    older: Option<Box<Batch>>,
}

impl Batch {
    /// Hangs another batch behind the oldest that hangs here.
    fn append(&mut self, other: Box<Batch>) {
        let mut batch = self;
        loop {
            batch.epoch = batch.epoch.max(other.epoch);
            match &mut batch.older {
                Some(older) => batch = older,
                last => {
                    *last = Some(other);
                    return;
                }
            }
        }
    }
}

/// One stripe's garbage. Slots are emptied by `swap`, so any thread may take over an idle stripe.
struct Heap {
    pending: [AtomicPtr<()>; PENDING],
    /// Next free place in `pending`; written by the stripe's owner only.
    cursor: AtomicUsize,
    sealed: [AtomicPtr<Batch>; SEALED],
    /// What no pin holds any more, and the stripe's owner frees step by step.
    ready: [AtomicPtr<Batch>; 1],
    /// Batches whose garbage was freed, to be filled again.
    spare: [AtomicPtr<Batch>; SPARE],
    /// Asks for a call of `free_ready`: for a step, or because a batch was sealed.
    due: AtomicBool,
    /// A batch was sealed since `free_ready` last looked at them.
    unseen: AtomicBool,
    /// How often this stripe was sealed, and what another thread saw when it last looked.
    seals: AtomicUsize,
    seen: AtomicUsize,
    /// The position of a stripe whose sealed batches the owner of this one is to look at; or [`NONE`].
    helps: AtomicUsize,
    retired: Cell,
    freed: Cell,
}

impl Default for Heap {
    fn default() -> Self {
        Heap {
            pending: [const { AtomicPtr::new(ptr::null_mut()) }; PENDING],
            cursor: AtomicUsize::new(0),
            sealed: [const { AtomicPtr::new(ptr::null_mut()) }; SEALED],
            ready: [const { AtomicPtr::new(ptr::null_mut()) }; 1],
            spare: [const { AtomicPtr::new(ptr::null_mut()) }; SPARE],
            due: AtomicBool::new(false),
            unseen: AtomicBool::new(false),
            seals: AtomicUsize::new(0),
            seen: AtomicUsize::new(usize::MAX),
            helps: AtomicUsize::new(NONE),
            retired: Cell::default(),
            freed: Cell::default(),
        }
    }
}

impl Heap {
    /// Moves all pending pointers to `items`.
    fn gather(&self, items: &mut Vec<*mut ()>) {
        for slot in &self.pending {
            if !slot.load(Relaxed).is_null() {
                // ORDERING (R1): Acquire pairs with the Release in `retire`.
                let retired = slot.swap(ptr::null_mut(), Acquire);
                if !retired.is_null() {
                    items.push(retired);
                }
            }
        }
    }

    /// Takes the batch of a slot; it is the caller's from now on.
    fn take(slot: &AtomicPtr<Batch>) -> Option<Box<Batch>> {
        if slot.load(Relaxed).is_null() {
            return None;
        }
        // ORDERING (R2): Acquire, see `put`.
        let raw = slot.swap(ptr::null_mut(), AcqRel);
        // SAFETY: slots hold pointers from `Box::into_raw`, and the swap took it out: it is ours, once.
        (!raw.is_null()).then(|| unsafe { Box::from_raw(raw) })
    }

    fn has_room(&self) -> bool {
        self.sealed.iter().any(|slot| slot.load(Relaxed).is_null())
    }

    /// Puts a batch into an empty slot, or gives it back.
    fn put(slots: &[AtomicPtr<Batch>], batch: Box<Batch>) -> Result<(), Box<Batch>> {
        let raw = Box::into_raw(batch);
        for slot in slots {
            // ORDERING (R2): Release publishes the batch.
            if slot.compare_exchange(ptr::null_mut(), raw, Release, Relaxed).is_ok() {
                return Ok(());
            }
        }
        // SAFETY: made by `into_raw` above and stored nowhere.
        Err(unsafe { Box::from_raw(raw) })
    }

    /// Puts a batch into a slot. Where other threads have filled them, one of theirs is hung behind it.
    fn put_somehow(slots: &[AtomicPtr<Batch>], mut batch: Box<Batch>) {
        while let Err(mut back) = Heap::put(slots, batch) {
            if let Some(theirs) = Heap::take(&slots[0]) {
                back.append(theirs);
            }
            batch = back;
        }
    }

    /// An empty batch.
    fn blank(&self) -> Box<Batch> {
        let spare = self.spare.iter().find_map(Heap::take);
        spare.unwrap_or_else(|| Box::new(Batch { epoch: 0, items: Vec::new(), older: None }))
    }

    /// Keeps a batch for [`blank`](Self::blank), if there is room; returns what hung behind it.
    fn keep(&self, mut batch: Box<Batch>) -> Option<Box<Batch>> {
        let older = batch.older.take();
        batch.items.clear();
        if batch.items.capacity() <= 2 * PENDING {
            // Without room it is dropped.
            let _ = Heap::put(&self.spare, batch);
        }
        older
    }
}

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
            } else if cursor % STEP == 0 && !heap.ready[0].load(Relaxed).is_null() {
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
        self.help_another(heap, &mut batch.items);
        Self::enclose(heap, batch);
        heap.unseen.store(true, Relaxed);
        heap.due.store(true, Relaxed);
    }

    /// Takes over what another stripe has had pending since this was last called for that; and what is
    /// sealed or ready there, if it was not sealed since. A thread that is as busy as others is not helped:
    /// an allocator takes back best what the same thread has allocated.
    fn help_another(&self, heap: &Heap, items: &mut Vec<*mut ()>) {
        let position = self.patrol.fetch_add(1, Relaxed) % self.heaps.len();
        let other = self.heaps.at(position);
        let seals = other.seals.load(Relaxed);
        let mark = seals.wrapping_mul(PENDING + 1).wrapping_add(other.cursor.load(Relaxed));
        let seen = other.seen.swap(mark, Relaxed);
        if seen == mark {
            other.gather(items);
        }
        if seen / (PENDING + 1) == seals {
            if let Some(batch) = Heap::take(&other.ready[0]) {
                Heap::put_somehow(&heap.ready, batch);
            }
            heap.helps.store(position, Relaxed);
        }
    }

    fn enclose(heap: &Heap, mut batch: Box<Batch>) {
        if batch.items.is_empty() {
            return;
        }
        // Without room a pin has been held for long. Older garbage may as well wait for newer.
        batch.older = if heap.has_room() { None } else { Heap::take(&heap.sealed[0]) };
        // An older epoch has ended before this one.
        batch.epoch = epoch::advance();
        Heap::put_somehow(&heap.sealed, batch);
    }

    /// Frees what no pin holds any more, of the thread's own stripe and of one that it helps.
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
        let mut left = Self::free_ready_of(heap, bound, 1, heap, own);
        let other = heap.helps.load(Relaxed);
        if other != NONE {
            heap.helps.store(NONE, Relaxed);
            left |= Self::free_ready_of(self.heaps.at(other), bound, 1, heap, own);
        }
        if left {
            heap.unseen.store(true, Relaxed);
            heap.due.store(true, Relaxed);
        }
    }

    /// Frees some of what is ready.
    fn free_step(heap: &Heap, most: usize, own: bool) {
        let Some(mut batch) = Heap::take(&heap.ready[0]) else { return };
        let rest = batch.items.len().saturating_sub(most);
        // SAFETY: what is ready was seen by no pin that is left; the items are taken out of the batch, and
        // that was taken out of its slot: they are freed here and nowhere else.
        unsafe { Self::free_all(batch.items.drain(rest..).as_slice(), heap, own) };
        Self::prefetch(&batch.items[rest.saturating_sub(most)..]);
        let batch = if rest == 0 { heap.keep(batch) } else { Some(batch) };
        if let Some(batch) = batch {
            Heap::put_somehow(&heap.ready, batch);
        }
    }

    /// Frees what is ready in a heap, up to `most` batches of each slot. Returns whether some is left. A
    /// whole batch of the thread's own is left to the steps.
    fn free_ready_of(heap: &Heap, bound: u64, most: usize, count: &Heap, own: bool) -> bool {
        let mut left = false;
        for batch in heap.sealed.iter().filter_map(Heap::take) {
            if batch.epoch >= bound {
                Heap::put_somehow(&heap.sealed, batch);
            } else if own && most == 1 && ptr::eq(heap, count) && batch.items.len() >= PENDING {
                Heap::put_somehow(&heap.ready, batch);
            } else {
                // SAFETY: every pin that could have seen these objects has ended; the batch was taken
                // out of its slot: they are freed here and nowhere else.
                if let Some(back) = unsafe { Self::free_some(batch, most, count, own) } {
                    left = true;
                    Heap::put_somehow(&heap.sealed, back);
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
            if let Some(batch) = Heap::take(&heap.ready[0]) {
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
            for batch in heap.sealed.iter().chain(&heap.ready).filter_map(Heap::take) {
                // SAFETY: as above.
                unsafe { Self::free_some(batch, usize::MAX, heap, false) };
            }
            heap.spare.iter().for_each(|slot| drop(Heap::take(slot)));
        }
    }
}
