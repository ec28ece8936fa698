//! One copy of a thing per thread, so that counting writes no line that another core writes.

use std::ops::Deref;

use super::{AtomicI64, Relaxed};

/// Keeps a value on cache lines of its own (two: the prefetcher of common processors loads pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The index of a thread among the live ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe(usize);

impl Stripe {
    /// The index of all threads that have no index of their own.
    pub(crate) const SHARED: Stripe = Stripe(usize::MAX);

    pub(crate) fn new(index: usize) -> Stripe {
        Stripe(index)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// A `T` for each of the first few threads and one that all further threads share.
#[derive(Debug)]
pub(crate) struct Striped<T> {
    owned: Box<[Padded<T>]>,
    shared: Padded<T>,
}

impl<T: Default> Striped<T> {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(8, usize::from);
        let owned = if cfg!(seawall_loom) { 0 } else { (2 * cores).clamp(8, 64) };
        Striped {
            owned: (0..owned).map(|_| Padded::default()).collect(),
            shared: Padded::default(),
        }
    }
}

impl<T> Striped<T> {
    /// Returns the stripe of a thread, and whether no other live thread writes to it.
    #[inline]
    pub(crate) fn of(&self, stripe: Stripe) -> (&T, bool) {
        match self.owned.get(stripe.index()) {
            Some(own) => (&own.0, true),
            None => (&self.shared.0, false),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.owned.iter().chain([&self.shared]).map(|stripe| &stripe.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.owned.len() + 1
    }

    /// Returns the stripe at a position, to look at, not to add to.
    pub(crate) fn at(&self, position: usize) -> &T {
        &self.owned.get(position).unwrap_or(&self.shared).0
    }
}

/// A signed counter inside a stripe. Relaxed throughout: a statistic publishes nothing.
#[derive(Debug, Default)]
pub(crate) struct Cell(AtomicI64);

impl Cell {
    /// Adds without a locked instruction when the stripe is the caller's own; returns the new value.
    #[inline]
    pub(crate) fn add(&self, amount: i64, own: bool) -> i64 {
        if own {
            let sum = self.0.load(Relaxed).wrapping_add(amount);
            self.0.store(sum, Relaxed);
            sum
        } else {
            self.0.fetch_add(amount, Relaxed).wrapping_add(amount)
        }
    }

    /// Takes what has been gathered, leaving zero.
    #[inline]
    pub(crate) fn take(&self, own: bool) -> i64 {
        if own {
            let sum = self.0.load(Relaxed);
            self.0.store(0, Relaxed);
            sum
        } else {
            self.0.swap(0, Relaxed)
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}
