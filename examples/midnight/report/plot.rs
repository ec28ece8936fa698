//! The three time lines of a run. What is drawn may be stretched to any width; what is written stands
//! beside it, so that it keeps its size.

use super::figures::{duration, escape, moment, share, short};
use super::scale::{Scale, Tick, ticks_of_time};
use super::shape::{Area, Slice, slice_ms, slices};
use super::words;
use crate::record::{Run, Sample};

const WIDTH: f64 = 240.0;

/// What the runs of an act share, so that they can be compared.
pub(super) struct Axes {
    length_ms: u64,
    calls: Scale,
    latency: Scale,
    rate: Scale,
}

impl Axes {
    pub(super) fn of(runs: &[&Run]) -> Self {
        let summaries = || runs.iter().map(|run| &run.summary);
        let samples = || runs.iter().flat_map(|run| &run.samples);
        let highest_calls = samples().map(|sample| sample.origin_peak).max();
        let latencies = || samples().flat_map(|sample| [sample.p50_us, sample.p99_us]);
        let rates = runs.iter().flat_map(|run| {
            let seconds = slice_ms(run) as f64 / 1e3;
            run.samples.iter().map(move |sample| total(sample) / seconds)
        });
        Self {
            length_ms: runs.iter().map(|run| run.length_ms).max().unwrap_or(0).max(1),
            calls: Scale::calls(
                highest_calls.unwrap_or(0),
                summaries().map(|summary| summary.origin_limit).max().unwrap_or(0),
            ),
            latency: Scale::latency(
                latencies().filter(|&micros| micros > 0).min().unwrap_or(1000),
                latencies().max().unwrap_or(0),
            ),
            rate: Scale::rate(rates.fold(0.0, f64::max)),
        }
    }

    pub(super) fn length_ms(&self) -> u64 {
        self.length_ms
    }

    pub(super) fn calls_are_log(&self) -> bool {
        self.calls.is_log()
    }
}

/// One of the states in which a request ends.
pub(super) struct State {
    pub(super) name: &'static str,
    pub(super) count: fn(&Sample) -> u64,
}

/// From the ground up.
pub(super) const STATES: [State; 5] = [
    State { name: "fresh", count: |sample| sample.fresh },
    State { name: "stale", count: |sample| sample.stale },
    State { name: "absent", count: |sample| sample.absent },
    State { name: "refused", count: |sample| sample.refused },
    State { name: "failed", count: |sample| sample.failed },
];

fn total(sample: &Sample) -> f64 {
    STATES.iter().map(|state| (state.count)(sample) as f64).sum()
}

/// A time line: its drawing and what stands around it.
struct Plot<'a> {
    class: &'static str,
    title: &'static str,
    /// The figure to remember.
    result: String,
    /// For those who do not see the drawing.
    label: String,
    ticks: Vec<Tick>,
    height: f64,
    paths: String,
    run: &'a Run,
}

/// All three, with the act's events (`strip`) above the first and its time below the last.
pub(super) fn time_lines(run: &Run, axes: &Axes, strip: &str) -> String {
    let slices = slices(run, axes.length_ms);
    let plots =
        [calls(run, &slices, axes), latency(run, &slices, axes), served(run, &slices, axes)];
    let strips = [strip, "", ""];
    let figures: String =
        plots.iter().zip(strips).map(|(plot, strip)| plot.html(axes, strip)).collect();
    format!("{figures}{}", time_axis(axes))
}

