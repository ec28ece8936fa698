//! The engine behind a cache: table, deadlines, eviction, counters and listener put together.
//!
//! The order inside one operation: hash, build and weigh outside; pin; compare-and-swap; account; evict;
//! unpin; then free garbage and tell the listener ([`After`]). User code may panic or call the cache
//! again at any of these points.

mod claim;
mod flights;
mod hollow;
mod invalidate;
mod publish;
mod read;
mod screen;
mod settle;
mod write;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

pub use self::claim::Reason;
pub(crate) use self::claim::{Ask, Claim, Served, Ticket};
pub(crate) use self::publish::{Concluded, Content as NewContent};
pub(crate) use self::read::{Count, View};
pub(crate) use self::screen::Screen;
pub(crate) use self::write::{Computed, Decision, Rule, Stored};
use crate::clock::{Clock, SLACK, Start};
use crate::error::ConfigError;
use crate::evict::{Evict, Judge};
use crate::flight::{Leading, Phase};
use crate::freshness::{
    Durations, Flags, Freshness, Generation, Inline, NEVER, ORIGIN, Profile, Profiles,
};
use crate::guard::{Attempt, Limits};
use crate::listener::{Listener, Notices, RemovalCause};
use crate::node::{Content, Node, State};
use crate::stats::{Event, Recorder, Stats};
use crate::sync::barrier;
use crate::sync::{AtomicBool, AtomicI64, AtomicU64, Padded, Relaxed, Stripe};
use crate::table::reclaim::{Guard, pin};
use crate::table::word::Policy;
use crate::table::{GROUP, Map, Rehash};
use crate::tags::Tags;

/// How a user weighs an entry.
pub(crate) type Weigher<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

/// Checked settings.
pub(crate) struct Config<K, V, S> {
    pub(crate) capacity: u64,
    pub(crate) weighted: bool,
    pub(crate) estimated_entries: u64,
    pub(crate) weigher: Option<Box<Weigher<K, V>>>,
    pub(crate) listener: Option<Listener<K, V>>,
    pub(crate) durations: Durations,
    pub(crate) jitter: f64,
    pub(crate) time_to_idle: u64,
    pub(crate) small_share: f64,
    pub(crate) clock: Option<Clock>,
    pub(crate) hasher: S,
    /// How long an absence is remembered.
    pub(crate) absent: Durations,
    pub(crate) absence_weight: Option<u64>,
    /// Milliseconds after which a load does not hold its key any more.
    pub(crate) lead_timeout: u64,
    pub(crate) limits: Arc<Limits>,
    pub(crate) screen: Option<Screen<K>>,
}

/// Hashes keys, and spreads weak hashes over all bits.
pub(crate) struct KeyHasher<S>(pub(crate) S);

