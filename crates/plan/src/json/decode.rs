//! From what a file says to a plan.

use std::fmt;

use planner_ir::{
    Axis, AxisId, Digit, Graph, Layout, Mesh, Move, Node, Partition, ValueId, parse_graph, parse_layout,
    parse_partition,
};

use super::error::{ReadError, shown};
use super::file;
use crate::pin::Pin;
use crate::plan::{
    Assignment, Control, Copy, Exchanged, Hidden, Holding, LeftOut, ModelFile, Plan, Proof, SpaceSize, Term,
    Transfer, shared,
};

type Result<T> = std::result::Result<T, ReadError>;

/// How much the times of moves may differ from what they take together, relative to that.
const TOLERANCE: f64 = 1e-9;
/// How many digits, and axes in them, a layout or a partition has at most.
const MAX_TERMS: usize = 64;
/// How many loops an operation has at most for each dimension of its operands and results.
const MAX_LOOPS: usize = 8;

/// The plan that a file says.
pub(super) fn plan(body: &file::Body) -> Result<Plan> {
    let mesh = mesh(&body.mesh)?;
    let text = body.graph.join("\n");
    let graph = parse_graph(&text).map_err(|error| text_error("plan.graph", error))?;
    same_count("plan.values", body.values.len(), graph.values.len())?;
    same_count("plan.operations", body.operations.len(), graph.nodes.len())?;
    same_count("plan.outputs", body.outputs.len(), graph.outputs.len())?;
    let states = graph.training.as_ref().map_or(0, |training| training.carried.len());
    same_count("plan.carried", body.carried.len(), states)?;
    let tables = Tables {
        layouts: table("plan.layouts", &body.layouts, |text| parse_layout(&mesh, text))?,
        partitions: table("plan.partitions", &body.partitions, |text| parse_partition(&mesh, text))?,
        graph,
        mesh,
    };
    Ok(Plan {
        model: ModelFile {
            path: body.model.path.clone(),
            sha256: body.model.sha256.clone(),
            dims: body.model.dims.iter().map(|dim| (dim.name.clone(), dim.size)).collect(),
        },
        machine: body.machine.named(),
        layouts: each("plan.values", &body.values, |place, index, &layout| {
            tables.layout(place, layout, index)
        })?,
        assignments: each("plan.operations", &body.operations, |place, index, it| {
            tables.operation(place, it, &tables.graph.nodes[index])
        })?,
        transfers: each("plan.transfers", &body.transfers, |place, _, it| tables.transfer(place, it))?,
        outputs: body.outputs.iter().copied().map(copy).collect(),
        carried: body.carried.iter().copied().map(copy).collect(),
        recipe: body.recipe.as_ref().map(file::Recipe::read),
        pins: each("plan.pins", &body.pins, |place, _, it| tables.pin(place, it))?,
        controls: body.controls.iter().map(control).collect(),
        estimate: body.estimate.iter().map(term).collect(),
        hidden: Hidden { forward: body.hidden.forward, backward: body.hidden.backward },
        memory: body.memory.iter().map(holding).collect(),
        capacity: body.capacity,
        proof: match body.proof {
            file::Proof::Optimal => Proof::Optimal,
            file::Proof::Gap { lower_bound } => Proof::Gap { lower_bound },
        },
        space: space(&body.space),
        mesh: tables.mesh,
        graph: tables.graph,
    })
}

/// What entries of other tables are read with.
struct Tables {
    mesh: Mesh,
    graph: Graph,
    layouts: Vec<Layout>,
    partitions: Vec<Partition>,
}

impl Tables {
    /// The layout of that number, for a value.
    ///
    /// It has as many dimensions as the value, so that a table's entry cannot be made to fill
    /// memory by being named often.
    fn layout(&self, place: &dyn fmt::Display, layout: usize, value: usize) -> Result<Layout> {
        let found = entry(place, "layouts", &self.layouts, layout)?;
        let rank = self.graph.values.get(value).map_or(0, |value| value.type_.rank());
        if found.dims.len() == rank {
            return Ok(found.clone());
        }
        let found = format!("{layout}, a layout of {} dimensions", found.dims.len());
        Err(field(place, found, format!("one of {rank} dimensions, as value {value} has")))
    }

