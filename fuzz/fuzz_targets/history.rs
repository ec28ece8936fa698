//! Concurrent histories of one key, and whether some order of their operations explains them.
//!
//! After Wing and Gong, "Testing and verifying concurrent objects" (1993): an order explains a history
//! if each operation comes after those that had returned before it was called, and each returned what
//! it would have, had they been done one by one.

use std::collections::HashSet;

/// What was done to a key and what came of it. Values are unique within a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Got(Option<u32>),
    /// Stored, in place of a value or not.
    Inserted {
        value: u32,
        replaced: bool,
    },
    /// Stored only if absent.
    InsertedIfAbsent {
        value: u32,
        stored: bool,
    },
    /// Stored only if present.
    ReplacedIfPresent {
        value: u32,
        stored: bool,
    },
    Removed(Option<u32>),
    Invalidated(bool),
    /// A compute that was shown `seen` and stored, removed or kept.
    ComputedInsert {
        seen: Option<u32>,
        value: u32,
        replaced: bool,
    },
    ComputedRemove {
        seen: Option<u32>,
        removed: bool,
    },
    ComputedKeep {
        seen: Option<u32>,
    },
}

/// One operation, with the moments of its call and its return.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub called: u64,
    pub returned: u64,
    pub done: Done,
}

impl Done {
    /// The key's next value, if the operation could have had this result at a value.
    fn at(self, value: Option<u32>) -> Option<Option<u32>> {
        let here = value.is_some();
        match self {
            Done::Got(got) => (got == value).then_some(value),
            Done::Inserted { value: new, replaced } => (replaced == here).then_some(Some(new)),
            Done::InsertedIfAbsent { value: new, stored: true } => (!here).then_some(Some(new)),
            Done::InsertedIfAbsent { stored: false, .. } => here.then_some(value),
            Done::ReplacedIfPresent { value: new, stored: true } => here.then_some(Some(new)),
            Done::ReplacedIfPresent { stored: false, .. } => (!here).then_some(value),
            Done::Removed(removed) => (removed == value).then_some(None),
            Done::Invalidated(there) => (there == here).then_some(None),
            Done::ComputedInsert { seen, value: new, replaced } => {
                (seen == value && replaced == here).then_some(Some(new))
            }
            Done::ComputedRemove { seen, removed } => {
                (seen == value && removed == here).then_some(None)
            }
            Done::ComputedKeep { seen } => (seen == value).then_some(value),
        }
    }
}

/// Whether some order explains a history that began with a value.
pub fn is_linearizable(first: Option<u32>, history: &[Event]) -> bool {
    assert!(history.len() <= 32, "one bit for each event");
    let all = (1_u64 << history.len()) - 1;
    let mut seen = HashSet::new();
    let mut open = vec![(0_u64, first)];
    while let Some((past, value)) = open.pop() {
        if past == all {
            return true;
        }
        if !seen.insert((past, value)) {
            continue;
        }
        let left = || (0..history.len()).filter(|event| past >> event & 1 == 0);
        // Who was called after another one had returned cannot come before it.
        let end = left().map(|event| history[event].returned).min().expect("some are left");
        for event in left().filter(|event| history[*event].called < end) {
            if let Some(next) = history[event].done.at(value) {
                open.push((past | 1 << event, next));
            }
        }
    }
    false
}
