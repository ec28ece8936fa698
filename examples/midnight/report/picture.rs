//! The picture for the README: calls at once in the origin over time, a row for each setting, two acts
//! side by side, and beside each what came of it.

use super::figures::{duration, escape, share, short};
use super::scale::{Scale, ticks_of_time};
use super::shape::{Area, slices};
use super::words;
use crate::record::{Act, Drill, Run, Sample, Setting};

const STYLE: &str = include_str!("picture.css");

/// Those that tell most come first.
const PREFERRED: [Act; 6] =
    [Act::Midnight, Act::Loss, Act::Outage, Act::Flood, Act::HangUp, Act::Steady];

const WIDTH: f64 = 860.0;
const TOP: f64 = 98.0;
const ROW: f64 = 84.0;
const CHART: Area = Area { left: 0.0, top: 10.0, width: 190.0, height: 62.0 };
const COLUMNS: [f64; 2] = [146.0, 514.0];

/// An act's column: its runs have one scale.
struct Column<'a> {
    left: f64,
    act: Act,
    runs: Vec<&'a Run>,
    length_ms: u64,
    calls: Scale,
}

pub(super) fn picture(drill: &Drill) -> String {
    let settings: Vec<Setting> = words::SETTINGS
        .into_iter()
        .filter(|&setting| drill.runs.iter().any(|run| run.setting == setting))
        .collect();
    let shown = PREFERRED.into_iter().filter(|&act| drill.runs.iter().any(|run| run.act == act));
    let columns: Vec<Column<'_>> =
        COLUMNS.into_iter().zip(shown).map(|(left, act)| Column::of(drill, act, left)).collect();
    let heads: String = columns.iter().map(Column::head).collect();
    let rows: String = settings
        .iter()
        .enumerate()
        .map(|(place, &setting)| row(setting, TOP + place as f64 * ROW, &columns))
        .collect();
    let bottom = TOP + settings.len() as f64 * ROW;
    let axes: String = columns.iter().map(|column| column.time_axis(bottom)).collect();
    let title = if columns.is_empty() { "No act was run" } else { "Calls at once in the origin" };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-labelledby=\"title desc\">\n\
         <title id=\"title\">The midnight drill: {title}</title>\n\
         <desc id=\"desc\">{described}</desc>\n<style>\n{STYLE}</style>\n\
         <defs><pattern id=\"above\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">\
         <rect class=\"above-ground\" width=\"4\" height=\"4\"/>\
         <path class=\"hatch\" d=\"M-1 3L1 5M0 0L4 4M3 -1L5 1\"/></pattern></defs>\n\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{inner}\" height=\"{inner_height}\" rx=\"6\"/>\n\
         <text class=\"title\" x=\"16\" y=\"29\">{title}</text>\n{legend}{heads}{rows}{axes}\
         <text class=\"muted\" x=\"16\" y=\"{foot}\">{scale}</text>\n</svg>\n",
        height = bottom + 54.0,
        inner = WIDTH - 1.0,
        inner_height = bottom + 53.0,
        described = escape(&described(&columns)),
        legend = if columns.is_empty() { "" } else { LEGEND },
        foot = bottom + 40.0,
        scale = escape(&shortened(&drill.scale, 120)),
    )
}

const LEGEND: &str = "<path class=\"limit\" d=\"M286 24H310\"/>\
<text x=\"316\" y=\"29\">what it bears</text>\
<rect class=\"above\" x=\"420\" y=\"17\" width=\"24\" height=\"13\"/>\
<text x=\"450\" y=\"29\">above that</text>\
<text class=\"muted\" x=\"844\" y=\"29\" text-anchor=\"end\">\
answered: share of requests for existing articles</text>\n";

