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
        match Arc::clone(flight).join() {
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

/// Those who leave give their places back: the list is about as long as there were waiters at one time.
#[test]
fn places_of_those_who_left_are_used_again() {
    const SHORT: usize = if cfg!(miri) { 200 } else { 10_000 };
    let flight = Flight::new(1);
    let first = Arc::clone(&flight).first();
    let mut staying = Caller::join(&flight);
    assert_eq!(staying.poll(), None);
    let mut most = 0;
    for number in 0..SHORT {
        let mut waiting: Vec<Caller> = (0..number % 4).map(|_| Caller::join(&flight)).collect();
        waiting.iter_mut().for_each(|caller| assert_eq!(caller.poll(), None));
        most = most.max(flight.places());
    }
    assert!(most < 64, "{most} places for at most four at a time");
    flight.complete(7);
    assert!(staying.was_woken());
    assert_eq!(staying.poll(), Some(7));
    drop(first);
}

/// Many at one time, who leave in another order than they came; then as many again.
#[test]
fn places_of_a_crowd_that_left_are_used_again() {
    const CROWD: usize = if cfg!(miri) { 60 } else { 2_000 };
    let flight = Flight::new(1);
    let first = Arc::clone(&flight).first();
    let mut places = Vec::new();
    for _ in 0..4 {
        let mut crowd: Vec<Caller> = (0..CROWD).map(|_| Caller::join(&flight)).collect();
        crowd.iter_mut().for_each(|caller| assert_eq!(caller.poll(), None));
        places.push(flight.places());
        while !crowd.is_empty() {
            crowd.swap_remove(crowd.len() / 2);
        }
    }
    assert!(places[0] >= CROWD);
    assert!(places[3] < places[0] + 64, "{places:?}");
    drop(first);
}
