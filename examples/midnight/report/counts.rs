//! The table of an act: all that was counted, a row for each setting.

use super::figures::{duration, exact};
use super::overview::{answered_html, peak_html, recovery_html};
use super::words;
use crate::record::Run;

struct Column {
    head: &'static str,
    cell: fn(&Run) -> String,
}

struct Group {
    head: &'static str,
    columns: &'static [Column],
}

const GROUPS: [Group; 4] = [
    Group {
        head: "Requests",
        columns: &[
            Column { head: "all", cell: |run| exact(run.summary.requests) },
            Column { head: "fresh", cell: |run| exact(run.summary.fresh) },
            Column { head: "stale", cell: |run| exact(run.summary.stale) },
            Column { head: "absent", cell: |run| exact(run.summary.absent) },
            Column { head: "refused", cell: |run| exact(run.summary.refused) },
            Column { head: "failed", cell: |run| exact(run.summary.failed) },
            Column { head: "answered %", cell: answered_html },
            Column { head: "retries", cell: |run| exact(run.summary.retries) },
        ],
    },
    Group {
        head: "Latency",
        columns: &[
            Column { head: "p50", cell: |run| duration(run.summary.p50_us) },
            Column { head: "p99", cell: |run| duration(run.summary.p99_us) },
            Column { head: "p99.9", cell: |run| duration(run.summary.p999_us) },
        ],
    },
    Group {
        head: "Edge",
        columns: &[Column { head: "most waiting", cell: |run| exact(run.summary.waiters_peak) }],
    },
    Group {
        head: "Origin",
        columns: &[
            Column { head: "calls", cell: |run| exact(run.summary.origin_calls) },
            Column { head: "peak", cell: peak_html },
            Column { head: "bears", cell: |run| exact(run.summary.origin_limit) },
            Column { head: "healthy after", cell: recovery_html },
        ],
    },
];

pub(super) fn table(act: &str, runs: &[&Run]) -> String {
    let groups: String = GROUPS
        .iter()
        .map(|group| {
            let span = group.columns.len();
            format!("<th scope=\"colgroup\" colspan=\"{span}\">{}</th>", group.head)
        })
        .collect();
    let columns: String = GROUPS
        .iter()
        .map(|group| cells(group, |column| format!("scope=\"col\">{}</th>", column.head), "th"))
        .collect();
    let rows: String = runs.iter().map(|run| row(run)).collect();
    format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{act} in figures\">\
         <table class=\"counts\"><caption class=\"unseen\">{act} in figures</caption>\
         <thead><tr><td></td>{groups}</tr>\n<tr><td></td>{columns}</tr></thead>\n\
         <tbody>{rows}</tbody></table></div>\n"
    )
}

fn row(run: &Run) -> String {
    let figures: String = GROUPS
        .iter()
        .map(|group| cells(group, |column| format!(">{}</td>", (column.cell)(run)), "td"))
        .collect();
    format!("<tr><th scope=\"row\">{}</th>{figures}</tr>\n", words::setting(run.setting))
}

/// A group's cells; a rule stands before the first.
fn cells(group: &Group, rest: impl Fn(&Column) -> String, tag: &str) -> String {
    let cell = |(place, column): (usize, &Column)| {
        let class = if place == 0 { " class=\"first\"" } else { "" };
        format!("<{tag}{class} {}", rest(column))
    };
    group.columns.iter().enumerate().map(cell).collect()
}
