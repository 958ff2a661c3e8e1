//! How processes find each other.
//!
//! The first rank listens where the launcher has said. Each other one opens a place of its own on the
//! interface that leads there, comes, and says who it is and where it can be found. When all have come
//! and all say the same of the job, the first one tells everybody where everybody is; then each rank
//! connects to those before it.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::door::{Came, Door, Guest};
use super::frame::{joined, taken_apart};
use super::secure::{GreetError, Opener, Sealer, Side, greet};
use crate::processes::join::{Interface, JoinError, Joining};

/// How long a rank waits before it tries again to connect.
const AGAIN: Duration = Duration::from_millis(40);
/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(3);

/// What the first rank says when all are there.
const WELCOME: &str = "welcome";
/// What it says when they do not fit together.
const REFUSED: &str = "refused";

/// A connection to each other rank, and the hosts of all.
pub(super) struct Joined {
    pub(super) peers: Vec<Option<(Opener, Sealer)>>,
    pub(super) hosts: Vec<String>,
}

/// Joins the others.
pub(super) fn join(joining: &Joining) -> Result<Joined, JoinError> {
    let deadline = Instant::now() + joining.limit;
    if joining.rank == 0 { first(joining, deadline) } else { other(joining, deadline) }
}

/// What a rank says when it comes: its number, host and place, then what has to be the same.
fn hello(joining: &Joining, place: &str) -> Vec<u8> {
    let own = [joining.rank.to_string(), joining.host.clone(), place.to_owned(), joining.size.to_string()];
    let alike = joining.alike.iter().map(|(_, text)| text.clone());
    joined(&own.into_iter().chain(alike).collect::<Vec<_>>())
}

/// The first rank: waits for all others.
fn first(joining: &Joining, deadline: Instant) -> Result<Joined, JoinError> {
    let mut door = Door::open(listen_first(joining)?, joining.key, deadline);
    let count = count(joining.size);
    let mut guests: Vec<Option<Guest>> = (0..count).map(|_| None).collect();
    let mut places = vec![String::new(); count];
    let mut hosts = vec![joining.host.clone(); count];
    let mut strangers: Vec<IpAddr> = Vec::new();
    while guests.iter().skip(1).any(Option::is_none) {
        let mut guest = match door.next(deadline) {
            Came::Guest(guest) => guest,
            Came::Stranger(address) => {
                strangers.push(address);
                continue;
            }
            Came::Nobody => {
                let missing = (0..).zip(&guests).skip(1).filter(|it| it.1.is_none()).map(|it| it.0);
                let error = JoinError::Missing {
                    ranks: missing.collect(),
                    place: format!("{}:{}", joining.address, joining.port),
                    limit: joining.limit,
                    strangers: strangers.len(),
                    last: strangers.last().copied(),
                };
                tell(guests.iter_mut().flatten(), &error);
                return Err(error);
            }
        };
        let came = arrival(joining, &guest).and_then(|came| match &guests[came.rank] {
            None => Ok(came),
            Some(_) => Err(format!(
                "two processes say that they are rank {} of this job, on `{}` and `{}`",
                came.rank, hosts[came.rank], came.host
            )),
        });
        match came {
            Ok(Arrival { rank, host, place }) => {
                (hosts[rank], places[rank], guests[rank]) = (host, place, Some(guest));
            }
            Err(words) => {
                let error = JoinError::Refused(words);
                tell(guests.iter_mut().flatten().chain([&mut guest]), &error);
                return Err(error);
            }
        }
    }
    let start = [WELCOME.to_owned(), session()?];
    let roster = joined(&start.into_iter().chain(hosts.clone()).chain(places).collect::<Vec<_>>());
    for (rank, guest) in (0..).zip(&mut guests).filter_map(|(rank, it)| Some((rank, it.as_mut()?))) {
        let told = guest.sealer.message(0, &roster);
        told.map_err(|error| JoinError::Broken {
            rank,
            host: hosts[count_of(rank)].clone(),
            error: error.to_string(),
        })?;
    }
    let peers = guests.into_iter().map(|it| it.map(|guest| (guest.opener, guest.sealer))).collect();
    Ok(Joined { peers, hosts })
}

/// Tells ranks that have come why none can start.
fn tell<'a>(guests: impl Iterator<Item = &'a mut Guest>, error: &JoinError) {
    let words = joined(&[REFUSED.to_owned(), error.to_string()]);
    for guest in guests {
        // Who does not hear it will see that nobody is there.
        let _ = guest.sealer.message(0, &words);
    }
}

/// What a guest says of itself.
struct Arrival {
    rank: usize,
    host: String,
    place: String,
}

