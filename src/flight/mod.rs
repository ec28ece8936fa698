//! Sharing one call between all who ask for the same key at the same time, without a cache.
//!
//! A [`Group`] runs a closure or a future once for all callers of a key that overlap in time, and gives
//! each of them a clone of what it returned. Nothing is kept afterwards. A cache has this built in (see
//! [`Cache::get_or_load`](crate::Cache::get_or_load)), and a guard for callers who keep values of their
//! own is an [`OriginGuard`](crate::guard::OriginGuard).
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use seawall::flight::Group;
//!
//! let (group, calls) = (Group::<u32, String>::new(), AtomicU32::new(0));
//! std::thread::scope(|scope| {
//!     for _ in 0..8 {
//!         scope.spawn(|| {
//!             let told = group.run(&1, || {
//!                 calls.fetch_add(1, Ordering::Relaxed);
//!                 "one".to_owned()
//!             });
//!             assert_eq!(told.unwrap().value, "one");
//!         });
//!     }
//! });
//! assert!((1..=8).contains(&calls.into_inner()));
//! assert_eq!(group.in_flight(), 0);
//! ```
//!
//! * Of the calls for one key at most one is going on, unless it was [forgotten](Group::forget).
//! * Every caller is told: a value, that the call panicked, that it would have waited for itself, or that
//!   its time was up. No caller waits for a call that nobody runs any more.
//! * Threads and tasks may wait for the same call. A future is driven by whichever of those who wait for
//!   it is polled, so that the one who began it may leave; with the last one it is dropped.
//! * No lock is held while code of the user's runs.

// A `Flight` is one load in progress, and all who wait for it. It knows nothing of tables or of memory
// reclamation. It has one `Lead` (src/load/lead.rs), the right and duty to answer, and any number of
// participants, blocking threads and async tasks alike. The lead of an async load lives inside the load's
// future, which belongs to the flight and not to the caller that began it: any participant that is polled
// drives it.
//
// | pair | Release | Acquire | what becomes visible |
// |---|---|---|---|
// | D1 | `wake` sets `due` | `drive` clears it | what the loader's waker wrote |
// | D2 | `look_again` finds `due` clear | `wake` sets it | that the future is not locked any more |
// | D3 | `install` sets `shared` | `is_due` | the future in its place |
// | M1 | `heed` finds nothing said | `mark`, `make_void` | what the load has published: who says something later finds that |

mod group;
#[cfg(all(test, seawall_loom))]
mod models;
mod nested;
mod participant;
mod registry;
#[cfg(all(test, not(seawall_loom)))]
mod tests;
mod waiters;
mod word;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

pub use self::group::{Group, GroupError, Shared};
pub(crate) use self::nested::Circle;
pub(crate) use self::nested::Leading;
use self::nested::{Leads, Notes};
pub(crate) use self::participant::{Join, Participant, Unanswered, block_on};
pub(crate) use self::registry::{Entry, Registry, Seen};
use self::waiters::Waiters;
pub(crate) use self::word::Phase;
use self::word::Word;
use crate::sync::{AcqRel, Acquire, AtomicBool, AtomicU64, Mutex, MutexGuard, Relaxed, Release};
use crate::trace::Span;

/// The future of a load; it answers its flight itself.
pub(crate) type LoadFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One load in progress.
pub(crate) struct Flight<T> {
    word: Word,
    waiters: Waiters,
    answer: OnceLock<T>,
    /// The future has been woken since it was last polled.
    due: AtomicBool,
    /// Of an async load, until it is answered. Never waited for: who finds it locked leaves the future
    /// to the one who is polling it.
    future: Mutex<Option<LoadFuture>>,
    /// Whether there is such a future, for those who must not touch the lock to find out.
    shared: AtomicBool,
    notes: Notes,
    span: OnceLock<Span>,
    /// When the load began; the cache's milliseconds.
    started: u64,
    /// And what its owner calls the generation of the keys by then.
    generation: u64,
    /// When the key was marked stale while the load was running; zero: it was not.
    marked: AtomicU64,
    /// The answer must not be stored.
    void: AtomicBool,
}

