//! Which sizes the dimensions of a model have.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::Type;

use crate::error::{ImportError, Unbound};
use crate::extent::{Extent, Sizes};
use crate::heads;
use crate::model::{Dim, Input, Model, extent};
use crate::positions::Positions;

/// What the dimensions of a model's inputs are, and the inputs that shapes or branches depend on.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// The sizes of symbols.
    pub dims: BTreeMap<String, u64>,
    /// The shapes of inputs, by name: they give sizes to the symbols in them.
    pub inputs: BTreeMap<String, Vec<u64>>,
    /// The values of inputs, by name, which are part of the graph then.
    pub controls: BTreeMap<String, Array>,
    /// Positions that are an input of the graph where the model takes them from the past's length.
    pub positions: Option<Positions>,
}

/// That a dimension has a size.
struct Equation {
    extent: Extent,
    size: u64,
    /// Where it comes from: `input_ids[0]`.
    place: String,
}

/// The type of every input.
pub(crate) fn shapes(model: &Model, bindings: &Bindings) -> Result<Vec<Type>, ImportError> {
    check_names(model, bindings)?;
    let given = given_shapes(model, bindings)?;
    let equations = equations(model, bindings, &given)?;
    let sizes = solve(&equations)?;
    let mut unbound: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut types = Vec::new();
    for input in model.inputs() {
        let mut shape = Vec::new();
        match (&input.dims, given.get(input.name.as_str())) {
            (_, Some(given)) => shape.clone_from(given),
            (None, None) => {
                unbound.entry(format!("{}[..]", input.name)).or_default().push(input.name.clone());
            }
            (Some(dims), None) => {
                for (index, dim) in dims.iter().enumerate() {
                    let place = format!("{}[{index}]", input.name);
                    shape.push(size(dim, &sizes, &place, &mut unbound)?);
                }
            }
        }
        types.push(Type::new(input.dtype, shape));
    }
    if unbound.is_empty() {
        return Ok(types);
    }
    Err(ImportError::Unbound(
        unbound.into_iter().map(|(symbol, places)| Unbound { symbol, places }).collect(),
    ))
}

fn size(
    dim: &Dim,
    sizes: &Sizes,
    place: &str,
    unbound: &mut BTreeMap<String, Vec<String>>,
) -> Result<u64, ImportError> {
    let text = match dim {
        Dim::Number(number) => return Ok(*number),
        Dim::Symbol(text) => text,
    };
    let extent = extent(text);
    let missing: Vec<&str> = extent.symbols().into_iter().filter(|it| !sizes.contains_key(*it)).collect();
    for symbol in &missing {
        unbound.entry((*symbol).to_owned()).or_default().push(place.to_owned());
    }
    match extent.size(sizes) {
        Some(size) => Ok(size),
        None if !missing.is_empty() => Ok(0),
        None => Err(ImportError::Binding(format!("`{text}` in {place} is not a size"))),
    }
}

/// Refuses names that the model lacks.
fn check_names(model: &Model, bindings: &Bindings) -> Result<(), ImportError> {
    let inputs: Vec<&str> = model.inputs().iter().map(|input| input.name.as_str()).collect();
    for name in bindings.inputs.keys().chain(bindings.controls.keys()) {
        if !inputs.contains(&name.as_str()) {
            let message = format!("there is no input `{name}`, there are {}", listed(inputs));
            return Err(ImportError::Binding(message));
        }
    }
    let symbols = model.symbols();
    let symbols: Vec<&str> = symbols.iter().map(|it| it.symbol.as_str()).collect();
    for name in bindings.dims.keys() {
        if extent(name).symbols().iter().any(|symbol| !symbols.contains(symbol)) {
            let message = format!("there is no dimension `{name}`, there are {}", listed(symbols));
            return Err(ImportError::Binding(message));
        }
    }
    Ok(())
}

