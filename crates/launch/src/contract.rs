//! What launchers say in the environment: who this process is, and where the first rank is.

use files::Failure;
use run::MOST_RANKS;

use crate::hosts::hosts;

/// A variable of the environment, if it is set.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The names in which a launcher says what each process has to know; of several names the first one
/// that is set. An empty list: it does not say it.
struct Contract {
    /// The launcher, for messages.
    launcher: &'static str,
    /// Only where this is set is the rest meant for this process.
    marker: Option<&'static str>,
    rank: &'static str,
    size: &'static [&'static str],
    /// How many of the processes are on this host.
    here: &'static [&'static str],
    /// Which of those it is.
    local: &'static [&'static str],
    /// Where rank 0 is.
    place: Place,
    /// The name of the job.
    job: &'static [&'static str],
    /// How often it has been started before.
    attempt: &'static [&'static str],
}

/// How a launcher says where rank 0 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// By these two names: the address, the port.
    Named(&'static str, &'static str),
    /// By the list of hosts under one of these names, and the number of the job, from which the port
    /// follows.
    First(&'static [&'static str]),
    /// Not at all.
    Unsaid,
}

/// The contracts, inner launchers first: one may have been started by another one.
const CONTRACTS: [Contract; 5] = [
    Contract {
        launcher: "shardloom launch",
        marker: None,
        rank: RANK,
        size: &[SIZE],
        here: &[],
        local: &[LOCAL],
        place: Place::Named(ADDRESS, PORT),
        job: &["SHARDLOOM_JOB"],
        attempt: &[ATTEMPT],
    },
    Contract {
        launcher: "torchrun",
        marker: None,
        rank: "RANK",
        size: &["WORLD_SIZE"],
        here: &["LOCAL_WORLD_SIZE"],
        local: &["LOCAL_RANK"],
        place: Place::Named("MASTER_ADDR", "MASTER_PORT"),
        job: &["TORCHELASTIC_RUN_ID"],
        attempt: &["TORCHELASTIC_RESTART_COUNT"],
    },
    Contract {
        launcher: "Open MPI",
        marker: None,
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        here: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        local: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        place: Place::Unsaid,
        job: &["PMIX_NAMESPACE"],
        attempt: &[],
    },
    Contract {
        launcher: "a launcher that speaks PMI",
        marker: None,
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        here: &["MPI_LOCALNRANKS"],
        local: &["MPI_LOCALRANKID"],
        place: Place::Unsaid,
        job: &[],
        attempt: &[],
    },
    Contract {
        launcher: "Slurm",
        // Set for the tasks of `srun`, and not in the script of a job.
        marker: Some("SLURM_STEP_NODELIST"),
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        here: &[],
        local: &["SLURM_LOCALID"],
        place: Place::First(&["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"]),
        job: &["SLURM_JOB_ID"],
        attempt: &["SLURM_RESTART_COUNT"],
    },
];

/// Where the ranks of one host meet.
pub(crate) const LOOPBACK: &str = "127.0.0.1";

/// What `shardloom launch` sets.
pub const RANK: &str = "SHARDLOOM_RANK";
/// Which one of those on its host a process is.
pub const LOCAL: &str = "SHARDLOOM_LOCAL_RANK";
/// How many processes there are.
pub const SIZE: &str = "SHARDLOOM_SIZE";
/// The name or address of the host of rank 0.
pub const ADDRESS: &str = "SHARDLOOM_ADDRESS";
/// The port of rank 0.
pub const PORT: &str = "SHARDLOOM_PORT";
/// How often the job has been started before.
pub const ATTEMPT: &str = "SHARDLOOM_ATTEMPT";
/// What only the ranks of a job know.
pub const TOKEN: &str = "SHARDLOOM_TOKEN";
/// A file that has it.
pub const TOKEN_FILE: &str = "SHARDLOOM_TOKEN_FILE";
/// Set where the standard input ends when the launcher does.
pub const LEASH: &str = "SHARDLOOM_LEASH";

/// Set by agents of `torchrun` that listen at the port themselves.
const AGENT: &str = "TORCHELASTIC_USE_AGENT_STORE";

/// The ports of jobs of Slurm (and of Open MPI on one host): so many, from this one.
const FIRST_PORT: u16 = 61_440;
/// How many.
const PORTS: u64 = 4096;

