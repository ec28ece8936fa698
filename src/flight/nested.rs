//! Loads inside loads: finds out that a load would wait for itself.
//!
//! Each thread keeps the flights whose loaders it is running at the moment, innermost last. A loader
//! that is about to wait for another flight notes that in its own, and looks along these notes whether
//! they lead back to it. Of two that close a circle at the same time at least one sees it, since each
//! writes its note before it reads the other's.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A flight whose loader may wait for others.
pub(super) trait Leads: Send + Sync {
    fn notes(&self) -> &Notes;
}

/// The flights that one flight's loader waits for.
#[derive(Default)]
pub(super) struct Notes(Mutex<Vec<Arc<dyn Leads>>>);

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notes")
    }
}

impl Notes {
    fn with<R>(&self, f: impl FnOnce(&mut Vec<Arc<dyn Leads>>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

thread_local! {
    static LEADING: RefCell<Vec<Arc<dyn Leads>>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, the thread is running the loader of a flight; what it was running before waits for
/// that.
#[derive(Debug)]
pub(crate) struct Leading {
    /// Not if the thread was running that very loader.
    listed: bool,
    note: Option<Note>,
}

impl Leading {
    pub(super) fn new<F: Leads + 'static>(flight: &Arc<F>) -> Leading {
        // A thread that is being torn down nests nothing any more.
        let leading = LEADING.try_with(|leading| {
            let mut leading = leading.borrow_mut();
            let outer = leading.last();
            if outer.is_some_and(|outer| Arc::as_ptr(outer).addr() == Arc::as_ptr(flight).addr()) {
                return Leading { listed: false, note: None };
            }
            let flight: Arc<dyn Leads> = Arc::clone(flight) as _;
            let note = outer.map(|outer| Note::new(outer, &flight));
            leading.push(flight);
            Leading { listed: true, note }
        });
        leading.unwrap_or(Leading { listed: false, note: None })
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        if !self.listed {
            return;
        }
        let ended = LEADING.try_with(|leading| leading.borrow_mut().pop());
        // Perhaps the last reference to a flight: dropped when the thread's list is free again.
        drop((ended, self.note.take()));
    }
}

fn is(a: &Arc<dyn Leads>, b: &Arc<dyn Leads>) -> bool {
    Arc::as_ptr(a).cast::<()>() == Arc::as_ptr(b).cast::<()>()
}

/// A loader's note that it waits for a flight, until dropped.
pub(super) struct Note {
    of: Arc<dyn Leads>,
    target: Arc<dyn Leads>,
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Note")
    }
}

impl Note {
    fn new(of: &Arc<dyn Leads>, target: &Arc<dyn Leads>) -> Note {
        of.notes().with(|notes| notes.push(Arc::clone(target)));
        Note { of: Arc::clone(of), target: Arc::clone(target) }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let removed = self.of.notes().with(|notes| {
            let place = notes.iter().position(|it| is(it, &self.target));
            place.map(|place| notes.swap_remove(place))
        });
        drop(removed);
    }
}

/// The flight would wait for itself.
#[derive(Debug)]
pub(crate) struct Circle;

/// Whether the calling thread is running a loader.
pub(super) fn is_leading() -> bool {
    LEADING.try_with(|leading| !leading.borrow().is_empty()).unwrap_or(false)
}

/// Notes that the calling thread is about to wait for a flight, if that happens inside a loader.
pub(super) fn wait_for(target: &Arc<dyn Leads>) -> Result<Option<Note>, Circle> {
    let leading = LEADING.try_with(|leading| leading.borrow().clone()).unwrap_or_default();
    let Some(innermost) = leading.last() else { return Ok(None) };
    let note = Note::new(innermost, target);
    let mut seen: Vec<Arc<dyn Leads>> = Vec::new();
    let mut next = vec![Arc::clone(target)];
    while let Some(flight) = next.pop() {
        if leading.iter().any(|it| is(it, &flight)) {
            return Err(Circle);
        }
        if !seen.iter().any(|it| is(it, &flight)) {
            next.extend(flight.notes().with(|notes| notes.clone()));
            seen.push(flight);
        }
    }
    Ok(Some(note))
}
