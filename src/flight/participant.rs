//! Those who wait for a flight: blocking threads and async tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::nested::{self, Circle, Leads, Note};
use super::waiters::Seat;
use super::{Flight, Phase};
use crate::clock::{Alarm, Clock};

/// How long a blocking participant leaves a future that is due to the async ones, which may be polled
/// on the runtime that it was made for.
const COURTESY: Duration = Duration::from_millis(5);

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
}

/// How waiting ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The flight was closed.
    Closed,
    /// The participant's time was up.
    TimedOut,
}

impl<T> Participant<T> {
    pub(super) fn new(flight: Arc<Flight<T>>) -> Participant<T> {
        Participant { flight, seat: None, note: None }
    }
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

    fn look(&self) -> Option<Result<T, Unanswered>> {
        match self.flight.word.phase() {
            Phase::Running => None,
            Phase::Done => self.flight.answer.get().cloned().map(Ok),
            Phase::Closed => Some(Err(Unanswered::Closed)),
        }
    }

    fn late(&self) -> Result<T, Unanswered> {
        self.look().unwrap_or(Err(Unanswered::TimedOut))
    }

    /// The time that is up is the load's own: the load is to find that out, lest it end as one that nobody
    /// wanted.
    pub(crate) fn load_is_late(&self) -> Result<T, Unanswered> {
        self.flight.make_due();
        self.flight.drive();
        self.late()
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
            if let Some(seat) = &self.seat {
                // Who wakes may have passed it already.
                self.flight.waiters.hush(seat);
            }
            return Poll::Ready(end);
        }
        if alarm.poll(cx) { Poll::Ready(self.late()) } else { Poll::Pending }
    }

    /// A waker of the threads that wait for this flight.
    fn ring(&self) -> Waker {
        Waker::from(Arc::new(Ring(Arc::clone(&self.flight))))
    }

    /// Blocks the thread until there is an answer or its time is up.
    pub(crate) fn wait(&self, clock: &Clock, until: u64) -> Result<T, Unanswered> {
        let waiters = &self.flight.waiters;
        // Of a clock that real time does not move.
        let mut alarm: Option<(Alarm, Waker)> = None;
        let mut polite = true;
        loop {
            if let Some(end) = self.look() {
                return end;
            }
            // Once more after this: what happened before it wakes nobody who listens after it.
            let heard = waiters.listen();
            if !polite {
                self.flight.drive();
            }
            if let Some(end) = self.look() {
                return end;
            }
            let left = clock.until(until);
            let over = match left {
                Some(left) => left.is_zero(),
                None => {
                    let set = || (clock.alarm(until), self.ring());
                    let (alarm, ring) = alarm.get_or_insert_with(set);
                    alarm.poll(&mut Context::from_waker(ring))
                }
            };
            if over {
                return self.late();
            }
            let due = self.flight.is_due();
            let left = left.unwrap_or(Duration::MAX);
            waiters.sleep(heard, if due { left.min(COURTESY) } else { left });
            polite = !due;
        }
    }
}

impl<T> Drop for Participant<T> {
    fn drop(&mut self) {
        if self.flight.word.phase() == Phase::Done {
            // Many leave at once now, and write no line in common but that of the references. Who wakes has
            // this one's waker, or will take it.
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

struct Ring<T>(Arc<Flight<T>>);

impl<T: Send + Sync + 'static> Wake for Ring<T> {
    fn wake(self: Arc<Self>) {
        self.0.waiters.ring();
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
