//! What is left of masks where attention says the rest, made in a new graph.

use std::collections::BTreeMap;

use planner_ir::{Binary, DType, Graph, Node, Op, Output, Real, Reduction, Source, Type, Unary, ValueId};

use super::reading::{Reading, is_mask};
use super::truths::{Chosen, chosen};
use super::{Mask, Pairs, Said, Seeing};
use crate::raise::form::Form;
use crate::raise::form::bounds::Bounds;

/// One graph becoming another.
pub(super) struct Saying<'a> {
    old: &'a Graph,
    /// What is known of the old values, whatever they are given and as is usual.
    forms: [Vec<Form>; 2],
    new: Graph,
    /// For each old value, the new one.
    values: Vec<ValueId>,
    /// What is left of masks.
    left: BTreeMap<Pairs, ValueId>,
}

impl<'a> Saying<'a> {
    pub(super) fn new(old: &'a Graph, forms: [Vec<Form>; 2]) -> Self {
        let new = Graph { name: old.name.clone(), ..Graph::default() };
        let values = vec![ValueId(usize::MAX); old.values.len()];
        Self { old, forms, new, values, left: BTreeMap::new() }
    }

    /// The new graph.
    pub(super) fn end(self) -> Graph {
        let output = |it: &Output| Output { name: it.name.clone(), value: self.values[it.value.0] };
        let outputs = self.old.outputs.iter().map(output).collect();
        Graph { outputs, ..self.new }
    }

    /// Adds a value that comes from outside.
    pub(super) fn outside(&mut self, id: ValueId) {
        let value = self.old.value(id);
        self.values[id.0] = self.new.push_value(value.type_.clone(), value.source.clone());
    }

    /// Adds an old node to the new graph.
    pub(super) fn node(&mut self, node: &Node, said: Option<&Said>) {
        if let Some(counted) = self.counted(node) {
            self.values[node.results[0].0] = counted;
            return;
        }
        let mut operands: Vec<ValueId> = node.operands.iter().map(|it| self.values[it.0]).collect();
        let mut op = node.op.clone();
        if let Some(said) = said {
            op = Op::Attention(said.attention);
            let left = match said.mask {
                Mask::Of(pairs) => Some(self.left[&pairs]),
                Mask::Gone => None,
            };
            operands.splice(3..4, left);
        }
        let types = self.old.types_of(&node.results);
        let results = self.new.push_node(op, operands, types, node.origin.clone());
        for (old, new) in node.results.iter().zip(results) {
            self.values[old.0] = new;
        }
    }

    /// An operation on new values whose types suit it.
    fn make(&mut self, op: Op, operands: &[ValueId], origin: &str) -> ValueId {
        let types = op.infer(&self.new.types_of(operands)).expect("types of attention and its mask suit");
        self.new.push_node(op, operands.to_vec(), types, origin.to_owned())[0]
    }

    fn number(&mut self, dtype: DType, value: f64) -> ValueId {
        self.make(Op::Fill { result: Type::new(dtype, []), value: Real(value) }, &[], "")
    }

    /// Makes what is left of a value as a mask, beside it.
    pub(super) fn leave(&mut self, value: ValueId, wanted: &BTreeMap<usize, Said>) {
        for said in wanted.values() {
            let Mask::Of(pairs) = said.mask else { continue };
            let from = [Some(pairs.mask), pairs.bias];
            let is_there = |it: &ValueId| self.values[it.0] != ValueId(usize::MAX);
            let made = from.contains(&Some(value)) && from.iter().flatten().all(is_there);
            if made && !self.left.contains_key(&pairs) {
                let left = self.left_of(pairs);
                self.left.insert(pairs, left);
            }
        }
    }

    /// What is left of a mask.
    fn left_of(&mut self, pairs: Pairs) -> ValueId {
        if let Some(bias) = pairs.bias {
            return self.beside(bias, pairs);
        }
        match pairs.low {
            Some(low) => self.seen(pairs.mask, low.0, pairs),
            None if self.known(pairs.mask, pairs).is_some() => self.values[pairs.mask.0],
            None => {
                let left = self.of_pairs(pairs.mask, pairs);
                self.truths(left)
            }
        }
    }

    /// In place of numbers, new values, that differ from query to query and are -inf where a key is hidden and 0
    /// elsewhere, the truth values by which they are chosen.
    fn truths(&mut self, numbers: ValueId) -> ValueId {
        let each = self.new.type_of(numbers).shape.iter().rev().nth(1).is_some_and(|&rows| rows > 1);
        match chosen(&self.new, numbers).filter(|it| each && it.low.is_infinite()) {
            Some(Chosen { truths, seen: true, .. }) => truths,
            Some(Chosen { truths, .. }) => self.make(Op::Unary(Unary::Not), &[truths], ""),
            None => numbers,
        }
    }

