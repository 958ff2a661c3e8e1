//! Programs that measure beside this one, for so long at most.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use calibrate::host;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, unregister};

/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What a program was ended with, and what it said.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) out: String,
    pub(super) err: String,
    /// The most memory of it that was seen to be resident (bytes); none where the system does not say.
    pub(super) memory: Option<u64>,
}

impl Ended {
    /// The last line that it said, as why it failed.
    pub(super) fn why(&self) -> String {
        let last = |text: &str| text.trim().lines().last().map(str::to_owned);
        let said = last(&self.err).or_else(|| last(&self.out));
        said.unwrap_or_else(|| format!("it ended with {}", self.status))
    }
}

/// Runs a program to its end; why there is none where it cannot be started, or takes longer than the limit: then
/// it is ended, with all that it started. So it is when this process is told to end.
pub(super) fn run(command: &mut Command, limit: Duration) -> Result<Ended, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let interrupted = Interrupted::new();
    let child = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().map_err(|error| format!("`{program}` cannot be started: {error}"))?;
    let mut read = || -> std::io::Result<_> {
        Ok([child.stdout.take().map(read).transpose()?, child.stderr.take().map(read).transpose()?])
    };
    let reads = read().map_err(|error| {
        end(&mut child);
        format!("no thread can be started that reads what `{program}` says: {error}")
    })?;
    let mut memory = None;
    let status = waited(&mut child, limit, &interrupted, &mut memory);
    if !matches!(status, Ok(Some(_))) {
        end(&mut child);
    }
    let [out, err] = reads.map(|it| it.and_then(|it| it.join().ok()).unwrap_or_default());
    match status.map_err(|error| format!("`{program}` cannot be waited for: {error}"))? {
        Some(status) => Ok(Ended { status, out, err, memory }),
        None => Err(format!("`{program}` was not over after {} s", limit.as_secs())),
    }
}

/// The exit status of a program; none if it was not over in time.
fn waited(
    child: &mut Child,
    limit: Duration,
    interrupted: &Interrupted,
    memory: &mut Option<u64>,
) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        *memory = host::peak_memory_of(&child.id().to_string()).max(*memory);
        if start.elapsed() > limit {
            return Ok(None);
        }
        if let Some(signal) = interrupted.signal() {
            end(child);
            // As if this process had waited for nothing.
            let _ = emulate_default_handler(signal);
        }
        thread::sleep(LOOK);
    }
}

/// Ends a program and all that it started: they are one group of processes.
fn end(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("sh").args(["-c", "kill -9 \"$0\"", &group]).stderr(Stdio::null()).status();
    // Where there is no shell, at least itself.
    let _ = child.kill();
    let _ = child.wait();
}

fn read(mut from: impl Read + Send + 'static) -> std::io::Result<JoinHandle<String>> {
    thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        // What was said until then is what there is.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Signals that end a process, noticed instead while this is there.
struct Interrupted {
    told: Vec<(i32, Arc<AtomicBool>, signal_hook::SigId)>,
    /// Whether they do again what they do by default: a handler that is there once stays.
    over: Arc<AtomicBool>,
}

impl Interrupted {
    fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut told = Vec::new();
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let flag = Arc::new(AtomicBool::new(false));
            // Where they cannot be noticed they end this process, as ever.
            let _ = flag::register_conditional_default(signal, Arc::clone(&over));
            if let Ok(id) = flag::register(signal, Arc::clone(&flag)) {
                told.push((signal, flag, id));
            }
        }
        Self { told, over }
    }

    fn signal(&self) -> Option<i32> {
        self.told.iter().find(|it| it.1.load(Ordering::Relaxed)).map(|it| it.0)
    }
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for (_, _, id) in &self.told {
            unregister(*id);
        }
    }
}

#[cfg(test)]
mod tests;
