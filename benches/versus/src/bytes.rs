//! Object and byte hit ratio on traces with sizes, under a budget of bytes.

mod lru;
mod subjects;
mod trace;

use crate::args::Args;
use crate::deal::deal;
use crate::record;
use crate::report::{Report, percent, round};
use std::collections::BTreeMap;
use subjects::{Budget, Subject};
use trace::{Request, Trace};

type Error = Box<dyn std::error::Error>;

/// The budgets, in percent of the bytes of all distinct keys.
const SHARES: [u64; 3] = [1, 5, 20];
/// The peers that ours is held against.
const PEERS: [&str; 5] = ["quick_cache", "moka", "mini_moka", "tinyufo", "foyer"];
/// The exact LRU, a subject of this bench only.
pub const BASE_LINE: &str = lru::Lru::NAME;

/// How a trace is replayed.
#[derive(Clone, Copy)]
struct Run {
    budget: u64,
    threads: usize,
    /// Whether pending maintenance is done after each request.
    settle: bool,
}

/// What was found in the cache.
#[derive(Default)]
struct Found {
    objects: u64,
    bytes: u64,
}

/// An entry that is heavier than the budget is not offered: the peers differ in what they do then.
fn replay<S: Subject>(subject: &S, requests: &[Request], run: &Run, found: &mut Found) {
    for &Request { key, size } in requests {
        if subject.hit(key) {
            found.objects += 1;
            found.bytes += u64::from(size);
        } else if u64::from(size) <= run.budget {
            subject.insert(key, size);
        }
        if run.settle {
            subject.settle();
        }
    }
}

/// The hit ratios of one subject, by objects and by bytes, in percent.
type Ratios = [f64; 2];

fn measure<S: Subject>(trace: &Trace, run: &Run) -> Ratios {
    let Run { budget: bytes, threads, .. } = *run;
    let bytes_per_key = trace.bytes / trace.keys;
    let subject = S::build(&Budget {
        bytes,
        entries: (bytes / bytes_per_key).clamp(1, trace.keys),
        heaviest: trace.heaviest.min(u32::try_from(bytes).unwrap_or(u32::MAX)),
    });
    let parts = deal(&trace.requests, threads, |part, found| replay(&subject, part, run, found));
    let requested = trace.requests.iter().map(|request| u64::from(request.size)).sum();
    [
        percent(parts.iter().map(|found| found.objects).sum(), trace.requests.len() as u64),
        percent(parts.iter().map(|found| found.bytes).sum(), requested),
    ]
}

type Measure = fn(&Trace, &Run) -> Ratios;

