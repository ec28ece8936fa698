//! LRU, MIN and the bound against slow and plain versions of them.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::args::Budget;
use crate::best::{self, Bound};
use crate::lru::Lru;
use crate::policy::{Policy, Run, Seawall, replay};
use crate::trace::Trace;
use crate::{sized, trace};

fn lru(trace: &Trace, budget: Budget) -> Run {
    replay(trace, || Ok::<_, Infallible>(Lru::new(budget))).unwrap()
}

fn seawall(trace: &Trace, budget: Budget) -> Run {
    replay(trace, || Seawall::new(budget)).unwrap()
}

fn min(trace: &Trace, capacity: u64) -> u64 {
    best::min(&best::next_uses(trace), capacity)
}

fn bound(trace: &Trace, budget: u64) -> Bound {
    best::bound(trace, &best::next_uses(trace), budget)
}

fn random_keys(random: &mut SmallRng, keys: u64, length: usize) -> Vec<u64> {
    (0..length).map(|_| random.random_range(0..keys).min(random.random_range(0..keys))).collect()
}

/// Requests for keys that mostly, but not always, have a size of their own.
fn random_sized(random: &mut SmallRng, keys: u64, length: usize) -> Vec<(u64, u64)> {
    let keys = random_keys(random, keys, length);
    let size = |key| if random.random_ratio(1, 5) { random.random_range(0..7) } else { key + 1 };
    let sizes: Vec<_> = keys.iter().copied().map(size).collect();
    keys.into_iter().zip(sizes).collect()
}

/// The most that can be hit, tried out: from each request on with every choice of what to keep.
fn try_all(requests: &[(u64, u64)], budget: u64, worth: fn(u64) -> u64) -> u64 {
    /// Keys that are held, with their weights.
    type Held = Vec<(u64, u64)>;

    fn keep_some(held: &Held, budget: u64) -> Vec<Held> {
        let subsets = 0..1_u32 << held.len();
        let subset = |set: u32| -> Held {
            let kept = held.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
            kept.map(|(_, entry)| *entry).collect()
        };
        let fits = |held: &Held| held.iter().map(|(_, weight)| weight).sum::<u64>() <= budget;
        subsets.map(subset).filter(fits).collect()
    }

    let mut states = HashMap::from([(Held::new(), 0)]);
    for &(key, size) in requests {
        let mut after: HashMap<Held, u64> = HashMap::new();
        for (mut held, mut hits) in states {
            if held.iter().any(|(other, _)| *other == key) {
                hits += worth(size);
            } else {
                held.push((key, size.max(1)));
                held.sort_unstable();
            }
            for kept in keep_some(&held, budget) {
                let best = after.entry(kept).or_default();
                *best = hits.max(*best);
            }
        }
        states = after;
    }
    states.into_values().max().unwrap()
}

/// Hits, bytes of them, evictions, and misses of what is too heavy.
fn counts(run: &Run) -> (u64, u128, u64, u64) {
    (run.hits, run.hit_bytes, run.evictions, run.too_heavy)
}

/// LRU as a list in which everything is searched for.
fn naive_lru(requests: &[(u64, u64)], budget: Budget) -> (u64, u128, u64, u64) {
    let (mut hits, mut bytes, mut evictions, mut too_heavy) = (0, 0, 0, 0);
    let mut list: Vec<(u64, u64)> = Vec::new();
    for &(key, size) in requests {
        if let Some(at) = list.iter().position(|(other, _)| *other == key) {
            hits += 1;
            bytes += u128::from(size);
            let entry = list.remove(at);
            list.push(entry);
            continue;
        }
        let weight = if matches!(budget, Budget::Bytes(_)) { size.max(1) } else { 1 };
        if weight > budget.amount() {
            too_heavy += 1;
            continue;
        }
        list.push((key, weight));
        while list.iter().map(|(_, weight)| weight).sum::<u64>() > budget.amount() {
            list.remove(0);
            evictions += 1;
        }
    }
    (hits, bytes, evictions, too_heavy)
}

#[test]
fn lru_does_as_a_plain_list_does() {
    let mut random = SmallRng::seed_from_u64(1);
    for _ in 0..300 {
        let keys = random.random_range(1..30);
        let requests = random_sized(&mut random, keys, 200);
        let trace = sized(requests.iter().copied());
        let budget = random.random_range(1..40);
        for budget in [Budget::Entries(budget), Budget::Bytes(budget)] {
            let run = lru(&trace, budget);
            assert_eq!(counts(&run), naive_lru(&requests, budget), "{budget:?} {requests:?}");
        }
    }
}

#[test]
fn min_is_the_best_of_all_choices() {
    let mut random = SmallRng::seed_from_u64(2);
    let mut seen = HashSet::new();
    for _ in 0..300 {
        let keys = random_keys(&mut random, 5, 12);
        let capacity = random.random_range(1..5);
        let requests: Vec<_> = keys.iter().map(|key| (*key, 1)).collect();
        let hits = min(&trace(keys.iter().copied()), capacity);
        assert_eq!(hits, try_all(&requests, capacity, |_| 1), "{capacity} {keys:?}");
        seen.insert(hits);
    }
    assert!(seen.len() > 4, "the traces differ: {seen:?}");
}

