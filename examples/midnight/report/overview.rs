//! The tables at the top: one figure each, acts by settings.

use super::figures::{duration, escape, exact, percent, short};
use super::words;
use crate::record::{Act, Drill, Run, Setting, Summary};

/// A figure in a cell, and whether it deserves a mark.
struct Cell {
    text: String,
    mark: Option<Mark>,
}

#[derive(Clone, Copy)]
enum Mark {
    High,
    Low,
}

/// A figure of a run.
struct Measure {
    title: &'static str,
    note: fn(&Drill) -> String,
    cell: fn(&Run) -> Cell,
    /// More is worse; `None` where there is nothing to compare.
    badness: fn(&Run) -> Option<f64>,
}

const MEASURES: [Measure; 4] = [
    Measure {
        title: "Answered",
        note: |_| {
            "Per cent of requests for existing articles that got one. ▼ less than 99".to_owned()
        },
        cell: answered,
        badness: |run| missed(&run.summary),
    },
    Measure {
        title: "Peak in the origin",
        note: |drill| format!("Most calls at once; it bears {}. ▲ more than that", limits(drill)),
        cell: peak,
        badness: |run| Some(run.summary.origin_peak as f64),
    },
    Measure {
        title: "Latency, p99",
        note: |_| "From a client’s first attempt to its answer, retries included".to_owned(),
        cell: |run| Cell { text: duration(run.summary.p99_us), mark: None },
        badness: |run| Some(run.summary.p99_us as f64),
    },
    Measure {
        title: "Origin healthy again",
        note: |_| {
            "From the event until it is within its limit for good, without errors. ▲ not within \
             the act"
                .to_owned()
        },
        cell: recovery,
        badness: slowness,
    },
];

fn missed(summary: &Summary) -> Option<f64> {
    let answered = summary.existing_answered as f64;
    (summary.existing > 0).then(|| 1.0 - answered / summary.existing as f64)
}

/// The unit stands in the note: on a phone each character counts.
fn answered(run: &Run) -> Cell {
    let text = percent(run.summary.existing_answered, run.summary.existing);
    let low = missed(&run.summary).is_some_and(|missed| missed > 0.01);
    Cell { text: text.unwrap_or_else(none), mark: low.then_some(Mark::Low) }
}

fn peak(run: &Run) -> Cell {
    let Summary { origin_peak: peak, origin_limit: limit, .. } = run.summary;
    Cell { text: short(peak as f64), mark: (peak > limit).then_some(Mark::High) }
}

/// How many calls at once the origin bears: one figure, unless runs differ.
fn limits(drill: &Drill) -> String {
    let limits = || drill.runs.iter().map(|run| run.summary.origin_limit);
    match (limits().min(), limits().max()) {
        (Some(least), Some(most)) if least < most => {
            format!("{} to {}", short(least as f64), short(most as f64))
        }
        (_, most) => short(most.unwrap_or(0) as f64),
    }
}

fn recovery(run: &Run) -> Cell {
    match run.summary.recovery_ms {
        Some(millis) => Cell { text: duration(millis.saturating_mul(1000)), mark: None },
        None if run.events.is_empty() => Cell { text: none(), mark: None },
        None => Cell { text: "no".to_owned(), mark: Some(Mark::High) },
    }
}

fn slowness(run: &Run) -> Option<f64> {
    match run.summary.recovery_ms {
        Some(millis) => Some(millis as f64),
        None => (!run.events.is_empty()).then_some(f64::INFINITY),
    }
}

/// In place of a figure that there is not.
fn none() -> String {
    "–".to_owned()
}

/// The same cells for the tables of acts, which have room for all digits.
pub(super) fn recovery_html(run: &Run) -> String {
    html(&recovery(run))
}

pub(super) fn peak_html(run: &Run) -> String {
    let mut cell = peak(run);
    cell.text = exact(run.summary.origin_peak);
    html(&cell)
}

pub(super) fn answered_html(run: &Run) -> String {
    html(&answered(run))
}

fn html(cell: &Cell) -> String {
    match cell.mark {
        None => cell.text.clone(),
        Some(Mark::High) => format!("<b class=\"bad\">▲\u{202f}{}</b>", cell.text),
        Some(Mark::Low) => format!("<b class=\"bad\">▼\u{202f}{}</b>", cell.text),
    }
}

/// All measures of a drill.
pub(super) fn overview(drill: &Drill) -> String {
    let acts: Vec<Act> = words::ACTS.into_iter().filter(|&act| has(drill, act)).collect();
    let settings: Vec<Setting> = words::SETTINGS
        .into_iter()
        .filter(|&setting| drill.runs.iter().any(|run| run.setting == setting))
        .collect();
    let tables: String =
        MEASURES.iter().map(|measure| table(measure, drill, &acts, &settings)).collect();
    format!("<div class=\"overview\">\n{tables}</div>\n")
}

fn has(drill: &Drill, act: Act) -> bool {
    drill.runs.iter().any(|run| run.act == act)
}

fn table(measure: &Measure, drill: &Drill, acts: &[Act], settings: &[Setting]) -> String {
    let heads: String = settings
        .iter()
        .map(|&setting| words::setting(setting).replace("coalescing", "coales&shy;cing"))
        .map(|name| format!("<th scope=\"col\">{name}</th>"))
        .collect();
    let rows: String = acts.iter().map(|&act| row(measure, drill, act, settings)).collect();
    let worst: String = settings
        .iter()
        .map(|&setting| {
            let runs = drill.runs.iter().filter(|run| run.setting == setting);
            let worst = runs
                .filter_map(|run| Some((run, (measure.badness)(run)?)))
                .max_by(|one, other| one.1.total_cmp(&other.1));
            cell(measure, worst.map(|(run, _)| run))
        })
        .collect();
    format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{title}\"><table>\
         <caption><strong>{title}</strong> {note}</caption>\
         <thead><tr><td></td>{heads}</tr></thead>\n<tbody>{rows}</tbody>\n\
         <tfoot><tr><th scope=\"row\">Worst</th>{worst}</tr></tfoot></table></div>\n",
        title = measure.title,
        note = escape(&(measure.note)(drill)),
    )
}

fn row(measure: &Measure, drill: &Drill, act: Act, settings: &[Setting]) -> String {
    let words = words::act(act);
    let cells: String = settings
        .iter()
        .map(|&setting| {
            let run = drill.runs.iter().find(|run| run.act == act && run.setting == setting);
            cell(measure, run)
        })
        .collect();
    format!("<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th>{cells}</tr>\n", words.id, words.name)
}

fn cell(measure: &Measure, run: Option<&Run>) -> String {
    let text = run.map_or_else(none, |run| html(&(measure.cell)(run)));
    format!("<td>{text}</td>")
}
