//! Arrays on disk: `.npz` and `.safetensors`.

mod npz; // numpy archives
mod tensors; // safetensors

use std::collections::BTreeMap;
use std::path::Path;

use kernels::Array;

use crate::failure::Failure;

pub(crate) use tensors::{read_each, types, write_each};

/// The arrays of a `.npz` or `.safetensors` file, by name.
pub fn read(path: &Path) -> Result<BTreeMap<String, Array>, Failure> {
    let form = form(path)?;
    crate::readable::check(path)?;
    match form {
        Form::Npz => npz::read(path),
        Form::Safetensors => tensors::read(path),
    }
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

/// Refuses a name that arrays cannot be written under.
pub fn check_name(path: &Path) -> Result<(), Failure> {
    form(path).map(|_| ()).map_err(|failure| Failure::Usage(failure.to_string()))
}

/// The form of a file, by its name.
enum Form {
    Npz,
    Safetensors,
}

fn form(path: &Path) -> Result<Form, Failure> {
    match path.extension().and_then(|it| it.to_str()) {
        Some("npz") => Ok(Form::Npz),
        Some("safetensors") => Ok(Form::Safetensors),
        _ => Err(Failure::file(path, "expected a name that ends in `.npz` or `.safetensors`")),
    }
}
