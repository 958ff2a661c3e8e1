//! How a rank comes to another one.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::taken_apart;
use super::secure::{GreetError, Opener, Sealer, Side, greet};
use crate::processes::join::JoinError;

/// What one is told who has come and belongs here.
pub(super) const WELCOME: &str = "welcome";

/// What one is told who does not.
pub(super) const REFUSED: &str = "refused";

/// How long a rank waits before it tries again.
pub(super) const AGAIN: Duration = Duration::from_millis(40);
/// How long one attempt may take until the other one has proved that it knows the key of the job.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Why a rank was not welcome anywhere.
#[derive(Debug)]
pub(super) enum CallError {
    /// Whoever listens there does not know the key of the job.
    Stranger,
    /// Whoever listens there says nothing.
    Silent,
    /// Nobody is there, or it has hung up; in words.
    Broken(String),
    /// This rank does not belong there; in words.
    Refused(String),
    /// This rank has nothing to say.
    Own(JoinError),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger => write!(f, "it does not know this job's token"),
            Self::Silent => write!(f, "it says nothing"),
            Self::Broken(words) | Self::Refused(words) => f.write_str(words),
            Self::Own(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::from(GreetError::from(error))
    }
}

impl From<GreetError> for CallError {
    fn from(error: GreetError) -> Self {
        match error {
            GreetError::Stranger => Self::Stranger,
            GreetError::Silent => Self::Silent,
            GreetError::Gone => Self::Broken("it has hung up".to_owned()),
            GreetError::Broken(error) => Self::Broken(error.to_string()),
        }
    }
}

/// Comes to one of some places and says hello, for which it is known from which address, until it is
/// welcome. It is tried again until the deadline: whoever is there may start later, and so may what knows
/// its name, and where strangers are many it may have had to hang up.
pub(super) fn call(
    places: &dyn Fn() -> io::Result<Vec<SocketAddr>>,
    key: &[u8; 32],
    hello: &mut dyn FnMut(IpAddr) -> Result<Vec<u8>, JoinError>,
    deadline: Instant,
) -> Result<(Opener, Sealer), CallError> {
    loop {
        match attempt(places, key, hello, deadline) {
            Err(CallError::Silent | CallError::Broken(_)) if Instant::now() < deadline => {
                thread::sleep(AGAIN)
            }
            done => return done,
        }
    }
}

fn attempt(
    places: &dyn Fn() -> io::Result<Vec<SocketAddr>>,
    key: &[u8; 32],
    hello: &mut dyn FnMut(IpAddr) -> Result<Vec<u8>, JoinError>,
    deadline: Instant,
) -> Result<(Opener, Sealer), CallError> {
    // Where nobody is there, that is said, however late it is.
    let stream = connected(&places()?).map_err(|error| CallError::Broken(error.to_string()))?;
    let own = stream.local_addr()?.ip();
    let soon = deadline.min(Instant::now() + ATTEMPT);
    let (mut opener, mut sealer) = greet(stream, key, Side::Initiator, soon)?;
    sealer.message(0, &hello(own).map_err(CallError::Own)?)?;
    // Whoever is there may be on its way to another rank.
    match taken_apart(&opener.said_until(deadline)?).unwrap_or_default().as_slice() {
        [welcome] if welcome == WELCOME => Ok((opener, sealer)),
        [refused, words] if refused == REFUSED => Err(CallError::Refused(words.clone())),
        _ => Err(CallError::Broken("its message is invalid".to_owned())),
    }
}

/// A connection to the first of some places where somebody is.
fn connected(places: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for place in places {
        match TcpStream::connect_timeout(place, ATTEMPT).and_then(not_to_itself) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A connection that is not one of this process to itself: where nobody listens at a port of those that
/// connections are made from, the system may take it for one to itself.
pub(super) fn not_to_itself(stream: TcpStream) -> io::Result<TcpStream> {
    if stream.local_addr()? != stream.peer_addr()? {
        return Ok(stream);
    }
    // What has come and was not read lets the port be free at once.
    let _ = io::Write::write(&mut &stream, &[0]);
    Err(io::ErrorKind::ConnectionRefused.into())
}
