//! Lookups.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use equivalent::Equivalent;

use super::{Engine, Judgement};
use crate::freshness::{Deadlines, Freshness, NEVER, Profiles};
use crate::node::{Content, Node};
use crate::stats::Event;
use crate::table::Hit;
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
    pub(crate) judgement: Judgement<'g, V>,
    pub(crate) profiles: &'g Profiles,
}

impl<K, V> Clone for View<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for View<'_, K, V> {}

impl<K, V> View<'_, K, V> {
    fn deadlines(&self) -> Deadlines {
        self.judgement.state.deadlines(self.profiles)
    }

    /// How old the value was, if that is noted.
    pub(crate) fn age(&self) -> Option<Duration> {
        let Deadlines { birth, .. } = self.deadlines();
        (birth != NEVER && self.judgement.now != 0)
            .then(|| Duration::from_millis(self.judgement.now.saturating_sub(birth)))
    }

    /// How long it was still fresh, if there is an end to that.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let Deadlines { soft, .. } = self.deadlines();
        (soft != NEVER).then(|| Duration::from_millis(soft.saturating_sub(self.judgement.now)))
    }

    /// When its last window ends.
    pub(crate) fn dead_at(&self) -> u64 {
        let Deadlines { revalidate, on_error, .. } = self.deadlines();
        revalidate.max(on_error)
    }

    #[inline]
    pub(crate) fn is_refresh_due(&self) -> bool {
        // Of an entry without deadlines that is known without a call.
        self.judgement.state.has_deadlines() && {
            let Deadlines { refresh, .. } = self.deadlines();
            refresh != NEVER && self.judgement.now >= refresh
        }
    }
}

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Finds an entry that is not dead and returns what `read` makes of it.
    #[inline]
    pub(crate) fn lookup<'g, Q, R>(
        &'g self,
        key: &Q,
        hash: u64,
        count: Count,
        guard: &'g Guard,
        read: impl FnOnce(View<'g, K, V>) -> Option<R>,
    ) -> Option<R>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let Some(hit) = self.map.find(hash, |node| key.equivalent(node.key()), guard) else {
            if count == Count::Use {
                self.recorder.count(Event::Miss, guard.stripe());
            }
            return None;
        };
        let Some(judgement) = self.judge_fresh(hit.node()) else {
            return read(self.lookup_slowly(&hit, count, guard)?);
        };
        if count == Count::Use {
            hit.count_use();
            self.recorder.count(Event::HitFresh, guard.stripe());
        }
        read(self.view(hit.node(), judgement))
    }

    #[inline]
    pub(super) fn view<'g>(
        &'g self,
        node: &'g Node<K, V>,
        judgement: Judgement<'g, V>,
    ) -> View<'g, K, V> {
        View { node, judgement, profiles: &self.profiles }
    }

    /// The rest of a lookup where the state word alone does not say that the value is fresh.
    #[inline(never)]
    fn lookup_slowly<'g>(
        &'g self,
        hit: &Hit<'g, Node<K, V>>,
        count: Count,
        guard: &'g Guard,
    ) -> Option<View<'g, K, V>> {
        let node = hit.node();
        let judgement = self.judge_timed(node, guard);
        let event = match (judgement.state.content(), judgement.freshness) {
            (Content::Value, Freshness::Fresh) => Event::HitFresh,
            (Content::Value, Freshness::Stale) => Event::HitStale,
            (Content::Absent, Freshness::Fresh) => Event::HitAbsent,
            _ => Event::Miss,
        };
        if count == Count::Use {
            self.recorder.count(event, guard.stripe());
            if event != Event::Miss {
                hit.count_use();
                self.touch(node, judgement.now);
            }
        }
        judgement.has_value().then(|| self.view(node, judgement))
    }

    /// Loads what lookups of a hash will need into the processor's cache: first the bucket.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        self.map.prefetch_bucket(hash);
    }

    /// Second, when the bucket is there, the node.
    #[inline]
    pub(crate) fn prefetch_node(&self, hash: u64, guard: &Guard) {
        self.map.prefetch_node(hash, guard);
    }
}
