//! Strangers, ranks that stop while they join, and what each may take for the other.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{KEY, check_connected, connect, flight, free_port, join, joining, soon};
use crate::processes::flight::Doing;
use crate::processes::join::Joining;
use crate::processes::tcp::call::{call, not_to_itself};
use crate::processes::tcp::door::Door;
use crate::processes::tcp::frame::{Frame, joined};
use crate::processes::tcp::rendezvous;
use crate::processes::tcp::secure::{GreetError, Opener, Sealer, Side, greet};

#[test]
fn strangers_neither_stop_nor_delay_ranks() {
    let port = free_port();
    let first = thread::spawn(move || join(&joining(0, 3, port)));
    let mut held = Vec::new();
    arbtest::arbtest(|u| {
        let mut stream = connect(port);
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
    let _ = connect(port).write_all(&huge);
    let others: Vec<_> = [1, 2].map(|rank| thread::spawn(move || join(&joining(rank, 3, port)))).into();
    let ranks = [first].into_iter().chain(others).map(|it| it.join().unwrap()).collect();
    check_connected(ranks);
    // Those that were held open are still silent: nobody has waited for them.
    drop(held);
}

/// A rank that has been welcome as others are, by hand: what it reads, what it writes.
fn by_hand(own: &Joining) -> (Opener, Sealer) {
    let places = || Ok(vec![(own.address.parse::<IpAddr>().unwrap(), own.port).into()]);
    let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let said = [own.rank.to_string(), own.host.clone(), place, own.size.to_string(), "1".to_owned()];
    call(&places, &own.key, &mut |_| Ok(joined(&said)), soon()).unwrap()
}

/// Who is named, by which ranks, with what exit code, where the last one of four stops at some point.
fn stops(then: impl FnOnce(Opener, Sealer)) -> Vec<(Option<String>, u8)> {
    let port = free_port();
    let (mut ended, mut last) = (Vec::new(), joining(3, 4, port));
    last.silence = Duration::from_secs(1);
    for rank in 0..3 {
        let (flight, ends) = flight();
        let own = Joining { rank, host: format!("host-{rank}"), ..last.clone() };
        thread::spawn(move || rendezvous::join(&own, &flight).map(drop));
        ended.push(ends);
    }
    let (opener, sealer) = by_hand(&last);
    then(opener, sealer);
    ended.into_iter().map(|it| it.recv_timeout(Duration::from_secs(60)).unwrap()).collect()
}

#[test]
fn a_rank_that_stops_while_it_joins_is_named_and_no_other() {
    let lost = "rank 3 on `host-3` has given no sign of life for 1 s".to_owned();
    let expected = vec![(Some(lost), 5), (None, 5), (None, 5)];
    let mut held = Vec::new();
    // Before it knows where the others are.
    assert_eq!(stops(|opener, sealer| held.push((opener, sealer))), expected);
    // When it knows, and goes to none of them: all have come then.
    let told = |mut opener: Opener, mut sealer: Sealer| {
        opener.let_wait().unwrap();
        opener.set_silence(Some(Duration::from_millis(100))).unwrap();
        // It gives signs of life until then.
        while !matches!(opener.next(1 << 20), Ok(Frame::Message(-1, _))) {
            sealer.beat(Doing::default()).unwrap();
        }
        (opener, sealer)
    };
    assert_eq!(stops(|opener, sealer| held.push(told(opener, sealer))), expected);
    let gone = "rank 3 on `host-3` is gone: its connection has ended".to_owned();
    assert_eq!(stops(|opener, sealer| drop(told(opener, sealer))), [(Some(gone), 5), (None, 5), (None, 5)]);
}

/// Strangers who hold more connections than may be about to say who they are, and make new ones as soon as
/// they are let go.
#[test]
fn a_flood_of_strangers_keeps_no_rank_out() {
    let port = free_port();
    let first = thread::spawn(move || join(&joining(0, 3, port)));
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let flood = thread::spawn(move || {
        let mut held = VecDeque::new();
        let place = SocketAddr::from(([127, 0, 0, 1], port));
        while !over.load(Ordering::SeqCst) {
            // There may be none left, or the rank may have all that it needs.
            match TcpStream::connect_timeout(&place, Duration::from_millis(50)) {
                Ok(stream) => held.push_back(stream),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
            if held.len() > 400 {
                held.pop_front();
            }
        }
    });
    let others = [1, 2].map(|rank| {
        thread::sleep(Duration::from_millis(300));
        thread::spawn(move || join(&joining(rank, 3, port)))
    });
    let ranks = [first].into_iter().chain(others).map(|it| it.join().unwrap()).collect();
    is_over.store(true, Ordering::SeqCst);
    flood.join().unwrap();
    check_connected(ranks);
}

#[test]
fn strangers_are_let_go_after_a_second_and_ranks_are_not() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    let door = Door::open(listener, KEY).unwrap();
    // More than may be there at once: the first ones have to go at once, and the others after a second.
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(place).unwrap()).collect();
    let wrong = greet(TcpStream::connect(place).unwrap(), &[8; 32], Side::Initiator, soon());
    assert!(matches!(wrong, Err(GreetError::Stranger)));
    let rank = greet(TcpStream::connect(place).unwrap(), &KEY, Side::Initiator, soon());
    let (_opener, mut sealer) = rank.unwrap();
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    }
    sealer.message(0, b"hello").unwrap();
    assert_eq!(door.next(soon()).unwrap().said, b"hello");
    let strangers = door.strangers();
    assert_eq!((strangers.wrong, strangers.silent), (1, 300));
}

/// What hangs up before it has said anything may be busy: whoever comes comes again.
#[test]
fn whoever_was_not_seen_comes_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let second = thread::spawn(move || join(&joining(1, 2, port)));
    drop(listener.accept().unwrap());
    let (mut opener, _sealer) = greet(listener.accept().unwrap().0, &KEY, Side::Responder, soon()).unwrap();
    opener.said_until(soon()).unwrap();
    drop((opener, _sealer, listener));
    check_connected(vec![join(&joining(0, 2, port)), second.join().unwrap()]);
}

/// The system takes what is sent from a port to the same port for a connection, where nobody listens.
#[test]
fn no_rank_takes_itself_for_another_one() {
    // Connections are made from even ports before others.
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (40_000..60_000).step_by(2).find(is_free).unwrap();
    let place = SocketAddr::from(([127, 0, 0, 1], port));
    let itself = (0..1_000_000).find_map(|_| TcpStream::connect_timeout(&place, Duration::from_secs(1)).ok());
    let itself = itself.unwrap();
    assert_eq!(itself.local_addr().unwrap(), itself.peer_addr().unwrap());
    assert_eq!(not_to_itself(itself).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    // The port is free at once, for the first rank.
    drop(TcpListener::bind(place).unwrap());
}
