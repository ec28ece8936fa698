//! Least recently used: what seawall is compared with.

use std::collections::HashMap;

use crate::args::Budget;
use crate::policy::Policy;

/// No node.
const NONE: u32 = u32::MAX;

struct Node {
    key: u32,
    weight: u64,
    /// Used more recently.
    newer: u32,
    /// Used less recently.
    older: u32,
}

/// A list of nodes by their use, and where in it each key is. For one thread only.
pub(crate) struct Lru {
    places: HashMap<u32, u32, ahash::RandomState>,
    nodes: Vec<Node>,
    newest: u32,
    oldest: u32,
    budget: Budget,
    weight: u64,
    evictions: u64,
}

impl Lru {
    pub(crate) fn new(budget: Budget) -> Self {
        Lru {
            places: HashMap::default(),
            nodes: Vec::new(),
            newest: NONE,
            oldest: NONE,
            budget,
            weight: 0,
            evictions: 0,
        }
    }

    fn link_as_newest(&mut self, at: u32) {
        let second = std::mem::replace(&mut self.newest, at);
        let node = &mut self.nodes[at as usize];
        (node.newer, node.older) = (NONE, second);
        match self.nodes.get_mut(second as usize) {
            Some(second) => second.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Node { newer, older, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Takes the oldest node out; the last node of the array moves to its place.
    fn evict(&mut self) {
        let at = self.oldest;
        self.unlink(at);
        let last = self.nodes.len() as u32 - 1;
        let node = self.nodes.swap_remove(at as usize);
        self.places.remove(&node.key);
        self.weight -= node.weight;
        self.evictions += 1;
        if at != last {
            self.relink(at);
        }
    }

    /// Tells its neighbours that a node has moved here.
    fn relink(&mut self, to: u32) {
        let Node { key, newer, older, .. } = self.nodes[to as usize];
        self.places.insert(key, to);
        match self.nodes.get_mut(newer as usize) {
            Some(newer) => newer.older = to,
            None => self.newest = to,
        }
        match self.nodes.get_mut(older as usize) {
            Some(older) => older.newer = to,
            None => self.oldest = to,
        }
    }
}

impl Policy for Lru {
    fn get(&mut self, key: u32) -> bool {
        let Some(&at) = self.places.get(&key) else {
            return false;
        };
        if at != self.newest {
            self.unlink(at);
            self.link_as_newest(at);
        }
        true
    }

    fn insert(&mut self, key: u32, size: u64) -> bool {
        let weight = match self.budget {
            Budget::Entries(_) => 1,
            Budget::Bytes(_) => size.max(1),
        };
        let Some(room) = self.budget.amount().checked_sub(weight) else {
            return false;
        };
        while self.weight > room {
            self.evict();
        }
        let at = self.nodes.len() as u32;
        self.nodes.push(Node { key, weight, newer: NONE, older: NONE });
        self.places.insert(key, at);
        self.link_as_newest(at);
        self.weight += weight;
        true
    }

    fn evictions(&self) -> u64 {
        self.evictions
    }
}
