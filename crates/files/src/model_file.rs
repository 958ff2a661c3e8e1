//! A model on disk: its graph's bytes, and its weights where they lie.

pub mod named; // files of weights whose names say what is in them

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use import::{Model, WeightData};
use lower::Strided;
use models::onnx::Data;
use models::{Use, Wanted};
use planner_ir::Type;
use run::Stored;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::mapped::Mapped;
use crate::written::folder;
use crate::{readable, written};

/// What has to be the same for all ranks: what it is, and its text.
pub type Facts = Vec<(String, String)>;

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
    /// What of its configuration is not in it, in words.
    pub left_out: Vec<String>,
    /// The files that are there.
    maps: Vec<Mapped>,
}

/// Opens a model and the files beside it that its weights are in; of a configuration what gives logits.
pub fn open(path: &Path) -> Result<ModelFile, Failure> {
    open_for(path, Use::Forward)
}

/// The same; of a configuration the graph for a use.
pub fn open_for(path: &Path, of: Use) -> Result<ModelFile, Failure> {
    let unreadable = |error: io::Error| readable::failed(path, &error);
    let map = Mapped::open(path).map_err(unreadable)?;
    if models::is_config(map.as_ref()) {
        return configured(path, map.as_ref(), of);
    }
    let sha256 = readable::open(path).and_then(|mut file| readable::sha256(&mut file)).map_err(unreadable)?;
    let mut model = import::read(map.bytes()).map_err(|error| Failure::file(path, error))?;
    let (mut missing, mut maps) = (Vec::new(), vec![map]);
    let files: Vec<String> = model.files().into_iter().map(str::to_owned).collect();
    for file in files {
        let opened = beside(path, &file)?.and_then(|place| {
            named::check(&place, &parts(&model, &file))?;
            Mapped::open(&place)
        });
        match opened {
            Ok(map) => {
                model.attach(&file, map.bytes());
                maps.push(map);
            }
            // A model without its weights can be planned.
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(file),
            Err(error) => return Err(Failure::file(path, format!("`{file}` cannot be read: {error}"))),
        }
    }
    Ok(ModelFile { path: path.to_owned(), sha256, model, missing, left_out: vec![], maps })
}

/// The same; of a configuration the graph that has this SHA-256.
pub(crate) fn open_of(path: &Path, sha256: &str) -> Result<ModelFile, Failure> {
    let first = open(path)?;
    let is_config = || Mapped::open(path).is_ok_and(|map| models::is_config(map.as_ref()));
    if first.sha256 == sha256 || !is_config() {
        return Ok(first);
    }
    let others = Use::ALL.into_iter().map(|of| open_for(path, of));
    Ok(others.filter_map(Result::ok).find(|it| it.sha256 == sha256).unwrap_or(first))
}

/// The model that `model` writes of the text of a configuration, which is called so.
pub fn configured(path: &Path, text: &[u8], of: Use) -> Result<ModelFile, Failure> {
    let text = std::str::from_utf8(text).map_err(|error| Failure::file(path, error))?;
    let made =
        models::written(text, &Wanted::of(of), Data::Absent).map_err(|error| Failure::file(path, error))?;
    let sha256 = readable::hexadecimal(Sha256::digest(&made.bytes));
    let model = import::read(made.bytes.into()).map_err(|error| Failure::internal("model", error))?;
    let missing = model.files().into_iter().map(str::to_owned).collect();
    Ok(ModelFile { missing, left_out: made.left_out, ..ModelFile::new(path, sha256, model) })
}

/// The place of a file that a model names, which has to lie below the model's folder: that in which its path
/// has it, or, where that is a link, that in which the file is that the link leads to. Links of its own may
/// lead no further.
fn beside(path: &Path, file: &str) -> Result<io::Result<PathBuf>, Failure> {
    let below = Path::new(file)
        .components()
        .all(|it| matches!(it, std::path::Component::Normal(_) | std::path::Component::CurDir));
    if !below {
        return Err(Failure::file(
            path,
            format!("weights in `{file}`, expected a file below the model's folder"),
        ));
    }
    let place = match fs::canonicalize(folder(path).join(file)) {
        Ok(place) => place,
        Err(error) => return Ok(Err(error)),
    };
    let linked = fs::canonicalize(path).ok();
    let folders = [fs::canonicalize(folder(path)).ok(), linked.and_then(|it| Some(it.parent()?.to_owned()))];
    if folders.into_iter().flatten().any(|folder| place.starts_with(folder)) {
        return Ok(Ok(place));
    }
    Err(Failure::file(
        path,
        format!(
            "weights in `{file}`, which is a link to {}, expected a file below the model's folder: have it there, or \
             have the model be a link to one beside it",
            place.display()
        ),
    ))
}

/// Where the weights of a model are in one of its files.
fn parts(model: &Model, file: &str) -> Vec<Range<u64>> {
    let places = model.places().into_iter().filter(|place| place.file == file);
    places.map(|it| it.offset..it.offset + it.length).collect()
}

impl ModelFile {
    /// A model that has been read, with the contents of files that have been attached to it.
    pub fn new(path: &Path, sha256: String, model: Model) -> Self {
        Self {
            path: path.to_owned(),
            sha256,
            model,
            missing: Vec::new(),
            left_out: Vec::new(),
            maps: Vec::new(),
        }
    }

    /// Refuses a model whose weights are not there.
    pub fn expect_weights(&self) -> Result<(), Failure> {
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(Failure::file(
            &self.path,
            format!(
                "its weights are in `{}`, which is not there: such a model can be planned, but not run",
                self.missing.join("`, `")
            ),
        ))
    }

    /// The files beside it that its weights are in, where they are.
    pub fn beside(&self) -> Vec<PathBuf> {
        self.model.files().into_iter().map(|file| folder(&self.path).join(file)).collect()
    }

    /// Refuses an output that is the model or a file of its weights.
    pub fn spares(&self, output: &Path) -> Result<(), Failure> {
        let read = [vec![self.path.clone()], self.beside()].concat();
        written::differs(output, &read.iter().map(PathBuf::as_path).collect::<Vec<_>>())
    }

    /// What each file of weights beside it is compared by with that of the same name on other hosts.
    pub fn prints(&self) -> Result<Facts, Failure> {
        let print = |file: &str| {
            let path = folder(&self.path).join(file);
            let print = readable::fingerprint(&path, &parts(&self.model, file));
            Ok((format!("the weights in `{file}`"), print.map_err(|error| readable::failed(&path, &error))?))
        };
        let missing = |file: &&str| !self.missing.iter().any(|it| it == file);
        self.model.files().into_iter().filter(missing).map(print).collect()
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
pub mod tests;
