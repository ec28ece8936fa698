//! Replays an access trace: hit ratios of seawall beside LRU and the best possible.
//!
//! Usage: `cargo run --release --example replay -- FILE [--capacity N]...`; `--help` says more.

mod app;
mod args;
mod best;
mod csv;
mod format;
mod heap;
mod input;
mod lru;
mod policy;
mod read;
mod report;
mod trace;
mod zstd;

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1);
    ExitCode::from(app::run(args, io::stdin(), &mut io::stdout(), &mut io::stderr()))
}
