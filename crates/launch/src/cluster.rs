//! Processes that a launcher has started, one for each rank.

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use files::Failure;
pub use files::model_file::Facts;
use files::{readable, written};
use run::{Ended, JoinError, Joining, Processes};

use crate::arguments::{ClusterArguments, Way};
use crate::contract::{self, Launched, Variable};
use crate::{leash, token};

/// How long a rank waits for another one if nothing else is said (seconds).
const WAIT_LIMIT: u64 = 3600;
/// How long a rank may give no sign of life (seconds).
const LOST_AFTER: f64 = 30.0;
/// How long ranks wait until all are there (seconds).
const JOIN_LIMIT: f64 = 120.0;
/// How long connecting their GPUs may take, once all are ready (seconds).
const CONNECT_LIMIT: f64 = 60.0;

impl Launched {
    /// Joins the other processes; or why not, and whether this one says so. What a process did last is
    /// written to a folder, where there is one.
    pub fn join(
        &self,
        arguments: &ClusterArguments,
        flight: Option<&Path>,
        variable: Variable<'_>,
    ) -> Result<Cluster, (Failure, bool)> {
        let limit = Duration::from_secs(arguments.wait_limit.unwrap_or(WAIT_LIMIT));
        let flight = arguments.flight.clone().or_else(|| flight.map(|it| it.join("flight")));
        let ended = ended(self.rank, flight);
        if variable(contract::LEASH).is_some() {
            leash::hold().map_err(|error| {
                (Failure::Join(format!("rank {}: no thread can be started: {error}", self.rank)), true)
            })?;
        }
        let way = arguments.transport.unwrap_or(Way::Auto);
        let is_mpi = way == Way::Mpi || way == Way::Auto && self.is_mpi();
        let joined = if is_mpi && (way == Way::Mpi || cfg!(feature = "mpi")) {
            Processes::through_mpi(limit, ended)
        } else {
            Processes::over_tcp(&self.joining(arguments, variable).map_err(|it| (it, true))?, limit, ended)
        };
        let joined = joined.map_err(|error| match error {
            JoinError::Absent => {
                let hint = "leave `--transport mpi` out, or install one and build with `cargo build --release -p \
                            shardloom --features mpi`";
                (Failure::Input(format!("{error}: {hint}")), self.rank == 0)
            }
            JoinError::Started => (Failure::internal("mpi", error), self.rank == 0),
            JoinError::Told(words) => (Failure::Join(words), false),
            // Where ranks do not find each other, each has a story of its own.
            other => (Failure::Join(other.to_string()), true),
        })?;
        let connecting = Duration::from_secs_f64(arguments.join_limit.unwrap_or(CONNECT_LIMIT));
        let (processes, started) = (Rc::new(joined), Cell::new(false));
        Ok(Cluster { processes, local: self.local, launcher: self.launcher, connecting, started })
    }

    /// As whom this process joins the others over TCP.
    fn joining(&self, arguments: &ClusterArguments, variable: Variable<'_>) -> Result<Joining, Failure> {
        let Some((said, port)) = self.place.clone() else {
            return Err(Failure::Input(format!(
                "{} has started {} processes and does not say where rank 0 is: set `{}` and `{}`, or build with \
                 `cargo build --release -p shardloom --features mpi`",
                self.launcher,
                self.size,
                contract::ADDRESS,
                contract::PORT
            )));
        };
        let interface = arguments.interface;
        // No other host has to reach ranks that are all on this one.
        let address =
            if self.is_one_host && interface.is_none() { contract::LOOPBACK.to_owned() } else { said };
        let token = token::token(self, variable)?;
        let is_here = token::is_loopback(&address) && interface.is_none_or(|it| it.address.is_loopback());
        if !token.is_secret && !is_here {
            return Err(Failure::Input(format!(
                "`{}` is not set, and ranks meet at {address}:{port}, where other hosts may reach them: make a \
                 token for this job, such as by `openssl rand -hex 32`, and hand the same one to all of its ranks",
                contract::TOKEN
            )));
        }
        let seconds = |given: Option<f64>, else_: f64| Duration::from_secs_f64(given.unwrap_or(else_));
        let alike = [
            ("the version", env!("CARGO_PKG_VERSION").to_owned()),
            ("the number of starts of this job", self.attempt.to_string()),
        ];
        Ok(Joining {
            rank: self.rank,
            size: self.size,
            host: host(variable),
            address,
            port,
            interface,
            key: token.key,
            alike: alike.into_iter().map(|(name, text)| (name.to_owned(), text)).collect(),
            limit: seconds(arguments.join_limit, JOIN_LIMIT),
            silence: seconds(arguments.lost_after, LOST_AFTER),
        })
    }
}

