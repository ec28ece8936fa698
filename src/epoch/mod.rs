//! Epochs: knowing when nobody reads any more what has been unlinked.
//!
//! Epoch-based reclamation (K. Fraser, "Practical lock-freedom", 2004, section 5.2.3) with one epoch a
//! batch in place of three in turn. A pin is a few plain stores: that it is seen in time is seen to by those
//! who free, who either have seen a later pin of the same thread or make all threads pass a fence. Readers
//! never collect anything. A pin holds the garbage of all caches of the process, but of nobody else.

#[cfg(not(seawall_loom))]
mod process;
mod registry;

#[cfg(all(test, seawall_loom))]
mod models;
#[cfg(all(test, not(seawall_loom)))]
mod tests;

#[cfg(not(seawall_loom))]
pub(crate) use self::process::{Guard, advance, bound, pin, stripe};
