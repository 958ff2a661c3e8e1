//! Loops: their turns one after another where it is known how many there are and they are not too
//! many, else a region that takes turns.

use planner_ir::{DType, Dynamic, Op, Region, Type, ValueId};

use super::branch;
use super::{Bound, Importer, Scope};
use crate::error::ImportError;
use crate::model;
use crate::node::OnnxNode;
use crate::outline::Outline;
use crate::proto::{GraphProto, NodeProto};

/// How many nodes the turns of one loop become at most; loops of more are kept as regions.
const MOST_NODES: usize = 20_000;

/// What happens in a turn.
struct Body<'a> {
    graph: &'a GraphProto,
    /// What names of weights in it begin with.
    path: String,
    /// How many values go from turn to turn.
    states: usize,
    kind: Kind,
}

enum Kind {
    /// The body takes the turn's number and the condition, and returns whether to go on.
    Loop,
    /// The body takes an element of each of these; there are as many turns as elements.
    Scan(Vec<Scanned>),
}

/// A value whose elements along a dimension are taken one by one.
struct Scanned {
    value: ValueId,
    dim: usize,
    backward: bool,
}

/// What a turn returns.
struct Turn {
    condition: ValueId,
    states: Vec<Bound>,
    elements: Vec<ValueId>,
}

/// How a loop starts.
struct Start {
    /// The most turns, where that is known.
    count: Option<u64>,
    /// The same as a value.
    limit: ValueId,
    condition: ValueId,
    states: Vec<Bound>,
}

/// The results of a `Loop`.
pub(crate) fn looped(
    importer: &mut Importer,
    proto: &NodeProto,
    node: &OnnxNode,
    inputs: &[Bound],
    scope: &Scope,
) -> Result<Vec<Bound>, ImportError> {
    let states: Vec<Bound> = inputs.iter().skip(2).cloned().collect();
    let body = Body::of(proto, node, scope, states.len(), Kind::Loop)?;
    let b = &mut importer.builder;
    let single = |b: &mut crate::builder::Builder, index: usize| match node.optional(index) {
        Some(value) if b.is_open(value) || b.type_of(value).elements() != 1 => {
            Err(node.wrong(format!("input {index} is not one number")))
        }
        Some(value) => b.reshape(value, &[]).map(Some),
        None => Ok(None),
    };
    let (limit, condition) = (single(b, 0)?, single(b, 1)?);
    let count = match limit {
        Some(limit) => match b.known(limit) {
            Some(_) => b.integers(limit)?.first().map(|&count| u64::try_from(count).unwrap_or(0)),
            None => None,
        },
        None => Some(u64::MAX),
    };
    let limit = match limit {
        Some(limit) => limit,
        None => {
            let most = b.list(&[i64::MAX])?;
            b.reshape(most, &[])?
        }
    };
    let condition = match condition {
        Some(condition) => condition,
        None => b.scalar(DType::Bool, 1.0)?,
    };
    let start = Start { count, limit, condition, states };
    let Turn { states, elements, .. } = body.run(importer, node, scope, start)?;
    Ok(states.into_iter().chain(elements.into_iter().map(Bound::Value)).collect())
}