#[test]
fn the_bound_is_never_below_the_best_of_all_choices() {
    let mut random = SmallRng::seed_from_u64(3);
    let mut reached = 0;
    for _ in 0..150 {
        let requests = random_sized(&mut random, 4, 10);
        let budget = random.random_range(1..12);
        let bound = bound(&sized(requests.iter().copied()), budget);
        let (hits, bytes) =
            (try_all(&requests, budget, |_| 1), try_all(&requests, budget, |size| size));
        assert!(bound.hits >= hits, "{budget} {requests:?}");
        assert!(bound.bytes >= bytes.into(), "{budget} {requests:?}");
        reached += u32::from(bound.hits == hits);
    }
    // A bound that is far above would be of no use.
    assert!(reached > 50, "the best was the bound in {reached} of 150");
}

#[test]
fn nothing_is_above_the_best() {
    let mut random = SmallRng::seed_from_u64(4);
    for _ in 0..50 {
        let requests = random_sized(&mut random, 60, 2000);
        let trace = sized(requests.iter().copied());
        let amount = random.random_range(1..60);
        let best = min(&trace, amount);
        let bound = bound(&trace, amount);
        for budget in [Budget::Entries(amount), Budget::Bytes(amount)] {
            for run in [lru(&trace, budget), seawall(&trace, budget)] {
                if matches!(budget, Budget::Entries(_)) {
                    assert!(run.hits <= best, "{budget:?}: {} of {best}", run.hits);
                } else {
                    assert!(run.hits <= bound.hits, "{budget:?}: {} of {bound:?}", run.hits);
                    assert!(run.hit_bytes <= bound.bytes, "{budget:?}: {run:?} of {bound:?}");
                }
            }
        }
    }
}

#[test]
fn a_loop_that_is_longer_than_the_cache() {
    let trace = trace([1, 2, 3].into_iter().cycle().take(9));
    let run = lru(&trace, Budget::Entries(2));
    assert_eq!((run.hits, run.evictions), (0, 7));
    // Of three keys that come again, one has to go in each round.
    assert_eq!(min(&trace, 2), 4);
    assert_eq!(min(&trace, 1), 2);
    // 2 entries for 8 steps are 16; each of 6 stays takes 3 of them.
    assert_eq!(bound(&trace, 2), Bound { hits: 5, bytes: 5 });
}

#[test]
fn min_of_a_long_trace_is_that_of_a_plain_list() {
    let mut random = SmallRng::seed_from_u64(6);
    let trace = trace(random_keys(&mut random, 200, 20_000));
    let next = best::next_uses(&trace);
    for capacity in [1, 10, 100] {
        let mut hits = 0;
        let mut needed: Vec<u32> = Vec::new();
        for (now, &then) in next.iter().enumerate() {
            let held = needed.len();
            needed.retain(|position| *position as usize != now);
            hits += (held - needed.len()) as u64;
            if then != best::NEVER {
                needed.push(then);
                needed.sort_unstable();
                needed.truncate(capacity);
            }
        }
        assert_eq!(best::min(&next, capacity as u64), hits, "{capacity}");
    }
}

#[test]
fn all_hit_what_they_can_where_there_is_room() {
    let mut random = SmallRng::seed_from_u64(5);
    let requests = random_sized(&mut random, 500, 5000);
    let trace = sized(requests.iter().copied());
    let most = (trace.requests().len() - trace.distinct()) as u64;
    let bytes: u64 = requests.iter().map(|(_, size)| (*size).max(1)).sum();
    for budget in [Budget::Entries(500), Budget::Bytes(bytes)] {
        for run in [lru(&trace, budget), seawall(&trace, budget)] {
            assert_eq!((run.hits, run.evictions, run.too_heavy), (most, 0, 0), "{budget:?}");
        }
    }
    assert_eq!(min(&trace, 500), most);
    let bytes_of_hits = lru(&trace, Budget::Entries(500)).hit_bytes;
    assert_eq!(bound(&trace, bytes), Bound { hits: most, bytes: bytes_of_hits });
}

#[test]
fn what_is_too_heavy_is_a_miss_each_time() {
    let trace = sized([(1, 5), (2, 11), (1, 5), (2, 11), (1, 11)]);
    for run in [lru(&trace, Budget::Bytes(10)), seawall(&trace, Budget::Bytes(10))] {
        assert_eq!(counts(&run), (2, 5 + 11, 0, 2));
    }
    assert_eq!(bound(&trace, 10), Bound { hits: 2, bytes: 16 });
}

#[test]
fn the_heap_of_a_cache_is_counted() {
    let trace = trace(0..10_000);
    for run in [lru(&trace, Budget::Entries(10_000)), seawall(&trace, Budget::Entries(10_000))] {
        assert!(run.heap > 10_000 * 12 && run.heap < 10_000 * 200, "{}", run.heap);
    }
}

#[test]
fn sizes_beyond_all_measure_do_no_harm() {
    let trace = sized([(1, u64::MAX), (2, u64::MAX), (1, u64::MAX), (2, u64::MAX), (1, 0)]);
    let most = Bound { hits: 3, bytes: 2 * u128::from(u64::MAX) };
    let bound = bound(&trace, u64::MAX);
    assert!(bound.hits <= most.hits && bound.bytes <= most.bytes, "{bound:?}");
    let mut lru = Lru::new(Budget::Bytes(u64::MAX));
    assert!(lru.insert(1, u64::MAX) && lru.insert(2, u64::MAX));
    assert_eq!((lru.get(1), lru.get(2), lru.evictions()), (false, true, 1));
}
