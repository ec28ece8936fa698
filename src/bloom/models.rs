//! Loom models of filters: the real code, with blocks of two words.
//!
//! Run with `RUSTFLAGS="--cfg seawall_loom" cargo test --release --lib loom_`.

use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::AgeingFilter;
use super::filter::Filter;
use super::rebuild::{Answer, RebuildingFilter};
use super::sizing::{Plan, plan};

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.max_branches = 10_000;
    builder.check(body);
}

fn spawn<T: Clone + 'static>(
    shared: &T,
    body: impl FnOnce(&T) + 'static,
) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

/// One block, with room for all keys that are inserted.
fn one() -> Plan {
    plan(10, 0.5).unwrap()
}

fn filter() -> Filter {
    Filter::new(&one()).unwrap()
}

const KEY: u128 = 0b001_000001;
/// Shares the first word's bit with `KEY`.
const OTHER: u128 = 0b010_000001;

#[test]
fn loom_concurrent_inserts_lose_no_bit() {
    model(|| {
        let filter = Arc::new(filter());
        let threads = [
            spawn(&filter, |filter: &Arc<Filter>| {
                filter.insert_hash(KEY);
                assert!(filter.contains_hash(KEY));
            }),
            spawn(&filter, |filter: &Arc<Filter>| {
                filter.insert_hash(OTHER);
                assert!(filter.contains_hash(OTHER));
            }),
        ];
        filter.insert_hash(!KEY);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!([KEY, OTHER, !KEY].into_iter().all(|key| filter.contains_hash(key)));
        assert_eq!(filter.each_block().map(|words| words[0].count_ones()).sum::<u32>(), 2);
    });
}

/// At least one of two inserters of a key is told that it was new.
#[test]
fn loom_a_new_key_is_new_to_someone() {
    model(|| {
        let filter = Arc::new(filter());
        let other = Arc::clone(&filter);
        let thread = thread::spawn(move || other.insert_hash(KEY));
        let mine = filter.insert_hash(KEY);
        let theirs = thread.join().unwrap();
        assert!(mine || theirs);
    });
}

/// A source of truth that a reader sees as of a moment.
type Source = Arc<loom::sync::Mutex<Vec<u128>>>;

#[derive(Clone)]
struct Screen {
    filter: Arc<RebuildingFilter>,
    source: Source,
}

impl Screen {
    /// A complete filter that was rebuilt once already, if its memory is to be used again.
    fn new(used: bool) -> Self {
        let screen = Screen {
            filter: Arc::new(RebuildingFilter::from_filter(filter())),
            source: Arc::default(),
        };
        // Few changes of the state: loom remembers seven values of an atomic.
        if used {
            screen.rebuild();
        } else {
            screen.filter.mark_complete();
        }
        screen
    }

    /// The order that the documentation asks for.
    fn add(&self, key: u128) {
        self.source.lock().unwrap().push(key);
        self.filter.insert_hash(key);
        assert_eq!(self.filter.check_hash(key), Answer::Maybe, "denied after its insert");
    }

    fn rebuild(&self) {
        let rebuild = self.filter.rebuild(&one()).unwrap();
        let keys = self.source.lock().unwrap().clone();
        for key in keys {
            rebuild.insert_hash(key);
        }
        rebuild.finish();
    }
}

#[test]
fn loom_an_acknowledged_key_outlives_a_switch() {
    model(|| {
        let screen = Screen::new(false);
        let threads = [spawn(&screen, |screen: &Screen| screen.add(KEY))];
        screen.rebuild();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(screen.filter.check_hash(KEY), Answer::Maybe);
    });
}

/// The inserter may be stopped with the state of before in hand, while memory is cleared and used again.
#[test]
fn loom_a_stalled_inserter_and_two_switches() {
    model(|| {
        let screen = Screen::new(true);
        let threads = [spawn(&screen, |screen: &Screen| screen.add(KEY))];
        screen.rebuild();
        screen.rebuild();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(screen.filter.check_hash(KEY), Answer::Maybe);
    });
}

#[test]
fn loom_a_key_inserted_while_a_rebuild_is_abandoned() {
    model(|| {
        let screen = Screen::new(true);
        let threads = [spawn(&screen, |screen: &Screen| screen.add(KEY))];
        drop(screen.filter.rebuild(&one()).unwrap());
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(screen.filter.check_hash(KEY), Answer::Maybe);
        screen.rebuild();
        assert_eq!(screen.filter.check_hash(KEY), Answer::Maybe);
    });
}

