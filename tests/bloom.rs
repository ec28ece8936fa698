//! Bloom filters through their public face.

use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use seawall::bloom::{
    AgeingFilter, Answer, BloomKey, Filter, FrozenFilter, Plan, Rebuild, RebuildError,
    RebuildingFilter, SizeError, SnapshotError, classic, hash_bytes, plan, plan_for_bytes,
};

/// Smaller where every instruction is interpreted.
const fn scaled(n: u64) -> u64 {
    if cfg!(miri) { n / 50 } else { n }
}

fn sized(items: u64, rate: f64) -> Plan {
    plan(items, rate).unwrap()
}

fn filled(items: u64, rate: f64, seed: u64) -> Filter {
    let filter = Filter::with_seed(&sized(items, rate), seed).unwrap();
    for key in 0..items {
        filter.insert(&key);
    }
    filter
}

/// The share of absent keys that are let through. `filled` uses keys far below these.
fn measured(filter: &Filter, queries: u64) -> f64 {
    let first = 1 << 40;
    let maybe = (first..first + queries).filter(|key| filter.contains(key)).count();
    maybe as f64 / queries as f64
}

#[track_caller]
fn near(measured: f64, expected: f64, tolerance: f64) {
    let off = measured / expected - 1.0;
    assert!(off.abs() <= tolerance, "{measured} for {expected}: off by {:.1} %", off * 100.0);
}

mod keys {
    use super::*;

    #[test]
    fn the_hash_is_xxh3() {
        assert_eq!(hash_bytes(b"", 0), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
        assert_ne!(hash_bytes(b"", 0), hash_bytes(b"", 1));
    }

    #[test]
    fn the_bytes_of_each_kind_of_key_are_as_documented() {
        let same = |key: &dyn Fn(u64) -> u128, bytes: &[u8]| {
            assert_eq!(key(7), hash_bytes(bytes, 7));
        };
        same(&|seed| "käse".bloom_hash(seed), "käse".as_bytes());
        same(&|seed| String::from("a").bloom_hash(seed), b"a");
        same(&|seed| [1u8, 2].as_slice().bloom_hash(seed), &[1, 2]);
        same(&|seed| [1u8, 2].bloom_hash(seed), &[1, 2]);
        same(&|seed| vec![1u8, 2].bloom_hash(seed), &[1, 2]);
        same(&|seed| 0x0102_u16.bloom_hash(seed), &[2, 1]);
        same(&|seed| (-2_i32).bloom_hash(seed), &[0xfe, 0xff, 0xff, 0xff]);
        same(&|seed| 1_u128.bloom_hash(seed), &1_u128.to_le_bytes());
        same(&|seed| 3_usize.bloom_hash(seed), &[3, 0, 0, 0, 0, 0, 0, 0]);
        same(&|seed| (-1_isize).bloom_hash(seed), &[0xff; 8]);
        same(&|seed| 'b'.bloom_hash(seed), &[98, 0, 0, 0]);
        same(&|seed| true.bloom_hash(seed), &[1]);
        let address: std::net::IpAddr = "1.2.3.4".parse().unwrap();
        same(&|seed| address.bloom_hash(seed), &[1, 2, 3, 4]);
        same(&|seed| std::sync::Arc::new(Box::new("a")).bloom_hash(seed), b"a");
        same(&|seed| std::borrow::Cow::Borrowed("a").bloom_hash(seed), b"a");
    }

    #[test]
    fn the_border_between_elements_of_a_tuple_counts() {
        assert_ne!(("a", "bc").bloom_hash(0), ("ab", "c").bloom_hash(0));
        let mut both = 1u32.bloom_hash(5).to_le_bytes().to_vec();
        both.extend("a".bloom_hash(5).to_le_bytes());
        assert_eq!((1u32, "a").bloom_hash(5), hash_bytes(&both, 5));
    }
}

mod sizes {
    use super::*;

    #[test]
    fn the_classic_formula_gives_its_well_known_answer() {
        let classic = classic(1_000_000, 0.01).unwrap();
        assert_eq!((classic.bits, classic.hashes), (9_585_059.0, 7));
        assert_eq!(sized(1_000_000, 0.01).classic(), classic);
    }

