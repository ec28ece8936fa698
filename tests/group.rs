//! Coalescing without a cache.

mod common;

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::Few;
use common::loads::{Gate, Polled, until};
use futures_lite::future::{block_on, yield_now};
use seawall::flight::{Group, GroupError, Shared};

type Told<V> = Result<Shared<V>, GroupError>;

fn begin(group: &Group<u32, u32>, key: u32, gate: &Gate<u32>) -> JoinHandle<Told<u32>> {
    let (group, gate) = (group.clone(), gate.clone());
    thread::spawn(move || group.run(&key, || gate.pass()))
}

/// A caller that has joined: polled once, and pending.
fn follow<'g>(group: &'g Group<u32, u32>, key: &'g u32) -> Polled<'g, Told<u32>> {
    Polled::begun(group.run_async(key, || async { unreachable!("another call is running") }))
}

fn value<V>(told: Told<V>) -> V {
    told.expect("a value").value
}

#[test]
fn a_call_alone_is_not_shared() {
    let group: Group<String, u32> = Group::new();
    let told = group.run("a", || 1).unwrap();
    assert_eq!((told.value, told.shared, group.in_flight()), (1, false, 0));
    let told = block_on(group.run_async("a", || async { 2 })).unwrap();
    assert_eq!((told.value, told.shared, group.in_flight()), (2, false, 0));
}

#[test]
fn coa_01_all_who_wait_share_one_call() {
    let (group, gate) = (Group::new(), Gate::new());
    let leader = begin(&group, 1, &gate);
    gate.until_entered(1);
    let followers: Vec<_> = (0..8).map(|_| follow(&group, &1)).collect();
    let other = value(group.run(&2, || 20));
    gate.open(10);
    assert_eq!(other, 20);
    let told = leader.join().unwrap().unwrap();
    assert_eq!((told.value, told.shared), (10, true));
    for follower in followers {
        let told = follower.finish_woken(0).unwrap();
        assert_eq!((told.value, told.shared), (10, true));
    }
    assert_eq!((gate.entered(), group.in_flight()), (1, 0));
}

#[test]
fn coa_01_each_round_makes_one_call() {
    let rounds = if cfg!(miri) { 5 } else { 300 };
    let group: Group<usize, usize> = Group::new();
    for round in 0..rounds {
        let (calls, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // The call ends when all have begun: those who find it running join, and none comes later.
        let call = || {
            calls.fetch_add(1, SeqCst);
            until(|| begun.load(SeqCst) == 3);
            round
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    begun.fetch_add(1, SeqCst);
                    assert_eq!(value(group.run(&round, call)), round);
                });
            }
        });
        assert!((1..=3).contains(&calls.load(SeqCst)));
        assert_eq!(group.in_flight(), 0);
    }
}

#[test]
fn coa_03_a_forgotten_call_answers_and_leaves_its_successor_alone() {
    let group = Group::new();
    let (first_gate, second_gate, third_gate) = (Gate::new(), Gate::new(), Gate::opened(3));
    let first = begin(&group, 1, &first_gate);
    first_gate.until_entered(1);
    let early = follow(&group, &1);
    assert!(group.forget(&1));
    assert!(!group.forget(&1));
    let second = begin(&group, 1, &second_gate);
    second_gate.until_entered(1);
    assert_eq!(group.in_flight(), 2);
    first_gate.open(10);
    assert_eq!(value(first.join().unwrap()), 10);
    assert_eq!(value(early.finish()), 10);
    let third = Polled::begun(group.run_async(&1, || third_gate.pass_async()));
    second_gate.open(20);
    assert_eq!(value(second.join().unwrap()), 20);
    assert_eq!(value(third.finish()), 20);
    assert_eq!((third_gate.entered(), group.in_flight()), (0, 0));
}

#[test]
fn coa_05_an_error_is_a_value_like_others() {
    let group: Group<u32, Result<u32, &str>> = Group::new();
    let gate = Gate::new();
    let mut leader = Polled::begun(group.run_async(&1, || gate.pass_async()));
    let follower = Polled::begun(group.run_async(&1, || async { Ok(1) }));
    gate.open(Err("down"));
    assert!(matches!(leader.poll(), Poll::Ready(Ok(Shared { value: Err("down"), .. }))));
    assert_eq!(value(follower.finish()), Err("down"));
}

