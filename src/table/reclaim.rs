//! Memory reclamation: the only user of `crossbeam_epoch`.
//!
//! A reader pins before it loads a pointer from the table; a writer that unlinks something *retires*
//! it into the cache's [`Limbo`]; it is freed when every pin that may have seen it is gone.
//!
//! * Pins belong to a collector of our own, so a stalled guard of another crate holds nothing of ours.
//! * The collector only ever learns "this batch is now safe". Freeing, and with it the user's `Drop`,
//!   is done by threads that write, after they unpinned: a reader never runs a destructor.
//! * A limbo owns all its garbage: when the cache goes, nobody can be reading and all of it is freed
//!   at once, whichever thread retired it.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | R1 | `retire` stores a slot | `gather` swaps it out | the retired object, before it is freed |
//! | R2 | the deferred closure sets `ready` | `free_ready` loads it | all reads of pins that ended before |

#[cfg(not(seawall_loom))]
pub(crate) use self::real::{Guard, Limbo, check_read, pin, stripe};

#[cfg(seawall_loom)]
pub(crate) use self::model::{Guard, Limbo, check_read, pin, stripe};

/// What a retired pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    /// A node with key and value.
    Whole = 0,
    /// A node whose value has been moved out.
    Hollow = 1,
    /// What a node's state word pointed to.
    Extra = 2,
    /// An array of buckets; owns no nodes.
    Table = 3,
}

impl Kind {
    const MASK: usize = 3;

    fn of(tagged: *mut ()) -> Kind {
        match tagged.addr() & Kind::MASK {
            0 => Kind::Whole,
            1 => Kind::Hollow,
            2 => Kind::Extra,
            _ => Kind::Table,
        }
    }
}

/// What a limbo of nodes `Self` can free.
///
/// # Safety
/// `free` must accept every pointer that is retired under its kind, and these pointers must have an
/// alignment of at least 4.
pub(crate) unsafe trait Garbage {
    /// Frees a retired object.
    ///
    /// # Safety
    /// The pointer was retired under `kind`, nobody reads it any more, and it is freed once.
    unsafe fn free(retired: *mut (), kind: Kind);
}

#[cfg(not(seawall_loom))]
mod real {
    use std::fmt;
    use std::marker::PhantomData;
    use std::mem::ManuallyDrop;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::ptr;
    use std::sync::{Arc, LazyLock};

    use crossbeam_epoch::{self as epoch, Collector, LocalHandle};

    use super::{Garbage, Kind};
    use crate::sync::{
        AcqRel, Acquire, AtomicBool, AtomicPtr, AtomicUsize, Cell, OwnedStripe, Relaxed, Release,
        Stripe, Striped,
    };

