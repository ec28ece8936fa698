//! Unit tests of the table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use super::reclaim::pin;
use super::toy::Toy;
use crate::sync::stall;

/// A key whose hash has these upper bits and this tag.
fn key(upper: u64, tag: u64, low: u64) -> u64 {
    upper << 56 | tag << 16 | low
}

#[test]
fn keys_with_equal_hashes_up_to_the_low_bits_are_told_apart() {
    let toy = Toy::new(4);
    for low in 0..20 {
        assert_eq!(toy.put(key(7, 1, low), low), None);
    }
    for low in 0..20 {
        assert_eq!(toy.get(key(7, 1, low)), Some(low));
    }
    assert_eq!(toy.get(key(7, 1, 20)), None);
}

#[test]
fn a_full_chain_grows_and_keeps_everything() {
    let toy = Toy::new(1);
    let keys: Vec<u64> = (0..200).map(|n| key(n, n, n)).collect();
    for &key in &keys {
        toy.put(key, key);
    }
    let entries = toy.validate();
    assert_eq!(entries, keys.iter().map(|&key| (key, key)).collect());
}

#[test]
fn what_was_removed_frees_its_slot() {
    let toy = Toy::new(1);
    for round in 0..if cfg!(miri) { 50 } else { 1000 } {
        assert_eq!(toy.put(round, round), None);
        assert_eq!(toy.remove(round), Some(round));
    }
    assert!(toy.validate().is_empty());
    assert_eq!(toy.map.buckets(&pin()), 1);
}

