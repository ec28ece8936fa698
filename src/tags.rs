//! Tags: a generation for each, so that all entries of a tag are invalidated in constant time.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed, Release};
use crate::table::reclaim::{Garbage, Kind, pin};
use crate::table::word::Policy;
use crate::table::{self, Commit, Map, Owned, Probe, Rehash};

/// What the entries of a tag share.
#[derive(Debug)]
struct Tag {
    name: Arc<str>,
    generation: AtomicU64,
    /// The number of its last invalidation.
    invalidated: AtomicU64,
    /// How many invalidations, of any tag, there had been when it was in the table; until that is noted,
    /// the highest number.
    made: AtomicU64,
}

/// A tag and its generation when an entry was given it.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    tag: Arc<Tag>,
    generation: u64,
}

impl Stamp {
    /// Whether the tag has not been invalidated since.
    pub(crate) fn is_current(&self) -> bool {
        // ORDERING (G1): Acquire pairs with the Release in `invalidate`.
        self.tag.generation.load(Acquire) == self.generation
    }

    /// Whether both are of one tag.
    pub(crate) fn is_of_the_tag_of(&self, other: &Stamp) -> bool {
        Arc::ptr_eq(&self.tag, &other.tag)
    }

    /// Whether the tag may have been invalidated since there had been `since` invalidations in all.
    fn is_newer_than(&self, since: u64, last: u64) -> bool {
        // Of a tag that was made after that, nobody knows: any invalidation may have been its own.
        self.tag.invalidated.load(Acquire) > since
            || (self.tag.made.load(Acquire) > since && last > since)
    }
}

/// The stamps of an entry; none take no memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps(Option<Arc<[Stamp]>>);

impl std::ops::Deref for Stamps {
    type Target = [Stamp];

    #[inline]
    fn deref(&self) -> &[Stamp] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl FromIterator<Stamp> for Stamps {
    fn from_iter<I: IntoIterator<Item = Stamp>>(stamps: I) -> Self {
        let mut stamps = stamps.into_iter().peekable();
        Stamps(stamps.peek().is_some().then_some(()).map(|()| stamps.collect()))
    }
}

/// The tags in use: the crate's own table, so that giving an entry a tag takes no lock either.
#[derive(Debug)]
pub(crate) struct Tags {
    map: Map<TagNode, TagHasher>,
    len: AtomicU64,
    /// Invalidations so far, of any tag.
    invalidations: AtomicU64,
    /// Where the next look for unused tags begins.
    broom: AtomicU64,
}

#[derive(Debug)]
#[repr(align(8))]
struct TagNode(Arc<Tag>);

#[derive(Debug)]
struct TagHasher(ahash::RandomState);

impl TagHasher {
    fn hash(&self, name: &str) -> u64 {
        self.0.hash_one(name)
    }
}

impl Rehash<TagNode> for TagHasher {
    fn rehash(&self, node: &TagNode) -> u64 {
        self.hash(&node.0.name)
    }
}

// SAFETY: tag nodes are boxes.
unsafe impl Garbage for TagNode {
    unsafe fn free(retired: *mut (), kind: Kind) {
        if kind == Kind::Table {
            // SAFETY: by the caller.
            unsafe { table::free_table(retired) };
        } else {
            // SAFETY: by the caller; nothing but whole nodes and tables is retired here.
            drop(unsafe { Box::from_raw(retired.cast::<TagNode>()) });
        }
    }
}

// SAFETY: as above, and aligned to 8.
unsafe impl table::Node for TagNode {
    type Value = ();

    unsafe fn take_value(_node: *mut Self) {}
}

/// Set in a tag's generation once it has been swept out of the table: an entry must not use it.
const SWEPT: u64 = 1 << 63;

/// Buckets that the table of tags begins with.
const BUCKETS: usize = 8;

impl Tags {
    pub(crate) fn new() -> Self {
        let hasher = TagHasher(ahash::RandomState::new());
        let map = Map::try_new(BUCKETS, hasher).expect("half a kilobyte of memory");
        Tags {
            map,
            len: AtomicU64::new(0),
            invalidations: AtomicU64::new(0),
            broom: AtomicU64::new(0),
        }
    }

