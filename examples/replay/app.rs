//! From the command line to the exit code.

use std::ffi::OsString;
use std::io::{Read, Write};

use crate::args::{self, Budget, Command, Options};
use crate::best;
use crate::input::Input;
use crate::lru::Lru;
use crate::policy::{Seawall, replay};
use crate::report::{Report, Row};
use crate::trace::Trace;

/// Shares of the distinct keys, in percent: the capacities if none is given.
const LADDER: [u64; 4] = [1, 5, 10, 25];

/// Exit codes.
const FAILURE: u8 = 1;
const USAGE: u8 = 2;

/// Does what the arguments say, and returns the exit code. Results go to `out`, at once and only if
/// nothing failed; all else to `err`.
pub(crate) fn run(
    args: impl IntoIterator<Item = OsString>,
    stdin: impl Read,
    out: &mut impl Write,
    err: &mut impl Write,
) -> u8 {
    let (code, result) = match args::parse(args) {
        Ok(Command::Help) => (FAILURE, Ok(args::HELP.to_owned())),
        Ok(Command::Replay(options)) => (FAILURE, replay_all(&options, stdin, err)),
        Err(error) => (USAGE, Err(format!("{error}; see --help"))),
    };
    let written = result.and_then(|text| {
        let all = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        all.map_err(|error| format!("standard output: {error}"))
    });
    match written {
        Ok(()) => 0,
        Err(error) => {
            say(err, &error);
            code
        }
    }
}

/// Where nobody listens, there is nothing to be done about it.
fn say(err: &mut impl Write, line: &str) {
    let _ = writeln!(err, "replay: {line}");
}

fn replay_all(options: &Options, stdin: impl Read, err: &mut impl Write) -> Result<String, String> {
    let input = Input::open(&options.file, stdin, options.format)?;
    let (name, taken_as) = (input.name().to_owned(), input.to_string());
    let trace = input.read()?;
    if !trace.has_sizes() && options.budgets.iter().any(|b| matches!(b, Budget::Bytes(_))) {
        return Err(format!("{name}: --bytes needs sizes, and this trace has none"));
    }
    let budgets = match options.budgets.as_slice() {
        [] => ladder(trace.distinct()),
        given => given.to_vec(),
    };
    say(err, &format!("{taken_as}; {} requests to replay", trace.requests().len()));

    let next = best::next_uses(&trace);
    let mut rows = Vec::new();
    for budget in budgets {
        rows.extend(rows_of(&trace, &next, budget)?);
    }
    let report = Report::new(&name, &trace, &rows);
    Ok(if options.json { report.json() } else { report.table() })
}

fn ladder(distinct: usize) -> Vec<Budget> {
    let mut capacities: Vec<_> =
        LADDER.iter().map(|percent| (distinct as u64 * percent / 100).max(1)).collect();
    capacities.dedup();
    capacities.into_iter().map(Budget::Entries).collect()
}

fn rows_of(trace: &Trace, next: &[u32], budget: Budget) -> Result<[Row; 3], String> {
    let run = replay(trace, || Seawall::new(budget));
    let seawall = Row::measured(budget, "seawall", run.map_err(|error| error.to_string())?);
    let lru = match replay(trace, || Ok::<_, std::convert::Infallible>(Lru::new(budget))) {
        Ok(run) => Row::measured(budget, "LRU", run),
        Err(never) => match never {},
    };
    let best = match budget {
        Budget::Entries(entries) => Row::computed(budget, "MIN", best::min(next, entries), None),
        Budget::Bytes(bytes) => {
            let bound = best::bound(trace, next, bytes);
            Row::computed(budget, "bound", bound.hits, Some(bound.bytes))
        }
    };
    Ok([seawall, lru, best])
}
