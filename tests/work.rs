//! How much work one call may do, counted in calls of user code (PER).

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{
    Census, Counted, Few, Fixed, Told, alone_in_a_process, audit_entries, ignore, lock, must_end,
};
use seawall::{Cache, Clock, Compute, InsertOptions, ManualClock, RemovalCause};

/// What this process has allocated and not freed, and what it has allocated in all, in bytes.
static LIVE: AtomicI64 = AtomicI64::new(0);
static TOTAL: AtomicI64 = AtomicI64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: it passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, SeqCst);
        TOTAL.fetch_add(layout.size() as i64, SeqCst);
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, SeqCst);
        // SAFETY: by the caller.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, SeqCst);
        TOTAL.fetch_add(layout.size() as i64, SeqCst);
        // SAFETY: by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }
}

/// Counts the calls of a key's hash function and of its equality.
#[derive(Clone, Debug, Default)]
struct Work(Arc<Done>);

#[derive(Debug, Default)]
struct Done {
    hashed: AtomicU64,
    compared: AtomicU64,
}

impl Work {
    /// How often keys were hashed and compared by a call.
    fn of(&self, call: impl FnOnce()) -> (u64, u64) {
        self.0.hashed.store(0, SeqCst);
        self.0.compared.store(0, SeqCst);
        call();
        (self.0.hashed.load(SeqCst), self.0.compared.load(SeqCst))
    }
}

impl BuildHasher for Work {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.0.hashed.fetch_add(1, SeqCst);
        DefaultHasher::new()
    }
}

#[derive(Clone, Debug)]
struct Key(u32, Work);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.1.0.compared.fetch_add(1, SeqCst);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

const ENTRIES: u32 = 5_000;
/// Keys that one place in the table has room for: the most that looking at one can find.
const PLACES: usize = 24;

/// A full cache whose entries all expire together, on a clock that is just before that.
fn about_to_expire(
    values: &Census,
) -> (Cache<u32, Counted<u32>, Fixed>, ManualClock, Told<u32, Counted<u32>>) {
    let told = Told::new();
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_entries(u64::from(ENTRIES))
        .time_to_live(Duration::from_secs(60))
        .clock(clock)
        .hasher(Fixed::default())
        .removal_listener(told.listener())
        .build()
        .unwrap();
    for key in 0..ENTRIES {
        cache.insert(key, values.make(key)).unwrap();
    }
    (cache, hand, told)
}

// PER-01