/// The figures of the picture, for those who do not see it.
fn described(columns: &[Column<'_>]) -> String {
    let run = |run: &&Run| {
        let [answered, p99, peak] = results(run).map(|(text, _)| text);
        let act = words::act(run.act).name;
        format!("{act}, {}: {answered}, {p99}, {peak}.", words::setting(run.setting))
    };
    columns.iter().flat_map(|column| column.runs.iter().map(run)).collect::<Vec<_>>().join(" ")
}

/// What came of a run, and whether that is bad.
fn results(run: &Run) -> [(String, bool); 3] {
    let summary = &run.summary;
    let answered = share(summary.existing_answered, summary.existing);
    let missed = summary.existing as f64 - summary.existing_answered as f64;
    let peak = short(summary.origin_peak as f64);
    [
        (
            answered.map_or_else(String::new, |share| format!("{share} answered")),
            missed > summary.existing as f64 * 0.01,
        ),
        (format!("p99 {}", duration(summary.p99_us)), false),
        (
            format!("peak {peak} / {}", short(summary.origin_limit as f64)),
            summary.origin_peak > summary.origin_limit,
        ),
    ]
}

fn row(setting: Setting, top: f64, columns: &[Column<'_>]) -> String {
    let name = words::setting(setting).replace(" + ", "\n+ ");
    let lines: String = name
        .lines()
        .enumerate()
        .map(|(place, line)| format!("<tspan x=\"16\" dy=\"{}\">{line}</tspan>", place * 17))
        .collect();
    let charts: String = columns
        .iter()
        .map(|column| match column.runs.iter().find(|run| run.setting == setting) {
            Some(run) => column.chart(run, top),
            None => format!(
                "<text class=\"muted\" x=\"{}\" y=\"{}\">not run</text>\n",
                column.left,
                top + 27.0
            ),
        })
        .collect();
    format!(
        "<path class=\"rule\" d=\"M16 {top}H844\"/><text class=\"name\" x=\"16\" y=\"{}\">{lines}\
         </text>\n{charts}",
        top + 27.0
    )
}

impl<'a> Column<'a> {
    fn of(drill: &'a Drill, act: Act, left: f64) -> Self {
        let runs: Vec<&Run> = drill.runs.iter().filter(|run| run.act == act).collect();
        let samples = runs.iter().flat_map(|run| &run.samples);
        let highest = samples.map(|sample| sample.origin_peak).max().unwrap_or(0);
        let limit = runs.iter().map(|run| run.summary.origin_limit).max().unwrap_or(0);
        let length_ms = runs.iter().map(|run| run.length_ms).max().unwrap_or(0).max(1);
        Self { left, act, runs, length_ms, calls: Scale::calls(highest, limit) }
    }

    fn area(&self, top: f64) -> Area {
        Area { left: self.left, top: top + CHART.top, ..CHART }
    }

    fn head(&self) -> String {
        let words = words::act(self.act);
        let log = if self.calls.is_log() { ", log scale" } else { "" };
        let mut full = 0.0;
        let mut marks = String::new();
        let events = self.runs.first().map_or(&[][..], |run| &run.events);
        for &(at_ms, word) in events {
            let x = self.left + self.time(at_ms) * CHART.width;
            // Words that would lie upon each other are left out.
            if x >= full {
                marks.push_str(&format!(
                    "<text class=\"muted\" x=\"{x:.1}\" y=\"{}\">{}</text>",
                    TOP - 6.0,
                    escape(&shortened(word, 24))
                ));
                full = x + (word.chars().count().min(24) + 1) as f64 * 7.0;
            }
        }
        format!(
            "<text x=\"{}\" y=\"66\"><tspan class=\"name\">{}</tspan><tspan class=\"muted\">: {}{log}\
             </tspan></text>{marks}\n",
            self.left, words.name, words.brief
        )
    }

    fn time(&self, at_ms: u64) -> f64 {
        (at_ms as f64 / self.length_ms as f64).min(1.0)
    }

    fn chart(&self, run: &Run, top: f64) -> String {
        let area = self.area(top);
        let slices = slices(run, self.length_ms);
        let limit = self.calls.at(run.summary.origin_limit as f64);
        let value = |sample: &Sample| self.calls.at(sample.origin_peak as f64);
        let ground = area.y(0.0);
        let right = area.x(1.0);
        let events: String = run
            .events
            .iter()
            .map(|&(at_ms, _)| format!("M{} {top}V{ground}", area.x(self.time(at_ms))))
            .collect();
        format!(
            "<path class=\"ground\" d=\"M{left} {ground}H{right}\"/>{ticks}\
             <path class=\"within\" d=\"{within}\"/><path class=\"above\" d=\"{above}\"/>\
             <path class=\"edge\" d=\"{edge}\"/><path class=\"limit\" d=\"M{left} {y}H{right}\"/>\
             <path class=\"event\" d=\"{events}\"/>\n{results}\n",
            left = self.left,
            ticks = self.ticks(run, area),
            within = area.band(&slices, |sample| (0.0, value(sample).min(limit))),
            above = area.band(&slices, |sample| (limit, value(sample).max(limit))),
            edge = area.line(&slices, |sample| Some(value(sample))),
            y = area.y(limit),
            results = self.results(run, top),
        )
    }

    /// The highest tick, and the limit's if that is far enough from it and from the ground.
    fn ticks(&self, run: &Run, area: Area) -> String {
        let highest = self.calls.ticks_of_counts().pop();
        let limit = self.calls.at(run.summary.origin_limit as f64);
        let limit = (limit, short(run.summary.origin_limit as f64));
        let highest = highest.map(|tick| (tick.at, tick.label));
        let highest = highest.filter(|(at, _)| (at - limit.0).abs() > 0.25);
        [Some(limit), highest]
            .into_iter()
            .flatten()
            .map(|(at, label)| {
                format!(
                    "<text class=\"tick\" x=\"{}\" y=\"{}\" dy=\"4\">{label}</text>",
                    self.left - 6.0,
                    area.y(at)
                )
            })
            .collect()
    }

    fn results(&self, run: &Run, top: f64) -> String {
        let x = self.left + CHART.width + 10.0;
        results(run)
            .into_iter()
            .enumerate()
            .map(|(place, (text, bad))| {
                let class = if bad { "bad" } else { "good" };
                let y = top + 27.0 + place as f64 * 19.0;
                format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>")
            })
            .collect()
    }

    fn time_axis(&self, bottom: f64) -> String {
        let area = self.area(bottom);
        let ticks: String = ticks_of_time(self.length_ms)
            .iter()
            .map(|tick| {
                format!(
                    "<text class=\"muted\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    area.x(tick.at),
                    bottom + 6.0,
                    tick.label
                )
            })
            .collect();
        format!(
            "{ticks}<text class=\"muted\" x=\"{}\" y=\"{}\">seconds</text>\n",
            self.left + CHART.width + 10.0,
            bottom + 6.0
        )
    }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most - 1).collect();
    format!("{start}…")
}
