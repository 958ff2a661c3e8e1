//! Chains of functions of elements.
//!
//! A thread computes some neighbouring elements: it loads them with one instruction from each
//! operand whose elements are neighbours too. Results may lie where operands of their type and
//! shape do: a thread has read what it writes over.

use std::fmt::Write as _;

use planner_ir::DType;

use super::chain::{Chain, Input, Place, handed_on};
use super::launch::{Argument, Kernel, Launch, Uncovered, Work};
use super::number::computed;
use super::strides::{Arguments, Levels, index_type, own_strides, repeated_strides, signed};
use super::text::filled;
use super::vectors::WIDTHS;

/// The threads of a block.
const THREADS: u32 = 256;

/// How many bytes a thread loads from an operand at most, with one instruction or two.
const LOAD: u64 = 16;

const TEMPLATE: &str = "
/* $DOC */
KERNEL(256) $NAME($PARAMETERS) {
    $I at = ($I)(t_block() * 256 + t_thread());
    if (at >= ($I)count) return;
    at *= $V;
$LOADS    T_UNROLL
    for (int k = 0; k < $V; k++) {
$BODY    }
$STORES}
";

/// How a thread reads what belongs to its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Neighbours, at its own elements' index.
    Same,
    /// One element for all.
    Single,
    /// Neighbours, elsewhere.
    Neighbours,
    /// One for the neighbours of a thread.
    Repeated,
    /// Some distance apart.
    Apart,
}

/// What is read for elements: an operand, or a number that says where they are.
struct Source {
    access: Access,
    /// Which place of the levels it is, if it has one.
    place: Option<usize>,
}

/// The kernel of a chain.
pub(super) fn pointwise(chain: &Chain, doc: &str) -> Result<Work, Uncovered> {
    let count: u64 = chain.shape.iter().product();
    if count == 0 {
        return Ok(Work::default());
    }
    let places = places(chain);
    let strides = strides(chain, &places)?;
    let own = own_strides(&chain.shape);
    let all: Vec<Vec<i64>> = [own.clone()].into_iter().chain(strides.iter().flatten().cloned()).collect();
    let needs_levels = strides.iter().flatten().any(|it| !is_same(it, &own, &chain.shape));
    let levels = if needs_levels {
        Levels::new(&chain.shape, &all)
    } else {
        Levels { extents: vec![], strides: vec![] }
    };
    let width = width(chain, &levels, &strides, &own);
    let mut sources = Vec::new();
    let mut next = 1;
    for it in &strides {
        let place = it.is_some().then(|| {
            next += 1;
            next - 1
        });
        let access = match it {
            None => Access::Single,
            Some(it) if is_same(it, &own, &chain.shape) => Access::Same,
            Some(_) => access(&levels, next - 1, width),
        };
        sources.push(Source { access, place: place.filter(|_| access != Access::Same) });
    }
    let elements = chain.operands.iter().map(|it| it.type_.elements()).chain([count]).max().unwrap_or(0);
    let writer = Writer { chain, places: &places, sources: &sources, levels: &levels, width };
    let (source, arguments) = writer.text(index_type(elements), count, doc)?;
    let launch = Launch {
        kernel: Kernel::new("pointwise", &source, arguments.parameters),
        blocks: (count / width).div_ceil(u64::from(THREADS)),
        threads: THREADS,
        shared: 0,
        arguments: arguments.given,
    };
    Ok(Work { launches: vec![launch], room: 0 })
}

/// What steps read that no operand has, of each step.
pub(super) fn places(chain: &Chain) -> Vec<(usize, Place)> {
    let rank = chain.shape.len();
    let of = |(number, step): (usize, &super::chain::Step)| {
        step.places(rank).into_iter().map(move |place| (number, place)).collect::<Vec<_>>()
    };
    chain.steps.iter().enumerate().flat_map(of).collect()
}

/// For each operand and each place the strides over the shape; none if it is one number.
fn strides(chain: &Chain, places: &[(usize, Place)]) -> Result<Vec<Option<Vec<i64>>>, Uncovered> {
    let mut strides = Vec::new();
    for operand in &chain.operands {
        if operand.type_.elements() == 1 {
            strides.push(None);
            continue;
        }
        let own = repeated_strides(&operand.type_.shape, &chain.shape)
            .ok_or_else(|| Uncovered::Missing(format!("{} repeated to {:?}", operand.type_, chain.shape)))?;
        strides.push(Some(own));
    }
    for (_, place) in places {
        strides.push(match place {
            Place::Seed(_) => None,
            Place::Position => Some(own_strides(&whole(chain))),
            Place::Index(dim) => Some((0..chain.shape.len()).map(|it| i64::from(it == *dim)).collect()),
        });
    }
    Ok(strides)
}

