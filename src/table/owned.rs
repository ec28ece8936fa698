//! A node that is in no slot: before its commit, or given back.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::Node;
use super::reclaim::{Kind, Limbo, pin};

/// Owns a node. Dropping it frees the node, or retires it if other threads may have seen it in a slot
/// that was claimed and given back (they may be comparing its key).
pub(crate) struct Owned<'m, N: Node> {
    node: NonNull<N>,
    exposed: bool,
    limbo: &'m Limbo<N>,
}

impl<'m, N: Node> Owned<'m, N> {
    /// # Safety
    /// The node is the caller's alone, and `N::free` accepts it as [`Kind::Whole`].
    pub(crate) unsafe fn from_raw(node: NonNull<N>, limbo: &'m Limbo<N>) -> Self {
        Owned { node, exposed: false, limbo }
    }

    pub(crate) fn as_ptr(&self) -> *mut N {
        self.node.as_ptr()
    }

    pub(crate) fn node(&self) -> &N {
        // SAFETY: owned; other threads at most read its key.
        unsafe { self.node.as_ref() }
    }

    /// Notes that other threads may have seen the node.
    pub(super) fn set_exposed(&mut self) {
        self.exposed = true;
    }

    /// Leaves the node to the table: it was committed.
    pub(super) fn release<'g>(self) -> &'g N {
        let node = ManuallyDrop::new(self).node;
        // SAFETY: committed nodes stay allocated until they are retired and every pin of that time
        // has ended; the caller is pinned for 'g.
        unsafe { node.as_ref() }
    }

    /// Takes the value back out and disposes of the rest.
    pub(crate) fn into_value(self) -> N::Value {
        let this = ManuallyDrop::new(self);
        // SAFETY: never committed; `self` is consumed, so this is done once.
        let value = unsafe { N::take_value(this.as_ptr()) };
        this.dispose(Kind::Hollow);
        value
    }

    fn dispose(&self, kind: Kind) {
        let node = self.as_ptr();
        if self.exposed {
            // SAFETY: it is in no slot any more, and ours to retire, once.
            unsafe { self.limbo.retire(node.cast(), kind, &pin()) };
        } else {
            // SAFETY: nobody else has seen it.
            unsafe { N::free(node.cast(), kind) };
        }
    }
}

impl<N: Node> Drop for Owned<'_, N> {
    fn drop(&mut self) {
        self.dispose(Kind::Whole);
    }
}
