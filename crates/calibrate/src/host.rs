//! What the process and the machine say of themselves.

use std::process::Command;

/// The most memory that was resident since the last `forget_peak` (bytes); none where the system
/// does not say.
pub fn peak_memory() -> Option<u64> {
    peak_memory_of("self")
}

/// The same of a process by its number, while it runs.
pub fn peak_memory_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Starts to measure the most resident memory anew, where the system can.
pub fn forget_peak() {
    // Where it cannot the peak is that of the whole process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// How long this thread has been on a processor (seconds): what other programs take is not in it.
/// None where the system does not say.
pub fn on_processor() -> Option<f64> {
    const NANOSECONDS: f64 = 1e9;
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / NANOSECONDS)
}

/// What the system's processors have done since it started (ticks).
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    /// All that there were.
    all: f64,
    /// Those that no program had.
    idle: f64,
    /// Those of this process.
    own: f64,
}

impl Ticks {
    /// Until now; none where the system does not say.
    pub fn now() -> Option<Self> {
        let system = std::fs::read_to_string("/proc/stat").ok()?;
        let process = std::fs::read_to_string("/proc/self/stat").ok()?;
        Self::read(&system, &process)
    }

    /// As `/proc/stat` and `/proc/self/stat` say it.
    fn read(system: &str, process: &str) -> Option<Self> {
        /// User, nice, system, idle, waiting, two kinds of interrupts, stolen: guests are in the first.
        const KINDS: usize = 8;
        let line = system.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<f64> =
            line.split_whitespace().take(KINDS).map(|it| it.parse().ok()).collect::<Option<_>>()?;
        // The name, which may hold anything, ends at the last bracket.
        let mut fields = process.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut next = || fields.next()?.parse::<f64>().ok();
        Some(Self { all: ticks.iter().sum(), idle: ticks.get(3)? + ticks.get(4)?, own: next()? + next()? })
    }

    /// The part of the processors that other programs have had since then.
    pub fn others_since(self, before: Self) -> f64 {
        let all = self.all - before.all;
        let busy = all - (self.idle - before.idle) - (self.own - before.own);
        if all > 0.0 { (busy / all).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Today, as the system says it.
pub fn date() -> String {
    said("date", &["-u", "+%F"])
}

/// The commit of the folder that the process is in.
pub fn commit() -> String {
    said("git", &["rev-parse", "--short", "HEAD"])
}

/// The processor and how many threads it runs at once.
pub fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|it| it.trim() == name));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim())
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{}, family {} model {}, {threads} threads",
        field("model name"),
        field("cpu family"),
        field("model")
    )
}

/// The version of NVIDIA's driver, as its module of the kernel says it.
pub fn gpu_driver() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    gpu_driver_in(&text).unwrap_or("unknown").to_owned()
}

/// The version in the module's text: the first word of numbers and points.
fn gpu_driver_in(text: &str) -> Option<&str> {
    let is_version = |word: &&str| word.chars().all(|it| it.is_ascii_digit() || it == '.');
    text.lines().next()?.split_whitespace().find(is_version)
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests;
