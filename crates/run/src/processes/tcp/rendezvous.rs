//! How processes find each other.
//!
//! The first rank listens where the launcher has said. Each other one opens a place of its own on the
//! interface that leads there, comes, and says who it is and where it can be found. Whoever is welcome is
//! told so, and from then on both give signs of life, so that whoever stops or dies is known. When all
//! have come and all say the same of the job, the first one tells everybody where everybody is; then each
//! rank comes to those before it in the same way.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::call::{AGAIN, CallError, REFUSED, WELCOME, call};
use super::door::{Door, Guest};
use super::frame::{joined, taken_apart};
use super::post::{Parcel, Post, place};
use crate::processes::NOT_JOINED;
use crate::processes::flight::Flight;
use crate::processes::join::{Interface, JoinError, Joining};
use crate::processes::link::Ending;

/// How long a port may be another one's that gives it back at once: a connection that was about to be made.
const IN_USE: Duration = Duration::from_secs(1);

/// What messages are about until all have met: no other messages have this tag.
const MEETING: i32 = -1;

/// Joins the others. Where a rank is lost that was welcome, all end.
pub(super) fn join(joining: &Joining, flight: &Arc<Flight>) -> Result<Arc<Post>, JoinError> {
    let deadline = Instant::now() + joining.limit;
    if joining.rank == 0 { first(joining, flight, deadline) } else { other(joining, flight, deadline) }
}

/// What a rank says when it comes: its number, host and place, then what has to be the same.
fn hello(joining: &Joining, place: &str) -> Vec<u8> {
    let own = [joining.rank.to_string(), joining.host.clone(), place.to_owned(), joining.size.to_string()];
    let alike = joining.alike.iter().map(|(_, text)| text.clone());
    joined(&own.into_iter().chain(alike).collect::<Vec<_>>())
}

/// The first rank: waits for all others.
fn first(joining: &Joining, flight: &Arc<Flight>, deadline: Instant) -> Result<Arc<Post>, JoinError> {
    let door = open(joining, listen_first(joining)?)?;
    let post = Post::open(joining, flight);
    let mut places = vec![String::new(); place(joining.size)];
    while post.awaited().is_some() {
        let came = match door.next(deadline) {
            Some(guest) => let_in(joining, &post, &mut places, guest),
            None => Err(missing(joining, &post, &door)),
        };
        if let Err(error) = came {
            let words = joined(&[REFUSED.to_owned(), error.to_string()]);
            post.send_all(|| Parcel::Message(MEETING, words.clone()));
            post.leave_at_once();
            return Err(error);
        }
    }
    let hosts = (0..joining.size).map(|rank| post.host(rank).unwrap_or_default());
    let roster = joined(&[session()?].into_iter().chain(hosts).chain(places).collect::<Vec<_>>());
    post.send_all(|| Parcel::Message(MEETING, roster.clone()));
    Ok(post)
}

/// A place for others to come to.
fn open(joining: &Joining, listener: TcpListener) -> Result<Door, JoinError> {
    Door::open(listener, joining.key).map_err(|error| no_thread(joining, &error))
}

fn no_thread(joining: &Joining, error: &io::Error) -> JoinError {
    JoinError::Threads { rank: joining.rank, host: joining.host.clone(), error: error.to_string() }
}

/// Which ranks have not come.
fn missing(joining: &Joining, post: &Post, door: &Door) -> JoinError {
    let strangers = door.strangers();
    JoinError::Missing {
        ranks: (0..joining.size).filter(|&rank| post.awaits(rank)).collect(),
        place: format!("{}:{}", joining.address, joining.port),
        limit: joining.limit,
        strangers: [strangers.wrong, strangers.silent],
        last: strangers.last,
    }
}

