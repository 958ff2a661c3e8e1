//! Elements that are taken from places which are known: gathering becomes movement.
//!
//! Exporters index padding by batch and key, and flatten what they index, so that each element is
//! gathered from a place that is computed. Where these places grow evenly with the result's, this is a
//! slice, transposed and repeated; and what is computed from places alone is a number or a range,
//! whatever its size. Only then can such values be split as others are.

use planner_ir::{Graph, Node, Op, Output, Real, Scatter, Source, Type, ValueId};

use super::form::bounds::Bounds;
use super::form::{self, Form};

/// Values with more elements than this are said as ranges (elements).
const FEW: u64 = 16;

/// The graph with gathers from places that are known as movement.
pub(super) fn placed(graph: &Graph) -> Graph {
    let new = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut placing = Placing { new, forms: Vec::new() };
    let mut values = vec![ValueId(usize::MAX); graph.values.len()];
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            values[id.0] = placing.new.push_value(value.type_.clone(), value.source.clone());
            placing.forms.push(Form::any(&value.type_));
        }
    }
    for node in &graph.nodes {
        let operands: Vec<ValueId> = node.operands.iter().map(|it| values[it.0]).collect();
        let types = graph.types_of(&node.results);
        let results = match placing.gathered(node, &operands, &types) {
            Some(result) => vec![result],
            None if placing.is_whole(node, &operands) => vec![operands[2]],
            None => placing.kept(node, &operands, types),
        };
        for (old, new) in node.results.iter().zip(results) {
            values[old.0] = new;
        }
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: values[it.value.0] };
    let outputs = graph.outputs.iter().map(output).collect();
    Graph { outputs, ..placing.new }
}

/// A graph that grows, with what is known of each value's elements.
struct Placing {
    new: Graph,
    forms: Vec<Form>,
}

/// Where elements are taken along a dimension: a place, and for some dimensions of the result by how
/// much it grows along them.
struct Places {
    start: i64,
    along: Vec<(usize, i64)>,
}

impl Placing {
    /// Adds an operation.
    fn push(&mut self, op: Op, operands: &[ValueId], types: Vec<Type>, origin: &str) -> Vec<ValueId> {
        let single = types.len() == 1;
        let known: Vec<(&Form, &Type)> =
            operands.iter().map(|it| (&self.forms[it.0], self.new.type_of(*it))).collect();
        let form = |type_: &Type| if single { form::form(&op, &known, type_) } else { Form::any(type_) };
        let forms: Vec<Form> = types.iter().map(form).collect();
        let results = self.new.push_node(op, operands.to_vec(), types, origin.to_owned());
        self.forms.extend(forms);
        results
    }

    /// Adds an operation on values whose types suit it.
    fn make(&mut self, op: Op, operands: &[ValueId], origin: &str) -> Option<ValueId> {
        let types = op.infer(&self.new.types_of(operands)).ok()?;
        if let ([type_], [operand]) = (&types[..], operands)
            && type_ == self.new.type_of(*operand)
            && matches!(op, Op::Reshape { .. } | Op::Expand { .. })
        {
            return Some(*operand);
        }
        self.push(op, operands, types, origin).first().copied()
    }

    /// An operation as it is, or the number or the range that its result is.
    fn kept(&mut self, node: &Node, operands: &[ValueId], types: Vec<Type>) -> Vec<ValueId> {
        let results = self.push(node.op.clone(), operands, types.clone(), &node.origin);
        let ([result], [type_]) = (&results[..], &types[..]) else { return results };
        let said = match &node.op {
            Op::Fill { .. } | Op::Iota { .. } | Op::Reshape { .. } | Op::Expand { .. } => None,
            Op::Constant { .. } if type_.elements() <= FEW => None,
            _ => self.said(&self.forms[result.0].clone(), type_, &node.origin),
        };
        said.map_or(results, |it| vec![it])
    }

