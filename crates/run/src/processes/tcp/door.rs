//! A place where ranks come in, and strangers do not.
//!
//! One thread looks at all who have come and waits for none. Who says nothing for about a second has to
//! go. Where too many are there, or there is no room for one more, the one goes that has come first of
//! those who have proved nothing: a rank proves it as soon as it is there, and comes again if it was not
//! seen.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::secure::{GreetError, Greeted, Greeting, LOOK, Opener, Sealer, Side, is_late};

/// How long one who comes may take to prove that it knows the key.
const GREETING: Duration = Duration::from_secs(1);
/// How long it may take then to say who it is.
const HELLO: Duration = Duration::from_secs(5);
/// How many may be about to do so.
const AT_ONCE: usize = 256;
/// How many are let in between two looks at all: each is looked at several times before it has to go.
const A_LOOK: usize = AT_ONCE / 4;

/// A rank that has come.
pub(super) struct Guest {
    pub(super) opener: Opener,
    pub(super) sealer: Sealer,
    pub(super) address: SocketAddr,
    /// What it has said first.
    pub(super) said: Vec<u8>,
}

/// Who came and was let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Strangers {
    /// How many did not know the key of the job.
    pub(super) wrong: u64,
    /// How many did not say what they had to.
    pub(super) silent: u64,
    /// Where the last of them came from.
    pub(super) last: Option<IpAddr>,
}

impl Strangers {
    fn note(&mut self, address: SocketAddr, is_wrong: bool) {
        let count = if is_wrong { &mut self.wrong } else { &mut self.silent };
        *count = count.saturating_add(1);
        self.last = Some(address.ip());
    }
}

/// The place.
pub(super) struct Door {
    came: Receiver<Guest>,
    strangers: Arc<Mutex<Strangers>>,
    is_open: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Opens it, until it is dropped.
    pub(super) fn open(listener: TcpListener, key: [u8; 32]) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (tell, came) = mpsc::channel();
        let (strangers, is_open) = (Arc::default(), Arc::new(AtomicBool::new(true)));
        let mut look = Look { listener, key, visitors: Vec::new(), tell, strangers: Arc::clone(&strangers) };
        let open = Arc::clone(&is_open);
        let thread = thread::Builder::new().spawn(move || {
            while open.load(Ordering::SeqCst) {
                if !look.look() {
                    thread::sleep(LOOK);
                }
            }
        })?;
        Ok(Self { came, strangers, is_open, thread: Some(thread) })
    }

    /// The next one that knows the key of the job; none if nobody comes before the deadline.
    pub(super) fn next(&self, deadline: Instant) -> Option<Guest> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.came.recv_timeout(left).ok()
    }

    /// Who has come and was let go.
    pub(super) fn strangers(&self) -> Strangers {
        *locked(&self.strangers)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.is_open.store(false, Ordering::SeqCst);
        // It ends at its next look; afterwards the port is free.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn locked(strangers: &Mutex<Strangers>) -> MutexGuard<'_, Strangers> {
    strangers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What looks who comes.
struct Look {
    listener: TcpListener,
    key: [u8; 32],
    /// Those that are there, in the order in which they came.
    visitors: Vec<Visitor>,
    tell: Sender<Guest>,
    strangers: Arc<Mutex<Strangers>>,
}

/// One who has come.
struct Visitor {
    address: SocketAddr,
    stage: Stage,
    /// Until when it may stay so.
    until: Instant,
}

/// How far a visitor is.
enum Stage {
    /// It has to prove that it knows the key.
    Greets(Box<Greeting>),
    /// It has to say who it is.
    Speaks(Opener, Sealer),
}

/// What comes of a visitor.
enum Met {
    Waits(Visitor),
    Guest(Guest),
    /// It does not know the key.
    Wrong,
    /// It has not said what it had to.
    Silent,
}

impl Look {
    /// Looks once: whether there was something to do.
    fn look(&mut self) -> bool {
        let mut did = false;
        for _ in 0..A_LOOK {
            match self.listener.accept() {
                Ok((stream, address)) => self.let_in(stream, address),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // There may be no room for one more connection: then whoever is there makes room.
                Err(_) => {
                    did |= self.turn_out();
                    break;
                }
            }
            did = true;
        }
        let now = Instant::now();
        for visitor in std::mem::take(&mut self.visitors) {
            let address = visitor.address;
            match visitor.met(now) {
                Met::Waits(visitor) => self.visitors.push(visitor),
                // Where nobody waits any more, nobody has to know.
                Met::Guest(guest) => drop(self.tell.send(guest)),
                Met::Wrong => locked(&self.strangers).note(address, true),
                Met::Silent => locked(&self.strangers).note(address, false),
            }
        }
        did
    }

    fn let_in(&mut self, stream: TcpStream, address: SocketAddr) {
        if self.visitors.len() >= AT_ONCE {
            self.turn_out();
        }
        // One that has hung up already is no visitor.
        if let Ok(greeting) = Greeting::begin(stream, &self.key, Side::Responder) {
            let (stage, until) = (Stage::Greets(greeting), Instant::now() + GREETING);
            self.visitors.push(Visitor { address, stage, until });
        }
    }

    /// Lets the one go that has come first, of those who have proved nothing if there are any: whether
    /// there was one.
    fn turn_out(&mut self) -> bool {
        let proves_nothing = |it: &Visitor| matches!(it.stage, Stage::Greets(_));
        let first = self.visitors.iter().position(proves_nothing).unwrap_or(0);
        if first >= self.visitors.len() {
            return false;
        }
        let visitor = self.visitors.remove(first);
        locked(&self.strangers).note(visitor.address, false);
        true
    }
}

impl Visitor {
    /// What has come of it by now.
    fn met(self, now: Instant) -> Met {
        let Self { address, stage, mut until } = self;
        let (mut opener, sealer) = match stage {
            Stage::Speaks(opener, sealer) => (opener, sealer),
            Stage::Greets(greeting) => match greeting.advance() {
                Ok(Greeted::Done(opener, sealer)) => {
                    until = now + HELLO;
                    (opener, sealer)
                }
                Ok(Greeted::Waits(_)) if now >= until => return Met::Silent,
                Ok(Greeted::Waits(it)) => {
                    return Met::Waits(Self { address, stage: Stage::Greets(it), until });
                }
                Err(GreetError::Stranger) => return Met::Wrong,
                Err(_) => return Met::Silent,
            },
        };
        match opener.said() {
            Ok(said) => Met::Guest(Guest { opener, sealer, address, said }),
            Err(error) if is_late(&error) && now < until => {
                Met::Waits(Self { address, stage: Stage::Speaks(opener, sealer), until })
            }
            Err(_) => Met::Silent,
        }
    }
}
