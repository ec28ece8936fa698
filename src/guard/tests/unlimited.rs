//! Without a limit threads count for themselves; a limit that is set later finds what they counted.

use super::*;
use crate::table::reclaim;

/// With all threads on one stripe, and with each on its own.
fn both(check: impl Fn(&Arc<Limits>)) {
    check(&unlimited());
    check(&Arc::new(Limits::counted_by(&LimitSettings::default(), reclaim::stripe)));
}

#[test]
fn what_was_taken_before_counts_under_a_limit() {
    both(|limits| {
        let mut running = vec![limits.admit(Priority::Background, 0).unwrap()];
        running.extend((0..2).map(|_| start(limits, 0)));
        assert_eq!(limits.in_flight(), 3);
        limits.set_max_in_flight(4);
        limits.set_background_share(0.25).unwrap();
        let refused = limits.admit(Priority::Background, 0).unwrap_err();
        assert_eq!(refused, Refusal::BackgroundShare { limit: 1 });
        let fourth = start(limits, 0);
        assert_eq!(refusal(limits, 0), Refusal::InFlight { limit: 4 });
        assert_eq!(limits.would_refuse(Priority::Foreground, 0), Some(refusal(limits, 0)));
        drop(running);
        assert_eq!(limits.in_flight(), 1);
        let background = limits.admit(Priority::Background, 0).unwrap();
        // Taken under the limit, given back without.
        limits.set_max_in_flight(0);
        drop((fourth, background));
        assert_eq!(limits.in_flight(), 0);
    });
}

#[test]
fn waiters_from_before_count_under_a_limit() {
    both(|limits| {
        let waiting = [(); 2].map(|()| limits.wait().unwrap());
        limits.set_max_waiters(2);
        assert_eq!(limits.wait().unwrap_err(), Refusal::Waiters { limit: 2 });
        drop(waiting);
        assert_eq!(limits.waiters(), 0);
        drop(limits.wait().unwrap());
    });
}

#[test]
fn another_thread_may_give_back() {
    both(|limits| {
        let running = together(4, |_| limits.admit(Priority::Background, 0).unwrap());
        assert_eq!(limits.in_flight(), 4);
        drop(running);
        assert_eq!(limits.in_flight(), 0);
        limits.set_max_in_flight(1);
        drop(start(limits, 0));
    });
}

#[test]
fn nothing_is_lost_while_a_limit_comes_and_goes() {
    both(|limits| {
        together(4, |index| {
            for round in 0..ROUNDS {
                match index {
                    0 => limits.set_max_in_flight(u64::from(round % 3)),
                    _ => drop(limits.admit(Priority::Foreground, 0)),
                }
            }
        });
        assert_eq!(limits.in_flight(), 0);
        limits.set_max_in_flight(1);
        let running = start(limits, 0);
        assert_eq!(refusal(limits, 0), Refusal::InFlight { limit: 1 });
        drop(running);
        assert_eq!(limits.in_flight(), 0);
    });
}
