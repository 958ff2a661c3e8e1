//! Which sizes the dimensions of a model have.
//!
//! The names of dimensions are hints: exporters give one to two sizes, and runtimes do not mind. Where the
//! shapes of inputs say so, what has a name is taken apart: the first dimension keeps it, and another
//! one is known by its place, `input[dimension]`. Numbers that the file says, and sizes that a name was
//! given, are no hints.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

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
    /// The sizes of symbols, and of single dimensions by their places: `input[dimension]`.
    pub dims: BTreeMap<String, u64>,
    /// The shapes of inputs, by name: they give sizes to the symbols in them.
    pub inputs: BTreeMap<String, Vec<u64>>,
    /// The values of inputs, by name, which are part of the graph then.
    pub controls: BTreeMap<String, Array>,
    /// The weights of one element that stay weights, because they may be trained: others are constants.
    pub parameters: BTreeSet<String>,
    /// Positions that are an input of the graph where the model takes them from the past's length.
    pub positions: Option<Positions>,
}

/// The sizes of the dimensions of a model's inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dimensions {
    /// By name, or where a name has another size elsewhere by place: what gives all inputs these shapes
    /// again.
    pub sizes: BTreeMap<String, u64>,
    /// The dimensions that have not the size that their name has.
    pub apart: Vec<Apart>,
}

/// A dimension that shares its name with one of another size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// Where it is: `labels[1]`.
    pub place: String,
    /// Its size.
    pub size: u64,
    /// What the model calls it.
    pub name: String,
    /// What that is elsewhere, if it is known.
    pub elsewhere: Option<u64>,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, size, name, elsewhere } = self;
        let elsewhere = elsewhere.map_or("cannot be that".to_owned(), |it| format!("is {it} elsewhere"));
        write!(
            f,
            "{place} is {size}, and `{name}`, as the model calls it, {elsewhere}: taken as a dimension of its \
             own (`--dim {name}=SIZE` does not bind it, `--dim {place}={size}` does)"
        )
    }
}

/// That a dimension has a size.
struct Equation<'a> {
    extent: Extent,
    size: u64,
    /// Where it comes from: `input_ids[0]`.
    place: String,
    /// What the model calls it, where that is no more than a hint.
    hint: Option<&'a str>,
}

/// The type of every input.
pub(crate) fn shapes(model: &Model, bindings: &Bindings) -> Result<Vec<Type>, ImportError> {
    let Bound { types, unbound, .. } = bound(model, bindings)?;
    if unbound.is_empty() {
        return Ok(types);
    }
    Err(ImportError::Unbound(
        unbound.into_iter().map(|(symbol, places)| Unbound { symbol, places }).collect(),
    ))
}

/// The sizes of the dimensions of inputs, as far as they are known.
pub(crate) fn dimensions(model: &Model, bindings: &Bindings) -> Result<Dimensions, ImportError> {
    Ok(bound(model, bindings)?.dimensions)
}

/// What follows from bindings.
struct Bound {
    types: Vec<Type>,
    dimensions: Dimensions,
    /// Symbols without a size, and where they occur.
    unbound: BTreeMap<String, Vec<String>>,
}

fn bound(model: &Model, bindings: &Bindings) -> Result<Bound, ImportError> {
    check_names(model, bindings)?;
    let given = given_shapes(model, bindings)?;
    let equations = equations(model, bindings, &given)?;
    let (sizes, apart) = solve(&equations)?;
    let mut unbound: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut types = Vec::new();
    let mut named = bindings.dims.clone();
    for input in model.inputs() {
        let given = given.get(input.name.as_str());
        let Some(dims) = &input.dims else {
            if given.is_none() {
                unbound.entry(format!("{}[..]", input.name)).or_default().push(input.name.clone());
            }
            types.push(Type::new(input.dtype, given.cloned().unwrap_or_default()));
            continue;
        };
        let mut shape = Vec::new();
        for (index, dim) in dims.iter().enumerate() {
            let place = place(input, index);
            let size = match (given, bindings.dims.get(&place)) {
                (Some(given), _) => Some(given[index]),
                (None, Some(size)) if matches!(dim, Dim::Symbol(_)) => Some(*size),
                (None, _) => size(dim, &sizes, &place, &mut unbound)?,
            };
            shape.push(size.unwrap_or(0));
            if let (Dim::Symbol(name), Some(size)) = (dim, size) {
                let own = extent(name).size(&sizes) != Some(size);
                named.insert(if own { place } else { name.clone() }, size);
            }
        }
        types.push(Type::new(input.dtype, shape));
    }
    Ok(Bound { types, dimensions: Dimensions { sizes: named, apart }, unbound })
}

/// Where a dimension of an input is.
fn place(input: &Input, index: usize) -> String {
    format!("{}[{index}]", input.name)
}

