//! Ranks that find each other over TCP, and what strangers cannot do.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{Frame, joined, taken_apart};
use super::post::Post;
use super::rendezvous;
use super::secure::{FRAME, GreetError, Opener, Sealer, Side, greet};
use crate::processes::flight::Flight;
use crate::processes::join::{Interface, JoinError, Joining};
use crate::processes::link::Doing;

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

/// All of them at the same time: what each of them gets.
fn all(ranks: Vec<Joining>) -> Vec<Result<rendezvous::Joined, JoinError>> {
    let threads: Vec<_> = ranks.into_iter().map(|it| thread::spawn(move || rendezvous::join(&it))).collect();
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}

/// Each rank sends its number to each other one.
fn check_connected(ranks: Vec<Result<rendezvous::Joined, JoinError>>) {
    let mut ranks: Vec<_> = ranks.into_iter().map(Result::unwrap).collect();
    let size = ranks.len();
    for (rank, joined) in ranks.iter_mut().enumerate() {
        let hosts: Vec<String> = (0..size).map(|it| format!("host-{it}")).collect();
        assert_eq!(joined.hosts, hosts);
        for (_, sealer) in joined.peers.iter_mut().flatten() {
            sealer.message(3, &[u8::try_from(rank).unwrap()]).unwrap();
        }
    }
    for (rank, joined) in ranks.iter_mut().enumerate() {
        assert!(joined.peers[rank].is_none());
        for (peer, connection) in joined.peers.iter_mut().enumerate().filter(|it| it.0 != rank) {
            let (opener, _) = connection.as_mut().unwrap();
            let expected = Frame::Message(3, vec![u8::try_from(peer).unwrap()]);
            assert_eq!(opener.next(usize::MAX).unwrap(), expected);
        }
    }
}

fn refused(ranks: Vec<Joining>) -> Vec<String> {
    let words =
        |it: Result<rendezvous::Joined, JoinError>| it.err().map_or("joined".to_owned(), |it| it.to_string());
    all(ranks).into_iter().map(words).collect()
}

#[test]
fn ranks_find_each_other_in_any_order() {
    for size in [2, 5] {
        let port = free_port();
        check_connected(all((0..size).map(|rank| joining(rank, size, port)).collect()));
        let mut threads = Vec::new();
        for rank in (0..size).rev() {
            let own = joining(rank, size, port);
            threads.push(thread::spawn(move || rendezvous::join(&own)));
            // The first one comes last.
            thread::sleep(Duration::from_millis(10));
        }
        check_connected(threads.into_iter().rev().map(|it| it.join().unwrap()).collect());
    }
}

#[test]
fn strangers_neither_stop_nor_delay_ranks() {
    let port = free_port();
    let first = thread::spawn(move || rendezvous::join(&joining(0, 3, port)));
    let connect = || loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            return stream;
        }
        thread::sleep(Duration::from_millis(2));
    };
    let mut held = Vec::new();
    arbtest::arbtest(|u| {
        let mut stream = connect();
        // Some lengths are as they should be, so that it is the rest that is looked at.
        let start: &[u8] = if u.arbitrary()? { &[48, 0] } else { &[] };
        let count = u.int_in_range(0..=200)?;
        let bytes = [start, u.bytes(count)?].concat();
        // Some have been hung up on.
        let _ = stream.write_all(&bytes);
        if u.arbitrary()? && held.len() < 40 {
            held.push(stream);
        }
        Ok(())
    })
    .budget_ms(300);
    let huge = [&[255, 255][..], &[0; 70_000]].concat();
    let _ = connect().write_all(&huge);
    let others: Vec<_> =
        [1, 2].map(|rank| thread::spawn(move || rendezvous::join(&joining(rank, 3, port)))).into();
    let ranks = [first].into_iter().chain(others).map(|it| it.join().unwrap()).collect();
    check_connected(ranks);
    // Those that were held open are still silent: nobody has waited for them.
    drop(held);
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
        rendezvous::join(&it).err().unwrap().to_string()
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
    let first = thread::spawn(move || rendezvous::join(&joining(0, 2, port)));
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        thread::sleep(Duration::from_millis(2));
    }
    // Another address of the same host.
    assert!(TcpStream::connect(("127.0.0.2", port)).is_err());
    let second = rendezvous::join(&joining(1, 2, port));
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

