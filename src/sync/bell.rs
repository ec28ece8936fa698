//! Where threads sleep until all of them are woken.
//!
//! On Linux it is a futex: a sleeper takes no memory, and all are woken by one system call, which holds nothing that
//! another thread could need. Elsewhere, and in models, it is a lock and a condition variable.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | B1 | `ring` counts on | `heard` | what it was rung for |

use std::fmt;
use std::time::Duration;

use super::{Acquire, AtomicU32, Release};

#[derive(Default)]
pub(crate) struct Bell {
    /// How often it has rung, modulo 2^32.
    rung: AtomicU32,
    #[cfg(any(seawall_loom, not(target_os = "linux")))]
    bed: bed::Bed,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bell")
    }
}

impl Bell {
    /// What has been heard so far. To be asked before looking for what the bell rings for.
    pub(crate) fn heard(&self) -> u32 {
        // ORDERING (B1): Acquire pairs with the Release of `ring`.
        self.rung.load(Acquire)
    }

    /// Blocks the thread until the bell has rung since `heard`, or some time has passed. May return early.
    pub(crate) fn sleep(&self, heard: u32, at_most: Duration) {
        #[cfg(all(target_os = "linux", not(seawall_loom)))]
        futex::wait(&self.rung, heard, at_most);
        #[cfg(any(seawall_loom, not(target_os = "linux")))]
        self.bed.sleep(at_most, || self.heard() == heard);
    }

    /// Wakes all who sleep, and those who are about to.
    pub(crate) fn ring(&self) {
        // ORDERING (B1): Release: who has heard this ring finds what it was rung for.
        self.rung.fetch_add(1, Release);
        #[cfg(all(target_os = "linux", not(seawall_loom)))]
        futex::wake_all(&self.rung);
        #[cfg(any(seawall_loom, not(target_os = "linux")))]
        self.bed.wake_all();
    }
}

#[cfg(all(target_os = "linux", not(seawall_loom)))]
mod futex {
    use std::ptr;
    use std::time::Duration;

    use super::AtomicU32;

    /// Returns at once if the word is not `expected`.
    pub(super) fn wait(word: &AtomicU32, expected: u32, at_most: Duration) {
        let seconds = libc::time_t::try_from(at_most.as_secs());
        let limit = seconds.ok().map(|tv_sec| libc::timespec {
            tv_sec,
            tv_nsec: at_most.subsec_nanos() as libc::c_long,
        });
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the limit live until the call returns. What it returns says why it did,
        // which the caller finds out by looking.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, limit) };
    }

    pub(super) fn wake_all(word: &AtomicU32) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: only the word's address is used.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
    }
}

#[cfg(any(seawall_loom, not(target_os = "linux")))]
mod bed {
    use std::sync::PoisonError;
    use std::time::Duration;

    use crate::sync::{Condvar, Mutex};

    #[derive(Default)]
    pub(super) struct Bed {
        lock: Mutex<()>,
        bell: Condvar,
    }

    impl Bed {
        pub(super) fn sleep(&self, at_most: Duration, still: impl Fn() -> bool) {
            let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            if still() {
                drop(self.bell.wait_timeout(lock, at_most));
            }
        }

        pub(super) fn wake_all(&self) {
            // Who has found nothing rung is asleep before this lock is had.
            drop(self.lock.lock());
            self.bell.notify_all();
        }
    }
}

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_sleeps_is_woken_and_who_heard_it_does_not_sleep() {
        let (bell, told) = (Bell::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let heard = bell.heard();
                        if told.load(Ordering::Relaxed) {
                            break;
                        }
                        bell.sleep(heard, Duration::MAX);
                    }
                });
            }
            told.store(true, Ordering::Relaxed);
            bell.ring();
        });
        bell.sleep(bell.heard().wrapping_sub(1), Duration::MAX);
    }

    #[test]
    fn nobody_sleeps_longer_than_he_wants() {
        let bell = Bell::default();
        bell.sleep(bell.heard(), Duration::ZERO);
        bell.sleep(bell.heard(), Duration::from_micros(1_500));
    }
}