/// Who has come; in words why it does not belong here.
fn arrival(joining: &Joining, guest: &Guest) -> Result<Arrival, String> {
    let from = guest.address;
    let said = taken_apart(&guest.said).ok_or_else(|| format!("{from} says what makes no sense"))?;
    let [rank, host, place, size, alike @ ..] = said.as_slice() else {
        return Err(format!("{from} says too little"));
    };
    if alike.len() != joining.alike.len() {
        return Err(format!(
            "rank {rank} on `{host}` is of another version than rank 0 on `{}`",
            joining.host
        ));
    }
    let own = joining.size;
    if *size != own.to_string() {
        return Err(format!(
            "rank {rank} on `{host}` was started as one of {size} processes, rank 0 on `{}` as one of {own}",
            joining.host
        ));
    }
    for ((name, ours), theirs) in joining.alike.iter().zip(alike) {
        if ours != theirs {
            return Err(format!(
                "ranks 0 and {rank} differ in {name}: {ours} on `{}`, {theirs} on `{host}`",
                joining.host
            ));
        }
    }
    let number = rank.parse::<u64>().ok().filter(|it| (1..own).contains(it)).map(count);
    let rank = number.ok_or_else(|| format!("a process on `{host}` says that it is rank {rank} of {own}"))?;
    Ok(Arrival { rank, host: host.clone(), place: place.clone() })
}

/// Another rank: comes to the first one, and connects to those before itself.
fn other(joining: &Joining, deadline: Instant) -> Result<Joined, JoinError> {
    let at = format!("{}:{}", joining.address, joining.port);
    let stream = connected(joining, deadline)?;
    let own = stream.local_addr().map_err(|error| unreachable(joining, &error))?.ip();
    let own = joining.interface.map_or(Ok(own), |it| local(it, &joining.host))?;
    let listener = TcpListener::bind((own, 0)).map_err(|error| cannot_listen(joining, own, 0, &error))?;
    let place = listener.local_addr().map_err(|error| cannot_listen(joining, own, 0, &error))?;
    let (mut opener, mut sealer) =
        greet(stream, &joining.key, Side::Initiator, deadline).map_err(|error| match error {
            GreetError::Stranger => JoinError::Token { rank: joining.rank, at: at.clone() },
            GreetError::Silent => {
                JoinError::Silent { rank: joining.rank, at: at.clone(), limit: joining.limit }
            }
            GreetError::Broken(error) => unreachable(joining, &error),
        })?;
    let mut door = Door::open(listener, joining.key, deadline);
    let broken = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            JoinError::Silent { rank: joining.rank, at: at.clone(), limit: joining.limit }
        }
        _ => JoinError::Broken { rank: 0, host: joining.address.clone(), error: error.to_string() },
    };
    sealer.message(0, &hello(joining, &place.to_string())).map_err(broken)?;
    // The first rank may have started to wait later than this one.
    opener.set_silence(Some(2 * joining.limit)).map_err(broken)?;
    let said = opener.said().map_err(broken)?;
    opener.set_silence(None).map_err(broken)?;
    let said = taken_apart(&said).unwrap_or_default();
    let count = count(joining.size);
    let (session, hosts, places) = match said.as_slice() {
        [welcome, session, rest @ ..] if welcome == WELCOME && rest.len() == 2 * count => {
            (session.clone(), rest[..count].to_vec(), &rest[count..])
        }
        [refused, words] if refused == REFUSED => return Err(JoinError::Told(words.clone())),
        _ => return Err(broken(io::Error::other("it says what makes no sense"))),
    };
    let mut peers: Vec<Option<(Opener, Sealer)>> = (0..count).map(|_| None).collect();
    peers[0] = Some((opener, sealer));
    let deadline = Instant::now() + joining.limit;
    for rank in 1..joining.rank {
        let index = count_of(rank);
        let peer = neighbour(joining, &places[index], &session, deadline);
        peers[index] =
            Some(peer.map_err(|error| JoinError::Broken { rank, host: hosts[index].clone(), error })?);
    }
    while let Some(missing) =
        peers.iter().enumerate().position(|(it, peer)| peer.is_none() && it != count_of(joining.rank))
    {
        match door.next(deadline) {
            Came::Guest(guest) => {
                let Some([theirs, rank]) =
                    taken_apart(&guest.said).and_then(|it| <[String; 2]>::try_from(it).ok())
                else {
                    continue;
                };
                // One of an earlier start of this job is none of these.
                let later = joining.rank + 1..joining.size;
                if let Some(rank) = rank.parse().ok().filter(|it| theirs == session && later.contains(it)) {
                    peers[count_of(rank)] = Some((guest.opener, guest.sealer));
                }
            }
            Came::Stranger(_) => {}
            Came::Nobody => {
                let (host, error) = (hosts[missing].clone(), "it has not come".to_owned());
                let rank = u64::try_from(missing).unwrap_or(u64::MAX);
                return Err(JoinError::Broken { rank, host, error });
            }
        }
    }
    Ok(Joined { peers, hosts })
}

