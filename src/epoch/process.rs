//! The epochs of this process, and what each of its threads owns of them.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use super::registry::{Epochs, Local};
use crate::sync::Stripe;

static EPOCHS: Epochs = Epochs::new();

thread_local! {
    /// None: not asked for yet, or the thread is ending.
    static LOCAL: Cell<Option<&'static Local>> = const { Cell::new(None) };
    static OWNER: Owner = const { Owner };
}

/// Gives a thread's local back when its thread ends.
struct Owner;

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(local) = LOCAL.take() {
            local.end();
        }
    }
}

/// The thread's own local, if it is not ending.
#[inline]
fn local() -> Option<&'static Local> {
    LOCAL.get().or_else(register)
}

#[cold]
#[inline(never)]
fn register() -> Option<&'static Local> {
    OWNER.try_with(|_| ()).ok()?;
    LOCAL.set(Some(EPOCHS.claim()));
    LOCAL.get()
}

/// A local for one pin: the thread is in the destructor of a thread-local of the user's.
#[cold]
#[inline(never)]
fn local_of_ending_thread() -> &'static Local {
    let local = EPOCHS.claim();
    local.end_with_pin();
    local
}

/// A pin: what was reachable since it was taken stays allocated until it is dropped.
pub(crate) struct Guard {
    local: &'static Local,
    /// A local is its thread's.
    not_send: PhantomData<*const ()>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// Pins the calling thread.
#[inline]
pub(crate) fn pin() -> Guard {
    let local = local().unwrap_or_else(local_of_ending_thread);
    local.pin(&EPOCHS);
    Guard { local, not_send: PhantomData }
}

impl Guard {
    /// The stripe of the pinned thread.
    #[inline]
    pub(crate) fn stripe(&self) -> Stripe {
        self.local.stripe()
    }

    /// Lets go of what this pin has held so far and pins anew.
    pub(crate) fn repin(&mut self) {
        self.local.repin(&EPOCHS);
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        self.local.unpin();
    }
}

/// The calling thread's stripe.
#[inline]
pub(crate) fn stripe() -> Stripe {
    local().map_or(Stripe::SHARED, Local::stripe)
}

/// Ends the current epoch and returns it: what the caller has unlinked may be freed when [`bound`] is
/// beyond it.
pub(crate) fn advance() -> u64 {
    EPOCHS.advance()
}

/// Looks at all threads to find out before which epoch nobody reads.
///
/// Threads that only have not pinned for a while hold it back, unless the call may fence: a system call of
/// some microseconds, more where many threads are running, and made only if it helps.
pub(crate) fn bound(may_fence: bool) -> u64 {
    EPOCHS.bound(local(), may_fence)
}
