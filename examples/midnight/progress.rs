//! Progress bars, on standard error if that is a terminal.

use std::io::{self, Write};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::options::Options;
use crate::record::{Act, Setting};
use crate::sizes::{SLICE, Sizes};

pub struct Progress {
    bars: MultiProgress,
    drill: ProgressBar,
    run: ProgressBar,
}

impl Progress {
    pub fn new(options: &Options, sizes: &Sizes) -> Self {
        let lengths: u64 = options.acts.iter().map(|act| slices(*act, sizes)).sum();
        let bars = MultiProgress::new();
        let drill = bars.add(ProgressBar::new(lengths * options.settings.len() as u64));
        let run = bars.add(ProgressBar::new(0));
        for bar in [&drill, &run] {
            let style = ProgressStyle::with_template("{msg:28} {bar:50} {elapsed}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        drill.set_message("midnight drill");
        Progress { bars, drill, run }
    }

    /// Shows another run; returns what to call for each slice of its time.
    pub fn begin(&self, act: Act, setting: Setting, sizes: &Sizes) -> impl Fn() + Send + 'static {
        self.run.reset();
        self.run.set_length(slices(act, sizes));
        self.run.set_message(format!("{}, {}", act.name(), setting.name()));
        let bars = [self.drill.clone(), self.run.clone()];
        move || bars.iter().for_each(|bar| bar.inc(1))
    }

    /// Prints to standard output, above the bars.
    pub fn print(&self, text: &str) -> io::Result<()> {
        self.bars.suspend(|| writeln!(io::stdout(), "{text}"))
    }

    pub fn end(&self) {
        self.run.finish_and_clear();
        self.drill.finish_and_clear();
    }
}

fn slices(act: Act, sizes: &Sizes) -> u64 {
    (act.length(sizes).as_nanos() / SLICE.as_nanos()) as u64
}
