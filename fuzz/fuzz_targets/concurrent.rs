//! Two or three threads do a few operations each on one or two keys; the history of each key must be
//! linearizable, and the accounts right when all have ended.
//!
//! The same input is run several times, since each run may interleave the threads in another way. Keys
//! may share a bucket, and the table may be about to grow.

#![no_main]

mod history;

use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::{hint, thread};

use arbitrary::Arbitrary;
use history::{Done, Event, is_linearizable};
use libfuzzer_sys::fuzz_target;
use seawall::{Cache, Compute, Computed, InsertOptions, Inserted, RefusedReason};

const RUNS: usize = 6;
const MOST_OPS: usize = 4;
/// Other keys are counted from here.
const OTHERS: u32 = 1_000;

#[derive(Arbitrary, Debug)]
struct Input {
    /// All keys share a hash.
    collides: bool,
    /// Other entries in a table that grows with them.
    others: u8,
    /// Which of the two keys have a value at first.
    there: [bool; 2],
    first: Vec<Step>,
    second: Vec<Step>,
    third: Option<Vec<Step>>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Step {
    /// How long the thread waits before, in turns of a loop.
    pause: u8,
    op: Op,
    second_key: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Get,
    GetWith,
    GetMany,
    Pinned,
    Insert,
    InsertTagged,
    InsertIfAbsent,
    ReplaceIf,
    Remove,
    Invalidate,
    ComputeInsert,
    ComputeRemove,
    ComputeKeep,
    /// Things that change nothing about the keys.
    InsertOther(u8),
    RemoveOther(u8),
    InvalidateOthers(u8),
    Sweep,
    Iterate,
}

#[derive(Clone, Copy, Debug)]
struct State(bool);

struct StateHasher(DefaultHasher, bool);

impl BuildHasher for State {
    type Hasher = StateHasher;