/// The connection to a rank before this one; in words why there is none.
fn neighbour(
    joining: &Joining,
    place: &str,
    session: &str,
    deadline: Instant,
) -> Result<(Opener, Sealer), String> {
    let place: SocketAddr = place.parse().map_err(|_| format!("`{place}` is no place"))?;
    let left = deadline.saturating_duration_since(Instant::now()).max(AGAIN);
    let stream = TcpStream::connect_timeout(&place, left).map_err(|error| format!("{place}: {error}"))?;
    let greeted = greet(stream, &joining.key, Side::Initiator, deadline);
    let (opener, mut sealer) = greeted.map_err(|error| match error {
        GreetError::Stranger => format!("{place}: it does not know this job's token"),
        GreetError::Silent => format!("{place}: it says nothing"),
        GreetError::Broken(error) => format!("{place}: {error}"),
    })?;
    let words = joined(&[session.to_owned(), joining.rank.to_string()]);
    sealer.message(0, &words).map_err(|error| format!("{place}: {error}"))?;
    Ok((opener, sealer))
}

/// A connection to the first rank, tried until the deadline: it may start later, and so may what
/// knows its name.
fn connected(joining: &Joining, deadline: Instant) -> Result<TcpStream, JoinError> {
    loop {
        let tried = (joining.address.as_str(), joining.port).to_socket_addrs().and_then(|places| {
            let mut last = io::Error::other("the name has no address");
            for place in places {
                match TcpStream::connect_timeout(&place, ATTEMPT) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = error,
                }
            }
            Err(last)
        });
        match tried {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(unreachable(joining, &error)),
            Err(_) => thread::sleep(AGAIN),
        }
    }
}

fn unreachable(joining: &Joining, error: &io::Error) -> JoinError {
    JoinError::Unreachable {
        rank: joining.rank,
        host: joining.host.clone(),
        at: format!("{}:{}", joining.address, joining.port),
        limit: joining.limit,
        error: error.to_string(),
    }
}

/// Where the first rank listens: on one address, that of its name or of the interface.
fn listen_first(joining: &Joining) -> Result<TcpListener, JoinError> {
    let port = joining.port;
    if let Some(interface) = joining.interface {
        let own = local(interface, &joining.host)?;
        return TcpListener::bind((own, port)).map_err(|error| cannot_listen(joining, own, port, &error));
    }
    let named = |error: io::Error| JoinError::Unresolved {
        host: joining.host.clone(),
        address: joining.address.clone(),
        error: error.to_string(),
    };
    let places = (joining.address.as_str(), port).to_socket_addrs().map_err(named)?;
    let mut last = named(io::Error::other("the name has no address"));
    for place in places {
        match TcpListener::bind(place) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = cannot_listen(joining, place.ip(), port, &error),
        }
    }
    Err(last)
}

fn cannot_listen(joining: &Joining, address: IpAddr, port: u16, error: &io::Error) -> JoinError {
    let (rank, host) = (joining.rank, joining.host.clone());
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            JoinError::PortInUse { rank, host, place: SocketAddr::new(address, port) }
        }
        io::ErrorKind::AddrNotAvailable => JoinError::NotHere { rank, host, address },
        _ => {
            JoinError::Listen { rank, host, place: SocketAddr::new(address, port), error: error.to_string() }
        }
    }
}

/// This host's address in a network: the one from which it would be reached.
fn local(interface: Interface, host: &str) -> Result<IpAddr, JoinError> {
    let missing = || JoinError::NoInterface { host: host.to_owned(), interface };
    let any: IpAddr = if interface.address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    // Nothing is sent: where packets would go decides where they would come from.
    let towards = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((interface.some_host(), 9))?;
        socket.local_addr()
    };
    towards().ok().map(|it| it.ip()).filter(|it| interface.contains(*it)).ok_or_else(missing)
}

/// A name of this start of the job that nobody can guess.
fn session() -> Result<String, JoinError> {
    super::secure::random()
        .map_err(|error| JoinError::Refused(format!("there are no random numbers: {error}")))
}

/// As many as that.
fn count(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The place of a rank in a list of all.
fn count_of(rank: u64) -> usize {
    count(rank)
}