impl<S: BuildHasher> KeyHasher<S> {
    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        // The table takes the upper bits. A hash that leaves them empty (the identity, for small
        // numbers) must not put all keys into one bucket: Fibonacci hashing, after a fold.
        let hash = self.0.hash_one(key);
        (hash ^ hash >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

impl<K: Hash, V, S: BuildHasher> Rehash<Node<K, V>> for KeyHasher<S> {
    fn rehash(&self, node: &Node<K, V>) -> u64 {
        self.hash(node.key())
    }
}

/// Entries for which a table is made at once; a larger one grows.
const FIRST_ENTRIES: u64 = 1 << 22;
const FEWEST_ENTRIES: u64 = 64;
/// A table is made for, and grows beyond, this many entries in ten buckets (of six slots).
const LOAD_IN_TEN: u64 = 36;
const GROW_LOAD_IN_TEN: u64 = 45;

pub(crate) struct Engine<K, V, S> {
    map: Map<Node<K, V>, KeyHasher<S>>,
    evict: Evict,
    recorder: Recorder,
    tags: Tags,
    profiles: Profiles,
    durations: Durations,
    /// The number of `durations` among the profiles; none for entries without a deadline.
    profile: Option<Profile>,
    jitter: f64,
    /// Milliseconds; [`NEVER`] without a time to idle.
    time_to_idle: u64,
    clock: Clock,
    weighted: bool,
    flags: Flags,
    /// The state word of an entry without a deadline, but for its generation; one that no entry has if
    /// there is a time to idle.
    plain: usize,
    weigher: Option<Box<Weigher<K, V>>>,
    listener: Option<Listener<K, V>>,
    absent: Durations,
    absence_weight: Option<u64>,
    lead_timeout: u64,
    pub(crate) limits: Arc<Limits>,
    pub(crate) screen: Option<Screen<K>>,
    /// Changed by `invalidate_all` only, as is `debris`, so that this line stays in every core's cache.
    shared: Padded<Shared>,
}

struct Shared {
    generation: AtomicU64,
    /// Set once any entry has a deadline, a tag or a version; then nodes are looked at when evicting.
    timed: AtomicBool,
    /// Buckets still to be looked at for entries that an invalidation of many has killed.
    debris: AtomicI64,
}

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    pub(crate) fn new(config: Config<K, V, S>) -> Result<Self, ConfigError> {
        let entries = config.estimated_entries.clamp(FEWEST_ENTRIES, FIRST_ENTRIES);
        let buckets = (entries * 10).div_ceil(LOAD_IN_TEN).next_multiple_of(GROUP as u64);
        let map = Map::try_new(buckets as usize, KeyHasher(config.hasher))
            .ok_or(ConfigError::OutOfMemory { entries })?;
        let profiles = Profiles::new();
        let profile = (!config.durations.is_unlimited())
            .then(|| profiles.number(config.durations).expect("the first row is free"));
        let heavy = config.weighted || config.time_to_idle != NEVER;
        let flags = if heavy { Flags::HEAVY } else { Flags::NONE };
        Ok(Engine {
            map,
            evict: Evict::new(config.capacity, config.small_share),
            recorder: Recorder::new(),
            tags: Tags::new(),
            profiles,
            profile,
            durations: config.durations,
            jitter: config.jitter,
            time_to_idle: config.time_to_idle,
            clock: config.clock.unwrap_or_default(),
            weighted: config.weighted,
            flags,
            plain: if config.time_to_idle == NEVER {
                Inline::plain(flags)
            } else {
                Inline::NOBODYS
            },
            weigher: config.weigher,
            listener: config.listener,
            absent: config.absent,
            absence_weight: config.absence_weight,
            lead_timeout: config.lead_timeout,
            limits: config.limits,
            screen: config.screen,
            shared: Padded(Shared {
                generation: AtomicU64::new(Generation::FIRST.raw()),
                timed: AtomicBool::new(profile.is_some() || config.time_to_idle != NEVER),
                debris: AtomicI64::new(0),
            }),
        })
    }

    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.map.hasher().hash(key)
    }