impl<T> fmt::Debug for Flight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight")
            .field("phase", &self.word.phase())
            .field("participants", &self.word.participants())
            .finish_non_exhaustive()
    }
}

/// What was said of a load meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    /// Outdated from a moment on.
    Marked(u64),
    /// Not to be stored.
    Void,
}

impl<T: Send + Sync> Leads for Flight<T> {
    fn notes(&self) -> &Notes {
        &self.notes
    }
}

impl<T> Flight<T> {
    /// A flight with one participant: the caller that begins the load.
    pub(crate) fn new(started: u64) -> Arc<Flight<T>> {
        Self::in_generation(started, 0)
    }

    pub(crate) fn in_generation(started: u64, generation: u64) -> Arc<Flight<T>> {
        Arc::new(Flight {
            word: Word::new(),
            waiters: Waiters::default(),
            answer: OnceLock::new(),
            due: AtomicBool::new(true),
            future: Mutex::new(None),
            shared: AtomicBool::new(false),
            notes: Notes::default(),
            span: OnceLock::new(),
            started,
            generation,
            marked: AtomicU64::new(0),
            void: AtomicBool::new(false),
        })
    }

    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn phase(&self) -> Phase {
        self.word.phase()
    }

    /// The load's span, once it is allowed to begin.
    pub(crate) fn span(&self) -> &OnceLock<Span> {
        &self.span
    }

    /// Notes that what is being loaded is outdated from `now` on. Who has said so looks again for the key:
    /// either the load heeds it, or what the load brought is found.
    pub(crate) fn mark(&self, now: u64) {
        // ORDERING (M1): Acquire, see `heed`; the first mark counts.
        let _ = self.marked.compare_exchange(0, now, AcqRel, Acquire);
    }

    pub(crate) fn marked(&self) -> Option<u64> {
        // ORDERING: Relaxed: who learnt that it was said happens after it, and nothing else is published.
        Some(self.marked.load(Relaxed)).filter(|&at| at != 0)
    }

    /// Forbids that the answer is stored. Who has said so looks again, as after [`mark`](Self::mark).
    pub(crate) fn make_void(&self) {
        // ORDERING (M1): a read-modify-write with Acquire, see `heed`.
        self.void.swap(true, AcqRel);
    }

    pub(crate) fn is_void(&self) -> bool {
        // ORDERING: Relaxed, as in `marked`.
        self.void.load(Relaxed)
    }

    /// Looks for the last time what was said, after what the load brought is in the table.
    pub(crate) fn heed(&self) -> Said {
        // ORDERING (M1): read-modify-writes, as those of `mark` and `make_void`. The one that is second sees
        // the first: we what was said, or who says it what we have published.
        if self.void.compare_exchange(false, false, AcqRel, Acquire).is_err() {
            return Said::Void;
        }
        match self.marked.compare_exchange(0, 0, AcqRel, Acquire) {
            Ok(_) => Said::Nothing,
            Err(at) => Said::Marked(at),
        }
    }

    /// Answers, once; later answers are dropped. Wakes all who wait.
    pub(crate) fn complete(&self, answer: T) {
        if self.answer.set(answer).is_ok() && self.word.finish() {
            self.waiters.wake_all();
        }
    }

    /// Ends the flight, if nobody but its leader takes part, who knows the answer; returns whether it is so.
    /// Saves a copy of the answer. Who comes now finds what the load has left.
    pub(crate) fn complete_alone(&self) -> bool {
        self.word.close_alone()
    }

    /// Ends the flight without an answer, unless it has one: those who wait try themselves.
    pub(crate) fn close(&self) {
        if self.word.close() {
            self.waiters.wake_all();
        }
    }

    /// The answer, when it is there.
    pub(crate) fn answer(&self) -> Option<&T> {
        (self.word.phase() == Phase::Done).then(|| self.answer.get()).flatten()
    }

    /// Whether the answer was for more than one participant.
    pub(crate) fn is_shared(&self) -> bool {
        self.word.is_shared()
    }

    #[cfg(all(test, not(seawall_loom)))]
    fn places(&self) -> usize {
        self.waiters.places()
    }

