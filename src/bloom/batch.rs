//! Queries in batches: the lines of a batch are on their way while the one before it is looked at.

use std::hint::black_box;
use std::mem;
use std::ptr;

use arrayvec::ArrayVec;

use super::avx2::{self, Avx2, Task};
use super::block::index;
use super::key::BloomKey;
use crate::sync::prefetch;

/// Keys in a batch.
pub(super) const AHEAD: usize = 32;

/// A block of either kind of filter.
pub(super) trait Line: Sized {
    /// One of its words.
    fn first(&self) -> u64;

    /// Whether all of a key's bits are set, found out without a branch: answers are stored, not acted upon.
    fn has_all(&self, low: u64) -> bool;

    /// The same, where there is AVX2.
    fn has_all_avx2(&self, avx2: Avx2, low: u64) -> bool;

    /// Has the line brought. Where there is no stable way to ask for that, reads a word: none of these
    /// reads waits for another, so that the lines still come together.
    #[inline(always)]
    fn touch(&self) {
        if cfg!(target_arch = "x86_64") {
            prefetch(ptr::from_ref(self));
        } else {
            black_box(self.first());
        }
    }
}

/// The address is kept: to compute it again costs more than to read it.
struct Query<'b, B> {
    line: &'b B,
    low: u64,
}

type Batch<'b, B> = ArrayVec<Query<'b, B>, AHEAD>;

/// Takes the next keys into an empty batch, and has their lines brought.
#[inline(always)]
fn fill<'b, B: Line>(
    batch: &mut Batch<'b, B>,
    blocks: &'b [B],
    hashes: &mut impl Iterator<Item = u128>,
) {
    batch.clear();
    batch.extend(hashes.take(AHEAD).map(|hash| {
        let line = &blocks[index(hash, blocks.len())];
        line.touch();
        Query { line, low: hash as u64 }
    }));
}

struct Test<'t, 'b, B> {
    batch: &'t [Query<'b, B>],
    found: &'t mut [bool],
}

impl<B> Test<'_, '_, B> {
    #[inline(always)]
    fn each(self, has_all: impl Fn(&B, u64) -> bool) {
        for (found, query) in self.found.iter_mut().zip(self.batch) {
            *found = has_all(query.line, query.low);
        }
    }
}

impl<B: Line> Task for Test<'_, '_, B> {
    type Output = ();

    #[inline(always)]
    fn vectors(self, avx2: Avx2) {
        self.each(|line, low| line.has_all_avx2(avx2, low));
    }

    #[inline(always)]
    fn scalar(self) {
        self.each(B::has_all);
    }
}

/// Hands out the answers for all hashes, in their order, a batch at a time.
#[inline(always)]
pub(super) fn each_batch<B: Line>(
    avx2: Option<Avx2>,
    blocks: &[B],
    hashes: impl Iterator<Item = u128>,
    mut answers: impl FnMut(&[bool]),
) {
    let mut hashes = hashes.fuse();
    let (mut this, mut next) = (&mut Batch::new(), &mut Batch::new());
    let mut found = [false; AHEAD];
    fill(this, blocks, &mut hashes);
    while !this.is_empty() {
        fill(next, blocks, &mut hashes);
        let found = &mut found[..this.len()];
        avx2::run(avx2, Test { batch: this, found });
        answers(found);
        mem::swap(&mut this, &mut next);
    }
}

/// The hashes of several keys.
#[inline(always)]
pub(super) fn hashes<'k, K: BloomKey + ?Sized + 'k>(
    keys: impl IntoIterator<Item = &'k K>,
    seed: u64,
) -> impl Iterator<Item = u128> {
    keys.into_iter().map(move |key| key.bloom_hash(seed))
}

/// Takes answers batch by batch, and hands them out one by one with the positions of their keys.
#[inline(always)]
pub(super) fn numbered(mut answer: impl FnMut(usize, bool)) -> impl FnMut(&[bool]) {
    let mut i = 0;
    move |found| {
        for &found in found {
            answer(i, found);
            i += 1;
        }
    }
}
