//! Arrays on disk: `.npz` and `.safetensors`.

mod entries; // whether an archive says one thing
mod npy; // one array as numpy writes it
mod npz; // numpy archives
mod tensors; // safetensors

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernels::Array;
use planner_ir::{DType, Type};
use run::Stored;

use crate::failure::Failure;
use crate::mapped::Mapped;
use crate::readable;

pub use tensors::write_each;

/// A file of arrays that is open. Which it has, and of what types, is known; the elements of one are read
/// when they are asked for.
#[derive(Debug)]
pub struct Arrays {
    path: PathBuf,
    types: BTreeMap<String, Type>,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Npz(npz::Archive),
    Safetensors(tensors::Tensors),
}

impl Arrays {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let form = form(path)?;
        let map = Mapped::open(path).map_err(|error| readable::failed(path, &error))?;
        let opened = match form {
            Form::Npz => npz::Archive::open(map).map(|it| (it.types(), Held::Npz(it))),
            Form::Safetensors => tensors::Tensors::open(map).map(|it| (it.types(), Held::Safetensors(it))),
        };
        let (types, held) = opened
            .map_err(|error| Failure::file(path, format!("is not a .{} file: {error}", form.ending())))?;
        Ok(Self { path: path.to_owned(), types, held })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names and types of its arrays.
    pub fn types(&self) -> &BTreeMap<String, Type> {
        &self.types
    }

    /// Where in the file the bytes of an array begin, where they lie there as they are.
    pub fn offset(&self, name: &str) -> Option<u64> {
        match &self.held {
            Held::Npz(_) => None,
            Held::Safetensors(tensors) => tensors.offset(name),
        }
    }

    /// An array.
    pub fn read(&self, name: &str) -> Result<Array, Failure> {
        let array = match &self.held {
            Held::Npz(archive) => archive.read(name),
            Held::Safetensors(tensors) => tensors.array(name),
        };
        array.map_err(|error| Failure::file(&self.path, format!("array `{name}`: {error}")))
    }
}

/// All arrays of a `.npz` or `.safetensors` file, by name.
pub fn read(path: &Path) -> Result<BTreeMap<String, Array>, Failure> {
    let file = Arrays::open(path)?;
    file.types.keys().map(|name| Ok((name.clone(), file.read(name)?))).collect()
}

/// Hands over the arrays of a `.safetensors` file one after the other: their names, and where blocks of them
/// are read from.
pub(crate) fn read_each(
    path: &Path,
    visit: &mut dyn FnMut(&str, &dyn Stored) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let file = Arrays::open(path)?;
    let Held::Safetensors(tensors) = &file.held else {
        return Err(Failure::file(path, "expected a name that ends in `.safetensors`"));
    };
    file.types.keys().try_for_each(|name| {
        visit(name, tensors)?;
        tensors.release();
        Ok(())
    })
}

/// Writes arrays to a `.npz` or `.safetensors` file. Numpy has no bfloat16: such arrays are
/// written to `.npz` as float32, which holds them exactly.
pub fn write(path: &Path, arrays: &BTreeMap<String, Array>) -> Result<(), Failure> {
    let contents = match form(path)? {
        Form::Npz => npz::contents(arrays),
        Form::Safetensors => tensors::contents(arrays),
    };
    let contents = contents.map_err(|error| Failure::file(path, error))?;
    crate::written::write(path, &contents)
}

/// What an array is called in a file of that name, if not as it is.
pub fn renamed(path: &Path, name: &str) -> Option<String> {
    let entry = form(path).is_ok_and(|form| form == Form::Npz).then(|| npz::entry_name(name))?;
    let written = entry.strip_suffix(npz::ENDING)?;
    (written != name).then(|| written.to_owned())
}

/// Refuses a name that arrays cannot be written under.
pub fn check_name(path: &Path) -> Result<(), Failure> {
    form(path).map(|_| ()).map_err(|failure| Failure::Usage(failure.to_string()))
}

/// The form of a file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Npz,
    Safetensors,
}

impl Form {
    fn ending(self) -> &'static str {
        match self {
            Self::Npz => "npz",
            Self::Safetensors => "safetensors",
        }
    }
}

fn form(path: &Path) -> Result<Form, Failure> {
    let ending = path.extension().and_then(|it| it.to_str());
    let form = [Form::Npz, Form::Safetensors].into_iter().find(|it| Some(it.ending()) == ending);
    form.ok_or_else(|| Failure::file(path, "expected a name that ends in `.npz` or `.safetensors`"))
}

/// A type whose sizes multiply to a number of bytes, also those beside one of 0.
fn typed(dtype: DType, shape: Vec<u64>) -> Result<Type, String> {
    let product = shape.iter().try_fold(dtype.bytes(), |product, &it| product.checked_mul(it.max(1)));
    match product.filter(|&it| i64::try_from(it).is_ok()) {
        Some(_) => Ok(Type::new(dtype, shape)),
        None => Err(format!("the shape {shape:?} has too many elements")),
    }
}

#[cfg(test)]
mod tests;
