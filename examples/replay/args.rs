//! The command line.

use std::ffi::OsString;

use crate::format::Format;

pub(crate) const HELP: &str = "\
Replays an access trace: hit ratios of seawall beside LRU and the best possible.

usage: replay FILE [--capacity N]... [--bytes N]... [--format F] [--json]

FILE            the trace, plain or compressed with zstd; - is standard input
--capacity N    entries to hold; may be repeated. Without it and without --bytes:
                1, 5, 10 and 25 % of the distinct keys
--bytes N       bytes to hold, where the trace has sizes; may be repeated. KiB, MiB
                and GiB may follow the number
--format F      what FILE holds; without it, its name says so, or else its content:
                  u64    keys of 8 bytes, little-endian
                  rec16  records of 16 bytes, little-endian: u64 key, u32 size, u32 time
                         (never found by content: name it .rec16 or .rec16.zst)
                  text   one key a line; blank lines do not count
                  csv    time,key or time,key,size, or columns named in the first line
--json          one object a line instead of a table

Each request is a `get`, and on a miss an `insert`, into a cache that is empty at first.
An entry has the size of the request that inserted it, and weighs at least 1.
";

/// What a cache may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    Entries(u64),
    Bytes(u64),
}

impl Budget {
    /// The amount, in the budget's unit.
    pub(crate) fn amount(self) -> u64 {
        let (Budget::Entries(amount) | Budget::Bytes(amount)) = self;
        amount
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Replay(Options),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) file: OsString,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) format: Option<Format>,
    pub(crate) json: bool,
}

/// Understands the arguments, or says in one line why it cannot.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut args = args.into_iter();
    let (mut file, mut budgets, mut format, mut json) = (None, Vec::new(), None, false);
    let mut all_files = false;
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        if all_files || text == "-" || !text.starts_with('-') {
            if file.is_some() {
                return Err(format!("one file is enough, and {text:?} is another"));
            }
            file = Some(arg);
            continue;
        }
        let (flag, mut given) = match text.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (&*text, None),
        };
        let mut value = || {
            let next = || args.next().map(|next| next.to_string_lossy().into_owned());
            given.take().or_else(next).ok_or_else(|| format!("{flag} needs a value"))
        };
        match flag {
            "--capacity" => budgets.push(Budget::Entries(entries(&value()?)?)),
            "--bytes" => budgets.push(Budget::Bytes(bytes(&value()?)?)),
            "--format" => format = Some(value()?.parse()?),
            "--json" if given.is_none() => json = true,
            "--help" | "-h" if given.is_none() => return Ok(Command::Help),
            "--" if given.is_none() => all_files = true,
            _ => return Err(format!("what is {text:?}?")),
        }
    }
    let file = file.ok_or("a file is needed")?;
    Ok(Command::Replay(Options { file, budgets, format, json }))
}

fn entries(text: &str) -> Result<u64, String> {
    at_least_1(text)
        .ok_or_else(|| format!("--capacity {text:?}: a whole number, 1 or more, is needed"))
}

fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];
    let with_unit = |(unit, size)| Some((text.strip_suffix(unit)?, size));
    units
        .into_iter()
        .find_map(with_unit)
        .and_then(|(number, size)| at_least_1(number)?.checked_mul(size))
        .ok_or_else(|| format!("--bytes {text:?}: a whole number, 1 or more, is needed"))
}

fn at_least_1(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}