#[test]
fn pan_01_a_panic_goes_on_in_the_leader_and_reaches_those_who_wait() {
    let (group, gate) = (Group::new(), Gate::new());
    let leader = begin(&group, 1, &gate);
    gate.until_entered(1);
    let follower = follow(&group, &1);
    gate.open_to_panic("broken");
    assert!(leader.join().is_err());
    assert_eq!(follower.finish(), Err(GroupError::Panicked("broken".into())));
    assert_eq!(group.in_flight(), 0);
    assert_eq!(value(group.run(&1, || 1)), 1, "the key is as good as new");
}

#[test]
fn pan_01_a_panic_of_a_future_reaches_all() {
    let group: Group<u32, u32> = Group::new();
    let gate = Gate::new();
    let leader = Polled::begun(group.run_async(&1, || gate.pass_async()));
    let blocked = {
        let group = group.clone();
        thread::spawn(move || group.run(&1, || unreachable!("another call is running")))
    };
    let follower = follow(&group, &1);
    gate.open_to_panic("broken");
    let panicked = Err(GroupError::Panicked("broken".into()));
    for told in [leader.finish(), follower.finish()] {
        assert_eq!(told, panicked);
    }
    // It may have come when all was over.
    assert!(blocked.join().map_or(true, |told| told == panicked));
    fn broken() -> std::future::Ready<u32> {
        panic!("no future")
    }
    let told = block_on(group.run_async(&1, broken));
    assert_eq!(told, Err(GroupError::Panicked("no future".into())));
    assert_eq!(group.in_flight(), 0);
}

#[test]
fn can_01_the_first_caller_may_leave() {
    let (group, gate) = (Group::new(), Gate::new());
    let leader = Polled::begun(group.run_async(&1, || gate.pass_async()));
    let follower = follow(&group, &1);
    drop(leader);
    gate.open(10);
    let told = follower.finish_woken(0).unwrap();
    assert_eq!((told.value, told.shared), (10, false), "it went to one caller");
    assert_eq!(gate.entered(), 1);
}

#[test]
fn can_02_the_last_one_out_drops_the_call() {
    let (group, gate) = (Group::new(), Gate::<u32>::new());
    let leader = Polled::begun(group.run_async(&1, || gate.pass_async()));
    let follower = follow(&group, &1);
    drop(leader);
    assert_eq!((gate.inside(), group.in_flight()), (1, 1));
    drop(follower);
    assert_eq!((gate.inside(), group.in_flight()), (0, 0));
    assert_eq!(value(group.run(&1, || 2)), 2);
}

#[test]
fn a_future_that_was_never_polled_leaves_nothing() {
    let group: Group<u32, u32> = Group::new();
    drop(group.run_async(&1, || async { 1 }));
    assert_eq!(group.in_flight(), 0);
}

#[test]
fn threads_and_tasks_share_a_call() {
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
        let (group, gate) = (Group::new(), Gate::new());
        let mut task = Polled::begun(group.run_async(&1, || gate.pass_async()));
        let thread = begin(&group, 1, &gate);
        gate.open(10);
        // If nobody polls the task any more, the thread drives the future.
        assert_eq!(value(thread.join().unwrap()), 10);
        let told = task.poll();
        assert!(matches!(told, Poll::Ready(Ok(Shared { value: 10, .. }))), "{told:?}");
    }
}

#[test]
fn ree_01_a_call_that_waits_for_itself_is_told_so() {
    let group: Group<u32, Result<u32, GroupError>> = Group::new();
    let inner = |key: u32| group.run(&key, || Ok(1)).and_then(|told| told.value);
    assert_eq!(value(group.run(&1, || inner(1))), Err(GroupError::Reentrant));
    let around = || group.run(&2, || inner(1)).and_then(|told| told.value);
    assert_eq!(value(group.run(&1, around)), Err(GroupError::Reentrant));
    assert_eq!(value(group.run(&1, || inner(2))), Ok(1));
    let handle = group.clone();
    let told = block_on(group.run_async(&1, || async move {
        handle.run_async(&1, || async { Ok(1) }).await.and_then(|told| told.value)
    }));
    assert_eq!(value(told), Err(GroupError::Reentrant));
    assert_eq!(group.in_flight(), 0);
}

