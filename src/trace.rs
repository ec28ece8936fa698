//! Spans of loads and of waits for them, with the feature `tracing`; nothing without it.

#[cfg(feature = "tracing")]
pub(crate) use self::real::Span;

#[cfg(not(feature = "tracing"))]
pub(crate) use self::none::Span;

#[cfg(feature = "tracing")]
mod real {
    /// A load, or a wait for one.
    #[derive(Clone, Debug)]
    pub(crate) struct Span(tracing::Span);

    impl Span {
        /// One load: open from its permission to its answer, entered while its loader runs.
        pub(crate) fn load(reason: &'static str, attempt: u32) -> Span {
            Span(tracing::info_span!(
                target: "seawall",
                "load",
                reason,
                attempt,
                outcome = tracing::field::Empty
            ))
        }

        /// A wait, which follows from the load that it waits for.
        pub(crate) fn wait(load: Option<&Span>) -> Span {
            let span = tracing::debug_span!(target: "seawall", "wait");
            if let Some(Span(load)) = load {
                span.follows_from(load);
            }
            Span(span)
        }

        pub(crate) fn note_outcome(&self, outcome: &'static str) {
            self.0.record("outcome", outcome);
        }

        pub(crate) fn within<R>(&self, run: impl FnOnce() -> R) -> R {
            self.0.in_scope(run)
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod none {
    #[derive(Clone, Debug)]
    pub(crate) struct Span;

    impl Span {
        pub(crate) fn load(_reason: &'static str, _attempt: u32) -> Span {
            Span
        }

        pub(crate) fn wait(_load: Option<&Span>) -> Span {
            Span
        }

        pub(crate) fn note_outcome(&self, _outcome: &'static str) {}

        #[inline]
        pub(crate) fn within<R>(&self, run: impl FnOnce() -> R) -> R {
            run()
        }
    }
}
