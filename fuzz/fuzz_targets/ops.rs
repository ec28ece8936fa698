//! Runs any sequence of operations on a cache and on a [`model::Model`], and compares them after each.
//!
//! With a large budget nothing may be evicted. With a small one, or with keys that share a hash, the
//! model takes the listener's word for what was evicted, and checks that it had to be.

#![no_main]

mod model;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use model::{Life, Model, Options, Outcome, Rule, Setup, Spans, TAGS};
use seawall::{
    Cache, Clock, Compute, Computed, InsertOptions, Inserted, ManualClock, Refused, RemovalCause,
};

const KEYS: u8 = 32;
const MOST_OPS: usize = 400;

#[derive(Arbitrary, Debug)]
struct Input {
    budget: Budget,
    hashes: Hashes,
    spans: (Span, Span, Span),
    idle: Option<u8>,
    ops: Vec<Op>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Budget {
    Entries,
    Weight,
    FewEntries(u8),
    LittleWeight(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Hashes {
    Many,
    Few(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Span {
    Endless,
    Millis(u8),
}

impl Span {
    fn millis(self) -> Option<u64> {
        match self {
            Span::Endless => None,
            Span::Millis(millis) => Some(millis.into()),
        }
    }

    fn duration(self) -> Duration {
        self.millis().map_or(Duration::MAX, Duration::from_millis)
    }
}

#[derive(Arbitrary, Clone, Debug)]
struct Extras {
    fresh: Option<Span>,
    revalidate: Option<Span>,
    on_error: Option<Span>,
    too_short: bool,
    weight: Option<u8>,
    age: Age,
    version: Option<u8>,
    tags: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Age {
    None,
    Millis(u8),
    Year,
}

#[derive(Arbitrary, Clone, Debug)]
enum Decision {
    Keep,
    Remove,
    Insert(u8),
    InsertWith(u8, Extras),
}

#[derive(Arbitrary, Debug)]
enum Op {
    Advance(u8),
    Get(u8),
    GetWith(u8),
    GetPinned(u8, u8),
    GetMany(Vec<u8>),
    Insert(u8, u8),
    InsertWith(u8, u8, Extras),
    InsertIfAbsent(u8, u8),
    InsertIfAbsentWith(u8, u8, Extras),
    ReplaceIf(u8, u8, bool),
    Compute(u8, Decision),
    Remove(u8),
    Invalidate(u8),
    InvalidateAll(u8),
    InvalidateIf(u8),
    InvalidateTag(u8),
    MarkStale(u8),
    SetCapacity(u8),
    Sweep(u8),
    SweepAll,
    Iterate,
    Clone,
}

/// Many hashes, or few.
#[derive(Clone, Copy, Debug)]
struct State(Option<u64>);

struct StateHasher(DefaultHasher, Option<u64>);

impl BuildHasher for State {
    type Hasher = StateHasher;

    fn build_hasher(&self) -> StateHasher {
        StateHasher(DefaultHasher::new(), self.0)
    }
}

impl Hasher for StateHasher {
    fn finish(&self) -> u64 {
        let hash = self.0.finish();
        self.1.map_or(hash, |hashes| hash % hashes)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

/// A value whose copies are counted.
#[derive(Debug)]
struct Value {
    id: u64,
    key: u8,
    weight: u64,
    alive: Arc<AtomicI64>,
}

impl Clone for Value {
    fn clone(&self) -> Self {
        self.alive.fetch_add(1, SeqCst);
        Value { alive: Arc::clone(&self.alive), ..*self }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

type Told = Arc<Mutex<Vec<(u8, u64, RemovalCause)>>>;

struct Run {
    cache: Cache<u8, Value, State>,
    hand: ManualClock,
    model: Model,
    told: Told,
    alive: Arc<AtomicI64>,
    next_id: u64,
    collides: bool,
}

fn weighed(weight: u8) -> u64 {
    u64::from(weight % 12)
}

fn tag_name(tag: usize) -> String {
    format!("tag {tag}")
}

/// The same options twice: for the cache and for the model.
fn options(extras: Option<&Extras>) -> (InsertOptions, Options) {
    let (mut given, mut noted) = (InsertOptions::new(), Options::default());
    let Some(extras) = extras else { return (given, noted) };
    if let Some(span) = extras.fresh {
        given = match span {
            Span::Endless => given.no_deadline(),
            span => given.time_to_live(span.duration()),
        };
        noted.fresh = Some(span.millis());
    }
    if let Some(span) = extras.revalidate {
        given = given.stale_while_revalidate(span.duration());
        noted.revalidate = Some(span.millis());
    }
    if let Some(span) = extras.on_error {
        given = given.stale_if_error(span.duration());
        noted.on_error = Some(span.millis());
    }
    if extras.too_short {
        given = given.stale_if_error(Duration::from_micros(999));
        noted.too_short = true;
    }
    if let Some(weight) = extras.weight {
        noted.weight = Some(weighed(weight));
        given = given.weight(weighed(weight));
    }
    noted.age = match extras.age {
        Age::None => 0,
        Age::Millis(age) => age.into(),
        Age::Year => 365 * 24 * 60 * 60 * 1_000,
    };
    given = given.age(Duration::from_millis(noted.age));
    if let Some(version) = extras.version {
        noted.version = Some(u64::from(version % 4));
        given = given.version(u64::from(version % 4));
    }
    for tag in 0..TAGS {
        if extras.tags >> tag & 1 == 1 {
            noted.tags.push(tag);
            given = given.tag(tag_name(tag));
        }
    }
    (given, noted)
}

impl Run {
    fn new(input: &Input) -> Self {
        let (fresh, revalidate, on_error) = input.spans;
        let (capacity, weighted) = match input.budget {
            Budget::Entries => (500, false),
            Budget::Weight => (10_000, true),
            Budget::FewEntries(entries) => (u64::from(entries % 20), false),
            Budget::LittleWeight(weight) => (u64::from(weight % 60), true),
        };
        let hashes = match input.hashes {
            Hashes::Many => None,
            Hashes::Few(hashes) => Some(u64::from(hashes % 4) + 1),
        };
        // Below 64 milliseconds the time of the last read is kept exactly.
        let idle = input.idle.map(|idle| u64::from(idle % 63) + 1);
        let setup = Setup {
            capacity,
            weighted,
            spans: Spans {
                fresh: fresh.millis(),
                revalidate: revalidate.millis(),
                on_error: on_error.millis(),
            },
            idle,
            collides: hashes.is_some(),
        };
        let told = Told::default();
        let listener = {
            let told = Arc::clone(&told);
            move |key: &u8, value: &Value, cause| {
                assert_eq!(*key, value.key);
                told.lock().unwrap().push((*key, value.id, cause));
            }
        };
        let (clock, hand) = Clock::manual();
        let mut builder = Cache::builder()
            .stale_while_revalidate(revalidate.duration())
            .stale_if_error(on_error.duration())
            .clock(clock)
            .removal_listener(listener);
        if let Some(fresh) = fresh.millis() {
            builder = builder.time_to_live(Duration::from_millis(fresh));
        }
        if let Some(idle) = idle {
            builder = builder.time_to_idle(Duration::from_millis(idle));
        }
        builder = if weighted {
            builder.max_weight(capacity).weigher(|_, value: &Value| value.weight)
        } else {
            builder.max_entries(capacity)
        };
        let cache = builder.hasher(State(hashes)).build().unwrap();
        let alive = Arc::default();
        let collides = hashes.is_some();
        Run { cache, hand, model: Model::new(setup), told, alive, next_id: 0, collides }
    }

    fn value(&mut self, key: u8, weight: u8) -> Value {
        self.next_id += 1;
        self.alive.fetch_add(1, SeqCst);
        let alive = Arc::clone(&self.alive);
        Value { id: self.next_id, key, weight: weighed(weight), alive }
    }

    /// Compares what the listener was told with what the operation must have done, and tells the model
    /// the rest. Returns how many entries the rest was.
    fn settle(&mut self, expected: impl IntoIterator<Item = (u8, u64, RemovalCause)>) -> usize {
        let mut told = std::mem::take(&mut *self.told.lock().unwrap());
        for notice in expected {
            let place = told.iter().position(|it| *it == notice);
            told.remove(place.unwrap_or_else(|| panic!("{notice:?} is not in {told:?}")));
        }
        for (key, id, cause) in &told {
            self.model.left(*key, *id, *cause);
        }
        told.len()
    }

    fn store(
        &mut self,
        key: u8,
        weight: u8,
        extras: Option<&Extras>,
        rule: Rule,
        call: impl FnOnce(
            &Cache<u8, Value, State>,
            Value,
            InsertOptions,
        ) -> Result<Inserted, Refused<Value>>,
    ) {
        let (given, noted) = options(extras);
        let value = self.value(key, weight);
        let id = (value.id, value.weight);
        let result = call(&self.cache, value, given);
        let (outcome, gone) = self.model.insert(key, id, &noted, rule);
        self.compare(key, id.0, result, outcome);
        self.settle(gone.map(|(id, cause)| (key, id, cause)));
    }

    fn compare(
        &mut self,
        key: u8,
        id: u64,
        result: Result<Inserted, Refused<Value>>,
        outcome: Outcome,
    ) {
        match (result, outcome) {
            (Ok(Inserted::New), Outcome::New)
            | (Ok(Inserted::Replaced), Outcome::Replaced)
            | (Ok(Inserted::NotKept), Outcome::NotKept) => {}
            (Ok(Inserted::NotKept), Outcome::New) if self.collides => self.model.take_back(key),
            (Err(refused), Outcome::Refused(reason)) => {
                assert_eq!(refused.reason(), reason);
                assert_eq!(refused.value().id, id, "the value comes back");
            }
            (result, outcome) => panic!("{result:?} in place of {outcome:?}"),
        }
    }

    fn compute(&mut self, key: u8, decision: &Decision) {
        let shown = self.model.live(key).map(|(entry, state)| (entry.id, state));
        let extras = match decision {
            Decision::InsertWith(_, extras) => Some(extras),
            _ => None,
        };
        let (given, noted) = options(extras);
        let value = match decision {
            Decision::Insert(weight) | Decision::InsertWith(weight, _) => {
                Some(self.value(key, *weight))
            }
            _ => None,
        };
        let id = value.as_ref().map(|value| (value.id, value.weight));
        let mut calls = 0;
        let result = self.cache.compute(key, |entry| {
            calls += 1;
            assert_eq!(entry.map(|entry| (entry.value().id, entry.state())), shown);
            match (&value, decision) {
                (None, Decision::Remove) => Compute::Remove,
                (None, _) => Compute::Keep,
                (Some(value), Decision::Insert(_)) => Compute::Insert(value.clone()),
                (Some(value), _) => Compute::InsertWith(value.clone(), given.clone()),
            }
        });
        assert!(calls == 1 || self.collides, "nobody was in its way");
        match id {
            None if matches!(decision, Decision::Remove) && shown.is_some() => {
                assert!(matches!(result, Ok(Computed::Removed)));
                let (_, gone) = self.model.remove(key, RemovalCause::Removed);
                self.settle(gone.map(|(id, cause)| (key, id, cause)));
            }
            None => {
                assert!(matches!(result, Ok(Computed::Kept)));
                self.settle([]);
            }
            Some(id) => {
                let (outcome, gone) = self.model.store(key, id, &noted, Rule::Any);
                let result = result.map(|computed| match computed {
                    Computed::Inserted(inserted) => inserted,
                    other => panic!("{other:?} of a value"),
                });
                self.compare(key, id.0, result, outcome);
                self.settle(gone.map(|(id, cause)| (key, id, cause)));
            }
        }
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Advance(millis) => {
                self.hand.advance(Duration::from_millis((*millis).into()));
                self.model.advance((*millis).into());
            }
            Op::Get(key) => {
                let found = self.cache.get(&(key % KEYS)).map(|value| value.id);
                assert_eq!(found, self.model.read(key % KEYS));
            }
            Op::GetWith(key) => self.read_closely(key % KEYS),
            Op::GetPinned(first, second) => {
                let pinned = self.cache.pin();
                let found = [first, second].map(|key| {
                    let entry = pinned.get(&(key % KEYS));
                    entry.map(|entry| entry.value().id)
                });
                assert_eq!(found[0], self.model.read(first % KEYS));
                assert_eq!(found[1], self.model.read(second % KEYS));
            }
            Op::GetMany(keys) => {
                let keys: Vec<u8> = keys.iter().take(40).map(|key| key % KEYS).collect();
                let found = self.cache.get_many(&keys);
                assert_eq!(found.len(), keys.len());
                for (key, value) in keys.into_iter().zip(found) {
                    assert_eq!(value.map(|value| value.id), self.model.read(key));
                }
            }
            Op::Compute(key, decision) => self.compute(key % KEYS, decision),
            Op::Clone => self.cache = self.cache.clone(),
            _ => self.change(op),
        }
    }

    fn read_closely(&mut self, key: u8) {
        let mut dated = false;
        let expected = self.model.served(key).map(|(entry, state)| {
            let age = self.model.age(entry);
            dated = age.is_some();
            (entry.id, state, self.model.remaining(entry), entry.version, age)
        });
        let found = self.cache.get_with(&key, |entry| {
            assert_eq!(*entry.key(), key);
            let age = entry.age().filter(|_| dated);
            (entry.value().id, entry.state(), entry.remaining(), entry.version(), age)
        });
        assert_eq!(found, expected);
        self.model.read(key);
    }

    fn change(&mut self, op: &Op) {
        match op {
            Op::Insert(key, weight) => {
                let key = key % KEYS;
                self.store(key, *weight, None, Rule::Any, |cache, value, _| {
                    cache.insert(key, value)
                });
            }
            Op::InsertWith(key, weight, extras) => {
                let key = key % KEYS;
                self.store(key, *weight, Some(extras), Rule::Any, |cache, value, options| {
                    cache.insert_with(key, value, options)
                });
            }
            Op::InsertIfAbsent(key, weight) => {
                let key = key % KEYS;
                self.store(key, *weight, None, Rule::IfAbsent, |cache, value, _| {
                    cache.insert_if_absent(key, value)
                });
            }
            Op::InsertIfAbsentWith(key, weight, extras) => {
                let key = key % KEYS;
                self.store(key, *weight, Some(extras), Rule::IfAbsent, |cache, value, options| {
                    cache.insert_if_absent_with(key, value, options)
                });
            }
            Op::ReplaceIf(key, weight, allowed) => {
                let (key, allowed) = (key % KEYS, *allowed);
                let shown = self.model.live(key).map(|(entry, _)| entry.id);
                self.store(key, *weight, None, Rule::IfPresent { allowed }, |cache, value, _| {
                    cache.replace_if(key, value, |entry| {
                        assert_eq!(Some(entry.value().id), shown);
                        allowed
                    })
                });
            }
            Op::Remove(key) => {
                let key = key % KEYS;
                let removed = self.cache.remove(&key).map(|value| value.id);
                let (expected, gone) = self.model.remove(key, RemovalCause::Removed);
                assert_eq!(removed, expected);
                self.settle(gone.map(|(id, cause)| (key, id, cause)));
            }
            Op::Invalidate(key) => {
                let key = key % KEYS;
                let invalidated = self.cache.invalidate(&key);
                let (expected, gone) = self.model.remove(key, RemovalCause::Invalidated);
                assert_eq!(invalidated, expected.is_some());
                self.settle(gone.map(|(id, cause)| (key, id, cause)));
            }
            Op::MarkStale(key) => {
                let marked = self.cache.mark_stale(&(key % KEYS));
                assert_eq!(marked, self.model.mark_stale(key % KEYS));
            }
            _ => self.change_many(op),
        }
    }

    fn change_many(&mut self, op: &Op) {
        match op {
            Op::InvalidateAll(times) => {
                for _ in 0..=*times {
                    self.cache.invalidate_all();
                    self.model.invalidate_all();
                }
                self.settle([]);
            }
            Op::InvalidateIf(mask) => {
                let mut shown = BTreeSet::new();
                let taken = self.cache.invalidate_if(|key, value| {
                    assert_eq!(*key, value.key);
                    assert!(shown.insert(*key), "shown once");
                    key & mask == 0
                });
                let live: BTreeSet<u8> =
                    (0..KEYS).filter(|key| self.model.live(*key).is_some()).collect();
                assert_eq!(shown, live);
                let mut gone = Vec::new();
                for key in live.into_iter().filter(|key| key & mask == 0) {
                    let (id, _) = self.model.remove(key, RemovalCause::Invalidated);
                    gone.push((key, id.expect("it is live"), RemovalCause::Invalidated));
                }
                assert_eq!(taken, gone.len());
                self.settle(gone);
            }
            Op::InvalidateTag(tag) => {
                let tag = usize::from(*tag) % TAGS;
                let known = self.cache.invalidate_tag(&tag_name(tag));
                if let Some(expected) = self.model.invalidate_tag(tag) {
                    assert_eq!(known, expected);
                }
                self.settle([]);
            }
            Op::SetCapacity(capacity) => {
                let capacity = match capacity {
                    0..100 => u64::from(*capacity),
                    _ => 10_000,
                };
                self.cache.set_capacity(capacity);
                self.model.set_capacity(capacity);
                self.settle([]);
            }
            Op::Sweep(budget) => {
                let taken = self.cache.sweep(usize::from(*budget));
                assert_eq!(self.settle([]), taken);
            }
            Op::SweepAll => {
                let taken = self.cache.sweep(usize::MAX);
                assert_eq!(self.settle([]), taken);
                let dead = |entry| matches!(self.model.life_of(entry), Life::Dead(_));
                assert!(!self.model.entries.values().any(dead), "a full sweep leaves no dead");
                let alive = self.alive.load(SeqCst);
                assert_eq!(alive, self.model.entries.len() as i64, "and frees what waits");
            }
            Op::Iterate => {
                let expected: BTreeSet<(u8, u64)> =
                    (0..KEYS).filter_map(|key| Some((key, self.model.served(key)?.0.id))).collect();
                let walked: Vec<(u8, u64)> =
                    self.cache.iter().map(|(key, value)| (key, value.id)).collect();
                assert_eq!(walked.len(), expected.len());
                assert_eq!(walked.into_iter().collect::<BTreeSet<_>>(), expected);
                let pinned = self.cache.pin();
                let walked = pinned.iter().map(|entry| (*entry.key(), entry.value().id));
                assert_eq!(walked.collect::<BTreeSet<_>>(), expected);
            }
            _ => unreachable!("handled by the callers"),
        }
    }

    /// Looks at everything that can be seen without leaving a trace.
    fn compare_all(&self) {
        for key in 0..KEYS {
            let found = self.cache.get_on_error(&key).map(|(value, state)| (value.id, state));
            let live = self.model.live(key).map(|(entry, state)| (entry.id, state));
            assert_eq!(found, live, "key {key}");
            let served = self.model.served(key).map(|(entry, _)| entry.id);
            assert_eq!(self.cache.peek(&key).map(|value| value.id), served, "key {key}");
            assert_eq!(self.cache.contains_key(&key), served.is_some());
        }
        assert_eq!(self.cache.len(), self.model.entries.len());
        assert_eq!(self.cache.weight(), self.model.weight());
        assert_eq!(self.cache.capacity(), self.model.capacity());
        assert!(self.cache.weight() <= self.cache.capacity());
        let mut stats = self.cache.stats();
        let garbage = stats.garbage;
        stats.garbage = 0;
        stats.garbage_bytes = 0;
        let mut expected = self.model.stats;
        expected.entries = self.model.entries.len() as u64;
        expected.weight = self.model.weight();
        assert_eq!(stats, expected);
        let alive = self.alive.load(SeqCst) as u64;
        assert!(alive >= expected.entries && alive <= expected.entries + garbage);
    }
}

fuzz_target!(|input: Input| {
    let mut run = Run::new(&input);
    for op in input.ops.iter().take(MOST_OPS) {
        run.step(op);
        run.compare_all();
    }
    let Run { cache, alive, .. } = run;
    drop(cache);
    assert_eq!(alive.load(SeqCst), 0, "every value was dropped once");
});