    /// Runs one operation: pinned, and with what is to be done after it.
    #[inline]
    fn operate<R>(&self, operation: impl FnOnce(&Guard, &mut After<'_, K, V, S>) -> R) -> R {
        self.operate_then(operation, |_| {})
    }

    /// As [`Self::operate`], with what is to be done when the thread has unpinned, before the listener is
    /// told: it may take its time, and panic.
    #[inline]
    fn operate_then<R>(
        &self,
        operation: impl FnOnce(&Guard, &mut After<'_, K, V, S>) -> R,
        then: impl FnOnce(&R),
    ) -> R {
        let outlet = Outlet::default();
        let result = {
            let mut after = After::new(self, &outlet);
            let guard = after.pin();
            let result = operation(&guard, &mut after);
            drop(guard);
            then(&result);
            result
        };
        outlet.resume();
        result
    }

    /// Begins to grow, and moves the first buckets.
    #[cfg(all(test, seawall_loom))]
    pub(crate) fn grow(&self) {
        let guard = crate::table::reclaim::pin();
        assert!(self.map.start_growth(&guard));
        self.map.help_growth(&guard);
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether attempts to load a key have to be remembered.
    pub(crate) fn throttles(&self) -> bool {
        !self.limits.min_retry_interval().is_zero() || self.limits.backoff().is_some()
    }

    /// What is to be remembered of a load that did not fail, if it leaves no value that tells its time.
    pub(crate) fn attempt(&self, ticket: &Ticket<V>) -> Option<Attempt> {
        self.throttles().then(|| Attempt::begin(None, ticket.flight.started()))
    }

    /// Now, on the cache's time scale.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.clock.millis().saturating_add(ORIGIN)
    }

    /// Now, and the start of a measurement.
    fn now_and_start(&self) -> (u64, Start) {
        let (millis, start) = self.clock.millis_and_start();
        (millis.saturating_add(ORIGIN), start)
    }

    #[inline]
    fn generation(&self) -> Generation {
        // ORDERING: Relaxed: a read that starts after an invalidation returned happens after it, and
        // coherence shows it the new number; nothing else is published by it.
        Generation::from_raw(self.shared.generation.load(Relaxed))
    }

    /// The state word of an entry that has no deadline and that no invalidation covers; with a time to
    /// idle one that no entry has.
    #[inline]
    fn plain_state(&self) -> usize {
        self.generation().in_plain_word() | self.plain
    }

    fn weight(&self, node: &Node<K, V>) -> u64 {
        if self.weighted {
            // SAFETY: every node of a weighted cache is allocated with a tail.
            unsafe { node.tail() }.weight.load(Relaxed)
        } else {
            1
        }
    }

    /// What an entry is worth now.
    #[inline]
    fn judge<'g>(&self, node: &Node<K, V>, guard: &'g Guard) -> Judgement<'g, V> {
        if node.raw_state() == self.plain_state() {
            Judgement::PLAIN
        } else {
            self.judge_timed(node, guard)
        }
    }

    /// What an entry is worth now, where that is quickly told: it has a value, and that is fresh.
    #[inline(always)]
    fn judge_fresh<'g>(&self, node: &Node<K, V>) -> Option<Judgement<'g, V>> {
        let raw = node.raw_state();
        if raw == self.plain_state() {
            return Some(Judgement::PLAIN);
        }
        let word = Inline::from_addr(raw)?;
        let now = self.fresh_now(word)?.get();
        Some(Judgement {
            state: State::Inline(word),
            now,
            freshness: Freshness::Fresh,
            invalid: false,
        })
    }

    /// About now, if an inline state word tells that its entry has a value and that this stays fresh for a
    /// while. Not inlined, so that lookups in caches without deadlines stay short.
    #[inline(never)]
    fn fresh_now(&self, word: Inline) -> Option<NonZeroU64> {
        if self.time_to_idle != NEVER || word.flags().is_hollow() || !word.is_of(self.generation())
        {
            return None;
        }
        let now = self.clock.about_millis().saturating_add(ORIGIN);
        NonZeroU64::new(now).filter(|_| word.is_fresh_at(now.saturating_add(SLACK), &self.profiles))
    }

