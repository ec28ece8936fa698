//! Memory reclamation.
//!
//! A reader pins before it loads a pointer from the table; a writer that unlinks something *retires*
//! it into the cache's [`Limbo`]; it is freed when every pin that may have seen it is gone.
//!
//! * Freeing, and with it the user's `Drop`, is done by threads that write, after they unpinned: a reader
//!   never runs a destructor.
//! * A limbo owns all its garbage: when the cache goes, nobody can be reading and all of it is freed
//!   at once, whichever thread retired it.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | R1 | `retire` stores a slot | `gather` swaps it out | the retired object, before it is freed |
//! | R2 | `put` fills a slot | `take` empties it | the batch |

#[cfg(not(seawall_loom))]
mod heap;
#[cfg(not(seawall_loom))]
mod limbo;
#[cfg(seawall_loom)]
mod model;

#[cfg(not(seawall_loom))]
pub(crate) use self::limbo::Limbo;
#[cfg(not(seawall_loom))]
pub(crate) use crate::epoch::{Guard, pin, stripe};

#[cfg(seawall_loom)]
pub(crate) use self::model::{Guard, Limbo, check_read, pin, stripe};

/// Where models check that what is read was not freed before the pin.
#[cfg(not(seawall_loom))]
#[inline]
pub(crate) fn check_read<T>(_object: *const T, _guard: &Guard) {}

/// What a retired pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    /// A node with key and value.
    Whole = 0,
    /// A node whose value has been moved out.
    Hollow = 1,
    /// What a node's state word pointed to.
    Extra = 2,
    /// An array of buckets; owns no nodes.
    Table = 3,
}

impl Kind {
    const MASK: usize = 3;

    fn of(tagged: *mut ()) -> Kind {
        match tagged.addr() & Kind::MASK {
            0 => Kind::Whole,
            1 => Kind::Hollow,
            2 => Kind::Extra,
            _ => Kind::Table,
        }
    }
}

/// What a limbo of nodes `Self` can free.
///
/// # Safety
/// `free` must accept every pointer that is retired under its kind, and these pointers must have an
/// alignment of at least 4.
pub(crate) unsafe trait Garbage {
    /// Frees a retired object.
    ///
    /// # Safety
    /// The pointer was retired under `kind`, nobody reads it any more, and it is freed once.
    unsafe fn free(retired: *mut (), kind: Kind);
}
