//! The system's monotonic clock, as it is and as it was at the kernel's last tick; and measuring by it.

#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use self::linux::Start;
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) use self::portable::Start;

/// Milliseconds since it was made.
#[derive(Clone)]
pub(crate) struct SystemClock {
    start: Start,
}

impl SystemClock {
    pub(super) fn new() -> Self {
        SystemClock { start: Start::now() }
    }

    pub(super) fn millis(&self) -> u64 {
        self.millis_at(Start::now())
    }

    pub(super) fn coarse_millis(&self) -> u64 {
        self.millis_at(Start::at_last_tick())
    }

    pub(super) fn millis_at(&self, moment: Start) -> u64 {
        moment.millis_since(self.start)
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::time::Duration;

    /// When something began that is measured.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Start {
        nanos: u64,
    }

    impl Start {
        pub(crate) fn now() -> Start {
            Start { nanos: nanos_of(libc::CLOCK_MONOTONIC) }
        }

        pub(crate) fn at_last_tick() -> Start {
            Start { nanos: nanos_of(libc::CLOCK_MONOTONIC_COARSE) }
        }

        pub(crate) fn millis_since(self, earlier: Start) -> u64 {
            // The last tick may have been before that.
            self.nanos.saturating_sub(earlier.nanos) / 1_000_000
        }

        pub(crate) fn elapsed(self) -> Duration {
            Duration::from_nanos(Start::now().nanos.saturating_sub(self.nanos))
        }
    }

    /// Reads a clock of the kernel; without a system call, as a rule.
    #[inline]
    fn nanos_of(clock: libc::clockid_t) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place to write to. Both clocks exist since Linux 2.6.32.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
    }
}

/// Where there is no coarse clock.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod portable {
    use std::time::{Duration, Instant};

    use crate::clock::millis;

    /// When something began that is measured.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Start(Instant);

    impl Start {
        pub(crate) fn now() -> Start {
            Start(Instant::now())
        }

        pub(crate) fn at_last_tick() -> Start {
            Start::now()
        }

        pub(crate) fn millis_since(self, earlier: Start) -> u64 {
            millis(self.0.saturating_duration_since(earlier.0))
        }

        pub(crate) fn elapsed(self) -> Duration {
            self.0.elapsed()
        }
    }
}
