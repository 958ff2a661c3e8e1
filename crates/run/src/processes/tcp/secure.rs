//! A connection that nobody else can read or write: Noise `NNpsk0`, keyed by what the ranks of a job
//! share.
//!
//! ```text
//! initiator → responder   48 bytes: a public key, proof that the key of the job is known
//! responder → initiator   48 bytes: the same
//! both ways               frames: at most 65,535 bytes, encrypted and numbered
//! ```
//!
//! All of it has a length of two bytes before it. Until the proof is there, exactly 50 bytes are read of
//! whoever has connected. One that fails to prove it is told so, by a length of zero.
//!
//! Nothing here waits while ranks meet: where less has come than is needed, it goes on at the next look.
//!
//! Source: The Noise Protocol Framework, revision 34, section 9.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use snow::{Builder, HandshakeState, StatelessTransportState};

/// What is agreed on: changed with the form of anything that is said.
const PROLOGUE: &[u8] = b"shardloom ranks 2";
/// The handshake and the ciphers.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The length of each message of the handshake (bytes): a public key and a tag.
const GREETING: usize = 48;
/// What one is told who does not know the key of the job: a length.
const TURNED_AWAY: [u8; 2] = [0; 2];
/// How often a connection is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(1);
/// The longest frame, encrypted (bytes).
const SEALED: usize = 65_535;
/// What a frame has of what was to be encrypted, at most (bytes): without its tag.
pub(super) const FRAME: usize = SEALED - 16;

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// It has connected.
    Initiator,
    /// It was connected to.
    Responder,
}

/// Why a connection is none.
#[derive(Debug)]
pub(super) enum GreetError {
    /// The other one does not know the key of the job, or is none of its ranks.
    Stranger,
    /// It said nothing for too long, or less than had to be said.
    Silent,
    /// It has hung up: it may have been busy.
    Gone,
    /// The connection broke.
    Broken(io::Error),
}

impl From<io::Error> for GreetError {
    fn from(error: io::Error) -> Self {
        match () {
            () if is_late(&error) => Self::Silent,
            () if is_end(&error) => Self::Gone,
            () => Self::Broken(error),
        }
    }
}

impl From<snow::Error> for GreetError {
    fn from(error: snow::Error) -> Self {
        Self::Broken(io::Error::other(error.to_string()))
    }
}

/// What is read of a connection.
pub(super) struct Opener {
    stream: Arc<TcpStream>,
    state: Arc<StatelessTransportState>,
    /// The number of the next frame.
    number: u64,
    /// The next frame with its length before it, as far as it has come.
    sealed: Vec<u8>,
    filled: usize,
    /// The next message, as far as it has come: its tag, its bytes.
    pub(super) pieces: Option<(i32, Vec<u8>)>,
}

/// What is written to a connection.
pub(super) struct Sealer {
    stream: Arc<TcpStream>,
    state: Arc<StatelessTransportState>,
    /// The number of the next frame.
    number: u64,
    sealed: Vec<u8>,
}

/// A connection whose two sides are about to prove that they know the key of the job.
pub(super) struct Greeting {
    stream: TcpStream,
    state: HandshakeState,
    side: Side,
    /// What the other side says, as far as it has come.
    message: [u8; 2 + GREETING],
    filled: usize,
}

/// How far a greeting is.
pub(super) enum Greeted {
    /// The other side has still to speak.
    Waits(Box<Greeting>),
    /// Both know the key.
    Done(Opener, Sealer),
}