/// The name of this host.
fn host(variable: Variable<'_>) -> String {
    let name = readable::text(Path::new("/proc/sys/kernel/hostname")).ok().or_else(|| variable("HOSTNAME"));
    name.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

/// Says why all ranks end, where this one is to say it, and writes what it did last.
fn ended(rank: u64, flight: Option<PathBuf>) -> Ended {
    Box::new(move |words, record, _| {
        let written = flight.as_deref().map(|folder| {
            let path = folder.join(format!("rank-{rank}.txt"));
            fs::create_dir_all(folder).is_ok() && written::write(&path, record.as_bytes()).is_ok()
        });
        // When the launcher ends all, nobody is to blame.
        let Some(words) = words.filter(|_| !leash::is_pulled()) else { return };
        let record = match (&flight, written) {
            (Some(folder), Some(true)) => format!("; what each rank did last is in {}", folder.display()),
            _ => String::new(),
        };
        // Where nobody reads, the exit code still says it.
        let _ = writeln!(io::stderr(), "error: {words}{record}");
    })
}

/// The processes of all ranks.
pub struct Cluster {
    /// How they reach each other.
    pub processes: Rc<Processes>,
    /// Which one this is of those on its host, if the launcher says it.
    local: Option<u64>,
    launcher: &'static str,
    /// How long connecting the GPUs of all ranks may take.
    pub connecting: Duration,
    /// Whether they have agreed on what to do: before that, all end alike.
    started: Cell<bool>,
}

/// Facts with names that are always the same.
pub fn facts<const N: usize>(all: [(&str, String); N]) -> Facts {
    all.map(|(name, text)| (name.to_owned(), text)).into()
}

/// What a process says before anything starts: how many ranks its plan has, if ranks are to start, and
/// the facts; or why it cannot start.
type Said = Result<(Option<u64>, Facts), (u8, String)>;

impl Cluster {
    /// Which of so many GPUs is this process's: where it sees several, that of its number on its host.
    pub fn gpu(&self, count: usize) -> Result<usize, String> {
        if count == 1 {
            return Ok(0);
        }
        let Some(local) = self.local else {
            return Err(format!(
                "{} does not say which rank of its host this is, and it sees {count} GPUs: let each rank see \
                 its own (`CUDA_VISIBLE_DEVICES`)",
                self.launcher
            ));
        };
        let number = usize::try_from(local).ok().filter(|it| *it < count);
        number.ok_or_else(|| {
            format!("this is rank {local} of its host, counted from 0, which has {count} GPUs: start one rank for each")
        })
    }

    /// On which node each rank is, as ranks tell it: one that is on another host than the one before it, or
    /// whose number there is not larger, is the first one of a node. All processes call this.
    pub fn nodes(&self) -> Result<Vec<u64>, Failure> {
        let internal = |error: serde_json::Error| Failure::internal("cluster", error);
        let own = (host(&|name| std::env::var(name).ok()), self.local);
        let said = self.processes.said(&serde_json::to_vec(&own).map_err(internal)?);
        let said = said.iter().map(|bytes| serde_json::from_slice(bytes));
        Ok(nodes(&said.collect::<Result<Vec<_>, _>>().map_err(internal)?))
    }

    /// Refuses to start where a process cannot, where the plan is for another number of ranks, or
    /// where processes are about to do different things. All processes get the same answer.
    pub fn agree<T>(
        &self,
        ready: Result<T, Failure>,
        facts: impl Fn(&T) -> (Option<u64>, Facts),
    ) -> Result<T, Failure> {
        let own: Said = match &ready {
            Ok(it) => Ok(facts(it)),
            Err(failure) => Err((failure.code(), failure.to_string())),
        };
        let internal = |error: serde_json::Error| Failure::internal("cluster", error);
        let said = self.processes.said(&serde_json::to_vec(&own).map_err(internal)?);
        let said = said.iter().map(|bytes| serde_json::from_slice::<Said>(bytes));
        let said = said.collect::<Result<Vec<_>, _>>().map_err(internal)?;
        if let Some(failure) = disagreement(&said) {
            return Err(failure);
        }
        self.started.set(true);
        ready
    }

    /// Ends all processes for the failure of this one, and says why. Where none has started, all know
    /// of it: the first one says it, and each ends by itself.
    pub fn failed(&self, failure: &Failure, say: &mut dyn FnMut(&str)) {
        let rank = self.processes.rank();
        if self.started.get() {
            let words = if rank == 0 { failure.to_string() } else { format!("rank {rank}: {failure}") };
            self.processes.end(failure.code(), &words);
        }
        if rank == 0 {
            say(&failure.to_string());
        }
    }
}

/// The number of the node of each rank, by the name of its host and its number there.
fn nodes(said: &[(String, Option<u64>)]) -> Vec<u64> {
    let mut node = 0;
    let mut nodes = Vec::with_capacity(said.len());
    for (rank, (host, local)) in said.iter().enumerate() {
        let last = rank.checked_sub(1).and_then(|it| said.get(it));
        let begins = last.is_some_and(|(other, number)| other != host || local.is_some() && local <= number);
        node += u64::from(begins);
        nodes.push(node);
    }
    nodes
}

/// Why processes cannot start together, if they cannot.
fn disagreement(said: &[Said]) -> Option<Failure> {
    let mut first: Option<&Facts> = None;
    for (rank, said) in said.iter().enumerate() {
        match said {
            Err((code, message)) => return Some(failure(*code, rank, message)),
            Ok((_, facts)) => {
                let first = first.get_or_insert(facts);
                if !first.iter().map(|(name, _)| name).eq(facts.iter().map(|(name, _)| name)) {
                    return Some(Failure::Input(format!(
                        "ranks 0 and {rank} are to do different things: all have to be started alike"
                    )));
                }
                let differs = first.iter().zip(facts).find(|(ours, theirs)| ours != theirs);
                if let Some(((name, ours), (_, theirs))) = differs {
                    return Some(Failure::Input(format!(
                        "ranks 0 and {rank} differ in {name}: {ours} and {theirs}; all have to be \
                         started alike"
                    )));
                }
            }
        }
    }
    let ranks = said.first().and_then(|it| it.as_ref().ok()).and_then(|it| it.0)?;
    let found = said.len();
    (u64::try_from(found) != Ok(ranks)).then(|| {
        Failure::Input(format!(
            "the plan is for {ranks} ranks, but {found} processes have been started: start {ranks}, or plan \
             again"
        ))
    })
}

fn failure(code: u8, rank: usize, message: &impl fmt::Display) -> Failure {
    let message = if rank == 0 { message.to_string() } else { format!("rank {rank}: {message}") };
    Failure::of_code(code, message)
}

#[cfg(test)]
mod tests;
