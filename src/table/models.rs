//! Loom models of the table: the real code, with buckets of two slots and reclamation that notices any
//! read of an object that was retired before the reader pinned (see `reclaim::model`).
//!
//! Run with `RUSTFLAGS="--cfg seawall_loom" cargo test --release --lib loom_`.
//! `LOOM_MAX_PREEMPTIONS` sets the depth; 2 where it is not set.

use loom::sync::Arc;
use loom::thread;

use super::Sample;
use super::reclaim::{check_read, pin};
use super::toy::Toy;

/// Explores a model, then checks that no node was lost or freed twice.
fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.check(move || {
        // Makes loom's lazy statics before there are threads: who uses one acquires from its maker,
        // which would hide orderings that are too weak.
        let guard = pin();
        check_read(&raw const guard, &guard);
        drop(guard);
        body();
    });
}

/// Waits for all threads, validates, drops the map and counts its nodes.
fn finish(toy: Arc<Toy>, threads: Vec<thread::JoinHandle<()>>) -> Vec<(u64, u64)> {
    for thread in threads {
        thread.join().unwrap();
    }
    let entries = toy.validate().into_iter().collect();
    let census = toy.census.clone();
    drop(toy);
    assert_eq!(census.alive(), 0, "nodes leaked");
    entries
}

fn spawn(toy: &Arc<Toy>, body: impl FnOnce(&Toy) + 'static) -> thread::JoinHandle<()> {
    let toy = Arc::clone(toy);
    thread::spawn(move || body(&toy))
}

#[test]
fn loom_two_inserters_of_one_key_and_a_reader() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        let threads = vec![
            spawn(&toy, |toy| {
                toy.put(1, 10);
            }),
            spawn(&toy, |toy| {
                toy.put(1, 20);
            }),
        ];
        let first = toy.get(1);
        let second = toy.get(1);
        assert!(matches!(first, None | Some(10 | 20)));
        assert!(first.is_none() || second.is_some(), "a key vanished that nobody removed");
        let entries = finish(toy, threads);
        assert!(entries == [(1, 10)] || entries == [(1, 20)]);
    });
}

#[test]
fn loom_only_one_of_two_finds_a_key_absent() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        let other = Arc::clone(&toy);
        let thread = thread::spawn(move || other.put_if_absent(1, 10));
        let mine = toy.put_if_absent(1, 20);
        let theirs = thread.join().unwrap();
        assert!(mine != theirs);
        assert_eq!(finish(toy, vec![]), [(1, if mine { 20 } else { 10 })]);
    });
}

#[test]
fn loom_insert_remove_and_read_of_one_key() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(1, 10);
        let threads = vec![
            spawn(&toy, |toy| assert_eq!(toy.remove(1), Some(10))),
            spawn(&toy, |toy| {
                assert!(matches!(toy.get(1), None | Some(10)));
            }),
        ];
        toy.put(2, 20);
        assert_eq!(toy.get(2), Some(20));
        assert_eq!(finish(toy, threads), [(2, 20)]);
    });
}

/// A slot is freed and claimed again while a reader looks at it: it may not return what is not
/// committed, and a key that stays is always found.
#[test]
fn loom_a_slot_changes_hands_under_a_reader() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(1, 10);
        toy.put(2, 20);
        let threads = vec![
            spawn(&toy, |toy| {
                toy.remove(1);
                assert!(toy.put_if_absent(3, 30));
                assert_eq!(toy.remove(3), Some(30));
            }),
            spawn(&toy, |toy| {
                if toy.get(3).is_some() {
                    assert_eq!(toy.get(1), None, "3 came only after 1 was removed");
                }
            }),
        ];
        assert_eq!(toy.get(2), Some(20));
        assert_eq!(finish(toy, threads), [(2, 20)]);
    });
}

/// A slot is freed and claimed again under a reader: it may not return what is only claimed.
#[test]
fn loom_what_was_found_stays() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(1, 10);
        let threads = vec![spawn(&toy, |toy| {
            if toy.get(2).is_some() {
                assert_eq!(toy.get(2), Some(20), "a key was seen before its commit");
            }
        })];
        toy.remove(1);
        assert!(toy.put_if_absent(2, 20));
        assert_eq!(finish(toy, threads), [(2, 20)]);
    });
}

/// A slot is freed and claimed again under an eviction hand: it may not choose what is only claimed.
#[test]
fn loom_what_was_sampled_was_committed() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(1, 10);
        let threads = vec![spawn(&toy, |toy| {
            let (guard, mut sample) = (pin(), Sample::new());
            toy.map.sample(0, &mut sample, |_| 1, &guard);
            let sampled = sample.take_first(true, |_| 1);
            if sampled.is_some_and(|it| it.found(&guard).node().key == 2) {
                assert_eq!(toy.get(2), Some(20), "a key was sampled before its commit");
            }
        })];
        toy.remove(1);
        assert!(toy.put_if_absent(2, 20));
        assert_eq!(finish(toy, threads), [(2, 20)]);
    });
}

/// An inserter cleans a removed slot that it wants, while the remover does, and uses it again.
#[test]
fn loom_a_removed_slot_is_cleaned_by_two() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(1, 10);
        let threads = vec![spawn(&toy, |toy| {
            assert!(toy.put_if_absent(2, 20));
        })];
        toy.remove(1);
        assert!(toy.put_if_absent(3, 30));
        assert_eq!(finish(toy, threads), [(2, 20), (3, 30)]);
    });
}