fn calls<'a>(run: &'a Run, slices: &[Slice<'_>], axes: &Axes) -> Plot<'a> {
    let area = area(84.0);
    let summary = &run.summary;
    let limit = axes.calls.at(summary.origin_limit as f64);
    let value = |sample: &Sample| axes.calls.at(sample.origin_peak as f64);
    let within = area.band(slices, |sample| (0.0, value(sample).min(limit)));
    let above = area.band(slices, |sample| (limit, value(sample).max(limit)));
    let edge = area.line(slices, |sample| Some(value(sample)));
    let (peak, bears) = (short(summary.origin_peak as f64), short(summary.origin_limit as f64));
    Plot {
        class: "calls",
        title: "Calls at once",
        result: format!("peak {peak} / {bears}"),
        label: format!("most: {peak}; the origin bears {bears}"),
        ticks: axes.calls.ticks_of_counts(),
        height: area.height,
        paths: format!(
            "<path class=\"within\" d=\"{within}\"/><path class=\"above\" d=\"{above}\"/>\
             <path class=\"edge\" d=\"{edge}\"/><path class=\"limit\" d=\"M0 {y}H{WIDTH}\"/>",
            y = area.y(limit),
        ),
        run,
    }
}

fn latency<'a>(run: &'a Run, slices: &[Slice<'_>], axes: &Axes) -> Plot<'a> {
    let area = area(72.0);
    let line = |micros: fn(&Sample) -> u64| {
        area.line(slices, |sample| {
            (micros(sample) > 0).then(|| axes.latency.at(micros(sample) as f64))
        })
    };
    let (p50, p99) = (duration(run.summary.p50_us), duration(run.summary.p99_us));
    Plot {
        class: "latency",
        title: "Latency",
        result: format!("p99 {p99}"),
        label: format!("p50 {p50}, p99 {p99} over the whole act"),
        ticks: axes.latency.ticks_of_latencies(),
        height: area.height,
        paths: format!(
            "<path class=\"p99\" d=\"{}\"/><path class=\"p50\" d=\"{}\"/>",
            line(|sample| sample.p99_us),
            line(|sample| sample.p50_us),
        ),
        run,
    }
}

fn served<'a>(run: &'a Run, slices: &[Slice<'_>], axes: &Axes) -> Plot<'a> {
    let area = area(72.0);
    let seconds = slice_ms(run) as f64 / 1e3;
    let below = |sample: &Sample, place: usize| {
        let counts = STATES[..place].iter().map(|state| (state.count)(sample) as f64);
        axes.rate.at(counts.sum::<f64>() / seconds)
    };
    let paths = STATES.iter().enumerate().map(|(place, state)| {
        let band = area.band(slices, |sample| (below(sample, place), below(sample, place + 1)));
        format!("<path class=\"{}\" d=\"{band}\"/>", state.name)
    });
    let summary = &run.summary;
    let answered = share(summary.existing_answered, summary.existing);
    Plot {
        class: "served",
        title: "Requests / s",
        result: answered.map_or_else(String::new, |share| format!("answered {share}")),
        label: format!(
            "{} fresh, {} stale, {} absent, {} refused, {} failed",
            short(summary.fresh as f64),
            short(summary.stale as f64),
            short(summary.absent as f64),
            short(summary.refused as f64),
            short(summary.failed as f64),
        ),
        ticks: axes.rate.ticks_of_counts(),
        height: area.height,
        paths: paths.collect(),
        run,
    }
}

fn area(height: f64) -> Area {
    Area { left: 0.0, top: 0.0, width: WIDTH, height }
}

impl Plot<'_> {
    fn html(&self, axes: &Axes, strip: &str) -> String {
        let ticks: String = self
            .ticks
            .iter()
            .map(|tick| {
                format!("<span style=\"bottom:{:.1}%\">{}</span>", tick.at * 100.0, tick.label)
            })
            .collect();
        format!(
            "<figure class=\"plot {class}\"><figcaption><span>{title}</span> <b>{result}</b>\
             </figcaption>{strip}<div class=\"axes\"><div class=\"ticks\" aria-hidden=\"true\">{ticks}</div>\
             <svg viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{label}\">{grid}{paths}{events}</svg></div></figure>\n",
            class = self.class,
            title = self.title,
            result = self.result,
            label = escape(&self.label()),
            height = self.height,
            grid = self.grid(axes),
            paths = self.paths,
            events = self.events(axes),
        )
    }

    fn label(&self) -> String {
        let act = words::act(self.run.act).name;
        let setting = words::setting(self.run.setting);
        format!("{} over time, {act}, {setting}: {}", self.title, self.label)
    }

    fn grid(&self, axes: &Axes) -> String {
        let area = area(self.height);
        let across: String =
            self.ticks.iter().map(|tick| format!("M0 {}H{WIDTH}", area.y(tick.at))).collect();
        let up: String = ticks_of_time(axes.length_ms)
            .iter()
            .map(|tick| format!("M{} 0V{}", area.x(tick.at), self.height))
            .collect();
        format!("<path class=\"grid\" d=\"{across}{up}\"/>")
    }

    fn events(&self, axes: &Axes) -> String {
        let area = area(self.height);
        let lines: String = self
            .run
            .events
            .iter()
            .map(|&(at_ms, _)| {
                let at = at_ms as f64 / axes.length_ms as f64;
                format!("M{} 0V{}", area.x(at.min(1.0)), self.height)
            })
            .collect();
        format!("<path class=\"event\" d=\"{lines}\"/>")
    }
}

fn time_axis(axes: &Axes) -> String {
    let ticks: String = ticks_of_time(axes.length_ms)
        .iter()
        .map(|tick| format!("<span style=\"left:{:.1}%\">{}</span>", tick.at * 100.0, tick.label))
        .collect();
    let length = moment(axes.length_ms);
    format!(
        "<div class=\"time\" aria-hidden=\"true\"><span class=\"unit\">s</span>\
         <div>{ticks}</div></div><p class=\"unseen\">Time from 0 to {length}.</p>\n"
    )
}
