//! Inputs that are given, checked against what is expected.

use std::collections::BTreeMap;
use std::path::Path;

use kernels::Array;
use planner_ir::{DType, Graph, Op, Source, Type};

use crate::arrays;
use crate::failure::Failure;

/// The arrays of a file: inputs, and outputs to compare with.
#[derive(Debug)]
pub(crate) struct Given {
    /// The inputs, by name.
    pub(crate) inputs: BTreeMap<String, Array>,
    /// The outputs that are expected, by name.
    pub(crate) outputs: BTreeMap<String, Array>,
}

/// What stands before the name of an input, in a file that has outputs too.
const INPUT: &str = "in/";
/// What stands before the name of an output.
const OUTPUT: &str = "out/";

/// The arrays of a file. If every name begins with `in/` or `out/`, that says what each is; else
/// all are inputs.
pub(crate) fn read(path: &Path) -> Result<Given, Failure> {
    let arrays = arrays::read(path)?;
    let mut given = Given { inputs: BTreeMap::new(), outputs: BTreeMap::new() };
    let marked = arrays.keys().all(|name| name.starts_with(INPUT) || name.starts_with(OUTPUT));
    for (name, array) in arrays {
        if !marked {
            given.inputs.insert(name, array);
        } else if let Some(name) = name.strip_prefix(OUTPUT) {
            given.outputs.insert(name.to_owned(), array);
        } else {
            given.inputs.insert(name.trim_start_matches(INPUT).to_owned(), array);
        }
    }
    Ok(given)
}

/// The names and types of a program's inputs, in order.
pub(crate) fn expected(graph: &Graph) -> Vec<(&str, &Type)> {
    let inputs = graph.values.iter().filter_map(|value| match &value.source {
        Source::Input(name) => Some((name.as_str(), &value.type_)),
        _ => None,
    });
    inputs.collect()
}

/// The inputs of a program, of its types: floating-point numbers are converted, and integers if
/// that loses nothing. Inputs that the program lacks have to be among `ignored`.
pub(crate) fn fitting(
    graph: &Graph,
    given: &BTreeMap<String, Array>,
    ignored: &[&str],
) -> Result<BTreeMap<String, Array>, String> {
    let expected = expected(graph);
    let mut faults = Vec::new();
    let mut fitting = BTreeMap::new();
    for (name, type_) in &expected {
        match given.get(*name).map(|array| converted(array, type_)) {
            None => faults.push(format!("`{name}` is missing")),
            Some(Err(fault)) => faults.push(format!("`{name}` {fault}")),
            Some(Ok(array)) => {
                fitting.insert((*name).to_owned(), array);
            }
        }
    }
    for name in given.keys() {
        if !expected.iter().any(|(it, _)| it == name) && !ignored.contains(&name.as_str()) {
            faults.push(format!("`{name}` is not an input"));
        }
    }
    if faults.is_empty() {
        return Ok(fitting);
    }
    let listed: Vec<String> = expected.iter().map(|(name, type_)| format!("`{name}` {type_}")).collect();
    Err(format!("{}; expected {}", faults.join(", "), listed.join(", ")))
}

pub(crate) fn converted(array: &Array, expected: &Type) -> Result<Array, String> {
    let found = array.type_();
    if found.shape != expected.shape || !converts(found.dtype, expected.dtype) {
        return Err(format!("is {found}"));
    }
    if found == expected {
        return Ok(array.clone());
    }
    let results = kernels::evaluate(&Op::Cast(expected.dtype), &[array]);
    let result = results.map_err(|error| error.to_string())?.pop();
    result.ok_or_else(|| "could not be converted".to_owned())
}

/// Whether elements are converted without being asked: between floating-point types, and to
/// integers that hold every number.
pub(crate) fn converts(from: DType, to: DType) -> bool {
    let signed = |dtype| matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8);
    let number = !from.is_float() && !to.is_float() && from != DType::Bool && to != DType::Bool;
    let widens = from.bytes() < to.bytes() && (signed(to) || !signed(from));
    from == to || from.is_float() && to.is_float() || number && widens
}

#[cfg(test)]
mod tests;