#[test]
fn per_01_inserts_after_all_expired_at_once_each_clear_a_little() {
    let values = Census::default();
    let (cache, hand, told) = about_to_expire(&values);
    hand.advance(Duration::from_secs(61));
    for key in 0..4_000 {
        cache.insert(ENTRIES + key, values.make(key)).unwrap();
        let removed = told.take();
        assert!(removed.len() <= 2 * PLACES, "one insert removed {}", removed.len());
        assert!(removed.iter().all(|(_, _, cause)| *cause == RemovalCause::Expired));
    }
    assert_eq!(cache.stats().expired, u64::from(ENTRIES), "after a round through the table");
    assert_eq!(cache.stats().evicted, 0);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn per_01_inserts_after_all_expired_at_once_each_drop_a_few_values() {
    alone_in_a_process("inserts_drop_a_few_values");
}

#[test]
#[ignore = "a pin of another test's thread would make more wait"]
fn inserts_drop_a_few_values() {
    let values = Census::default();
    let (cache, hand, told) = about_to_expire(&values);
    hand.advance(Duration::from_secs(61));
    for key in 0..4_000 {
        drop(told.take());
        let dropped = values.dropped();
        cache.insert(ENTRIES + key, values.make(key)).unwrap();
        let dropped = values.dropped() - dropped;
        assert!(dropped <= 256, "one insert dropped {dropped} values");
    }
    assert!(values.alive() <= i64::from(ENTRIES) + 256);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn per_01_what_waits_for_a_long_session_takes_memory_in_proportion() {
    alone_in_a_process("memory_of_what_waits");
}

#[test]
#[ignore = "counts what its process allocates"]
fn memory_of_what_waits() {
    let cache: Cache<u32, u32> = Cache::new(10);
    let session = cache.pin();
    let (live, total) = (LIVE.load(SeqCst), TOTAL.load(SeqCst));
    for value in 0..10_000 {
        cache.insert(value % 10, value).unwrap();
    }
    let (live, total) = (LIVE.load(SeqCst) - live, TOTAL.load(SeqCst) - total);
    drop(session);
    assert!(live <= 10_000 * 200, "{live} bytes for 10,000 entries");
    assert!(total <= 10_000 * 400, "{total} bytes were allocated for 10,000 entries");
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn per_01_what_waited_for_a_long_session_is_dropped_a_few_values_at_a_time() {
    alone_in_a_process("inserts_after_a_session");
}

#[test]
#[ignore = "a pin of another test's thread would make more wait"]
fn inserts_after_a_session() {
    let values = Census::default();
    let cache: Cache<u32, Counted<u32>> = Cache::new(10);
    let session = cache.pin();
    for value in 0..5_000 {
        cache.insert(value % 10, values.make(value)).unwrap();
    }
    drop(session);
    let mut inserts = 0;
    while values.alive() > 256 {
        let dropped = values.dropped();
        cache.insert(inserts % 10, values.make(inserts)).unwrap();
        let dropped = values.dropped() - dropped;
        assert!(dropped <= 256, "insert {inserts} dropped {dropped} values");
        inserts += 1;
        assert!(inserts < 50_000, "{} values still wait", values.alive());
    }
}

#[test]
fn per_01_reads_after_all_expired_at_once_clear_nothing() {
    let values = Census::default();
    let (cache, hand, told) = about_to_expire(&values);
    hand.advance(Duration::from_secs(61));
    for key in 0..ENTRIES {
        assert!(cache.get(&key).is_none());
        assert!(cache.get_with(&key, |_| ()).is_none());
    }
    assert_eq!(cache.iter().count(), 0);
    assert_eq!(values.dropped(), 0, "a reader runs no destructors");
    assert!(told.take().is_empty());
}

#[test]
fn per_01_an_invalidation_of_all_touches_no_entry() {
    let values = Census::default();
    let (cache, _, told) = about_to_expire(&values);
    let before = cache.stats();
    cache.invalidate_all();
    assert_eq!(cache.stats(), before);
    assert_eq!(values.dropped(), 0);
    assert!(told.take().is_empty());
    for key in 0..4_000 {
        cache.insert(ENTRIES + key, values.make(key)).unwrap();
        let removed = told.take().len();
        assert!(removed <= 2 * PLACES, "one insert removed {removed}");
    }
    assert_eq!(cache.stats().invalidated, u64::from(ENTRIES), "after a round through the table");
}

#[test]
fn per_01_an_invalidation_by_tag_touches_no_entry() {
    let told = Told::new();
    let cache = Cache::builder()
        .max_entries(u64::from(ENTRIES))
        .removal_listener(told.listener())
        .build()
        .unwrap();
    for key in 0..ENTRIES {
        cache.insert_with(key, key, InsertOptions::new().tag("tag")).unwrap();
    }
    let before = cache.stats();
    assert!(cache.invalidate_tag("tag"));
    assert_eq!(cache.stats(), before);
    assert!(told.take().is_empty());
    assert_eq!(cache.iter().count(), 0);
}

#[test]
fn per_01_a_small_sweep_looks_at_few_entries() {
    let values = Census::default();
    let (cache, hand, told) = about_to_expire(&values);
    hand.advance(Duration::from_secs(61));
    let mut sweeps = 0;
    while !cache.is_empty() {
        let taken = cache.sweep(10);
        assert_eq!(told.take().len(), taken);
        assert!(taken <= 10 + PLACES, "a sweep of 10 took out {taken}");
        sweeps += 1;
    }
    assert!(sweeps >= ENTRIES / (10 + PLACES as u32));
}

#[test]
fn per_01_an_insert_into_a_full_cache_evicts_one_entry() {
    let values = Census::default();
    let (cache, _, told) = about_to_expire(&values);
    for key in 0..1_000 {
        cache.insert(ENTRIES + key, values.make(key)).unwrap();
        assert_eq!(told.take().len(), 1);
    }
    audit_entries(&cache);
}

#[test]
fn per_01_every_call_hashes_its_key_once_and_compares_few() {
    let work = Work::default();
    let key = |it| Key(it, work.clone());
    let cache = Cache::builder().max_entries(1_000).hasher(work.clone()).build().unwrap();
    let mut compared = 0;
    for it in 0..1_000 {
        let insert = work.of(|| ignore(cache.insert(key(it), it)));
        let hit = work.of(|| assert_eq!(cache.get(&key(it)), Some(it)));
        let miss = work.of(|| assert_eq!(cache.get(&key(it + 5_000)), None));
        let replace = work.of(|| ignore(cache.insert(key(it), it)));
        let remove = work.of(|| ignore(cache.remove(&key(it + 5_000))));
        let compute = work.of(|| ignore(cache.compute(key(it), |_| Compute::Insert(it))));
        for (hashed, more) in [insert, hit, miss, replace, remove, compute] {
            assert_eq!(hashed, 1);
            compared += more;
        }
    }
    // One each for the hit, the replacement and the compute, and a few of other keys of the same tag.
    assert!((3_000..3_300).contains(&compared), "{compared} comparisons");
    let keys = [key(1), key(2), key(3)];
    let (hashed, _) = work.of(|| assert_eq!(cache.get_many(&keys).len(), 3));
    assert_eq!(hashed, 3);
}

#[test]
fn per_01_keys_of_one_hash_cost_no_more_than_one_place_has_room_for() {
    let work = Work::default();
    let key = |it| Key(it, work.clone());
    let cache = Cache::builder().max_entries(10_000).hasher(Few(1)).build().unwrap();
    for it in 0..2_000 {
        let (_, compared) = work.of(|| ignore(cache.insert(key(it), it)));
        assert!(compared <= 4 * PLACES as u64, "an insert compared {compared} keys");
        let (_, compared) = work.of(|| ignore(cache.get(&key(it / 2))));
        assert!(compared <= 2 * PLACES as u64, "a read compared {compared} keys");
    }
}

#[test]
fn per_01_a_growing_table_is_moved_a_few_entries_with_each_insert() {
    let work = Work::default();
    let cache = Cache::builder().max_weight(1_000_000).hasher(work.clone()).build().unwrap();
    let mut total = 0;
    for it in 0..5_000 {
        let (hashed, _) = work.of(|| ignore(cache.insert(Key(it, work.clone()), it)));
        assert!(hashed <= 1 + 4 * PLACES as u64, "one insert hashed {hashed} keys");
        total += hashed;
    }
    assert!(total <= 5_000 * 4, "{total} keys hashed for 5000 inserts");
}

/// Nothing is evicted below the budget, however large that is beside the entries.
#[test]
fn per_01_a_table_grows_with_its_entries_also_under_a_budget_without_end() {
    for budget in [1 << 20, 1 << 40, u64::MAX] {
        let cache = Cache::builder().max_weight(budget).hasher(Fixed::default()).build().unwrap();
        for key in 0..20_000 {
            cache.insert(key, key).unwrap();
        }
        assert_eq!(cache.stats().evicted, 0, "with a budget of {budget}");
        assert_eq!(cache.len(), 20_000);
    }
}

// PER-03

/// Holds up the first thread that comes, until the test lets it go.
#[derive(Clone)]
struct Gate(Arc<(AtomicBool, Mutex<Sender<()>>, Mutex<Receiver<()>>)>);

impl Gate {
    fn new(entered: Sender<()>, open: Receiver<()>) -> Self {
        Gate(Arc::new((AtomicBool::new(false), Mutex::new(entered), Mutex::new(open))))
    }

    fn arm(&self) {
        self.0.0.store(true, SeqCst);
    }

    fn is_armed(&self) -> bool {
        self.0.0.load(SeqCst)
    }

    fn pass(&self) {
        if self.0.0.swap(false, SeqCst) {
            lock(&self.0.1).send(()).unwrap();
            let _ = lock(&self.0.2).recv();
        }
    }
}

/// A value whose copies and drops come by a gate.
struct Gated(u32, Option<Gate>, Option<Gate>);

impl Clone for Gated {
    fn clone(&self) -> Self {
        if let Some(gate) = &self.1 {
            gate.pass();
        }
        Gated(self.0, self.1.clone(), self.2.clone())
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        if let Some(gate) = &self.2 {
            gate.pass();
        }
    }
}

fn plain(value: u32) -> Gated {
    Gated(value, None, None)
}

type SlowCall = fn(&Cache<u32, Gated, Few>, &Gate);

/// Calls that stop at a gate in user code, in a cache of four entries.
const SLOW: [(&str, SlowCall); 8] = [
    ("a listener", |cache, gate| {
        gate.arm();
        cache.insert(1, plain(1)).map_err(drop).unwrap();
    }),
    ("a weigher", |cache, gate| {
        gate.arm();
        cache.insert(1_000, plain(1)).map_err(drop).unwrap();
    }),
    ("a compute", |cache, gate| {
        gate.arm();
        let _ = cache.compute(1, |_| {
            gate.pass();
            Compute::Remove
        });
    }),
    ("a predicate", |cache, gate| {
        gate.arm();
        cache.invalidate_if(|_, _| {
            gate.pass();
            true
        });
    }),
    ("a condition", |cache, gate| {
        gate.arm();
        let _ = cache.replace_if(1, plain(1), |_| {
            gate.pass();
            true
        });
    }),
    ("a reader's closure", |cache, gate| {
        gate.arm();
        cache.get_with(&1, |_| gate.pass());
    }),
    ("a clone", |cache, gate| {
        cache.insert(1, Gated(1, Some(gate.clone()), None)).map_err(drop).unwrap();
        gate.arm();
        cache.get(&1);
    }),
    ("a destructor", |cache, gate| {
        cache.insert(1, Gated(1, None, Some(gate.clone()))).map_err(drop).unwrap();
        cache.invalidate(&1);
        gate.arm();
        while gate.is_armed() {
            // Frees it as soon as no thread of another test is reading.
            cache.sweep(0);
        }
    }),
];

#[test]
fn per_03_slow_user_code_in_one_thread_holds_up_no_other() {
    for (what, call) in SLOW {
        must_end(move || {
            let ((enter, entered), (open, opened)) = (channel(), channel::<()>());
            let gate = Gate::new(enter, opened);
            let (slow_listener, slow_weigher) = (what == "a listener", what == "a weigher");
            let cache = Cache::builder()
                .max_weight(4)
                .weigher({
                    let gate = gate.clone();
                    move |_: &u32, _: &Gated| {
                        if slow_weigher {
                            gate.pass();
                        }
                        1
                    }
                })
                .removal_listener({
                    let gate = gate.clone();
                    move |_, _, _| {
                        if slow_listener {
                            gate.pass();
                        }
                    }
                })
                .hasher(Few(2))
                .build()
                .unwrap();
            for key in 0..4 {
                cache.insert(key, plain(key)).map_err(drop).unwrap();
            }
            let slow = {
                let (cache, gate) = (cache.clone(), gate.clone());
                thread::spawn(move || call(&cache, &gate))
            };
            entered.recv().unwrap();
            // Keys of the same place, the same key, and everything that looks at all entries.
            for round in 0..300 {
                cache.insert(round % 7, plain(round)).map_err(drop).unwrap();
                cache.get_with(&(round % 5), |entry| entry.value().0);
                cache.invalidate(&(round % 11));
                let _ = cache.compute(round % 3, |_| Compute::Insert(plain(round)));
                cache.mark_stale(&1);
            }
            cache.invalidate_if(|key, _| *key == 2);
            cache.set_capacity(3);
            assert!(cache.iter().count() <= 3);
            cache.invalidate_all();
            cache.sweep(usize::MAX);
            assert_eq!(cache.len(), 0, "while {what} was slow");
            assert!(!slow.is_finished());
            drop(open);
            slow.join().unwrap();
        });
    }
}

// PER-07

type Scan = fn(&Cache<u32, u32, Fixed>, u32);

/// Ways to store keys that come once.
const SCANS: [Scan; 4] = [
    |cache, key| ignore(cache.insert(key, key)),
    |cache, key| ignore(cache.insert_if_absent(key, key)),
    |cache, key| ignore(cache.compute(key, |_| Compute::Insert(key))),
    |cache, key| {
        assert_eq!(cache.get(&key), None);
        ignore(cache.insert(key, key));
    },
];

/// A cache of a thousand entries, 500 of which are read often.
fn with_popular_keys() -> Cache<u32, u32, Fixed> {
    let cache = Cache::builder().max_entries(1_000).hasher(Fixed::default()).build().unwrap();
    for key in 0..500 {
        cache.insert(key, key).unwrap();
    }
    for _ in 0..20 {
        assert!((0..500).all(|key| cache.get(&key).is_some()));
    }
    cache
}

#[test]
fn per_07_popular_keys_stay_while_a_scan_goes_on() {
    for scan in SCANS {
        let cache = with_popular_keys();
        let mut missed = 0;
        for step in 0..20_000 {
            scan(&cache, 1_000 + step);
            let key = step * 7 % 500;
            if cache.get(&key).is_none() {
                missed += 1;
                cache.insert(key, key).unwrap();
            }
        }
        assert!(missed < 200, "{missed} of 20000 reads missed");
    }
}

#[test]
fn per_07_popular_keys_stay_through_a_scan_in_which_nobody_reads_them() {
    for scan in SCANS {
        let cache = with_popular_keys();
        for step in 0..20_000 {
            scan(&cache, 1_000 + step);
        }
        let left = (0..500).filter(|key| cache.contains_key(key)).count();
        assert!(left >= 450, "{left} of 500 left");
    }
}