/// Without a source: what is inserted while a rebuild is open is in both generations.
#[test]
fn loom_a_key_inserted_while_a_rebuild_is_open() {
    model(|| {
        let screen = Screen::new(false);
        let rebuild = screen.filter.rebuild(&one()).unwrap();
        let threads = [spawn(&screen, |screen: &Screen| {
            screen.filter.insert_hash(KEY);
            assert_eq!(screen.filter.check_hash(KEY), Answer::Maybe);
        })];
        rebuild.finish();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(screen.filter.check_hash(KEY), Answer::Maybe);
    });
}

/// A query looks at a generation while that is cleared for the next one.
#[test]
fn loom_a_query_denies_nothing_while_memory_is_used_again() {
    model(|| {
        let screen = Screen::new(true);
        screen.add(KEY);
        let threads = [spawn(&screen, |screen: &Screen| {
            assert_eq!(screen.filter.check_hash(KEY), Answer::Maybe);
        })];
        screen.rebuild();
        screen.rebuild();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// A mark that is made during a rebuild is not lost when that is finished.
#[test]
fn loom_a_mark_during_a_rebuild_outlives_it() {
    model(|| {
        let screen = Screen::new(false);
        let rebuild = screen.filter.rebuild(&one()).unwrap();
        let threads = [spawn(&screen, |screen: &Screen| screen.filter.mark_suspect())];
        rebuild.finish();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(screen.filter.check_hash(KEY), Answer::Unsure);
        assert!(!screen.filter.is_rebuilding());
    });
}

#[test]
fn loom_only_one_of_two_rebuilds_starts() {
    model(|| {
        let screen = Screen::new(true);
        let running = Arc::new(Mutex::new(0));
        let try_it = |screen: &Screen, running: &Mutex<i32>| match screen.filter.rebuild(&one()) {
            Ok(rebuild) => {
                *running.lock().unwrap() += 1;
                assert_eq!(*running.lock().unwrap(), 1, "two at once");
                rebuild.insert_hash(KEY);
                *running.lock().unwrap() -= 1;
                rebuild.finish();
                // Nobody may take what serves now for free memory.
                assert_eq!(screen.filter.check_hash(KEY), Answer::Maybe);
                true
            }
            Err(_) => false,
        };
        let (other, theirs) = (screen.clone(), Arc::clone(&running));
        let thread = thread::spawn(move || try_it(&other, &theirs));
        let mine = try_it(&screen, &running);
        let theirs = thread.join().unwrap();
        assert!(mine || theirs);
        assert_eq!(screen.filter.check_hash(KEY), Answer::Maybe);
    });
}

fn ageing() -> Arc<AgeingFilter> {
    Arc::new(AgeingFilter::from_generations([filter(), filter()]))
}

/// An insert while the generations change once more outlives that.
fn an_insert_and_a_rotation(filter: &Arc<AgeingFilter>) {
    filter.rotate();
    let thread = spawn(filter, |filter: &Arc<AgeingFilter>| {
        filter.insert_hash(KEY);
        assert!(filter.contains_hash(KEY));
    });
    filter.rotate();
    thread.join().unwrap();
    assert!(filter.contains_hash(KEY));
}

#[test]
fn loom_an_ageing_insert_outlives_a_rotation() {
    model(|| an_insert_and_a_rotation(&ageing()));
}

/// The inserter may see bits that the key set before they were cleared; it must not take them for set.
#[test]
fn loom_an_ageing_insert_into_a_cleared_generation() {
    model(|| {
        let filter = ageing();
        filter.insert_hash(KEY);
        an_insert_and_a_rotation(&filter);
    });
}

/// The key is in one generation or the other at every moment, but a query looks at one after the other.
#[test]
fn loom_an_ageing_query_while_its_key_is_renewed() {
    model(|| {
        let filter = ageing();
        filter.insert_hash(KEY);
        filter.rotate();
        let threads = [spawn(&filter, |filter: &Arc<AgeingFilter>| {
            assert!(filter.contains_hash(KEY));
        })];
        filter.insert_hash(KEY);
        filter.rotate();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// A key that is in the current generation is found while the previous one is cleared and takes its place.
#[test]
fn loom_an_ageing_query_during_a_rotation() {
    model(|| {
        let filter = ageing();
        filter.rotate();
        filter.insert_hash(KEY);
        let threads = [spawn(&filter, |filter: &Arc<AgeingFilter>| {
            assert!(filter.contains_hash(KEY));
        })];
        filter.rotate();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
