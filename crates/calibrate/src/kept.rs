//! Prices of this host that nobody asked for: measured once, quickly, and kept in the user's cache.

use std::path::{Path, PathBuf};
use std::time::Instant;

use cost_models::machine::{json, measured};
use files::{Failure, Say, written};
use sha2::{Digest as _, Sha256};

use crate::notes::Notes;
use crate::timing::Effort;

/// What this host is called in plans.
const NAME: &str = "this-host";

/// The machine file of this host.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// How long it was measured just now (seconds); nothing where it was there.
    pub seconds: Option<f64>,
}

/// The machine file of this host in a folder, for a version of the program: measured now where it is not there.
pub fn kept(folder: &Path, version: &str, say: &Say<'_>) -> Result<Kept, Failure> {
    let identity = crate::machine();
    let digest = Sha256::digest(format!("{identity}, shardloom {version}"));
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let folder = folder.join(format!("host-{hash}"));
    let path = folder.join(format!("{NAME}.json"));
    if path.exists() {
        return Ok(Kept { path, seconds: None });
    }
    std::fs::create_dir_all(&folder).map_err(|error| Failure::unwritten(&folder, &error))?;
    written::possible(&path)?;
    let start = Instant::now();
    let (found, _) = crate::measured(Effort::Quick, &mut Notes::nowhere(), &|what| {
        say(format!("the first time on this host: {what}").into());
    })?;
    let source = format!("measured quickly by `shardloom run` on {identity}, {}", crate::host::date());
    let machine =
        measured::host(NAME, &found, &source).map_err(|error| Failure::internal("calibrate", error))?;
    written::write(&path, json::write(&machine).as_bytes())?;
    Ok(Kept { path, seconds: Some(start.elapsed().as_secs_f64()) })
}
