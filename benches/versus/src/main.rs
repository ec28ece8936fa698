//! Seawall beside the other in-process caches of Rust. See README.md.

mod args;
mod bloom;
mod bytes;
mod deal;
mod heap;
mod latency;
mod memory;
mod report;
mod stampede;
mod subjects;
mod throughput;
mod traces;
mod zipf;

use args::Args;
use report::Report;
use std::process::ExitCode;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

fn main() -> ExitCode {
    let args = match Args::parse() {
        Ok(args) => args,
        Err(error) => return wrong_usage(&error.to_string()),
    };
    let mut report = Report::new(args.json);
    // A further bench is a module with a `run` like these, and a line here and in the usage.
    let result = match args.bench.as_str() {
        "throughput" => throughput::run(&args, &mut report).map_err(Into::into),
        "traces" => traces::run(&args, &mut report),
        "bytes" => bytes::run(&args, &mut report),
        "memory" => memory::run(&args, &mut report),
        "latency" => latency::run(&args, &mut report).map_err(Into::into),
        "bloom" => bloom::run(&args, &mut report).map_err(Into::into),
        "stampede" => stampede::run(&args, &mut report).map_err(Into::into),
        "" => return wrong_usage("which bench?"),
        other => return wrong_usage(&format!("unknown bench {other:?}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("versus: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wrong_usage(message: &str) -> ExitCode {
    eprintln!("versus: {message}\n\n{}", args::USAGE);
    ExitCode::from(2)
}
