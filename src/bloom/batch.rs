//! Queries in batches: the lines of a batch are on their way before the first is looked at.

use std::array;
use std::hint::black_box;

use super::block::index;
use super::key::BloomKey;

/// Keys in a batch.
pub(super) const AHEAD: usize = 32;

/// Looks up a batch: reads a word of each block first, by `touch`, and then asks each.
///
/// None of the first reads waits for another, so the lines come together: a prefetch without `unsafe`.
/// The addresses are kept: to compute them again costs more than to read them.
#[inline(always)]
pub(super) fn look_up<B>(
    blocks: &[B],
    hashes: &[u128],
    found: &mut [bool; AHEAD],
    touch: impl Fn(&B) -> u64,
    contains: impl Fn(&B, u64) -> bool,
) {
    let mut lines: [&B; AHEAD] = array::from_fn(|_| &blocks[0]);
    let mut sum = 0;
    for (line, &hash) in lines.iter_mut().zip(hashes) {
        *line = &blocks[index(hash, blocks.len())];
        sum |= touch(line);
    }
    // Else the reads would be optimised away.
    black_box(sum);
    for ((found, line), &hash) in found.iter_mut().zip(&lines).zip(hashes) {
        *found = contains(line, hash as u64);
    }
}

/// The answers for all keys, in their order.
pub(super) fn answers<'k, K: BloomKey + ?Sized + 'k>(
    keys: impl IntoIterator<Item = &'k K>,
    seed: u64,
    look_up: impl Fn(&[u128], &mut [bool; AHEAD]),
) -> Vec<bool> {
    let mut keys = keys.into_iter();
    let mut answers = Vec::new();
    let mut hashes = [0; AHEAD];
    let mut found = [false; AHEAD];
    loop {
        let mut len = 0;
        for (hash, key) in hashes.iter_mut().zip(keys.by_ref()) {
            *hash = key.bloom_hash(seed);
            len += 1;
        }
        look_up(&hashes[..len], &mut found);
        answers.extend_from_slice(&found[..len]);
        if len < AHEAD {
            return answers;
        }
    }
}

/// Hands out the position and the answer of each key, in their order.
#[inline]
pub(super) fn each_answer<K: BloomKey>(
    keys: &[K],
    seed: u64,
    look_up: impl Fn(&[u128], &mut [bool; AHEAD]),
    mut answer: impl FnMut(usize, bool),
) {
    let mut hashes = [0; AHEAD];
    for (i, keys) in keys.chunks(AHEAD).enumerate() {
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = key.bloom_hash(seed);
        }
        let mut found = [false; AHEAD];
        look_up(&hashes[..keys.len()], &mut found);
        for (j, &found) in found[..keys.len()].iter().enumerate() {
            answer(i * AHEAD + j, found);
        }
    }
}