    /// Biases with what is left of the mask beside them: its gradient is that of the sum.
    fn beside(&mut self, bias: ValueId, pairs: Pairs) -> ValueId {
        let bias = self.values[bias.0];
        let shown = if self.old.type_of(pairs.mask).dtype == DType::Bool { 1.0 } else { 0.0 };
        if self.is_known(pairs.mask, shown, pairs) {
            return bias;
        }
        let mut left = self.left_of(Pairs { bias: None, ..pairs });
        if self.new.type_of(left).dtype == DType::Bool {
            let dtype = self.new.type_of(bias).dtype;
            let [shown, hidden] = [0.0, f64::NEG_INFINITY].map(|it| self.number(dtype, it));
            left = self.make(Op::Select, &[left, shown, hidden], "");
        }
        self.make(Op::Binary(Binary::Add), &[bias, left], "")
    }

    /// Where numbers, new values, are above half of a low one.
    fn above(&mut self, numbers: ValueId, low: f64) -> ValueId {
        let half = self.number(self.new.type_of(numbers).dtype, low / 2.0);
        self.make(Op::Binary(Binary::Greater), &[numbers, half], "")
    }

    /// Where a mask, an old value of which elements are 0 or a low number, is 0.
    fn seen(&mut self, mask: ValueId, low: f64, pairs: Pairs) -> ValueId {
        if let Source::Result { node, .. } = self.old.value(mask).source {
            let node = self.old.node(node);
            match (&node.op, &node.operands[..]) {
                (Op::Expand { .. }, &[x]) => return self.seen(x, low, pairs),
                (Op::Select, &[seen, a, b])
                    if self.is_known(a, 0.0, pairs) && self.is_known(b, low, pairs) =>
                {
                    return self.of_pairs(seen, pairs);
                }
                (Op::Select, &[hidden, a, b])
                    if self.is_known(a, low, pairs) && self.is_known(b, 0.0, pairs) =>
                {
                    let hidden = self.of_pairs(hidden, pairs);
                    return self.make(Op::Unary(Unary::Not), &[hidden], "");
                }
                _ => {}
            }
        }
        let numbers = self.of_pairs(mask, pairs);
        self.above(numbers, low)
    }

    /// How many keys each query sees (f32), of those from so far before its own to its own, if it is the
    /// same for all queries whether a key is seen: `[.., s, 1]`, one count for all if there is one key.
    fn counts(&mut self, seen: ValueId, first: i64, [queries, keys]: [u64; 2]) -> Option<ValueId> {
        let mut shape = self.new.type_of(seen).shape.clone();
        let rank = shape.len();
        let own = keys.checked_sub(queries)?;
        if rank < 2 || shape[rank - 2] != 1 {
            return None;
        }
        let mut seen = seen;
        if shape[rank - 1] != keys {
            shape[rank - 1] = keys;
            seen = self.make(Op::Expand { shape: shape.clone() }, &[seen], "");
        }
        let numbers = self.make(Op::Cast(DType::F32), &[seen], "");
        let sums = Op::CumSum { dim: rank - 1, exclusive: false, reverse: false };
        let sums = self.make(sums, &[numbers], "");
        let taken = |start: u64| {
            let mut starts = vec![0; rank];
            starts[rank - 1] = start;
            let sizes = [&shape[..rank - 1], &[queries]].concat();
            Op::Slice { starts, steps: vec![1; rank], sizes }
        };
        let mut counts = self.make(taken(own), &[sums], "");
        // Those before the first that a query may see, if they are not before the first of all.
        let window = u64::try_from(i64::try_from(own).ok()? - first + 1).ok()?;
        if window < keys {
            let mut before = vec![0; rank];
            before[rank - 1] = i64::try_from(window).ok()?;
            let edge = planner_ir::Edge::Constant(Real(0.0));
            let later = self.make(Op::Pad { before, after: vec![0; rank], edge }, &[sums], "");
            let earlier = self.make(taken(own), &[later], "");
            counts = self.make(Op::Binary(Binary::Sub), &[counts, earlier], "");
        }
        let shape = [&shape[..rank - 2], &[queries, 1]].concat();
        Some(self.make(Op::Reshape { shape }, &[counts], ""))
    }

