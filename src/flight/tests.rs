//! What of a flight cannot be seen from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::{Flight, Join, Participant};
use crate::clock::Alarm;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A participant, polled by hand.
struct Caller {
    participant: Participant<u32>,
    woken: Arc<Woken>,
}

impl Caller {
    fn of(participant: Participant<u32>) -> Caller {
        Caller { participant, woken: Arc::default() }
    }

    fn join(flight: &Arc<Flight<u32>>) -> Caller {
        match flight.join() {
            Join::Running(participant) => Caller::of(participant),
            _ => panic!("it is running"),
        }
    }

    fn poll(&mut self) -> Option<u32> {
        let waker = Waker::from(Arc::clone(&self.woken));
        let poll = self.participant.poll(&mut Context::from_waker(&waker), &mut Alarm::never());
        match poll {
            Poll::Ready(end) => Some(end.expect("it is answered")),
            Poll::Pending => None,
        }
    }

    fn was_woken(&self) -> bool {
        self.woken.0.swap(0, Ordering::SeqCst) > 0
    }
}

/// A future that answers once it has been polled a number of times.
fn after(flight: &Arc<Flight<u32>>, polls: usize) -> super::LoadFuture {
    let (flight, mut left) = (Arc::downgrade(flight), polls);
    Box::pin(std::future::poll_fn(move |cx| {
        if left > 0 {
            left -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        flight.upgrade().expect("somebody polls").complete(7);
        Poll::Ready(())
    }))
}

#[test]
fn who_joined_before_there_was_a_future_drives_it_without_the_first_caller() {
    let flight = Flight::new(1);
    let first = Arc::clone(&flight).first();
    let mut follower = Caller::join(&flight);
    assert_eq!(follower.poll(), None);
    flight.install(after(&flight, 0));
    drop(first);
    assert!(follower.was_woken(), "nobody else is there to drive it");
    assert_eq!(follower.poll(), Some(7));
}
