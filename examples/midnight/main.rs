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
mod record;
mod report;
mod settings;
mod sizes;
mod table;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use crate::options::{Options, USAGE};
use crate::progress::Progress;
use crate::record::Drill;
use crate::sizes::Sizes;

fn main() -> ExitCode {
    let options = match Options::parse(env::args().skip(1)) {
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
    // Not only when the drill is over.
    for file in options.report.iter().chain(&options.picture) {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("{} is no folder", folder.display()).into());
        }
    }
    let sizes = sizes(options.quick).await?;
    let mut drill = Drill { scale: in_words(&sizes), runs: Vec::new() };
    eprintln!("{}, all guards let {} through", drill.scale, sizes::max_in_flight(sizes.limit));
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
    if !options.json {
        progress.print(table::LEGEND)?;
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
    // In one line, also of the picture.
    format!(
        "{cores} core{plural}; {:.0} requests a second, {} connections; {} hot articles; \
         the origin bears {} calls of {} ms",
        sizes.rate,
        sizes.connections,
        sizes.hot,
        sizes.limit,
        sizes::SERVICE.as_millis()
    )
}

fn write_reports(drill: &Drill, options: &Options) -> Result<(), Box<dyn Error>> {
    let report = options.report.clone().unwrap_or_else(|| built().join("midnight.html"));
    let picture = options.picture.as_ref().map(|file| (file, report::picture(drill)));
    for (file, text) in [(&report, report::html(drill))].into_iter().chain(picture) {
        fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        eprintln!("written: {}", file.display());
    }
    Ok(())
}

/// The folder of what cargo builds, if this program is in it; else the current one.
fn built() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    let mut folders = program.ancestors().skip(1);
    let is_example = folders.next().is_some_and(|folder| folder.ends_with("examples"));
    let folder = if is_example { folders.nth(1) } else { None };
    folder.map_or_else(PathBuf::new, Path::to_owned)
}
