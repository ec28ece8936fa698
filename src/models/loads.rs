//! What a load does to the table, against what others do to it meanwhile.
//!
//! No model has a caller that waits for another's load: the thread-local list of the loads that a thread is
//! running is one for all of loom's threads. Waiting is modelled in `flight::models`.

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::{Identity, KEY, Model, OTHER, model, spawn};
use crate::answer::Answer;
use crate::engine::{Ask, Claim, Count, Ticket, View};
use crate::flight::Participant;
use crate::guard::{BreakerOptions, Priority, Rate};
use crate::table::reclaim::pin;
use crate::{Cache, Clock, EntryState, InsertOptions, ManualClock};

/// What the origin had before something was said of it, and what it has since.
const OLD: u64 = 7;
const NEW: u64 = 8;
const INSERTED: u64 = 9;

fn empty() -> (Model, ManualClock) {
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_entries(8)
        .time_to_live(Duration::from_secs(10))
        .stale_while_revalidate(Duration::from_secs(10))
        .clock(clock)
        .hasher(Identity::default())
        .build()
        .unwrap();
    (Arc::new(cache), hand)
}

/// With one entry that is stale.
fn stale() -> (Model, ManualClock) {
    let (cache, hand) = empty();
    cache.insert_with(KEY, 1, InsertOptions::new()).unwrap();
    hand.advance(Duration::from_secs(11));
    (cache, hand)
}

/// Whether something has been said of the origin. By read-modify-writes, so that of a load that begins and
/// of what is said one is before the other.
#[derive(Debug)]
struct Said(AtomicUsize);

impl Said {
    fn new() -> Arc<Said> {
        Arc::new(Said(AtomicUsize::new(0)))
    }

    fn say(&self) {
        self.0.fetch_add(1, AcqRel);
    }

    fn origin(&self) -> u64 {
        if self.0.fetch_add(0, AcqRel) == 0 { OLD } else { NEW }
    }
}

/// The accounts agree with what there is.
fn balanced(cache: &Model) {
    cache.sweep(usize::MAX);
    let entries = cache.iter().count();
    assert_eq!((cache.len(), cache.weight()), (entries, entries as u64));
    assert_eq!(cache.limits().in_flight(), 0);
}

/// A load against what is said of its key meanwhile. What is there afterwards, while the load may still be
/// running and when it is done, must be right.
fn against(
    (cache, _hand): (Model, ManualClock),
    say: impl Fn(&Model),
    right: impl Fn(&Model) -> bool,
) {
    let said = Said::new();
    let loader = spawn(&cache, {
        let said = Arc::clone(&said);
        move |cache: &Model| {
            let loaded = cache.get_or_load(&KEY, || said.origin());
            assert!(matches!(loaded, Ok(OLD | NEW | INSERTED)), "{loaded:?}");
        }
    });
    said.say();
    say(&cache);
    assert!(right(&cache), "while the load may be running");
    loader.join().unwrap();
    assert!(right(&cache), "when the load has ended");
    balanced(&cache);
}

/// A value whose load began before an invalidation is not found after it.
fn not_old(cache: &Model) -> bool {
    !matches!(cache.peek(&KEY), Some(1 | OLD))
}

#[test]
fn loom_flight_publication_and_invalidation() {
    model(|| against(empty(), |cache| drop(cache.invalidate(&KEY)), not_old));
}

#[test]
fn loom_flight_publication_of_a_refresh_and_invalidation() {
    model(|| against(stale(), |cache| drop(cache.invalidate(&KEY)), not_old));
}

#[test]
fn loom_flight_publication_and_invalidation_of_all() {
    model(|| against(empty(), |cache| cache.invalidate_all(), not_old));
}

/// What is inserted while a load is running stays.
#[test]
fn loom_flight_publication_and_insert() {
    let insert = |cache: &Model| drop(cache.insert(KEY, INSERTED).unwrap());
    model(move || against(empty(), insert, |cache| cache.peek(&KEY) == Some(INSERTED)));
}

#[test]
fn loom_flight_publication_of_a_refresh_and_insert() {
    let insert = |cache: &Model| drop(cache.insert(KEY, INSERTED).unwrap());
    model(move || against(stale(), insert, |cache| cache.peek(&KEY) == Some(INSERTED)));
}

/// What was loaded before a mark is not fresh after it.
fn no_old_is_fresh(cache: &Model) -> bool {
    let fresh_old = |entry: crate::Entry<'_, u64, u64>| {
        *entry.value() == OLD && entry.state() == EntryState::Fresh
    };
    cache.peek_with(&KEY, fresh_old) != Some(true)
}

#[test]
fn loom_flight_publication_and_mark() {
    model(|| against(empty(), |cache| drop(cache.mark_stale(&KEY)), no_old_is_fresh));
}

#[test]
fn loom_flight_publication_of_a_refresh_and_mark() {
    model(|| against(stale(), |cache| drop(cache.mark_stale(&KEY)), no_old_is_fresh));
}

/// What a load brought is condemned, not the value that it began from.
#[test]
fn loom_flight_publication_of_a_refresh_and_invalidate_if() {
    let condemn = |cache: &Model| drop(cache.invalidate_if(|_, value| *value == OLD));
    model(move || against(stale(), condemn, |cache| cache.peek(&KEY) != Some(OLD)));
}

