//! What has been measured so far, kept in a file so that a measurement that was ended goes on where it
//! was.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use files::Failure;
use files::{readable, written};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The version of the file.
const FORMAT: u64 = 1;

/// What has been measured, by name.
#[derive(Debug)]
pub struct Notes {
    seconds: BTreeMap<String, f64>,
    /// Where it is kept; nowhere if it is not.
    path: Option<PathBuf>,
    /// What is measured: numbers of another one are of no use.
    what: String,
}

impl Notes {
    /// Nothing, kept nowhere.
    pub fn nowhere() -> Self {
        Self { seconds: BTreeMap::new(), path: None, what: String::new() }
    }

    /// What was measured of such a machine before a measurement for this output was ended, if it was. Nothing is
    /// measured for an output that cannot be written.
    pub fn beside(output: &Path, what: &str) -> Result<Self, Failure> {
        written::possible(output)?;
        let mut name = output.file_name().unwrap_or_default().to_os_string();
        name.push(".partial");
        Self::at(output.with_file_name(name), what)
    }

    /// What was measured of such a device before, kept in a folder; each has a file of its own there.
    pub fn of_device(folder: &Path, what: &str) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder).map_err(|error| Failure::unwritten(folder, &error))?;
        let hash: String = Sha256::digest(what).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self::at(folder.join(format!("measured-{hash}.json")), what)
    }

    fn at(path: PathBuf, what: &str) -> Result<Self, Failure> {
        let seconds = match readable::text_if_there(&path)? {
            Some(text) => read(&text, what).map_err(|why| Failure::file(&path, why))?,
            None => BTreeMap::new(),
        };
        Ok(Self { seconds, path: Some(path), what: what.to_owned() })
    }

    /// Forgets what was measured before: it is measured again.
    pub fn forget(&mut self) {
        self.seconds.clear();
    }

    /// How many measurements there are.
    pub fn count(&self) -> usize {
        self.seconds.len()
    }

    /// A measurement that was made.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.seconds.get(name).copied()
    }

    /// A measurement: as it was made, or made now, and kept.
    pub fn of(&mut self, name: &str, measure: impl FnOnce() -> Result<f64, Failure>) -> Result<f64, Failure> {
        if let Some(seconds) = self.get(name) {
            return Ok(seconds);
        }
        let seconds = measure()?;
        self.seconds.insert(name.to_owned(), seconds);
        if let Some(path) = &self.path {
            let text = json!({ "format": FORMAT, "machine": self.what, "seconds": self.seconds });
            written::write(path, format!("{text:#}\n").as_bytes())?;
        }
        Ok(seconds)
    }

    /// Takes the file away: what it was kept for is done.
    pub fn done(self) -> Result<(), Failure> {
        match self.path.map(|path| (std::fs::remove_file(&path), path)) {
            Some((Err(error), path)) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::unwritten(&path, &error))
            }
            _ => Ok(()),
        }
    }
}

/// The measurements of a file.
fn read(text: &str, what: &str) -> Result<BTreeMap<String, f64>, String> {
    const AGAIN: &str = "remove it to measure from the start";
    let value: Value = serde_json::from_str(text)
        .map_err(|error| format!("is no list of measurements: {error}; {AGAIN}"))?;
    if value["format"].as_u64() != Some(FORMAT) {
        return Err(format!("has format {}, this program writes {FORMAT}; {AGAIN}", value["format"]));
    }
    if value["machine"].as_str() != Some(what) {
        return Err(format!("was begun on {}, this is \"{what}\"; {AGAIN}", value["machine"]));
    }
    let none = serde_json::Map::new();
    let all = value["seconds"].as_object().unwrap_or(&none);
    let one = |(name, seconds): (&String, &Value)| {
        let number = seconds.as_f64().filter(|it| it.is_finite() && *it > 0.0);
        let number = number.ok_or_else(|| format!("`{name}` is {seconds}, expected seconds; {AGAIN}"))?;
        Ok((name.clone(), number))
    };
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