    fn lock(&self) -> MutexGuard<'_, Option<LoadFuture>> {
        self.future.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync + 'static> Flight<T> {
    /// Gives the flight the future that answers it.
    pub(crate) fn install(&self, future: LoadFuture) {
        *self.lock() = Some(future);
        // ORDERING (D3): Release, see `is_due`.
        self.shared.store(true, Release);
        // Who joined before that must not wait for the first caller to drive it: that may be gone.
        self.waiters.wake_all();
    }

    /// Whether there is a future that was woken since it was last polled. Before there is one nobody
    /// touches its lock but who puts it there.
    fn is_due(&self) -> bool {
        // ORDERING (D3): Acquire. Of `due`: Relaxed, `drive` takes it by a read-modify-write.
        self.shared.load(Acquire) && self.due.load(Relaxed)
    }

    fn make_due(&self) {
        // ORDERING (D1): Release, see `drive`. (D2): Acquire, see `look_again`.
        self.due.swap(true, AcqRel);
    }

    /// Polls the future once, if it is due and nobody else is polling it.
    fn drive(self: &Arc<Self>) {
        if !self.is_due() {
            return;
        }
        let mut future = match self.future.try_lock() {
            Ok(future) => future,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Who holds it wakes us again if there is more to do.
            Err(TryLockError::WouldBlock) => return,
        };
        let Some(load) = &mut *future else { return };
        // ORDERING (D1): Acquire: what the loader's waker wrote.
        if !self.due.swap(false, AcqRel) {
            drop(future);
            self.look_again();
            return;
        }
        let waker = Waker::from(Arc::clone(self));
        let polled = {
            let _leading = self.leading();
            let mut cx = Context::from_waker(&waker);
            catch_unwind(AssertUnwindSafe(|| self.within(|| load.as_mut().poll(&mut cx))))
        };
        if matches!(polled, Ok(Poll::Pending)) {
            drop(future);
            self.look_again();
            return;
        }
        let load = future.take();
        drop(future);
        // ORDERING: Relaxed: who still sees it finds the lock, and nothing behind it.
        self.shared.store(false, Relaxed);
        // Its destructors are the user's: not under the lock.
        drop(load);
        if let Err(panic) = polled {
            resume_unwind(panic);
        }
    }

    /// After letting go of the future: if it was woken meanwhile, who came for that found it locked. Not
    /// polled again here: a loader that yields wants others to run.
    fn look_again(&self) {
        // ORDERING (D2): a read-modify-write, as that of `wake`. The one that is second sees the first: we
        // that the future is due, or who is woken for it that it is not locked any more.
        if self.due.compare_exchange(false, false, AcqRel, Acquire).is_err() {
            self.waiters.wake_all();
        }
    }

    /// While it lives, what this thread runs is this flight's loader.
    pub(crate) fn leading(self: &Arc<Self>) -> Leading {
        Leading::new(self)
    }

    /// Runs a blocking loader as this flight's.
    pub(crate) fn lead<R>(self: &Arc<Self>, load: impl FnOnce() -> R) -> R {
        let _leading = self.leading();
        self.within(load)
    }

    /// Runs something in the load's span.
    pub(crate) fn within<R>(&self, run: impl FnOnce() -> R) -> R {
        match self.span.get() {
            Some(span) => span.within(run),
            None => run(),
        }
    }

    /// Polls a loader's future that belongs to its caller.
    pub(crate) fn poll_led<F: Future>(
        self: &Arc<Self>,
        future: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let _leading = self.leading();
        self.within(|| future.poll(cx))
    }

    /// The participation that [`new`](Self::new) counted.
    pub(crate) fn first(self: Arc<Self>) -> Participant<T> {
        Participant::new(self)
    }

    /// Joins, if the flight is running.
    pub(crate) fn join(self: Arc<Self>) -> Join<T>
    where
        T: Clone,
    {
        match self.word.join() {
            Phase::Running => Join::Running(self.first()),
            Phase::Done => self.answer().cloned().map_or(Join::Closed, Join::Done),
            Phase::Closed => Join::Closed,
        }
    }
}

impl<T: Send + Sync + 'static> Wake for Flight<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.make_due();
        // All of them: whichever is chosen may be one that nobody polls any more.
        self.waiters.wake_all();
    }
}

/// What a panic says.
pub(crate) fn message(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
        .into()
}