fn all() -> [(&'static str, Measure); PEERS.len() + 2] {
    fn entry<S: Subject>() -> (&'static str, Measure) {
        (S::NAME, measure::<S>)
    }
    [
        entry::<subjects::Seawall>(),
        entry::<subjects::QuickCache>(),
        entry::<subjects::Moka>(),
        entry::<subjects::MiniMoka>(),
        entry::<subjects::TinyUfo>(),
        entry::<subjects::Foyer>(),
        entry::<lru::Lru>(),
    ]
}

/// One subject over all traces and budgets; of pairs, the first is by objects, the second by bytes.
#[derive(Default)]
struct Summary {
    /// Its place among the subjects.
    order: usize,
    rows: usize,
    sums: Ratios,
    /// Differences to the best peer, and where.
    worst: [Option<(f64, String)>; 2],
}

impl Summary {
    fn add(&mut self, row: &str, ratios: Ratios, differences: [Option<f64>; 2]) {
        self.rows += 1;
        for at in 0..2 {
            self.sums[at] += ratios[at];
            let Some(difference) = differences[at] else { continue };
            if self.worst[at].as_ref().is_none_or(|(worst, _)| difference < *worst) {
                self.worst[at] = Some((difference, row.to_string()));
            }
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
    let subjects: Vec<_> = all().into_iter().filter(|(name, _)| args.wants(name)).collect();
    if subjects.is_empty() {
        return Err("none of these subjects takes weights".into());
    }
    let mut traces = trace::list(&args.traces)?;
    traces.retain(|(name, _)| args.rows.as_ref().is_none_or(|part| name.contains(part.as_str())));
    if traces.is_empty() {
        return Err(format!("no such trace with sizes in {}", args.traces.display()).into());
    }
    let mut summaries = Summaries::new();
    for (name, path) in traces {
        let trace = trace::read(&path)?;
        for budget in budgets(args, &trace) {
            for &threads in args.threads(&[1]) {
                let run = Run { budget, threads, settle: args.settle };
                run_row(&subjects, report, &mut summaries, (&name, &trace), run);
            }
        }
    }
    summarise(report, summaries);
    Ok(())
}

fn budgets(args: &Args, trace: &Trace) -> Vec<u64> {
    let of_all = |share: u64| (u128::from(trace.bytes) * u128::from(share) / 100) as u64;
    let budgets = args.capacities.clone();
    let mut budgets = budgets.unwrap_or_else(|| SHARES.map(of_all).to_vec());
    budgets.iter_mut().for_each(|budget| *budget = (*budget).max(1));
    budgets
}

fn run_row(
    subjects: &[(&'static str, Measure)],
    report: &mut Report,
    summaries: &mut Summaries,
    (name, trace): (&str, &Trace),
    run: Run,
) {
    let Run { budget, threads, .. } = run;
    let results: Vec<(&'static str, Ratios)> =
        subjects.iter().map(|(subject, measure)| (*subject, measure(trace, &run))).collect();
    let best = [0, 1].map(|at| best_peer(&results, at));
    for (order, &(subject, ratios)) in results.iter().enumerate() {
        let differences = [0, 1].map(|at| best[at].map(|best| ratios[at] - best));
        report.add(record! {
            "bench": "bytes",
            "trace": name,
            "budget": budget,
            "subject": subject,
            "threads": threads,
            "hit_ratio": round(ratios[0], 3),
            "byte_hit_ratio": round(ratios[1], 3),
            "vs_best_peer": differences[0].map(|points| round(points, 3)),
            "byte_vs_best_peer": differences[1].map(|points| round(points, 3)),
        });
        let summary = summaries.entry((threads, subject)).or_default();
        summary.order = order;
        summary.add(&format!("{name} {budget}"), ratios, differences);
    }
}

/// The best ratio of the peers that were run.
fn best_peer(results: &[(&str, Ratios)], at: usize) -> Option<f64> {
    let peers = results.iter().filter(|(name, _)| PEERS.contains(name));
    peers.map(|(_, ratios)| ratios[at]).max_by(f64::total_cmp)
}

fn summarise(report: &mut Report, summaries: Summaries) {
    let mut summaries: Vec<_> = summaries.into_iter().collect();
    summaries.sort_by_key(|((threads, _), summary)| (*threads, summary.order));
    for ((threads, subject), summary) in summaries {
        let mean = summary.sums.map(|sum| round(sum / summary.rows as f64, 3));
        let [(worst, row), (byte_worst, byte_row)] = summary.worst.map(Option::unzip);
        report.add(record! {
            "bench": "bytes-mean",
            "subject": subject,
            "threads": threads,
            "hit_ratio": mean[0],
            "byte_hit_ratio": mean[1],
            "worst_vs_best_peer": worst.map(|points| round(points, 3)),
            "worst_row": row,
            "byte_worst_vs_best_peer": byte_worst.map(|points| round(points, 3)),
            "byte_worst_row": byte_row,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Run = Run { budget: 10_000, threads: 1, settle: false };

    fn trace(requests: &[(u64, u32)]) -> Trace {
        let requests: Vec<_> = requests.iter().map(|&(key, size)| Request { key, size }).collect();
        Trace { keys: 3, bytes: 116, heaviest: 100, requests }
    }

    #[test]
    fn what_fits_is_found_by_all() {
        let trace = trace(&[(1, 6), (2, 10), (3, 100), (1, 6), (2, 8), (3, 100)]);
        for (name, measure) in all() {
            let ratios = measure(&trace, &ROOMY);
            assert_eq!(ratios, [50.0, 114.0 * 100.0 / 230.0], "{name}");
        }
    }

    #[test]
    fn what_is_heavier_than_the_budget_is_a_miss_and_takes_nothing_out() {
        let trace = trace(&[(1, 6), (3, 100), (1, 6), (3, 100), (1, 6)]);
        for (name, measure) in all() {
            let ratios = measure(&trace, &Run { budget: 99, ..ROOMY });
            assert_eq!(ratios, [40.0, 12.0 * 100.0 / 218.0], "{name}");
        }
    }

    #[test]
    fn the_worst_row_is_kept_by_objects_and_by_bytes() {
        let mut summary = Summary::default();
        summary.add("a", [10.0, 20.0], [Some(-1.0), Some(2.0)]);
        summary.add("b", [20.0, 40.0], [Some(-3.0), Some(4.0)]);
        summary.add("c", [30.0, 60.0], [None, None]);
        assert_eq!((summary.rows, summary.sums), (3, [60.0, 120.0]));
        assert_eq!(summary.worst, [Some((-3.0, "b".into())), Some((2.0, "a".into()))]);
    }
}
