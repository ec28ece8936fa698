//! The filter itself: an array of blocks, and what follows from counting their bits.

use std::fmt;

use super::avx2::Avx2;
use super::batch::{Line, each_batch, hashes, numbered};
use super::block::{BYTES, Block, WORDS, index, room};
use super::error::{ShapeMismatch, SizeError};
use super::key::BloomKey;
use super::sizing::Plan;
use crate::sync::{AtomicU64, Padded, Relaxed};

/// A Bloom filter: a set of keys that answers *certainly not* or *maybe*.
///
/// Its size is fixed; [`plan`](super::plan) computes it. Any number of threads may insert and query at
/// once; nothing blocks, and nothing but constructors and snapshots allocates.
///
/// ```
/// use seawall::bloom::{Filter, plan};
///
/// let filter = Filter::new(&plan(10_000, 0.01)?)?;
/// assert!(filter.insert(&17u64));
/// assert!(!filter.insert(&17u64));
/// assert!(filter.contains(&17u64));
/// # Ok::<(), seawall::bloom::SizeError>(())
/// ```
pub struct Filter {
    blocks: Box<[Block]>,
    seed: u64,
    avx2: Option<Avx2>,
    /// Elsewhere, so that the rest is known not to change: a loop of queries then reads it once.
    counts: Box<Counts>,
}

struct Counts {
    /// Keys that it was planned for; changes only with a new use of the memory.
    items: AtomicU64,
    /// Keys that were new when they were inserted, of those that [`Filter::is_sampled`] picks.
    sampled: Padded<AtomicU64>,
}

impl Filter {
    /// Returns an empty filter, with the seed 0.
    ///
    /// # Errors
    ///
    /// [`SizeError::OutOfMemory`], if the allocator refuses. A system that promises memory it does not
    /// have may end the process instead: do not plan for numbers from strangers.
    pub fn new(plan: &Plan) -> Result<Self, SizeError> {
        Self::with_seed(plan, 0)
    }

