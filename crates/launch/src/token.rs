//! What only the ranks of a job know.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use files::Failure;
use files::readable::{self, hexadecimal};
use sha2::{Digest, Sha256};

use crate::contract::{Launched, TOKEN, TOKEN_FILE, Variable};

/// The shortest token (characters): whoever has seen one connection can try tokens at leisure.
const SHORTEST: usize = 16;

/// Where random bytes are.
const RANDOM: &str = "/dev/urandom";

/// What only the ranks of a job know.
pub(crate) struct Token {
    /// From which connections are keyed.
    pub(crate) key: [u8; 32],
    /// Whether nobody else can know it: else it is what the launcher calls the job.
    pub(crate) is_secret: bool,
}

/// The token that was given, or what the launcher calls the job.
pub(crate) fn token(launched: &Launched, variable: Variable<'_>) -> Result<Token, Failure> {
    let (name, text) = match (variable(TOKEN), variable(TOKEN_FILE)) {
        (Some(_), Some(_)) => {
            return Err(Failure::Input(format!("`{TOKEN}` and `{TOKEN_FILE}` are set: set one")));
        }
        (Some(token), None) => (TOKEN, token),
        (None, Some(path)) => {
            let text = readable::open(Path::new(&path)).and_then(io::read_to_string);
            let text = text.map_err(|error| {
                Failure::Input(format!("`{TOKEN_FILE}` is `{path}`, which cannot be read: {error}"))
            })?;
            (TOKEN_FILE, text)
        }
        (None, None) => {
            let (address, port) = launched.place.clone().unwrap_or_default();
            let text = format!("{}\n{}\n{address}\n{port}", launched.launcher, launched.job);
            return Ok(Token { key: key("job", &text), is_secret: false });
        }
    };
    let token = text.trim();
    if token.len() < SHORTEST {
        return Err(Failure::Input(format!(
            "`{name}`: the token has {} characters, expected {SHORTEST} or more that nobody can guess, such as \
             those of `openssl rand -hex 32`",
            token.len()
        )));
    }
    Ok(Token { key: key("token", token), is_secret: true })
}

/// A token that nobody can guess.
pub(crate) fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    let read = File::open(RANDOM).and_then(|mut it| it.read_exact(&mut bytes));
    read.map_err(|error| Failure::Input(format!("{RANDOM} cannot be read: {error}")))?;
    Ok(hexadecimal(bytes))
}

fn key(kind: &str, text: &str) -> [u8; 32] {
    Sha256::digest(format!("shardloom {kind}\n{text}")).into()
}

/// Whether an address is this host's own way to itself.
pub(crate) fn is_loopback(address: &str) -> bool {
    address == "localhost" || address.parse().is_ok_and(|it: IpAddr| it.is_loopback())
}
