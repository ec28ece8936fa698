//! What a cache promises, in the simplest terms: a map of entries with deadlines, tags and versions.
//!
//! The model learns from the listener which entries left, and checks that each of them was there and
//! had a reason to go.

use std::collections::BTreeMap;
use std::time::Duration;

use seawall::{EntryState, RefusedReason, RemovalCause, Stats};

/// Milliseconds; far from both ends, so that nothing saturates.
type Time = i128;

/// A deadline that is never reached.
const NEVER: Time = 1 << 80;
/// When the clock shows zero.
const START: Time = 1 << 60;

pub const TAGS: usize = 4;

/// How long a value is fresh, and its windows. `None` stands for "for ever".
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    pub fresh: Option<u64>,
    pub revalidate: Option<u64>,
    pub on_error: Option<u64>,
}

/// What a cache was built with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub capacity: u64,
    pub weighted: bool,
    pub spans: Spans,
    pub idle: Option<u64>,
    /// Many keys share a hash, so that entries may go although there is budget left.
    pub collides: bool,
}

/// What is noted with a value; fields as in `seawall::InsertOptions`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub fresh: Option<Option<u64>>,
    pub revalidate: Option<Option<u64>>,
    pub on_error: Option<Option<u64>>,
    pub too_short: bool,
    pub weight: Option<u64>,
    pub age: u64,
    pub version: Option<u64>,
    pub tags: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub id: u64,
    weight: u64,
    birth: Time,
    /// It was stored with a deadline.
    dated: bool,
    soft: Time,
    revalidate: Time,
    on_error: Time,
    pub version: Option<u64>,
    generation: u64,
    tags: Vec<(usize, u64)>,
    touched: Time,
}

/// What may be in the place of a value that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Any,
    IfAbsent,
    IfPresent { allowed: bool },
}

/// What must come of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    New,
    Replaced,
    /// There is no budget at all.
    NotKept,
    Refused(RefusedReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Live(EntryState),
    /// It will leave for this reason, sooner or later.
    Dead(RemovalCause),
}

pub struct Model {
    setup: Setup,
    now: Time,
    generation: u64,
    tag_generations: [u64; TAGS],
    pub tags_used: [bool; TAGS],
    pub entries: BTreeMap<u8, Entry>,
    pub stats: Stats,
}

fn after(start: Time, span: Option<u64>) -> Time {
    span.map_or(NEVER, |span| (start + Time::from(span)).min(NEVER))
}

impl Model {
    pub fn new(setup: Setup) -> Self {
        Model {
            setup,
            now: START,
            generation: 0,
            tag_generations: [0; TAGS],
            tags_used: [false; TAGS],
            entries: BTreeMap::new(),
            stats: Stats::default(),
        }
    }

    pub fn capacity(&self) -> u64 {
        self.setup.capacity
    }

    pub fn set_capacity(&mut self, capacity: u64) {
        self.setup.capacity = capacity;
    }

    pub fn advance(&mut self, millis: u64) {
        self.now += Time::from(millis);
    }

    pub fn weight(&self) -> u64 {
        self.entries.values().map(|entry| entry.weight).sum()
    }

    pub fn life_of(&self, entry: &Entry) -> Life {
        let outdated = entry.generation != self.generation
            || entry.tags.iter().any(|(tag, stamp)| self.tag_generations[*tag] != *stamp);
        if outdated {
            return Life::Dead(RemovalCause::Invalidated);
        }
        let idles =
            self.setup.idle.is_some_and(|idle| self.now >= entry.touched + Time::from(idle));
        if idles {
            Life::Dead(RemovalCause::Expired)
        } else if self.now < entry.soft {
            Life::Live(EntryState::Fresh)
        } else if self.now < entry.revalidate {
            Life::Live(EntryState::Stale)
        } else if self.now < entry.on_error {
            Life::Live(EntryState::StaleOnError)
        } else {
            Life::Dead(RemovalCause::Expired)
        }
    }

    /// A key's entry, if it is not dead.
    pub fn live(&self, key: u8) -> Option<(&Entry, EntryState)> {
        let entry = self.entries.get(&key)?;
        match self.life_of(entry) {
            Life::Live(state) => Some((entry, state)),
            Life::Dead(_) => None,
        }
    }

    /// A key's entry, if a plain read may return it.
    pub fn served(&self, key: u8) -> Option<(&Entry, EntryState)> {
        self.live(key).filter(|(_, state)| *state != EntryState::StaleOnError)
    }