#[test]
fn no_node_is_lost_whatever_state_the_map_is_dropped_in() {
    for keys in (0..60).step_by(if cfg!(miri) { 29 } else { 1 }) {
        let toy = Toy::new(1);
        let census = toy.census.clone();
        for n in 0..keys {
            toy.put(key(n, n, n), n);
            toy.remove(key(n / 2, n / 2, n / 2));
        }
        toy.map.start_growth(&pin());
        toy.put(key(0, 0, 0), 1);
        drop(toy);
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn the_map_agrees_with_a_model() {
    let toy = Toy::new(1);
    let mut model = BTreeMap::new();
    let mut random = 1u64;
    let steps = if cfg!(miri) { 200 } else { 20_000 };
    for step in 0..steps {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let name = random >> 56;
        let key = key(name, name % 3, name);
        match random >> 32 & 7 {
            0..3 => assert_eq!(toy.put(key, step), model.insert(key, step)),
            3 => assert_eq!(toy.put_if_absent(key, step), {
                let absent = !model.contains_key(&key);
                model.entry(key).or_insert(step);
                absent
            }),
            4 | 5 => assert_eq!(toy.remove(key), model.remove(&key)),
            6 => toy.touch(key),
            _ => assert_eq!(toy.get(key), model.get(&key).copied()),
        }
        if step % 4096 == 77 {
            toy.grow(&pin());
        }
    }
    assert_eq!(toy.validate(), model);
}

#[test]
fn what_no_pin_holds_is_freed_after_a_bounded_number_of_operations() {
    let _alone = stall::alone();
    let toy = Toy::new(1);
    let step = |round| {
        toy.put(1, round);
        toy.map.limbo().free_ready(pin().stripe());
    };
    for round in 0..if cfg!(miri) { 200 } else { 10_000 } {
        step(round);
        // A thread of another test may have been preempted while it was pinned.
        for _ in 0..1_000_000 {
            if toy.census.alive() < 800 {
                break;
            }
            thread::yield_now();
            step(round);
        }
        assert!(toy.census.alive() < 800, "{} alive", toy.census.alive());
    }
}

/// One operation that a thread can be stopped in.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Get,
    Touch,
    Insert,
    Replace,
    Remove,
    Iterate,
    StartGrowth,
    HelpGrowth,
}

impl Operation {
    const ALL: [Operation; 8] = [
        Operation::Get,
        Operation::Touch,
        Operation::Insert,
        Operation::Replace,
        Operation::Remove,
        Operation::Iterate,
        Operation::StartGrowth,
        Operation::HelpGrowth,
    ];

    fn run(self, toy: &Toy) {
        let present = key(3, 3, 3);
        match self {
            Operation::Get => drop(toy.get(present)),
            Operation::Touch => toy.touch(present),
            Operation::Insert => drop(toy.put(key(3, 9, 99), 99)),
            Operation::Replace => drop(toy.put(present, 33)),
            Operation::Remove => drop(toy.remove(present)),
            Operation::Iterate => drop(toy.entries()),
            Operation::StartGrowth => drop(toy.map.start_growth(&pin())),
            Operation::HelpGrowth => toy.map.help_growth(&pin()),
        }
    }
}

/// A bucket of seven keys (one in an extension line), and a growth under way if asked for.
fn crowded(growing: bool) -> Toy {
    let toy = Toy::new(2);
    for n in 0..7 {
        toy.put(key(n, n, n), n);
    }
    if growing {
        toy.map.start_growth(&pin());
    }
    toy
}

/// A thread stopped before any atomic operation of any operation keeps nobody from finishing any
/// operation, among them inserts that grow the table twice.
#[test]
#[cfg_attr(miri, ignore = "takes an hour")]
fn a_stalled_thread_stops_nobody() {
    let _alone = stall::alone();
    for growing in [false, true] {
        for operation in Operation::ALL {
            let mut stop = 0;
            while stalled_before(operation, stop, growing) {
                stop += 1;
            }
            assert!(stop > 0, "{operation:?} has no atomic operation");
        }
    }
}

/// Returns false if the operation ended before it came to its `stop`-th atomic operation.
fn stalled_before(operation: Operation, stop: usize, growing: bool) -> bool {
    let toy = Arc::new(crowded(growing));
    let (stopped, is_stopped) = channel();
    let (release, may_go) = channel();
    let stalled = {
        let toy = Arc::clone(&toy);
        thread::spawn(move || {
            stall::stop_at(stop, stopped, may_go);
            operation.run(&toy);
            stall::disarm()
        })
    };
    let came_to_stop = is_stopped.recv().is_ok();
    // The others run to the end while the first thread stands still: if one of them waited for it,
    // this test would hang.
    for n in 0..8 {
        toy.get(key(n, n, n));
        toy.put(key(n, n, n), 100 + n);
    }
    toy.entries();
    toy.remove(key(0, 0, 0));
    for n in 0..60 {
        toy.put(key(n, 1, 1000 + n), n);
    }
    toy.finish_growth();
    let others: Vec<u64> = (0..60).map(|n| key(n, 1, 1000 + n)).collect();
    for key in &others {
        assert!(toy.get(*key).is_some(), "{operation:?} stopped at {stop}: a key is missing");
    }
    drop(release);
    let never_came = stalled.join().unwrap();
    assert_eq!(never_came, !came_to_stop);
    let entries = toy.validate();
    assert!(others.iter().all(|key| entries.contains_key(key)));
    assert!(!entries.contains_key(&key(0, 0, 0)));
    let census = toy.census.clone();
    drop(Arc::into_inner(toy).unwrap());
    assert_eq!(census.alive(), 0, "{operation:?} stopped at {stop}: nodes leaked");
    came_to_stop
}

/// A helper of a growth that is about to place a node stands still while the bucket is published and the
/// node removed and retired. Going on for one step, it must not put the node back where a writer that
/// found it before would take it for live.
#[test]
fn a_late_helper_brings_no_address_back() {
    let _alone = stall::alone();
    let step = if cfg!(miri) { 13 } else { 1 };
    for helper_stop in (0..40).step_by(step) {
        for writer_stop in (0..40).step_by(step) {
            if !late_helper(helper_stop, writer_stop) {
                break;
            }
        }
    }
}

/// Returns false if one of the two ended before it came to its stop.
fn late_helper(helper_stop: usize, writer_stop: usize) -> bool {
    let toy = Arc::new(Toy::new(1));
    let name = key(3, 3, 3);
    toy.put(name, 10);
    toy.map.start_growth(&pin());
    let (stopped, helper_stands) = channel();
    let (let_helper_go, may_go) = channel();
    let helper = {
        let toy = Arc::clone(&toy);
        thread::spawn(move || {
            stall::stop_twice(helper_stop, 1, stopped, may_go);
            toy.map.help_growth(&pin());
            stall::disarm();
        })
    };
    if helper_stands.recv().is_err() {
        return false;
    }
    let (stopped, writer_stands) = channel();
    let (let_writer_go, may_go) = channel::<()>();
    let writer = {
        let toy = Arc::clone(&toy);
        thread::spawn(move || {
            stall::stop_at(writer_stop, stopped, may_go);
            let replaced = toy.put(name, 33);
            stall::disarm();
            replaced
        })
    };
    let came_to_stop = writer_stands.recv().is_ok();
    let removed = if came_to_stop { toy.remove(name) } else { None };
    let _ = let_helper_go.send(());
    let _ = helper_stands.recv();
    drop(let_writer_go);
    let replaced = writer.join().unwrap();
    drop(let_helper_go);
    helper.join().unwrap();
    assert!(removed.is_none() || removed != replaced, "remove and replace both took one node");
    toy.validate();
    let census = toy.census.clone();
    drop(Arc::into_inner(toy).unwrap());
    assert_eq!(census.alive(), 0);
    came_to_stop
}
