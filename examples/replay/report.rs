//! What was found, as a table or as lines of JSON.

use std::fmt::Write;

use serde_json::json;

use crate::args::Budget;
use crate::policy::Run;
use crate::trace::Trace;

/// What is not known, or makes no sense.
const NOTHING: &str = "-";

const MIN_NOTE: &str = "\
MIN: Bélády's, which knows the future: no cache has a higher hit ratio. It is not the best in bytes.
";

const BOUND_NOTE: &str = "\
bound: no cache has a higher hit ratio or byte hit ratio, and there may be none with these.
";

const NOTES: &str = "\
LRU: a plain one, which only one thread can use. Speed: of one thread. Heap: of the cache
itself; keys are numbers of 4 bytes, and all that is stored is a size.
";

/// One policy under one budget.
pub(crate) struct Row {
    budget: Budget,
    policy: &'static str,
    hits: u64,
    hit_bytes: Option<u128>,
    /// Not for what was only computed.
    run: Option<Run>,
}

impl Row {
    pub(crate) fn measured(budget: Budget, policy: &'static str, run: Run) -> Self {
        Row { budget, policy, hits: run.hits, hit_bytes: Some(run.hit_bytes), run: Some(run) }
    }

    pub(crate) fn computed(
        budget: Budget,
        policy: &'static str,
        hits: u64,
        hit_bytes: Option<u128>,
    ) -> Self {
        Row { budget, policy, hits, hit_bytes, run: None }
    }
}

pub(crate) struct Report<'a> {
    name: &'a str,
    requests: u64,
    distinct: u64,
    /// Of all requests, where sizes are known.
    bytes: Option<u128>,
    rows: &'a [Row],
}

impl<'a> Report<'a> {
    pub(crate) fn new(name: &'a str, trace: &Trace, rows: &'a [Row]) -> Self {
        Report {
            name,
            requests: trace.requests().len() as u64,
            distinct: trace.distinct() as u64,
            bytes: trace.bytes(),
            rows,
        }
    }

    fn hit_ratio(&self, row: &Row) -> f64 {
        row.hits as f64 / self.requests as f64
    }

    /// Not where all requests are of no bytes.
    fn byte_hit_ratio(&self, row: &Row) -> Option<f64> {
        let all = self.bytes.filter(|bytes| *bytes > 0)?;
        Some(row.hit_bytes? as f64 / all as f64)
    }

    fn missed_bytes(&self, row: &Row) -> Option<u128> {
        Some(self.bytes? - row.hit_bytes?)
    }

    fn speed(&self, row: &Row) -> Option<f64> {
        let seconds = row.run.as_ref()?.seconds;
        (seconds > 0.0).then(|| self.requests as f64 / seconds)
    }

    pub(crate) fn json(&self) -> String {
        let mut text = String::new();
        for row in self.rows {
            let (unit, amount) = match row.budget {
                Budget::Entries(entries) => ("entries", entries),
                Budget::Bytes(bytes) => ("bytes", bytes),
            };
            let run = row.run.as_ref();
            let line = json!({
                "trace": self.name,
                "requests": self.requests,
                "distinct": self.distinct,
                "requested_bytes": self.bytes.map(number),
                "budget": amount,
                "unit": unit,
                "policy": row.policy,
                "hits": row.hits,
                "hit_ratio": self.hit_ratio(row),
                "byte_hit_ratio": self.byte_hit_ratio(row),
                "missed_bytes": self.missed_bytes(row).map(number),
                "evictions": run.map(|run| run.evictions),
                "too_heavy": run.map(|run| run.too_heavy),
                "heap_bytes": run.map(|run| run.heap),
                "requests_per_second": self.speed(row).map(f64::round),
            });
            let _ = writeln!(text, "{line}");
        }
        text
    }

    pub(crate) fn table(&self) -> String {
        let mut text = self.heading();
        let mut lines = vec![self.column_names()];
        let mut last = None;
        for row in self.rows {
            // A budget is named once.
            let budget = if last == Some(row.budget) { String::new() } else { show(row.budget) };
            last = Some(row.budget);
            lines.push(self.cells(budget, row));
        }
        align(&lines, &mut text);
        self.notes(&mut text);
        text
    }

    fn heading(&self) -> String {
        let compulsory = percent(self.distinct as f64 / self.requests as f64);
        let most = percent((self.requests - self.distinct) as f64 / self.requests as f64);
        let mut text = format!("{}\n", self.name);
        let _ = writeln!(text, "  requests           {}", group(self.requests.into()));
        if let Some(bytes) = self.bytes {
            let _ = writeln!(text, "  requested bytes    {}", group(bytes));
        }
        let distinct = group(self.distinct.into());
        let _ = writeln!(text, "  distinct keys      {distinct}");
        let _ = writeln!(text, "  compulsory misses  {distinct} ({compulsory})");
        let _ = writeln!(text, "  highest hit ratio  {most}, of a cache without bounds\n");
        text
    }

    fn column_names(&self) -> Vec<String> {
        let mut names = vec!["budget", "policy", "hit ratio"];
        if self.bytes.is_some() {
            names.extend(["byte hit ratio", "missed bytes"]);
        }
        names.extend(["evictions", "heap bytes", "requests/s"]);
        names.into_iter().map(str::to_owned).collect()
    }

    fn cells(&self, budget: String, row: &Row) -> Vec<String> {
        let mut cells = vec![budget, row.policy.to_owned(), percent(self.hit_ratio(row))];
        if self.bytes.is_some() {
            cells.push(or_nothing(self.byte_hit_ratio(row).map(percent)));
            cells.push(or_nothing(self.missed_bytes(row).map(group)));
        }
        let run = row.run.as_ref();
        cells.push(or_nothing(run.map(|run| group(run.evictions.into()))));
        cells.push(or_nothing(run.map(|run| group(run.heap.into()))));
        cells.push(or_nothing(self.speed(row).map(|speed| group(speed as u128))));
        cells
    }

    fn notes(&self, text: &mut String) {
        let has = |policy| self.rows.iter().any(|row| row.policy == policy);
        text.push('\n');
        if has("MIN") {
            text.push_str(MIN_NOTE);
        }
        if has("bound") {
            text.push_str(BOUND_NOTE);
        }
        text.push_str(NOTES);
        for row in self.rows {
            if let Some(run) = row.run.as_ref().filter(|run| run.too_heavy > 0) {
                let (count, budget) = (group(run.too_heavy.into()), show(row.budget));
                let _ = writeln!(
                    text,
                    "{}, {budget}: {count} misses were of what is heavier than that.",
                    row.policy
                );
            }
        }
    }
}

/// JSON has no larger numbers.
fn number(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn show(budget: Budget) -> String {
    let unit = match budget {
        Budget::Entries(1) => "entry",
        Budget::Entries(_) => "entries",
        Budget::Bytes(_) => "B",
    };
    format!("{} {unit}", group(budget.amount().into()))
}

fn or_nothing(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| NOTHING.to_owned())
}

fn percent(ratio: f64) -> String {
    format!("{:.2} %", ratio * 100.0)
}

/// `1234567` as `1,234,567`.
fn group(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Appends lines of cells of which the second is flush left, the others flush right.
fn align(lines: &[Vec<String>], text: &mut String) {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..lines[0].len()).map(width).collect();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells: Vec<_> = cells
            .map(|(column, (cell, &width))| match column {
                1 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
}