/// The results of a `Scan`.
pub(crate) fn scanned(
    importer: &mut Importer,
    proto: &NodeProto,
    node: &OnnxNode,
    inputs: &[Bound],
    scope: &Scope,
) -> Result<Vec<Bound>, ImportError> {
    if node.opset < 9 {
        return Err(node.unsupported("sequences of a batch that have lengths of their own"));
    }
    let scans = node.required_int("num_scan_inputs")?;
    let scans = usize::try_from(scans).ok().filter(|&scans| scans > 0 && scans <= inputs.len());
    let scans = scans.ok_or_else(|| node.wrong(format!("`num_scan_inputs` of {} inputs", inputs.len())))?;
    let states = inputs.len() - scans;
    let b = &mut importer.builder;
    let (mut taken, mut count) = (Vec::new(), None);
    for index in 0..scans {
        let value = node.input(states + index)?;
        if b.is_open(value) {
            return Err(node.depends_on_data(format!("the shape of input {}", states + index)));
        }
        let shape = b.type_of(value).shape.clone();
        let dim = node.dimension(attribute(node, "scan_input_axes", index), shape.len())?;
        if count.is_some_and(|count| count != shape[dim]) {
            return Err(node.wrong(format!(
                "{} elements of input {}, others have more or fewer",
                shape[dim],
                states + index
            )));
        }
        count = Some(shape[dim]);
        let backward = attribute(node, "scan_input_directions", index) != 0;
        taken.push(Scanned { value, dim, backward });
    }
    let body = Body::of(proto, node, scope, states, Kind::Scan(taken))?;
    let turns = i64::try_from(count.unwrap_or(0)).map_err(|_| node.wrong("too many elements"))?;
    let limit = b.list(&[turns])?;
    let limit = b.reshape(limit, &[])?;
    let condition = b.scalar(DType::Bool, 1.0)?;
    let start = Start { count, limit, condition, states: inputs[..states].to_vec() };
    let Turn { states, elements, .. } = body.run(importer, node, scope, start)?;
    let mut results = states;
    for (index, list) in elements.into_iter().enumerate() {
        let list = turned(importer, node, list, index)?;
        results.push(Bound::Value(list));
    }
    Ok(results)
}

/// An element of a list of integers that is 0 where nothing is said.
fn attribute(node: &OnnxNode, name: &str, index: usize) -> i64 {
    node.ints(name).and_then(|list| list.get(index).copied()).unwrap_or(0)
}

/// Elements that lie along the first dimension, in the order and along the dimension that the node says.
fn turned(
    importer: &mut Importer,
    node: &OnnxNode,
    list: ValueId,
    index: usize,
) -> Result<ValueId, ImportError> {
    let b = &mut importer.builder;
    let rank = b.type_of(list).rank();
    let dim = node.dimension(attribute(node, "scan_output_axes", index), rank)?;
    let mut list = list;
    if attribute(node, "scan_output_directions", index) != 0 {
        if b.is_open(list) {
            return Err(node.depends_on_data("how many elements there are"));
        }
        let sizes = b.type_of(list).shape.clone();
        let (mut starts, mut steps) = (vec![0; rank], vec![1; rank]);
        (starts[0], steps[0]) = (sizes[0].saturating_sub(1), -1);
        list = b.emit1(Op::Slice { starts, steps, sizes }, &[list])?;
    }
    let mut permutation: Vec<usize> = (1..rank).collect();
    permutation.insert(dim, 0);
    b.transpose(list, &permutation)
}

impl<'a> Body<'a> {
    fn of(
        proto: &'a NodeProto,
        node: &OnnxNode,
        scope: &Scope,
        states: usize,
        kind: Kind,
    ) -> Result<Self, ImportError> {
        let graph = proto.attribute.iter().find(|it| it.name == "body").and_then(|it| it.g.as_ref());
        let graph = graph.ok_or_else(|| node.wrong("attribute `body` is missing"))?;
        let (taken, given) = match &kind {
            Kind::Loop => (states + 2, states + 1),
            Kind::Scan(scans) => (states + scans.len(), states),
        };
        if graph.input.len() != taken || graph.output.len() < given {
            let (inputs, outputs) = (graph.input.len(), graph.output.len());
            return Err(node.wrong(format!(
                "a body of {inputs} inputs and {outputs} outputs, expected {taken} and at least {given}"
            )));
        }
        let path = model::branch_path(&scope.path, proto, "body");
        Ok(Self { graph, path, states, kind })
    }

    /// All turns: the last states, and for each list its elements along a new first dimension.
    fn run(
        &self,
        importer: &mut Importer,
        node: &OnnxNode,
        scope: &Scope,
        start: Start,
    ) -> Result<Turn, ImportError> {
        let first = importer.builder.steps.len();
        if let Some(done) = self.unrolled(importer, node, scope, &start)? {
            return Ok(done);
        }
        importer.builder.steps.truncate(first);
        self.region(importer, node, scope, start)
    }