/// Two ends of a connection, and a way to put bytes between frames.
fn pair() -> ((Opener, Sealer), (Opener, Sealer), TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    let (raw, deadline) = (own.try_clone().unwrap(), Instant::now() + Duration::from_secs(20));
    let there = thread::spawn(move || greet(other, &KEY, Side::Responder, deadline).unwrap());
    (greet(own, &KEY, Side::Initiator, deadline).unwrap(), there.join().unwrap(), raw)
}

#[test]
fn frames_arrive_as_they_were_sent() {
    let ((_, mut sealer), (mut opener, _), _) = pair();
    let lengths = [0, 1, FRAME - 6, FRAME - 5, FRAME - 4, 3 * FRAME];
    let messages: Vec<Vec<u8>> = lengths.map(|length| vec![length.to_le_bytes()[0]; length]).into();
    let doing = Doing { step: 3, program: 1, instruction: 1 << 40, waits_for: Some(2) };
    let sent = messages.clone();
    let sends = thread::spawn(move || {
        for (tag, message) in (-1..).zip(&sent) {
            sealer.message(tag, message).unwrap();
        }
        sealer.beat(doing).unwrap();
        sealer.beat(Doing::default()).unwrap();
        sealer.abort(6).unwrap();
        sealer.goodbye().unwrap();
        sealer
    });
    for (tag, message) in (-1..).zip(messages) {
        assert!(opener.next(usize::MAX).unwrap() == Frame::Message(tag, message), "{tag}");
    }
    for expected in [Frame::Beat(doing), Frame::Beat(Doing::default()), Frame::Abort(6), Frame::Goodbye] {
        assert_eq!(opener.next(usize::MAX).unwrap(), expected);
    }
    let mut sealer = sends.join().unwrap();
    sealer.message(0, &[1; 100]).unwrap();
    let error = opener.next(99).unwrap_err();
    assert_eq!(error.to_string(), "a message that is too long");
}

#[test]
fn what_is_no_frame_is_an_error() {
    arbtest::arbtest(|u| {
        let ((_, mut sealer), (mut opener, _), mut raw) = pair();
        let count = u.int_in_range(0..=60)?;
        let bytes = u.bytes(count)?.to_vec();
        if u.arbitrary()? {
            // From one who knows the key.
            sealer.seal(&bytes).unwrap();
            sealer.finish();
            if let Ok(frame) = opener.next(usize::MAX) {
                assert!(matches!(bytes[0], 1..=4), "{frame:?}");
            }
        } else {
            // Put between: nothing of it is taken for a frame.
            raw.write_all(&bytes).unwrap();
            raw.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(opener.next(usize::MAX).is_err());
        }
        Ok(())
    })
    .budget_ms(700);
    arbtest::arbtest(|u| {
        let count = u.int_in_range(0..=60)?;
        let bytes = u.bytes(count)?;
        if let Some(texts) = taken_apart(bytes) {
            assert_eq!(joined(&texts), bytes);
        }
        Ok(())
    })
    .budget_ms(200);
}

/// Two ends of connections that are joined by somebody, whom the greetings went through: the one that
/// sends, what it says, what comes of that, and the other end.
fn through() -> (Sealer, TcpStream, TcpStream, (Opener, Sealer)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut between, _) = listener.accept().unwrap();
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut onward = TcpStream::connect(target.local_addr().unwrap()).unwrap();
    let (theirs, _) = target.accept().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let there = thread::spawn(move || greet(theirs, &KEY, Side::Responder, deadline).unwrap());
    let passes = thread::spawn(move || {
        let mut greeting = [0; 50];
        between.read_exact(&mut greeting).unwrap();
        onward.write_all(&greeting).unwrap();
        onward.read_exact(&mut greeting).unwrap();
        between.write_all(&greeting).unwrap();
        (between, onward)
    });
    let (_, own) = greet(own, &KEY, Side::Initiator, deadline).unwrap();
    let (between, onward) = passes.join().unwrap();
    (own, between, onward, there.join().unwrap())
}

