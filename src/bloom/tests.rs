//! What needs to stop a thread in the middle of an operation, or to look inside.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::{AgeingFilter, Answer, Filter, Plan, RebuildingFilter, plan};
use crate::sync::stall::{disarm, stop_at, stop_twice};

const KEY: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
/// More atomic operations than any operation has that is stopped here.
const MANY: usize = 200;

fn small() -> Plan {
    plan(10, 0.01).unwrap()
}

fn complete() -> RebuildingFilter {
    let filter = RebuildingFilter::new(&small()).unwrap();
    filter.mark_complete();
    filter
}

/// Builds a generation of nothing.
fn switch(filter: &RebuildingFilter) {
    filter.rebuild(&small()).unwrap().finish();
}

/// Stops `stalled` before each of its atomic operations in turn, and runs `meanwhile` there. Returns
/// how many there were.
fn at_every_operation<T: Sync>(
    new: impl Fn() -> T,
    stalled: impl Fn(&T) + Sync,
    meanwhile: impl Fn(&T),
    after: impl Fn(&T),
) -> usize {
    for n in 0..MANY {
        let shared = new();
        let was_stopped = one_stop(&shared, &stalled, &meanwhile, |stopped, release| {
            stop_at(n, stopped, release);
        });
        after(&shared);
        if !was_stopped {
            return n;
        }
    }
    panic!("more than {MANY} operations");
}

fn one_stop<T: Sync>(
    shared: &T,
    stalled: &(impl Fn(&T) + Sync),
    meanwhile: impl Fn(&T),
    arm: impl Fn(Sender<()>, Receiver<()>) + Sync + Send,
) -> bool {
    let (stopped, is_stopped) = channel();
    let (go_on, release) = channel();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            arm(stopped, release);
            stalled(shared);
            !disarm()
        });
        // Each message is a stop; the end of the channel is the end of the operation.
        while is_stopped.recv().is_ok() {
            meanwhile(shared);
            let _ = go_on.send(());
        }
        worker.join().unwrap()
    })
}

fn insert(filter: &RebuildingFilter) {
    filter.insert_hash(KEY);
}

fn is_found(filter: &RebuildingFilter) {
    assert_eq!(filter.check_hash(KEY), Answer::Maybe, "an acknowledged key is denied");
}

/// The source of truth never has the key here, so that only the insert itself can bring it over.
#[test]
fn an_inserter_stopped_before_a_switch_is_acknowledged_after_it() {
    let stops = at_every_operation(complete, insert, switch, is_found);
    assert!(stops > 16, "it was stopped only {stops} times");
}

#[test]
fn an_inserter_stopped_for_two_switches_is_acknowledged_after_them() {
    let twice = |filter: &RebuildingFilter| {
        switch(filter);
        switch(filter);
    };
    at_every_operation(complete, insert, twice, is_found);
}

#[test]
fn an_inserter_stopped_for_an_abandoned_rebuild_is_acknowledged() {
    let abandon = |filter: &RebuildingFilter| drop(filter.rebuild(&small()).unwrap());
    at_every_operation(complete, insert, abandon, is_found);
}

#[test]
fn an_inserter_stopped_while_a_rebuild_finishes_or_is_abandoned_and_another_ends() {
    for finish in [true, false] {
        for n in 0..40 {
            let filter = complete();
            switch(&filter);
            let rebuild = std::sync::Mutex::new(Some(filter.rebuild(&small()).unwrap()));
            let meanwhile = |filter: &RebuildingFilter| {
                let rebuild = rebuild.lock().unwrap().take().unwrap();
                if finish {
                    rebuild.finish();
                } else {
                    drop(rebuild);
                }
                switch(filter);
            };
            one_stop(&filter, &insert, meanwhile, |stopped, go_on| stop_at(n, stopped, go_on));
            is_found(&filter);
        }
    }
}

/// Stopped once before a switch, and again, anywhere in its repetition, before another.
#[test]
fn an_inserter_stopped_twice_is_acknowledged() {
    for first in (0..24).step_by(3) {
        for then in 0..40 {
            let filter = complete();
            one_stop(&filter, &insert, switch, |stopped, go_on| {
                stop_twice(first, then, stopped, go_on);
            });
            is_found(&filter);
        }
    }
}

