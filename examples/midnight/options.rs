//! The command line.

use std::path::PathBuf;

use crate::record::{Act, Setting};

pub const USAGE: &str = "\
Drills a cache on real traffic: clients, an edge and its origin, on loopback.

usage: cargo run --release --example midnight -- [OPTIONS]

  --acts a,b       of steady, midnight, outage, flood, loss, hang-up (default: all)
  --settings x,y   of none, coalescing, coalescing+stale, all, moka (default: all)
  --quick          short acts with few requests, to see that it works
  --json           an object a line on standard output instead of the table
  --report FILE    where to write the report (default: midnight.html, among what cargo builds)
  --picture FILE   also write a picture (SVG)
  --help           this text";

#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub acts: Vec<Act>,
    pub settings: Vec<Setting>,
    pub quick: bool,
    pub json: bool,
    pub report: Option<PathBuf>,
    pub picture: Option<PathBuf>,
    pub help: bool,
}

impl Options {
    /// Says what is wrong, if something is.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Options {
            acts: Act::ALL.to_vec(),
            settings: Setting::ALL.to_vec(),
            quick: false,
            json: false,
            report: None,
            picture: None,
            help: false,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let value = arguments.next().filter(|value| !value.is_empty());
                value.ok_or_else(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                "--acts" => options.acts = chosen("act", &value()?, &Act::ALL, Act::name)?,
                "--settings" => {
                    options.settings = chosen("setting", &value()?, &Setting::ALL, Setting::name)?;
                }
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--report" => options.report = Some(value()?.into()),
                "--picture" => options.picture = Some(value()?.into()),
                "--help" | "-h" => options.help = true,
                other => return Err(format!("unknown argument {other}")),
            }
        }
        Ok(options)
    }
}

/// Of all there are, those that are listed, in their own order.
fn chosen<T: Copy>(
    what: &str,
    list: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Vec<T>, String> {
    let wanted: Vec<&str> = list.split(',').collect();
    if let Some(unknown) = wanted.iter().find(|it| all.iter().all(|known| name(*known) != **it)) {
        let known: Vec<_> = all.iter().map(|known| name(*known)).collect();
        return Err(format!("unknown {what} {unknown:?}; there are {}", known.join(", ")));
    }
    Ok(all.iter().copied().filter(|it| wanted.contains(&name(*it))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_understood() {
        let options = parse("--acts loss,steady --settings moka --json --picture a.svg").unwrap();
        assert_eq!(options.acts, [Act::Steady, Act::Loss]);
        assert_eq!(options.settings, [Setting::Moka]);
        assert!(options.json && !options.quick);
        assert_eq!(options.picture, Some("a.svg".into()));
        assert_eq!(parse("").unwrap().settings, Setting::ALL);
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (line, named) in [
            ("--acts", "--acts"),
            ("--acts midnight,noon", "\"noon\""),
            ("--settings none,", "\"\""),
            ("--fast", "--fast"),
            ("report.html", "report.html"),
        ] {
            assert!(parse(line).unwrap_err().contains(named), "{line}");
        }
    }
}
