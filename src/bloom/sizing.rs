//! How large a filter must be: the exact rate of false positives of a blocked filter, and its inverse.

use super::block::BYTES;
use super::error::SizeError;

/// Bits that a key sets, one in each word of its block.
const HASHES: u32 = 8;
const WORD_BITS: f64 = 64.0;
const LARGEST: u64 = isize::MAX as u64 / BYTES as u64;

/// The size of a filter, and the rate of false positives that follows from it.
///
/// ```
/// use seawall::bloom::plan;
///
/// let plan = plan(1_000_000, 0.01)?;
/// assert_eq!(plan.bytes(), plan.blocks() * 64);
/// assert!(plan.rate() <= 0.01);
/// // Twice as many keys as planned for.
/// assert!(plan.rate_at(2_000_000) > 0.16);
/// # Ok::<(), seawall::bloom::SizeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    items: u64,
    blocks: usize,
    target: f64,
}

impl Plan {
    /// Returns the number of keys that the filter is planned for.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the number of blocks of 64 bytes.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the size of the filter in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks * BYTES
    }

    /// Returns the number of bits that a key sets.
    pub fn hashes(&self) -> u32 {
        HASHES
    }

    /// Returns the size in bits for each of the planned keys.
    pub fn bits_per_key(&self) -> f64 {
        self.bytes() as f64 * 8.0 / self.items as f64
    }

    /// Returns the predicted rate of false positives when the filter has the planned number of keys:
    /// the share of absent keys that it says *maybe* to, from 0 to 1.
    pub fn rate(&self) -> f64 {
        self.rate_at(self.items)
    }

    /// Returns the predicted rate of false positives when it has this number of keys.
    pub fn rate_at(&self, items: u64) -> f64 {
        rate_of_load(items as f64 / self.blocks as f64)
    }

    /// Returns what the classic formula asks for the same number of keys and the same rate.
    pub fn classic(&self) -> Classic {
        classic_of(self.items, self.target)
    }
}

/// Returns the smallest filter that keeps a rate of false positives with a number of keys.
///
/// ```
/// use seawall::bloom::{SizeError, plan};
///
/// assert!(plan(1_000, 0.001)?.bytes() < 2_048);
/// assert_eq!(plan(1_000, 1.0), Err(SizeError::Rate(1.0)));
/// # Ok::<(), SizeError>(())
/// ```
///
/// # Errors
///
/// [`SizeError`], if there are no keys, the rate is not between 0 and 1, or the filter would be larger
/// than the address space.
pub fn plan(items: u64, rate: f64) -> Result<Plan, SizeError> {
    check(items, rate)?;
    let fits = |blocks: u64| rate_of_load(items as f64 / blocks as f64) <= rate;
    if !fits(LARGEST) {
        return Err(SizeError::TooLarge);
    }
    // The rate falls with the number of blocks: the smallest is above `low` and at most `high`.
    let (mut low, mut high) = (0, LARGEST);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    let blocks = usize::try_from(high).map_err(|_| SizeError::TooLarge)?;
    Ok(Plan { items, blocks, target: rate })
}

/// Returns the best filter for a number of keys that is not larger than some bytes.
///
/// ```
/// use seawall::bloom::plan_for_bytes;
///
/// let plan = plan_for_bytes(1_000_000, 2 << 20)?;
/// assert_eq!(plan.bytes(), 2 << 20);
/// assert!(plan.rate() < 0.001);
/// # Ok::<(), seawall::bloom::SizeError>(())
/// ```
///
/// # Errors
///
/// [`SizeError`], if there are no keys, or so few bytes that more than half of all absent keys would get
/// a *maybe*, or more bytes than an allocation can have.
pub fn plan_for_bytes(items: u64, bytes: usize) -> Result<Plan, SizeError> {
    let least = plan(items, 0.5)?;
    if bytes < least.bytes() {
        return Err(SizeError::TooSmall { bytes, needed: least.bytes() });
    }
    let blocks = bytes / BYTES;
    if blocks as u64 > LARGEST {
        return Err(SizeError::TooLarge);
    }
    let target = rate_of_load(items as f64 / blocks as f64);
    Ok(Plan { items, blocks, target })
}

/// What the classic formula asks for: a filter whose bits may be anywhere.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Classic {
    /// The size of the filter in bits.
    pub bits: f64,
    /// The number of hash functions.
    pub hashes: u32,
}