    /// One turn after the other; nothing where it is not known whether there is another one, or there
    /// are too many.
    fn unrolled(
        &self,
        importer: &mut Importer,
        node: &OnnxNode,
        scope: &Scope,
        start: &Start,
    ) -> Result<Option<Turn>, ImportError> {
        let Some(count) = start.count else { return Ok(None) };
        let before = importer.translated();
        let mut states = start.states.clone();
        let mut condition = start.condition;
        let lists = self.graph.output.len() - self.states - usize::from(matches!(self.kind, Kind::Loop));
        let mut elements: Vec<Vec<ValueId>> = vec![Vec::new(); lists];
        for number in 0..count {
            let known = importer.builder.known(condition).and_then(|it| it.to_truths().ok());
            match known.as_deref() {
                Some([true]) => {}
                Some([false]) => break,
                _ => return Ok(None),
            }
            if importer.translated() - before > MOST_NODES {
                return Ok(None);
            }
            let number = i64::try_from(number).map_err(|_| node.wrong("too many turns"))?;
            let number = importer.builder.list(&[number])?;
            let number = importer.builder.reshape(number, &[])?;
            let turn = self.turn(importer, node, scope, number, condition, &states)?;
            (condition, states) = (turn.condition, turn.states);
            for (list, element) in elements.iter_mut().zip(turn.elements) {
                list.push(element);
            }
        }
        importer.builder.set_place(node.place(), node.path);
        let mut stacked = Vec::new();
        for list in elements {
            match stack(importer, node, &list)? {
                Some(list) => stacked.push(list),
                None => return Ok(None),
            }
        }
        Ok(Some(Turn { condition, states, elements: stacked }))
    }

    /// What a turn computes.
    fn turn(
        &self,
        importer: &mut Importer,
        node: &OnnxNode,
        scope: &Scope,
        number: ValueId,
        condition: ValueId,
        states: &[Bound],
    ) -> Result<Turn, ImportError> {
        let mut arguments = match &self.kind {
            Kind::Loop => vec![Bound::Value(number), Bound::Value(condition)],
            Kind::Scan(_) => Vec::new(),
        };
        arguments.extend_from_slice(states);
        if let Kind::Scan(scans) = &self.kind {
            importer.builder.set_place(node.place(), node.path);
            for scanned in scans {
                arguments.push(Bound::Value(scanned.element(importer, number)?));
            }
        }
        let mut inside = Scope::inside(scope, &self.path);
        for (input, argument) in self.graph.input.iter().zip(arguments) {
            inside.bind(&input.name, argument)?;
        }
        let mut results = importer.inner(self.graph, &mut inside)?.into_iter();
        let value = |bound: Option<Bound>| match bound {
            Some(Bound::Value(value)) => Ok(value),
            _ => Err(node.unsupported("a body that returns lists of values")),
        };
        let condition = match self.kind {
            Kind::Loop => value(results.next())?,
            Kind::Scan(_) => condition,
        };
        let states = results.by_ref().take(self.states).collect();
        let elements = results.map(|bound| value(Some(bound))).collect::<Result<_, _>>()?;
        Ok(Turn { condition, states, elements })
    }

    /// A region that takes turns.
    fn region(
        &self,
        importer: &mut Importer,
        node: &OnnxNode,
        scope: &Scope,
        start: Start,
    ) -> Result<Turn, ImportError> {
        let states = values(node, &start.states)?;
        let mut outlines: Vec<Outline> = states.iter().map(|&it| importer.builder.outline(it)).collect();
        // Extents that change from turn to turn become unknown, one by one at worst.
        loop {
            let first = importer.builder.steps.len();
            let number = importer.builder.placeholder(Outline::new(DType::I64, Vec::new()));
            let condition = importer.builder.placeholder(Outline::new(DType::Bool, Vec::new()));
            let given: Vec<ValueId> =
                outlines.iter().map(|it| importer.builder.placeholder(it.clone())).collect();
            let bound: Vec<Bound> = given.iter().copied().map(Bound::Value).collect();
            let turn = self.turn(importer, node, scope, number, condition, &bound)?;
            importer.builder.set_place(node.place(), node.path);
            let again = importer.builder.reshape(turn.condition, &[])?;
            let made = values(node, &turn.states)?;
            let found: Vec<Outline> = made.iter().map(|&it| importer.builder.outline(it)).collect();
            let joined = branch::joined(node, outlines.clone(), &found)?;
            let steps = importer.builder.steps.split_off(first);
            if joined != outlines {
                outlines = joined;
                continue;
            }
            let results = [vec![again], made, turn.elements].concat();
            let types: Vec<Type> = results.iter().map(|&it| importer.builder.type_of(it).clone()).collect();
            let lists: Vec<Outline> =
                results[1 + self.states..].iter().map(|&it| importer.builder.outline(it)).collect();
            let leading = [vec![number, condition], given].concat();
            let steps: Vec<_> = steps.iter().collect();
            let (body, captured) = branch::enclose(&leading, &steps, &results, types);
            let goes_on = again == condition && self.is_true(importer, start.condition);
            let turns = start.count.filter(|_| goes_on || matches!(self.kind, Kind::Scan(_)));
            return self.emit(importer, node, (body, captured), start, (outlines, lists, turns));
        }
    }

