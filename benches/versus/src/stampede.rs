//! Loads of cold keys, by many at once and by few.

mod burst;
mod speed;
mod subjects;

use self::burst::Burst;
use self::speed::{Live, Subject, Work};
use self::subjects::{Cells, Moka, MokaFuture, QuickCache, Seawall, SeawallGetWith};
use crate::args::Args;
use crate::heap::Heap;
use crate::record;
use crate::report::{Report, median, round};
use crate::subjects::{Block, block};
use std::sync::OnceLock;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

const TASKS: usize = 10_000;
const THREADS: usize = 200;

const MODES: [&str; 6] = ["tokio", "threads", "cold", "roomy", "hit", "memory"];

type Tasks = fn(&Runtime, usize) -> Burst;
type Threads = fn(usize) -> (Burst, isize);

fn tasks(args: &Args) -> Vec<(&'static str, Tasks)> {
    let all: [(&'static str, Tasks); 4] = [
        ("seawall", burst::tasks::<Seawall<Block>>),
        ("quick_cache", burst::tasks::<QuickCache<Block>>),
        ("moka", burst::tasks::<MokaFuture<Block>>),
        ("dashmap", burst::tasks::<Cells<OnceCell<Block>>>),
    ];
    all.into_iter().filter(|it| args.wants(it.0)).collect()
}

fn threads(args: &Args) -> Vec<(&'static str, Threads)> {
    let all: [(&'static str, Threads); 4] = [
        ("seawall", burst::threads::<Seawall<Block>>),
        ("quick_cache", burst::threads::<QuickCache<Block>>),
        ("moka", burst::threads::<Moka<Block>>),
        ("dashmap", burst::threads::<Cells<OnceLock<Block>>>),
    ];
    all.into_iter().filter(|it| args.wants(it.0)).collect()
}

/// Runs each subject in turn, in an order that changes from round to round; returns what each came to.
fn rounds<T>(count: usize, rounds: usize, mut run: impl FnMut(usize) -> T) -> Vec<Vec<T>> {
    let mut results: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
    for turn in 0..rounds {
        for i in 0..count {
            let subject = (i + turn) % count;
            results[subject].push(run(subject));
        }
    }
    results
}

/// The ratios of the first subject to each other one, in the same round.
fn ratios(report: &mut Report, mode: &str, what: &str, names: &[&str], results: &[Vec<f64>]) {
    let (Some((ours, peers)), Some(("seawall", _))) =
        (results.split_first(), names.split_first().map(|it| (*it.0, ())))
    else {
        return;
    };
    for (name, peer) in names[1..].iter().zip(peers) {
        let ratios = ours.iter().zip(peer).map(|(a, b)| a / b).collect();
        report.add(record! {
            "bench": "stampede-ratio",
            "mode": mode,
            "subject": names[0],
            "peer": *name,
            "of": what,
            "ratio": round(median(ratios), 3),
        });
    }
}

fn bursts(report: &mut Report, mode: &str, waiters: usize, names: &[&str], all: &[Vec<Burst>]) {
    let nanos = |burst: &Burst| burst.total.as_nanos() as f64;
    for (name, bursts) in names.iter().zip(all) {
        let total = median(bursts.iter().map(nanos).collect());
        report.add(record! {
            "bench": "stampede",
            "mode": mode,
            "waiters": waiters,
            "subject": *name,
            "loads": bursts.iter().map(|it| it.loads).max(),
            "total_ms": round(total / 1e6, 3),
            "per_waiter_ns": round(total / waiters as f64, 1),
        });
    }
    let times: Vec<Vec<f64>> = all.iter().map(|it| it.iter().map(nanos).collect()).collect();
    ratios(report, mode, "time", names, &times);
}

fn names<T>(subjects: &[(&'static str, T)]) -> Vec<&'static str> {
    subjects.iter().map(|it| it.0).collect()
}

fn run_bursts(args: &Args, report: &mut Report) {
    if args.wants_scenario("tokio") {
        let (subjects, runtime) = (tasks(args), burst::runtime());
        let all = rounds(subjects.len(), args.rounds, |i| subjects[i].1(&runtime, TASKS));
        bursts(report, "tokio", TASKS, &names(&subjects), &all);
    }
    if args.wants_scenario("threads") {
        let subjects = threads(args);
        let all = rounds(subjects.len(), args.rounds, |i| subjects[i].1(THREADS).0);
        bursts(report, "threads", THREADS, &names(&subjects), &all);
    }
}

fn speeds(args: &Args, report: &mut Report, mode: &str, mut subjects: Vec<Box<dyn Live>>) {
    subjects.retain(|it| {
        args.wants(it.name()) || it.name() == "seawall-get_with" && args.wants("seawall")
    });
    let keys = if mode == "hit" { speed::resident() } else { Vec::new() };
    for &threads in args.threads(&[1, 2]) {
        let mode = format!("{mode}{threads}");
        let names: Vec<_> = subjects.iter().map(|it| it.name()).collect();
        let all = rounds(subjects.len(), args.rounds, |i| subjects[i].round(threads as u64, &keys));
        for (name, mops) in names.iter().zip(&all) {
            report.add(record! {
                "bench": "stampede-speed",
                "mode": mode.as_str(),
                "subject": *name,
                "mops": round(median(mops.clone()), 3),
            });
        }
        ratios(report, &mode, "speed", &names, &all);
    }
}

/// The heap that one caller takes while it waits.
fn run_memory(args: &Args, report: &mut Report) {
    Heap::count();
    let mut add = |mode, waiters: usize, subject, bytes: isize, future: usize| {
        report.add(record! {
            "bench": "stampede-memory",
            "mode": mode,
            "waiters": waiters,
            "subject": subject,
            "bytes_per_waiter": round(bytes as f64 / waiters as f64, 1),
            "future_bytes": future,
        });
    };
    let waiting = |run: &dyn Fn(&Runtime) -> (isize, usize)| {
        let runtime = burst::runtime();
        burst::tasks::<Cells<OnceCell<Block>>>(&runtime, 10);
        let before = Heap::live();
        let (live, future) = run(&runtime);
        (live - before, future)
    };
    let (bare, _) = waiting(&|runtime| (burst::bare_tasks(runtime, TASKS), 0));
    for (name, run) in tasks(args) {
        let (bytes, future) = waiting(&|runtime| {
            let burst = run(runtime, TASKS);
            (burst.live, burst.future)
        });
        add("tokio", TASKS, name, bytes - bare, future);
    }
    for (name, run) in threads(args) {
        let (burst, before) = run(THREADS);
        add("threads", THREADS, name, burst.live - before, 0);
    }
}

pub fn run(args: &Args, report: &mut Report) -> Result<(), lexopt::Error> {
    args.check_scenarios(&MODES)?;
    run_bursts(args, report);
    for (mode, work) in [("cold", Work::Cold), ("roomy", Work::Roomy)] {
        if args.wants_scenario(mode) {
            let mut subjects = vec![
                Subject::<Seawall<Block>, _>::boxed(work, block),
                Subject::<SeawallGetWith<Block>, _>::boxed(work, block),
                Subject::<QuickCache<Block>, _>::boxed(work, block),
                Subject::<Moka<Block>, _>::boxed(work, block),
            ];
            if work == Work::Roomy {
                subjects.push(Subject::<Cells<OnceLock<Block>>, _>::boxed(work, block));
            }
            speeds(args, report, mode, subjects);
        }
    }
    if args.wants_scenario("hit") {
        let value: fn(u64) -> u64 = |key| key;
        let subjects = vec![
            Subject::<Seawall<u64>, _>::boxed(Work::Hit, value),
            Subject::<SeawallGetWith<u64>, _>::boxed(Work::Hit, value),
            Subject::<QuickCache<u64>, _>::boxed(Work::Hit, value),
            Subject::<Moka<u64>, _>::boxed(Work::Hit, value),
            Subject::<Cells<OnceLock<u64>>, _>::boxed(Work::Hit, value),
        ];
        speeds(args, report, "hit", subjects);
    }
    if args.wants_scenario("memory") {
        run_memory(args, report);
    }
    Ok(())
}
