//! The errors of Bloom filters.

use std::error::Error;
use std::fmt;

/// Why a filter cannot have the size that was asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SizeError {
    /// A filter for no keys at all.
    NoItems,
    /// The rate of false positives is not a number between 0 and 1, both excluded.
    Rate(f64),
    /// The filter would be larger than the address space.
    TooLarge,
    /// A filter of this many bytes would say *maybe* to more than half of all absent keys.
    TooSmall {
        /// The bytes that were given.
        bytes: usize,
        /// The bytes at which the rate is a half.
        needed: usize,
    },
    /// The allocator has no room for the filter.
    OutOfMemory {
        /// The size of the filter.
        bytes: usize,
    },
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoItems => f.write_str("a filter must be planned for at least one key"),
            Self::Rate(rate) => {
                write!(f, "the rate of false positives must be above 0 and below 1, not {rate}")
            }
            Self::TooLarge => f.write_str("the filter would be larger than the address space"),
            Self::TooSmall { bytes, needed } => {
                write!(f, "{bytes} bytes are too few for that many keys; use {needed} or more")
            }
            Self::OutOfMemory { bytes } => {
                write!(f, "not enough memory for a filter of {bytes} bytes")
            }
        }
    }
}

impl Error for SizeError {}

/// Why bytes are not a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// They do not begin as a snapshot does.
    Foreign,
    /// The version of the format is not one that this version of the crate reads.
    Version(u32),
    /// A field of the header has a value that this version of the format does not have.
    Header,
    /// The end is missing.
    Truncated {
        /// The length of the whole snapshot, as far as it can be told.
        expected: u64,
        /// The bytes that there are.
        found: u64,
    },
    /// There is more after the end.
    TooLong {
        /// The length of the snapshot.
        expected: u64,
        /// The bytes that there are.
        found: u64,
    },
    /// The checksum is another: some byte has changed.
    Checksum,
    /// The allocator has no room for the filter.
    OutOfMemory {
        /// The size of the filter.
        bytes: u64,
    },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("not a snapshot of a Bloom filter"),
            Self::Version(version) => write!(f, "unknown version {version} of the format"),
            Self::Header => f.write_str("a field of the header has an unknown value"),
            Self::Truncated { expected, found } => {
                write!(f, "truncated: {found} bytes of {expected}")
            }
            Self::TooLong { expected, found } => {
                write!(f, "too long: {found} bytes instead of {expected}")
            }
            Self::Checksum => f.write_str("the checksum does not match"),
            Self::OutOfMemory { bytes } => {
                write!(f, "not enough memory for a filter of {bytes} bytes")
            }
        }
    }
}

impl Error for SnapshotError {}

/// Two filters cannot be merged: their sizes or their seeds differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShapeMismatch {
    /// The numbers of blocks of the filter that was to grow, and of the other.
    pub blocks: (usize, usize),
    /// Their seeds.
    pub seeds: (u64, u64),
}

impl fmt::Display for ShapeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((ours, theirs), (seed, other)) = (self.blocks, self.seeds);
        write!(f, "{ours} blocks with seed {seed} and {theirs} blocks with seed {other}")
    }
}

impl Error for ShapeMismatch {}

/// Why a rebuild does not start.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum RebuildError {
    /// Another one is going on.
    InProgress,
    /// There is no room for the new generation.
    Size(SizeError),
}

impl fmt::Display for RebuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProgress => f.write_str("another rebuild is in progress"),
            Self::Size(_) => f.write_str("no room for a new generation"),
        }
    }
}

impl Error for RebuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InProgress => None,
            Self::Size(error) => Some(error),
        }
    }
}

impl From<SizeError> for RebuildError {
    fn from(error: SizeError) -> Self {
        Self::Size(error)
    }
}