/// The names that a launcher of ours sets anew for what it starts.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTRACTS.iter().flat_map(|it| {
        let place: &[&str] = match it.place {
            Place::Named(address, port) => &[address, port],
            Place::First(_) | Place::Unsaid => &[],
        };
        [it.rank]
            .into_iter()
            .chain(it.size.iter().copied())
            .chain(it.local.iter().copied())
            .chain(place.to_vec())
            .chain(it.marker)
    })
}

/// What launchers say of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Which launcher has said it.
    pub launcher: &'static str,
    /// Which one it is.
    pub rank: u64,
    /// How many there are.
    pub size: u64,
    /// Which one it is of those on its host, if that is said.
    pub local: Option<u64>,
    /// Where rank 0 is: a name or an address, and the port.
    pub place: Option<(String, u16)>,
    /// Whether all are on this host, and nobody has said by hand where they meet.
    pub(crate) is_one_host: bool,
    /// The name of the job, if it has one.
    pub job: String,
    /// How often it has been started before.
    pub attempt: u64,
}

impl Launched {
    /// Whether a launcher of MPI says it.
    pub(crate) fn is_mpi(&self) -> bool {
        CONTRACTS.iter().any(|it| it.launcher == self.launcher && it.place == Place::Unsaid)
    }

    /// What the environment says; nothing if no launcher has set it, or if there is one process only.
    /// Refuses what contradicts itself or is only half there.
    pub fn of(variable: Variable<'_>) -> Result<Option<Self>, Failure> {
        let mut found: Vec<(&Contract, u64, u64)> = Vec::new();
        for contract in CONTRACTS.iter().filter(|it| it.marker.is_none_or(|it| variable(it).is_some())) {
            if let Some((rank, size)) = contract.numbers(variable)? {
                found.push((contract, rank, size));
            }
        }
        // Slurm starts launchers too: then what it says is theirs.
        if found.iter().any(|it| it.0.marker.is_none()) {
            found.retain(|(it, rank, size)| it.marker.is_none() || found_alike(*rank, *size, variable));
        }
        // Whoever starts one process starts a launcher, or all ranks as threads.
        found.retain(|(_, _, size)| *size > 1);
        let Some(&(first, rank, size)) = found.first() else { return Ok(None) };
        if let Some((other, theirs, of)) = found.iter().find(|it| (it.1, it.2) != (rank, size)) {
            return Err(Failure::Input(format!(
                "the environment contradicts itself: by {} (`{}`) this process is rank {rank} of {size}, by {} \
                 (`{}`) it is rank {theirs} of {of}",
                first.launcher, first.rank, other.launcher, other.rank
            )));
        }
        // What is set by hand comes before what a launcher says.
        let place = named(ADDRESS, PORT, variable)?;
        let is_one_host = place.is_none() && found.iter().any(|it| it.0.is_one_host(variable, size));
        let mut launched = Self {
            launcher: first.launcher,
            rank,
            size,
            local: None,
            place,
            is_one_host,
            job: String::new(),
            attempt: 0,
        };
        for (contract, ..) in &found {
            if launched.place.is_none() {
                launched.place = contract.place(variable)?;
            }
            if let (None, Some((name, text))) = (launched.local, set(contract.local, variable)) {
                launched.local = Some(number(name, &text)?);
            }
            if launched.job.is_empty() {
                launched.job = set(contract.job, variable).map_or(String::new(), |it| it.1);
            }
            if launched.place.is_none() && is_one_host && !launched.job.is_empty() {
                launched.place = Some((LOOPBACK.to_owned(), port_of_name(&launched.job)));
            }
            if let Some((name, text)) = set(contract.attempt, variable) {
                launched.attempt = launched.attempt.max(number(name, &text)?);
            }
        }
        Ok(Some(launched))
    }
}

/// Whether an inner launcher says the same of this process as Slurm does.
fn found_alike(rank: u64, size: u64, variable: Variable<'_>) -> bool {
    let inner = CONTRACTS.iter().filter(|it| it.marker.is_none());
    inner.filter_map(|it| it.numbers(variable).ok().flatten()).any(|it| it == (rank, size))
}