    /// Returns an empty filter with a seed. Filters with different seeds have their false positives for
    /// different keys, and cannot be merged. A random seed, kept secret, is for keys that strangers
    /// choose.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with_seed(plan: &Plan, seed: u64) -> Result<Self, SizeError> {
        Self::with_blocks(plan.blocks(), seed, plan.items())
    }

    pub(super) fn with_blocks(blocks: usize, seed: u64, items: u64) -> Result<Self, SizeError> {
        let no_room = SizeError::OutOfMemory { bytes: blocks.saturating_mul(BYTES) };
        let mut empty = room(blocks).ok_or(no_room)?;
        empty.extend((0..blocks).map(|_| Block::new([0; WORDS])));
        Ok(Self::from_blocks(empty, seed, items))
    }

    /// Takes blocks that may have bits set. There is at least one.
    pub(super) fn from_blocks(blocks: Vec<Block>, seed: u64, items: u64) -> Self {
        let filter = Filter {
            blocks: blocks.into_boxed_slice(),
            seed,
            avx2: Avx2::detect(),
            counts: Box::new(Counts {
                items: AtomicU64::new(items),
                sampled: Padded(AtomicU64::new(0)),
            }),
        };
        filter.recount();
        filter
    }

    /// Adds a key. Returns whether it was certainly not there before: `false` may also mean that other
    /// keys have set all its bits.
    ///
    /// When it has returned, no query that comes after it denies the key. Of several threads that insert
    /// one key at the same time, more than one may be told that it was new.
    #[inline]
    pub fn insert<K: BloomKey + ?Sized>(&self, key: &K) -> bool {
        self.insert_hash(self.hash(key))
    }

    /// Returns whether a key may have been inserted; `false` is certain.
    #[inline]
    pub fn contains<K: BloomKey + ?Sized>(&self, key: &K) -> bool {
        self.contains_hash(self.hash(key))
    }

    /// Returns the hash by which this filter knows a key.
    #[inline]
    pub fn hash<K: BloomKey + ?Sized>(&self, key: &K) -> u128 {
        key.bloom_hash(self.seed)
    }

    /// Adds a key by a hash, as [`Self::insert`]. All 128 bits must be well mixed: the upper half chooses
    /// the block, the lower 48 bits choose the bits in it.
    #[inline]
    pub fn insert_hash(&self, hash: u128) -> bool {
        let low = hash as u64;
        let new = self.block(hash).insert(low);
        if new && self.is_sampled(low) {
            self.counts.sampled.fetch_add(1, Relaxed);
        }
        new
    }

    /// Returns whether a key may have been inserted, by its hash; see [`Self::insert_hash`].
    #[inline]
    pub fn contains_hash(&self, hash: u128) -> bool {
        self.block(hash).contains(self.avx2, hash as u64)
    }

    /// As [`Self::contains_hash`]; if it returns `false` because of a [`Self::clear`], what was done
    /// before that is visible.
    #[inline]
    pub(super) fn contains_hash_acquire(&self, hash: u128) -> bool {
        self.block(hash).contains_acquire(self.avx2, hash as u64)
    }

    /// Returns for each of several keys, in their order, what [`Self::contains`] would.
    ///
    /// Faster than as many calls, most of all when the filter is larger than the processor's caches: the
    /// waits for memory overlap. Allocates the result.
    ///
    /// ```
    /// # let filter = seawall::bloom::Filter::new(&seawall::bloom::plan(100, 0.01)?)?;
    /// filter.insert("a");
    /// assert_eq!(filter.contains_many(["a", "b"]), [true, false]);
    /// # Ok::<(), seawall::bloom::SizeError>(())
    /// ```
    pub fn contains_many<'k, K>(&self, keys: impl IntoIterator<Item = &'k K>) -> Vec<bool>
    where
        K: BloomKey + ?Sized + 'k,
    {
        let mut answers = Vec::new();
        each_batch(self.avx2, &self.blocks, hashes(keys, self.seed), |found| {
            answers.extend_from_slice(found);
        });
        answers
    }

    /// Calls a closure with the position and the answer of each of several keys, in their order; see
    /// [`Self::contains_many`]. Does not allocate.
    #[inline]
    pub fn contains_many_with<K>(&self, keys: &[K], answer: impl FnMut(usize, bool))
    where
        K: BloomKey,
    {
        each_batch(self.avx2, &self.blocks, hashes(keys, self.seed), numbered(answer));
    }

    /// Has the line of each hash brought.
    #[inline]
    pub(super) fn touch(&self, hashes: &[u128]) {
        for &hash in hashes {
            self.block(hash).touch();
        }
    }

    /// Forgets all keys. Keys that are being inserted at the same time may be forgotten or not; queries
    /// may see a part of it.
    pub fn clear(&self) {
        for block in &self.blocks {
            block.clear();
        }
        self.counts.sampled.store(0, Relaxed);
    }

    /// Forgets all keys, and expects another number of them.
    pub(super) fn reset(&self, items: u64) {
        self.clear();
        self.counts.items.store(items, Relaxed);
    }

    /// Adds all keys of another filter of the same size and seed. Either may be in use meanwhile; keys
    /// that are inserted into the other one during the call may be added or not.
    ///
    /// ```
    /// use seawall::bloom::{Filter, plan};
    ///
    /// let plan = plan(100, 0.01)?;
    /// let (ours, theirs) = (Filter::new(&plan)?, Filter::new(&plan)?);
    /// theirs.insert("key");
    /// ours.union_with(&theirs).unwrap();
    /// assert!(ours.contains("key"));
    /// assert!(ours.union_with(&Filter::with_seed(&plan, 1)?).is_err());
    /// # Ok::<(), seawall::bloom::SizeError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`], if the sizes or the seeds differ. Nothing has changed then.
    pub fn union_with(&self, other: &Filter) -> Result<(), ShapeMismatch> {
        if (self.blocks(), self.seed) != (other.blocks(), other.seed) {
            return Err(ShapeMismatch {
                blocks: (self.blocks(), other.blocks()),
                seeds: (self.seed, other.seed),
            });
        }
        for (ours, theirs) in self.blocks.iter().zip(&other.blocks) {
            ours.union(theirs.words());
        }
        self.recount();
        Ok(())
    }

    /// Returns the number of keys that the filter was planned for.
    pub fn items(&self) -> u64 {
        self.counts.items.load(Relaxed)
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the size of the bits in bytes; the filter has some hundred more.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * BYTES
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the share of bits that are set, from 0 to 1. Reads the whole filter.
    pub fn fill_ratio(&self) -> f64 {
        let set: u64 = self.each_word().map(|word| u64::from(word.count_ones())).sum();
        set as f64 / (self.bytes() as f64 * 8.0)
    }

    /// Returns an estimate of the number of different keys, from the bits that are set. Reads the whole
    /// filter. The error is a few thousandths for large filters; one that is nearly full cannot tell.
    pub fn estimated_items(&self) -> u64 {
        // With a mean of m keys in a block, a bit stays clear with probability exp(-m / 64): of no key
        // in the block with (63/64)^j, averaged over the Poisson distribution of j.
        let bits = self.bytes() as f64 * 8.0;
        let clear = ((1.0 - self.fill_ratio()) * bits).max(0.5) / bits;
        (-64.0 * clear.ln() * self.blocks() as f64).round() as u64
    }

    /// Returns the present rate of false positives, from the bits that are set in each block: the
    /// probability that it says *maybe* to an absent key, from 0 to 1. Reads the whole filter.
    pub fn false_positive_rate(&self) -> f64 {
        let of_block = |block: &Block| -> f64 {
            block.words().iter().map(|word| f64::from(word.count_ones()) / 64.0).product()
        };
        self.blocks.iter().map(of_block).sum::<f64>() / self.blocks() as f64
    }

    /// Returns whether a quarter more keys were inserted than the filter was planned for: then it says
    /// *maybe* too often (2.8 % instead of 1 %), and should be rebuilt larger. It never denies a key for
    /// that. Costs next to nothing; counts a sample, so that it may be off by some hundredths.
    #[inline]
    pub fn is_overfull(&self) -> bool {
        let items = self.counts.items.load(Relaxed);
        self.counts.sampled.load(Relaxed) > items.saturating_add(items / 4) >> self.sample_bits()
    }

    /// Of how many keys one is counted, as a power of two. A small filter counts all of them; a large one
    /// expects a few thousand in its sample, and threads that insert seldom meet at its counter.
    #[inline]
    fn sample_bits(&self) -> u32 {
        self.blocks.len().ilog2().saturating_sub(5).min(15)
    }

    /// Whether a key is in the sample, by bits of its hash that are used for nothing else.
    #[inline]
    fn is_sampled(&self, low: u64) -> bool {
        (low >> 48).trailing_zeros() >= self.sample_bits()
    }

    /// Sets the count from the bits, where it is not known how they came there.
    fn recount(&self) {
        self.counts.sampled.store(self.estimated_items() >> self.sample_bits(), Relaxed);
    }

    #[inline]
    fn block(&self, hash: u128) -> &Block {
        &self.blocks[index(hash, self.blocks.len())]
    }

    pub(super) fn into_blocks(self) -> Vec<Block> {
        self.blocks.into_vec()
    }

    pub(super) fn each_block(&self) -> impl Iterator<Item = [u64; WORDS]> {
        self.blocks.iter().map(Block::words)
    }

    fn each_word(&self) -> impl Iterator<Item = u64> {
        self.each_block().flatten()
    }
}

/// A copy with the bits that are set when they are read; keys inserted meanwhile may be in it or not.
impl Clone for Filter {
    fn clone(&self) -> Self {
        let mut blocks = room(self.blocks()).unwrap_or_default();
        blocks.extend(self.each_block().map(Block::new));
        Self::from_blocks(blocks, self.seed, self.items())
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("blocks", &self.blocks())
            .field("seed", &self.seed)
            .field("items", &self.items())
            .finish_non_exhaustive()
    }
}