    #[test]
    fn one_percent_needs_ten_point_one_bits_a_key() {
        for (rate, bits) in [(0.05, 7.05), (0.01, 10.10), (0.001, 15.72), (0.0001, 23.61)] {
            let plan = sized(1_000_000, rate);
            assert!((plan.bits_per_key() - bits).abs() < 0.01, "{}", plan.bits_per_key());
            assert_eq!(plan.bytes() as f64 * 8.0 / 1e6, plan.bits_per_key());
            assert_eq!((plan.items(), plan.hashes()), (1_000_000, 8));
            near(plan.rate(), rate, 1e-3);
        }
    }

    #[test]
    fn the_rate_beyond_the_plan_is_known() {
        let plan = sized(1_000_000, 0.01);
        let at = |share: f64| plan.rate_at((share * 1e6) as u64);
        for (share, rate) in [(1.25, 0.028), (1.5, 0.060), (2.0, 0.167), (3.0, 0.46)] {
            near(at(share), rate, 0.02);
        }
    }

    #[test]
    fn bytes_give_the_rate_that_they_are_enough_for() {
        let there = sized(1_000_000, 0.01);
        let back = plan_for_bytes(1_000_000, there.bytes() + 63).unwrap();
        assert_eq!((back.blocks(), back.rate()), (there.blocks(), there.rate()));
        let too_few = plan_for_bytes(1_000_000, 64);
        let Err(SizeError::TooSmall { bytes: 64, needed }) = too_few else { panic!("{too_few:?}") };
        assert!(plan_for_bytes(1_000_000, needed).unwrap().rate() <= 0.5);
        assert!(plan_for_bytes(1_000_000, needed - 1).is_err());
        assert!(plan_for_bytes(1, 0).is_err());
        assert_eq!(plan_for_bytes(0, 64), Err(SizeError::NoItems));
        assert_eq!(plan_for_bytes(1, usize::MAX), Err(SizeError::TooLarge));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(plan(0, 0.5).unwrap_err().to_string(), SizeError::NoItems.to_string());
        assert!(plan(1, 2.5).unwrap_err().to_string().contains("2.5"));
        assert_eq!(plan(u64::MAX, 0.001), Err(SizeError::TooLarge));
        let no_memory = Filter::new(&sized(1 << 58, 0.5)).unwrap_err();
        assert!(matches!(no_memory, SizeError::OutOfMemory { .. }), "{no_memory:?}");
    }

    #[test]
    fn blo_01_nonsense_is_refused_and_extremes_work() {
        for rate in [-1.0, -0.0, 0.0, 1.0, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for items in [1, 1_000, u64::MAX] {
                let refused = plan(items, rate).unwrap_err();
                assert!(matches!(refused, SizeError::Rate(_)), "{rate}: {refused:?}");
            }
        }
        for rate in [1e-300, 0.5, 0.999] {
            assert_eq!(plan(0, rate), Err(SizeError::NoItems));
            for items in [1, u64::MAX] {
                // Only what the machine cannot hold may be refused.
                match plan(items, rate).and_then(|plan| Filter::new(&plan)) {
                    Ok(filter) => ten_keys_are_found(&filter),
                    Err(SizeError::TooLarge | SizeError::OutOfMemory { .. }) => {
                        assert!(rate == 1e-300 || items == u64::MAX);
                    }
                    Err(other) => panic!("{items} {rate}: {other:?}"),
                }
            }
        }
    }

    fn ten_keys_are_found(filter: &Filter) {
        for key in 0..10u64 {
            filter.insert(&key);
            assert!(filter.contains(&key));
        }
    }
}

mod rates {
    use super::*;