    /// A count of the keys that a mask shows, or whether there is one, along the keys: if attention says
    /// which later ones it does not show.
    fn counted(&mut self, node: &Node) -> Option<ValueId> {
        let (Op::Reduce { reduction, dims }, [x], [result]) =
            (&node.op, &node.operands[..], &node.results[..])
        else {
            return None;
        };
        let type_ = self.old.type_of(*x);
        let rank = type_.rank();
        if !type_.dtype.is_float() || rank < 2 || *dims != [rank - 1] {
            return None;
        }
        if !matches!(reduction, Reduction::Sum | Reduction::Max) {
            return None;
        }
        let mut seen = *x;
        while self.old.type_of(seen).dtype != DType::Bool {
            let Source::Result { node, .. } = self.old.value(seen).source else { return None };
            match (&self.old.node(node).op, &self.old.node(node).operands[..]) {
                (Op::Cast(_), &[from]) => seen = from,
                _ => return None,
            }
        }
        let [queries, keys] = [type_.shape[rank - 2], type_.shape[rank - 1]];
        let own = i64::try_from(keys.checked_sub(queries)?).ok()?;
        let [nearest, farthest] = [1 - i64::try_from(queries).ok()?, i64::try_from(keys).ok()? - 1];
        let bands = self.forms[0][seen.0].bands(self.old.type_of(seen));
        let seeing = Seeing { bands: &bands, dtype: DType::Bool };
        let hidden = |first, last| seeing.all(first, last, |it| seeing.removes(it));
        if keys > COUNTED || own >= farthest || !hidden(own + 1, farthest) {
            return None;
        }
        let starts = bands.runs().map(|it| it.0).filter(|&it| it > nearest && it <= own);
        let first = starts.filter(|&first| hidden(nearest, first - 1)).max().unwrap_or(nearest);
        let pairs = Pairs { mask: seen, first, last: own, reading: Reading::Any, low: None, bias: None };
        let left = self.of_pairs(seen, pairs);
        let mut counts = self.counts(left, first, [queries, keys])?;
        if *reduction == Reduction::Max {
            counts = self.make(Op::Cast(DType::Bool), &[counts], "");
        }
        let type_ = self.old.type_of(*result).clone();
        if self.new.type_of(counts).dtype != type_.dtype {
            counts = self.make(Op::Cast(type_.dtype), &[counts], "");
        }
        Some(self.make(Op::Expand { shape: type_.shape }, &[counts], &node.origin))
    }

    /// Whether an old value is a number at some distances.
    fn is_known(&self, value: ValueId, number: f64, pairs: Pairs) -> bool {
        self.known(value, pairs) == Some(number)
    }

    /// The number that an old value is at some distances.
    fn known(&self, value: ValueId, pairs: Pairs) -> Option<f64> {
        let forms = &self.forms[usize::from(pairs.reading != Reading::Any)];
        let type_ = self.old.type_of(value);
        let bands = forms[value.0].bands(type_);
        let seeing = Seeing { bands: &bands, dtype: type_.dtype };
        let number = bands.at(pairs.first).and_then(Bounds::known)?;
        let same = |it: Option<Bounds>| it.and_then(Bounds::known) == Some(number);
        seeing.all(pairs.first, pairs.last, same).then_some(number)
    }

    /// A value that has the same elements as an old one at some distances, or one that can be repeated
    /// to that.
    fn of_pairs(&mut self, value: ValueId, pairs: Pairs) -> ValueId {
        if pairs.reading == Reading::Usual && is_mask(self.old, value) {
            // It is read as truth values.
            let truths = self.make(Op::Cast(DType::Bool), &[self.values[value.0]], "");
            return self.make(Op::Cast(self.old.type_of(value).dtype), &[truths], "");
        }
        let Source::Result { node, .. } = self.old.value(value).source else { return self.values[value.0] };
        let node = self.old.node(node);
        if let Some(number) = self.known(value, pairs) {
            return self.number(self.old.type_of(value).dtype, number);
        }
        let known = |it: ValueId, number: f64| self.is_known(it, number, pairs);
        let kept = match (&node.op, &node.operands[..]) {
            (Op::Expand { .. }, &[x]) => Some(x),
            (Op::Binary(Binary::And), &[a, b]) => neutral([a, b], |it| known(it, 1.0)),
            (Op::Binary(Binary::Or | Binary::Add), &[a, b]) => neutral([a, b], |it| known(it, 0.0)),
            (Op::Select, &[c, a, _]) if known(c, 1.0) => Some(a),
            (Op::Select, &[c, _, b]) if known(c, 0.0) => Some(b),
            _ => None,
        };
        if let Some(kept) = kept {
            return self.of_pairs(kept, pairs);
        }
        let pairs = match &node.op {
            Op::Binary(_) | Op::Unary(_) | Op::Select | Op::Cast(_) => pairs,
            // Distances are others there.
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Slice { .. }
                if pairs.reading == Reading::Usual =>
            {
                Pairs { first: i64::MIN, last: i64::MAX, ..pairs }
            }
            _ => return self.values[value.0],
        };
        let operands: Vec<ValueId> = node.operands.iter().map(|&it| self.of_pairs(it, pairs)).collect();
        if operands.iter().zip(&node.operands).all(|(new, old)| *new == self.values[old.0]) {
            return self.values[value.0];
        }
        match node.op.infer(&self.new.types_of(&operands)) {
            Ok(types) => self.new.push_node(node.op.clone(), operands, types, node.origin.clone())[0],
            Err(_) => self.values[value.0],
        }
    }
}

/// Counts up to this are exact in an f32.
const COUNTED: u64 = 1 << 24;

/// The other of two operands, if one changes nothing.
fn neutral([a, b]: [ValueId; 2], is_neutral: impl Fn(ValueId) -> bool) -> Option<ValueId> {
    match (is_neutral(b), is_neutral(a)) {
        (true, _) => Some(a),
        (_, true) => Some(b),
        _ => None,
    }
}
