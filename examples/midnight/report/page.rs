//! The page: head, overview, and a section for each act.

use super::counts;
use super::events;
use super::figures::{escape, moment};
use super::overview::overview;
use super::plot::{Axes, STATES, time_lines};
use super::words;
use crate::record::{Act, Drill, Run, Sample};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("readout.js");

/// The page must not ask for anything, whatever is in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// What the areas of charts are filled with, so that they differ without colour.
const PATTERNS: &str = r#"<svg class="unseen" aria-hidden="true" focusable="false"><defs>
<pattern id="fill-stale" width="5" height="5" patternUnits="userSpaceOnUse"><rect class="ground" width="5" height="5"/><path class="hatch" d="M-1 1L1 -1M0 5L5 0M4 6L6 4"/></pattern>
<pattern id="fill-absent" width="4" height="4" patternUnits="userSpaceOnUse"><rect class="ground" width="4" height="4"/><rect class="dot" width="1.5" height="1.5"/></pattern>
<pattern id="fill-refused" width="4" height="4" patternUnits="userSpaceOnUse"><rect class="ground" width="4" height="4"/><path class="hatch" d="M0 1H4"/></pattern>
<pattern id="fill-failed" width="5" height="5" patternUnits="userSpaceOnUse"><rect class="ground" width="5" height="5"/><path class="hatch" d="M-1 1L1 -1M0 5L5 0M4 6L6 4M-1 4L1 6M0 0L5 5M4 -1L6 1"/></pattern>
<pattern id="fill-above" width="4" height="4" patternUnits="userSpaceOnUse"><rect class="ground" width="4" height="4"/><path class="hatch" d="M-1 3L1 5M0 0L4 4M3 -1L5 1"/></pattern>
</defs></svg>
"#;

pub(super) fn page(drill: &Drill) -> String {
    let acts: Vec<(Act, Vec<&Run>)> = words::ACTS
        .into_iter()
        .map(|act| (act, runs_of(drill, act)))
        .filter(|(_, runs)| !runs.is_empty())
        .collect();
    let sections: String = acts.iter().map(|(act, runs)| section(*act, runs)).collect();
    let body = match acts.is_empty() {
        true => "<p>No act was run.</p>\n".to_owned(),
        false => format!("{}{sections}", top(drill, &acts)),
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>The midnight drill – seawall</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         {PATTERNS}<header>\n<h1>The midnight drill</h1>\n\
         <p>An origin that bears so many calls at once and no more, an edge with a cache in front \
         of it, and clients that time out and retry: the same acts under each setting of the \
         edge.</p>\n<p class=\"scale\">{scale}</p>\n</header>\n<main>\n{body}</main>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        policy = escape(POLICY),
        scale = escape(&drill.scale),
    )
}

/// In the order in which settings are shown.
fn runs_of(drill: &Drill, act: Act) -> Vec<&Run> {
    let with =
        |setting| drill.runs.iter().filter(move |run| run.act == act && run.setting == setting);
    words::SETTINGS.into_iter().flat_map(with).collect()
}

fn top(drill: &Drill, acts: &[(Act, Vec<&Run>)]) -> String {
    let links: String = acts
        .iter()
        .map(|(act, _)| words::act(*act))
        .map(|words| format!("<li><a href=\"#{}\">{}</a></li>", words.id, words.name))
        .collect();
    let settings: String = words::SETTINGS
        .into_iter()
        .filter(|&setting| drill.runs.iter().any(|run| run.setting == setting))
        .map(|setting| {
            format!(
                "<div><dt>{}</dt><dd>{}</dd></div>\n",
                words::setting(setting),
                words::explained(setting)
            )
        })
        .collect();
    format!(
        "<nav aria-label=\"Acts\"><ul>{links}</ul></nav>\n\
         <section aria-labelledby=\"overview\">\n<h2 id=\"overview\">Overview</h2>\n{}\
         <h3>Settings of the edge</h3>\n<dl class=\"settings\">\n{settings}</dl>\n</section>\n",
        overview(drill),
    )
}

fn section(act: Act, runs: &[&Run]) -> String {
    let words = words::act(act);
    let axes = Axes::of(runs);
    let lanes =
        runs.iter().map(|run| events::lanes(run, axes.length_ms())).max().unwrap_or_default();
    let cards: String = runs.iter().map(|run| card(run, &axes, lanes, words.name)).collect();
    format!(
        "<section class=\"act\" aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{name}</h2>\n\
         <p>{happens} <em>Look for {look}</em></p>\n{legend}\
         <div class=\"runs\" style=\"--runs:{count}\">\n{cards}</div>\n\
         {table}</section>\n",
        id = words.id,
        name = words.name,
        happens = words.happens,
        look = words.look,
        legend = legend(&axes),
        count = runs.len(),
        table = counts::table(words.name, runs),
    )
}

fn card(run: &Run, axes: &Axes, lanes: usize, act: &str) -> String {
    format!(
        "<article class=\"run\" aria-label=\"{setting}, {act}\" data-length=\"{length}\" \
         data-samples=\"{samples}\">\n<h3>{setting}</h3>\n{plots}\
         <p class=\"readout\" aria-hidden=\"true\"></p></article>\n",
        setting = words::setting(run.setting),
        length = axes.length_ms(),
        samples = samples(run),
        plots = time_lines(run, axes, &events::strip(run, axes.length_ms(), lanes)),
    )
}

/// For the script that tells the values under the pointer.
fn samples(run: &Run) -> String {
    let sample = |sample: &Sample| {
        let states = STATES.iter().map(|state| (state.count)(sample));
        let figures = [sample.at_ms, sample.origin_peak, sample.p50_us, sample.p99_us];
        let figures: Vec<String> =
            figures.into_iter().chain(states).map(|figure| figure.to_string()).collect();
        figures.join(" ")
    };
    run.samples.iter().map(sample).collect::<Vec<_>>().join(",")
}

fn legend(axes: &Axes) -> String {
    let lines = [
        ("edge", "calls at once"),
        ("limit", "what the origin bears"),
        ("event", "event"),
        ("p50", "p50"),
        ("p99", "p99"),
    ];
    let lines =
        lines.map(|(class, text)| key(text, &format!("<path class=\"{class}\" d=\"M1 6H21\"/>")));
    let above = key("above that", "<rect class=\"above\" width=\"22\" height=\"12\"/>");
    let states = STATES.iter().map(|state| {
        key(state.name, &format!("<rect class=\"{}\" width=\"22\" height=\"12\"/>", state.name))
    });
    let [edge, limit, event, p50, p99] = lines;
    let states: String = states.collect();
    let log = if axes.calls_are_log() { " and of calls" } else { "" };
    format!(
        "<ul class=\"legend\" aria-label=\"Legend\">{edge}{limit}{above}{event}{p50}{p99}{states}\
         </ul>\n<p class=\"note\">The most calls at once in the origin, the latency of requests \
         (a gap: none ended) and what they got, over {}. All settings have the same scales; those \
         of latency{log} are logarithmic.</p>\n",
        moment(axes.length_ms()),
    )
}

fn key(text: &str, drawing: &str) -> String {
    format!(
        "<li><svg viewBox=\"0 0 22 12\" width=\"22\" height=\"12\" aria-hidden=\"true\">{drawing}\
         </svg> {text}</li>"
    )
}
