//! The example `replay`: its formats, its failures, and what it compares seawall with.

#[path = "../examples/replay/app.rs"]
mod app;
#[path = "../examples/replay/args.rs"]
mod args;
#[path = "../examples/replay/best.rs"]
mod best;
#[path = "../examples/replay/csv.rs"]
mod csv;
#[path = "../examples/replay/format.rs"]
mod format;
#[path = "../examples/replay/heap.rs"]
mod heap;
#[path = "../examples/replay/input.rs"]
mod input;
#[path = "../examples/replay/lru.rs"]
mod lru;
#[path = "../examples/replay/policy.rs"]
mod policy;
#[path = "../examples/replay/read.rs"]
mod read;
#[path = "../examples/replay/report.rs"]
mod report;
#[path = "../examples/replay/trace.rs"]
mod trace;
#[path = "../examples/replay/zstd.rs"]
mod zstd;

#[path = "replay/failures.rs"]
mod failures;
#[path = "replay/formats.rs"]
mod formats;
#[path = "replay/policies.rs"]
mod policies;
#[path = "replay/whole.rs"]
mod whole;

use std::ffi::OsString;
use std::path::PathBuf;

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use self::trace::{Builder, Trace};

/// What a run of the example left behind.
struct Ran {
    code: u8,
    out: String,
    err: String,
}

/// Runs the example with these arguments and this standard input.
fn run(args: &[&str], stdin: &[u8]) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = app::run(args.iter().map(OsString::from), stdin, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("it writes text");
    Ran { code, out: text(out), err: text(err) }
}

/// A file that no other test uses.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("replay");
    std::fs::create_dir_all(&folder).expect("a folder for the test's files");
    let path = folder.join(name);
    std::fs::write(&path, content).expect("the test's file");
    path
}

fn compressed(content: &[u8]) -> Vec<u8> {
    compress_to_vec(content, CompressionLevel::Fastest)
}

fn trace(keys: impl IntoIterator<Item = u64>) -> Trace {
    let mut trace = Builder::new();
    keys.into_iter().for_each(|key| trace.push(&key, None).unwrap());
    trace.finish().unwrap()
}

fn sized(requests: impl IntoIterator<Item = (u64, u64)>) -> Trace {
    let mut trace = Builder::new();
    requests.into_iter().for_each(|(key, size)| trace.push(&key, Some(size)).unwrap());
    trace.finish().unwrap()
}
