//! Live heap bytes per entry. Every subject and shape has a process of its own, so that nothing
//! that one left behind is counted for the next.

use crate::args::Args;
use crate::heap::Heap;
use crate::record;
use crate::report::{Report, round};
use crate::subjects::{self, Config, Key, Kind, Subject, Value, Visit};
use std::process::Command;
use std::sync::Arc;

type Error = Box<dyn std::error::Error>;

/// Capacity, and distinct keys inserted.
const ENTRIES: u64 = 1_000_000;

const SHAPES: [&str; 2] = ["u64-u64", "string24-arc100"];

/// Set for the process that measures.
const CHILD: &str = "VERSUS_MEMORY_CHILD";

struct Measure<'a, K, V> {
    args: &'a Args,
    report: &'a mut Report,
    shape: &'static str,
    entry: fn(u64) -> (K, V),
}

impl<K: Key, V: Value> Visit<K, V> for Measure<'_, K, V> {
    fn visit<S: Subject<K, V>>(&mut self) {
        if !self.args.wants(S::NAME) {
            return;
        }
        let before = Heap::live();
        let subject = S::build(&Config::entries(ENTRIES));
        for i in 0..ENTRIES {
            let (key, value) = (self.entry)(i);
            subject.insert(key, value);
        }
        subject.settle();
        let bytes = Heap::live() - before;
        let resident =
            (0..ENTRIES).filter(|i| subject.read(&(self.entry)(*i).0, |_| ()).is_some()).count();
        self.report.add(record! {
            "bench": "memory",
            "subject": S::NAME,
            "shape": self.shape,
            "bytes_per_entry": round(bytes as f64 / resident as f64, 2),
            "entries": resident,
        });
    }
}

fn numbers(i: u64) -> (u64, u64) {
    (i, i)
}

fn text(i: u64) -> (String, Arc<[u8; 100]>) {
    let mut key = String::with_capacity(24);
    key.push_str(&format!("{i:024}"));
    (key, Arc::new([i as u8; 100]))
}

/// In the process that measures: what `args` asks for, one after the other.
fn measure(args: &Args, report: &mut Report) {
    Heap::count();
    for shape in SHAPES {
        if !args.wants_scenario(shape) {
            continue;
        }
        if shape == "u64-u64" {
            subjects::each(&mut Measure { args, report, shape, entry: numbers });
        } else {
            subjects::each(&mut Measure { args, report, shape, entry: text });
        }
    }
}

/// The names of the subjects that store entries differently.
struct Distinct(Vec<&'static str>);

impl Visit<u64, u64> for Distinct {
    fn visit<S: Subject<u64, u64>>(&mut self) {
        let other_way_to_read =
            S::NAME == "papaya-clone" || S::KIND == Kind::Ours && S::NAME != "seawall";
        if !other_way_to_read {
            self.0.push(S::NAME);
        }
    }
}

pub fn run(args: &Args, report: &mut Report) -> Result<(), Error> {
    args.check_scenarios(&SHAPES)?;
    if std::env::var_os(CHILD).is_some() {
        measure(args, report);
        return Ok(());
    }
    let mut distinct = Distinct(Vec::new());
    subjects::each(&mut distinct);
    for shape in SHAPES.iter().filter(|shape| args.wants_scenario(shape)) {
        for subject in distinct.0.iter().filter(|name| args.wants(name)) {
            let output = Command::new(std::env::current_exe()?)
                .args(["memory", "--json", "--subjects", subject])
                .args(["--scenarios", shape])
                .env(CHILD, "1")
                .stderr(std::process::Stdio::inherit())
                .output()?;
            if !output.status.success() {
                return Err(format!("{subject}, {shape}: {}", output.status).into());
            }
            for line in String::from_utf8(output.stdout)?.lines() {
                report.add(serde_json::from_str(line)?);
            }
        }
    }
    Ok(())
}
