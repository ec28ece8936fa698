//! Code for processors that have AVX2, chosen at run time: shifts by lane test all bits of a key at once.
//!
//! `pulp` proves that the instructions are there, and calls functions that are compiled for them; it holds
//! the `unsafe` that this takes. Without the feature `simd` there is no proof, nor on other processors, nor
//! for miri and loom, and the scalar code is used.

use super::block::{WORDS, mask};

pub(super) use self::choice::{Avx2, run};

/// What has one form for AVX2 and one for any processor.
pub(super) trait Task {
    type Output;

    /// Compiled for AVX2 as far as it, and what it calls, is inlined.
    fn vectors(self) -> Self::Output;

    fn scalar(self) -> Self::Output;
}

/// Whether all of a key's bits are set, in a form that becomes vectors of four words.
#[inline(always)]
pub(super) fn has_all(words: &[u64; WORDS], low: u64) -> bool {
    let mut missing = 0;
    for (i, word) in words.iter().enumerate() {
        missing |= !word & mask(low, i);
    }
    missing == 0
}

#[cfg(all(feature = "simd", target_arch = "x86_64", not(any(miri, seawall_loom))))]
mod choice {
    use pulp::NullaryFnOnce;
    use pulp::x86::V3;

    use super::Task;

    /// Proof that the processor has AVX2 and what came with it (x86-64-v3).
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Avx2(V3);

    impl Avx2 {
        pub(in super::super) fn detect() -> Option<Self> {
            V3::try_new().map(Avx2)
        }
    }

    #[inline(always)]
    pub(in super::super) fn run<T: Task>(avx2: Option<Avx2>, task: T) -> T::Output {
        match avx2 {
            Some(avx2) => avx2.0.vectorize(Vectors(task)),
            None => scalar(task),
        }
    }

    /// Inlined, it would cost callers registers that they need on all other processors.
    #[cold]
    #[inline(never)]
    fn scalar<T: Task>(task: T) -> T::Output {
        task.scalar()
    }

    struct Vectors<T>(T);

    impl<T: Task> NullaryFnOnce for Vectors<T> {
        type Output = T::Output;

        #[inline(always)]
        fn call(self) -> T::Output {
            self.0.vectors()
        }
    }
}

#[cfg(not(all(feature = "simd", target_arch = "x86_64", not(any(miri, seawall_loom)))))]
mod choice {
    use super::Task;

    /// There is none.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) enum Avx2 {}

    impl Avx2 {
        pub(in super::super) fn detect() -> Option<Self> {
            None
        }
    }

    #[inline(always)]
    pub(in super::super) fn run<T: Task>(avx2: Option<Avx2>, task: T) -> T::Output {
        match avx2 {
            Some(_) => task.vectors(),
            None => task.scalar(),
        }
    }
}
