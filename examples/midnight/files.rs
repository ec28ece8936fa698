//! How many files, and so sockets, this process may have open at once.

/// Raises the limit to what is allowed without privileges, and returns it.
#[cfg(unix)]
pub fn raise_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes to a structure of its own type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        // The least that systems allow by default.
        return 256;
    }
    // More than is needed makes some systems refuse, or reserve memory.
    const ENOUGH: libc::rlim_t = 10_000;
    let raised = libc::rlimit { rlim_cur: limit.rlim_max.min(ENOUGH).max(limit.rlim_cur), ..limit };
    // SAFETY: it reads a structure of its own type.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
        limit = raised;
    }
    #[allow(clippy::unnecessary_cast, reason = "the type is not the same everywhere")]
    let files = limit.rlim_cur as u64;
    files
}

#[cfg(not(unix))]
pub fn raise_limit() -> u64 {
    u64::MAX
}
