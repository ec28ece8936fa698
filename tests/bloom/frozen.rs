//! Frozen filters: the same answers, bit for bit.

use super::*;

/// Compares answers for hashes; returns how many were *maybe*.
fn compare(filter: &Filter, frozen: &FrozenFilter, hashes: impl IntoIterator<Item = u128>) -> u64 {
    let mut maybe = 0;
    for hash in hashes {
        let expected = filter.contains_hash(hash);
        assert_eq!(frozen.contains_hash(hash), expected, "{hash:#034x}");
        maybe += u64::from(expected);
    }
    maybe
}

#[test]
fn a_frozen_filter_answers_as_the_filter_did() {
    let mut random = SmallRng::seed_from_u64(20);
    for items in [1, 2, 10, 64, 1_000, scaled(50_000)] {
        // At the largest rate, half of the random hashes are let through, where a block has its share.
        for (rate, seed) in [(0.5, 0), (0.05, 1), (0.001, u64::MAX)] {
            let filter = filled(items, rate, seed);
            let frozen = filter.clone().freeze();
            assert_eq!(frozen.bytes(), filter.bytes());
            assert_eq!((frozen.blocks(), frozen.items()), (filter.blocks(), filter.items()));
            assert_eq!(frozen.seed(), filter.seed());
            let members = compare(&filter, &frozen, (0..items).map(|key| filter.hash(&key)));
            assert_eq!(members, items);
            let queries = scaled(5_000);
            let maybe = compare(&filter, &frozen, (0..queries).map(|_| random.random()));
            assert!(maybe < queries, "{items} {rate}: the queries are of present keys only");
            assert!(maybe > 0 || rate < 0.5 || items < 1_000, "{items}: of absent keys only");
        }
    }
}

/// Only the key's own bit of each word will do, and the bits of the hash that choose none do not matter.
#[test]
fn each_bit_of_each_word_counts() {
    let mut random = SmallRng::seed_from_u64(21);
    for _ in 0..scaled(100) {
        let filter = Filter::new(&sized(1, 0.5)).unwrap();
        let hash: u128 = random.random();
        filter.insert_hash(hash);
        let frozen = filter.freeze();
        for word in 0..8 {
            for bit in 0..64 {
                let other = hash & !(63 << (6 * word)) | bit << (6 * word);
                assert_eq!(frozen.contains_hash(other), other == hash, "word {word}, bit {bit}");
            }
        }
        for unused in 48..64 {
            assert!(frozen.contains_hash(hash ^ 1 << unused));
        }
    }
}

#[test]
fn many_are_answered_as_by_the_filter() {
    let filter = filled(scaled(2_000), 0.05, 3);
    let frozen = filter.clone().freeze();
    for len in [0, 1, 31, 32, 33, 64, 100, 1_000] {
        let keys: Vec<u64> = (0..len).map(|i| i * 37 % 5_000).collect();
        let single: Vec<bool> = keys.iter().map(|key| filter.contains(key)).collect();
        assert_eq!(frozen.contains_many(&keys), single);
        assert_eq!(frozen.contains_many(keys.iter().filter(|_| true)), single);
        let mut with = Vec::new();
        frozen.contains_many_with(&keys, |i, answer| {
            assert_eq!(i, with.len());
            with.push(answer);
        });
        assert_eq!(with, single);
    }
    assert_eq!(frozen.contains_many(["a", "b"]), ["a", "b"].map(|key| filter.contains(key)));
}

#[test]
fn a_thawed_filter_is_the_filter_and_takes_inserts() {
    let filter = filled(100, 0.01, 5);
    (100..140u64).for_each(|key| {
        filter.insert(&key);
    });
    let thawed = filter.clone().freeze().thaw();
    assert_eq!(thawed.to_bytes(), filter.to_bytes());
    assert!(filter.is_overfull() && thawed.is_overfull());
    assert!(thawed.insert("new") && thawed.freeze().contains("new"));
}

#[test]
fn a_snapshot_is_that_of_the_filter() {
    for items in [1, 64, 1_000, scaled(30_000)] {
        let bytes = filled(items, 0.01, 9).to_bytes();
        let frozen = FrozenFilter::from_bytes(&bytes).unwrap();
        let mut from = bytes.as_slice();
        let streamed = FrozenFilter::read_from(&mut from).unwrap();
        assert!(from.is_empty());
        for copy in [&frozen, &streamed, &frozen.clone()] {
            assert!((0..items).all(|key| copy.contains(&key)));
            assert_eq!((copy.seed(), copy.items()), (9, items));
            assert_eq!(copy.to_bytes(), bytes);
            let mut written = Vec::new();
            copy.write_to(&mut written).unwrap();
            assert_eq!(written, bytes);
        }
    }
}

#[test]
fn bad_data_is_refused_as_by_the_filter() {
    let good = filled(50, 0.01, 9).to_bytes();
    let check = |bytes: &[u8]| {
        let refused = FrozenFilter::from_bytes(bytes).unwrap_err();
        assert_eq!(refused, Filter::from_bytes(bytes).unwrap_err());
    };
    for byte in 0..good.len() {
        let mut bad = good.clone();
        bad[byte] ^= 0x10;
        check(&bad);
        check(&good[..byte]);
        assert!(FrozenFilter::read_from(&mut &good[..byte]).is_err());
    }
    check(&[&good[..], &[0]].concat());
    for blocks in [0, 1 << 40, 1 << 57, u64::MAX / 64, u64::MAX] {
        let mut bad = good.clone();
        bad[24..32].copy_from_slice(&blocks.to_le_bytes());
        check(&bad);
        assert!(FrozenFilter::read_from(&mut bad.as_slice()).is_err());
    }
}