impl Greeting {
    /// Begins one on a connection that was made just now.
    pub(super) fn begin(stream: TcpStream, key: &[u8; 32], side: Side) -> Result<Box<Self>, GreetError> {
        let builder = Builder::new(PATTERN.parse()?).prologue(PROLOGUE)?.psk(0, key)?;
        let state = match side {
            Side::Initiator => builder.build_initiator()?,
            Side::Responder => builder.build_responder()?,
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut own = Box::new(Self { stream, state, side, message: [0; 2 + GREETING], filled: 0 });
        if side == Side::Initiator {
            own.speak()?;
        }
        Ok(own)
    }

    /// Says what this side has to say. So little is taken at once by a connection on which nothing was sent.
    fn speak(&mut self) -> Result<(), GreetError> {
        let mut message = [0; 2 + GREETING];
        let length = self.state.write_message(&[], &mut message[2..])?;
        message[..2].copy_from_slice(&size(length));
        Ok((&self.stream).write_all(&message)?)
    }

    /// Looks what has come.
    pub(super) fn advance(mut self: Box<Self>) -> Result<Greeted, GreetError> {
        match read_up_to(&self.stream, &mut self.message, &mut self.filled) {
            Ok(()) => {}
            Err(_) if self.filled >= 2 && self.message[..2] != size(GREETING) => {
                return Err(GreetError::Stranger);
            }
            Err(error) if is_late(&error) => return Ok(Greeted::Waits(self)),
            Err(error) => return Err(error.into()),
        }
        let is_known = self.message[..2] == size(GREETING)
            && self.state.read_message(&self.message[2..], &mut []).is_ok();
        if !is_known {
            if self.side == Side::Responder {
                // Whoever does not hear it sees that nobody is there.
                let _ = (&self.stream).write_all(&TURNED_AWAY);
            }
            return Err(GreetError::Stranger);
        }
        if self.side == Side::Responder {
            self.speak()?;
        }
        let state = Arc::new(self.state.into_stateless_transport_mode()?);
        let stream = Arc::new(self.stream);
        let opener = Opener {
            stream: Arc::clone(&stream),
            state: Arc::clone(&state),
            number: 0,
            sealed: Vec::new(),
            filled: 0,
            pieces: None,
        };
        Ok(Greeted::Done(opener, Sealer { stream, state, number: 0, sealed: Vec::new() }))
    }
}

/// Makes a connection one between two ranks of a job, until a deadline.
pub(super) fn greet(
    stream: TcpStream,
    key: &[u8; 32],
    side: Side,
    deadline: Instant,
) -> Result<(Opener, Sealer), GreetError> {
    let mut greeting = Greeting::begin(stream, key, side)?;
    loop {
        greeting = match greeting.advance()? {
            Greeted::Done(opener, sealer) => return Ok((opener, sealer)),
            Greeted::Waits(it) => it,
        };
        look_again(deadline)?;
    }
}

/// Waits a moment before the next look, unless a deadline is over.
pub(super) fn look_again(deadline: Instant) -> io::Result<()> {
    if Instant::now() >= deadline {
        return Err(io::ErrorKind::TimedOut.into());
    }
    thread::sleep(LOOK);
    Ok(())
}

impl Opener {
    /// How long the other side may say nothing; none for any time.
    pub(super) fn set_silence(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(limit)
    }

    /// Lets reads and writes of the connection wait, once ranks have met.
    pub(super) fn let_wait(&self) -> io::Result<()> {
        self.stream.set_nonblocking(false)
    }

    /// The next frame, which is put after what is there. Where it has not come whole, what has come is kept
    /// for the next call.
    pub(super) fn open(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        self.fill(2)?;
        let length = usize::from(u16::from_le_bytes([self.sealed[0], self.sealed[1]]));
        self.fill(2 + length)?;
        self.filled = 0;
        let start = into.len();
        into.resize(start + length, 0);
        let opened = self.state.read_message(self.number, &self.sealed[2..2 + length], &mut into[start..]);
        let length = opened.map_err(|_| io::Error::other("what was received is not what was sent"))?;
        into.truncate(start + length);
        self.number += 1;
        Ok(())
    }

    /// Reads until so many bytes of the next frame are there.
    fn fill(&mut self, count: usize) -> io::Result<()> {
        self.sealed.resize(count.max(self.sealed.len()), 0);
        read_up_to(&self.stream, &mut self.sealed[..count], &mut self.filled)
    }
}

impl Sealer {
    /// For how long the other side may take nothing; none for any time.
    pub(super) fn set_silence(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_write_timeout(limit)
    }

    /// Sends a frame.
    pub(super) fn seal(&mut self, frame: &[u8]) -> io::Result<()> {
        self.sealed.resize(2 + frame.len() + (SEALED - FRAME), 0);
        let sealed = self.state.write_message(self.number, frame, &mut self.sealed[2..]);
        let length = sealed.map_err(|error| io::Error::other(error.to_string()))?;
        self.sealed[..2].copy_from_slice(&size(length));
        self.number += 1;
        (&*self.stream).write_all(&self.sealed[..2 + length])
    }

    /// Says that nothing more will come.
    pub(super) fn finish(&self) {
        // Where the connection is gone, it is known already.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
}

/// Whether the other side has hung up.
pub(super) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// Whether an error says that nothing has happened for too long, or not yet.
pub(super) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// Reads the rest of some bytes, of which so many are there; what has come stays where there is not enough.
fn read_up_to(mut stream: &TcpStream, bytes: &mut [u8], filled: &mut usize) -> io::Result<()> {
    while *filled < bytes.len() {
        match stream.read(&mut bytes[*filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => *filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The length before a frame.
fn size(length: usize) -> [u8; 2] {
    // Frames are cut so that it fits.
    u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes()
}

/// A text that nobody can guess.
pub(super) fn random() -> Result<String, String> {
    let parameters = PATTERN.parse().map_err(|error: snow::Error| error.to_string())?;
    let pair = Builder::new(parameters).generate_keypair().map_err(|error| error.to_string())?;
    Ok(pair.public.iter().map(|byte| format!("{byte:02x}")).collect())
}
