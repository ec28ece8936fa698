//! A value that is written once, after others can already see its place.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;

/// Room for a value.
pub(crate) struct Late<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: shared references are given out only after the write, by `get`'s contract; what one thread
// writes another may drop.
unsafe impl<T: Send + Sync> Sync for Late<T> {}

impl<T> fmt::Debug for Late<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Late")
    }
}

impl<T> Late<T> {
    pub(crate) fn new(value: T) -> Late<T> {
        Late(UnsafeCell::new(MaybeUninit::new(value)))
    }

    pub(crate) fn empty() -> Late<T> {
        Late(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// # Safety
    /// There is a value, and its write happened before this.
    #[inline]
    pub(crate) unsafe fn get(&self) -> &T {
        // SAFETY: by the caller; written once, so nobody writes any more.
        let value = unsafe { &*self.0.get() };
        // SAFETY: by the caller.
        unsafe { value.assume_init_ref() }
    }

    /// # Safety
    /// There is no value yet, nobody else writes, and nobody reads before this happened.
    pub(crate) unsafe fn set(&self, value: T) {
        // SAFETY: by the caller, nobody else uses the place.
        unsafe { (*self.0.get()).write(value) };
    }

    /// # Safety
    /// There is a value.
    pub(crate) unsafe fn into_inner(self) -> T {
        // SAFETY: by the caller.
        unsafe { self.0.into_inner().assume_init() }
    }

    /// Moves the value out.
    ///
    /// # Safety
    /// `place` is valid, has a value, and nobody uses it as one any more.
    pub(crate) unsafe fn take(place: *const Late<T>) -> T {
        // SAFETY: by the caller.
        let value = unsafe { (*place).0.get() };
        // SAFETY: by the caller.
        unsafe { value.cast::<T>().read() }
    }
}
