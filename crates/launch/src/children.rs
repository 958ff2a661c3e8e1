//! Processes that were started, until all have ended.

use std::io::{BufRead, BufReader, Write, stderr};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use files::Failure;

/// How often it is looked who has ended.
const LOOK: Duration = Duration::from_millis(10);
/// How long ranks have to end by themselves when one has failed: they say why. What they do with their
/// GPUs before is over by then, and so is what they do besides.
const BY_THEMSELVES: Duration = device::ENDING.saturating_add(Duration::from_secs(2));
/// How long they have when they are told to.
const WHEN_TOLD: Duration = Duration::from_secs(3);

/// The processes. None is left when this goes away.
#[derive(Default)]
pub(crate) struct Children {
    all: Vec<Rank>,
    /// What passes on what they say.
    said: Vec<JoinHandle<()>>,
}

struct Rank {
    rank: u64,
    child: Child,
    ended: Option<ExitStatus>,
}

/// How all have ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// All have done what they were started for.
    Done,
    /// This process was told to end, by a signal.
    Told(usize),
    /// One has failed: with what exit code, in words.
    Failed(u8, String),
}

impl Children {
    /// Starts a rank.
    pub(crate) fn start(&mut self, rank: u64, mut command: Command) -> Result<(), Failure> {
        // What a terminal sends to end all goes to this process, which ends the others in order.
        let child = command.process_group(0).spawn();
        let mut child =
            child.map_err(|error| Failure::Input(format!("rank {rank} cannot be started: {error}")))?;
        let says = child.stderr.take();
        self.all.push(Rank { rank, child, ended: None });
        if let Some(from) = says {
            let passes = thread::Builder::new().spawn(move || pass_on(rank, from));
            let passes = passes.map_err(|error| {
                Failure::Input(format!(
                    "what rank {rank} says cannot be passed on: no thread can be started: {error}"
                ))
            })?;
            self.said.push(passes);
        }
        Ok(())
    }

    /// Waits until all have ended; ends them when one fails or this process is told to end.
    pub(crate) fn ended(mut self, told: &dyn Fn() -> Option<usize>) -> How {
        let how = loop {
            if let Some(signal) = told() {
                break How::Told(signal);
            }
            self.look();
            if let Some(how) = self.failed() {
                self.wait(BY_THEMSELVES, told);
                // The one that was the reason may have been seen last.
                break told().map_or(self.failed().unwrap_or(how), How::Told);
            }
            if self.all.iter().all(|it| it.ended.is_some()) {
                break How::Done;
            }
            thread::sleep(LOOK);
        };
        self.end();
        let said = std::mem::take(&mut self.said);
        // A process that was left behind would keep it open: there is none.
        said.into_iter().for_each(|it| drop(it.join()));
        how
    }

    /// Looks who has ended.
    fn look(&mut self) {
        for rank in self.all.iter_mut().filter(|it| it.ended.is_none()) {
            rank.ended = rank.child.try_wait().ok().flatten();
        }
    }

    /// Of those that have ended in another way than they should the most telling one: one that a signal
    /// has ended, or else the first.
    fn failed(&self) -> Option<How> {
        let failed = self.all.iter().filter_map(|it| Some((it.rank, it.ended.filter(|it| !it.success())?)));
        let (rank, status) = failed.min_by_key(|(_, status)| status.signal().is_none())?;
        Some(match (status.signal(), status.code().and_then(|it| u8::try_from(it).ok())) {
            (Some(signal), _) => How::Failed(run::LOST, format!("rank {rank} was ended by signal {signal}")),
            (None, Some(code)) => How::Failed(code, format!("ranks have ended with exit code {code}")),
            (None, None) => How::Failed(run::LOST, format!("rank {rank} has ended")),
        })
    }

    /// Waits until all have ended, for so long, or until this process is told to end.
    fn wait(&mut self, limit: Duration, told: &dyn Fn() -> Option<usize>) {
        let deadline = Instant::now() + limit;
        loop {
            self.look();
            let all = self.all.iter().all(|it| it.ended.is_some());
            if all || told().is_some() || Instant::now() > deadline {
                return;
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends those that are left: they are told to, and then made to.
    fn end(&mut self) {
        for rank in &mut self.all {
            drop(rank.child.stdin.take());
        }
        self.wait(WHEN_TOLD, &|| None);
        for rank in self.all.iter_mut().filter(|it| it.ended.is_none()) {
            // One that has ended in between is no failure.
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

/// Passes on what a rank says, with its number before each line.
fn pass_on(rank: u64, from: ChildStderr) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        let mut whole = format!("[{rank}] ").into_bytes();
        whole.append(&mut line);
        // In one piece, so that lines of ranks do not mix; where nobody reads, ranks still have to.
        let _ = stderr().write_all(&whole);
    }
}