/// The shape of the value that the chain makes a block of.
pub(super) fn whole(chain: &Chain) -> Vec<u64> {
    let extent = |dim: usize| chain.spans.get(dim).map_or(chain.shape[dim], |span| span.extent);
    (0..chain.shape.len()).map(extent).collect()
}

/// What a place is for the first element.
pub(super) fn start(chain: &Chain, place: Place) -> i64 {
    let first = |dim: usize| chain.spans.get(dim).map_or(0, |span| signed(span.start));
    match place {
        Place::Position => {
            own_strides(&whole(chain)).iter().enumerate().map(|(dim, stride)| stride * first(dim)).sum()
        }
        Place::Index(dim) => first(dim),
        Place::Seed(seed) => seed.cast_signed(),
    }
}

/// Whether strides move a place as others do, over extents.
pub(super) fn is_same(strides: &[i64], own: &[i64], shape: &[u64]) -> bool {
    strides.iter().zip(own).zip(shape).all(|((stride, own), &extent)| extent == 1 || stride == own)
}

/// How a thread reads a strided place.
fn access(levels: &Levels, place: usize, width: u64) -> Access {
    let (inner, outer) = match levels.strides[place].split_last() {
        Some((inner, outer)) => (*inner, outer),
        None => return Access::Repeated,
    };
    let aligned = outer.iter().all(|stride| stride % signed(width) == 0);
    match inner {
        0 => Access::Repeated,
        1 if aligned => Access::Neighbours,
        _ => Access::Apart,
    }
}

/// How many elements a thread computes: as many as can be loaded and stored at once.
fn width(chain: &Chain, levels: &Levels, strides: &[Option<Vec<i64>>], own: &[i64]) -> u64 {
    let row = levels.extents.last().map_or_else(|| chain.shape.iter().product(), |it| it.unsigned_abs());
    let read = chain.operands.iter().zip(strides);
    let read = read.filter(|(_, it)| it.as_ref().is_some_and(|it| is_same(it, own, &chain.shape)));
    let read = read.map(|(operand, _)| operand.type_.dtype);
    let written = chain.results.iter().map(|&(step, result)| chain.steps[step].results[result]);
    let smallest = read.chain(written).map(DType::bytes).min().unwrap_or(1).max(2);
    let fits = |width: u64| width * smallest <= LOAD && row.is_multiple_of(width);
    WIDTHS.into_iter().filter(|&width| fits(width)).max().unwrap_or(1)
}

/// What the source of a chain is written from.
struct Writer<'a> {
    chain: &'a Chain,
    places: &'a [(usize, Place)],
    sources: &'a [Source],
    levels: &'a Levels,
    width: u64,
}