fn size(
    dim: &Dim,
    sizes: &Sizes,
    place: &str,
    unbound: &mut BTreeMap<String, Vec<String>>,
) -> Result<Option<u64>, ImportError> {
    let text = match dim {
        Dim::Number(number) => return Ok(Some(*number)),
        Dim::Symbol(text) => text,
    };
    let extent = extent(text);
    let missing: Vec<&str> = extent.symbols().into_iter().filter(|it| !sizes.contains_key(*it)).collect();
    for symbol in &missing {
        unbound.entry((*symbol).to_owned()).or_default().push(place.to_owned());
    }
    match extent.size(sizes) {
        Some(size) => Ok(Some(size)),
        None if !missing.is_empty() => Ok(None),
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
    let places: Vec<String> = model
        .inputs()
        .iter()
        .flat_map(|input| (0..input.dims.as_ref().map_or(0, Vec::len)).map(|index| place(input, index)))
        .collect();
    for name in bindings.dims.keys().filter(|name| !places.contains(name)) {
        if extent(name).symbols().iter().any(|symbol| !symbols.contains(symbol)) {
            let near = planner_ir::did_you_mean(name, symbols.iter().copied());
            let message = format!("there is no dimension `{name}`{near}, there are {}", listed(symbols));
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

fn equations<'a>(
    model: &'a Model,
    bindings: &Bindings,
    given: &BTreeMap<&str, Vec<u64>>,
) -> Result<Vec<Equation<'a>>, ImportError> {
    let mut equations = Vec::new();
    for (name, &size) in &bindings.dims {
        let place = format!("the binding of `{name}`");
        equations.push(Equation { extent: extent(name), size, place, hint: None });
    }
    for input in model.inputs() {
        let Some(dims) = &input.dims else { continue };
        let shape = given.get(input.name.as_str());
        if let Some(shape) = shape.filter(|shape| shape.len() != dims.len()) {
            let message = format!("input `{}` has {} dimensions, given {shape:?}", input.name, dims.len());
            return Err(ImportError::Binding(message));
        }
        for (index, dim) in dims.iter().enumerate() {
            let place = place(input, index);
            let own = bindings.dims.get(&place).copied();
            let Some(size) = shape.map(|shape| shape[index]).or(own) else { continue };
            if let Some(own) = own.filter(|own| *own != size) {
                let message = format!("contradictory sizes: {place} is {size}, but `{place}` is {own}");
                return Err(ImportError::Binding(message));
            }
            let (extent, hint) = match dim {
                Dim::Number(number) => (Extent::Number(i128::from(*number)), None),
                Dim::Symbol(text) => (extent(text), Some(text.as_str())),
            };
            // Whoever says the size of this very dimension knows that it is another one.
            if own.is_none() || hint.is_none() {
                equations.push(Equation { extent, size, place, hint });
            }
        }
    }
    let said = heads::sizes(model).into_iter();
    equations.extend(said.map(|(text, size, place)| Equation {
        extent: extent(text),
        size,
        place,
        hint: None,
    }));
    Ok(equations)
}

/// The sizes of symbols that follow, and what has another size than its name has.
fn solve(equations: &[Equation<'_>]) -> Result<(Sizes, Vec<Apart>), ImportError> {
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
    let mut apart = Vec::new();
    for Equation { extent, size, place, hint } in equations {
        let unbound: Vec<&str> = extent.symbols().into_iter().filter(|it| !sizes.contains_key(*it)).collect();
        let found = extent.size(&sizes);
        if unbound.len() > 1 || unbound.is_empty() && found == Some(*size) {
            continue;
        }
        // A name that was given a size which it has nowhere was given a wrong one.
        let elsewhere =
            |it: &Equation<'_>| it.hint.is_some() && it.extent == *extent && Some(it.size) == found;
        let firm = |it: &Equation<'_>| it.hint.is_none() && it.extent == *extent;
        if let Some(name) = hint
            && (!equations.iter().any(firm) || equations.iter().any(elsewhere))
        {
            let (place, name) = (place.clone(), (*name).to_owned());
            apart.push(Apart { place, size: *size, name, elsewhere: found });
            continue;
        }
        let message = match unbound[..] {
            [symbol] => format!(
                "no size of `{symbol}` makes `{extent}` {size}, which {place} is{}",
                because(extent, &sizes)
            ),
            _ => {
                let found = found.map_or_else(|| "no size".to_owned(), |found| found.to_string());
                format!(
                    "contradictory sizes: {place} is {size}, but `{extent}` is {found}{}",
                    because(extent, &sizes)
                )
            }
        };
        return Err(ImportError::Binding(message));
    }
    Ok((sizes, apart))
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
