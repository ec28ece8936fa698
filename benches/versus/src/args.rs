//! The command line.

use crate::{bytes, subjects};
use lexopt::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

pub const USAGE: &str = "\
usage: versus <bench> [options]

benches:
  throughput   operations a second, and the ratios between subjects
  traces       hit ratio on recorded traces
  bytes        the same under a budget of bytes, on traces with sizes
  memory       live heap bytes per entry
  latency      single hits timed one by one while another thread evicts
  stampede     loads: bursts of callers of one cold key, and cold keys without anybody who waits
  bloom        Bloom filters: time of queries and inserts, false positives

options:
  --json              one JSON object a line instead of a table
  --rounds N          rounds (throughput, latency, stampede, bloom; default 5)
  --ms N              milliseconds per subject and round (throughput, latency; default 300)
  --subjects a,b      only these subjects
  --threads 1,2       thread counts (throughput, traces; default 1,2; bytes; default 1)
  --scenarios a,b     only these scenarios (throughput, stampede) or shapes (memory)
  --traces PATH       folder of the traces (traces, bytes; default ../../../shared/traces)
  --settle            do pending maintenance after each request, where one can ask for it (bytes, traces)
  --rows SUBSTRING    only traces whose name contains it (traces, bytes)
  --capacity a,b      these capacities instead of those of rows.csv (traces); budgets (bytes; default
                      1, 5 and 20 % of all distinct keys'); numbers of keys (bloom; default
                      1000000,40000000)
";

pub struct Args {
    pub bench: String,
    pub json: bool,
    /// Whether pending maintenance is done after each request.
    pub settle: bool,
    pub rounds: usize,
    pub time: Duration,
    threads: Option<Vec<usize>>,
    pub traces: PathBuf,
    pub rows: Option<String>,
    pub capacities: Option<Vec<u64>>,
    subjects: Option<Vec<String>>,
    scenarios: Option<Vec<String>>,
}

impl Args {
    pub fn parse() -> Result<Self, lexopt::Error> {
        let mut args = Args {
            bench: String::new(),
            json: false,
            settle: false,
            rounds: 5,
            time: Duration::from_millis(300),
            threads: None,
            traces: PathBuf::from("../../../shared/traces"),
            rows: None,
            capacities: None,
            subjects: None,
            scenarios: None,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("json") => args.json = true,
                Long("settle") => args.settle = true,
                Long("rounds") => args.rounds = at_least_one(parser.value()?.parse()?)?,
                Long("ms") => args.time = Duration::from_millis(parser.value()?.parse()?),
                Long("threads") => {
                    let threads = list(parser.value()?)?;
                    for &threads in &threads {
                        at_least_one(threads)?;
                    }
                    args.threads = Some(threads);
                }
                Long("subjects") => args.subjects = Some(subjects(list(parser.value()?)?)?),
                Long("scenarios") => args.scenarios = Some(list(parser.value()?)?),
                Long("traces") => args.traces = parser.value()?.into(),
                Long("rows") => args.rows = Some(parser.value()?.parse()?),
                Long("capacity") => args.capacities = Some(list(parser.value()?)?),
                Short('h') | Long("help") => {
                    print!("{USAGE}");
                    std::process::exit(0);
                }
                Value(bench) if args.bench.is_empty() => args.bench = bench.string()?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(args)
    }

    /// The thread counts; the bench has its own for a user who gives none.
    pub fn threads<'a>(&'a self, default: &'a [usize]) -> &'a [usize] {
        self.threads.as_deref().unwrap_or(default)
    }

    /// Whether the subject of this name is to be run.
    pub fn wants(&self, subject: &str) -> bool {
        chosen(&self.subjects, subject)
    }

    /// Whether the scenario of this name is to be run.
    pub fn wants_scenario(&self, scenario: &str) -> bool {
        chosen(&self.scenarios, scenario)
    }

    /// Fails if `--scenarios` has a name that the bench does not know.
    pub fn check_scenarios(&self, known: &[&str]) -> Result<(), lexopt::Error> {
        for name in self.scenarios.iter().flatten() {
            if !known.contains(&name.as_str()) {
                return Err(unknown("scenario", name, known));
            }
        }
        Ok(())
    }
}

fn chosen(names: &Option<Vec<String>>, name: &str) -> bool {
    names.as_ref().is_none_or(|names| names.iter().any(|n| n == name))
}

fn at_least_one(n: usize) -> Result<usize, lexopt::Error> {
    if n == 0 {
        return Err("must be at least 1".into());
    }
    Ok(n)
}

fn list<T: std::str::FromStr>(value: std::ffi::OsString) -> Result<Vec<T>, lexopt::Error>
where
    T::Err: std::fmt::Display,
{
    let value = value.string()?;
    value
        .split(',')
        .filter(|item| !item.is_empty())
        .map(|item| item.parse().map_err(|error: T::Err| format!("{item:?}: {error}").into()))
        .collect()
}

/// The names as the subjects spell them, whatever the case and with `-` for `_` or the reverse.
fn subjects(asked: Vec<String>) -> Result<Vec<String>, lexopt::Error> {
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    let mut names = subjects::names();
    names.push(bytes::BASE_LINE);
    asked
        .iter()
        .map(|name| {
            names
                .iter()
                .find(|known| plain(known) == plain(name))
                .map(|known| known.to_string())
                .ok_or_else(|| unknown("subject", name, &names))
        })
        .collect()
}

fn unknown(what: &str, name: &str, known: &[&str]) -> lexopt::Error {
    format!("unknown {what} {name:?}; there are: {}", known.join(", ")).into()
}