    fn operation(&self, place: &dyn fmt::Display, it: &file::Operation, node: &Node) -> Result<Assignment> {
        let file::Operation::Computed(it) = it else { return Ok(Assignment::Prepared) };
        let place = format!("{place}.partition");
        let partition = entry(&place, "partitions", &self.partitions, it.partition)?;
        let ranks = node.operands.iter().chain(&node.results);
        let ranks = ranks.filter_map(|value| self.graph.values.get(value.0)).map(|value| value.type_.rank());
        let most = MAX_LOOPS * (1 + ranks.sum::<usize>());
        if partition.loops.len() > most {
            let found = format!("{}, a partition of {} loops", it.partition, partition.loops.len());
            return Err(field(&place, found, format!("{most} loops at most")));
        }
        Ok(Assignment::Computed {
            partition: partition.clone(),
            operands: it.operands.iter().copied().map(copy).collect(),
            bytes: it.bytes.clone(),
            seconds: it.seconds,
            exchanged: Exchanged { rows: it.exchanged, links: it.links },
        })
    }

    fn pin(&self, place: &dyn fmt::Display, it: &file::Pin) -> Result<Pin> {
        let partition = entry(&format!("{place}.partition"), "partitions", &self.partitions, it.partition)?;
        Ok(Pin { operations: it.operations.clone(), partition: partition.clone() })
    }

    fn transfer(&self, place: &dyn fmt::Display, it: &file::Transfer) -> Result<Transfer> {
        let seconds = it.each.clone().unwrap_or_else(|| shared(it.seconds, &it.bytes));
        let sum: f64 = seconds.iter().sum();
        if it.each.is_some() && (sum - it.seconds).abs() > TOLERANCE * it.seconds.abs() {
            let found = format!("times that add up to {sum} seconds");
            return Err(field(&format!("{place}.each"), found, format!("{}, as `seconds` says", it.seconds)));
        }
        Ok(Transfer {
            value: ValueId(it.value),
            from: copy(it.from),
            moves: each(&format!("{place}.moves"), &it.moves, |place, _, step| self.step(place, step))?,
            layout: self.layout(&format!("{place}.layout"), it.layout, it.value)?,
            bytes: it.bytes.clone(),
            seconds,
            waits: it.waits,
        })
    }

    fn step(&self, place: &dyn fmt::Display, step: &file::Move) -> Result<Move> {
        let digits = |text: &str| self.digits(place, text);
        Ok(match step {
            file::Move::Slice { dim, digits: text } => Move::Slice { dim: *dim, digits: digits(text)? },
            file::Move::AllGather { dim, digits } => Move::AllGather { dim: *dim, digits: *digits },
            file::Move::AllReduce { axes } => {
                let axes = axes.iter().map(|name| self.axis(place, name)).collect::<Result<_>>()?;
                Move::AllReduce { axes }
            }
            file::Move::ReduceScatter { dim, digits: text } => {
                Move::ReduceScatter { dim: *dim, digits: digits(text)? }
            }
            file::Move::AllToAll { from, to, digits: text } => {
                Move::AllToAll { from: *from, to: *to, digits: digits(text)? }
            }
            file::Move::Permute { dims } => {
                let place = format!("{place}.dims");
                let layout = parse_layout(&self.mesh, dims).map_err(|error| text_error(&place, error))?;
                if !layout.owed.is_empty() {
                    return Err(field(&place, format!("`{}`", shown(dims)), "the digits of each dimension"));
                }
                Move::Permute { dims: layout.dims }
            }
        })
    }

    fn axis(&self, place: &dyn fmt::Display, name: &str) -> Result<AxisId> {
        let names: Vec<&str> = self.mesh.axes.iter().map(|axis| axis.name.as_str()).collect();
        let expected = || format!("one of the axes `{}`", names.join("`, `"));
        let error = || field(&format!("{place}.axes"), format!("`{}`", shown(name)), expected());
        self.mesh.axis_named(name).ok_or_else(error)
    }

    /// The digits of one dimension.
    fn digits(&self, place: &dyn fmt::Display, text: &str) -> Result<Vec<Digit>> {
        let place = format!("{place}.digits");
        let layout =
            parse_layout(&self.mesh, &format!("[{text}]")).map_err(|error| text_error(&place, error))?;
        match <[Vec<Digit>; 1]>::try_from(layout.dims) {
            Ok([digits]) if layout.owed.is_empty() => Ok(digits),
            _ => Err(field(&place, format!("`{}`", shown(text)), "the digits of one dimension")),
        }
    }
}

