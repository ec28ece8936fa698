//! Any sequence of operations on Bloom filters against sets: no key that must be there is ever denied.
//!
//! A plain filter with its snapshots and unions, a rebuilding one against what was inserted and fed, and
//! an ageing one against the keys of two periods.

#![no_main]

use std::collections::HashSet;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use seawall::bloom::{
    AgeingFilter, Answer, Filter, Plan, RebuildError, RebuildingFilter, plan, plan_for_bytes,
};

#[derive(Arbitrary, Debug)]
struct Input {
    items: u16,
    /// Of false positives; 0 stands for all that is no rate.
    rate: u8,
    seed: u64,
    ops: Vec<Op>,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Insert(u16),
    InsertText(String),
    InsertHash(u128),
    Query(u16),
    QueryMany(Vec<u16>),
    Clear,
    Save,
    Stream,
    Freeze,
    Union(Vec<u16>),
    /// Feeds a new generation, inserting some keys meanwhile; then finishes or abandons it.
    Rebuild {
        items: u16,
        feed: Vec<u16>,
        meanwhile: Vec<u16>,
        finish: bool,
    },
    MarkSuspect,
    MarkComplete,
    Rotate,
}

struct Run {
    plan: Plan,
    seed: u64,
    filter: Filter,
    hashes: HashSet<u128>,
    screen: RebuildingFilter,
    /// What the screen's generation that serves has been given.
    screened: HashSet<u16>,
    complete: bool,
    ageing: AgeingFilter,
    /// The keys of this period and of the one before.
    periods: [HashSet<u16>; 2],
}

impl Run {
    fn new(plan: Plan, seed: u64) -> Self {
        let filter = || Filter::with_seed(&plan, seed).expect("a small filter");
        Run {
            plan,
            seed,
            filter: filter(),
            hashes: HashSet::new(),
            screen: RebuildingFilter::from_filter(filter()),
            screened: HashSet::new(),
            complete: false,
            ageing: AgeingFilter::with_seed(&plan, seed).expect("a small filter"),
            periods: Default::default(),
        }
    }

    fn insert(&mut self, key: u16) {
        self.insert_hash(self.filter.hash(&key));
        let new = self.screen.insert(&key);
        assert!(!(new && self.screened.contains(&key)));
        self.screened.insert(key);
        let new = self.ageing.insert(&key);
        assert!(!(new && self.periods[0].contains(&key)));
        self.periods[0].insert(key);
    }

    fn insert_hash(&mut self, hash: u128) {
        let new = self.filter.insert_hash(hash);
        assert!(!(new && self.hashes.contains(&hash)));
        assert!(self.filter.contains_hash(hash));
        self.hashes.insert(hash);
    }

    fn query(&self, key: u16) {
        let there = self.hashes.contains(&self.filter.hash(&key));
        assert!(self.filter.contains(&key) || !there);
        match self.screen.check(&key) {
            Answer::Absent => assert!(self.complete && !self.screened.contains(&key)),
            Answer::Maybe => (),
            Answer::Unsure => assert!(!self.complete || self.screen.is_overfull()),
        }
        let remembered = self.periods.iter().any(|period| period.contains(&key));
        assert!(self.ageing.contains(&key) || !remembered);
    }

    fn query_many(&self, keys: &[u16]) {
        let answers = self.filter.contains_many(keys);
        assert_eq!(answers.len(), keys.len());
        self.filter.contains_many_with(keys, |i, found| {
            assert_eq!(found, answers[i]);
            assert_eq!(found, self.filter.contains(&keys[i]));
        });
        self.screen
            .check_many_with(keys, |i, answer| assert_eq!(answer, self.screen.check(&keys[i])));
    }

