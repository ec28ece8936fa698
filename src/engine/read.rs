//! Lookups.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::{Engine, Judgement};
use crate::freshness::{Freshness, NEVER};
use crate::node::Node;
use crate::stats::Event;
use crate::table::Found;
use crate::table::reclaim::Guard;

/// Whether a lookup counts as a use of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// It counts for the eviction policy, the time to idle and the statistics.
    Use,
    /// It leaves no trace.
    Nothing,
}

/// A live entry, while the guard is held.
pub(crate) struct View<'g, K, V> {
    pub(crate) node: &'g Node<K, V>,
    pub(crate) judgement: Judgement,
}

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Finds an entry that is not dead.
    #[inline]
    pub(crate) fn lookup<'g, Q>(
        &'g self,
        key: &Q,
        hash: u64,
        count: Count,
        guard: &'g Guard,
    ) -> Option<View<'g, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let Some(found) = self.map.find(hash, |node| key.equivalent(node.key()), guard) else {
            if count == Count::Use {
                self.recorder.count(Event::Miss, guard.stripe());
            }
            return None;
        };
        if found.node().raw_state() == self.plain_state() && self.time_to_idle == NEVER {
            if count == Count::Use {
                found.count_use();
                self.recorder.count(Event::HitFresh, guard.stripe());
            }
            return Some(View { node: found.node(), judgement: Judgement::PLAIN });
        }
        self.lookup_timed(&found, count, guard)
    }

    fn lookup_timed<'g>(
        &'g self,
        found: &Found<'g, Node<K, V>>,
        count: Count,
        guard: &'g Guard,
    ) -> Option<View<'g, K, V>> {
        let node = found.node();
        let judgement = self.judge(node, guard);
        let event = match judgement.freshness {
            Freshness::Fresh => Event::HitFresh,
            Freshness::Stale => Event::HitStale,
            Freshness::StaleOnError | Freshness::Dead => Event::Miss,
        };
        if count == Count::Use {
            self.recorder.count(event, guard.stripe());
            if event != Event::Miss {
                found.count_use();
                self.touch(node, judgement.now);
            }
        }
        (!judgement.is_dead()).then_some(View { node, judgement })
    }

    /// Loads what lookups of a hash will need into the processor's cache: first the bucket.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64, guard: &Guard) {
        self.map.prefetch_bucket(hash, guard);
    }

    /// Second, when the bucket is there, the node.
    #[inline]
    pub(crate) fn prefetch_node(&self, hash: u64, guard: &Guard) {
        self.map.prefetch_node(hash, guard);
    }
}
