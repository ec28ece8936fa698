//! Hints about memory: none changes what a program does.

/// Asks the processor to load a line; does nothing where there is no stable way to ask.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks the system to back a large allocation by huge pages: if its accesses are random, nearly every one
/// of them would miss the processor's address cache as well with small pages.
pub(crate) fn ask_for_huge_pages<T>(start: *const T, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        const HUGE: usize = 2 << 20;
        let start = start.cast_mut().cast::<u8>();
        let gap = start.align_offset(HUGE);
        if bytes >= gap.saturating_add(HUGE) {
            let len = (bytes - gap) / HUGE * HUGE;
            // SAFETY: the advice changes no contents, whatever the address.
            unsafe { libc::madvise(start.wrapping_add(gap).cast(), len, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, bytes);
}
