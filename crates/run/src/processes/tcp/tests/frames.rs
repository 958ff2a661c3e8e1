//! What goes over a connection, and what is put between.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::KEY;
use crate::processes::flight::Doing;
use crate::processes::tcp::frame::{Frame, joined, taken_apart};
use crate::processes::tcp::secure::{FRAME, GreetError, Opener, Sealer, Side, greet};

/// Two ends of a connection, and a way to put bytes between frames.
fn pair() -> ((Opener, Sealer), (Opener, Sealer), TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    let (raw, deadline) = (own.try_clone().unwrap(), Instant::now() + Duration::from_secs(20));
    let there = thread::spawn(move || greet(other, &KEY, Side::Responder, deadline).unwrap());
    let (own, there) = (greet(own, &KEY, Side::Initiator, deadline).unwrap(), there.join().unwrap());
    for opener in [&own.0, &there.0] {
        opener.let_wait().unwrap();
    }
    (own, there, raw)
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
    let there = there.join().unwrap();
    there.0.let_wait().unwrap();
    (own, between, onward, there)
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
        [48].into_iter().chain([0; 100]).try_for_each(|byte| -> io::Result<()> {
            thread::sleep(Duration::from_millis(20));
            slow.write_all(&[byte])
        })
    });
    let greeted = greet(stream, &KEY, Side::Responder, Instant::now() + Duration::from_millis(200));
    assert!(matches!(greeted, Err(GreetError::Silent)));
    assert!(drips.join().unwrap().is_err());
}
