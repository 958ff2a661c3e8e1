//! A model on disk: its graph's bytes, and its weights where they lie.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use import::{Model, WeightData};
use kernels::Array;
use memmap2::Mmap;
use planner_ir::Type;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::readable;

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
}

/// Opens a model and the files beside it that its weights are in.
pub fn open(path: &Path) -> Result<ModelFile, Failure> {
    readable::check(path)?;
    let bytes = map(path).map_err(|error| Failure::file(path, format!("cannot be read: {error}")))?;
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut model = import::read(bytes).map_err(|error| Failure::file(path, error))?;
    let mut missing = Vec::new();
    let files: Vec<String> = model.files().into_iter().map(str::to_owned).collect();
    for file in files {
        match map(&beside(path, &file)?) {
            Ok(contents) => model.attach(&file, contents),
            // A model without its weights can be planned.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing.push(file),
            Err(error) => return Err(Failure::file(path, format!("`{file}` cannot be read: {error}"))),
        }
    }
    Ok(ModelFile { path: path.to_owned(), sha256, model, missing })
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

fn map(path: &Path) -> std::io::Result<Bytes> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(std::io::Error::other("is a folder"));
    }
    #[expect(unsafe_code, reason = "a file is mapped")]
    // SAFETY: the map is only read. If another process shortens the file meanwhile the system ends
    // this one, as it would any other reader of the map.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}

impl ModelFile {
    /// A weight, by its name.
    pub fn weight(&self, name: &str) -> Result<Array, String> {
        let data = match self.model.weight(name).map_err(|error| error.to_string())? {
            WeightData::Bytes(data) => data,
            WeightData::External(external) => {
                return Err(format!(
                    "the data are in `{}`, which is not beside the model; a model without weights can be planned but not run",
                    external.file
                ));
            }
        };
        let type_ = self.weight_type(name).ok_or_else(|| format!("the model has no weight `{name}`"))?;
        Array::from_bytes(type_, &data).map_err(|error| error.to_string())
    }

    fn weight_type(&self, name: &str) -> Option<Type> {
        self.model.weights().into_iter().find(|(it, _)| *it == name).map(|(_, type_)| type_)
    }
}
