//! Ranks that find each other over TCP, and what strangers cannot do.

mod frames; // what goes over a connection, and what is put between
mod strangers; // strangers, and ranks that stop while they join

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::call::not_to_itself;
use super::post::{Parcel, Post};
use super::rendezvous;
use crate::processes::flight::Flight;
use crate::processes::join::{Interface, JoinError, Joining};

const KEY: [u8; 32] = [7; 32];

/// A port of this host that nobody listens at.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn joining(rank: u64, size: u64, port: u16) -> Joining {
    Joining {
        rank,
        size,
        host: format!("host-{rank}"),
        address: "127.0.0.1".to_owned(),
        port,
        interface: None,
        key: KEY,
        alike: vec![("the version".to_owned(), "1".to_owned())],
        limit: Duration::from_secs(20),
        silence: Duration::from_secs(20),
    }
}

/// What a rank is told to write of itself, whose process does not end: why all end, if it is the one that says
/// it, and with what exit code.
fn flight() -> (Arc<Flight>, mpsc::Receiver<(Option<String>, u8)>) {
    let (ends, ended) = mpsc::channel();
    let say = move |words: Option<&str>, _: &str, code| {
        let _ = ends.send((words.map(str::to_owned), code));
    };
    let flight = Arc::new(Flight::new(Box::new(say)));
    // What would end the process of this test waits instead.
    flight.set_last(Box::new(|_| {
        loop {
            thread::park();
        }
    }));
    (flight, ended)
}

type Met = Result<Arc<Post>, JoinError>;

fn join(joining: &Joining) -> Met {
    rendezvous::join(joining, &flight().0)
}

/// All of them at the same time: what each of them gets.
fn all(ranks: Vec<Joining>) -> Vec<Met> {
    let threads: Vec<_> = ranks.into_iter().map(|it| thread::spawn(move || join(&it))).collect();
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Each rank sends its number to each other one.
fn check_connected(ranks: Vec<Met>) {
    let ranks: Vec<_> = ranks.into_iter().map(|it| it.map_err(|it| it.to_string()).unwrap()).collect();
    for (rank, post) in (0..).zip(&ranks) {
        assert_eq!((post.rank, usize::try_from(post.size())), (rank, Ok(ranks.len())));
        post.send_all(|| Parcel::Message(3, rank.to_le_bytes().to_vec()));
    }
    for (rank, post) in (0..).zip(&ranks) {
        for (peer, _) in (0_u64..).zip(&ranks) {
            assert_eq!(post.host(peer), Some(format!("host-{peer}")));
            if peer != rank {
                assert_eq!(post.take(peer, 3, soon()), Some(peer.to_le_bytes().to_vec()));
            }
        }
    }
    let leaves = ranks.into_iter().map(|post| thread::spawn(move || post.leave_at_end()));
    leaves.collect::<Vec<_>>().into_iter().for_each(|it| it.join().unwrap());
}

fn refused(ranks: Vec<Joining>) -> Vec<String> {
    let words = |it: Met| it.err().map_or("joined".to_owned(), |it| it.to_string());
    all(ranks).into_iter().map(words).collect()
}

/// A connection to a rank that is about to listen.
fn connect(port: u16) -> TcpStream {
    loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)).and_then(not_to_itself) {
            return stream;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn ranks_find_each_other_in_any_order() {
    for size in [2, 5] {
        let port = free_port();
        check_connected(all((0..size).map(|rank| joining(rank, size, port)).collect()));
        let mut threads = Vec::new();
        for rank in (0..size).rev() {
            let own = joining(rank, size, port);
            threads.push(thread::spawn(move || join(&own)));
            // The first one comes last.
            thread::sleep(Duration::from_millis(10));
        }
        check_connected(threads.into_iter().rev().map(|it| it.join().unwrap()).collect());
    }
}

#[test]
fn another_token_is_turned_away_and_said_on_both_sides() {
    let port = free_port();
    let mut ranks: Vec<Joining> = (0..3).map(|rank| joining(rank, 3, port)).collect();
    ranks[2].key = [8; 32];
    ranks[0].limit = Duration::from_secs(2);
    ranks[1].limit = Duration::from_secs(3);
    let words = refused(ranks);
    let expected = format!(
        "rank 2 has not come to rank 0 at 127.0.0.1:{port} in 2 s; 1 connections came that do not know the token \
         of this job, the last from 127.0.0.1"
    );
    assert_eq!(words[0], expected);
    // One that has come is told.
    assert_eq!(words[1], expected);
    assert!(words[2].starts_with(&format!("rank 2 is turned away at 127.0.0.1:{port}: ")), "{}", words[2]);
}

#[test]
fn ranks_of_different_starts_are_told_so() {
    type Change = fn(&mut Joining);
    let cases: [(Change, &str); 4] = [
        (
            |it| it.size = 3,
            "rank 1 on `host-1` was started as one of 3 processes, rank 0 on `host-0` as one of 2; all have to be \
             started alike",
        ),
        (
            |it| it.alike[0].1 = "2".to_owned(),
            "ranks 0 and 1 differ in the version: 1 on `host-0`, 2 on `host-1`; all have to be started alike",
        ),
        (
            |it| it.alike.clear(),
            "rank 1 on `host-1` is of another version than rank 0 on `host-0`; all have to be started alike",
        ),
        (|it| it.rank = 7, "a process on `host-1` says that it is rank 7 of 2; all have to be started alike"),
    ];
    for (change, expected) in cases {
        let port = free_port();
        let mut ranks = vec![joining(0, 2, port), joining(1, 2, port)];
        change(&mut ranks[1]);
        assert_eq!(refused(ranks), [expected, expected]);
    }
    let port = free_port();
    let mut ranks: Vec<Joining> = [0, 1, 1].map(|rank| joining(rank, 3, port)).into();
    ranks[2].host = "host-1".to_owned();
    let expected = "two processes say that they are rank 1 of this job, on `host-1` and `host-1`; all have to be \
                    started alike";
    assert_eq!(refused(ranks), [expected; 3]);
}

#[test]
fn places_that_are_none_are_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let one = |change: &dyn Fn(&mut Joining)| {
        let mut it = joining(0, 2, port);
        it.limit = Duration::from_millis(500);
        change(&mut it);
        join(&it).err().unwrap().to_string()
    };
    let expected = format!(
        "rank 0 on `host-0` cannot listen at 127.0.0.1:{port}: the port is in use, maybe by another job; choose \
         another one"
    );
    assert_eq!(one(&|_| {}), expected);
    let words = one(&|it| it.address = "198.51.100.1".to_owned());
    assert!(
        words.starts_with("rank 0 on `host-0` cannot listen at 198.51.100.1: it is no address of this host"),
        "{words}"
    );
    let words = one(&|it| it.address = "0.0.0.0".to_owned());
    assert!(words.starts_with("rank 0 on `host-0` cannot listen at 0.0.0.0: it is no address"), "{words}");
    let words = one(&|it| it.address = "no such host".to_owned());
    assert!(words.starts_with("rank 0 on `host-0` knows no address of `no such host`"), "{words}");
    let words = one(&|it| it.interface = Some("198.51.100.0/24".parse().unwrap()));
    assert_eq!(words, "`host-0` has no address in 198.51.100.0/24, the network of `--interface`");
    // Whoever listens there is no rank.
    let words = one(&|it| it.rank = 1);
    assert!(words.starts_with("rank 1 has waited 0 s for an answer at 127.0.0.1:"), "{words}");
    drop(taken);
    let words = one(&|it| it.rank = 1);
    let expected = format!("rank 1 on `host-0` has not reached rank 0 at 127.0.0.1:{port} in 0 s: ");
    assert!(words.starts_with(&expected), "{words}");
}

