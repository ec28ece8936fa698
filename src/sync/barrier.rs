//! A fence with a cheap side and a dear one.
//!
//! Two threads that each write one place and then read the other's miss each other unless both have a
//! full fence in between. Where one of them does that all the time and the other rarely, the system can
//! take the fence over for both: [`heavy`] makes every running thread of the process pass one, so that
//! [`light`] only has to keep the compiler from moving accesses across it. On Linux that is
//! `membarrier(2)` with `MEMBARRIER_CMD_PRIVATE_EXPEDITED`; elsewhere, and where the kernel has or allows
//! none, both sides are plain sequentially consistent fences.
//!
//! | pair | light side | heavy side | |
//! |---|---|---|---|
//! | H1 | store x, `light`, load y | store y, `heavy`, load x | at least one of the loads sees the other's store |
//!
//! (H2 is the same with [`full`] on both sides, H3 with [`after_changes`].)

/// An ordinary sequentially consistent fence.
#[inline]
pub(crate) fn full() {
    #[cfg(seawall_loom)]
    self::model::full();
    #[cfg(not(seawall_loom))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Between an operation's read-modify-writes and what the thread loads after it (H3, both sides): a call
/// that has returned has taken effect for everybody. On x86 they see to that themselves.
#[inline]
pub(crate) fn after_changes() {
    #[cfg(seawall_loom)]
    self::model::after_changes();
    if !cfg!(any(target_arch = "x86", target_arch = "x86_64", seawall_loom)) {
        full();
    }
}

#[cfg(all(target_os = "linux", not(any(miri, seawall_loom))))]
pub(crate) use self::linux::{heavy, light, prepare};

#[cfg(all(not(seawall_loom), any(miri, not(target_os = "linux"))))]
pub(crate) use self::fences::{heavy, light, prepare};

#[cfg(seawall_loom)]
pub(crate) use self::model::{heavy, light, prepare};

#[cfg(all(not(seawall_loom), any(miri, not(target_os = "linux"))))]
mod fences {
    use super::full;

    pub(crate) fn prepare() {}

    #[inline]
    pub(crate) fn light() {
        full();
    }

    pub(crate) fn heavy() -> bool {
        full();
        true
    }
}

/// In a model each pair is made of plain fences, which would also pair with each other, and order what has to
/// be ordered otherwise; so there is none, but for the pair that a model is about.
#[cfg(seawall_loom)]
pub(crate) mod model {
    use std::cell::Cell;
    use std::sync::atomic::Ordering::SeqCst;

    use loom::sync::atomic::fence;

    #[derive(Clone, Copy, PartialEq)]
    pub(crate) enum Pair {
        /// H1.
        LightAndHeavy,
        /// H2.
        Full,
        /// H3.
        AfterChanges,
    }

    // Loom's threads are one thread of the system.
    std::thread_local! {
        static ONLY: Cell<Option<Pair>> = const { Cell::new(None) };
    }

    fn fence_of(pair: Pair) {
        if ONLY.get() == Some(pair) {
            fence(SeqCst);
        }
    }

    pub(crate) fn with_fences_of(pair: Pair, model: impl FnOnce()) {
        ONLY.set(Some(pair));
        model();
        ONLY.set(None);
    }

    pub(crate) fn prepare() {}

    pub(super) fn full() {
        fence_of(Pair::Full);
    }

    pub(super) fn after_changes() {
        fence_of(Pair::AfterChanges);
    }

    pub(crate) fn light() {
        fence_of(Pair::LightAndHeavy);
    }

    pub(crate) fn heavy() -> bool {
        fence_of(Pair::LightAndHeavy);
        true
    }
}

#[cfg(all(target_os = "linux", not(any(miri, seawall_loom))))]
mod linux {
    use std::sync::atomic::Ordering::{Relaxed, SeqCst};
    use std::sync::atomic::{AtomicU8, compiler_fence};

    use super::full;

    // From linux/membarrier.h, a stable interface.
    const QUERY: libc::c_int = 0;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    /// Not decided yet. The light side fences for itself then, which is right in either case.
    const UNKNOWN: u8 = 0;
    const OWN_FENCES: u8 = 1;
    const KERNEL_FENCES: u8 = 2;

    /// Who fences for the light side. Decided once.
    static WHO: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Decides who fences, which makes the light side cheap if it is the kernel.
    #[cold]
    pub(crate) fn prepare() {
        if WHO.load(Relaxed) == UNKNOWN {
            let who = if register() { KERNEL_FENCES } else { OWN_FENCES };
            // Lost race: it was decided by another thread.
            let _ = WHO.compare_exchange(UNKNOWN, who, Relaxed, Relaxed);
        }
    }

    fn register() -> bool {
        let offered = membarrier(QUERY);
        let both = libc::c_long::from(PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED);
        offered >= 0 && offered & both == both && membarrier(REGISTER_PRIVATE_EXPEDITED) == 0
    }

    /// The frequent side.
    #[inline]
    pub(crate) fn light() {
        if WHO.load(Relaxed) == KERNEL_FENCES {
            compiler_fence(SeqCst);
        } else {
            full();
        }
    }

    /// The rare side. A system call, some microseconds where other threads are running. Returns false
    /// if the kernel refuses it now (a filter of system calls that came later); nothing is ordered then.
    #[cold]
    pub(crate) fn heavy() -> bool {
        prepare();
        // Also for the light sides that fence for themselves.
        full();
        // A child of a fork may have to register again.
        WHO.load(Relaxed) != KERNEL_FENCES
            || membarrier(PRIVATE_EXPEDITED) == 0
            || (membarrier(REGISTER_PRIVATE_EXPEDITED) == 0 && membarrier(PRIVATE_EXPEDITED) == 0)
    }

    fn membarrier(command: libc::c_int) -> libc::c_long {
        let (flags, cpu): (libc::c_int, libc::c_int) = (0, 0);
        // SAFETY: the call takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) }
    }
}
