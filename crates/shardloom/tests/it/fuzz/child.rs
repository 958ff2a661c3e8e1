//! The program as a child with little memory and time.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a child may have, as `ulimit` takes it: address space (kibibytes), time of a processor (seconds),
/// size of a file (512 bytes), and no file of what was in memory.
const LIMITS: &str = "ulimit -v 6000000; ulimit -t 40; ulimit -f 400000; ulimit -c 0; exec \"$0\" \"$@\"";

/// A child that computes nothing for so long waits for something.
const LONGEST: Duration = Duration::from_secs(150);

/// How a child has ended.
pub(in super::super) struct Ended {
    /// Its exit code, or what has ended it.
    pub(in super::super) code: Result<i32, String>,
    /// What it said of errors.
    pub(in super::super) said: String,
}

/// An empty folder in which a child runs: what a changed argument names, `../x` too, is neither of the
/// repository nor of another trial.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("shardloom-child-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("inner")).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Runs the program.
pub(in super::super) fn run(arguments: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", LIMITS, env!("CARGO_BIN_EXE_shardloom")]).args(arguments);
    let place = Place::new();
    command.current_dir(place.0.join("inner"));
    // Prices are those that are the same on all hosts.
    command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut from = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        from.read_to_end(&mut said).unwrap();
        String::from_utf8_lossy(&said).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > LONGEST {
            child.kill().unwrap();
            child.wait().unwrap();
            return Ended { code: Err("it hangs".to_owned()), said: reader.join().unwrap() };
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let signal = || format!("signal {}", status.signal().unwrap_or_default());
    Ended { code: status.code().ok_or_else(signal), said: reader.join().unwrap() }
}

impl Ended {
    /// Whether it has done what was asked; says so if it has neither, nor said in one message why not.
    pub(in super::super) fn verdict(&self) -> Result<bool, String> {
        let errors = self.said.lines().filter(|line| line.starts_with("error: ")).count();
        match &self.code {
            Ok(0) => Ok(true),
            Ok(1 | 2 | 7) if errors == 1 && self.said.len() < MOST_SAID => Ok(false),
            code => {
                let said: String = self.said.chars().take(600).collect();
                Err(format!("ended with {code:?}, {errors} messages of {} bytes: {said}", self.said.len()))
            }
        }
    }
}

/// How long messages may be (bytes): a person reads them.
const MOST_SAID: usize = 20_000;