fn listed(names: Vec<&str>) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The shapes of the inputs that are given one, or a value.
fn given_shapes<'a>(
    model: &'a Model,
    bindings: &'a Bindings,
) -> Result<BTreeMap<&'a str, Vec<u64>>, ImportError> {
    let mut given: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (name, shape) in &bindings.inputs {
        given.insert(name, shape.clone());
    }
    for (name, array) in &bindings.controls {
        let shape = given.entry(name).or_insert_with(|| array.shape().to_vec());
        let input = model.inputs().iter().find(|input| input.name == *name);
        if input.is_some_and(|input| input.dtype != array.dtype()) || *shape != array.shape() {
            let found = array.type_();
            return Err(ImportError::Binding(format!(
                "the value of `{name}` is {found}, which does not fit"
            )));
        }
    }
    Ok(given)
}

fn equations(
    model: &Model,
    bindings: &Bindings,
    given: &BTreeMap<&str, Vec<u64>>,
) -> Result<Vec<Equation>, ImportError> {
    let mut equations = Vec::new();
    for (name, &size) in &bindings.dims {
        equations.push(Equation { extent: extent(name), size, place: format!("the binding of `{name}`") });
    }
    for input in model.inputs() {
        let Some(shape) = given.get(input.name.as_str()) else { continue };
        equations.extend(of_input(input, shape)?);
    }
    let said = heads::sizes(model).into_iter();
    equations.extend(said.map(|(text, size, place)| Equation { extent: extent(text), size, place }));
    Ok(equations)
}

fn of_input(input: &Input, shape: &[u64]) -> Result<Vec<Equation>, ImportError> {
    let Some(dims) = &input.dims else { return Ok(Vec::new()) };
    if dims.len() != shape.len() {
        let message = format!("input `{}` has {} dimensions, given {shape:?}", input.name, dims.len());
        return Err(ImportError::Binding(message));
    }
    let mut equations = Vec::new();
    for (index, (dim, &size)) in dims.iter().zip(shape).enumerate() {
        let extent = match dim {
            Dim::Number(number) => Extent::Number(i128::from(*number)),
            Dim::Symbol(text) => extent(text),
        };
        equations.push(Equation { extent, size, place: format!("{}[{index}]", input.name) });
    }
    Ok(equations)
}

/// The sizes of symbols that follow, which no equation contradicts.
fn solve(equations: &[Equation]) -> Result<Sizes, ImportError> {
    let mut sizes = Sizes::new();
    loop {
        let before = sizes.len();
        for equation in equations {
            if let Some((symbol, size)) = equation.extent.solve(equation.size, &sizes) {
                sizes.insert(symbol, size);
            }
        }
        if sizes.len() == before {
            break;
        }
    }
    for Equation { extent, size, place } in equations {
        let unbound: Vec<&str> = extent.symbols().into_iter().filter(|it| !sizes.contains_key(*it)).collect();
        let found = extent.size(&sizes);
        let message = match unbound[..] {
            [] if found == Some(*size) => continue,
            [] => {
                let found = found.map_or_else(|| "no size".to_owned(), |found| found.to_string());
                format!(
                    "contradictory sizes: {place} is {size}, but `{extent}` is {found}{}",
                    because(extent, &sizes)
                )
            }
            [symbol] => format!(
                "no size of `{symbol}` makes `{extent}` {size}, which {place} is{}",
                because(extent, &sizes)
            ),
            _ => continue,
        };
        return Err(ImportError::Binding(message));
    }
    Ok(sizes)
}

/// The sizes that an expression was computed from.
fn because(extent: &Extent, sizes: &Sizes) -> String {
    if matches!(extent, Extent::Symbol(_)) {
        return String::new();
    }
    let symbols = extent.symbols();
    let known: Vec<String> =
        symbols.iter().filter_map(|symbol| Some(format!("{symbol} = {}", sizes.get(*symbol)?))).collect();
    if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) }
}