/// Returns what the classic formula asks for: `n ln(1/p) / ln(2)^2` bits, and `ln(2)` hash functions for
/// each bit of a key. For comparison: the filters here are sized by [`plan`].
///
/// ```
/// use seawall::bloom::classic;
///
/// let classic = classic(1_000_000, 0.01)?;
/// assert_eq!((classic.bits, classic.hashes), (9_585_059.0, 7));
/// # Ok::<(), seawall::bloom::SizeError>(())
/// ```
///
/// # Errors
///
/// [`SizeError`], if there are no keys or the rate is not between 0 and 1.
pub fn classic(items: u64, rate: f64) -> Result<Classic, SizeError> {
    check(items, rate)?;
    Ok(classic_of(items, rate))
}

fn classic_of(items: u64, rate: f64) -> Classic {
    let ln2 = std::f64::consts::LN_2;
    let bits = (items as f64 * -rate.ln() / (ln2 * ln2)).ceil();
    let hashes = (bits / items as f64 * ln2).round().max(1.0);
    Classic { bits, hashes: hashes as u32 }
}

fn check(items: u64, rate: f64) -> Result<(), SizeError> {
    if items == 0 {
        return Err(SizeError::NoItems);
    }
    // Written so that NaN is refused.
    if !(rate > 0.0 && rate < 1.0) {
        return Err(SizeError::Rate(rate));
    }
    Ok(())
}

/// The expected rate of false positives when a block has a mean of `load` keys: the mean of
/// `(1 - q^j)^8`, q = 63/64, over a Poisson distribution of j.
///
/// The sum is exact where the rate is small; its terms are positive. Where the load is large, it would
/// be long, and the closed form (expand the power; the mean of `q^(ij)` is `exp(-load (1 - q^i))`) has
/// lost what little it loses by cancellation.
fn rate_of_load(load: f64) -> f64 {
    if load <= 64.0 { sum_over_loads(load) } else { closed_form(load) }
}

fn sum_over_loads(load: f64) -> f64 {
    let last = (load + 12.0 * load.sqrt() + 40.0) as u32;
    let mut probability = (-load).exp();
    let mut sum = 0.0;
    for keys in 1..=last {
        probability *= load / f64::from(keys);
        sum += probability * rate_with(keys);
    }
    sum.min(1.0)
}

/// The rate of a block that has this number of keys.
fn rate_with(keys: u32) -> f64 {
    let clear = (f64::from(keys) * (-1.0 / WORD_BITS).ln_1p()).exp_m1();
    (-clear).powi(HASHES as i32)
}

fn closed_form(load: f64) -> f64 {
    let q = 1.0 - 1.0 / WORD_BITS;
    let mut binomial = 1.0;
    let mut sum = 0.0;
    for i in 0..=HASHES {
        sum += binomial * (-load * (1.0 - q.powi(i as i32))).exp();
        binomial *= -f64::from(HASHES - i) / f64::from(i + 1);
    }
    sum.clamp(0.0, 1.0)
}

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, tolerance: f64) {
        assert!((a / b - 1.0).abs() < tolerance, "{a} and {b}");
    }

    #[test]
    fn the_two_forms_agree() {
        for load in [40.0, 50.0, 60.0, 64.0, 80.0, 100.0, 400.0] {
            near(sum_over_loads(load), closed_form(load), 1e-9);
        }
    }

    #[test]
    fn the_two_branches_meet() {
        near(rate_of_load(64.0), rate_of_load(64.000_000_1), 1e-7);
    }

    #[test]
    fn tiny_and_huge_loads_are_finite() {
        // One key in a block, once in a while: load * (1/64)^8.
        near(rate_of_load(1e-9), 1e-9 / 64f64.powi(8), 1e-6);
        near(rate_of_load(1e-200), 1e-200 / 64f64.powi(8), 1e-9);
        assert_eq!(rate_of_load(1e9), 1.0);
        assert_eq!(rate_of_load(f64::MAX), 1.0);
        assert_eq!(rate_of_load(0.0), 0.0);
    }

    #[test]
    fn the_rate_rises_with_the_load() {
        let loads: Vec<f64> = (1..4_000).map(|i| f64::from(i) / 20.0).collect();
        for pair in loads.windows(2) {
            assert!(rate_of_load(pair[0]) < rate_of_load(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn a_plan_is_the_smallest_that_fits() {
        for items in [1, 7, 1_000, 1_000_000, 1_000_000_000] {
            for rate in [0.5, 0.05, 0.01, 0.001, 1e-6, 1e-9] {
                let plan = plan(items, rate).unwrap();
                assert!(plan.rate() <= rate);
                if plan.blocks() > 1 {
                    let smaller = rate_of_load(items as f64 / (plan.blocks() - 1) as f64);
                    assert!(smaller > rate, "{items} {rate}: {} blocks", plan.blocks());
                }
            }
        }
    }
}