/// Takes in a rank that belongs to the job.
fn let_in(
    joining: &Joining,
    post: &Arc<Post>,
    places: &mut [String],
    mut guest: Guest,
) -> Result<(), JoinError> {
    let came = arrival(joining, &guest).and_then(|came| match post.awaits(came.rank) {
        true => Ok(came),
        false => Err(format!(
            "two processes say that they are rank {} of this job, on `{}` and `{}`",
            came.rank,
            post.host(came.rank).unwrap_or_default(),
            came.host
        )),
    });
    match came {
        Ok(Arrival { rank, host, place: at }) => {
            post.set_host(rank, host);
            places[place(rank)] = at;
            welcome(post, rank, guest).map_err(|error| no_thread(joining, &error))
        }
        Err(words) => {
            let error = JoinError::Refused(words);
            refuse(&mut guest, &error.to_string());
            Err(error)
        }
    }
}

/// Welcomes a rank, which gives signs of life from now on, as this one does.
fn welcome(post: &Arc<Post>, rank: u64, mut guest: Guest) -> io::Result<()> {
    // Who does not hear it is gone, or comes again.
    if guest.sealer.message(MEETING, &joined(&[WELCOME.to_owned()])).is_err() {
        return Ok(());
    }
    post.add(rank, guest.opener, guest.sealer)
}

/// Tells one that has come why it is not welcome.
fn refuse(guest: &mut Guest, words: &str) {
    // Who does not hear it will see that nobody is there.
    let _ = guest.sealer.message(MEETING, &joined(&[REFUSED.to_owned(), words.to_owned()]));
}

/// What a guest says of itself.
struct Arrival {
    rank: u64,
    host: String,
    place: String,
}

/// Who has come; in words why it does not belong here.
fn arrival(joining: &Joining, guest: &Guest) -> Result<Arrival, String> {
    let from = guest.address;
    let said = taken_apart(&guest.said).ok_or_else(|| format!("the message of {from} is invalid"))?;
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
    let number = rank.parse::<u64>().ok().filter(|it| (1..own).contains(it));
    let rank = number.ok_or_else(|| format!("a process on `{host}` says that it is rank {rank} of {own}"))?;
    Ok(Arrival { rank, host: host.clone(), place: place.clone() })
}

/// Another rank: comes to the first one, and to those before itself.
fn other(joining: &Joining, flight: &Arc<Flight>, deadline: Instant) -> Result<Arc<Post>, JoinError> {
    let mut own: Option<TcpListener> = None;
    let mut hello = |address: IpAddr| -> Result<Vec<u8>, JoinError> {
        let address = joining.interface.map_or(Ok(address), |it| local(it, &joining.host))?;
        let cannot = |error: io::Error| cannot_listen(joining, address, 0, &error);
        let listener = match own.take() {
            Some(it) if it.local_addr().is_ok_and(|it| it.ip() == address) => it,
            _ => TcpListener::bind((address, 0)).map_err(cannot)?,
        };
        let place = listener.local_addr().map_err(cannot)?.to_string();
        own = Some(listener);
        Ok(self::hello(joining, &place))
    };
    let at = format!("{}:{}", joining.address, joining.port);
    let places = || (joining.address.as_str(), joining.port).to_socket_addrs().map(Iterator::collect);
    let (opener, sealer) =
        call(&places, &joining.key, &mut hello, deadline).map_err(|error| match error {
            CallError::Stranger => JoinError::Token { rank: joining.rank, at: at.clone() },
            CallError::Silent => {
                JoinError::Silent { rank: joining.rank, at: at.clone(), limit: joining.limit }
            }
            CallError::Refused(words) => JoinError::Told(words),
            CallError::Broken(error) => unreachable(joining, &error),
            CallError::Own(error) => error,
        })?;
    let door = own.map(|listener| open(joining, listener)).transpose()?;
    let post = Post::open(joining, flight);
    post.set_host(0, joining.address.clone());
    post.add(0, opener, sealer).map_err(|error| no_thread(joining, &error))?;
    // The first rank may have started to wait later than this one; if it is lost, this process ends.
    let Some(said) = post.take(0, MEETING, Instant::now() + 2 * joining.limit) else {
        return Err(JoinError::Silent { rank: joining.rank, at, limit: 2 * joining.limit });
    };
    let said = taken_apart(&said).unwrap_or_default();
    let count = place(joining.size);
    let (session, hosts, places) = match said.as_slice() {
        [session, rest @ ..] if rest.len() == 2 * count => (session, &rest[..count], &rest[count..]),
        [refused, words] if refused == REFUSED => {
            post.leave_at_once();
            return Err(JoinError::Told(words.clone()));
        }
        _ => return Err(unreachable(joining, "its message is invalid")),
    };
    (0..).zip(hosts).for_each(|(rank, host)| post.set_host(rank, host.clone()));
    if let Err(error) = meet(joining, &post, door.as_ref(), session, places) {
        // All others wait for this rank: they end with it.
        let culprit = if let JoinError::Broken { rank, .. } = error { rank } else { joining.rank };
        post.end(&Ending { code: NOT_JOINED, words: &error.to_string(), culprit });
    }
    Ok(post)
}