    static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);

    struct Local {
        handle: LocalHandle,
        stripe: OwnedStripe,
    }

    thread_local! {
        static LOCAL: Local = Local {
            handle: COLLECTOR.register(),
            stripe: OwnedStripe::claim(),
        };
    }

    /// A pin: what was reachable since it was taken stays allocated until it is dropped.
    pub(crate) struct Guard {
        inner: epoch::Guard,
        stripe: Stripe,
    }

    impl fmt::Debug for Guard {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Guard").finish_non_exhaustive()
        }
    }

    /// Pins the calling thread.
    #[inline]
    pub(crate) fn pin() -> Guard {
        LOCAL
            .try_with(|local| Guard { inner: local.handle.pin(), stripe: local.stripe.get() })
            .unwrap_or_else(|_| pin_without_local())
    }

    /// While the thread's locals are being torn down (the destructor of a user's thread-local).
    #[cold]
    fn pin_without_local() -> Guard {
        Guard { inner: COLLECTOR.register().pin(), stripe: Stripe::SHARED }
    }

    /// The calling thread's stripe.
    pub(crate) fn stripe() -> Stripe {
        LOCAL.try_with(|local| local.stripe.get()).unwrap_or(Stripe::SHARED)
    }

    impl Guard {
        /// The stripe of the pinned thread.
        #[inline]
        pub(crate) fn stripe(&self) -> Stripe {
            self.stripe
        }

        /// Lets go of what this pin has held so far and pins anew.
        pub(crate) fn repin(&mut self) {
            self.inner.repin();
        }
    }

    /// Where models check that what is read was not freed before the pin.
    #[inline]
    pub(crate) fn check_read<T>(_object: *const T, _guard: &Guard) {}

    const PENDING: usize = if cfg!(any(miri, seawall_small)) { 4 } else { 256 };
    /// Fewer than these are not worth a batch.
    const FEWEST: usize = if cfg!(any(miri, seawall_small)) { 2 } else { 32 };
    const SEALED: usize = 4;

    /// Retired objects that are freed together once `ready`, and with them those of an older batch.
    struct Batch {
        ready: AtomicBool,
        items: Box<[*mut ()]>,
        older: AtomicPtr<Batch>,
    }

    impl Batch {
        fn take_older(&self) -> Option<Arc<Batch>> {
            Heap::take(&self.older)
        }

        /// Hangs an older batch behind the oldest that hangs here.
        fn append(&self, older: Arc<Batch>) {
            let mut last = &self.older;
            loop {
                let next = last.load(Acquire);
                if next.is_null() {
                    last.store(Arc::into_raw(older).cast_mut(), Release);
                    return;
                }
                // SAFETY: a batch keeps what hangs behind it, and only the owner of the first one
                // takes any of them off.
                last = unsafe { &(*next).older };
            }
        }
    }

    // SAFETY: the pointers are only followed through a `Limbo<G>`, by the one thread that takes the
    // batch out of its slot, and a limbo is Send and Sync only if `G` is both. The collector's closure,
    // which may run anywhere, touches nothing but `ready`.
    unsafe impl Send for Batch {}
    // SAFETY: as above; `ready` and `older` are atomic and `items` is never changed.
    unsafe impl Sync for Batch {}

    /// One stripe's garbage. Slots are emptied by `swap`, so any thread may take over an idle stripe.
    struct Heap {
        pending: [AtomicPtr<()>; PENDING],
        /// Next free place in `pending`; written by the stripe's owner only.
        cursor: AtomicUsize,
        sealed: [AtomicPtr<Batch>; SEALED],
        /// Set when a batch was sealed; asks for a call of `free_ready`.
        due: AtomicBool,
        /// How often this stripe was sealed, and what another thread saw when it last looked.
        seals: AtomicUsize,
        seen: AtomicUsize,
        retired: Cell,
        freed: Cell,
    }

    impl Default for Heap {
        fn default() -> Self {
            Heap {
                pending: [const { AtomicPtr::new(ptr::null_mut()) }; PENDING],
                cursor: AtomicUsize::new(0),
                sealed: [const { AtomicPtr::new(ptr::null_mut()) }; SEALED],
                due: AtomicBool::new(false),
                seals: AtomicUsize::new(0),
                seen: AtomicUsize::new(usize::MAX),
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
        fn take(slot: &AtomicPtr<Batch>) -> Option<Arc<Batch>> {
            let raw = slot.swap(ptr::null_mut(), AcqRel);
            // SAFETY: slots hold pointers from `Arc::into_raw`, and the swap took it out: its
            // reference count is ours, once.
            (!raw.is_null()).then(|| unsafe { Arc::from_raw(raw) })
        }

        fn has_room(&self) -> bool {
            self.sealed.iter().any(|slot| slot.load(Relaxed).is_null())
        }

        /// Puts a batch into an empty slot, or gives it back.
        fn put(&self, batch: Arc<Batch>) -> Option<Arc<Batch>> {
            let raw = Arc::into_raw(batch).cast_mut();
            for slot in &self.sealed {
                // ORDERING: Release pairs with the swap in `take` (the batch's contents).
                if slot.compare_exchange(ptr::null_mut(), raw, Release, Relaxed).is_ok() {
                    return None;
                }
            }
            // SAFETY: made by `into_raw` above and stored nowhere.
            Some(unsafe { Arc::from_raw(raw) })
        }
    }

    /// All garbage of one cache.
    pub(crate) struct Limbo<G: Garbage> {
        heaps: Striped<Heap>,
        /// Which stripe is looked at next for garbage left behind by an idle thread.
        patrol: AtomicUsize,
        /// Batches that the collector has not yet said are safe.
        open: Arc<AtomicUsize>,
        owns: PhantomData<G>,
    }

    impl<G: Garbage> fmt::Debug for Limbo<G> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Limbo").field("waiting", &self.waiting()).finish()
        }
    }

    impl<G: Garbage> Limbo<G> {
        pub(crate) fn new() -> Self {
            Limbo {
                heaps: Striped::new(),
                patrol: AtomicUsize::new(0),
                open: Arc::default(),
                owns: PhantomData,
            }
        }

        /// Returns how many retired objects are not freed yet.
        pub(crate) fn waiting(&self) -> u64 {
            let sum: i64 =
                self.heaps.iter().map(|heap| heap.retired.get() - heap.freed.get()).sum();
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
            let (heap, own) = self.heaps.of(guard.stripe);
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
                    self.seal(heap, Vec::with_capacity(PENDING), guard);
                }
            } else {
                let placed = heap.pending.iter().any(|slot| {
                    // ORDERING (R1): Release, see `gather`.
                    slot.compare_exchange(ptr::null_mut(), tagged, Release, Relaxed).is_ok()
                });
                if !placed {
                    self.seal(heap, vec![tagged], guard);
                }
            }
        }

        /// Hands over what the thread's stripe has pending before it is full, if that is worth it.
        ///
        /// A full stripe is cheapest, for those who retire and for readers, who come across the
        /// collector's work; but the values of a small cache, or a few heavy ones, should not wait for it.
        pub(crate) fn seal_early(&self, guard: &Guard) {
            let (heap, own) = self.heaps.of(guard.stripe);
            if !own || heap.cursor.load(Relaxed) >= FEWEST {
                self.seal(heap, Vec::new(), guard);
            }
        }

        /// Turns the pending garbage of a stripe into a batch and hands it to the collector.
        #[cold]
        fn seal(&self, heap: &Heap, mut items: Vec<*mut ()>, guard: &Guard) {
            heap.gather(&mut items);
            heap.cursor.store(0, Relaxed);
            heap.seals.store(heap.seals.load(Relaxed).wrapping_add(1), Relaxed);
            self.adopt_idle(&mut items);
            self.defer(heap, items, guard);
            heap.due.store(true, Relaxed);
        }

        /// Takes over what a stripe has left pending since this was last called for it.
        fn adopt_idle(&self, items: &mut Vec<*mut ()>) {
            let position = self.patrol.fetch_add(1, Relaxed) % self.heaps.len();
            let heap = self.heaps.at(position);
            let mark =
                (heap.seals.load(Relaxed) * (PENDING + 1)).wrapping_add(heap.cursor.load(Relaxed));
            if heap.seen.swap(mark, Relaxed) == mark {
                heap.gather(items);
            }
        }

        fn defer(&self, heap: &Heap, items: Vec<*mut ()>, guard: &Guard) {
            // Without room a pin has been held for long. Older garbage may as well wait for newer.
            let older = if heap.has_room() { None } else { Heap::take(&heap.sealed[0]) };
            if items.is_empty() && older.is_none() {
                return;
            }
            self.put_somehow(heap, self.seal_batch(items, older, guard), guard);
        }

        /// Puts a batch into a slot. Where other threads have filled them, one of theirs is hung behind
        /// it, and both wait anew.
        fn put_somehow(&self, heap: &Heap, mut batch: Arc<Batch>, guard: &Guard) {
            while let Some(back) = heap.put(batch) {
                if let Some(theirs) = Heap::take(&heap.sealed[0]) {
                    back.append(theirs);
                }
                batch = self.seal_batch(Vec::new(), Some(back), guard);
            }
        }

        fn seal_batch(
            &self,
            items: Vec<*mut ()>,
            older: Option<Arc<Batch>>,
            guard: &Guard,
        ) -> Arc<Batch> {
            let older = older.map_or(ptr::null_mut(), |older| Arc::into_raw(older).cast_mut());
            let batch = Arc::new(Batch {
                ready: AtomicBool::new(false),
                items: items.into(),
                older: AtomicPtr::new(older),
            });
            let (shared, open) = (Arc::clone(&batch), Arc::clone(&self.open));
            open.fetch_add(1, Relaxed);
            guard.inner.defer(move || {
                // ORDERING (R2): Release pairs with the Acquire in `free_ready`.
                shared.ready.store(true, Release);
                open.fetch_sub(1, Relaxed);
            });
            guard.inner.flush();
            batch
        }

        /// Frees what no pin holds any more, of the thread's own stripe and of one other.
        ///
        /// Runs the user's destructors, so the caller must not be in the middle of anything.
        #[cold]
        pub(crate) fn free_ready(&self, stripe: Stripe) {
            let (heap, own) = self.heaps.of(stripe);
            heap.due.store(false, Relaxed);
            // What waited for a long pin is freed over several operations.
            let mut left = self.free_ready_of(heap, 1, heap, own);
            let other = self.heaps.at(self.patrol.load(Relaxed) % self.heaps.len());
            if !ptr::eq(heap, other) {
                left |= self.free_ready_of(other, 1, heap, own);
            }
            if left {
                heap.due.store(true, Relaxed);
            }
        }

        /// Frees what is ready in a heap, up to `most` batches of each slot. Returns whether some is left.
        fn free_ready_of(&self, heap: &Heap, most: usize, count: &Heap, own: bool) -> bool {
            let mut left = false;
            for slot in &heap.sealed {
                let Some(batch) = Heap::take(slot) else { continue };
                // ORDERING (R2): Acquire, see `seal_batch`.
                let rest = if batch.ready.load(Acquire) {
                    // SAFETY: ready: every pin that could have seen these objects has ended; taken
                    // out of its slot: they are freed here and nowhere else.
                    let rest = unsafe { Self::free_some(batch, most, count, own) };
                    left |= rest.is_some();
                    rest
                } else {
                    Some(batch)
                };
                if let Some(back) = rest.and_then(|rest| heap.put(rest)) {
                    let guard = pin();
                    let batch = self.seal_batch(Vec::new(), Some(back), &guard);
                    self.put_somehow(heap, batch, &guard);
                }
            }
            left
        }

        /// Frees up to `most` batches of a chain; returns the rest, ready to be freed.
        ///
        /// # Safety
        /// As [`Self::free_all`].
        unsafe fn free_some(
            batch: Arc<Batch>,
            most: usize,
            count: &Heap,
            own: bool,
        ) -> Option<Arc<Batch>> {
            let mut next = Some(batch);
            for _ in 0..most {
                let Some(batch) = next else { break };
                // SAFETY: by the caller.
                unsafe { Self::free_all(&batch.items, count, own) };
                next = batch.take_older();
            }
            // ORDERING (R2): Release: what hangs behind a ready batch waited longer.
            next.inspect(|rest| rest.ready.store(true, Release))
        }

        /// # Safety
        /// Nobody reads the objects any more and nobody else frees them.
        unsafe fn free_all(items: &[*mut ()], count: &Heap, own: bool) {
            for &tagged in items {
                super::super::prefetch(tagged.map_addr(|addr| addr & !Kind::MASK));
            }
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

        /// Hands over everything that waits, of all stripes, and frees what can be freed now. All of
        /// it is freed if no other thread is pinned.
        pub(crate) fn flush(&self) {
            {
                let guard = pin();
                for heap in self.heaps.iter() {
                    let mut items = Vec::new();
                    heap.gather(&mut items);
                    self.defer(heap, items, &guard);
                }
            }
            // Each flush runs a few of the collector's closures and moves its epoch on, if it can.
            let mut idle = 0;
            while idle < 4 && self.open.load(Relaxed) > 0 {
                let before = self.open.load(Relaxed);
                pin().inner.flush();
                idle = if self.open.load(Relaxed) < before { 0 } else { idle + 1 };
            }
            let (count, own) = self.heaps.of(stripe());
            for heap in self.heaps.iter() {
                self.free_ready_of(heap, usize::MAX, count, own);
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
                for batch in heap.sealed.iter().filter_map(Heap::take) {
                    // SAFETY: as above.
                    unsafe { Self::free_some(batch, usize::MAX, heap, false) };
                }
            }
        }
    }
}

