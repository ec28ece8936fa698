//! Code for processors that have AVX2, chosen at run time: shifts by lane test all bits of a key at once.
//!
//! `pulp` proves that the instructions are there, and calls functions that are compiled for them; it holds
//! the `unsafe` that this takes. Without the feature `simd` there is no proof, nor on other processors, nor
//! for miri and loom, and the scalar code is used.

pub(super) use self::choice::{Avx2, run};

/// What has one form for AVX2 and one for any processor.
pub(super) trait Task {
    type Output;

    /// Compiled for AVX2 as far as it, and what it calls, is inlined.
    fn vectors(self, avx2: Avx2) -> Self::Output;

    fn scalar(self) -> Self::Output;
}

#[cfg(all(feature = "simd", target_arch = "x86_64", not(any(miri, seawall_loom))))]
mod choice {
    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, cast, u64x4};

    use super::Task;
    use crate::bloom::block::{INDEX_BITS, WORDS};

    /// By how much the hash is shifted for each word.
    const SHIFTS: [[u64; 4]; 2] = {
        let bits = INDEX_BITS as u64;
        [[0, bits, 2 * bits, 3 * bits], [4 * bits, 5 * bits, 6 * bits, 7 * bits]]
    };

    /// Proof that the processor has AVX2 and what came with it (x86-64-v3).
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Avx2(V3);

    impl Avx2 {
        pub(in super::super) fn detect() -> Option<Self> {
            V3::try_new().map(Avx2)
        }

        /// Whether all of a key's bits are set. By instructions, not by a loop: of that, some compilers
        /// make vectors only in part.
        #[inline(always)]
        pub(in super::super) fn has_all(self, words: &[u64; WORDS], low: u64) -> bool {
            let avx2 = self.0;
            let [a, b, c, d, e, f, g, h] = *words;
            let first = self.lowest(cast([a, b, c, d]), low, SHIFTS[0]);
            let second = self.lowest(cast([e, f, g, h]), low, SHIFTS[1]);
            let both = avx2.and_u64x4(first, second);
            avx2.avx._mm256_testc_si256(cast(both), cast(avx2.splat_u64x4(1))) != 0
        }

        /// Four words, each with the key's bit as the lowest.
        #[inline(always)]
        fn lowest(self, words: u64x4, low: u64, shifts: [u64; 4]) -> u64x4 {
            let avx2 = self.0;
            let shifted = avx2.shr_dyn_u64x4(avx2.splat_u64x4(low), cast(shifts));
            avx2.shr_dyn_u64x4(words, avx2.and_u64x4(shifted, avx2.splat_u64x4(63)))
        }
    }

    #[inline(always)]
    pub(in super::super) fn run<T: Task>(avx2: Option<Avx2>, task: T) -> T::Output {
        match avx2 {
            Some(avx2) => avx2.0.vectorize(Vectors(task, avx2)),
            None => scalar(task),
        }
    }

    /// Inlined, it would cost callers registers that they need on all other processors.
    #[cold]
    #[inline(never)]
    fn scalar<T: Task>(task: T) -> T::Output {
        task.scalar()
    }

    struct Vectors<T>(T, Avx2);

    impl<T: Task> NullaryFnOnce for Vectors<T> {
        type Output = T::Output;

        #[inline(always)]
        fn call(self) -> T::Output {
            self.0.vectors(self.1)
        }
    }
}

#[cfg(not(all(feature = "simd", target_arch = "x86_64", not(any(miri, seawall_loom)))))]
mod choice {
    use super::Task;
    use crate::bloom::block::WORDS;

    /// There is none.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) enum Avx2 {}

    impl Avx2 {
        pub(in super::super) fn detect() -> Option<Self> {
            None
        }

        pub(in super::super) fn has_all(self, _: &[u64; WORDS], _: u64) -> bool {
            match self {}
        }
    }

    #[inline(always)]
    pub(in super::super) fn run<T: Task>(avx2: Option<Avx2>, task: T) -> T::Output {
        match avx2 {
            Some(avx2) => task.vectors(avx2),
            None => task.scalar(),
        }
    }
}
