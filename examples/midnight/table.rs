//! A run as a line of JSON, and an act as a block of a table.

use std::fmt::{self, Write};

use crate::record::{Run, Summary};

/// One object on one line.
pub fn json(run: &Run) -> String {
    let it = &run.summary;
    let recovery = it.recovery_ms.map_or("null".to_owned(), |ms| ms.to_string());
    let numbers = [
        ("requests", it.requests),
        ("fresh", it.fresh),
        ("stale", it.stale),
        ("absent", it.absent),
        ("refused", it.refused),
        ("failed", it.failed),
        ("p50_us", it.p50_us),
        ("p99_us", it.p99_us),
        ("p999_us", it.p999_us),
        ("origin_calls", it.origin_calls),
        ("origin_peak", it.origin_peak),
        ("origin_limit", it.origin_limit),
        ("waiters_peak", it.waiters_peak),
        ("retries", it.retries),
    ];
    let numbers: String =
        numbers.iter().map(|(name, number)| format!("\"{name}\":{number},")).collect();
    // No name has a character that JSON would escape.
    let (act, setting) = (run.act.name(), run.setting.name());
    format!(r#"{{"act":"{act}","setting":"{setting}",{numbers}"recovery_ms":{recovery}}}"#)
}

const HEAD: &str = concat!(
    "                 requests fresh stale absent refused failed answered",
    "   p50   p99 p99.9 calls peak waiters retries   well",
);

/// What a reader of the table cannot guess.
pub const LEGEND: &str = "\
answered: of the requests for articles that exist, those that got one, fresh or stale
calls, peak: what the origin was asked, in all and at once; waiters: requests at once that waited for it
well: from the first event until the origin was within its limit and without errors, for the rest of the act";

/// The runs of one act, a row each.
pub fn block(runs: &[Run]) -> Result<String, fmt::Error> {
    let Some(first) = runs.first() else { return Ok(String::new()) };
    let mut text = String::new();
    let events: Vec<_> =
        first.events.iter().map(|(ms, word)| format!("{word} at {ms} ms")).collect();
    let events = if events.is_empty() { "nothing happens".to_owned() } else { events.join(", ") };
    let limit = first.summary.origin_limit;
    writeln!(text, "{}: {events}; the origin bears {limit} calls at once", first.act.name())?;
    writeln!(text, "{HEAD}")?;
    for run in runs {
        writeln!(text, "{:<16} {}", run.setting.name(), row(&run.summary))?;
    }
    if first.events.is_empty() {
        writeln!(text, "hits: {}", hits(runs))?;
    }
    Ok(text)
}

fn row(it: &Summary) -> String {
    let well = it.recovery_ms.map_or("never".to_owned(), |ms| format!("{ms}ms"));
    format!(
        "{:>8} {:>5} {:>5} {:>6} {:>7} {:>6} {:>7}% {:>5} {:>5} {:>5} {:>5} {:>4} {:>7} {:>7} {:>6}",
        it.requests,
        it.fresh,
        it.stale,
        it.absent,
        it.refused,
        it.failed,
        hundredths(it.existing_answered, it.existing),
        time(it.p50_us),
        time(it.p99_us),
        time(it.p999_us),
        it.origin_calls,
        it.origin_peak,
        it.waiters_peak,
        it.retries,
        well
    )
}

/// The requests for which the origin was not asked. A measure of hits only where nobody tries again.
fn hits(runs: &[Run]) -> String {
    let part = |it: &Summary| hundredths(it.requests.saturating_sub(it.origin_calls), it.requests);
    let each = runs.iter().map(|run| format!("{} {}%", run.setting.name(), part(&run.summary)));
    each.collect::<Vec<_>>().join(", ")
}

/// A part in percent, rounded down, so that only all is 100.
fn hundredths(part: u64, whole: u64) -> String {
    let parts = (part * 10_000).checked_div(whole).unwrap_or(10_000);
    format!("{}.{:02}", parts / 100, parts % 100)
}

/// Microseconds, in five characters up to ten seconds.
fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..10_000 => format!("{:.1}ms", us as f64 / 1e3),
        10_000..999_500 => format!("{:.0}ms", us as f64 / 1e3),
        _ => format!("{:.2}s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Act, Setting};

    fn run() -> Run {
        let summary = Summary {
            requests: 5,
            fresh: 2,
            stale: 1,
            failed: 2,
            existing: 5,
            existing_answered: 3,
            p99_us: 1_234,
            origin_limit: 16,
            ..Summary::default()
        };
        let (act, setting) = (Act::HangUp, Setting::CoalescingStale);
        let events = vec![(200, "cache lost")];
        Run { act, setting, length_ms: 9, events, summary, samples: Vec::new() }
    }

    #[test]
    fn a_line_of_json_has_all_fields_in_order() {
        let line = json(&run());
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let fields = "act, setting, requests, fresh, stale, absent, refused, failed, p50_us, p99_us, \
            p999_us, origin_calls, origin_peak, origin_limit, waiters_peak, retries, recovery_ms";
        let mut from = 0;
        for field in fields.split(", ") {
            assert!(value.get(field).is_some(), "{field}");
            from += line[from..].find(&format!("\"{field}\":")).expect(field);
        }
        assert_eq!(value.as_object().unwrap().len(), fields.split(", ").count());
        assert_eq!((&value["act"], &value["requests"]), (&"hang-up".into(), &5.into()));
        assert!(value["recovery_ms"].is_null());
    }

    #[test]
    fn a_block_fits_on_a_terminal_and_in_its_columns() {
        let mut largest = run();
        largest.summary.requests = 99_999_999;
        largest.summary.p50_us = 9_994_000;
        let text = block(&[run(), largest]).unwrap();
        let lines: Vec<_> = text.lines().skip(1).map(|line| line.chars().count()).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|width| *width == lines[0] && *width <= 120), "{lines:?}");
        assert!(text.contains(" 60.00%") && text.contains(" never"));
    }

    #[test]
    fn only_all_is_a_hundred_percent() {
        assert_eq!(hundredths(99_999, 100_000), "99.99");
        assert_eq!((hundredths(7, 7), hundredths(0, 0)), ("100.00".into(), "100.00".into()));
        assert_eq!([999, 1_000, 12_345, 1_230_000].map(time), ["999us", "1.0ms", "12ms", "1.23s"]);
    }
}
