//! Key sequences, made before the clock runs.

/// A small generator (splitmix64): the same numbers on every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// In 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Keys `0..n` drawn with a Zipf distribution (exactly, by Vose's alias method). Which key has
/// which rank is a fixed shuffle, so that neighbours in rank are not neighbours in key.
pub struct Zipf {
    keep: Vec<f64>,
    alias: Vec<u32>,
    key: Vec<u32>,
}

impl Zipf {
    pub fn new(n: usize, exponent: f64) -> Self {
        let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
        let mean = (0..n).map(weight).sum::<f64>() / n as f64;
        let mut keep: Vec<f64> = (0..n).map(|rank| weight(rank) / mean).collect();
        let mut alias: Vec<u32> = (0..n as u32).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..n as u32).partition(|&rank| keep[rank as usize] < 1.0);
        while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
            small.pop();
            alias[poor as usize] = rich;
            keep[rich as usize] -= 1.0 - keep[poor as usize];
            if keep[rich as usize] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }

        let mut random = Random::new(0x5eed);
        let mut key: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            key.swap(i, random.below(i as u64 + 1) as usize);
        }
        Zipf { keep, alias, key }
    }

    pub fn draw(&self, random: &mut Random) -> u64 {
        let slot = random.below(self.keep.len() as u64) as usize;
        let rank = if random.unit() < self.keep[slot] { slot } else { self.alias[slot] as usize };
        u64::from(self.key[rank])
    }

    pub fn sequence(&self, len: usize, seed: u64) -> Vec<u64> {
        let mut random = Random::new(seed);
        (0..len).map(|_| self.draw(&mut random)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_those_of_the_distribution() {
        let (n, draws) = (1000, 1_000_000);
        let zipf = Zipf::new(n, 0.99);
        let mut count = vec![0u64; n];
        for key in zipf.sequence(draws, 1) {
            count[key as usize] += 1;
        }
        let total: f64 = (1..=n).map(|rank| (rank as f64).powf(-0.99)).sum();
        for rank in [1, 2, 10, 100] {
            let share = count[zipf.key[rank - 1] as usize] as f64 / draws as f64;
            let right = (rank as f64).powf(-0.99) / total;
            assert!((share / right - 1.0).abs() < 0.1, "{rank}: {share} {right}");
        }
    }
}
