//! What was trained, as files: parameters by name, and the model with its new weights.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ::plan::Tie;
use import::WeightData;
use kernels::Array;
use planner_ir::{Op, State, StateKind, Type};

use crate::failure::Failure;
use crate::model_file::ModelFile;
use crate::{arrays, written};

/// Makes the whole of a state.
pub(crate) type Gather<'a> = &'a mut dyn FnMut(&State) -> Result<Array, Failure>;

/// For each trained parameter, under all the names that it has in the model file, the state that
/// has it in full precision; of a copy, that state under the copy's name.
pub(crate) fn trained(states: &BTreeMap<State, Type>, ties: &[Tie]) -> BTreeMap<String, (State, Type)> {
    let mut trained = BTreeMap::new();
    // A master is written over its parameter: kinds are in this order.
    for kind in [StateKind::Parameter, StateKind::Master] {
        for (state, type_) in states.iter().filter(|(state, _)| state.kind == kind) {
            trained.insert(state.name.clone(), (state.clone(), type_.clone()));
        }
    }
    for tie in ties {
        let Some((state, type_)) = trained.get(&tie.original).cloned() else { continue };
        let shape = if tie.transposed { type_.shape.iter().rev().copied().collect() } else { type_.shape };
        let state = State { kind: state.kind, name: tie.copy.clone() };
        trained.insert(tie.copy.clone(), (state, Type { dtype: type_.dtype, shape }));
    }
    trained
}

/// Writes the trained parameters under the names of the model's initializers.
pub(crate) fn write(
    path: &Path,
    trained: &BTreeMap<String, (State, Type)>,
    gather: Gather<'_>,
) -> Result<(), Failure> {
    let types: Vec<(String, Type)> =
        trained.iter().map(|(name, (_, type_))| (name.clone(), type_.clone())).collect();
    written::stream(path, &mut |to| {
        arrays::write_each(path, to, &types, &mut |name| {
            let known = trained.get(name).ok_or_else(|| Failure::internal("weights", name));
            gather(&known?.0)
        })
    })
}

/// The file of weights beside an exported model, if it needs one.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".data");
    path.with_file_name(name)
}

/// Writes the model with its trained weights, of the types that they had: not if these cannot say one of them.
/// If it has weights in other files, all of them come into one beside the new model.
pub(crate) fn export(
    path: &Path,
    file: &ModelFile,
    trained: &BTreeMap<String, (State, Type)>,
    gather: Gather<'_>,
) -> Result<(), Failure> {
    let data_path = beside(path);
    let name = data_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let new = |gather: Gather<'_>, weight: &str, type_: &Type| match trained.get(weight) {
        None => Ok(None),
        Some((state, _)) => gather(state).and_then(|array| converted(path, weight, &array, type_)).map(Some),
    };
    let replaced = file.model.replace(&name, &mut |weight, type_| {
        new(gather, weight, type_).map_err(|failure| failure.to_string())
    });
    let replaced = replaced.map_err(|error| Failure::file(&file.path, error))?;
    if !replaced.beside.is_empty() {
        let types: BTreeMap<&str, Type> = file.model.weights().into_iter().collect();
        let data = written::prepare(&data_path, &mut |to| {
            let mut end = 0;
            for piece in &replaced.beside {
                let gap = usize::try_from(piece.offset - end).unwrap_or(0);
                put(&data_path, to, &vec![0; gap])?;
                let type_ = types.get(piece.name.as_str());
                let trained = type_.map(|type_| new(gather, &piece.name, type_)).transpose()?.flatten();
                match trained {
                    Some(data) => put(&data_path, to, &data)?,
                    None => put(&data_path, to, &stored(file, &piece.name)?)?,
                }
                end = piece.offset + piece.length;
            }
            Ok(())
        })?;
        // Both are written before one of them is in its place.
        let model = written::prepare(path, &mut |to| put(path, to, &replaced.model))?;
        data.put()?;
        return model.put();
    }
    written::write(path, &replaced.model)
}

/// An array in the type of a weight. A number may be rounded, but not be beyond all that the type says.
fn converted(path: &Path, name: &str, array: &Array, type_: &Type) -> Result<Vec<u8>, Failure> {
    let internal = |error: &dyn std::fmt::Display| Failure::internal("export", format!("`{name}`: {error}"));
    if array.dtype() == type_.dtype {
        return Ok(array.bytes().to_vec());
    }
    let results = kernels::evaluate(&Op::Cast(type_.dtype), &[array]).map_err(|error| internal(&error))?;
    let made = results.first().ok_or_else(|| internal(&"could not be converted"))?;
    if type_.dtype.is_float() && array.dtype().is_float() {
        let floats = |it: &Array| it.to_floats().map_err(|error| internal(&error));
        let (wide, narrow) = (floats(array)?, floats(made)?);
        if let Some((wide, _)) =
            wide.iter().zip(&narrow).find(|(wide, it)| wide.is_finite() && !it.is_finite())
        {
            let dtype = type_.dtype;
            return Err(Failure::file(
                path,
                format!(
                    "not written: `{name}` is {dtype} in the model, and has {wide} after training, which no {dtype} \
                     says; `--weights FILE` writes it in full precision"
                ),
            ));
        }
    }
    Ok(made.bytes().to_vec())
}

fn stored(file: &ModelFile, name: &str) -> Result<Vec<u8>, Failure> {
    match file.model.weight(name).map_err(|error| Failure::file(&file.path, error))? {
        WeightData::Bytes(data) => Ok(data.to_vec()),
        WeightData::External(it) => Err(Failure::file(&file.path, format!("`{}` is not there", it.file))),
    }
}

fn put(path: &Path, to: &mut dyn Write, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unwritten(path, &error);
    to.write_all(bytes).map_err(failed)
}

#[cfg(test)]
mod tests;
