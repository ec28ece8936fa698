//! One stripe's garbage: what is pending, sealed in batches, and ready to be freed.

use std::{ptr, slice};

use crate::sync::{AcqRel, Acquire, AtomicBool, AtomicPtr, AtomicUsize, Cell, Relaxed, Release};

pub(super) const PENDING: usize = if cfg!(any(miri, seawall_small)) { 4 } else { 256 };
const SEALED: usize = 4;
const SPARE: usize = 2;

/// Retired objects that are freed together, and with them those of an older batch.
pub(super) struct Batch {
    /// The last epoch in which any of it may have been reachable, also of what hangs behind it.
    pub(super) epoch: u64,
    pub(super) items: Vec<*mut ()>,
    pub(super) older: Option<Box<Batch>>,
}

impl Batch {
    /// Hangs another batch behind the oldest that hangs here.
    pub(super) fn append(&mut self, other: Box<Batch>) {
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
pub(super) struct Heap {
    pub(super) pending: [AtomicPtr<()>; PENDING],
    /// Next free place in `pending`; written by the stripe's owner only.
    pub(super) cursor: AtomicUsize,
    pub(super) sealed: [AtomicPtr<Batch>; SEALED],
    /// What no pin holds any more, and the stripe's owner frees step by step.
    pub(super) ready: AtomicPtr<Batch>,
    /// Batches whose garbage was freed, to be filled again.
    spare: [AtomicPtr<Batch>; SPARE],
    /// Asks for a call of `free_ready`: for a step, or because a batch was sealed.
    pub(super) due: AtomicBool,
    /// A batch was sealed since `free_ready` last looked at them.
    pub(super) unseen: AtomicBool,
    /// How often this stripe was sealed, and what another thread saw when it last looked.
    pub(super) seals: AtomicUsize,
    pub(super) seen: AtomicUsize,
    pub(super) retired: Cell,
    pub(super) freed: Cell,
}

impl Default for Heap {
    fn default() -> Self {
        Heap {
            pending: [const { AtomicPtr::new(ptr::null_mut()) }; PENDING],
            cursor: AtomicUsize::new(0),
            sealed: [const { AtomicPtr::new(ptr::null_mut()) }; SEALED],
            ready: AtomicPtr::new(ptr::null_mut()),
            spare: [const { AtomicPtr::new(ptr::null_mut()) }; SPARE],
            due: AtomicBool::new(false),
            unseen: AtomicBool::new(false),
            seals: AtomicUsize::new(0),
            seen: AtomicUsize::new(usize::MAX),
            retired: Cell::default(),
            freed: Cell::default(),
        }
    }
}

impl Heap {
    /// Moves all pending pointers to `items`.
    pub(super) fn gather(&self, items: &mut Vec<*mut ()>) {
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
    pub(super) fn take(slot: &AtomicPtr<Batch>) -> Option<Box<Batch>> {
        if slot.load(Relaxed).is_null() {
            return None;
        }
        // ORDERING (R2): Acquire, see `put`.
        let raw = slot.swap(ptr::null_mut(), AcqRel);
        // SAFETY: slots hold pointers from `Box::into_raw`, and the swap took it out: it is ours, once.
        (!raw.is_null()).then(|| unsafe { Box::from_raw(raw) })
    }

    /// Takes all batches, one after the other.
    pub(super) fn batches(&self) -> impl Iterator<Item = Box<Batch>> {
        self.sealed.iter().chain([&self.ready]).filter_map(Heap::take)
    }

    pub(super) fn has_room(&self) -> bool {
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

    pub(super) fn put_sealed(&self, batch: Box<Batch>) {
        Heap::put_somehow(&self.sealed, batch);
    }

    pub(super) fn put_ready(&self, batch: Box<Batch>) {
        Heap::put_somehow(slice::from_ref(&self.ready), batch);
    }

    /// An empty batch.
    pub(super) fn blank(&self) -> Box<Batch> {
        let spare = self.spare.iter().find_map(Heap::take);
        spare.unwrap_or_else(|| Box::new(Batch { epoch: 0, items: Vec::new(), older: None }))
    }

    /// Keeps a batch for [`blank`](Self::blank), if there is room; returns what hung behind it.
    pub(super) fn keep(&self, mut batch: Box<Batch>) -> Option<Box<Batch>> {
        let older = batch.older.take();
        batch.items.clear();
        if batch.items.capacity() <= 2 * PENDING {
            // Without room it is dropped.
            let _ = Heap::put(&self.spare, batch);
        }
        older
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // The other slots' batches are the limbo's, which knows how to free what is in them.
        self.spare.iter().for_each(|slot| drop(Heap::take(slot)));
    }
}