/// Reclamation in loom models: nothing is freed before the model ends, but reading an object that was
/// retired before the reader pinned fails, and so does retiring one twice.
#[cfg(seawall_loom)]
mod model {
    use std::marker::PhantomData;
    use std::sync::Mutex;

    use super::{Garbage, Kind};
    use crate::sync::{AcqRel, AtomicUsize, Stripe};

    loom::lazy_static! {
        /// Counts retirements. A pin reads it by a read-modify-write, so that it happens after all
        /// retirements before it: what an epoch guarantees about objects that are already free.
        static ref RETIREMENTS: AtomicUsize = AtomicUsize::new(0);
        static ref RETIRED: Mutex<Vec<Retired>> = Mutex::default();
    }

    #[derive(Debug)]
    struct Retired {
        addr: usize,
        at: usize,
    }

    #[derive(Debug)]
    pub(crate) struct Guard {
        at: usize,
    }

    pub(crate) fn pin() -> Guard {
        Guard { at: RETIREMENTS.fetch_add(0, AcqRel) }
    }

    pub(crate) fn stripe() -> Stripe {
        Stripe::SHARED
    }

    impl Guard {
        pub(crate) fn stripe(&self) -> Stripe {
            Stripe::SHARED
        }

        pub(crate) fn repin(&mut self) {
            *self = pin();
        }
    }

