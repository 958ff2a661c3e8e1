//! A connection that nobody else can read or write: Noise `NNpsk0`, keyed by what the ranks of a job
//! share.
//!
//! ```text
//! initiator → responder   48 bytes: a public key, proof that the key of the job is known
//! responder → initiator   48 bytes: the same
//! both ways               frames: at most 65,535 bytes, encrypted and numbered
//! ```
//!
//! All of it has a length of two bytes before it. Until the proof is there, exactly 48 bytes are read
//! of whoever has connected, and for so long only as a deadline says.
//!
//! Source: The Noise Protocol Framework, revision 34, section 9.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snow::{Builder, StatelessTransportState};

/// What is agreed on: changed with the form of anything that is said.
const PROLOGUE: &[u8] = b"shardloom ranks 1";
/// The handshake and the ciphers.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The length of each message of the handshake (bytes): a public key and a tag.
const GREETING: usize = 48;
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
    /// The connection broke.
    Broken(io::Error),
}

impl From<io::Error> for GreetError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Silent,
            _ => Self::Broken(error),
        }
    }
}

/// What is read of a connection.
pub(super) struct Opener {
    stream: TcpStream,
    state: Arc<StatelessTransportState>,
    /// The number of the next frame.
    number: u64,
    sealed: Vec<u8>,
}

/// What is written to a connection.
pub(super) struct Sealer {
    stream: TcpStream,
    state: Arc<StatelessTransportState>,
    /// The number of the next frame.
    number: u64,
    sealed: Vec<u8>,
}

/// Makes a connection one between two ranks of a job, until a deadline.
pub(super) fn greet(
    mut stream: TcpStream,
    key: &[u8; 32],
    side: Side,
    deadline: Instant,
) -> Result<(Opener, Sealer), GreetError> {
    let wrong = |error: snow::Error| GreetError::Broken(io::Error::other(error.to_string()));
    let builder = Builder::new(PATTERN.parse().map_err(wrong)?);
    let builder = builder.prologue(PROLOGUE).and_then(|it| it.psk(0, key)).map_err(wrong)?;
    let state = match side {
        Side::Initiator => builder.build_initiator(),
        Side::Responder => builder.build_responder(),
    };
    let mut state = state.map_err(wrong)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(false)?;
    let mut message = [0; 2 + GREETING];
    for turn in [Side::Initiator, Side::Responder] {
        if turn == side {
            let length = state.write_message(&[], &mut message[2..]).map_err(wrong)?;
            message[..2].copy_from_slice(&size(length));
            stream.set_write_timeout(Some(left(deadline)?))?;
            stream.write_all(&message)?;
        } else {
            match read_until(&mut stream, &mut message, deadline) {
                Ok(()) => {}
                // Whoever does not like a greeting hangs up.
                Err(error) if is_end(&error) => return Err(GreetError::Stranger),
                Err(error) => return Err(error.into()),
            }
            if message[..2] != size(GREETING) {
                return Err(GreetError::Stranger);
            }
            state.read_message(&message[2..], &mut []).map_err(|_| GreetError::Stranger)?;
        }
    }
    let state = Arc::new(state.into_stateless_transport_mode().map_err(wrong)?);
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    let writes = stream.try_clone()?;
    let opener = Opener { stream, state: Arc::clone(&state), number: 0, sealed: Vec::new() };
    Ok((opener, Sealer { stream: writes, state, number: 0, sealed: Vec::new() }))
}

impl Opener {
    /// How long the other side may say nothing; none for any time.
    pub(super) fn set_silence(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(limit)
    }

    /// The next frame, which is put after what is there.
    pub(super) fn open(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut length = [0; 2];
        self.stream.read_exact(&mut length)?;
        self.sealed.resize(usize::from(u16::from_le_bytes(length)), 0);
        self.stream.read_exact(&mut self.sealed)?;
        let start = into.len();
        into.resize(start + self.sealed.len(), 0);
        let opened = self.state.read_message(self.number, &self.sealed, &mut into[start..]);
        let length = opened.map_err(|_| io::Error::other("what was received is not what was sent"))?;
        into.truncate(start + length);
        self.number += 1;
        Ok(())
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
        self.stream.write_all(&self.sealed[..2 + length])
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

/// Reads all of some bytes, however few come at a time, until a deadline.
fn read_until(stream: &mut TcpStream, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How long it is until a deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
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
