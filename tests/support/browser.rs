//! A browser without a window, where there is one.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Until it is killed.
const DEADLINE: Duration = Duration::from_secs(90);

pub(crate) struct Browser {
    program: PathBuf,
}

/// What a page came to.
pub(crate) struct Visit {
    /// The document in the end.
    pub(crate) dom: String,
    /// What it told the console, and errors of its resources.
    pub(crate) console: Vec<String>,
}

impl Browser {
    /// Chromium in one of its guises: `$CHROMIUM`, or on the path.
    pub(crate) fn find() -> Option<Self> {
        let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
        let folders = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&folders)
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .filter(|program| program.is_file());
        // Some systems have a stand-in that only says how to install it.
        let runs = |program: &PathBuf| {
            let version = Command::new(program).arg("--version").output();
            version.is_ok_and(|output| output.status.success())
        };
        let program =
            env::var_os("CHROMIUM").map(PathBuf::from).into_iter().chain(on_path).find(runs)?;
        Some(Self { program })
    }

    /// Opens a file; `profile` is an empty folder for the browser's own files.
    pub(crate) fn visit(&self, page: &Path, profile: &Path, dark: bool) -> Visit {
        let mut command = Command::new(&self.program);
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--enable-logging=stderr", "--dump-dom"])
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(page);
        let output = finish(command);
        let log = String::from_utf8_lossy(&output.stderr);
        Visit {
            dom: String::from_utf8_lossy(&output.stdout).into_owned(),
            console: log
                .lines()
                .filter(|line| line.contains(":CONSOLE"))
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// Waits for a process no longer than `DEADLINE`.
fn finish(mut command: Command) -> Output {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the browser starts");
    let id = child.id();
    let (ended, end) = channel();
    let waiter = thread::spawn(move || {
        let output = child.wait_with_output();
        // Whoever waited may have given up.
        let _ = ended.send(());
        output
    });
    let in_time = end.recv_timeout(DEADLINE).is_ok();
    if !in_time {
        kill(id);
    }
    let output = waiter.join().expect("no panic").expect("the browser's output");
    assert!(in_time, "the browser took longer than {DEADLINE:?}");
    output
}

/// With all its children.
fn kill(id: u32) {
    let (program, arguments) = match cfg!(windows) {
        true => ("taskkill", ["/T", "/F", "/PID"].to_vec()),
        false => ("kill", vec!["-KILL", "--"]),
    };
    let whom = if cfg!(windows) { id.to_string() } else { format!("-{id}") };
    let killed = Command::new(program).args(arguments).arg(whom).status();
    assert!(killed.is_ok_and(|status| status.success()), "the browser cannot be killed");
}