    fn rebuild(&mut self, items: u16, feed: &[u16], meanwhile: &[u16], finish: bool) {
        let Ok(plan) = plan(items.into(), 0.01) else { return };
        // By hand, as the borrow of the screen must not be one of the whole.
        let Run { screen, screened, complete, .. } = self;
        let rebuild = screen.rebuild(&plan).expect("none is in progress");
        assert_eq!(screen.rebuild(&plan).err(), Some(RebuildError::InProgress));
        for key in feed {
            rebuild.insert(key);
        }
        for key in meanwhile {
            screen.insert(key);
            screened.insert(*key);
        }
        assert!(screened.iter().all(|key| screen.check(key).lets_through()));
        if finish {
            rebuild.finish();
            *screened = feed.iter().chain(meanwhile).copied().collect();
            *complete = true;
        }
        assert!(screened.iter().all(|key| screen.check(key).lets_through()));
    }

    fn save(&mut self) {
        let bytes = self.filter.to_bytes();
        self.filter = Filter::from_bytes(&bytes).expect("its own bytes");
        assert_eq!(self.filter.to_bytes(), bytes);
    }

    fn stream(&mut self) {
        let mut bytes = Vec::new();
        self.filter.write_to(&mut bytes).expect("a vector");
        self.filter = Filter::read_from(&mut bytes.as_slice()).expect("its own bytes");
    }

    /// Asks for all keys that are there, and for those that differ from them by a bit.
    fn freeze(&mut self) {
        let frozen = self.filter.clone().freeze();
        for &hash in &self.hashes {
            assert!(frozen.contains_hash(hash));
            for other in (0..48).map(|bit| hash ^ 1 << bit) {
                assert_eq!(frozen.contains_hash(other), self.filter.contains_hash(other));
            }
        }
        let keys: Vec<u16> = (0..100).collect();
        assert_eq!(frozen.contains_many(&keys), self.filter.contains_many(&keys));
        self.filter = frozen.thaw();
    }

    fn union(&mut self, keys: &[u16]) {
        let other = Filter::with_seed(&self.plan, self.seed).expect("a small filter");
        for key in keys {
            other.insert(key);
            self.hashes.insert(other.hash(key));
        }
        self.filter.union_with(&other).expect("the same shape");
    }

    fn rotate(&mut self) {
        assert!(self.ageing.rotate());
        let [current, previous] = &mut self.periods;
        *previous = std::mem::take(current);
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Insert(key) => self.insert(*key),
            Op::InsertText(text) => self.insert_hash(self.filter.hash(text)),
            Op::InsertHash(hash) => self.insert_hash(*hash),
            Op::Query(key) => self.query(*key),
            Op::QueryMany(keys) => self.query_many(keys),
            Op::Clear => {
                self.filter.clear();
                self.hashes.clear();
            }
            Op::Save => self.save(),
            Op::Stream => self.stream(),
            Op::Freeze => self.freeze(),
            Op::Union(keys) => self.union(keys),
            Op::Rebuild { items, feed, meanwhile, finish } => {
                self.rebuild(*items, feed, meanwhile, *finish);
            }
            Op::MarkSuspect => {
                self.screen.mark_suspect();
                self.complete = false;
            }
            Op::MarkComplete => {
                self.screen.mark_complete();
                self.complete = true;
            }
            Op::Rotate => self.rotate(),
        }
    }

    fn finish(&self) {
        assert!(self.hashes.iter().all(|&hash| self.filter.contains_hash(hash)));
        assert!(self.screened.iter().all(|key| self.screen.check(key).lets_through()));
        assert!(self.periods.iter().flatten().all(|key| self.ageing.contains(key)));
        let rates = [self.filter.fill_ratio(), self.filter.false_positive_rate()];
        assert!(rates.iter().all(|rate| (0.0..=1.0).contains(rate)));
        let copy = self.filter.clone();
        assert_eq!(copy.to_bytes(), self.filter.to_bytes());
    }
}

fuzz_target!(|input: Input| {
    let rate = match input.rate {
        0 => f64::from_bits(input.seed),
        rate => f64::from(rate) / 256.0,
    };
    let Ok(plan) = plan(input.items.into(), rate) else { return };
    assert!(plan.rate() <= rate);
    if let Ok(same) = plan_for_bytes(input.items.into(), plan.bytes()) {
        assert_eq!(same.blocks(), plan.blocks());
    }
    if plan.bytes() > 1 << 20 {
        return;
    }
    let mut run = Run::new(plan, input.seed);
    for op in &input.ops {
        run.step(op);
    }
    run.finish();
});
