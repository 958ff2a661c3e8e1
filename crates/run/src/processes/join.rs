//! As whom a process joins the others of its job, and why it cannot.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// The most ranks that can be processes: each has two threads and a connection for each other one.
pub const MOST_RANKS: u64 = 4096;

/// As whom, where and for how long a process joins the others of its job over TCP.
#[derive(Clone, Debug)]
pub struct Joining {
    /// Which rank it is.
    pub rank: u64,
    /// How many ranks there are.
    pub size: u64,
    /// The name of its host, for messages.
    pub host: String,
    /// Where the first rank listens: a name or an address of its host.
    pub address: String,
    /// On which port.
    pub port: u16,
    /// The network on whose addresses ranks listen, if it is not that of the address.
    pub interface: Option<Interface>,
    /// What only the ranks of this job know.
    pub key: [u8; 32],
    /// What has to be the same for all: what it is, and its text.
    pub alike: Vec<(String, String)>,
    /// How long to wait for the others.
    pub limit: Duration,
    /// How long a rank may give no sign of life, from when it was welcome.
    pub silence: Duration,
}

/// A network, by one address in it and how many bits all of them have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The address.
    pub address: IpAddr,
    /// How many bits: all of them for the address alone.
    pub bits: u32,
}

impl Interface {
    /// Whether an address is in the network.
    pub fn contains(self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Some address in the network that a host may have.
    pub(crate) fn some_host(self) -> IpAddr {
        match self.address {
            // The first address of a network is no host's.
            IpAddr::V4(it) if self.bits < 31 => {
                let rest = u32::MAX.checked_shr(self.bits).unwrap_or(0);
                Ipv4Addr::from_bits(if it.to_bits() & rest == 0 { it.to_bits() | 1 } else { it.to_bits() })
                    .into()
            }
            IpAddr::V6(it) if self.bits < 127 => {
                let rest = u128::MAX.checked_shr(self.bits).unwrap_or(0);
                Ipv6Addr::from_bits(if it.to_bits() & rest == 0 { it.to_bits() | 1 } else { it.to_bits() })
                    .into()
            }
            it => it,
        }
    }
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no network: expected one such as `10.1.0.0/16`, or an address");
        let (address, bits) = text.split_once('/').map_or((text, None), |(it, bits)| (it, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |it| it.parse::<u32>().map_err(|_| wrong()))?;
        if bits <= most { Ok(Self { address, bits }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Why processes cannot reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// This program was built without MPI.
    Absent,
    /// MPI has been started in this process before.
    Started,
    /// The first rank does not know an address of the name where it has to listen.
    Unresolved {
        /// The rank's host.
        host: String,
        /// The name.
        address: String,
        /// Why.
        error: String,
    },
    /// The port is another program's.
    PortInUse {
        /// Which rank wants to listen.
        rank: u64,
        /// Its host.
        host: String,
        /// Where.
        place: SocketAddr,
    },
    /// The address is none of the host's.
    NotHere {
        /// Which rank wants to listen.
        rank: u64,
        /// Its host.
        host: String,
        /// The address.
        address: IpAddr,
    },
    /// A rank cannot listen for another reason.
    Listen {
        /// Which rank.
        rank: u64,
        /// Its host.
        host: String,
        /// Where.
        place: SocketAddr,
        /// Why.
        error: String,
    },
    /// A host has no address in the network.
    NoInterface {
        /// The host.
        host: String,
        /// The network.
        interface: Interface,
    },
    /// The first rank was not there.
    Unreachable {
        /// Which rank looked for it.
        rank: u64,
        /// That rank's host.
        host: String,
        /// Where the first rank should be.
        at: String,
        /// For how long it was looked for.
        limit: Duration,
        /// What happened last.
        error: String,
    },
    /// Whoever listens where the first rank should does not know this rank's token.
    Token {
        /// Which rank.
        rank: u64,
        /// Where.
        at: String,
    },
    /// Whoever listens where the first rank should says nothing.
    Silent {
        /// Which rank waited.
        rank: u64,
        /// Where.
        at: String,
        /// For how long.
        limit: Duration,
    },
    /// Some ranks have not come to the first one.
    Missing {
        /// Which.
        ranks: Vec<u64>,
        /// Where they should have come.
        place: String,
        /// In which time.
        limit: Duration,
        /// How many have come that do not know the token, and how many that have said too little.
        strangers: [u64; 2],
        /// Where the last of these came from.
        last: Option<IpAddr>,
    },
    /// The ranks do not fit together; how.
    Refused(String),
    /// A thread cannot be started.
    Threads {
        /// By which rank.
        rank: u64,
        /// Its host.
        host: String,
        /// Why.
        error: String,
    },
    /// The first rank has said why none can start, and says it itself.
    Told(String),
    /// A rank that was there is not reached.
    Broken {
        /// Which one.
        rank: u64,
        /// Its host.
        host: String,
        /// Why.
        error: String,
    },
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => write!(f, "this program was built without MPI"),
            Self::Started => write!(f, "MPI has been started in this process before"),
            Self::Unresolved { host, address, error } => {
                write!(
                    f,
                    "rank 0 on `{host}` knows no address of `{address}`, where it has to listen: {error}"
                )
            }
            Self::PortInUse { rank, host, place } => write!(
                f,
                "rank {rank} on `{host}` cannot listen at {place}: the port is in use, maybe by another job; \
                 choose another one"
            ),
            Self::NotHere { rank, host, address } => write!(
                f,
                "rank {rank} on `{host}` cannot listen at {address}: it is no address of this host; the \
                 address has to be one of the host of rank 0"
            ),
            Self::Listen { rank, host, place, error } => {
                write!(f, "rank {rank} on `{host}` cannot listen at {place}: {error}")
            }
            Self::NoInterface { host, interface } => {
                write!(f, "`{host}` has no address in {interface}, the network of `--interface`")
            }
            Self::Unreachable { rank, host, at, limit, error } => write!(
                f,
                "rank {rank} on `{host}` has not reached rank 0 at {at} in {} s: {error}",
                limit.as_secs()
            ),
            Self::Token { rank, at } => write!(
                f,
                "rank {rank} is turned away at {at}: it has another token than the rank 0 there; either that \
                 is another job's, or `SHARDLOOM_TOKEN` is not the same for all ranks"
            ),
            Self::Silent { rank, at, limit } => write!(
                f,
                "rank {rank} has waited {} s for an answer at {at}: what listens there is no rank 0, or \
                 other ranks have not come to it",
                limit.as_secs()
            ),
            Self::Missing { ranks, place, limit, strangers, last } => {
                let names: Vec<String> = ranks.iter().map(u64::to_string).collect();
                let (word, have) = if ranks.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
                let (names, seconds) = (names.join(", "), limit.as_secs());
                write!(f, "{word} {names} {have} not come to rank 0 at {place} in {seconds} s")?;
                let [wrong, silent] = strangers;
                if *wrong > 0 {
                    write!(f, "; {wrong} connections came that do not know the token of this job")?;
                }
                if *silent > 0 {
                    write!(f, "; {silent} connections came that did not say who they are")?;
                }
                last.map_or(Ok(()), |it| write!(f, ", the last from {it}"))
            }
            Self::Threads { rank, host, error } => write!(
                f,
                "rank {rank} on `{host}` cannot start a thread: {error}; it needs two for each other rank: allow \
                 more (`ulimit -u`, or what limits its container)"
            ),
            Self::Told(words) => write!(f, "{words}"),
            Self::Refused(words) => write!(f, "{words}; all have to be started alike"),
            Self::Broken { rank, host, error } => {
                write!(f, "rank {rank} on `{host}` cannot be reached: {error}")
            }
        }
    }
}

impl std::error::Error for JoinError {}