#[test]
fn patience_ends_for_those_who_wait_only() {
    let (group, gate) = (Group::new(), Gate::new());
    let leader = begin(&group, 1, &gate);
    gate.until_entered(1);
    let told = group.run_timeout(&1, Duration::ZERO, || unreachable!("another call is running"));
    assert_eq!(told, Err(GroupError::TimedOut));
    gate.open(10);
    let told = leader.join().unwrap().unwrap();
    assert_eq!((told.value, told.shared), (10, false), "who left gets nothing");
    assert_eq!(value(group.run_timeout(&1, Duration::ZERO, || 11)), 11);
}

#[test]
fn has_01_keys_of_one_hash_are_told_apart() {
    let group: Group<u32, u32, Few> = Group::with_hasher(Few(1));
    let gates: Vec<_> = (0..20).map(|_| Gate::new()).collect();
    let keys: Vec<u32> = (0..20).collect();
    let calls: Vec<_> = keys
        .iter()
        .zip(&gates)
        .map(|(key, gate)| Polled::begun(group.run_async(key, || gate.pass_async())))
        .collect();
    assert!(group.forget(&7) && !group.forget(&20));
    assert_eq!(group.in_flight(), 20);
    for (key, gate) in keys.iter().zip(&gates) {
        gate.open(*key);
    }
    for (key, call) in keys.iter().zip(calls).rev() {
        assert_eq!(value(call.finish()), *key);
    }
    assert_eq!(group.in_flight(), 0);
}

/// Compares by asking the group for yet another key.
#[derive(Clone)]
struct Curious(u32, Group<u32, u32>, Option<Arc<Group<Curious, u32>>>);

impl PartialEq for Curious {
    fn eq(&self, other: &Self) -> bool {
        assert_eq!(value(self.1.run(&self.0, || 1)), 1);
        if let Some(group) = &self.2 {
            // The group that is comparing.
            group.forget(&Curious(u32::MAX, self.1.clone(), None));
        }
        self.0 == other.0
    }
}

impl Eq for Curious {}

impl Hash for Curious {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl Drop for Curious {
    fn drop(&mut self) {
        assert_eq!(value(self.1.run(&self.0, || 1)), 1);
    }
}

#[test]
fn ree_02_keys_may_use_the_group_they_are_in() {
    let group = Arc::new(Group::new());
    let key = |number| Curious(number, Group::new(), Some(Arc::clone(&group)));
    let (first, second) = (key(1), key(2));
    let told = group.run(&first, || {
        assert_eq!(value(group.run(&second, || 2)), 2);
        group.forget(&first);
        1
    });
    assert_eq!(value(told), 1);
    assert_eq!(group.in_flight(), 0);
}

#[test]
fn pan_02_a_clone_that_panics_hurts_its_caller_only() {
    #[derive(Debug)]
    struct Fragile(u32);
    thread_local!(static FAIL: Cell<bool> = const { Cell::new(false) });
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            assert!(!FAIL.get(), "no clone");
            Fragile(self.0)
        }
    }
    let group: Group<u32, Fragile> = Group::new();
    let (entered, go) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let leader = scope.spawn(|| {
            let call = || {
                entered.store(1, SeqCst);
                until(|| go.load(SeqCst) == 1);
                FAIL.set(true);
                Fragile(7)
            };
            catch_unwind(AssertUnwindSafe(|| group.run(&1, call))).is_err()
        });
        until(|| entered.load(SeqCst) == 1);
        let never = || async { unreachable!("another call is running") };
        let follower = Polled::begun(group.run_async(&1, never));
        go.store(1, SeqCst);
        assert_eq!(value(follower.finish()).0, 7);
        assert!(leader.join().unwrap(), "the leader's own clone panics");
    });
    assert_eq!(group.in_flight(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_storm_ends_with_nothing_in_flight() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let group: Group<u64, u64> = Group::new();
    let tasks: Vec<_> = (0..2_000_u64)
        .map(|number| {
            let group = group.clone();
            runtime.spawn(async move {
                let key = number % 7;
                let call = move || async move {
                    for _ in 0..number % 5 {
                        yield_now().await;
                    }
                    key
                };
                let mut call = Box::pin(group.run_async(&key, call));
                if number % 3 == 0 {
                    // Leaves after a poll, if it is not done.
                    return futures_lite::future::poll_once(call.as_mut()).await;
                }
                if number % 11 == 0 {
                    group.forget(&key);
                }
                Some(call.await)
            })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        if let Some(told) = runtime.block_on(task).unwrap() {
            assert_eq!(value(told), number as u64 % 7);
        }
    }
    assert_eq!(group.in_flight(), 0);
}