    /// Fails if the object may have been freed when the guard was taken.
    pub(crate) fn check_read<T>(object: *const T, guard: &Guard) {
        let retired = RETIRED.lock().unwrap();
        let freed = retired.iter().any(|it| it.addr == object.addr() && it.at < guard.at);
        drop(retired);
        assert!(!freed, "read an object that was retired before the pin");
    }

    pub(crate) struct Limbo<G: Garbage> {
        objects: Mutex<Vec<(*mut (), Kind)>>,
        owns: PhantomData<G>,
    }

    // SAFETY: as the real limbo, behind a mutex.
    unsafe impl<G: Garbage + Send> Send for Limbo<G> {}
    // SAFETY: as above.
    unsafe impl<G: Garbage + Send + Sync> Sync for Limbo<G> {}

    impl<G: Garbage> std::fmt::Debug for Limbo<G> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Limbo").finish_non_exhaustive()
        }
    }

    impl<G: Garbage> Limbo<G> {
        pub(crate) fn new() -> Self {
            Limbo { objects: Mutex::default(), owns: PhantomData }
        }

        pub(crate) fn waiting(&self) -> u64 {
            self.objects.lock().unwrap().len() as u64
        }

        pub(crate) fn is_due(&self, _stripe: Stripe) -> bool {
            false
        }

        pub(crate) unsafe fn retire(&self, object: *mut (), kind: Kind, _guard: &Guard) {
            let at = RETIREMENTS.fetch_add(1, AcqRel);
            let mut retired = RETIRED.lock().unwrap();
            let twice = retired.iter().any(|it| it.addr == object.addr());
            retired.push(Retired { addr: object.addr(), at });
            drop(retired);
            assert!(!twice, "an object was retired twice");
            self.objects.lock().unwrap().push((object, kind));
        }

        pub(crate) fn seal_early(&self, _guard: &Guard) {}

        pub(crate) fn free_ready(&self, _stripe: Stripe) {}

        pub(crate) fn flush(&self) {}
    }

    impl<G: Garbage> Drop for Limbo<G> {
        fn drop(&mut self) {
            for (object, kind) in self.objects.get_mut().unwrap().drain(..) {
                // SAFETY: `&mut self`: nobody reads, and nothing was retired twice.
                unsafe { G::free(object, kind) };
            }
        }
    }
}
