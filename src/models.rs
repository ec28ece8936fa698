//! Loom models of what hangs on a node's state word, and of the account; the real code throughout.
//!
//! Run with `RUSTFLAGS="--cfg seawall_loom" cargo test --release --lib loom_`, as those of the table.

mod loads;

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use crate::engine::{Count, View};
use crate::evict::Evict;
use crate::sync::barrier::model::{Pair, with_fences_of};
use crate::table::reclaim::{check_read, pin};
use crate::{Cache, Clock, EntryState, InsertOptions, ManualClock};

/// Explores a model. A cache is some hundred atomics, each of which is read once when it is dropped.
fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.max_branches = 10_000;
    builder.check(move || {
        // As in the table's models: loom's lazy statics are made before there are threads.
        let guard = pin();
        check_read(&raw const guard, &guard);
        drop(guard);
        body();
    });
}

/// Hashes a number to itself: a model must not depend on a seed.
#[derive(Clone, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl BuildHasher for Identity {
    type Hasher = Identity;

    fn build_hasher(&self) -> Identity {
        Identity::default()
    }
}

type Model = Arc<Cache<u64, u64, Identity>>;

const KEY: u64 = 1;
const OTHER: u64 = 2;

/// A cache with one entry, fresh for ten seconds and stale for another ten.
fn cache(options: &InsertOptions) -> (Model, ManualClock) {
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_entries(8)
        .time_to_live(Duration::from_secs(10))
        .stale_while_revalidate(Duration::from_secs(10))
        .clock(clock)
        .hasher(Identity::default())
        .build()
        .unwrap();
    cache.insert_with(KEY, 7, options.clone()).unwrap();
    (Arc::new(cache), hand)
}

fn spawn<T: Clone + 'static>(
    shared: &T,
    body: impl FnOnce(&T) + 'static,
) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

/// The state of the entry, and how long it is still fresh.
fn look(cache: &Model) -> (EntryState, Duration) {
    let look = |entry: crate::Entry<'_, u64, u64>| {
        assert_eq!(*entry.value(), 7);
        Some((entry.state(), entry.remaining().unwrap()))
    };
    cache.peek_with(&KEY, look).flatten().expect("nobody took it out")
}

/// Of two threads that each insert a key and then look for the other's, one at least finds it.
#[test]
fn loom_a_call_that_has_returned_has_taken_effect() {
    with_fences_of(Pair::AfterChanges, || {
        model(|| {
            let cache: Model = Arc::new(
                Cache::builder().max_entries(8).hasher(Identity::default()).build().unwrap(),
            );
            let put_and_look = |cache: &Model, own: u64, other: u64| {
                let _ = cache.insert(own, own).unwrap();
                cache.peek(&other).is_some()
            };
            let theirs = {
                let cache = Arc::clone(&cache);
                thread::spawn(move || put_and_look(&cache, OTHER, KEY))
            };
            let found = put_and_look(&cache, KEY, OTHER);
            assert!(theirs.join().unwrap() | found, "neither found the other's key");
        });
    });
}

/// A reader sees the state before or after a mark, whole; what is fresh no longer does not become so
/// again; each block is retired once and read by nobody who pinned later.
fn two_marks_and_a_reader(options: &InsertOptions) {
    let (cache, _hand) = cache(options);
    let mark = |cache: &Model| assert!(cache.mark_stale(&KEY));
    let threads = [spawn(&cache, mark), spawn(&cache, mark)];
    let first = look(&cache);
    let second = look(&cache);
    for seen in [first, second] {
        let whole =
            [(EntryState::Fresh, Duration::from_secs(10)), (EntryState::Stale, Duration::ZERO)];
        assert!(whole.contains(&seen), "{seen:?}");
    }
    assert!(second.1 <= first.1, "the soft deadline moved out");
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(look(&cache).0, EntryState::Stale);
}

/// The first mark puts a block in the place of an inline word, the second replaces that block.
#[test]
fn loom_two_marks_of_an_inline_state_and_a_reader() {
    model(|| two_marks_and_a_reader(&InsertOptions::new()));
}

#[test]
fn loom_two_marks_of_a_block_and_a_reader() {
    model(|| two_marks_and_a_reader(&InsertOptions::new().version(1)));
}

