//! A model on disk: its graph's bytes, and its weights where they lie.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use import::{Model, WeightData};
use lower::Strided;
use planner_ir::Type;
use run::Stored;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::mapped::Mapped;
use crate::readable;
use crate::train::checkpoint::hexadecimal;

/// An opened model.
#[derive(Debug)]
pub struct ModelFile {
    /// Where it is.
    pub path: PathBuf,
    /// The SHA-256 of the ONNX file, in hexadecimal.
    pub sha256: String,
    /// What it says.
    pub model: Model,
    /// The files beside it that should be there and are not.
    pub missing: Vec<String>,
    /// The files that are there.
    maps: Vec<Mapped>,
}

/// Opens a model and the files beside it that its weights are in.
pub fn open(path: &Path) -> Result<ModelFile, Failure> {
    readable::check(path)?;
    let unreadable = |error: io::Error| Failure::file(path, format!("cannot be read: {error}"));
    let map = Mapped::open(path).map_err(unreadable)?;
    let sha256 = sha256(path).map_err(unreadable)?;
    let mut model = import::read(map.bytes()).map_err(|error| Failure::file(path, error))?;
    let (mut missing, mut maps) = (Vec::new(), vec![map]);
    let files: Vec<String> = model.files().into_iter().map(str::to_owned).collect();
    for file in files {
        match Mapped::open(&beside(path, &file)?) {
            Ok(map) => {
                model.attach(&file, map.bytes());
                maps.push(map);
            }
            // A model without its weights can be planned.
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(file),
            Err(error) => return Err(Failure::file(path, format!("`{file}` cannot be read: {error}"))),
        }
    }
    Ok(ModelFile { path: path.to_owned(), sha256, model, missing, maps })
}

/// The path of a file that a model names, which has to lie below the model's folder.
fn beside(path: &Path, file: &str) -> Result<PathBuf, Failure> {
    let below = Path::new(file)
        .components()
        .all(|it| matches!(it, std::path::Component::Normal(_) | std::path::Component::CurDir));
    if !below {
        return Err(Failure::file(
            path,
            format!("weights in `{file}`, expected a file below the model's folder"),
        ));
    }
    Ok(path.parent().unwrap_or_else(|| Path::new("")).join(file))
}

/// The SHA-256 of a file, in hexadecimal. It is read, not mapped: what is mapped and looked at is counted as
/// memory of this process.
fn sha256(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut chunk) = (File::open(path)?, Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hexadecimal(hash.finalize())),
            count => hash.update(&chunk[..count]),
        }
    }
}

/// How much of a file is hashed at once (bytes).
const CHUNK: usize = 1 << 20;

impl ModelFile {
    /// A model that has been read, with the contents of files that have been attached to it.
    pub fn new(path: &Path, sha256: String, model: Model) -> Self {
        Self { path: path.to_owned(), sha256, model, missing: Vec::new(), maps: Vec::new() }
    }

    /// The bytes of a weight, where they lie in a file.
    fn bytes(&self, name: &str) -> Result<Bytes, String> {
        match self.model.weight(name).map_err(|error| error.to_string())? {
            WeightData::Bytes(data) => Ok(data),
            WeightData::External(external) => Err(format!(
                "the data are in `{}`, which is not beside the model; a model without weights can be planned but not run",
                external.file
            )),
        }
    }
}

/// Its weights.
impl Stored for ModelFile {
    fn type_of(&self, name: &str) -> Result<Type, String> {
        self.model.weight_type(name).ok_or_else(|| format!("the model has no weight `{name}`"))
    }

    fn read(&self, name: &str, elements: &Strided, to: &mut [u8]) -> Result<(), String> {
        self.maps.iter().try_for_each(Mapped::check)?;
        let (dtype, bytes) = (self.type_of(name)?.dtype, self.bytes(name)?);
        run::take(elements, dtype, &bytes, to)
    }

    /// Takes what has been looked at of its files out of this process's memory.
    fn release(&self) {
        self.maps.iter().for_each(Mapped::release);
    }
}

#[cfg(test)]
pub(crate) mod tests;