    /// Over several filters where one is too small to have a typical rate.
    fn check(items: u64, rate: f64, filters: u64, queries: u64) {
        let (mut by_queries, mut by_bits) = (0.0, 0.0);
        for seed in 0..filters {
            let filter = filled(items, rate, seed);
            by_queries += measured(&filter, queries) / filters as f64;
            by_bits += filter.false_positive_rate() / filters as f64;
        }
        let planned = sized(items, rate).rate();
        near(by_queries, planned, 0.1);
        near(by_bits, planned, if items < 10_000 { 0.1 } else { 0.03 });
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics need many keys")]
    fn a_thousand_keys() {
        for (rate, queries) in [(0.05, 2_000), (0.01, 5_000), (0.001, 20_000)] {
            check(1_000, rate, 100, queries);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics need many keys")]
    fn a_hundred_thousand_keys() {
        for (rate, queries) in [(0.05, 50_000), (0.01, 200_000), (0.001, 1_500_000)] {
            check(100_000, rate, 1, queries);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics need many keys")]
    fn a_million_keys() {
        for (rate, queries) in [(0.05, 50_000), (0.01, 200_000), (0.001, 1_500_000)] {
            check(1_000_000, rate, 1, queries);
        }
    }

    #[test]
    #[ignore = "ten million keys: a minute without optimisation"]
    fn ten_million_keys() {
        for (rate, queries) in [(0.05, 1_000_000), (0.01, 2_000_000), (0.001, 10_000_000)] {
            check(10_000_000, rate, 1, queries);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics need many keys")]
    fn blo_03_a_filter_beyond_its_plan_says_so() {
        let filter = Filter::new(&sized(10_000, 0.01)).unwrap();
        let mut inserted = 0;
        for items in [10_000u64, 12_000, 14_000, 40_000, 160_000] {
            for key in inserted..items {
                filter.insert(&key);
            }
            inserted = items;
            let rate = measured(&filter, 50_000);
            near(rate, sized(10_000, 0.01).rate_at(items), 0.1);
            assert_eq!(filter.is_overfull(), items > 12_500, "{items}");
            assert!(filter.is_overfull() || rate < 0.025, "{items}: {rate}");
        }
        filter.clear();
        assert!(!filter.is_overfull());
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics need many keys")]
    fn the_number_of_keys_is_estimated_from_the_bits() {
        for items in [1u64, 100, 10_000, 300_000] {
            let filter = Filter::new(&sized(100_000, 0.01)).unwrap();
            for key in 0..items {
                filter.insert(&key);
            }
            let off = filter.estimated_items().abs_diff(items);
            assert!(off <= 2 + items / 100, "{off} of {items}");
        }
        let full = Filter::new(&sized(1, 0.5)).unwrap();
        (0..10_000u32).for_each(|key| {
            full.insert(&key);
        });
        assert_eq!((full.fill_ratio(), full.false_positive_rate()), (1.0, 1.0));
        assert!(full.estimated_items() > 100);
    }
}

mod filter {
    use super::*;

    /// The derivation of a key's bits as the documentation has it, and the snapshot to see them in.
    #[test]
    fn a_key_sets_the_documented_bits() {
        let filter = Filter::with_seed(&sized(10_000, 0.01), 42).unwrap();
        filter.insert("key");
        let bytes = filter.to_bytes();
        let hash = hash_bytes(b"key", 42);
        let (high, low) = ((hash >> 64) as u64, hash as u64);
        let block = ((u128::from(high) * filter.blocks() as u128) >> 64) as usize;
        let mut expected = vec![0u8; filter.bytes()];
        for word in 0..8 {
            let bit = (low >> (6 * word)) & 63;
            expected[block * 64 + word * 8 + bit as usize / 8] |= 1 << (bit % 8);
        }
        assert_eq!(bytes[64..bytes.len() - 8], expected);
        assert_eq!(&bytes[..16], b"\x89SWBLOOM\x01\0\0\0\x01\x08\x06\0");
        assert_eq!(bytes[16..24], 42u64.to_le_bytes());
        assert_eq!(bytes[24..32], (filter.blocks() as u64).to_le_bytes());
        assert_eq!(bytes[32..40], 10_000u64.to_le_bytes());
        assert_eq!(bytes[40..64], [0; 24]);
    }

    #[test]
    fn an_insert_tells_whether_the_key_was_new() {
        let filter = Filter::new(&sized(100, 0.001)).unwrap();
        assert!(filter.insert("a") && !filter.insert("a") && filter.insert("b"));
        let hash = filter.hash("a");
        assert!(filter.contains_hash(hash) && !filter.insert_hash(hash));
        assert!(!filter.contains("c"));
        filter.clear();
        assert!(!filter.contains("a") && filter.insert("a"));
    }

    #[test]
    fn many_are_answered_as_one_by_one() {
        let filter = filled(scaled(2_000), 0.05, 3);
        for len in [0, 1, 31, 32, 33, 100, 1_000] {
            let keys: Vec<u64> = (0..len).map(|i| i * 37 % 5_000).collect();
            let single: Vec<bool> = keys.iter().map(|key| filter.contains(key)).collect();
            assert_eq!(filter.contains_many(&keys), single);
            let mut with = Vec::new();
            filter.contains_many_with(&keys, |i, answer| {
                assert_eq!(i, with.len());
                with.push(answer);
            });
            assert_eq!(with, single);
        }
    }

    #[test]
    fn a_union_has_the_keys_of_both() {
        let plan = sized(1_000, 0.01);
        let (ours, theirs) = (Filter::new(&plan).unwrap(), Filter::new(&plan).unwrap());
        (0..500u64).for_each(|key| {
            ours.insert(&key);
        });
        (300..1_000u64).for_each(|key| {
            theirs.insert(&key);
        });
        ours.union_with(&theirs).unwrap();
        assert!((0..1_000u64).all(|key| ours.contains(&key)));
        assert!((950..1_050).contains(&ours.estimated_items()));
        assert!(!ours.is_overfull());

        let larger = Filter::new(&sized(2_000, 0.01)).unwrap();
        let error = ours.union_with(&larger).unwrap_err();
        assert_eq!(error.blocks, (ours.blocks(), larger.blocks()));
        let other_seed = Filter::with_seed(&plan, 1).unwrap();
        assert_eq!(ours.union_with(&other_seed).unwrap_err().seeds, (0, 1));
    }

    #[test]
    fn concurrent_inserts_lose_nothing() {
        let (threads, each) = (4, scaled(20_000));
        let filter = Filter::new(&sized(threads * each, 0.01)).unwrap();
        thread::scope(|scope| {
            for thread in 0..threads {
                let filter = &filter;
                scope.spawn(move || {
                    for key in 0..each {
                        // Every other key is inserted by two threads.
                        let key = (thread + key % 2) % threads * each + key;
                        filter.insert(&key);
                        assert!(filter.contains(&key));
                    }
                });
            }
        });
        for thread in 0..threads {
            let inserted = |key: u64| (thread + key % 2) % threads * each + key;
            assert!((0..each).all(|key| filter.contains(&inserted(key))));
        }
    }

    #[test]
    fn a_random_history_never_denies_a_key() {
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..scaled(100) {
            let plan = sized(random.random_range(1..300), random.random_range(0.001..0.9));
            let mut filter = Filter::with_seed(&plan, random.random()).unwrap();
            let mut model = HashSet::new();
            for _ in 0..random.random_range(0..600) {
                let key: u16 = random.random_range(0..500);
                match random.random_range(0..100) {
                    0 => (filter.clear(), model.clear()).0,
                    1 => filter = filter.clone(),
                    2 => filter = Filter::from_bytes(&filter.to_bytes()).unwrap(),
                    _ => {
                        let new = filter.insert(&key);
                        assert!(!new || !model.contains(&key));
                        model.insert(key);
                    }
                }
            }
            assert!(model.iter().all(|key| filter.contains(key)));
        }
    }
}

mod snapshots {
    use super::*;

    fn saved() -> Vec<u8> {
        filled(50, 0.01, 9).to_bytes()
    }

    fn refused(bytes: &[u8]) -> SnapshotError {
        // Both ways in refuse what either does.
        assert!(Filter::read_from(&mut { bytes }).is_err() || bytes.len() > saved().len());
        Filter::from_bytes(bytes).unwrap_err()
    }

    #[test]
    fn blo_07_a_restored_filter_has_all_its_members() {
        for items in [1, 64, 1_000, scaled(30_000)] {
            for (rate, seed) in [(0.5, 0), (0.01, 1), (0.001, u64::MAX)] {
                let filter = filled(items, rate, seed);
                let bytes = filter.to_bytes();
                let mut written = Vec::new();
                filter.write_to(&mut written).unwrap();
                assert_eq!(bytes, written);
                let restored = Filter::from_bytes(&bytes).unwrap();
                let streamed = Filter::read_from(&mut bytes.as_slice()).unwrap();
                for copy in [restored, streamed, filter.clone()] {
                    assert!((0..items).all(|key| copy.contains(&key)));
                    assert_eq!(copy.to_bytes(), bytes);
                    assert_eq!((copy.seed(), copy.items()), (seed, items));
                    assert_eq!(copy.is_overfull(), filter.is_overfull());
                }
                for len in [0, 7, 8, 63, 64, bytes.len() / 2, bytes.len() - 1] {
                    let cut = Filter::from_bytes(&bytes[..len]).unwrap_err();
                    assert!(matches!(cut, SnapshotError::Truncated { .. }), "{len}: {cut:?}");
                }
            }
        }
    }

    #[test]
    fn blo_07_bad_data_is_refused() {
        let good = saved();
        for byte in 0..good.len() {
            let mut bad = good.clone();
            bad[byte] ^= 0x10;
            let error = refused(&bad);
            let right = match byte {
                0..8 => error == SnapshotError::Foreign,
                8..12 => matches!(error, SnapshotError::Version(_)),
                12..16 | 40..64 => error == SnapshotError::Header,
                24..32 => !matches!(error, SnapshotError::Foreign | SnapshotError::Checksum),
                _ => error == SnapshotError::Checksum,
            };
            assert!(right, "byte {byte}: {error:?}");
        }
        let mut long = good.clone();
        long.push(0);
        assert!(matches!(refused(&long), SnapshotError::TooLong { .. }));
        assert_eq!(refused(b"PNG and so on"), SnapshotError::Foreign);
    }

    #[test]
    fn a_length_that_is_only_claimed_is_not_allocated() {
        for blocks in [0, 1 << 40, 1 << 57, u64::MAX / 64, u64::MAX] {
            let mut bytes = saved();
            bytes[24..32].copy_from_slice(&blocks.to_le_bytes());
            let error = refused(&bytes);
            assert!(
                matches!(error, SnapshotError::Header | SnapshotError::Truncated { .. }),
                "{blocks}: {error:?}"
            );
        }
    }

    #[test]
    fn a_stream_may_go_on_after_a_filter() {
        let mut two = saved();
        two.extend(saved());
        let mut from = two.as_slice();
        for _ in 0..2 {
            assert!(Filter::read_from(&mut from).unwrap().contains(&49u64));
        }
        let end = Filter::read_from(&mut from).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        two[80] ^= 1;
        let bad = Filter::read_from(&mut two.as_slice()).unwrap_err();
        assert_eq!(bad.kind(), io::ErrorKind::InvalidData);
        let inner = bad.get_ref().and_then(|error| error.downcast_ref());
        assert_eq!(inner, Some(&SnapshotError::Checksum));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_has_the_same_bytes() {
        let filter = filled(100, 0.01, 3);
        let json = serde_json::to_string(&filter).unwrap();
        assert_eq!(json, serde_json::to_string(&filter.to_bytes()).unwrap());
        let back: Filter = serde_json::from_str(&json).unwrap();
        assert_eq!(back.to_bytes(), filter.to_bytes());
        assert!(serde_json::from_str::<Filter>("[1,2,3]").is_err());
        assert!(serde_json::from_str::<Filter>("7").is_err());
    }
}

#[path = "bloom/frozen.rs"]
mod frozen;

mod rebuilding {
    use super::*;

    fn screen(items: u64) -> RebuildingFilter {
        RebuildingFilter::new(&sized(items, 0.01)).unwrap()
    }

    fn feed(rebuild: &Rebuild<'_>, keys: impl IntoIterator<Item = u64>) {
        for key in keys {
            rebuild.insert(&key);
        }
    }

    #[test]
    fn nothing_is_absent_before_the_filter_is_complete() {
        let filter = screen(100);
        assert!(!filter.is_complete());
        assert_eq!(filter.check("a"), Answer::Unsure);
        assert!(filter.insert("a"));
        assert_eq!(filter.check("a"), Answer::Maybe);
        filter.mark_complete();
        assert_eq!((filter.check("a"), filter.check("b")), (Answer::Maybe, Answer::Absent));
        filter.mark_suspect();
        assert_eq!((filter.check("a"), filter.check("b")), (Answer::Maybe, Answer::Unsure));
        assert!(Answer::Unsure.lets_through() && Answer::Maybe.lets_through());
        assert!(!Answer::Absent.lets_through());
    }

    #[test]
    fn a_rebuild_forgets_what_the_source_has_no_more() {
        let filter = screen(100);
        filter.insert(&1u64);
        let rebuild = filter.rebuild(&sized(100, 0.01)).unwrap();
        assert!(filter.is_rebuilding());
        feed(&rebuild, 2..10);
        assert_eq!(filter.check(&2u64), Answer::Unsure, "the old one serves");
        filter.insert(&20u64);
        rebuild.finish();
        assert!(filter.is_complete() && !filter.is_rebuilding());
        assert_eq!(filter.check(&1u64), Answer::Absent);
        assert!((2..10).chain([20]).all(|key: u64| filter.check(&key) == Answer::Maybe));
    }

    #[test]
    fn blo_05_a_new_key_of_the_source_is_seen() {
        let filter = screen(100);
        filter.rebuild(&sized(100, 0.01)).unwrap().finish();
        assert_eq!(filter.check("k"), Answer::Absent);
        assert_eq!(filter.check("l"), Answer::Absent);
        // Announced: at once.
        filter.insert("k");
        assert_eq!(filter.check("k"), Answer::Maybe);
        // Not announced: with the next rebuild.
        let rebuild = filter.rebuild(&sized(100, 0.01)).unwrap();
        rebuild.insert("k");
        rebuild.insert("l");
        rebuild.finish();
        assert_eq!((filter.check("k"), filter.check("l")), (Answer::Maybe, Answer::Maybe));
    }

    #[test]
    fn only_one_rebuild_goes_on_at_a_time() {
        let filter = screen(100);
        let plan = sized(100, 0.01);
        let first = filter.rebuild(&plan).unwrap();
        assert_eq!(filter.rebuild(&plan).err(), Some(RebuildError::InProgress));
        drop(first);
        filter.rebuild(&plan).unwrap().finish();
        filter.rebuild(&plan).unwrap().finish();
    }

    #[test]
    fn an_abandoned_rebuild_leaves_the_old_one_serving() {
        let filter = screen(100);
        filter.mark_complete();
        filter.insert(&1u64);
        let fail = |how: &dyn Fn()| {
            let outcome = catch_unwind(AssertUnwindSafe(|| -> Result<(), io::Error> {
                let rebuild = filter.rebuild(&sized(100, 0.01)).unwrap();
                feed(&rebuild, 50..60);
                filter.insert(&2u64);
                how();
                Err(io::Error::other("the source failed"))
            }));
            assert!(!matches!(outcome, Ok(Ok(()))));
            assert!(!filter.is_rebuilding() && filter.is_complete());
            assert_eq!((filter.check(&1u64), filter.check(&2u64)), (Answer::Maybe, Answer::Maybe));
            assert_eq!(filter.check(&50u64), Answer::Absent);
        };
        fail(&|| ());
        fail(&|| std::panic::resume_unwind(Box::new("the source panicked")));
        // What was fed to an abandoned generation is not in the next one.
        filter.rebuild(&sized(100, 0.01)).unwrap().finish();
        assert_eq!(filter.check(&50u64), Answer::Absent);
    }

    #[test]
    fn a_size_that_cannot_be_had_is_refused_and_changes_nothing() {
        let filter = screen(100);
        filter.insert(&1u64);
        let error = filter.rebuild(&sized(1 << 58, 0.5)).unwrap_err();
        assert!(matches!(error, RebuildError::Size(SizeError::OutOfMemory { .. })), "{error:?}");
        assert!(error.source().is_some());
        assert_eq!(filter.check(&1u64), Answer::Maybe);
        filter.rebuild(&sized(100, 0.01)).unwrap().finish();
    }

    #[test]
    fn a_mark_is_taken_back_only_by_a_rebuild_that_began_after_it() {
        let filter = screen(100);
        let rebuild = filter.rebuild(&sized(100, 0.01)).unwrap();
        filter.mark_suspect();
        rebuild.finish();
        assert_eq!(filter.check("a"), Answer::Unsure);
        filter.rebuild(&sized(100, 0.01)).unwrap().finish();
        assert_eq!(filter.check("a"), Answer::Absent);
    }

    #[test]
    fn an_overfull_filter_is_unsure_of_what_it_has_and_sure_of_what_it_has_not() {
        let filter = screen(1_000);
        filter.mark_complete();
        (0..3_000u64).for_each(|key| {
            filter.insert(&key);
        });
        assert!(filter.is_overfull());
        assert!((0..3_000u64).all(|key| filter.check(&key) == Answer::Unsure));
        let absent = (1u64 << 40..(1 << 40) + 1_000).filter(|k| filter.check(k) == Answer::Absent);
        assert!(absent.count() > 400);
        // A larger generation.
        let rebuild = filter.rebuild(&sized(3_000, 0.01)).unwrap();
        feed(&rebuild, 0..3_000);
        assert!(!rebuild.is_overfull());
        rebuild.finish();
        assert!((0..3_000u64).all(|key| filter.check(&key) == Answer::Maybe));
    }

    #[test]
    fn many_are_checked_as_one_by_one() {
        let filter = screen(1_000);
        filter.mark_complete();
        (0..500u64).for_each(|key| {
            filter.insert(&key);
        });
        let keys: Vec<u64> = (0..100).map(|i| i * 10).collect();
        let mut answers = Vec::new();
        filter.check_many_with(&keys, |i, answer| {
            assert_eq!(i, answers.len());
            answers.push(answer);
        });
        assert!(
            answers.iter().eq(keys.iter().map(|key| filter.check(key)).collect::<Vec<_>>().iter())
        );
        assert_eq!(answers.len(), 100);
    }

    #[test]
    fn a_restored_screen_is_incomplete_until_it_has_caught_up() {
        let filter = screen(100);
        filter.mark_complete();
        filter.insert("old");
        let saved = filter.to_filter().to_bytes();
        let restored = RebuildingFilter::from_filter(Filter::from_bytes(&saved).unwrap());
        assert_eq!((restored.check("old"), restored.check("new")), (Answer::Maybe, Answer::Unsure));
        restored.insert("new");
        restored.mark_complete();
        assert_eq!((restored.check("new"), restored.check("no")), (Answer::Maybe, Answer::Absent));
    }

    #[test]
    fn two_generations_of_memory_are_enough() {
        let filter = screen(10_000);
        let one = filter.bytes();
        for _ in 0..5 {
            filter.rebuild(&sized(10_000, 0.01)).unwrap().finish();
        }
        assert_eq!(filter.bytes(), 2 * one);
    }

    /// Writers insert into a set and then the filter; rebuilds read the set; readers ask for what writers
    /// have told them of.
    #[test]
    fn an_acknowledged_key_is_never_denied_while_the_filter_is_rebuilt() {
        let keys = scaled(40_000);
        let filter = screen(2 * keys);
        filter.mark_complete();
        let source = std::sync::Mutex::new(Vec::new());
        let told = [const { AtomicU64::new(0) }; 2];
        let (start, done) = (Barrier::new(5), AtomicBool::new(false));
        thread::scope(|scope| {
            let writers: Vec<_> = (0..2u64)
                .map(|writer| {
                    let (filter, source, told, start) = (&filter, &source, &told, &start);
                    scope.spawn(move || {
                        start.wait();
                        for i in 1..=keys {
                            source.lock().unwrap().push(i * 2 + writer);
                            filter.insert(&(i * 2 + writer));
                            told[writer as usize].store(i, Ordering::Release);
                        }
                    })
                })
                .collect();
            for writer in 0..2u64 {
                let (filter, told, start, done) = (&filter, &told, &start, &done);
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(writer);
                    start.wait();
                    while !done.load(Ordering::Relaxed) {
                        let last = told[writer as usize].load(Ordering::Acquire);
                        for i in [last, random.random_range(0..=last)] {
                            let answer = filter.check(&(i * 2 + writer));
                            assert!(i == 0 || answer == Answer::Maybe, "{i}: {answer:?}");
                        }
                    }
                });
            }
            start.wait();
            let mut finished = 0;
            while finished < 3 || writers.iter().any(|writer| !writer.is_finished()) {
                let rebuild = filter.rebuild(&sized(2 * keys, 0.01)).unwrap();
                let copy = source.lock().unwrap().clone();
                feed(&rebuild, copy);
                if finished % 3 == 1 {
                    drop(rebuild);
                } else {
                    rebuild.finish();
                }
                finished += 1;
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!((2..=2 * keys + 1).all(|key| filter.check(&key) == Answer::Maybe));
    }
}

mod ageing {
    use super::*;

    #[test]
    fn a_key_is_forgotten_after_two_rotations() {
        let filter = AgeingFilter::with_seed(&sized(1_000, 0.001), 5).unwrap();
        let size = filter.bytes();
        for round in 0..6 {
            let key = |i: u64| round * 100 + i;
            (0..100).for_each(|i| {
                filter.insert(&key(i));
            });
            if round > 0 {
                assert!((0..100).all(|i| filter.contains(&(key(i) - 100))), "the period before");
            }
            if round > 1 {
                let left = (0..100).filter(|i| filter.contains(&(key(*i) - 200))).count();
                assert!(left < 5, "{left} of the period before that");
            }
            assert!(filter.rotate());
        }
        assert_eq!(filter.bytes(), size);
    }

    #[test]
    fn a_key_that_is_inserted_again_is_remembered_anew() {
        let filter = AgeingFilter::new(&sized(100, 0.01)).unwrap();
        for _ in 0..5 {
            assert!(filter.insert("a"), "new in this generation");
            assert!(!filter.insert("a"));
            filter.rotate();
            assert!(filter.contains("a"));
        }
        filter.rotate();
        assert!(!filter.contains("a"));
    }

    #[test]
    fn an_overfull_generation_asks_for_a_rotation() {
        let filter = AgeingFilter::new(&sized(1_000, 0.01)).unwrap();
        (0..900u64).for_each(|key| {
            filter.insert(&key);
        });
        assert!(!filter.is_overfull());
        (900..1_500u64).for_each(|key| {
            filter.insert(&key);
        });
        assert!(filter.is_overfull());
        filter.rotate();
        assert!(!filter.is_overfull());
    }

    #[test]
    fn rotations_and_inserts_at_once_lose_nothing_of_the_last_period() {
        let filter = AgeingFilter::new(&sized(1_000, 0.01)).unwrap();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..3u64)
                .map(|worker| {
                    let filter = &filter;
                    scope.spawn(move || {
                        for i in 0..scaled(20_000) {
                            // May be rotated out between the two only by two rotations.
                            let key = i * 3 + worker;
                            filter.insert(&key);
                            filter.insert(&0u64);
                        }
                    })
                })
                .collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                filter.rotate();
                filter.insert("mine");
                assert!(filter.contains("mine"));
                filter.rotate();
                assert!(filter.contains("mine"));
            }
        });
    }
}

#[test]
fn filters_are_shared_and_sent() {
    fn check<T: Send + Sync + std::fmt::Debug>() {}
    check::<Filter>();
    check::<RebuildingFilter>();
    check::<Rebuild<'_>>();
    check::<AgeingFilter>();
    check::<FrozenFilter>();
    check::<SnapshotError>();
    check::<RebuildError>();
}