    /// Integers or truth values of which all is known: one number, or a range along one dimension.
    fn said(&mut self, form: &Form, type_: &Type, origin: &str) -> Option<ValueId> {
        let number = |value: f64| Op::Fill { result: type_.clone(), value: Real(value) };
        match form {
            Form::Bands(bands) if !type_.dtype.is_float() => {
                let value = bands.everywhere().and_then(Bounds::known)?;
                self.make(number(value), &[], origin)
            }
            Form::Bands(_) | Form::Blocks(_) => None,
            Form::Even { start, steps } => {
                let mut along = steps.iter().enumerate().filter(|it| *it.1 != 0);
                let Some((dim, &step)) = along.next() else {
                    return self.make(number(form::float(*start)), &[], origin);
                };
                if along.next().is_some() {
                    return None;
                }
                let length = type_.shape[dim];
                let [start, step] = [*start, step].map(|it| Real(form::float(it)));
                let range = self.make(Op::Iota { dtype: type_.dtype, length, start, step }, &[], origin)?;
                let mut shape = vec![1; type_.rank()];
                shape[dim] = length;
                let range = self.make(Op::Reshape { shape }, &[range], origin)?;
                self.make(Op::Expand { shape: type_.shape.clone() }, &[range], origin)
            }
        }
    }

    /// A gather from places that are known, as movement.
    fn gathered(&mut self, node: &Node, operands: &[ValueId], types: &[Type]) -> Option<ValueId> {
        let ([type_], &[data, indices]) = (types, operands) else { return None };
        // Of a table of weights each device takes the rows that it needs.
        if matches!(self.new.value(data).source, Source::Weight(_)) {
            return None;
        }
        let shape = self.new.type_of(data).shape.clone();
        let whole = |to: usize| Places { start: 0, along: vec![(to, 1)] };
        let rank = self.new.type_of(indices).rank();
        let mut places: Vec<Places> = Vec::new();
        match &node.op {
            Op::Gather { dim } => {
                let (start, steps) = self.evenly(indices, rank)?;
                places.extend((0..*dim).map(whole));
                let along = steps.into_iter().enumerate().map(|(at, step)| (dim + at, step));
                places.push(Places { start, along: along.collect() });
                places.extend((dim + 1..shape.len()).map(|at| whole(at + rank - 1)));
            }
            Op::GatherNd { batch_dims: 0 } => {
                let parts = usize::try_from(*self.new.type_of(indices).shape.last()?).ok()?;
                for part in 0..parts {
                    let (start, steps) = self.part(indices, part)?;
                    places.push(Places { start, along: steps.into_iter().enumerate().collect() });
                }
                places.extend((parts..shape.len()).map(|at| whole(at - parts + rank - 1)));
            }
            _ => return None,
        }
        for place in &mut places {
            place.along.retain(|&(to, step)| step != 0 && type_.shape[to] != 1);
        }
        self.viewed(data, places, type_, &node.origin)
    }

    /// Integers that grow evenly: the first, and by how much along each dimension.
    fn evenly(&self, value: ValueId, rank: usize) -> Option<(i64, Vec<i64>)> {
        self.forms[value.0].even(rank)
    }

    /// One of the numbers that stand beside each other along the last dimension of indices, if it grows
    /// evenly along the others.
    fn part(&self, indices: ValueId, part: usize) -> Option<(i64, Vec<i64>)> {
        let type_ = self.new.type_of(indices);
        let last = type_.rank().checked_sub(1)?;
        if let Some((start, mut steps)) = self.evenly(indices, type_.rank()) {
            let step = steps.pop()?;
            return Some((start + step * i64::try_from(part).ok()?, steps));
        }
        let Source::Result { node, .. } = self.new.value(indices).source else { return None };
        let node = self.new.node(node);
        match &node.op {
            Op::Concat { dim } if *dim == last => {
                let operand = *node.operands.get(part)?;
                let single = node.operands.iter().all(|&it| self.new.type_of(it).shape[last] == 1);
                let (start, mut steps) = self.evenly(operand, type_.rank()).filter(|_| single)?;
                steps.pop();
                Some((start, steps))
            }
            Op::Constant { result, data } => {
                let size = usize::try_from(result.dtype.bytes()).ok()?;
                let every = usize::try_from(result.shape[last]).ok()?;
                let taken = data.chunks(size).skip(part).step_by(every.max(1)).flatten().copied();
                let taken: Vec<u8> = taken.collect();
                form::constant(&Type::new(result.dtype, &result.shape[..last]), &taken)?.even(last)
            }
            _ => None,
        }
    }

