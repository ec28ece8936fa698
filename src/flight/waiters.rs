//! Who is to be woken. Tasks are in a list that is only ever added to, so that joining, leaving and waking need
//! no lock and a waker may do anything, even join again. Threads sleep until a bell rings, and take no memory.
//!
//! `event-listener` wakes while it holds its list's lock, which a waker that polls at once would meet
//! again; and a thread that is stopped there stops all who want to join.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | L1 | `add` pushes by a CAS of `head` | the walker's read-modify-write of `head` | the new place and its waker |
//! | L2 | the walker's read-modify-write of `head` | that of `add` or `listen` | what the walker had to tell: who came too late to be woken sees it |
//! | L3 | `remove` frees a place | `reuse` takes it | the former user is done with it |
//! | L4 | `reuse` moves the hand | `reuse` reads it | the place it points to |

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::task::Waker;
use std::time::Duration;

use crate::sync::{
    AcqRel, Acquire, AtomicBool, AtomicPtr, AtomicUsize, AtomicWaker, Bell, Relaxed, Release,
};

/// A task's place in the list. Allocated until the list is dropped.
#[derive(Debug)]
struct Place {
    next: *mut Place,
    taken: AtomicBool,
    waker: AtomicWaker,
}

/// In `head`: threads may be asleep.
const THREADS: usize = 1;

fn place_of(head: *mut Place) -> *mut Place {
    head.map_addr(|address| address & !THREADS)
}

/// Free places that are not worth a search.
const FEW: usize = if cfg!(seawall_loom) { 0 } else { 16 };
/// Places that a search for a free one looks at.
const LOOKS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// The newest place, and [`THREADS`].
    head: AtomicPtr<Place>,
    bell: Bell,
    /// About how many places are free.
    free: AtomicUsize,
    /// Where the next search for a free place begins.
    hand: AtomicPtr<Place>,
}

/// A waiter's place in the list that it was made by.
#[derive(Debug)]
pub(super) struct Seat(NonNull<Place>);

// SAFETY: a place is made of atomics, and its `next` is not changed once it is in the list.
unsafe impl Send for Seat {}
// SAFETY: as above.
unsafe impl Sync for Seat {}
// SAFETY: the list owns its places; see `Seat`.
unsafe impl Send for Waiters {}
// SAFETY: as above.
unsafe impl Sync for Waiters {}

impl Waiters {
    /// Adds a waiter. What is told after this wakes it; what was told before it must look at itself.
    pub(super) fn add(&self, waker: &Waker) -> Seat {
        if let Some(place) = self.reuse() {
            // SAFETY: of this list.
            unsafe { place.as_ref() }.waker.register(waker);
            return Seat(place);
        }
        let place = Place {
            next: ptr::null_mut(),
            taken: AtomicBool::new(true),
            waker: AtomicWaker::new(),
        };
        place.waker.register(waker);
        let place = Box::into_raw(Box::new(place));
        let mut head = self.head.load(Relaxed);
        loop {
            // SAFETY: not in the list yet, so it is ours alone.
            unsafe { (*place).next = place_of(head) };
            let pushed = place.map_addr(|address| address | head.addr() & THREADS);
            // ORDERING (L1, L2): Release publishes the place, Acquire sees what was told before.
            match self.head.compare_exchange(head, pushed, AcqRel, Relaxed) {
                // SAFETY: a box is not null.
                Ok(_) => return Seat(unsafe { NonNull::new_unchecked(place) }),
                Err(now) => head = now,
            }
        }
    }

    /// Changes whom to wake. The waiter must look again after this.
    pub(super) fn update(&self, seat: &Seat, waker: &Waker) {
        // SAFETY: places live as long as the list.
        unsafe { seat.0.as_ref() }.waker.register(waker);
    }

    /// Wakes a waiter no more.
    pub(super) fn hush(&self, seat: &Seat) {
        // SAFETY: as above.
        drop(unsafe { seat.0.as_ref() }.waker.take());
    }

    pub(super) fn remove(&self, seat: Seat) {
        self.hush(&seat);
        // SAFETY: as above.
        let place = unsafe { seat.0.as_ref() };
        // ORDERING (L3): Release, see `reuse`.
        place.taken.store(false, Release);
        self.free.fetch_add(1, Relaxed);
    }

    /// Takes a free place, if a short search finds one: those who wait briefly for a load that hangs
    /// must not make the list grow without end.
    fn reuse(&self) -> Option<NonNull<Place>> {
        if self.free.load(Relaxed) <= FEW {
            return None;
        }
        // ORDERING (L4): Acquire, with the Release of the stores below.
        let mut at = self.hand.load(Acquire);
        for _ in 0..LOOKS {
            if at.is_null() {
                // ORDERING (L1): Acquire.
                at = place_of(self.head.load(Acquire));
            }
            let place = NonNull::new(at)?;
            // SAFETY: places live as long as the list.
            let seen = unsafe { place.as_ref() };
            at = seen.next;
            // ORDERING (L3): Acquire pairs with the Release in `remove`.
            if seen.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
                self.free.fetch_sub(1, Relaxed);
                self.hand.store(at, Release);
                return Some(place);
            }
        }
        self.hand.store(at, Release);
        None
    }

    /// Announces a thread that is about to sleep; returns what it has heard. What is told after this wakes it;
    /// what was told before it must look at itself.
    pub(super) fn listen(&self) -> u32 {
        let heard = self.bell.heard();
        let mut head = self.head.load(Relaxed);
        loop {
            let announced = head.map_addr(|address| address | THREADS);
            // ORDERING (L2): a read-modify-write also where nothing changes; Acquire sees what was told before.
            match self.head.compare_exchange(head, announced, AcqRel, Relaxed) {
                Ok(_) => return heard,
                Err(now) => head = now,
            }
        }
    }

    /// Blocks the thread until something was told since it listened, or some time has passed; perhaps not so long.
    pub(super) fn sleep(&self, heard: u32, at_most: Duration) {
        self.bell.sleep(heard, at_most);
    }

    /// Wakes the threads.
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// Wakes all waiters. Runs their wakers, holding nothing.
    pub(super) fn wake_all(&self) {
        let mut head = self.head.load(Acquire);
        // ORDERING (L1, L2): a read-modify-write, so that it is before or after each push: a waiter
        // pushed before is seen here, one pushed after sees what we have to tell.
        while let Err(now) = self.head.compare_exchange(head, head, AcqRel, Acquire) {
            head = now;
        }
        if head.addr() & THREADS != 0 {
            self.bell.ring();
        }
        let mut at = place_of(head);
        while let Some(place) = NonNull::new(at) {
            // SAFETY: places live as long as the list.
            let place = unsafe { place.as_ref() };
            at = place.next;
            // A waker that panics must not keep the others from being woken.
            let _ = catch_unwind(AssertUnwindSafe(|| place.waker.wake()));
        }
    }

    #[cfg(all(test, not(seawall_loom)))]
    pub(super) fn places(&self) -> usize {
        let mut at = place_of(self.head.load(Acquire));
        let mut places = 0;
        while let Some(place) = NonNull::new(at) {
            places += 1;
            // SAFETY: places live as long as the list.
            at = unsafe { place.as_ref() }.next;
        }
        places
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        let mut at = place_of(self.head.load(Acquire));
        while !at.is_null() {
            // SAFETY: made by `Box::into_raw` in `add`; `&mut self`: nobody else uses the list.
            let place = unsafe { Box::from_raw(at) };
            at = place.next;
        }
    }
}
