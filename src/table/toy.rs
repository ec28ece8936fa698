//! A small map over the table, for unit tests and models: numbers to numbers, with every node counted.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::reclaim::{Garbage, Guard, Kind, pin};
use super::word::Policy;
use super::{Commit, Map, Node, Owned, Probe, Rehash, free_table};

/// How many nodes are alive. A standard atomic also under loom: it is no part of the model.
#[derive(Clone, Default)]
pub(super) struct Census(Arc<AtomicUsize>);

impl Census {
    pub(super) fn alive(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[repr(align(8))]
pub(super) struct Item {
    pub(super) key: u64,
    pub(super) value: u64,
    census: Census,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.census.0.fetch_sub(1, Ordering::SeqCst);
    }
}

// SAFETY: items are boxes.
unsafe impl Garbage for Item {
    unsafe fn free(retired: *mut (), kind: Kind) {
        if kind == Kind::Table {
            // SAFETY: by the caller.
            unsafe { free_table(retired) };
        } else {
            // SAFETY: by the caller.
            drop(unsafe { Box::from_raw(retired.cast::<Item>()) });
        }
    }
}

// SAFETY: aligned to 8.
unsafe impl Node for Item {
    type Value = ();

    unsafe fn take_value(_node: *mut Self) {}
}

/// Hashes a key to itself, so that tests choose buckets (upper bits) and tags (bits 16 to 23).
pub(super) struct Identity;

impl Rehash<Item> for Identity {
    fn rehash(&self, node: &Item) -> u64 {
        node.key
    }
}

pub(super) struct Toy {
    pub(super) map: Map<Item, Identity>,
    pub(super) census: Census,
}

impl Toy {
    pub(super) fn new(buckets: usize) -> Toy {
        Toy { map: Map::try_new(buckets, Identity).unwrap(), census: Census::default() }
    }

    fn node(&self, key: u64, value: u64) -> Owned<'_, Item> {
        self.census.0.fetch_add(1, Ordering::SeqCst);
        let item = Box::new(Item { key, value, census: self.census.clone() });
        // SAFETY: a box of our own.
        unsafe { Owned::from_raw(NonNull::from(Box::leak(item)), self.map.limbo()) }
    }

    pub(super) fn get(&self, key: u64) -> Option<u64> {
        let guard = pin();
        self.map.find(key, |item| item.key == key, &guard).map(|found| found.node().value)
    }

    /// Returns the value that was replaced. Grows when a chain is full.
    pub(super) fn put(&self, key: u64, value: u64) -> Option<u64> {
        let guard = pin();
        let mut node = self.node(key, value);
        loop {
            match self.map.probe(key, |item| item.key == key, &guard) {
                Probe::Found(found) => {
                    let old = found.node().value;
                    match self.map.replace(&found, node, Policy::default(), &guard) {
                        Ok(_) => return Some(old),
                        Err(back) => node = back,
                    }
                }
                Probe::Vacant(vacant) => {
                    match self.map.commit(&vacant, node, Policy::default(), &guard) {
                        Commit::Done(_) => return None,
                        Commit::Lost(back) => node = back,
                        Commit::Full(back) => {
                            node = back;
                            self.grow(&guard);
                        }
                    }
                }
            }
        }
    }

    /// Returns whether the key was absent.
    pub(super) fn put_if_absent(&self, key: u64, value: u64) -> bool {
        let guard = pin();
        let mut node = self.node(key, value);
        loop {
            match self.map.probe(key, |item| item.key == key, &guard) {
                Probe::Found(_) => return false,
                Probe::Vacant(vacant) => {
                    match self.map.commit(&vacant, node, Policy::default(), &guard) {
                        Commit::Done(_) => return true,
                        Commit::Lost(back) => node = back,
                        Commit::Full(back) => {
                            node = back;
                            self.grow(&guard);
                        }
                    }
                }
            }
        }
    }

    /// Returns the value that was removed.
    pub(super) fn remove(&self, key: u64) -> Option<u64> {
        let guard = pin();
        loop {
            match self.map.probe(key, |item| item.key == key, &guard) {
                Probe::Vacant(_) => return None,
                Probe::Found(found) if self.map.remove(&found, &guard) => {
                    return Some(found.node().value);
                }
                Probe::Found(_) => {}
            }
        }
    }

    /// Counts a use of a key.
    pub(super) fn touch(&self, key: u64) {
        let guard = pin();
        if let Some(found) = self.map.find(key, |item| item.key == key, &guard) {
            found.count_use();
        }
    }

    pub(super) fn grow(&self, guard: &Guard) {
        if !self.map.start_growth(guard) {
            self.map.help_growth(guard);
        }
    }

    /// Helps until no growth is under way.
    pub(super) fn finish_growth(&self) {
        let guard = pin();
        while self.map.is_growing(&guard) {
            self.map.help_growth(&guard);
        }
    }

    /// All entries; panics if a key is there twice.
    pub(super) fn entries(&self) -> BTreeMap<u64, u64> {
        let mut entries = BTreeMap::new();
        let mut next = Some(0);
        while let Some(hash) = next {
            let guard = pin();
            next = self.map.visit(hash, &guard, |found| {
                let item = found.node();
                assert!(entries.insert(item.key, item.value).is_none(), "{} twice", item.key);
            });
        }
        entries
    }

    /// At rest: no slot holds anything but committed, live nodes, and no node is lost.
    pub(super) fn validate(&self) -> BTreeMap<u64, u64> {
        self.finish_growth();
        let entries = self.entries();
        let guard = pin();
        let filled = self.map.filled_slots(&guard);
        assert_eq!(filled, entries.len(), "slots left behind");
        entries
    }
}
