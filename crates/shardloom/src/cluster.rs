//! Processes that a launcher of MPI has started, one for each rank.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use run::{JoinError, Processes};

use crate::failure::Failure;

/// How long a rank waits for another one if nothing else is said (seconds).
const WAIT_LIMIT: u64 = 3600;

/// What ranks that are processes are told.
#[derive(Args, Clone, Debug)]
pub struct ClusterArguments {
    /// Under `mpirun`: end all ranks when one has waited so long for another; 3600 if not given
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    pub wait_limit: Option<u64>,
}

/// What a launcher says of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    /// Which one it is.
    pub(crate) rank: u64,
    /// How many there are.
    pub(crate) size: u64,
}

/// What launchers set: which process, how many. Open MPI; MPICH, Intel MPI and what speaks PMI.
const NAMES: [[&str; 2]; 2] = [["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"], ["PMI_RANK", "PMI_SIZE"]];

impl Launched {
    /// What the environment says, if a launcher has set it.
    pub(crate) fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.parse().ok();
        NAMES.iter().find_map(|[rank, size]| Some(Self { rank: number(rank)?, size: number(size)? }))
    }

    /// Joins the other processes.
    pub(crate) fn join(self, arguments: &ClusterArguments) -> Result<Cluster, Failure> {
        let limit = Duration::from_secs(arguments.wait_limit.unwrap_or(WAIT_LIMIT));
        let say = |words: &str| eprintln!("error: {words}");
        let joined = Processes::join(limit, Box::new(say)).map_err(|error| match error {
            JoinError::Absent => Failure::Input(format!(
                "a launcher has started {} processes, but {error}: install one and build with `cargo build \
                 --release -p shardloom --features mpi`",
                self.size
            )),
            JoinError::Started => Failure::internal("mpi", error),
        })?;
        Ok(Cluster { processes: Rc::new(joined), started: Cell::new(false) })
    }
}

/// The processes of all ranks.
pub(crate) struct Cluster {
    pub(crate) processes: Rc<Processes>,
    /// Whether they have agreed on what to do: before that, all end alike.
    started: Cell<bool>,
}

/// What has to be the same for all ranks: what it is, and its text.
pub(crate) type Facts = Vec<(&'static str, String)>;

/// What a process says before anything starts: how many ranks its plan has, if ranks are to start, and
/// the facts; or why it cannot start.
type Said = Result<(Option<u64>, Vec<(String, String)>), (u8, String)>;

impl Cluster {
    /// Refuses to start where a process cannot, where the plan is for another number of ranks, or
    /// where processes are about to do different things. All processes get the same answer.
    pub(crate) fn agree<T>(
        &self,
        ready: Result<T, Failure>,
        facts: impl Fn(&T) -> (Option<u64>, Facts),
    ) -> Result<T, Failure> {
        let own: Said = match &ready {
            Ok(it) => {
                let (ranks, facts) = facts(it);
                Ok((ranks, facts.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()))
            }
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
    pub(crate) fn failed(&self, failure: &Failure, say: &mut dyn FnMut(&str)) {
        let rank = self.processes.rank();
        if self.started.get() {
            say(&if rank == 0 { failure.to_string() } else { format!("rank {rank}: {failure}") });
            self.processes.end(failure.code());
        }
        if rank == 0 {
            say(&failure.to_string());
        }
    }
}

/// Why processes cannot start together, if they cannot.
fn disagreement(said: &[Said]) -> Option<Failure> {
    let mut first: Option<&Vec<(String, String)>> = None;
    for (rank, said) in said.iter().enumerate() {
        match said {
            Err((code, message)) => return Some(failure(*code, rank, message)),
            Ok((_, facts)) => {
                let first = first.get_or_insert(facts);
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
    match code {
        1 => Failure::Usage(message),
        2 => Failure::Input(message),
        _ => Failure::Internal(message),
    }
}

#[cfg(test)]
mod tests;
