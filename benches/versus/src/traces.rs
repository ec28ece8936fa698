//! Hit ratio on recorded traces: `get`, and on a miss `insert`.

use crate::args::Args;
use crate::deal::deal;
use crate::record;
use crate::report::{Report, percent, round};
use crate::subjects::{self, Config, Kind, Subject, Visit};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

type Error = Box<dyn std::error::Error>;

/// The peers that ours are held against, by their names here and in rows.csv.
const PEERS: [&str; 4] = ["quick_cache", "moka", "mini_moka", "tinyufo"];

struct Row {
    trace: String,
    capacity: u64,
    /// What rows.csv says, in percent, in the order of [`PEERS`].
    known: [Option<f64>; PEERS.len()],
}

fn read_rows(args: &Args) -> Result<Vec<Row>, Error> {
    let text = std::fs::read_to_string(args.traces.join("rows.csv"))?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
    let column = |name: &str| header.iter().position(|h| *h == name);
    let trace = column("trace").ok_or("rows.csv has no column `trace`")?;
    let capacity = column("capacity").ok_or("rows.csv has no column `capacity`")?;
    let mut rows = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |at: usize| cells.get(at).copied().unwrap_or("");
        rows.push(Row {
            trace: cell(trace).to_string(),
            capacity: cell(capacity).parse()?,
            known: PEERS.map(|peer| cell(column(peer)?).parse().ok()),
        });
    }
    if let Some(part) = &args.rows {
        rows.retain(|row| row.trace.contains(part.as_str()));
    }
    if let Some(capacities) = &args.capacities {
        rows = with_capacities(rows, capacities);
    }
    Ok(rows)
}

/// The traces of `rows` at other capacities, with what is known where it is.
fn with_capacities(rows: Vec<Row>, capacities: &[u64]) -> Vec<Row> {
    let mut traces: Vec<&str> = rows.iter().map(|row| row.trace.as_str()).collect();
    traces.dedup();
    let mut result = Vec::new();
    for trace in traces {
        for &capacity in capacities {
            let same = |row: &&Row| row.trace == trace && row.capacity == capacity;
            result.push(Row {
                trace: trace.to_string(),
                capacity,
                known: rows.iter().find(same).map_or([None; 4], |row| row.known),
            });
        }
    }
    result
}

fn decode(path: &Path) -> Result<Vec<u64>, Error> {
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(file)?.read_to_end(&mut bytes)?;
    let (keys, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(format!("{}: not a whole number of keys", path.display()).into());
    }
    Ok(keys.iter().map(|key| u64::from_le_bytes(*key)).collect())
}

/// Hits of `requests`.
#[inline(never)]
fn replay<S: Subject<u64, u64>>(subject: &S, requests: &[u64], settle: bool) -> u64 {
    let mut hits = 0;
    for &key in requests {
        if subject.read(&key, |_| ()).is_some() {
            hits += 1;
        } else {
            subject.insert(key, key);
        }
        if settle {
            subject.settle();
        }
    }
    hits
}

/// Runs each subject over one row.
struct Runner<'a> {
    args: &'a Args,
    requests: &'a [u64],
    capacity: u64,
    threads: usize,
    /// Subject and hit ratio in percent.
    results: Vec<(&'static str, f64)>,
}

impl Visit<u64, u64> for Runner<'_> {
    fn visit<S: Subject<u64, u64>>(&mut self) {
        // The other ways of reading are the same cache.
        let same = S::KIND == Kind::Ours && S::NAME != "seawall";
        if !self.args.wants(S::NAME) || S::KIND == Kind::Map || same {
            return;
        }
        let subject = S::build(&Config::entries(self.capacity));
        let hits = deal(self.requests, self.threads, |part, hits: &mut u64| {
            *hits += replay(&subject, part, self.args.settle);
        });
        let ratio = percent(hits.iter().sum(), self.requests.len() as u64);
        self.results.push((S::NAME, ratio));
    }
}

/// One subject over all rows.
#[derive(Default)]
struct Summary {
    /// Its place among the subjects.
    order: usize,
    rows: usize,
    sum: f64,
    /// Difference to the best peer, and where.
    worst: Option<(f64, String)>,
}

impl Summary {
    fn add(&mut self, row: &Row, ratio: f64, best: Option<f64>) {
        self.rows += 1;
        self.sum += ratio;
        let Some(difference) = best.map(|best| ratio - best) else {
            return;
        };
        if self.worst.as_ref().is_none_or(|(w, _)| difference < *w) {
            let name = format!("{} {}", row.trace, row.capacity);
            self.worst = Some((difference, name));
        }
    }
}

/// By threads and subject.
type Summaries = BTreeMap<(usize, &'static str), Summary>;

pub fn run(args: &Args, report: &mut Report) -> Result<(), Error> {
    if !args.traces.is_dir() {
        println!("SKIPPED: traces folder not found: {}", args.traces.display());
        return Ok(());
    }
    let rows = read_rows(args)?;
    let mut summaries = Summaries::new();
    for group in rows.chunk_by(|a, b| a.trace == b.trace) {
        let file = format!("{}.u64.zst", group[0].trace);
        let requests = decode(&args.traces.join(file))?;
        for row in group {
            for &threads in args.threads(&[1, 2]) {
                run_row(args, report, &mut summaries, row, &requests, threads);
            }
        }
    }
    summarise(report, summaries);
    Ok(())
}

fn run_row(
    args: &Args,
    report: &mut Report,
    summaries: &mut Summaries,
    row: &Row,
    requests: &[u64],
    threads: usize,
) {
    let capacity = row.capacity;
    let mut runner = Runner { args, requests, capacity, threads, results: Vec::new() };
    subjects::each(&mut runner);
    let results = runner.results;
    let best = best_peer(row, &results);
    for (order, (subject, ratio)) in results.iter().enumerate() {
        report.add(record! {
            "bench": "traces",
            "trace": row.trace.as_str(),
            "capacity": capacity,
            "subject": *subject,
            "threads": threads,
            "hit_ratio": round(*ratio, 3),
            "vs_best_peer": best.map(|best| round(ratio - best, 3)),
        });
        let summary = summaries.entry((threads, subject)).or_default();
        summary.order = order;
        summary.add(row, *ratio, best);
    }
}

fn summarise(report: &mut Report, summaries: Summaries) {
    let mut summaries: Vec<_> = summaries.into_iter().collect();
    summaries.sort_by_key(|((threads, _), summary)| (*threads, summary.order));
    for ((threads, subject), summary) in summaries {
        let (worst, row) = summary.worst.unzip();
        report.add(record! {
            "bench": "traces-mean",
            "subject": subject,
            "threads": threads,
            "mean": round(summary.sum / summary.rows as f64, 3),
            "worst_vs_best_peer": worst.map(|worst| round(worst, 3)),
            "worst_row": row,
        });
    }
}

/// The best of the peers: each as it was run here, or else as rows.csv has it.
fn best_peer(row: &Row, results: &[(&str, f64)]) -> Option<f64> {
    PEERS
        .iter()
        .zip(row.known)
        .filter_map(|(peer, known)| {
            let run = results.iter().find(|(name, _)| name == peer);
            run.map(|(_, ratio)| *ratio).or(known)
        })
        .max_by(f64::total_cmp)
}