    fn is_true(&self, importer: &Importer, condition: ValueId) -> bool {
        let known = importer.builder.known(condition).and_then(|it| it.to_truths().ok());
        known.as_deref() == Some(&[true])
    }

    /// The operation that takes turns; how many there are, where that is known.
    fn emit(
        &self,
        importer: &mut Importer,
        node: &OnnxNode,
        (body, captured): (Region, Vec<ValueId>),
        start: Start,
        (states, lists, turns): (Vec<Outline>, Vec<Outline>, Option<u64>),
    ) -> Result<Turn, ImportError> {
        if turns == Some(u64::MAX) {
            return Err(
                node.wrong("a loop that never ends: it has no count, and its condition is always true")
            );
        }
        let mut outlines = states;
        for mut list in lists {
            list.extents.insert(0, turns);
            outlines.push(list);
        }
        let given = values(node, &start.states)?;
        let operands = [vec![start.limit, start.condition], given, captured].concat();
        let op = Op::Dynamic(Dynamic::Loop { states: self.states, body: Box::new(body) });
        let mut results = importer.builder.emit_open(op, &operands, outlines)?;
        let elements = results.split_off(self.states);
        let states = results.into_iter().map(Bound::Value).collect();
        Ok(Turn { condition: start.condition, states, elements })
    }
}

/// Elements one after another along a new first dimension; nothing where there are none.
fn stack(
    importer: &mut Importer,
    node: &OnnxNode,
    elements: &[ValueId],
) -> Result<Option<ValueId>, ImportError> {
    let b = &mut importer.builder;
    let mut rows = Vec::new();
    for &element in elements {
        if b.is_open(element) {
            return Err(node.depends_on_data("the shape of an element"));
        }
        let shape = [&[1], b.type_of(element).shape.as_slice()].concat();
        rows.push(b.reshape(element, &shape)?);
    }
    if rows.is_empty() { Ok(None) } else { b.emit1(Op::Concat { dim: 0 }, &rows).map(Some) }
}

fn values(node: &OnnxNode, bounds: &[Bound]) -> Result<Vec<ValueId>, ImportError> {
    let value = |bound: &Bound| match bound {
        Bound::Value(value) => Ok(*value),
        _ => Err(node.unsupported("lists of values in a loop whose turns are not known")),
    };
    bounds.iter().map(value).collect()
}

impl Scanned {
    /// The element of a turn.
    fn element(&self, importer: &mut Importer, number: ValueId) -> Result<ValueId, ImportError> {
        let b = &mut importer.builder;
        let mut shape = b.type_of(self.value).shape.clone();
        let count = shape[self.dim];
        let place = if self.backward {
            let last = i64::try_from(count).map_err(|_| b.wrong("too many elements"))? - 1;
            let last = b.list(&[last])?;
            let last = b.reshape(last, &[])?;
            b.emit1(Op::Binary(planner_ir::Binary::Sub), &[last, number])?
        } else {
            number
        };
        if b.known(place).is_none() {
            return b.emit1(Op::Gather { dim: self.dim }, &[self.value, place]);
        }
        let place = b.integers(place)?.first().and_then(|&it| u64::try_from(it).ok()).unwrap_or(0);
        let (mut starts, steps, mut sizes) = (vec![0; shape.len()], vec![1; shape.len()], shape.clone());
        (starts[self.dim], sizes[self.dim]) = (place, 1);
        let row = b.emit1(Op::Slice { starts, steps, sizes }, &[self.value])?;
        shape.remove(self.dim);
        b.reshape(row, &shape)
    }
}