#[test]
fn a_frame_cannot_be_said_twice() {
    let ((_, mut sealer), (other, _), _) = pair();
    drop(other);
    // What is written for one connection is caught and given to another one twice.
    let (mut own, mut between, mut onward, (mut opener, _theirs)) = through();
    own.message(0, b"hello").unwrap();
    let mut frame = vec![0; SEALED];
    between.read_exact(&mut frame).unwrap();
    onward.write_all(&frame).unwrap();
    onward.write_all(&frame).unwrap();
    assert_eq!(opener.next(usize::MAX).unwrap(), Frame::Message(0, b"hello".to_vec()));
    assert!(opener.next(usize::MAX).is_err());
    // The other connection is gone: that is an error, and no panic.
    let failed = (0..1000).find_map(|_| sealer.message(0, &[0; 1000]).err());
    assert!(failed.is_some());
}

/// What comes of a message of five bytes of which so many bytes arrive, as they are on their way.
fn cut_off(after: usize) -> std::io::Result<Frame> {
    let (mut own, mut between, mut onward, (mut opener, _theirs)) = through();
    own.message(0, b"hello").unwrap();
    let mut frame = vec![0; SEALED];
    between.read_exact(&mut frame).unwrap();
    onward.write_all(&frame[..after]).unwrap();
    onward.shutdown(std::net::Shutdown::Write).unwrap();
    opener.next(usize::MAX)
}

/// How long a message of five bytes is on its way: its length, kind and tag, and the seal.
const SEALED: usize = 2 + 1 + 4 + 5 + 16;

#[test]
fn a_frame_that_ends_early_is_an_error_wherever_it_ends() {
    for after in 0..SEALED {
        assert!(cut_off(after).is_err(), "{after}");
    }
    assert_eq!(cut_off(SEALED).unwrap(), Frame::Message(0, b"hello".to_vec()));
}

#[test]
fn whoever_says_nothing_is_left_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    // A byte now and then does not make it longer.
    let drips = thread::spawn(move || {
        (0..100).try_for_each(|_| -> io::Result<()> {
            thread::sleep(Duration::from_millis(20));
            slow.write_all(&[48])
        })
    });
    let greeted = greet(stream, &KEY, Side::Responder, Instant::now() + Duration::from_millis(200));
    assert!(matches!(greeted, Err(GreetError::Silent)));
    assert!(drips.join().unwrap().is_err());
}

/// Else the connection of one that has heard it may end before another one hears it, who takes it for lost.
#[test]
fn whoever_hears_that_all_end_says_so_too_before_it_ends() {
    let port = free_port();
    let ranks: Vec<Joining> = (0..3).map(|rank| joining(rank, 3, port)).collect();
    let mut joined = all(ranks.clone()).into_iter().map(Result::unwrap);
    let (first, [mut second, mut third]) = (joined.next().unwrap(), [(); 2].map(|()| joined.next().unwrap()));
    let flight = Arc::new(Flight::new(Box::new(|_, _, _| {})));
    let (ends, ended) = mpsc::channel();
    // What would end the process of this test waits instead.
    flight.set_last(Box::new(move |code| {
        ends.send(code).unwrap();
        loop {
            thread::park();
        }
    }));
    let _post = Post::start(&ranks[0], first, &flight);
    let (_, sealer) = third.peers[0].as_mut().unwrap();
    sealer.abort(6).unwrap();
    assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(6));
    let (opener, _) = second.peers[0].as_mut().unwrap();
    let said = |opener: &mut Opener| (0..20).map(|_| opener.next(usize::MAX).unwrap()).find(is_no_beat);
    assert_eq!(said(opener), Some(Frame::Abort(6)));
}

fn is_no_beat(frame: &Frame) -> bool {
    !matches!(frame, Frame::Beat(_))
}