/// What a claim leaves in a caller's hands, but for the place among those who wait.
enum Held {
    Lead(#[expect(dead_code, reason = "held")] Ticket<u64>),
    Follow(#[expect(dead_code, reason = "held")] Participant<Answer<u64>>),
}

fn claim(cache: &Model) -> Held {
    let ask = Ask { priority: Priority::Foreground, refresh: false };
    let engine = cache.engine();
    match engine.claim(engine.hash(&KEY), &KEY, ask, &|key| *key) {
        Claim::Lead(ticket, ..) => Held::Lead(ticket),
        Claim::Follow(participant, ..) => Held::Follow(participant),
        _ => panic!("neither leads nor follows"),
    }
}

/// Of two callers who find nothing one leads, and the other follows.
#[test]
fn loom_flight_one_of_two_claims_leads() {
    model(|| {
        let (cache, _hand) = empty();
        let other = {
            let cache = Arc::clone(&cache);
            loom::thread::spawn(move || claim(&cache))
        };
        let claims = [claim(&cache), other.join().unwrap()];
        let leads = claims.iter().filter(|claim| matches!(claim, Held::Lead(_)));
        assert_eq!(leads.count(), 1);
        let follows = claims.iter().filter(|claim| matches!(claim, Held::Follow(_)));
        assert_eq!((follows.count(), cache.limits().counts().waiters_admitted), (1, 1));
        assert_eq!(cache.limits().waiters(), 0);
    });
}

/// A reader that finds what was loaded finds it whole: loom fails a read of an atomic that was made by
/// another thread and not published to this one. The reader's pin is older than the load, as in
/// `loom_an_entry_is_whole_when_it_is_found`.
#[test]
fn loom_flight_what_is_published_is_whole() {
    model(|| {
        let cache: Cache<u64, Arc<AtomicUsize>, Identity> =
            Cache::builder().max_entries(8).hasher(Identity::default()).build().unwrap();
        let (cache, guard) = (Arc::new(cache), pin());
        let reader = spawn(&cache, move |cache| {
            let hash = cache.engine().hash(&KEY);
            let value = |view: View<'_, u64, Arc<AtomicUsize>>| {
                let loaded = view.node.value().load(Relaxed);
                assert_eq!(loaded, 7);
                Some(())
            };
            cache.engine().lookup(&KEY, hash, Count::Nothing, &guard, value);
        });
        cache.get_or_load(&KEY, || Arc::new(AtomicUsize::new(7))).unwrap();
        reader.join().unwrap();
        assert_eq!((cache.len(), cache.weight()), (1, 1));
    });
}

/// Loads of two keys of one bucket do not disturb each other.
#[test]
fn loom_flight_publication_of_neighbours() {
    model(|| {
        let (cache, _hand) = empty();
        let other = spawn(&cache, |cache: &Model| {
            assert_eq!(cache.get_or_load(&OTHER, || NEW), Ok(NEW));
        });
        assert_eq!(cache.get_or_load(&KEY, || OLD), Ok(OLD));
        other.join().unwrap();
        assert_eq!((cache.peek(&KEY), cache.peek(&OTHER)), (Some(OLD), Some(NEW)));
        balanced(&cache);
    });
}

/// A load whose bucket moves to a larger table meanwhile is stored as any other, and once.
#[test]
fn loom_flight_publication_in_a_bucket_that_moves() {
    model(|| {
        let (cache, _hand) = empty();
        let loader = spawn(&cache, |cache: &Model| {
            assert_eq!(cache.get_or_load(&KEY, || OLD), Ok(OLD));
        });
        cache.engine().grow();
        loader.join().unwrap();
        assert_eq!(cache.peek(&KEY), Some(OLD));
        balanced(&cache);
    });
}

#[test]
fn loom_flight_publication_of_a_refresh_in_a_bucket_that_moves() {
    model(|| {
        let (cache, hand) = stale();
        let loader = spawn(&cache, |cache: &Model| {
            let load = cache.load(&KEY).refresh().run(|_| NEW);
            assert_eq!(load.map(|outcome| outcome.value), Ok(Some(NEW)));
        });
        cache.engine().grow();
        loader.join().unwrap();
        assert_eq!(cache.peek(&KEY), Some(NEW));
        balanced(&cache);
        drop(hand);
    });
}

/// A caller is not refused for the load of its own key that another one has begun: it follows.
fn no_caller_is_refused(leave_one: fn(&Model, &ManualClock)) {
    model(move || {
        let (cache, hand) = empty();
        leave_one(&cache, &hand);
        let begin = |cache: &Model| {
            let (engine, claim) = (cache.engine(), claim(cache));
            let permit = matches!(claim, Held::Lead(_))
                .then(|| engine.limits.admit(Priority::Foreground, engine.now()).unwrap());
            (claim, permit)
        };
        let other = {
            let cache = Arc::clone(&cache);
            loom::thread::spawn(move || begin(&cache))
        };
        let begun = (begin(&cache), other.join().unwrap());
        drop(begun);
        assert_eq!(cache.limits().in_flight(), 0);
    });
}

#[test]
fn loom_flight_no_caller_is_refused_for_the_permit_of_its_own_key() {
    no_caller_is_refused(|cache, _| cache.limits().set_max_in_flight(1));
}

#[test]
fn loom_flight_no_caller_is_refused_for_the_token_of_its_own_key() {
    no_caller_is_refused(|cache, _| {
        cache.limits().set_rate(Some(Rate::new(1, Duration::from_secs(1)).unwrap()));
    });
}

#[test]
fn loom_flight_no_caller_is_refused_for_the_probe_of_its_own_key() {
    no_caller_is_refused(|cache, hand| {
        let breaker =
            BreakerOptions::new().consecutive_failures(1).open_for(Duration::from_secs(1));
        cache.limits().breaker().configure(Some(breaker));
        let failed = cache.get_or_load(&OTHER, || Err::<u64, _>("down"));
        assert!(failed.is_err());
        hand.advance(Duration::from_secs(1));
    });
}