    fn judge_timed<'g>(&self, node: &Node<K, V>, guard: &'g Guard) -> Judgement<'g, V> {
        let state = node.state(guard);
        if !state.is_valid(self.generation()) {
            return Judgement { state, now: 0, freshness: Freshness::Dead, invalid: true };
        }
        let idles = self.time_to_idle != NEVER;
        let now = if state.has_deadlines() || idles { self.now() } else { 0 };
        let mut freshness = state.freshness_at(now, &self.profiles);
        if let Some(flight) = state.product_of() {
            if flight.is_void() {
                return Judgement { state, now: 0, freshness: Freshness::Dead, invalid: true };
            }
            if let Some(marked) = flight.marked() {
                let deadlines = state.deadlines(&self.profiles);
                freshness = deadlines.stale_from(marked, self.durations).at(now);
            }
        }
        if idles {
            // SAFETY: every node of a cache with a time to idle is allocated with a tail.
            let touched = unsafe { node.tail() }.touched.load(Relaxed);
            if now >= touched.saturating_add(self.time_to_idle) {
                freshness = Freshness::Dead;
            }
        }
        Judgement { state, now, freshness, invalid: false }
    }

    /// Notes the time of a read, where there is a time to idle.
    pub(super) fn touch(&self, node: &Node<K, V>, now: u64) {
        if self.time_to_idle == NEVER {
            return;
        }
        // SAFETY: as in `judge_timed`.
        let touched = &unsafe { node.tail() }.touched;
        // Written a few dozen times in the life of a busy entry, not with every read.
        if now > touched.load(Relaxed).saturating_add(self.time_to_idle / 64) {
            touched.store(now, Relaxed);
        }
    }

    /// Accounts for an entry that the caller's compare-and-swap took out; all but the budget. Returns
    /// its weight.
    fn gone(
        &self,
        node: &Node<K, V>,
        policy: Policy,
        cause: RemovalCause,
        guard: &Guard,
        after: &mut After<'_, K, V, S>,
    ) -> u64 {
        let weight = self.weight(node);
        self.evict.left(weight, policy, guard);
        self.count_gone(cause, weight, guard);
        self.note_garbage(weight, guard);
        after.notice(node, cause, guard);
        weight
    }

    /// Has garbage handed over when much of the capacity waits.
    fn note_garbage(&self, weight: u64, guard: &Guard) {
        if self.evict.retired(weight, guard) {
            self.map.limbo().seal_early(guard);
        }
    }

    fn count_gone(&self, cause: RemovalCause, weight: u64, guard: &Guard) {
        let event = match cause {
            RemovalCause::Replaced => Event::Replaced,
            RemovalCause::Removed => Event::Removed,
            RemovalCause::Invalidated => Event::Invalidated,
            RemovalCause::Expired => Event::Expired,
            RemovalCause::Evicted => {
                self.recorder.add(Event::EvictedWeight, weight, guard.stripe());
                Event::Evicted
            }
        };
        self.recorder.count(event, guard.stripe());
    }

    /// Why a dead entry is dead.
    fn cause_of_death(judgement: &Judgement<'_, V>) -> RemovalCause {
        if judgement.invalid { RemovalCause::Invalidated } else { RemovalCause::Expired }
    }

    pub(crate) fn len(&self) -> u64 {
        self.recorder.entries()
    }

    pub(crate) fn used(&self) -> u64 {
        self.evict.used()
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.evict.capacity()
    }

    pub(crate) fn stats(&self) -> Stats {
        let garbage = self.map.limbo().waiting() + self.tags.garbage();
        Stats {
            weight: self.used(),
            garbage,
            garbage_bytes: garbage.saturating_mul(size_of::<Node<K, V>>() as u64),
            ..self.recorder.snapshot()
        }
    }
}

/// The state of an entry at a moment.
#[derive(Debug)]
pub(crate) struct Judgement<'g, V> {
    pub(crate) state: State<'g, V>,
    /// When that was; zero if no clock was read.
    pub(crate) now: u64,
    pub(crate) freshness: Freshness,
    /// Dead by an invalidation of many entries.
    pub(crate) invalid: bool,
}

impl<V> Clone for Judgement<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Judgement<'_, V> {}

