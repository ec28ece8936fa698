//! Coalescing and limits without a cache.

mod common;

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use common::Few;
use common::loads::{Polled, until};
use seawall::guard::{
    Acquired, Backoff, BreakerOptions, BreakerState, Follower, Lead, LeadEnd, OriginGuard,
    OriginGuardBuilder, OriginResult, Rate, Refusal,
};
use seawall::{Clock, ConfigError, ManualClock};

const SUCCESS: LeadEnd = LeadEnd::Finished(OriginResult::Success);

fn builder() -> OriginGuardBuilder<u32> {
    OriginGuard::builder(|_| false)
}

fn manual(builder: OriginGuardBuilder<u32>) -> (OriginGuard<u32>, ManualClock) {
    let (clock, hand) = Clock::manual();
    (builder.clock(clock).build().unwrap(), hand)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[track_caller]
fn lead(guard: &OriginGuard<u32>, key: u32) -> Lead<u32> {
    match guard.acquire(key) {
        Acquired::Lead(lead) => lead,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn follow(guard: &OriginGuard<u32>, key: u32) -> Follower {
    match guard.acquire(key) {
        Acquired::Follower(follower) => follower,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refusal(guard: &OriginGuard<u32>, key: u32) -> Refusal {
    match guard.acquire(key) {
        Acquired::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn at_rest(guard: &OriginGuard<u32>) {
    assert_eq!((guard.in_flight(), guard.waiters(), guard.keys()), (0, 0, 0));
}

#[test]
fn one_leads_and_the_others_follow() {
    let guard = builder().build().unwrap();
    let lead_of_one = lead(&guard, 1);
    assert_eq!(*lead_of_one.key(), 1);
    let followers = [follow(&guard, 1), follow(&guard, 1)];
    let lead_of_two = lead(&guard, 2);
    assert_eq!((guard.in_flight(), guard.waiters(), guard.keys()), (2, 2, 2));
    lead_of_one.finish(OriginResult::Success);
    assert_eq!((guard.in_flight(), guard.waiters()), (1, 2));
    let again = lead(&guard, 1);
    for follower in followers {
        assert_eq!(follower.wait(), SUCCESS);
    }
    drop((lead_of_two, again));
    at_rest(&guard);
}

#[test]
fn a_follower_is_told_how_it_ended_and_cannot_end_it() {
    let guard = builder().build().unwrap();
    for (result, end) in [
        (Some(OriginResult::Success), SUCCESS),
        (Some(OriginResult::Failure), LeadEnd::Finished(OriginResult::Failure)),
        (Some(OriginResult::Ignored), LeadEnd::Finished(OriginResult::Ignored)),
        (None, LeadEnd::Released),
    ] {
        let leader = lead(&guard, 1);
        drop(follow(&guard, 1));
        assert_eq!((guard.in_flight(), guard.waiters()), (1, 0), "a follower's drop ends nothing");
        let (blocking, polled) = (follow(&guard, 1), Polled::begun(follow(&guard, 1)));
        let blocked = thread::spawn(move || blocking.wait());
        match result {
            Some(result) => leader.finish(result),
            None => leader.release(),
        }
        assert_eq!(blocked.join().unwrap(), end);
        assert_eq!(polled.finish_woken(0), end);
        at_rest(&guard);
    }
}

#[test]
fn pan_01_a_lead_that_panics_lets_the_followers_go_on() {
    let guard = builder().max_in_flight(1).build().unwrap();
    let (lead, follower) = (lead(&guard, 1), follow(&guard, 1));
    let panicked = thread::spawn(move || {
        let _lead = lead;
        panic!("the origin is odd");
    });
    assert_eq!(follower.wait(), LeadEnd::Released);
    assert!(panicked.join().is_err());
    at_rest(&guard);
}

#[test]
fn a_follower_that_is_out_of_patience_may_wait_on() {
    let (guard, hand) = manual(builder());
    let leader = lead(&guard, 1);
    let mut follower = follow(&guard, 1);
    assert_eq!(follower.wait_timeout(Duration::ZERO), None);
    let waiting = thread::spawn(move || (follower.wait_timeout(secs(1)), follower));
    until(|| hand.sleepers() == 1);
    hand.advance(secs(1));
    let (told, mut follower) = waiting.join().unwrap();
    assert_eq!((told, guard.waiters()), (None, 1), "the place is kept");
    leader.finish(OriginResult::Success);
    assert_eq!(follower.wait_timeout(Duration::ZERO), Some(SUCCESS));
    assert_eq!(guard.waiters(), 1);
    drop(follower);
    at_rest(&guard);
}

#[test]
fn an_empty_key_is_not_shared() {
    let guard = OriginGuard::builder(String::is_empty).build().unwrap();
    assert!(matches!(guard.acquire(String::new()), Acquired::EmptyKey));
    assert!(matches!(guard.acquire(String::new()), Acquired::EmptyKey));
    assert!(matches!(guard.acquire(" ".to_owned()), Acquired::Lead(_)));
    assert_eq!((guard.in_flight(), guard.keys()), (0, 0));
}

#[test]
fn lim_01_places_and_permits_come_back() {
    let guard = builder().max_in_flight(2).max_waiters(1).build().unwrap();
    for round in 0..100 {
        let leads = [lead(&guard, 1), lead(&guard, 2)];
        assert_eq!(refusal(&guard, 3), Refusal::InFlight { limit: 2 });
        let follower = follow(&guard, 1);
        assert_eq!(refusal(&guard, 2), Refusal::Waiters { limit: 1 });
        let mut polled = Polled::new(follower);
        if round % 2 == 0 {
            assert!(polled.poll().is_pending());
        }
        drop(polled);
        drop(follow(&guard, 2));
        drop(leads);
        at_rest(&guard);
    }
    assert_eq!(guard.limits().counts().cancelled, 200);
}

#[test]
fn lim_11_limits_are_changed_while_the_guard_works() {
    let guard = builder().build().unwrap();
    let leads = [1, 2, 3].map(|key| lead(&guard, key));
    guard.limits().set_max_in_flight(2);
    assert_eq!(refusal(&guard, 4), Refusal::InFlight { limit: 2 });
    let [first, second, third] = leads;
    drop(first);
    assert_eq!(refusal(&guard, 4), Refusal::InFlight { limit: 2 });
    drop(second);
    drop(lead(&guard, 4));
    drop(third);
    at_rest(&guard);
}

#[test]
fn a_key_is_left_alone_for_its_interval_whatever_came_of_it() {
    let (guard, hand) = manual(builder().min_retry_interval(secs(5)));
    for result in [OriginResult::Success, OriginResult::Failure, OriginResult::Ignored] {
        let leader = lead(&guard, 1);
        hand.advance(secs(2));
        leader.finish(result);
        // It counts from the attempt's beginning.
        assert_eq!(refusal(&guard, 1), Refusal::Throttled { retry_after: secs(3) });
        drop(lead(&guard, 2));
        hand.advance(secs(3));
    }
    drop(lead(&guard, 1));
    guard.sweep();
    assert_eq!(guard.in_flight(), 0);
}

#[test]
fn an_attempt_that_was_given_up_does_not_count() {
    let (guard, hand) = manual(builder().min_retry_interval(secs(5)));
    drop(lead(&guard, 1));
    lead(&guard, 1).finish(OriginResult::Success);
    hand.advance(secs(5));
    // Given up after an earlier one: that one is still the last.
    drop(lead(&guard, 1));
    drop(lead(&guard, 1));
    assert_eq!(guard.in_flight(), 0);
}

#[test]
fn a_running_lead_is_joined_however_recent() {
    let (guard, _hand) = manual(builder().min_retry_interval(secs(5)));
    let leader = lead(&guard, 1);
    let follower = follow(&guard, 1);
    leader.finish(OriginResult::Success);
    assert_eq!(follower.wait(), SUCCESS);
}

#[test]
fn failures_in_a_row_lengthen_the_pause() {
    let backoff = Backoff::new(secs(1), secs(60)).unwrap().jitter(0.0).unwrap();
    let (guard, hand) = manual(builder().backoff(backoff));
    for pause in [1, 2, 4, 8] {
        lead(&guard, 1).finish(OriginResult::Failure);
        assert_eq!(refusal(&guard, 1), Refusal::Throttled { retry_after: secs(pause) });
        hand.advance(secs(pause));
        // Given up, or done for another key: changes nothing.
        drop(lead(&guard, 1));
        lead(&guard, 2).finish(OriginResult::Success);
    }
    lead(&guard, 1).finish(OriginResult::Success);
    lead(&guard, 1).finish(OriginResult::Failure);
    assert_eq!(refusal(&guard, 1), Refusal::Throttled { retry_after: secs(1) });
    hand.advance(secs(60));
    guard.sweep();
    at_rest(&guard);
}

#[test]
fn mem_05_keys_are_forgotten_when_they_may_be_tried_again() {
    let keys = if cfg!(miri) { 50 } else { 5_000 };
    let (guard, hand) = manual(builder().min_retry_interval(secs(5)));
    for key in 0..keys {
        lead(&guard, key).finish(OriginResult::Failure);
    }
    assert_eq!(guard.keys(), keys as usize);
    hand.advance(secs(3_600));
    // More are forgotten than come.
    for key in keys..2 * keys {
        lead(&guard, key).finish(OriginResult::Failure);
    }
    assert_eq!(guard.keys(), keys as usize);
    hand.advance(secs(3_600));
    assert_eq!(guard.sweep(), keys as usize);
    at_rest(&guard);
}

#[test]
fn a_rate_and_a_breaker_refuse() {
    let rate = Rate::new(1, secs(1)).unwrap();
    let (guard, hand) = manual(builder().rate_limit(rate));
    drop(lead(&guard, 1));
    assert_eq!(refusal(&guard, 2), Refusal::Rate { retry_after: secs(1) });
    hand.advance(secs(1));
    drop(lead(&guard, 2));

    let options = BreakerOptions::new().consecutive_failures(2).open_for(secs(10));
    let (guard, hand) = manual(builder().breaker(options));
    for key in [1, 2] {
        drop(lead(&guard, key));
        lead(&guard, key).finish(OriginResult::Failure);
    }
    assert_eq!(refusal(&guard, 3), Refusal::BreakerOpen { retry_after: secs(10) });
    hand.advance(secs(10));
    let probe = lead(&guard, 3);
    assert!(matches!(refusal(&guard, 4), Refusal::BreakerOpen { .. }));
    assert_eq!(guard.waiters(), 0);
    let follower = follow(&guard, 3);
    probe.finish(OriginResult::Success);
    assert_eq!(follower.wait(), SUCCESS);
    assert_eq!(guard.limits().breaker().state(), BreakerState::Closed);
    at_rest(&guard);
}

#[test]
fn what_is_only_observed_is_not_refused() {
    let (guard, _hand) = manual(builder().max_in_flight(1).max_waiters(1).observe_only(true));
    let leads = [lead(&guard, 1), lead(&guard, 2)];
    let followers = [follow(&guard, 1), follow(&guard, 1)];
    assert_eq!((guard.in_flight(), guard.waiters()), (2, 2));
    drop((leads, followers));
    at_rest(&guard);
}

#[test]
fn has_01_keys_of_one_hash_are_told_apart() {
    let guard = builder().min_retry_interval(secs(5)).hasher(Few(1)).build().unwrap();
    let leads: Vec<_> = (0..20)
        .map(|key| match guard.acquire(key) {
            Acquired::Lead(lead) => lead,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((guard.in_flight(), guard.keys()), (20, 20));
    for lead in leads {
        lead.finish(OriginResult::Success);
    }
    for key in 0..20 {
        assert!(matches!(guard.acquire(key), Acquired::Refused(Refusal::Throttled { .. })));
    }
    assert!(matches!(guard.acquire(20), Acquired::Lead(_)));
}

#[test]
fn a_setting_that_makes_no_sense_is_refused() {
    let built = builder().min_retry_interval(Duration::from_micros(1)).build();
    assert_eq!(built.unwrap_err(), ConfigError::TooShort("min_retry_interval"));
}

#[test]
fn coa_01_a_key_has_one_lead_at_a_time() {
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    let guard = builder().max_in_flight(2).min_retry_interval(Duration::ZERO).build().unwrap();
    let leading = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
    thread::scope(|scope| {
        for thread in 0..4_usize {
            let (guard, leading) = (&guard, &leading);
            scope.spawn(move || {
                for round in 0..rounds {
                    let key = (thread + round) % leading.len();
                    match guard.acquire(key as u32) {
                        Acquired::Lead(lead) => {
                            assert_eq!(leading[key].fetch_add(1, SeqCst), 0, "two leads");
                            thread::yield_now();
                            assert_eq!(leading[key].fetch_sub(1, SeqCst), 1);
                            if round % 3 > 0 {
                                lead.finish(OriginResult::Failure);
                            }
                        }
                        Acquired::Follower(follower) if round % 5 > 0 => {
                            let end = follower.wait();
                            assert!(!matches!(end, LeadEnd::Finished(OriginResult::Success)));
                        }
                        _ => {}
                    }
                    assert!(guard.in_flight() <= 2);
                }
            });
        }
    });
    at_rest(&guard);
}

thread_local! {
    static WHEN_COMPARED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A key of the same hash as all others. What is to be done when it is compared is done once.
#[derive(Debug)]
struct Colliding(u32);

impl Hash for Colliding {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(0);
    }
}

impl PartialEq for Colliding {
    fn eq(&self, other: &Self) -> bool {
        if let Some(act) = WHEN_COMPARED.take() {
            act();
        }
        self.0 == other.0
    }
}

impl Eq for Colliding {}

#[test]
fn a_caller_is_not_refused_for_the_lead_of_its_own_key() {
    let guard: OriginGuard<Colliding> =
        OriginGuard::builder(|_| false).max_in_flight(2).build().unwrap();
    let Acquired::Lead(first) = guard.acquire(Colliding(1)) else { panic!("there is room") };
    // While the caller looks for its key, another one takes the last permit for it.
    let faster = Rc::new(Cell::new(None));
    WHEN_COMPARED.set(Some(Box::new({
        let (guard, faster) = (guard.clone(), Rc::clone(&faster));
        move || faster.set(Some(guard.acquire(Colliding(2))))
    })));
    let told = guard.acquire(Colliding(2));
    let Some(Acquired::Lead(faster)) = faster.take() else { panic!("there was room") };
    let Acquired::Follower(follower) = told else { panic!("{told:?}") };
    faster.finish(OriginResult::Success);
    assert_eq!(follower.wait(), SUCCESS);
    assert_eq!(guard.limits().counts().refused.total(), 0);
    first.finish(OriginResult::Success);
    assert_eq!((guard.in_flight(), guard.waiters(), guard.keys()), (0, 0, 0));
}