/// An entry that is marked while all are invalidated is invalid when that is done.
fn a_mark_and_an_invalidation_of_all(options: &InsertOptions) {
    let (cache, _hand) = cache(options);
    let threads = [spawn(&cache, |cache: &Model| {
        cache.mark_stale(&KEY);
    })];
    cache.invalidate_all();
    assert!(!cache.contains_key(&KEY), "it outlived the invalidation");
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(!cache.contains_key(&KEY), "the mark revived it");
    assert_eq!(cache.peek(&KEY), None);
}

#[test]
fn loom_a_mark_of_an_inline_state_and_an_invalidation_of_all() {
    model(|| a_mark_and_an_invalidation_of_all(&InsertOptions::new()));
}

#[test]
fn loom_a_mark_of_a_block_and_an_invalidation_of_all() {
    model(|| a_mark_and_an_invalidation_of_all(&InsertOptions::new().version(1)));
}

/// Two inserters with room for one of them, and a remover: the account never exceeds the capacity, and
/// is exact in the end.
#[test]
fn loom_two_charges_and_a_discharge() {
    model(|| {
        let evict = Arc::new(Evict::new(3, 0.1));
        assert!(evict.charge(2, false));
        let insert = |evict: &Arc<Evict>| {
            let charged = evict.charge(1, false);
            assert!(!evict.is_over());
            charged
        };
        let others = [Arc::clone(&evict), Arc::clone(&evict)];
        let [inserter, remover] = others;
        let inserter = thread::spawn(move || insert(&inserter));
        let remover = thread::spawn(move || remover.discharge(2));
        let mine = insert(&evict);
        let theirs = inserter.join().unwrap();
        remover.join().unwrap();
        assert!(mine || theirs, "there was room for one");
        assert_eq!(evict.used(), u64::from(mine) + u64::from(theirs));
    });
}

/// A charge made regardless of the capacity is given back by whoever made it; those in progress are all
/// that exceeds.
#[test]
fn loom_a_charge_regardless_of_the_capacity() {
    model(|| {
        let evict = Arc::new(Evict::new(2, 0.1));
        assert!(evict.charge(2, false));
        let threads = [
            spawn(&evict, |evict: &Arc<Evict>| {
                assert!(evict.charge(1, true));
                evict.discharge(1);
            }),
            spawn(&evict, |evict: &Arc<Evict>| {
                evict.discharge(1);
                assert!(evict.charge(1, true));
            }),
        ];
        assert!(evict.used() <= 4, "capacity and two operations in progress");
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(evict.used(), 2);
        assert!(!evict.is_over());
    });
}

/// What a reader finds is initialised: loom fails a read of an atomic (here the state word) that was
/// made by another thread and not published to this one. The reader's pin is older than the writer's:
/// models pin by a read-modify-write, which would publish the entry.
#[test]
fn loom_an_entry_is_whole_when_it_is_found() {
    model(|| {
        let (cache, _hand) = cache(&InsertOptions::new());
        let guard = pin();
        let threads = [spawn(&cache, move |cache: &Model| {
            let read = |key: u64| {
                let hash = cache.engine().hash(&key);
                let value = |view: View<'_, u64, u64>| Some(*view.node.value());
                cache.engine().lookup(&key, hash, Count::Nothing, &guard, value)
            };
            assert!(matches!(read(KEY), Some(7 | 8)));
            assert!(matches!(read(OTHER), None | Some(9)));
        })];
        cache.insert(KEY, 8).unwrap();
        cache.insert(OTHER, 9).unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((cache.get(&KEY), cache.get(&OTHER)), (Some(8), Some(9)));
    });
}

/// As above, for writers: a replacement reads the entry that it takes out.
#[test]
fn loom_an_entry_is_whole_when_it_is_replaced() {
    model(|| {
        let (cache, _hand) = cache(&InsertOptions::new());
        let insert = |cache: &Model| {
            cache.insert(KEY, 8).unwrap();
        };
        let threads = [spawn(&cache, insert)];
        insert(&cache);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((cache.get(&KEY), cache.len(), cache.weight()), (Some(8), 1, 1));
    });
}
