//! The same program as processes on this host, one for each rank, started and started again.

use std::env;
use std::ffi::{OsStr, OsString};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use files::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::children::{Children, How};
use crate::contract::{self, ADDRESS, ATTEMPT, LEASH, LOCAL, PORT, RANK, SIZE, TOKEN, TOKEN_FILE};
use crate::listener::Listener;
use crate::nodes::Node;
use crate::token::secret;

/// The exit codes of failures that may not come again.
const AGAIN: [u8; 3] = [4, run::LOST, run::WAITED];

/// What is started.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// How many ranks on this host; else what the environment says.
    pub ranks: Option<u64>,
    /// How often to start again after a failure that may not come again.
    pub restarts: u64,
    /// The command of this program, and its arguments.
    pub command: &'a [OsString],
}

/// Starts ranks, and starts them again; how often it did.
pub fn start(job: &Job<'_>, listener: &dyn Listener) -> Result<u64, Failure> {
    let node = Node::of(&|name| env::var(name).ok())?;
    let here = job.ranks.or(node.ranks).ok_or_else(|| {
        Failure::Usage("the number of ranks on this host is missing, expected `launch -n 8`".to_owned())
    })?;
    let all = node.nodes.checked_mul(here).filter(|it| (1..=run::MOST_RANKS).contains(it));
    if all.is_none() {
        return Err(Failure::Usage(format!(
            "{here} ranks on each of {} hosts: expected from 1 to {} in all",
            node.nodes,
            run::MOST_RANKS
        )));
    }
    let told = Arc::new(AtomicUsize::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let number = usize::try_from(signal).unwrap_or(usize::MAX);
        let registered = signal_hook::flag::register_usize(signal, Arc::clone(&told), number);
        registered.map_err(|error| Failure::internal("launch", error))?;
    }
    let told = || Some(told.load(Ordering::SeqCst)).filter(|&it| it != 0);
    let mut attempt = 0;
    loop {
        let how = started(job, &node, here, attempt)?.ended(&told);
        let (code, words) = match &how {
            How::Done => return Ok(attempt),
            How::Told(signal) => {
                let code = u8::try_from(128 + signal).unwrap_or(u8::MAX);
                return Err(Failure::Ended(code, format!("launch: all ranks were ended by signal {signal}")));
            }
            How::Failed(code, words) => (*code, words),
        };
        if attempt == job.restarts || !AGAIN.contains(&code) {
            return Err(Failure::Ended(code, format!("launch: {words}")));
        }
        attempt += 1;
        listener.remark(&format!("launch: {words}; start {attempt} of {} again", job.restarts));
    }
}

/// Starts the ranks of this host.
fn started(job: &Job<'_>, node: &Node, here: u64, attempt: u64) -> Result<Children, Failure> {
    let program = env::current_exe().map_err(|error| Failure::internal("launch", error))?;
    let (address, port) = match &node.place {
        Some(place) => place.clone(),
        None => ("127.0.0.1".to_owned(), free_port()?),
    };
    // On one host nobody else has to know it.
    let given = [TOKEN, TOKEN_FILE].iter().any(|name| env::var_os(name).is_some());
    let token = if given || node.nodes > 1 { None } else { Some(secret()?) };
    let mut children = Children::default();
    for number in 0..here {
        let rank = node.node * here + number;
        let mut command = Command::new(&program);
        command.args(job.command).stdin(Stdio::piped()).stderr(Stdio::piped());
        contract::names().for_each(|name| {
            command.env_remove(name);
        });
        let size = node.nodes * here;
        let said: [(&str, &dyn AsRef<OsStr>); 7] = [
            (RANK, &rank.to_string()),
            (SIZE, &size.to_string()),
            (LOCAL, &number.to_string()),
            (ADDRESS, &address),
            (PORT, &port.to_string()),
            (ATTEMPT, &attempt.to_string()),
            (LEASH, &"1"),
        ];
        command.envs(said.map(|(name, text)| (name, text.as_ref().to_owned())));
        command.envs(token.iter().map(|it| (TOKEN, it)));
        children.start(rank, command)?;
    }
    Ok(children)
}

/// A port that nobody listens at.
fn free_port() -> Result<u16, Failure> {
    let found = TcpListener::bind(("127.0.0.1", 0)).and_then(|it| it.local_addr());
    let found =
        found.map_err(|error| Failure::Join(format!("there is no free port on this host: {error}")))?;
    Ok(found.port())
}
