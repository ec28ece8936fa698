//! The midnight drill: what a cache and its guards do for the origin behind them, on real traffic.
//!
//! `cargo run --release --example midnight`, and `-- --help` for more.

#![allow(unreachable_pub, reason = "nothing is reached from outside a program")]

mod acts;
mod clients;
mod drill;
mod edge;
mod files;
mod http;
mod measure;
mod options;
mod origin;
mod progress;
#[expect(dead_code, reason = "the report is not there yet")]
mod record;
mod settings;
mod sizes;
mod table;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::process::ExitCode;

use crate::options::{Options, USAGE};
use crate::progress::Progress;
use crate::record::Drill;
use crate::sizes::Sizes;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("midnight: {wrong}; see --help");
            return ExitCode::from(2);
        }
    };
    if options.help {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("midnight: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let sizes = sizes(options.quick).await?;
    let mut drill = Drill { scale: in_words(&sizes), runs: Vec::new() };
    eprintln!("{}", drill.scale);
    let progress = Progress::new(options, &sizes);
    for act in &options.acts {
        let begin = drill.runs.len();
        for setting in &options.settings {
            let tick = progress.begin(*act, *setting, &sizes);
            drill.runs.push(drill::run(*act, *setting, &sizes, tick).await?);
            if let (true, Some(run)) = (options.json, drill.runs.last()) {
                progress.print(&table::json(run))?;
            }
        }
        if !options.json {
            progress.print(&table::block(&drill.runs[begin..])?)?;
        }
    }
    progress.end();
    write_reports(&drill, options)
}

async fn sizes(quick: bool) -> Result<Sizes, Box<dyn Error>> {
    const LEAST: f64 = 2_000.0;
    let files = files::raise_limit();
    if quick {
        return Ok(Sizes::new(1_000.0, files, 0.4));
    }
    let most = drill::calibrate(&Sizes::new(LEAST, files, 1.0)).await?;
    // Leaves most of the machine idle while all is well: when it is not, clients try again, and connections
    // are made anew.
    let rate = (most * 0.1).min(2_000.0 * cores() as f64).clamp(LEAST, 10_000.0);
    Ok(Sizes::new(rate, files, 1.0))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn in_words(sizes: &Sizes) -> String {
    let cores = cores();
    let plural = if cores == 1 { "" } else { "s" };
    format!(
        "{cores} core{plural}; {:.0} requests a second over up to {} connections; {} hot articles; an origin \
         that bears {} calls at once of {} ms each",
        sizes.rate,
        sizes.connections,
        sizes.hot,
        sizes.limit,
        sizes::SERVICE.as_millis()
    )
}

/// Writes what was asked for beside the table.
fn write_reports(_drill: &Drill, options: &Options) -> Result<(), Box<dyn Error>> {
    match options.report.as_ref().or(options.picture.as_ref()) {
        Some(file) => {
            Err(format!("{} is not written: there are no reports yet", file.display()).into())
        }
        None => Ok(()),
    }
}
