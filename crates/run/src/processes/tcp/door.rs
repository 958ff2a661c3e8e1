//! A place where ranks come in, and strangers do not.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::secure::{GreetError, Opener, Sealer, Side, greet};

/// How long one who comes may take to say who it is.
const GREETING: Duration = Duration::from_secs(10);
/// How many may be about to say it; more have to wait.
const AT_ONCE: usize = 256;
/// How often it is looked who comes.
const LOOK: Duration = Duration::from_millis(4);

/// A rank that has come.
pub(super) struct Guest {
    pub(super) opener: Opener,
    pub(super) sealer: Sealer,
    pub(super) address: SocketAddr,
    /// What it has said first.
    pub(super) said: Vec<u8>,
}

/// Who comes next.
pub(super) enum Came {
    /// One that knows the key of the job.
    Guest(Guest),
    /// One that does not; from where.
    Stranger(IpAddr),
    /// Nobody before the deadline.
    Nobody,
}

/// The place. Each connection is looked at on its own, so that none keeps others waiting.
pub(super) struct Door {
    came: Receiver<Came>,
    is_open: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Opens it, until a deadline at the latest.
    pub(super) fn open(listener: TcpListener, key: [u8; 32], deadline: Instant) -> Self {
        let (tell, came) = mpsc::channel();
        let is_open = Arc::new(AtomicBool::new(true));
        let open = Arc::clone(&is_open);
        let thread = thread::spawn(move || attend(&listener, &key, deadline, &open, &tell));
        Self { came, is_open, thread: Some(thread) }
    }

    /// Who comes next.
    pub(super) fn next(&mut self, deadline: Instant) -> Came {
        let left = deadline.saturating_duration_since(Instant::now());
        self.came.recv_timeout(left).unwrap_or(Came::Nobody)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.is_open.store(false, Ordering::SeqCst);
        // It ends at its next look; afterwards the port is free.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn attend(
    listener: &TcpListener,
    key: &[u8; 32],
    deadline: Instant,
    is_open: &AtomicBool,
    tell: &Sender<Came>,
) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    let busy = Arc::new(AtomicUsize::new(0));
    while is_open.load(Ordering::SeqCst) && Instant::now() < deadline {
        let next = (busy.load(Ordering::SeqCst) < AT_ONCE).then(|| listener.accept());
        let Some(Ok((stream, address))) = next else {
            thread::sleep(LOOK);
            continue;
        };
        busy.fetch_add(1, Ordering::SeqCst);
        let (key, tell, busy) = (*key, tell.clone(), Arc::clone(&busy));
        let until = deadline.min(Instant::now() + GREETING);
        thread::spawn(move || {
            // Where nobody waits any more, nobody has to know.
            let _ = tell.send(met(stream, address, &key, until));
            busy.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Whoever has connected, once it has said who it is.
fn met(stream: TcpStream, address: SocketAddr, key: &[u8; 32], deadline: Instant) -> Came {
    let stranger = Came::Stranger(address.ip());
    let Ok((mut opener, sealer)) = greet(stream, key, Side::Responder, deadline) else { return stranger };
    // It knows the key: only its silence has to be bounded.
    let said = opener
        .set_silence(Some(GREETING))
        .and_then(|()| opener.said())
        .and_then(|said| opener.set_silence(None).map(|()| said))
        .map_err(GreetError::from);
    match said {
        Ok(said) => Came::Guest(Guest { opener, sealer, address, said }),
        Err(_) => stranger,
    }
}
