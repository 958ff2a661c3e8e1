//! Inputs that are given, checked against what is expected.

use std::collections::BTreeMap;
use std::path::Path;

use kernels::Array;
use plan::Control;
use planner_ir::{DType, Graph, Op, Source, Type};

use crate::arrays::Arrays;
use crate::failure::Failure;

/// The arrays of a file: inputs, and outputs to compare with. They are read when they are asked for.
#[derive(Debug)]
pub struct Given {
    file: Arrays,
    /// Whether names say what each is.
    marked: bool,
    /// The types of the inputs, by name.
    pub inputs: BTreeMap<String, Type>,
    /// The types of the outputs that are expected, by name.
    pub outputs: BTreeMap<String, Type>,
}

/// What stands before the name of an input, in a file that has outputs too.
const INPUT: &str = "in/";
/// What stands before the name of an output.
const OUTPUT: &str = "out/";

/// The arrays of a file. If every name begins with `in/` or `out/`, that says what each is; else
/// all are inputs.
pub fn read(path: &Path) -> Result<Given, Failure> {
    let file = Arrays::open(path)?;
    let marked = file.types().keys().all(|name| name.starts_with(INPUT) || name.starts_with(OUTPUT));
    let of = |mark: &str| {
        let named =
            |(name, type_): (&String, &Type)| Some((name.strip_prefix(mark)?.to_owned(), type_.clone()));
        file.types().iter().filter_map(named).collect()
    };
    let (inputs, outputs) = if marked { (of(INPUT), of(OUTPUT)) } else { (of(""), BTreeMap::new()) };
    Ok(Given { file, marked, inputs, outputs })
}

impl Given {
    /// The elements of an input.
    pub fn input(&self, name: &str) -> Result<Array, Failure> {
        if self.marked { self.file.read(&format!("{INPUT}{name}")) } else { self.file.read(name) }
    }

    /// The elements of an output that is expected.
    pub fn output(&self, name: &str) -> Result<Array, Failure> {
        self.file.read(&format!("{OUTPUT}{name}"))
    }

    /// The inputs of a program, of its types: floating-point numbers are converted, and integers if
    /// that loses nothing. Inputs that the program lacks have to be among `ignored`, and those whose values
    /// are part of the program have to be as they are there.
    pub fn fitting(
        &self,
        graph: &Graph,
        controls: &[Control],
        ignored: &[&str],
    ) -> Result<BTreeMap<String, Array>, Failure> {
        check(graph, &self.inputs, ignored).map_err(|error| Failure::file(self.file.path(), error))?;
        for control in controls.iter().filter(|it| self.inputs.contains_key(&it.name)) {
            self.agrees(control)?;
        }
        let fitting = |(name, type_): (&str, &Type)| {
            let array = converted(self.input(name)?, type_);
            let array =
                array.map_err(|error| Failure::file(self.file.path(), format!("`{name}` {error}")))?;
            Ok((name.to_owned(), array))
        };
        expected(graph).into_iter().map(fitting).collect()
    }
}

impl Given {
    /// The inputs of these names, whose values are part of a program.
    pub fn controls<'a>(&self, names: impl Iterator<Item = &'a String>) -> Result<Vec<Control>, Failure> {
        let control = |name: &String| {
            let array = self.input(name)?;
            let value = number(&array);
            let wrong = || format!("`{name}` is {}, expected one number of 64 bits", array.type_());
            let value = value.ok_or_else(|| Failure::file(self.file.path(), wrong()))?;
            Ok(Control { name: name.clone(), shape: array.shape().to_vec(), value })
        };
        names.map(control).collect()
    }

    /// Refuses an input that is not as it was when the program was made for it.
    fn agrees(&self, control: &Control) -> Result<(), Failure> {
        let found = number(&self.input(&control.name)?);
        if found == Some(control.value) {
            return Ok(());
        }
        let Control { name, value, .. } = control;
        let found = found.map_or("no such number".to_owned(), |it| it.to_string());
        Err(Failure::file(
            self.file.path(),
            format!(
                "`{name}` is {found}, and the program is for {value}: it decides what is computed; plan again with \
                 these inputs, or leave it out"
            ),
        ))
    }
}

/// The number of an array of one, if it is whole.
fn number(array: &Array) -> Option<i64> {
    let wide = kernels::evaluate(&Op::Cast(DType::I64), &[array]).ok()?.pop()?;
    let bytes = <[u8; 8]>::try_from(wide.bytes()).ok()?;
    let number = i64::from_le_bytes(bytes);
    // What is beyond 64 bits with a sign would be another number.
    (array.dtype() != DType::U64 || number >= 0).then_some(number)
}

/// The array of an input whose value is part of a program.
pub fn control(it: &Control, dtype: DType) -> Result<Array, String> {
    let one = Array::of(it.shape.clone(), &[it.value]).map_err(|error| error.to_string())?;
    converted(one, &Type::new(dtype, it.shape.clone()))
}

/// The names and types of a program's inputs, in order.
pub fn expected(graph: &Graph) -> Vec<(&str, &Type)> {
    let inputs = graph.values.iter().filter_map(|value| match &value.source {
        Source::Input(name) => Some((name.as_str(), &value.type_)),
        _ => None,
    });
    inputs.collect()
}

/// Refuses inputs of which some are not of a program's types, are missing, or are too many.
fn check(graph: &Graph, given: &BTreeMap<String, Type>, ignored: &[&str]) -> Result<(), String> {
    let expected = expected(graph);
    let fault = |(name, type_): &(&str, &Type)| match given.get(*name) {
        None => Some(format!("`{name}` is missing")),
        Some(found) if found.shape != type_.shape || !converts(found.dtype, type_.dtype) => {
            Some(format!("`{name}` is {found}"))
        }
        Some(_) => None,
    };
    let mut faults: Vec<String> = expected.iter().filter_map(fault).collect();
    for name in given.keys() {
        if !expected.iter().any(|(it, _)| it == name) && !ignored.contains(&name.as_str()) {
            faults.push(format!("`{name}` is not an input"));
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    let listed: Vec<String> = expected.iter().map(|(name, type_)| format!("`{name}` {type_}")).collect();
    Err(format!("{}; expected {}", faults.join(", "), listed.join(", ")))
}

/// An array with elements of another type, which [`converts`].
pub fn converted(array: Array, expected: &Type) -> Result<Array, String> {
    if array.type_() == expected {
        return Ok(array);
    }
    let results = kernels::evaluate(&Op::Cast(expected.dtype), &[&array]);
    let result = results.map_err(|error| error.to_string())?.pop();
    result.ok_or_else(|| "could not be converted".to_owned())
}

/// Whether elements are converted without being asked: between floating-point types, and to
/// integers that hold every number.
pub fn converts(from: DType, to: DType) -> bool {
    let signed = |dtype| matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8);
    let number = !from.is_float() && !to.is_float() && from != DType::Bool && to != DType::Bool;
    let widens = from.bytes() < to.bytes() && (signed(to) || !signed(from));
    from == to || from.is_float() && to.is_float() || number && widens
}

#[cfg(test)]
mod tests;