    fn build_hasher(&self) -> StateHasher {
        StateHasher(DefaultHasher::new(), self.0)
    }
}

impl Hasher for StateHasher {
    fn finish(&self) -> u64 {
        if self.1 { 7 } else { self.0.finish() }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

#[derive(Debug)]
struct Value {
    it: u32,
    alive: Arc<AtomicI64>,
}

impl Value {
    fn new(it: u32, alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, SeqCst);
        Value { it, alive: Arc::clone(alive) }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Value::new(self.it, &self.alive)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

struct Run {
    cache: Cache<u32, Value, State>,
    alive: Arc<AtomicI64>,
    /// The order of calls and returns.
    time: AtomicU64,
    histories: [Mutex<Vec<Event>>; 2],
}

fn is_stored<E>(result: &Result<Inserted, E>) -> bool {
    match result {
        Ok(inserted) => {
            assert_ne!(*inserted, Inserted::NotKept, "there is room");
            true
        }
        Err(_) => false,
    }
}

impl Run {
    fn new(input: &Input) -> Self {
        // Few enough of one hash for one bucket, with the two keys and those that come later.
        let others = if input.collides { input.others % 8 } else { input.others };
        let cache = Cache::builder().max_weight(1_000_000).hasher(State(input.collides));
        let run = Run {
            cache: cache.build().unwrap(),
            alive: Arc::default(),
            time: AtomicU64::new(0),
            histories: Default::default(),
        };
        for other in 0..u32::from(others) {
            run.cache.insert(2 * OTHERS + other, run.value(0)).unwrap();
        }
        for key in [0, 1].into_iter().filter(|key| input.there[*key as usize]) {
            run.cache.insert(key, run.value(key)).unwrap();
        }
        run
    }

    fn value(&self, it: u32) -> Value {
        Value::new(it, &self.alive)
    }

    fn step(&self, step: Step, unique: u32) {
        for _ in 0..step.pause {
            hint::spin_loop();
        }
        let key = u32::from(step.second_key);
        let called = self.time.fetch_add(1, SeqCst);
        let done = self.perform(step.op, key, unique);
        let returned = self.time.fetch_add(1, SeqCst);
        if let Some(done) = done {
            let event = Event { called, returned, done };
            self.histories[key as usize].lock().unwrap().push(event);
        }
    }

    fn perform(&self, op: Op, key: u32, unique: u32) -> Option<Done> {
        let cache = &self.cache;
        Some(match op {
            Op::Get => Done::Got(cache.get(&key).map(|value| value.it)),
            Op::GetWith => Done::Got(cache.get_with(&key, |entry| entry.value().it)),
            Op::GetMany => {
                let mut got = None;
                cache.get_many_with(&[key], |_, entry| got = entry.map(|entry| entry.value().it));
                Done::Got(got)
            }
            Op::Pinned => Done::Got(cache.pin().get(&key).map(|entry| entry.value().it)),
            Op::Insert => {
                let inserted = cache.insert(key, self.value(unique)).unwrap();
                Done::Inserted { value: unique, replaced: inserted == Inserted::Replaced }
            }
            Op::InsertTagged => {
                let options = InsertOptions::new().tag("tag");
                let inserted = cache.insert_with(key, self.value(unique), options).unwrap();
                Done::Inserted { value: unique, replaced: inserted == Inserted::Replaced }
            }
            Op::InsertIfAbsent => {
                let result = cache.insert_if_absent(key, self.value(unique));
                if let Err(refused) = &result {
                    assert_eq!(refused.reason(), RefusedReason::Present);
                    assert_eq!(refused.value().it, unique);
                }
                Done::InsertedIfAbsent { value: unique, stored: is_stored(&result) }
            }
            Op::ReplaceIf => {
                let result = cache.replace_if(key, self.value(unique), |_| true);
                if let Err(refused) = &result {
                    assert_eq!(refused.reason(), RefusedReason::Absent);
                    assert_eq!(refused.value().it, unique);
                }
                Done::ReplacedIfPresent { value: unique, stored: is_stored(&result) }
            }
            Op::Remove => Done::Removed(cache.remove(&key).map(|value| value.it)),
            Op::Invalidate => Done::Invalidated(cache.invalidate(&key)),
            Op::ComputeInsert | Op::ComputeRemove | Op::ComputeKeep => {
                self.compute(op, key, unique)
            }
            _ => {
                self.disturb(op);
                return None;
            }
        })
    }

    fn compute(&self, op: Op, key: u32, unique: u32) -> Done {
        let mut seen = None;
        let computed = self.cache.compute(key, |entry| {
            seen = entry.map(|entry| entry.value().it);
            match op {
                Op::ComputeInsert => Compute::Insert(self.value(unique)),
                Op::ComputeRemove => Compute::Remove,
                _ => Compute::Keep,
            }
        });
        match (op, computed.unwrap()) {
            (Op::ComputeInsert, Computed::Inserted(inserted)) => {
                assert_ne!(inserted, Inserted::NotKept, "there is room");
                let replaced = inserted == Inserted::Replaced;
                Done::ComputedInsert { seen, value: unique, replaced }
            }
            (Op::ComputeRemove, Computed::Removed) => Done::ComputedRemove { seen, removed: true },
            (Op::ComputeRemove, Computed::Kept) => Done::ComputedRemove { seen, removed: false },
            (Op::ComputeKeep, Computed::Kept) => Done::ComputedKeep { seen },
            (op, computed) => panic!("{op:?} has {computed:?}"),
        }
    }

    fn disturb(&self, op: Op) {
        let cache = &self.cache;
        let other = |it: u8| OTHERS + u32::from(it % 8);
        match op {
            Op::InsertOther(it) => drop(cache.insert(other(it), self.value(0))),
            Op::RemoveOther(it) => drop(cache.remove(&other(it))),
            Op::InvalidateOthers(mask) => {
                cache.invalidate_if(|key, _| *key >= OTHERS && key & u32::from(mask) == 0);
            }
            Op::Sweep => assert_eq!(cache.sweep(usize::MAX), 0, "nothing is dead"),
            _ => {
                let mut keys: Vec<u32> = cache.iter().map(|(key, _)| key).collect();
                let walked = keys.len();
                keys.sort_unstable();
                keys.dedup();
                // One of the two keys, or of those that come and go, may be met in two of its lives.
                assert!(walked - keys.len() <= 10);
            }
        }
    }

    fn check(self, input: &Input) {
        let now = self.time.into_inner();
        for (key, history) in (0_u32..).zip(self.histories) {
            let mut history = history.into_inner().unwrap();
            let last = self.cache.get(&key).map(|value| value.it);
            history.push(Event { called: now, returned: now + 1, done: Done::Got(last) });
            let first = input.there[key as usize].then_some(key);
            assert!(is_linearizable(first, &history), "from {first:?}: {history:#?}");
        }
        let count = self.cache.iter().count();
        assert_eq!(self.cache.len(), count);
        assert_eq!(self.cache.weight(), count as u64);
        assert_eq!(self.cache.stats().evicted, 0);
        drop(self.cache);
        assert_eq!(self.alive.load(SeqCst), 0, "every value was dropped once");
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that lives as long as the process: starting one takes longer than a history.
struct Worker(Sender<Job>);

impl Worker {
    fn new() -> Self {
        let (give, take) = channel::<Job>();
        thread::spawn(move || take.into_iter().for_each(|job| job()));
        Worker(give)
    }
}

static WORKERS: LazyLock<[Worker; 3]> = LazyLock::new(|| [(); 3].map(|()| Worker::new()));

fn run_once(input: &Input, threads: &[Vec<Step>]) {
    let run = Arc::new(Run::new(input));
    let ready = Arc::new(AtomicUsize::new(threads.len()));
    let (tell, hear) = channel();
    for (number, (steps, worker)) in (1_u32..).zip(threads.iter().zip(&*WORKERS)) {
        let (run, ready, steps, tell) = (run.clone(), ready.clone(), steps.clone(), tell.clone());
        let job = move || {
            ready.fetch_sub(1, SeqCst);
            while ready.load(SeqCst) > 0 {
                thread::yield_now();
            }
            for (place, step) in (1..).zip(steps) {
                run.step(step, 10 * number + place);
            }
            drop(run);
            tell.send(()).unwrap();
        };
        worker.0.send(Box::new(job)).unwrap();
    }
    threads.iter().for_each(|_| hear.recv().unwrap());
    Arc::into_inner(run).expect("all workers are done with it").check(input);
}

fuzz_target!(|input: Input| {
    let threads: Vec<Vec<Step>> = [Some(&input.first), Some(&input.second), input.third.as_ref()]
        .into_iter()
        .flatten()
        .map(|steps| steps.iter().take(MOST_OPS).copied().collect())
        .collect();
    for _ in 0..RUNS {
        run_once(&input, &threads);
    }
});