#[test]
fn nobody_listens_on_other_addresses() {
    let port = free_port();
    let first = thread::spawn(move || join(&joining(0, 2, port)));
    drop(connect(port));
    // Another address of the same host.
    assert!(TcpStream::connect(("127.0.0.2", port)).is_err());
    let second = join(&joining(1, 2, port));
    check_connected(vec![first.join().unwrap(), second]);
}

#[test]
fn ranks_listen_on_the_network_that_is_said() {
    let port = free_port();
    let mut ranks: Vec<Joining> = (0..3).map(|rank| joining(rank, 3, port)).collect();
    for rank in &mut ranks {
        rank.interface = Some("127.0.0.0/8".parse().unwrap());
    }
    check_connected(all(ranks));
}

#[test]
fn networks_have_addresses() {
    let network = |text: &str| text.parse::<Interface>();
    let has = |text: &str, address: &str| network(text).unwrap().contains(address.parse().unwrap());
    assert!(has("10.1.0.0/16", "10.1.255.3") && !has("10.1.0.0/16", "10.2.0.1"));
    assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.2"));
    assert!(has("0.0.0.0/0", "8.8.8.8") && !has("0.0.0.0/0", "::1"));
    assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
    assert_eq!(network("10.1.0.0/16").unwrap().to_string(), "10.1.0.0/16");
    for wrong in ["", "10.1", "10.1.0.0/33", "10.1.0.0/-1", "eth0", "fd00::/129"] {
        assert!(network(wrong).is_err(), "{wrong}");
    }
    for text in ["10.1.0.0/16", "10.1.0.0/31", "10.1.0.0/32", "0.0.0.0/0", "fd00::/8", "::/0"] {
        let network = network(text).unwrap();
        assert!(network.contains(network.some_host()), "{text}");
    }
}

/// Else the connection of one that has heard it may end before another one hears it, who takes it for lost.
#[test]
fn whoever_hears_that_all_end_says_so_too_before_it_ends() {
    let port = free_port();
    let (flights, ended): (Vec<_>, Vec<_>) = (0..3).map(|_| flight()).unzip();
    let start = |(rank, flight): (u64, Arc<Flight>)| {
        thread::spawn(move || rendezvous::join(&joining(rank, 3, port), &flight).unwrap())
    };
    let threads: Vec<_> = (0..).zip(flights).map(start).collect();
    let posts: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
    // The second one hears it of the first one only.
    posts[2].send(0, Parcel::Abort(6));
    for ended in &ended[..2] {
        assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok((None, 6)));
    }
}
