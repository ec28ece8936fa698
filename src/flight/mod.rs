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

mod group;
#[cfg(all(test, seawall_loom))]
mod models;
mod nested;
mod registry;
#[cfg(all(test, not(seawall_loom)))]
mod tests;
mod waiters;
mod word;

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

pub use self::group::{Group, GroupError, Shared};
pub(crate) use self::nested::Circle;
pub(crate) use self::nested::Leading;
use self::nested::{Leads, Note, Notes};
pub(crate) use self::registry::{Entry, Registry, Seen};
use self::waiters::{Seat, Waiters};
pub(crate) use self::word::Phase;
use self::word::Word;
use crate::clock::{Alarm, Clock};
use crate::sync::{AcqRel, Acquire, AtomicBool, AtomicU64, Mutex, MutexGuard, Release};
use crate::trace::Span;

/// The future of a load; it answers its flight itself.
pub(crate) type LoadFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long a blocking participant leaves a future that is due to the async ones, which may be polled
/// on the runtime that it was made for.
const COURTESY: Duration = Duration::from_millis(5);

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

impl<T: Send + Sync> Leads for Flight<T> {
    fn notes(&self) -> &Notes {
        &self.notes
    }
}

impl<T> Flight<T> {
    /// A flight with one participant: the caller that begins the load.
    pub(crate) fn new(started: u64) -> Arc<Flight<T>> {
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
            marked: AtomicU64::new(0),
            void: AtomicBool::new(false),
        })
    }

    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn phase(&self) -> Phase {
        self.word.phase()
    }

    /// The load's span, once it is allowed to begin.
    pub(crate) fn span(&self) -> &OnceLock<Span> {
        &self.span
    }

    /// Notes that what is being loaded is outdated from `now` on.
    pub(crate) fn mark(&self, now: u64) {
        // ORDERING: Release, with the Acquire of `marked`: who marks before the answer is stored is
        // seen when it is.
        let _ = self.marked.compare_exchange(0, now, AcqRel, Acquire);
    }

    pub(crate) fn marked(&self) -> Option<u64> {
        Some(self.marked.load(Acquire)).filter(|&at| at != 0)
    }

    /// Forbids that the answer is stored.
    pub(crate) fn make_void(&self) {
        self.void.store(true, Release);
    }

    pub(crate) fn is_void(&self) -> bool {
        self.void.load(Acquire)
    }

    /// Answers, once; later answers are dropped. Wakes all who wait.
    pub(crate) fn complete(&self, answer: T) {
        if self.answer.set(answer).is_ok() && self.word.finish() {
            self.waiters.wake_all();
        }
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

    fn lock(&self) -> MutexGuard<'_, Option<LoadFuture>> {
        self.future.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync + 'static> Flight<T> {
    /// Gives the flight the future that answers it.
    pub(crate) fn install(&self, future: LoadFuture) {
        *self.lock() = Some(future);
        // ORDERING: Release, see `drive`.
        self.shared.store(true, Release);
        // Who joined before that must not wait for the first caller to drive it: that may be gone.
        self.waiters.wake_all();
    }

    /// Polls the future once, if it is due and nobody else is polling it.
    fn drive(self: &Arc<Self>) {
        // Before there is a future nobody touches its lock but who puts it there.
        if !(self.shared.load(Acquire) && self.due.load(Acquire)) {
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
        self.shared.store(false, Release);
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
        Leading::new(Arc::clone(self) as Arc<dyn Leads>)
    }

    /// Runs a blocking loader as this flight's.
    pub(crate) fn lead<R>(self: &Arc<Self>, load: impl FnOnce() -> R) -> R {
        let _leading = self.leading();
        self.within(load)
    }

    fn within<R>(&self, run: impl FnOnce() -> R) -> R {
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
        Participant { flight: self, seat: None, note: None, of_load: false }
    }

    /// Joins, if the flight is running.
    pub(crate) fn join(self: &Arc<Self>) -> Join<T>
    where
        T: Clone,
    {
        match self.word.join() {
            Phase::Running => Join::Running(Arc::clone(self).first()),
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
        // ORDERING (D1): Release, see `drive`. (D2): Acquire, see `look_again`.
        self.due.swap(true, AcqRel);
        // All of them: whichever is chosen may be one that nobody polls any more.
        self.waiters.wake_all();
    }
}

/// What became of joining a flight.
pub(crate) enum Join<T> {
    Running(Participant<T>),
    Done(T),
    /// It ended without an answer.
    Closed,
}

/// One who waits for a flight. Dropping it leaves, at once; the last one out drops an async load.
#[derive(Debug)]
pub(crate) struct Participant<T> {
    flight: Arc<Flight<T>>,
    seat: Option<Seat>,
    /// In a box: only loads inside loads have one.
    note: Option<Box<Note>>,
    /// The time that it waits is the load's own.
    of_load: bool,
}

/// How waiting ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The flight was closed.
    Closed,
    /// The participant's time was up.
    TimedOut,
}

impl<T: Clone + Send + Sync + 'static> Participant<T> {
    pub(crate) fn flight(&self) -> &Arc<Flight<T>> {
        &self.flight
    }

    /// Has to be called by a follower before it waits: fails if it would wait for itself.
    pub(crate) fn check_circle(&mut self) -> Result<(), Circle> {
        if nested::is_leading() {
            let target = Arc::clone(&self.flight) as Arc<dyn Leads>;
            self.note = nested::wait_for(&target)?.map(Box::new);
        }
        Ok(())
    }

    /// Says whether the time that the participant waits is the load's own.
    pub(crate) fn set_of_load(&mut self, of_load: bool) {
        self.of_load = of_load;
    }

    fn look(&self) -> Option<Result<T, Unanswered>> {
        match self.flight.word.phase() {
            Phase::Running => None,
            Phase::Done => self.flight.answer.get().cloned().map(Ok),
            Phase::Closed => Some(Err(Unanswered::Closed)),
        }
    }

    /// The time is up. If it is the load's own, the load is to find that out, lest it end as one that
    /// nobody wanted.
    fn late(&self) -> Result<T, Unanswered> {
        if self.of_load {
            // ORDERING (D2): as in `wake`.
            self.flight.due.swap(true, AcqRel);
            self.flight.drive();
        }
        self.look().unwrap_or(Err(Unanswered::TimedOut))
    }

    fn sit(&mut self, waker: &Waker) {
        match &self.seat {
            Some(seat) => self.flight.waiters.update(seat, waker),
            None => self.seat = Some(self.flight.waiters.add(waker)),
        }
    }

    /// Drives the load, if it is due, and looks for the answer.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        alarm: &mut Alarm,
    ) -> Poll<Result<T, Unanswered>> {
        self.flight.drive();
        if let Some(end) = self.look() {
            return Poll::Ready(end);
        }
        // Once more after sitting down: what happened before that wakes nobody who sat down after it.
        self.sit(cx.waker());
        self.flight.drive();
        if let Some(end) = self.look() {
            return Poll::Ready(end);
        }
        if alarm.poll(cx) { Poll::Ready(self.late()) } else { Poll::Pending }
    }

    /// Blocks the thread until there is an answer or its time is up.
    pub(crate) fn wait(&mut self, clock: &Clock, until: u64) -> Result<T, Unanswered> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut alarm = clock.alarm(until);
        let mut polite = true;
        loop {
            if let Some(end) = self.look() {
                return end;
            }
            self.sit(&waker);
            if !polite {
                self.flight.drive();
            }
            if let Some(end) = self.look() {
                return end;
            }
            // Of a clock that real time does not move, the alarm wakes this thread.
            let left = clock.until(until);
            let over = match left {
                Some(left) => left.is_zero(),
                None => alarm.poll(&mut Context::from_waker(&waker)),
            };
            if over {
                return self.late();
            }
            let due = self.flight.shared.load(Acquire) && self.flight.due.load(Acquire);
            match (due, left) {
                (true, left) => {
                    std::thread::park_timeout(left.map_or(COURTESY, |left| left.min(COURTESY)));
                }
                (false, Some(left)) if left < Duration::MAX => std::thread::park_timeout(left),
                (false, _) => std::thread::park(),
            }
            polite = !due;
        }
    }
}

impl<T> Flight<T> {
    #[cfg(all(test, not(seawall_loom)))]
    fn places(&self) -> usize {
        self.waiters.places()
    }
}

impl<T> Drop for Participant<T> {
    fn drop(&mut self) {
        // Of a flight that has ended nobody takes a free seat, and nobody counts who is left; the seat goes
        // with it. All leave at the same time: the less they write to what they share, the better.
        if self.flight.phase() != Phase::Running {
            return;
        }
        if let Some(seat) = self.seat.take() {
            self.flight.waiters.remove(seat);
        }
        if self.flight.word.leave() {
            let load = self.flight.lock().take();
            drop(load);
        }
    }
}

/// Blocks the thread until a future is ready.
pub(crate) fn block_on<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Wakes a blocked thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