/// A query is stopped while the generation that it looks at is cleared for the next one, and the key is in
/// every generation that ever serves.
#[test]
fn a_query_stopped_while_its_generation_is_cleared_denies_nothing() {
    let new = || {
        let filter = complete();
        switch(&filter);
        filter.insert_hash(KEY);
        filter
    };
    let query = |filter: &RebuildingFilter| is_found(filter);
    let keep = |filter: &RebuildingFilter| {
        let rebuild = filter.rebuild(&small()).unwrap();
        rebuild.insert_hash(KEY);
        rebuild.finish();
        // Clears what the query looks at.
        drop(filter.rebuild(&small()).unwrap());
    };
    let stops = at_every_operation(new, query, keep, is_found);
    assert!(stops > 8, "it was stopped only {stops} times");
}

#[test]
fn a_stopped_builder_holds_up_neither_inserts_nor_queries() {
    let new = || {
        let filter = complete();
        switch(&filter);
        filter
    };
    let meanwhile = |filter: &RebuildingFilter| {
        insert(filter);
        is_found(filter);
        assert_eq!(filter.check_hash(!KEY), Answer::Absent);
    };
    at_every_operation(new, switch, meanwhile, |_| ());
}

#[test]
fn an_ageing_inserter_stopped_for_a_rotation_is_found_until_the_next_but_one() {
    let new = || AgeingFilter::new(&small()).unwrap();
    let rotate = |filter: &AgeingFilter| assert!(filter.rotate());
    let insert = |filter: &AgeingFilter| {
        filter.insert_hash(KEY);
    };
    let is_remembered = |filter: &AgeingFilter| {
        assert!(filter.contains_hash(KEY));
        rotate(filter);
        assert!(filter.contains_hash(KEY));
    };
    at_every_operation(new, insert, rotate, is_remembered);
    let three = |filter: &AgeingFilter| (0..3).for_each(|_| rotate(filter));
    at_every_operation(new, insert, three, is_remembered);
}

#[test]
fn an_ageing_query_stopped_for_rotations_denies_no_key_that_is_kept() {
    let new = || {
        let filter = AgeingFilter::new(&small()).unwrap();
        filter.insert_hash(KEY);
        filter.rotate();
        filter
    };
    let query = |filter: &AgeingFilter| assert!(filter.contains_hash(KEY));
    let renew = |filter: &AgeingFilter| {
        for _ in 0..3 {
            filter.insert_hash(KEY);
            filter.rotate();
        }
    };
    at_every_operation(new, query, renew, query);
}

#[test]
fn a_stopped_rotation_holds_up_nobody_and_refuses_another() {
    let new = || {
        let filter = AgeingFilter::new(&small()).unwrap();
        filter.rotate();
        filter
    };
    let refused = AtomicBool::new(false);
    let meanwhile = |filter: &AgeingFilter| {
        filter.insert_hash(KEY);
        assert!(filter.contains_hash(KEY));
        if !filter.rotate() {
            refused.store(true, SeqCst);
        }
    };
    at_every_operation(
        new,
        |filter| {
            filter.rotate();
        },
        meanwhile,
        |_| (),
    );
    assert!(refused.load(SeqCst));
}

/// Two threads insert into the same words; no bit is lost at any interleaving of one of them.
#[test]
fn an_inserter_stopped_anywhere_loses_no_bit() {
    let new = || Filter::new(&small()).unwrap();
    let other = !KEY;
    let meanwhile = |filter: &Filter| {
        filter.insert_hash(other);
    };
    let both = |filter: &Filter| assert!(filter.contains_hash(KEY));
    let stalled = |filter: &Filter| {
        filter.insert_hash(KEY);
    };
    at_every_operation(new, stalled, meanwhile, both);
    let filter = new();
    one_stop(&filter, &stalled, meanwhile, |stopped, go_on| stop_at(5, stopped, go_on));
    assert!(filter.contains_hash(KEY) && filter.contains_hash(other));
}
