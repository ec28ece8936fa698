//! What the handles of a cache share.

use super::{Loads, Pool, Report};
use crate::engine::Engine;

pub(crate) struct Core<K, V, S> {
    pub(crate) engine: Engine<K, V, S>,
    pub(crate) loads: Loads<K, V>,
    pub(crate) report: Report,
    pub(crate) pool: Pool,
}

impl<K, V, S> Core<K, V, S> {
    pub(crate) fn new(engine: Engine<K, V, S>, loads: Loads<K, V>) -> Self {
        let (report, pool) = (Report::new(), Pool::new(loads.refresh_threads));
        Core { engine, loads, report, pool }
    }
}