/// Comes to the ranks before this one, and waits for those after it.
fn meet(
    joining: &Joining,
    post: &Arc<Post>,
    door: Option<&Door>,
    session: &str,
    places: &[String],
) -> Result<(), JoinError> {
    let deadline = Instant::now() + joining.limit;
    let broken = |rank: u64, error: String| JoinError::Broken {
        rank,
        host: post.host(rank).unwrap_or_default(),
        error,
    };
    let own = joined(&[session.to_owned(), joining.rank.to_string()]);
    for (rank, at) in (0..joining.rank).zip(places).skip(1) {
        let parsed: Result<SocketAddr, _> = at.parse();
        let place = parsed.map_err(|_| broken(rank, format!("`{at}` is no place")))?;
        let called = call(&|| Ok(vec![place]), &joining.key, &mut |_| Ok(own.clone()), deadline);
        let (opener, sealer) = called.map_err(|error| match error {
            CallError::Own(error) => error,
            error => broken(rank, format!("{place}: {error}")),
        })?;
        post.add(rank, opener, sealer).map_err(|error| no_thread(joining, &error))?;
    }
    while let Some(missing) = post.awaited() {
        let Some(mut guest) = door.and_then(|it| it.next(deadline)) else {
            return Err(broken(missing, "it has not come".to_owned()));
        };
        let said = taken_apart(&guest.said).and_then(|it| <[String; 2]>::try_from(it).ok());
        let said = said.filter(|[theirs, _]| theirs == session).and_then(|[_, rank]| rank.parse().ok());
        match said.filter(|&rank| post.awaits(rank)) {
            Some(rank) => welcome(post, rank, guest).map_err(|error| no_thread(joining, &error))?,
            // One of an earlier start of this job, for example.
            None => refuse(&mut guest, "it is no rank of this start of the job that was still to come"),
        }
    }
    Ok(())
}

fn unreachable(joining: &Joining, error: &str) -> JoinError {
    JoinError::Unreachable {
        rank: joining.rank,
        host: joining.host.clone(),
        at: format!("{}:{}", joining.address, joining.port),
        limit: joining.limit,
        error: error.to_owned(),
    }
}

/// Where the first rank listens: on one address, that of its name or of the interface.
fn listen_first(joining: &Joining) -> Result<TcpListener, JoinError> {
    let port = joining.port;
    if let Some(interface) = joining.interface {
        let own = local(interface, &joining.host)?;
        return bound((own, port).into()).map_err(|error| cannot_listen(joining, own, port, &error));
    }
    let named = |error: io::Error| JoinError::Unresolved {
        host: joining.host.clone(),
        address: joining.address.clone(),
        error: error.to_string(),
    };
    let places = (joining.address.as_str(), port).to_socket_addrs().map_err(named)?;
    let mut last = named(io::Error::other("the name has no address"));
    for place in places {
        match bound(place) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = cannot_listen(joining, place.ip(), port, &error),
        }
    }
    Err(last)
}

/// Listens at a place of this host.
fn bound(place: SocketAddr) -> io::Result<TcpListener> {
    if place.ip().is_unspecified() {
        // That would be all addresses of this host.
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    let until = Instant::now() + IN_USE;
    loop {
        match TcpListener::bind(place) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(AGAIN);
            }
            bound => return bound,
        }
    }
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