impl Writer<'_> {
    fn text(&self, index: &str, count: u64, doc: &str) -> Result<(String, Arguments), Uncovered> {
        let mut arguments = Arguments::default();
        for (number, operand) in self.chain.operands.iter().enumerate() {
            arguments.reads(&format!("x{number}"), operand.type_.dtype, Argument::Operand(number));
        }
        for (number, &(step, result)) in self.chain.results.iter().enumerate() {
            let dtype = self.chain.steps[step].results[result];
            arguments.writes(&format!("y{number}"), dtype, Argument::Result(number));
        }
        arguments.integer("count", signed(count / self.width));
        self.levels.declare_extents("", &mut arguments);
        let loads = self.loads(index, &mut arguments);
        let (body, stores) = (self.body()?, self.stores());
        let source = filled(
            TEMPLATE,
            &[
                ("DOC", doc),
                ("PARAMETERS", &arguments.text()),
                ("I", index),
                ("V", &self.width.to_string()),
                ("LOADS", &loads),
                ("BODY", &body),
                ("STORES", &stores),
            ],
        );
        Ok((source, arguments))
    }

    /// What is read before the elements are computed.
    fn loads(&self, index: &str, arguments: &mut Arguments) -> String {
        let mut text = self.levels.taken_apart(index, "at", "");
        // Writing to a string does not fail.
        for (number, source) in self.sources.iter().enumerate() {
            let offset = match source.place {
                Some(place) => {
                    self.levels.declare_strides(place, &number.to_string(), arguments);
                    self.levels.offset(index, place, &number.to_string(), "")
                }
                None if source.access == Access::Single => "0".to_owned(),
                None => "at".to_owned(),
            };
            let Some(operand) = self.chain.operands.get(number) else {
                let place = self.places[number - self.chain.operands.len()].1;
                let position = format!("p{}", number - self.chain.operands.len());
                arguments.integer(&position, start(self.chain, place));
                let _ = writeln!(text, "    const t_i64 o{number} = {position} + ({offset});");
                continue;
            };
            let dtype = operand.type_.dtype;
            let (type_, name) = (computed(dtype), dtype.name());
            let width = self.width;
            let _ = match source.access {
                Access::Same | Access::Neighbours => writeln!(
                    text,
                    "    {type_} a{number}[{width}]; t_load_{name}_{width}(x{number} + ({offset}), a{number});"
                ),
                Access::Single | Access::Repeated => writeln!(
                    text,
                    "    {type_} a{number}; t_load_{name}_1(x{number} + ({offset}), &a{number});"
                ),
                Access::Apart => {
                    let step = self.step(number, source);
                    writeln!(
                        text,
                        "    {type_} a{number}[{width}];\n    T_UNROLL\n    for (int k = 0; k < {width}; k++) \
                         t_load_{name}_1(x{number} + ({offset}) + k * {step}, a{number} + k);"
                    )
                }
            };
        }
        for (number, &(step, result)) in self.chain.results.iter().enumerate() {
            let type_ = computed(self.chain.steps[step].results[result]);
            let _ = writeln!(text, "    {type_} r{number}[{}];", self.width);
        }
        text
    }

    /// The distance of what neighbouring elements read.
    fn step(&self, number: usize, source: &Source) -> String {
        let last = self.levels.extents.len().saturating_sub(1);
        let stride = source.place.and_then(|place| self.levels.strides[place].last().copied());
        match stride {
            None | Some(1) => "1".to_owned(),
            Some(0) => "0".to_owned(),
            Some(_) => format!("s{number}_{last}"),
        }
    }

    /// What is computed for each element.
    fn body(&self) -> Result<String, Uncovered> {
        let mut text = String::new();
        for (number, step) in self.chain.steps.iter().enumerate() {
            let inputs: Vec<(String, DType)> = step.inputs.iter().map(|it| self.input(*it)).collect();
            let own: Vec<String> = (0..self.places.len())
                .filter(|&it| self.places[it].0 == number)
                .map(|it| self.place(it))
                .collect();
            let body = step.body(&inputs, &own, &format!("v{number}"))?;
            for statement in &body.statements {
                let _ = writeln!(text, "        {statement}");
            }
            for (result, (value, dtype)) in body.results.iter().zip(&step.results).enumerate() {
                let handed = handed_on(*dtype, &format!("v{number}_{result}"), value);
                let _ = writeln!(text, "        {handed}");
            }
        }
        for (number, (step, result)) in self.chain.results.iter().enumerate() {
            let _ = writeln!(text, "        r{number}[k] = v{step}_{result};");
        }
        Ok(text)
    }

    fn input(&self, input: Input) -> (String, DType) {
        match input {
            Input::Operand(number) => {
                let dtype = self.chain.operands[number].type_.dtype;
                match self.sources[number].access {
                    Access::Single | Access::Repeated => (format!("a{number}"), dtype),
                    _ => (format!("a{number}[k]"), dtype),
                }
            }
            Input::Step(step, result) => {
                (format!("v{step}_{result}"), self.chain.steps[step].results[result])
            }
        }
    }

    /// A place for the element of a thread.
    fn place(&self, number: usize) -> String {
        let number = number + self.chain.operands.len();
        let source = &self.sources[number];
        match source.access {
            Access::Single => format!("o{number}"),
            Access::Same => format!("(o{number} + k)"),
            _ => format!("(o{number} + k * {})", self.step(number, source)),
        }
    }

    fn stores(&self) -> String {
        let mut text = String::new();
        for (number, &(step, result)) in self.chain.results.iter().enumerate() {
            let name = self.chain.steps[step].results[result].name();
            let _ = writeln!(text, "    t_store_{name}_{}(y{number} + at, r{number});", self.width);
        }
        text
    }
}
