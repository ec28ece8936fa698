//! The crate's errors.

use std::error::Error;
use std::fmt;

/// Why a cache cannot be built from the given settings.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// Neither [`max_entries`](crate::Builder::max_entries) nor
    /// [`max_weight`](crate::Builder::max_weight) was set.
    NoBudget,
    /// Both of them were set.
    TwoBudgets,
    /// A weigher was set for a cache that is bounded by entries, where nothing would call it.
    WeigherWithoutWeight,
    /// A fraction is not a number between 0 and 1. Names the setting and its value.
    Fraction(&'static str, f64),
    /// A number is out of the range of its setting. Names the setting and the number.
    Number(&'static str, f64),
    /// A duration above zero is shorter than one millisecond, the unit of all deadlines. Names the
    /// setting.
    TooShort(&'static str),
    /// A setting needs another one to have any effect, and that one is missing. Names both.
    Needs(&'static str, &'static str),
    /// One duration must not be longer than another: an early refresh would be due before the value is
    /// made. Names both settings.
    Order(&'static str, &'static str),
    /// There is not enough memory for a table of this many entries.
    OutOfMemory {
        /// The number of entries that the table was to be made for.
        entries: u64,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBudget => f.write_str("neither max_entries nor max_weight is set"),
            Self::TwoBudgets => f.write_str("both max_entries and max_weight are set"),
            Self::WeigherWithoutWeight => f.write_str("a weigher has no effect without max_weight"),
            Self::Fraction(setting, value) => {
                write!(f, "{setting} must be a number from 0 to 1, not {value}")
            }
            Self::Number(setting, value) => {
                write!(f, "{value} is out of the range of {setting}")
            }
            Self::TooShort(setting) => {
                write!(f, "{setting} must be zero or at least one millisecond")
            }
            Self::Needs(setting, needed) => write!(f, "{setting} has no effect without {needed}"),
            Self::Order(earlier, later) => write!(f, "{earlier} must not be longer than {later}"),
            Self::OutOfMemory { entries } => {
                write!(f, "not enough memory for a table of {entries} entries")
            }
        }
    }
}

impl Error for ConfigError {}

/// Why a value was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedReason {
    /// It is heavier than the whole budget.
    TooHeavy {
        /// The value's weight.
        weight: u64,
        /// The cache's capacity.
        capacity: u64,
    },
    /// The options gave a weight, but the cache is bounded by entries.
    Unweighted,
    /// A duration in the options is above zero and shorter than one millisecond.
    TooShort,
    /// The options give a stale window to an entry that has no deadline.
    NoDeadline,
    /// The cache holds a newer version of this key.
    Older {
        /// The version it holds.
        than: u64,
    },
    /// The key is present, and the call was to insert only if it is not.
    Present,
    /// The key is absent, and the call was to replace only.
    Absent,
    /// The caller's predicate said no.
    Predicate,
}

/// A value that was not stored, handed back with the reason.
///
/// What the cache held before the call it still holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Refused<V> {
    value: V,
    reason: RefusedReason,
}

impl<V> Refused<V> {
    pub(crate) fn new(value: V, reason: RefusedReason) -> Self {
        Refused { value, reason }
    }

    /// Returns the value.
    pub fn into_value(self) -> V {
        self.value
    }

    /// Returns a reference to the value.
    pub fn value(&self) -> &V {
        &self.value
    }

    /// Returns why it was not stored.
    pub fn reason(&self) -> RefusedReason {
        self.reason
    }
}

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            RefusedReason::TooHeavy { weight, capacity } => {
                write!(f, "a weight of {weight} is above the capacity of {capacity}")
            }
            RefusedReason::Unweighted => {
                f.write_str("a weight was given to a cache that is bounded by entries")
            }
            RefusedReason::TooShort => {
                f.write_str("a duration must be zero or at least one millisecond")
            }
            RefusedReason::NoDeadline => {
                f.write_str("a stale window has no effect on an entry without a deadline")
            }
            RefusedReason::Older { than } => {
                write!(f, "the cache holds the newer version {than}")
            }
            RefusedReason::Present => f.write_str("the key is present"),
            RefusedReason::Absent => f.write_str("the key is absent"),
            RefusedReason::Predicate => f.write_str("the predicate said no"),
        }
    }
}

impl<V> Error for Refused<V> {}