impl<V> Judgement<'_, V> {
    /// Of an entry without a deadline.
    pub(crate) const PLAIN: Self =
        Judgement { state: State::PLAIN, now: 0, freshness: Freshness::Fresh, invalid: false };

    pub(crate) fn is_dead(&self) -> bool {
        self.freshness == Freshness::Dead
    }

    /// Whether there is a value that is not dead.
    pub(crate) fn has_value(&self) -> bool {
        !self.is_dead() && self.state.content() == Content::Value
    }

    /// Dead, and no load is going on that would bring it back to life.
    pub(crate) fn is_reclaimable(&self) -> bool {
        self.is_dead()
            && (self.invalid || self.state.flight().is_none_or(|it| it.phase() != Phase::Running))
    }

    pub(crate) fn version(&self) -> Option<u64> {
        self.state.version()
    }
}

/// An eviction's view of the engine.
struct Eye<'e, K, V, S>(&'e Engine<K, V, S>, &'e Guard);

impl<K, V, S> Judge<Node<K, V>> for Eye<'_, K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    fn weight(&self, node: &Node<K, V>) -> u64 {
        self.0.weight(node)
    }

    fn may_be_dead(&self) -> bool {
        self.0.shared.timed.load(Relaxed) || self.0.shared.debris.load(Relaxed) > 0
    }

    fn death(&self, node: &Node<K, V>) -> Option<RemovalCause> {
        let judgement = self.0.judge(node, self.1);
        judgement.is_reclaimable().then(|| Engine::<K, V, S>::cause_of_death(&judgement))
    }
}

/// Where panics of the user's listener wait for the end of an operation, so that none is cut short.
#[derive(Default)]
pub(crate) struct Outlet(RefCell<Option<Box<dyn Any + Send>>>);

impl Outlet {
    fn keep(&self, panic: Box<dyn Any + Send>) {
        self.0.borrow_mut().get_or_insert(panic);
    }

    /// Lets the first panic go on, if there was one.
    #[inline]
    pub(crate) fn resume(self) {
        if let Some(panic) = self.0.into_inner() {
            resume_unwind(panic);
        }
    }
}

/// What is left to do when an operation has unpinned: free garbage, tell the listener. Declared before
/// the guard, so that it is dropped after it, also when the operation panics.
pub(crate) struct After<'e, K, V, S> {
    engine: &'e Engine<K, V, S>,
    outlet: &'e Outlet,
    notices: Notices<K, V>,
    stripe: Stripe,
    /// The load that this operation has begun.
    leading: Option<Leading>,
}

impl<'e, K, V, S> After<'e, K, V, S> {
    fn new(engine: &'e Engine<K, V, S>, outlet: &'e Outlet) -> Self {
        After { engine, outlet, notices: Notices::new(), stripe: Stripe::SHARED, leading: None }
    }

    /// Pins, and notes whose garbage is to be looked after.
    fn pin(&mut self) -> Guard {
        let guard = pin();
        self.stripe = guard.stripe();
        guard
    }

    /// Whether the user's code will run before the operation returns.
    fn runs_user_code(&self) -> bool {
        !self.notices.is_empty() || self.engine.map.limbo().is_due(self.stripe)
    }

    /// Notes an entry for the listener. A copy that panics leaves the operation undisturbed.
    fn notice(&mut self, node: &Node<K, V>, cause: RemovalCause, guard: &Guard) {
        if let Some(listener) = &self.engine.listener {
            if node.state(guard).content() != Content::Value {
                return;
            }
            let (key, value) = (node.key(), node.value());
            let add = || self.notices.add(listener, key, value, cause);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(add)) {
                self.outlet.keep(panic);
            }
        }
    }
}

impl<K, V, S> Drop for After<'_, K, V, S> {
    #[inline]
    fn drop(&mut self) {
        barrier::after_changes();
        let limbo = self.engine.map.limbo();
        if limbo.is_due(self.stripe) {
            limbo.free_ready(self.stripe);
        }
        if !self.notices.is_empty() {
            if let Some(listener) = &self.engine.listener {
                self.notices.deliver(listener, |panic| self.outlet.keep(panic));
            }
        }
    }
}

impl<K, V, S> fmt::Debug for Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("len", &self.len())
            .field("weight", &self.used())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