    /// Whether an operation replaces every element of a value, each by the one in its own place.
    fn is_whole(&self, node: &Node, operands: &[ValueId]) -> bool {
        let (Op::ScatterNd { scatter: Scatter::Replace }, &[data, indices, updates]) = (&node.op, operands)
        else {
            return false;
        };
        let [data, updates] = [data, updates].map(|it| self.new.type_of(it));
        let parts = self.new.type_of(indices).shape.last().copied();
        let whole = parts == u64::try_from(data.rank()).ok() && data == updates;
        whole
            && (0..data.rank()).all(|dim| {
                let own = |&(at, step): &(usize, i64)| data.shape[at] == 1 || step == i64::from(at == dim);
                self.part(indices, dim).is_some_and(|(start, steps)| {
                    start == 0 && steps.iter().copied().enumerate().all(|it| own(&it))
                })
            })
    }

    /// What is taken of a value: sliced, its dimensions taken apart, put in order and repeated.
    fn viewed(&mut self, data: ValueId, places: Vec<Places>, type_: &Type, origin: &str) -> Option<ValueId> {
        let shape = self.new.type_of(data).shape.clone();
        let (mut starts, mut steps, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut apart, mut to) = (Vec::new(), Vec::new());
        for (mut place, &whole) in places.into_iter().zip(&shape) {
            let whole_extent = i64::try_from(whole).ok()?;
            let size = |at: usize| i64::try_from(type_.shape[at]).ok();
            // The places lie between these; those before the first count from the end.
            let (mut least, mut most) = (place.start, place.start);
            for &(at, step) in &place.along {
                let by = step.checked_mul(size(at)? - 1)?;
                least = least.checked_add(by.min(0))?;
                most = most.checked_add(by.max(0))?;
            }
            if most < 0 {
                place.start += whole_extent;
                (least, most) = (least + whole_extent, most + whole_extent);
            }
            if least < 0 || most >= whole_extent {
                return None;
            }
            place.along.sort_by_key(|it| std::cmp::Reverse(it.1));
            let unit = place.along.last().map_or(1, |it| it.1);
            let mut next = unit;
            for &(at, step) in place.along.iter().rev() {
                if step != next {
                    return None;
                }
                next = step.checked_mul(size(at)?)?;
            }
            starts.push(u64::try_from(place.start).ok()?);
            steps.push(unit);
            sizes.push(place.along.iter().map(|it| type_.shape[it.0]).product::<u64>());
            apart.extend(place.along.iter().map(|it| type_.shape[it.0]));
            to.extend(place.along.iter().map(|it| it.0));
        }
        let mut order: Vec<usize> = (0..to.len()).collect();
        order.sort_by_key(|&at| to[at]);
        if order.windows(2).any(|pair| to[pair[0]] == to[pair[1]]) {
            return None;
        }
        let mut value = data;
        if starts.iter().any(|&it| it != 0) || sizes != shape || steps.iter().any(|&it| it != 1) {
            value = self.make(Op::Slice { starts, steps, sizes }, &[value], origin)?;
        }
        value = self.make(Op::Reshape { shape: apart }, &[value], origin)?;
        if !order.is_sorted() {
            value = self.make(Op::Transpose { permutation: order }, &[value], origin)?;
        }
        let ones = (0..type_.rank()).map(|at| if to.contains(&at) { type_.shape[at] } else { 1 });
        value = self.make(Op::Reshape { shape: ones.collect() }, &[value], origin)?;
        self.make(Op::Expand { shape: type_.shape.clone() }, &[value], origin)
    }
}

#[cfg(test)]
mod tests;