    pub fn remaining(&self, entry: &Entry) -> Option<Duration> {
        (entry.soft < NEVER).then(|| {
            let left = (entry.soft - self.now).max(0);
            Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX))
        })
    }

    /// A read that counts; returns what it must find.
    pub fn read(&mut self, key: u8) -> Option<u64> {
        let found = self.served(key).map(|(entry, state)| (entry.id, state));
        match found {
            Some((_, EntryState::Fresh)) => self.stats.hits_fresh += 1,
            Some(_) => self.stats.hits_stale += 1,
            None => self.stats.misses += 1,
        }
        let (id, _) = found?;
        let now = self.now;
        self.entries.get_mut(&key).expect("it was found").touched = now;
        Some(id)
    }

    fn refuse(&mut self, reason: RefusedReason) -> Outcome {
        self.stats.refused += 1;
        Outcome::Refused(reason)
    }

    /// Why a value is refused whatever the cache holds, or its weight.
    fn weigh(&self, own_weight: u64, options: &Options) -> Result<u64, RefusedReason> {
        let Setup { capacity, weighted, .. } = self.setup;
        if options.too_short {
            return Err(RefusedReason::TooShort);
        }
        let has_window = options.revalidate.is_some() || options.on_error.is_some();
        if has_window && options.fresh.unwrap_or(self.setup.spans.fresh).is_none() {
            return Err(RefusedReason::NoDeadline);
        }
        if options.weight.is_some() && !weighted {
            return Err(RefusedReason::Unweighted);
        }
        let weight = if weighted { options.weight.unwrap_or(own_weight).max(1) } else { 1 };
        if weight > capacity && capacity > 0 {
            return Err(RefusedReason::TooHeavy { weight, capacity });
        }
        Ok(weight)
    }

    fn entry(&self, id: u64, weight: u64, options: &Options) -> Entry {
        let Spans { fresh, revalidate, on_error } = self.setup.spans;
        let birth = self.now - Time::from(options.age);
        let soft = after(birth, options.fresh.unwrap_or(fresh));
        Entry {
            id,
            weight,
            birth,
            dated: soft < NEVER,
            soft,
            revalidate: after(soft, options.revalidate.unwrap_or(revalidate)),
            on_error: after(soft, options.on_error.unwrap_or(on_error)),
            version: options.version,
            generation: self.generation,
            tags: options.tags.iter().map(|tag| (*tag, self.tag_generations[*tag])).collect(),
            touched: self.now,
        }
    }

    /// Stores a value. Returns what must come of it, and the value that it took the place of with the
    /// reason that the listener must be given for that.
    pub fn insert(
        &mut self,
        key: u8,
        (id, own_weight): (u64, u64),
        options: &Options,
        rule: Rule,
    ) -> (Outcome, Option<(u64, RemovalCause)>) {
        let capacity = self.setup.capacity;
        if capacity == 0 && rule == Rule::Any && !options.too_short {
            return (Outcome::NotKept, None);
        }
        self.store(key, (id, own_weight), options, rule)
    }

    /// As [`Self::insert`], without its short cut; for computes.
    pub fn store(
        &mut self,
        key: u8,
        (id, own_weight): (u64, u64),
        options: &Options,
        rule: Rule,
    ) -> (Outcome, Option<(u64, RemovalCause)>) {
        let weight = match self.weigh(own_weight, options) {
            Ok(weight) => weight,
            Err(reason) => return (self.refuse(reason), None),
        };
        // A tag is known from here on, also if the value is refused after all.
        for tag in &options.tags {
            self.tags_used[*tag] = true;
        }
        let live = self.live(key).map(|(entry, _)| entry.version);
        let refused = match (rule, live) {
            (Rule::IfAbsent, Some(_)) => Some(RefusedReason::Present),
            (Rule::IfPresent { .. }, None) => Some(RefusedReason::Absent),
            (_, Some(Some(than))) if options.version.is_some_and(|new| new < than) => {
                Some(RefusedReason::Older { than })
            }
            (Rule::IfPresent { allowed: false }, _) => Some(RefusedReason::Predicate),
            _ => None,
        };
        if let Some(reason) = refused {
            return (self.refuse(reason), None);
        }
        if !self.entries.contains_key(&key) && self.setup.capacity == 0 {
            return (Outcome::NotKept, None);
        }
        let new = self.entry(id, weight, options);
        let gone = self.entries.get(&key).map(|old| match self.life_of(old) {
            Life::Live(_) => (old.id, RemovalCause::Replaced),
            Life::Dead(cause) => (old.id, cause),
        });
        self.entries.insert(key, new);
        if let Some((_, cause)) = gone {
            self.count_gone(cause, 0);
        }
        if live.is_some() {
            (Outcome::Replaced, gone)
        } else {
            self.stats.inserts += 1;
            (Outcome::New, gone)
        }
    }

    /// The value of `store` was not kept after all, because there was no room in its place.
    pub fn take_back(&mut self, key: u8) {
        self.entries.remove(&key);
        self.stats.inserts -= 1;
    }

    fn count_gone(&mut self, cause: RemovalCause, weight: u64) {
        match cause {
            RemovalCause::Replaced => self.stats.replaced += 1,
            RemovalCause::Removed => self.stats.removed += 1,
            RemovalCause::Invalidated => self.stats.invalidated += 1,
            RemovalCause::Expired => self.stats.expired += 1,
            _ => {
                self.stats.evicted += 1;
                self.stats.evicted_weight += weight;
            }
        }
    }

    /// Takes a key's entry out, dead or not. Returns its value if it was live, and what the listener
    /// must be told.
    pub fn remove(
        &mut self,
        key: u8,
        cause: RemovalCause,
    ) -> (Option<u64>, Option<(u64, RemovalCause)>) {
        let Some(entry) = self.entries.get(&key) else { return (None, None) };
        let (id, weight) = (entry.id, entry.weight);
        let (value, cause) = match self.life_of(entry) {
            Life::Live(_) => (Some(id), cause),
            Life::Dead(cause) => (None, cause),
        };
        self.entries.remove(&key);
        self.count_gone(cause, weight);
        (value, Some((id, cause)))
    }

    /// The cache says that an entry left of which the operation itself gives no account: it must have
    /// been dead, or evicted with reason.
    pub fn left(&mut self, key: u8, id: u64, cause: RemovalCause) {
        let entry = self.entries.get(&key).unwrap_or_else(|| panic!("no key {key}: {cause:?}"));
        assert_eq!(entry.id, id, "another value of key {key} left: {cause:?}");
        let weight = entry.weight;
        match self.life_of(entry) {
            Life::Dead(why) => assert_eq!(cause, why, "of the dead entry of key {key}"),
            Life::Live(_) => {
                assert_eq!(cause, RemovalCause::Evicted, "of the live entry of key {key}");
                let (used, capacity) = (self.weight(), self.setup.capacity);
                assert!(
                    used > capacity || self.setup.collides,
                    "evicted while {used} of {capacity} are used"
                );
            }
        }
        self.entries.remove(&key);
        self.count_gone(cause, weight);
    }

    pub fn invalidate_all(&mut self) {
        self.generation += 1;
    }

    /// Returns what the cache must answer, if that is certain.
    pub fn invalidate_tag(&mut self, tag: usize) -> Option<bool> {
        self.tag_generations[tag] += 1;
        let has_tag = |entry: &Entry| entry.tags.iter().any(|(own, _)| *own == tag);
        if self.entries.values().any(has_tag) {
            Some(true)
        } else if self.tags_used[tag] {
            None
        } else {
            Some(false)
        }
    }

    pub fn mark_stale(&mut self, key: u8) -> bool {
        if self.live(key).is_none() {
            return false;
        }
        let (now, spans) = (self.now, self.setup.spans);
        let entry = self.entries.get_mut(&key).expect("it is live");
        if entry.soft <= now {
            return true;
        }
        let end = |old: Time, default: Option<u64>| {
            if entry.soft == NEVER {
                after(now, default)
            } else if old == NEVER {
                NEVER
            } else {
                now + (old - entry.soft)
            }
        };
        (entry.revalidate, entry.on_error) =
            (end(entry.revalidate, spans.revalidate), end(entry.on_error, spans.on_error));
        entry.soft = now;
        true
    }

    /// The age that an entry must tell; `None` if it was stored without a deadline and need not.
    pub fn age(&self, entry: &Entry) -> Option<Duration> {
        let age = u64::try_from(self.now - entry.birth).expect("it was not born later");
        entry.dated.then(|| Duration::from_millis(age))
    }
}