    /// Returns the tag's stamp for an entry that is made now.
    pub(crate) fn stamp(&self, name: &Arc<str>) -> Stamp {
        let hash = self.map.hasher().hash(name);
        let guard = pin();
        let stamp = loop {
            match self.map.probe(hash, |node| node.0.name == *name, &guard) {
                Probe::Found(found) => {
                    let tag = Arc::clone(&found.node().0);
                    // ORDERING (G2): Acquire; the reference counted above keeps a sweep that has not
                    // yet looked at the count from marking the tag.
                    let generation = tag.generation.load(Acquire);
                    if generation & SWEPT == 0 {
                        break Stamp { tag, generation };
                    }
                    // A sweep marked it before it saw us: finish its work and begin a new tag.
                    self.map.remove(&found, &guard);
                }
                Probe::Vacant(vacant) => {
                    let tag = Arc::new(Tag {
                        name: Arc::clone(name),
                        generation: AtomicU64::new(0),
                        invalidated: AtomicU64::new(0),
                        made: AtomicU64::new(u64::MAX),
                    });
                    let raw = NonNull::from(Box::leak(Box::new(TagNode(Arc::clone(&tag)))));
                    // SAFETY: a box of our own.
                    let node = unsafe { Owned::from_raw(raw, self.map.limbo()) };
                    match self.map.commit(&vacant, node, Policy::default(), &guard) {
                        Commit::Done(_) => {
                            tag.made.store(self.invalidations(), Release);
                            self.grew(&guard);
                            break Stamp { tag, generation: 0 };
                        }
                        Commit::Lost(_) => {}
                        Commit::Full(_) => {
                            let began = self.map.start_growth(&guard);
                            if !began && !self.map.is_growing(&guard) {
                                // A chain of 24 in a table that cannot grow: there is no memory.
                                handle_alloc_error(Layout::new::<TagNode>());
                            }
                            self.map.help_growth(&guard);
                        }
                    }
                }
            }
        };
        let stripe = guard.stripe();
        drop(guard);
        if self.map.limbo().is_due(stripe) {
            self.map.limbo().free_ready(stripe);
        }
        stamp
    }

    /// Returns how many forgotten tags wait to be freed.
    pub(crate) fn garbage(&self) -> u64 {
        self.map.limbo().waiting()
    }

    /// Frees forgotten tags, as far as no thread is reading.
    pub(crate) fn flush(&self) {
        self.map.limbo().flush();
    }

    /// Returns how many invalidations there have been, at least: all that returned before.
    pub(crate) fn invalidations_so_far(&self) -> u64 {
        self.invalidations.load(Acquire)
    }

    /// Returns how many invalidations there have been.
    fn invalidations(&self) -> u64 {
        // ORDERING (G3): a read-modify-write, so that it is before or after each invalidation's: one that
        // comes after finds the tags that were made before.
        self.invalidations.fetch_add(0, AcqRel)
    }

    /// Whether one of the tags may have been invalidated since there had been `since` invalidations.
    pub(crate) fn changed(&self, stamps: &[Stamp], since: u64) -> bool {
        let last = self.invalidations();
        stamps.iter().any(|stamp| stamp.is_newer_than(since, last))
    }

    /// Makes all stamps of a tag outdated; returns whether the tag was known.
    pub(crate) fn invalidate(&self, name: &str) -> bool {
        // ORDERING (G3): before the look for the tag; see `invalidations`.
        let number = self.invalidations.fetch_add(1, AcqRel) + 1;
        let guard = pin();
        let hash = self.map.hasher().hash(name);
        match self.map.find(hash, |node| &*node.0.name == name, &guard) {
            Some(found) => {
                // ORDERING (G1): Release: who reads an entry after this returned finds it outdated.
                let tag = &found.node().0;
                let mut seen = tag.invalidated.load(Relaxed);
                while seen < number {
                    match tag.invalidated.compare_exchange(seen, number, AcqRel, Relaxed) {
                        Ok(_) => break,
                        Err(now) => seen = now,
                    }
                }
                tag.generation.fetch_add(1, AcqRel);
                true
            }
            None => false,
        }
    }

    /// Accounts for a new tag, and looks through two buckets for tags that no entry has any more.
    fn grew(&self, guard: &crate::table::reclaim::Guard) {
        let len = self.len.fetch_add(1, Relaxed) + 1;
        let buckets = self.map.buckets(guard) as u64;
        if len > buckets * 4 {
            self.map.start_growth(guard);
        }
        if self.map.is_growing(guard) {
            self.map.help_growth(guard);
        }
        for _ in 0..2 {
            let position = self.broom.fetch_add(1, Relaxed);
            let mut unused = Vec::new();
            self.map.visit_at(position, guard, |found| {
                if Arc::strong_count(&found.node().0) == 1 {
                    unused.push(found);
                }
            });
            for found in unused {
                let generation = &found.node().0.generation;
                let now = generation.load(Acquire);
                // ORDERING (G2): once marked, `stamp` does not use it; if an entry got it between our
                // look and the mark, its stamp is outdated and the entry reads as invalidated, which
                // is safe.
                let marked = now & SWEPT != 0
                    || generation.compare_exchange(now, now | SWEPT, AcqRel, Relaxed).is_ok();
                if marked && self.map.remove(&found, guard) {
                    self.len.fetch_sub(1, Relaxed);
                }
            }
        }
    }
}

/// Gives all of an entry's tags their stamps.
pub(crate) fn stamps(tags: &Tags, names: &[Arc<str>]) -> Stamps {
    names.iter().map(|name| tags.stamp(name)).collect()
}