impl Contract {
    /// The rank and how many there are, if both are set; refuses one without the other.
    fn numbers(&self, variable: Variable<'_>) -> Result<Option<(u64, u64)>, Failure> {
        let half = |is: &str, is_not: &str| {
            Failure::Input(format!(
                "`{is}` is set and `{is_not}` is not: {} sets both; unset the one, or set the other",
                self.launcher
            ))
        };
        let (rank, size) = match (variable(self.rank), set(self.size, variable)) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(half(self.rank, self.size[0])),
            (None, Some((name, _))) => return Err(half(name, self.rank)),
            (Some(rank), Some((name, size))) => (number(self.rank, &rank)?, number(name, &size)?),
        };
        if size > MOST_RANKS {
            return Err(Failure::Input(format!(
                "by {} there are {size} processes, expected at most {MOST_RANKS}: each has two threads and a \
                 connection for each other one",
                self.launcher
            )));
        }
        if rank >= size {
            return Err(Failure::Input(format!(
                "`{}` is {rank}, and there are {size} processes by {}: expected less",
                self.rank, self.launcher
            )));
        }
        Ok(Some((rank, size)))
    }

    /// Where rank 0 is, if the launcher says it.
    fn place(&self, variable: Variable<'_>) -> Result<Option<(String, u16)>, Failure> {
        match self.place {
            Place::Named(address, port) => {
                let Some((host, port)) = named(address, port, variable)? else {
                    return Err(Failure::Input(format!(
                        "`{}` is set and `{address}` is not: the ranks do not know where rank 0 is",
                        self.rank
                    )));
                };
                // The agent listens there itself: the next port is ours.
                let taken = variable(AGENT).is_some_and(|it| it.eq_ignore_ascii_case("true"));
                let next = port.checked_add(1).unwrap_or(port - 1);
                Ok(Some((host, if taken && address == "MASTER_ADDR" { next } else { port })))
            }
            Place::First(lists) => {
                let Some((name, list)) = set(lists, variable) else { return Ok(None) };
                let first = hosts(&list).and_then(|it| it.into_iter().next());
                let first = first.ok_or_else(|| {
                    Failure::Input(format!("`{name}` is `{list}`, expected a list of hosts"))
                })?;
                let of = |name| variable(name).map_or(Ok(0), |text| number(name, &text));
                let job = of("SLURM_JOB_ID")?.wrapping_add(of("SLURM_STEP_ID")?);
                Ok(Some((first, port_of(job))))
            }
            Place::Unsaid => Ok(None),
        }
    }

    /// Whether a launcher says that all of so many processes are on one host.
    fn is_one_host(&self, variable: Variable<'_>, size: u64) -> bool {
        let here = set(self.here, variable).and_then(|(_, text)| text.trim().parse().ok());
        let lists = if let Place::First(lists) = self.place { lists } else { &[] };
        let hosts = set(lists, variable).and_then(|(_, list)| hosts(&list));
        here == Some(size) || hosts.is_some_and(|it| it.len() == 1)
    }
}

/// An address and a port by their names, if both are set; refuses one without the other.
pub(crate) fn named(
    address: &str,
    port: &str,
    variable: Variable<'_>,
) -> Result<Option<(String, u16)>, Failure> {
    match (variable(address), variable(port)) {
        (None, None) => Ok(None),
        (Some(host), Some(text)) => match text.parse() {
            Ok(number @ 1..) => Ok(Some((host, number))),
            _ => Err(Failure::Input(format!("`{port}` is `{text}`, expected a port, from 1 to 65535"))),
        },
        (host, _) => {
            let (is, is_not) = if host.is_some() { (address, port) } else { (port, address) };
            Err(Failure::Input(format!("`{is}` is set and `{is_not}` is not: set both")))
        }
    }
}

/// The port of a job, by its name.
fn port_of_name(job: &str) -> u16 {
    port_of(job.bytes().fold(0_u64, |sum, it| sum.wrapping_mul(31).wrapping_add(it.into())))
}

/// The port of a job.
fn port_of(job: u64) -> u16 {
    let offset = u16::try_from(job % PORTS).unwrap_or(0);
    FIRST_PORT.saturating_add(offset)
}

/// The first of some variables that is set, and what it is.
fn set(names: &[&'static str], variable: Variable<'_>) -> Option<(&'static str, String)> {
    names.iter().find_map(|name| Some((*name, variable(name)?)))
}

/// The number that a variable is.
pub fn number(name: &str, text: &str) -> Result<u64, Failure> {
    text.trim().parse().map_err(|_| Failure::Input(format!("`{name}` is `{text}`, expected a number")))
}