fn mesh(axes: &[file::Sized]) -> Result<Mesh> {
    for (index, axis) in axes.iter().enumerate() {
        let error = |name: &str, found: String, expected: &str| {
            field(&format!("plan.mesh[{index}].{name}"), found, expected)
        };
        let word =
            !axis.name.is_empty() && axis.name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
        if !word || axes[..index].iter().any(|before| before.name == axis.name) {
            let expected = "a name of letters, digits and underscores that no other axis has";
            return Err(error("name", format!("`{}`", shown(&axis.name)), expected));
        }
        if axis.size == 0 {
            return Err(error("size", "0".to_owned(), "a size from 1"));
        }
    }
    Ok(Mesh { axes: axes.iter().map(|axis| Axis { name: axis.name.clone(), size: axis.size }).collect() })
}

/// The entries of a table of text forms.
fn table<T: Digits>(
    place: &str,
    texts: &[String],
    parse: impl Fn(&str) -> std::result::Result<T, planner_ir::ParseError>,
) -> Result<Vec<T>> {
    each(place, texts, |place, _, text| {
        let it = parse(text).map_err(|error| text_error(place, error))?;
        let terms = it.digits().iter().flatten().map(|digit| 1 + digit.terms.len()).sum::<usize>();
        if terms > MAX_TERMS {
            return Err(field(place, format!("{terms} digits and axes"), format!("{MAX_TERMS} at most")));
        }
        Ok(it)
    })
}

/// What has digits in several dimensions or loops.
trait Digits {
    fn digits(&self) -> &[Vec<Digit>];
}

impl Digits for Layout {
    fn digits(&self) -> &[Vec<Digit>] {
        &self.dims
    }
}

impl Digits for Partition {
    fn digits(&self) -> &[Vec<Digit>] {
        &self.loops
    }
}

/// Each entry read, with its place in the file and its number.
fn each<T, U>(
    place: &str,
    entries: &[T],
    read: impl Fn(&dyn fmt::Display, usize, &T) -> Result<U>,
) -> Result<Vec<U>> {
    let one = |(index, entry)| read(&fmt::from_fn(|f| write!(f, "{place}[{index}]")), index, entry);
    entries.iter().enumerate().map(one).collect()
}

fn entry<'a, T>(place: &dyn fmt::Display, name: &str, table: &'a [T], index: usize) -> Result<&'a T> {
    let expected = || format!("the number of one of the {} {name}, from 0", table.len());
    table.get(index).ok_or_else(|| field(place, index, expected()))
}

pub(super) fn same_count(place: &str, found: usize, expected: usize) -> Result<()> {
    let entries = |count: usize| format!("{count} entries");
    if found == expected {
        return Ok(());
    }
    Err(field(&place, entries(found), format!("{}, as `plan.graph` has", entries(expected))))
}

fn field(place: &dyn fmt::Display, found: impl fmt::Display, expected: impl Into<String>) -> ReadError {
    ReadError::Field { place: place.to_string(), found: found.to_string(), expected: expected.into() }
}

pub(super) fn text_error(place: impl fmt::Display, error: planner_ir::ParseError) -> ReadError {
    ReadError::Text { place: place.to_string(), error }
}

fn copy(copy: file::Copy) -> Copy {
    match copy {
        file::Copy::Made => Copy::Made,
        file::Copy::Transferred(transfer) => Copy::Transferred(transfer),
    }
}

fn control(it: &file::Control) -> Control {
    Control { name: it.name.clone(), shape: it.shape.clone(), value: it.value }
}

pub(super) fn term(term: &file::Term) -> Term {
    Term { name: term.name.clone(), seconds: term.seconds }
}

pub(super) fn holding(holding: &file::Holding) -> Holding {
    Holding { kind: holding.kind.clone(), bytes: holding.bytes }
}

fn space(space: &file::Space) -> SpaceSize {
    SpaceSize {
        unique_blocks: space.unique_blocks,
        blocks: space.blocks,
        nodes: space.nodes,
        classes: space.classes,
        saturated: space.saturated,
        left_out: space.left_out.iter().copied().map(left_out).collect(),
        choices: space.choices,
    }
}

fn left_out(it: file::LeftOut) -> LeftOut {
    match it {
        file::LeftOut::Stripes => LeftOut::Stripes,
        file::LeftOut::Skews => LeftOut::Skews,
        file::LeftOut::Steps => LeftOut::Steps,
        file::LeftOut::Splits => LeftOut::Splits,
    }
}
