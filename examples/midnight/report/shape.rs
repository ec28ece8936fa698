//! Paths of step charts.

use super::figures::trimmed;
use crate::record::{Run, Sample};

/// A sample and the part of the act that it covers, from 0 to 1.
#[derive(Clone, Copy)]
pub(super) struct Slice<'a> {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) sample: &'a Sample,
}

/// How long each sample of a run lasted.
pub(super) fn slice_ms(run: &Run) -> u64 {
    let length = match run.samples.as_slice() {
        [first, second, ..] => second.at_ms.saturating_sub(first.at_ms),
        [only] => run.length_ms.saturating_sub(only.at_ms),
        [] => 0,
    };
    length.max(1)
}

/// The samples along a time axis of `length_ms`.
pub(super) fn slices(run: &Run, length_ms: u64) -> Vec<Slice<'_>> {
    let whole = length_ms.max(1) as f64;
    let width = slice_ms(run) as f64 / whole;
    let start = |sample: &Sample| (sample.at_ms as f64 / whole).min(1.0);
    let slice =
        |sample| Slice { from: start(sample), to: (start(sample) + width).min(1.0), sample };
    run.samples.iter().map(slice).collect()
}

/// Where a chart lies in its SVG.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn x(self, at: f64) -> String {
        number(self.left + at * self.width)
    }

    /// Upwards from the ground.
    pub(super) fn y(self, at: f64) -> String {
        number(self.top + (1.0 - at) * self.height)
    }

    /// A line of steps, with gaps where there is no value.
    pub(super) fn line(
        self,
        slices: &[Slice<'_>],
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> String {
        let mut path = String::new();
        let mut end: Option<(String, String)> = None;
        for slice in slices {
            let Some(value) = value(slice.sample) else {
                end = None;
                continue;
            };
            let (from, to, y) = (self.x(slice.from), self.x(slice.to), self.y(value));
            match &end {
                Some((x, last)) if *x == from && *last == y => {}
                Some((x, _)) if *x == from => path.push_str(&format!("V{y}")),
                _ => path.push_str(&format!("M{from} {y}")),
            }
            path.push_str(&format!("H{to}"));
            end = Some((to, y));
        }
        path
    }

    /// What lies between two lines of steps.
    pub(super) fn band(
        self,
        slices: &[Slice<'_>],
        edges: impl Fn(&Sample) -> (f64, f64),
    ) -> String {
        let filled = |slice: &Slice<'_>| {
            let (low, high) = edges(slice.sample);
            high > low
        };
        slices
            .chunk_by(|one, next| filled(one) == filled(next))
            .filter(|stretch| filled(&stretch[0]))
            .map(|stretch| self.stretch(stretch, &edges))
            .collect()
    }

    fn stretch(self, slices: &[Slice<'_>], edges: &impl Fn(&Sample) -> (f64, f64)) -> String {
        let mut path = self.line(slices, |sample| Some(edges(sample).1));
        for slice in slices.iter().rev() {
            let low = self.y(edges(slice.sample).0);
            path.push_str(&format!("L{} {low}H{}", self.x(slice.to), self.x(slice.from)));
        }
        path.push('Z');
        path
    }
}

/// A tenth of a pixel is enough.
fn number(value: f64) -> String {
    trimmed(value, 1)
}
