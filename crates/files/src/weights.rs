//! What was trained, as files: parameters by name, and the model with its new weights.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ::plan::Tie;
use import::{Beside, NewData, WeightData};
use kernels::Array;
use planner_ir::{Op, State, StateKind, Type};

use crate::Failure;
use crate::model_file::{ModelFile, named};
use crate::{arrays, written};

/// Makes the whole of a state.
pub type Gather<'a> = &'a mut dyn FnMut(&State) -> Result<Array, Failure>;

/// For each trained parameter, under all the names that it has in the model file, the state that
/// has it in full precision; of a copy, that state under the copy's name.
pub fn trained(states: &BTreeMap<State, Type>, ties: &[Tie]) -> BTreeMap<String, (State, Type)> {
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
pub fn write(
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

/// Writes the model with its trained weights, of the types that they had: not if these cannot say one of them.
/// If it has weights in other files, all of them come into one beside the new model, whose name says what is
/// in it: at any moment the model that is there, the old or the new one, has its own.
pub fn export(
    path: &Path,
    file: &ModelFile,
    trained: &BTreeMap<String, (State, Type)>,
    gather: Gather<'_>,
) -> Result<(), Failure> {
    let new = |gather: Gather<'_>, weight: &str, type_: &Type| match trained.get(weight) {
        None => Ok(None),
        Some((state, _)) => gather(state).and_then(|array| converted(path, weight, &array, type_)).map(Some),
    };
    let replace = |name: &str, data: NewData<'_>| {
        file.model.replace(name, data).map_err(|error| Failure::file(&file.path, error))
    };
    // Where weights lie in the file beside it does not depend on their data.
    let beside = replace("", &mut |_, _| Ok(None))?.beside;
    let types: BTreeMap<&str, Type> = file.model.weights().into_iter().collect();
    let data = write_beside(path, &beside, &mut |name| {
        let trained = types.get(name).map(|type_| new(gather, name, type_)).transpose()?.flatten();
        trained.map_or_else(|| stored(file, name), Ok)
    })?;
    let replaced = replace(data.as_deref().unwrap_or_default(), &mut |weight, type_| {
        new(gather, weight, type_).map_err(|failure| failure.to_string())
    })?;
    written::write(path, &replaced.model)?;
    let used: Vec<PathBuf> = file.beside();
    for old in named::of(path) {
        let is_used = old.file_name().and_then(|it| it.to_str()) == data.as_deref() || used.contains(&old);
        if !is_used {
            // What stays takes room and does no harm.
            let _ = std::fs::remove_file(&old);
        }
    }
    Ok(())
}

/// Writes the file beside a model, if it has something to hold: its name.
fn write_beside(
    path: &Path,
    pieces: &[Beside],
    make: &mut dyn FnMut(&str) -> Result<Vec<u8>, Failure>,
) -> Result<Option<String>, Failure> {
    if pieces.is_empty() {
        return Ok(None);
    }
    let provisional = named::provisional(path);
    let data = written::prepare(&provisional, &mut |to| {
        let mut end = 0;
        for piece in pieces {
            let gap = usize::try_from(piece.offset - end).unwrap_or(0);
            put(path, to, &vec![0; gap])?;
            put(path, to, &make(&piece.name)?)?;
            end = piece.offset + piece.length;
        }
        Ok(())
    })?;
    let parts: Vec<Range<u64>> = pieces.iter().map(|it| it.offset..it.offset + it.length).collect();
    data.put_as(&mut |content| named::name(path, content, &parts)).map(Some)
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