#[test]
fn loom_two_removers_and_an_inserter_of_one_key() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(1, 10);
        let other = Arc::clone(&toy);
        let remover = thread::spawn(move || other.remove(1));
        let threads = vec![spawn(&toy, |toy| {
            toy.put(1, 20);
        })];
        let mine = toy.remove(1);
        let theirs = remover.join().unwrap();
        let left = finish(toy, threads);
        let removed = usize::from(mine.is_some()) + usize::from(theirs.is_some());
        assert!(mine.is_none() || mine != theirs, "one node was removed twice");
        // Removed nodes, one that was replaced, and what is left make two.
        let replaced = usize::from(mine != Some(10) && theirs != Some(10));
        assert_eq!(removed + left.len() + replaced, 2);
    });
}

/// Full buckets: the third key needs an extension line, which two threads hang on at once.
#[test]
fn loom_two_inserters_extend_a_full_bucket() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(1, 10);
        toy.put(2, 20);
        let threads = vec![spawn(&toy, |toy| {
            toy.put(3, 30);
        })];
        toy.put(4, 40);
        assert_eq!(toy.get(1), Some(10));
        assert_eq!(toy.get(4), Some(40));
        assert_eq!(finish(toy, threads), [(1, 10), (2, 20), (3, 30), (4, 40)]);
    });
}

/// The policy's bits change under a replacement and a removal; neither is lost.
#[test]
fn loom_a_use_is_counted_during_replace_and_remove() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(1, 10);
        let threads = vec![
            spawn(&toy, |toy| toy.touch(1)),
            spawn(&toy, |toy| {
                toy.put(1, 11);
            }),
        ];
        let removed = toy.remove(1);
        let left = finish(toy, threads);
        match removed {
            Some(10) => assert_eq!(left, [(1, 11)]),
            Some(11) => assert_eq!(left, []),
            other => panic!("{other:?}"),
        }
    });
}

const FIRST: u64 = 1;
const SECOND: u64 = u64::MAX;

/// Two writers grow a table under a reader: a key that stays is always found, and each write counts.
#[test]
fn loom_growth_under_two_writers_and_a_reader() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(FIRST, 10);
        toy.put(SECOND, 20);
        let threads = vec![
            spawn(&toy, |toy| {
                let guard = pin();
                toy.map.start_growth(&guard);
                toy.put(SECOND, 21);
            }),
            spawn(&toy, |toy| {
                assert_eq!(toy.get(FIRST), Some(10));
                assert!(matches!(toy.get(SECOND), Some(20 | 21)));
            }),
        ];
        toy.put(2, 30);
        assert_eq!(finish(toy, threads), [(FIRST, 10), (2, 30), (SECOND, 21)]);
    });
}

/// What is removed while its bucket moves does not come back, and is retired once.
#[test]
fn loom_removal_while_a_bucket_moves() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(SECOND, 20);
        let threads = vec![spawn(&toy, |toy| {
            assert_eq!(toy.remove(SECOND), Some(20));
            assert_eq!(toy.get(SECOND), None, "a removed key came back");
        })];
        let guard = pin();
        toy.map.start_growth(&guard);
        toy.map.help_growth(&guard);
        drop(guard);
        assert!(matches!(toy.get(SECOND), None | Some(20)));
        assert_eq!(finish(toy, threads), []);
    });
}

/// Two keys of one tag move to different buckets, of which one may be in use, and its node freed, while
/// the old bucket still speaks for the other.
#[test]
fn loom_a_word_of_the_other_side_is_not_followed() {
    const OTHER_SIDE: u64 = 1 << 63;
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(FIRST, 10);
        toy.put(OTHER_SIDE, 20);
        let guard = pin();
        toy.map.start_growth(&guard);
        drop(guard);
        let threads = vec![spawn(&toy, |toy| {
            let guard = pin();
            toy.map.help_growth(&guard);
        })];
        assert_eq!(toy.remove(FIRST), Some(10));
        assert_eq!(toy.get(OTHER_SIDE), Some(20));
        assert_eq!(finish(toy, threads), [(OTHER_SIDE, 20)]);
    });
}

/// Helpers that come late find the bucket in use, its nodes removed and the slots free again.
#[test]
fn loom_late_helpers_take_back_what_they_placed() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(FIRST, 10);
        let guard = pin();
        toy.map.start_growth(&guard);
        drop(guard);
        let helper = |toy: &Toy| {
            let guard = pin();
            toy.map.help_growth(&guard);
        };
        let threads = vec![spawn(&toy, helper), spawn(&toy, helper)];
        assert_eq!(toy.remove(FIRST), Some(10));
        assert!(toy.put_if_absent(FIRST, 11));
        assert_eq!(finish(toy, threads), [(FIRST, 11)]);
    });
}

/// A table that has grown grows again while a reader still uses the first.
#[test]
fn loom_growth_of_a_grown_table() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(FIRST, 10);
        let threads = vec![spawn(&toy, |toy| assert_eq!(toy.get(FIRST), Some(10)))];
        for _ in 0..2 {
            let guard = pin();
            toy.map.start_growth(&guard);
            drop(guard);
            toy.finish_growth();
        }
        assert_eq!(finish(toy, threads), [(FIRST, 10)]);
    });
}

/// A use is counted while the bucket moves: a frozen word is not changed, whoever places it.
#[test]
fn loom_a_use_is_counted_while_its_bucket_moves() {
    model(|| {
        let toy = Arc::new(Toy::new(1));
        toy.put(FIRST, 10);
        let threads = vec![
            spawn(&toy, |toy| toy.touch(FIRST)),
            spawn(&toy, |toy| {
                assert_eq!(toy.remove(FIRST), Some(10));
            }),
        ];
        let guard = pin();
        toy.map.start_growth(&guard);
        drop(guard);
        assert_eq!(finish(toy, threads), []);
    });
}
