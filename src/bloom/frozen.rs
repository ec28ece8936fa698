//! A filter that does not change any more: plain words, which the compiler may read as vectors.

use std::fmt;

use super::avx2::Avx2;
use super::batch::{Line, each_batch, hashes, numbered};
use super::block::{BYTES, Block, WORDS, contains, count, index};
use super::filter::Filter;
use super::key::BloomKey;

/// A Bloom filter that is only asked. Answers exactly as the [`Filter`] that it was made from, and
/// faster; takes no inserts.
///
/// For sets that are built once and then asked, or shipped to those who ask. With the feature `simd`, on
/// a processor with AVX2 (found out at run time), a query is a few vector instructions; without, it takes
/// about as long as one of the filter.
///
/// ```
/// use seawall::bloom::{Filter, FrozenFilter, plan};
///
/// let filter = Filter::new(&plan(10_000, 0.01)?)?;
/// filter.insert("alice");
/// let frozen = filter.freeze();
/// assert!(frozen.contains("alice"));
/// assert!(!frozen.contains("bob"));
///
/// let shipped = FrozenFilter::from_bytes(&frozen.to_bytes())?;
/// assert!(shipped.contains("alice"));
///
/// // To insert more, thaw it, and freeze it again.
/// let filter = shipped.thaw();
/// filter.insert("bob");
/// assert!(filter.freeze().contains("bob"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct FrozenFilter {
    blocks: Box<[FrozenBlock]>,
    seed: u64,
    items: u64,
    avx2: Option<Avx2>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct FrozenBlock([u64; WORDS]);

impl Line for FrozenBlock {
    #[inline(always)]
    fn first(&self) -> u64 {
        self.0[0]
    }

    #[inline(always)]
    fn has_all(&self, low: u64) -> bool {
        count(&self.0, low, |word| *word) == WORDS as u64
    }

    #[inline(always)]
    fn has_all_avx2(&self, avx2: Avx2, low: u64) -> bool {
        avx2.has_all(&self.0, low)
    }
}

impl Filter {
    /// Returns a filter with the same keys that answers faster and takes no more of them; see
    /// [`FrozenFilter`]. Takes time in proportion to the size.
    pub fn freeze(self) -> FrozenFilter {
        let (seed, items) = (self.seed(), self.items());
        let blocks = self.into_blocks().into_iter().map(|block| FrozenBlock(block.words()));
        FrozenFilter { blocks: blocks.collect(), seed, items, avx2: Avx2::detect() }
    }
}

impl FrozenFilter {
    /// Returns a filter with the same keys that takes more of them. Takes time in proportion to the size.
    pub fn thaw(self) -> Filter {
        let blocks = self.blocks.into_vec().into_iter().map(|block| Block::new(block.0)).collect();
        Filter::from_blocks(blocks, self.seed, self.items)
    }

    /// Returns whether a key may have been inserted; `false` is certain.
    #[inline]
    pub fn contains<K: BloomKey + ?Sized>(&self, key: &K) -> bool {
        self.contains_hash(self.hash(key))
    }

    /// Returns whether a key may have been inserted, by its hash; see [`Filter::insert_hash`].
    #[inline]
    pub fn contains_hash(&self, hash: u128) -> bool {
        let block = &self.blocks[index(hash, self.blocks.len())];
        contains(self.avx2, &block.0, hash as u64, |word| *word)
    }

    /// Returns the hash by which this filter knows a key.
    #[inline]
    pub fn hash<K: BloomKey + ?Sized>(&self, key: &K) -> u128 {
        key.bloom_hash(self.seed)
    }

    /// Returns for each of several keys, in their order, what [`Self::contains`] would; faster, as
    /// [`Filter::contains_many`]. Allocates the result.
    ///
    /// ```
    /// # let filter = seawall::bloom::Filter::new(&seawall::bloom::plan(100, 0.01)?)?;
    /// filter.insert("a");
    /// assert_eq!(filter.freeze().contains_many(["a", "b"]), [true, false]);
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

    /// Returns the number of keys that the filter was planned for.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the size of the bits in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * BYTES
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn each_block(&self) -> impl Iterator<Item = [u64; WORDS]> {
        self.blocks.iter().map(|block| block.0)
    }
}

impl fmt::Debug for FrozenFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrozenFilter")
            .field("blocks", &self.blocks())
            .field("seed", &self.seed)
            .field("items", &self.items)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;
    use crate::bloom::plan;

    /// Filters with one bit missing in each word in turn, and with none, for hashes of every kind.
    fn cases() -> impl Iterator<Item = (FrozenFilter, u128)> {
        let hashes = (0..64u64).map(|key| key.bloom_hash(9)).chain([0, !0, 1, 1 << 47, !0 << 48]);
        hashes.flat_map(|hash| {
            (0..=WORDS).map(move |missing| {
                let filter = Filter::new(&plan(1, 0.5).unwrap()).unwrap();
                filter.insert_hash(hash);
                let mut frozen = filter.freeze();
                if let Some(word) = frozen.blocks[0].0.get_mut(missing) {
                    *word = !*word;
                }
                (frozen, hash)
            })
        })
    }

    #[test]
    fn the_vectors_and_the_scalar_code_agree() {
        let mut found = 0;
        for (frozen, hash) in cases() {
            let has = frozen.blocks[0].0.iter().enumerate().all(|(i, word)| {
                let bit = hash as u64 >> (6 * i) & 63;
                word >> bit & 1 == 1
            });
            found += usize::from(has);
            for avx2 in [None, frozen.avx2] {
                let frozen = FrozenFilter { avx2, ..frozen.clone() };
                assert_eq!(frozen.contains_hash(hash), has);
                let live = Block::new(frozen.blocks[0].0);
                assert_eq!(live.contains(avx2, hash as u64), has);
                assert_eq!(live.contains_acquire(avx2, hash as u64), has);
                assert_eq!(batch(avx2, &frozen.blocks, hash), [has; 5]);
                assert_eq!(batch(avx2, &[live], hash), [has; 5]);
            }
        }
        assert_eq!((found, cases().count()), (69, 69 * (WORDS + 1)));
    }

    fn batch<B: Line>(avx2: Option<Avx2>, blocks: &[B], hash: u128) -> Vec<bool> {
        let mut answers = Vec::new();
        each_batch(avx2, blocks, [hash; 5].into_iter(), |found| answers.extend_from_slice(found));
        answers
    }

    /// Else the tests above, and the measurements, are of something else.
    #[cfg(all(feature = "simd", target_arch = "x86_64", not(miri)))]
    #[test]
    fn avx2_is_found_where_it_is() {
        let filter = Filter::new(&plan(1, 0.5).unwrap()).unwrap().freeze();
        let there = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("lzcnt");
        assert_eq!(filter.avx2.is_some(), there);
    }
}
