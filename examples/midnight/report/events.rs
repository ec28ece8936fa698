//! The words at a run's events, in as many lanes as they need.

use super::figures::{escape, moment};
use crate::record::Run;

/// How wide a character is, as a part of the narrowest plot.
const CHARACTER: f64 = 7.0 / 180.0;

struct Mark {
    at: f64,
    word: &'static str,
    at_ms: u64,
    lane: usize,
    /// To the left of its line, for there is no room to the right.
    before: bool,
}

fn marks(run: &Run, length_ms: u64) -> Vec<Mark> {
    let mut events = run.events.clone();
    events.sort_by_key(|&(at_ms, _)| at_ms);
    // Up to where each lane is full.
    let mut lanes: Vec<f64> = Vec::new();
    let mut marks = Vec::new();
    for (at_ms, word) in events {
        let at = (at_ms as f64 / length_ms.max(1) as f64).min(1.0);
        let width = (word.chars().count() + 1) as f64 * CHARACTER;
        let before = at + width > 1.0 && at > 0.5;
        let (from, to) = if before { (at - width, at) } else { (at, at + width) };
        let lane = lanes.iter().position(|&full| full <= from).unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(0.0);
        }
        lanes[lane] = to;
        marks.push(Mark { at, word, at_ms, lane, before });
    }
    marks
}

/// How many lanes a run's events take.
pub(super) fn lanes(run: &Run, length_ms: u64) -> usize {
    marks(run, length_ms).iter().map(|mark| mark.lane + 1).max().unwrap_or(0)
}

/// The strip above the plots of a run, `lanes` high.
pub(super) fn strip(run: &Run, length_ms: u64, lanes: usize) -> String {
    let marks: String = marks(run, length_ms)
        .iter()
        .map(|mark| {
            let (class, side, at) = match mark.before {
                true => (" class=\"before\"", "right", 1.0 - mark.at),
                false => ("", "left", mark.at),
            };
            format!(
                "<li{class} style=\"{side}:{:.2}%;--lane:{}\">{}<span class=\"unseen\"> at {}</span>\
                 </li>",
                at * 100.0,
                mark.lane,
                escape(mark.word),
                moment(mark.at_ms),
            )
        })
        .collect();
    if lanes == 0 {
        return String::new();
    }
    format!("<ul class=\"events\" aria-label=\"Events\" style=\"--lanes:{lanes}\">{marks}</ul>\n")
}
