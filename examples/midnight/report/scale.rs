//! Where a value lies along an axis.

use super::figures::{duration, seconds, short};

/// An axis from `low` to `high`; what is beyond an end lies on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

/// A line of the grid: where it lies, from 0 to 1, and what stands beside it.
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

impl Scale {
    /// Calls at once. Logarithmic where the limit would else lie on the ground.
    pub(super) fn calls(highest: u64, limit: u64) -> Self {
        let (highest, limit) = (highest as f64, limit as f64);
        if limit > 0.0 && highest > limit * 12.0 {
            // From below one, so that one call differs from none.
            return Self { low: 0.5, high: highest * 1.5, log: true };
        }
        Self { low: 0.0, high: highest.max(limit * 1.2).max(1.0) * 1.04, log: false }
    }

    /// Requests a second.
    pub(super) fn rate(highest: f64) -> Self {
        Self { low: 0.0, high: highest.max(1.0) * 1.02, log: false }
    }

    /// Latencies in microseconds, over whole decades.
    pub(super) fn latency(lowest: u64, highest: u64) -> Self {
        let low = 10_f64.powf((lowest.max(1) as f64).log10().floor());
        let high = 10_f64.powf((highest.max(1) as f64).log10().ceil());
        Self { low, high: high.max(low * 10.0), log: true }
    }

    pub(super) fn is_log(self) -> bool {
        self.log
    }

    /// From 0 at the low end to 1 at the high one.
    pub(super) fn at(self, value: f64) -> f64 {
        let at = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        at.clamp(0.0, 1.0)
    }

    pub(super) fn ticks_of_counts(self) -> Vec<Tick> {
        self.values().into_iter().map(|value| self.tick(value, short(value))).collect()
    }

    pub(super) fn ticks_of_latencies(self) -> Vec<Tick> {
        self.values().into_iter().map(|value| self.tick(value, duration(value as u64))).collect()
    }

    fn tick(self, value: f64, label: String) -> Tick {
        Tick { at: self.at(value), label }
    }

    fn values(self) -> Vec<f64> {
        if self.log {
            return decades(self.low, self.high);
        }
        let step = round_step(self.high / 3.2);
        (0..=4).map(|place| f64::from(place) * step).take_while(|&at| at <= self.high).collect()
    }
}

/// An act's time, in steps of a round number of seconds.
pub(super) fn ticks_of_time(length_ms: u64) -> Vec<Tick> {
    let length = (length_ms.max(1) as f64) / 1e3;
    let step = round_step(length / 4.5);
    (0_u8..=8)
        .map(|place| f64::from(place) * step)
        .take_while(|&at| at <= length)
        .map(|at| Tick { at: at / length, label: seconds(at) })
        .collect()
}

/// Powers of ten, no more than five of them.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let first = low.log10().ceil() as i32;
    let last = high.log10().floor() as i32;
    let stride = (last - first) / 5 + 1;
    (first..=last).step_by(stride.max(1) as usize).map(|power| 10_f64.powi(power)).collect()
}

/// The next of 1, 2, 5, 10, 20, 50, … that is no smaller.
fn round_step(least: f64) -> f64 {
    let unit = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * unit >= least * 0.999);
    factor.unwrap_or(10.0) * unit
}
