//! States that go from token to token: sequences that are written out token by token as one scan, and heads
//! that scans take without repeating them.
//!
//! Exporters run the loop over tokens. What is left of it is a state for each token, `h[t] = a[t] h[t-1] +
//! u[t]`, and a result `y[t] = h[t] c[t]`, each of slices of values of all tokens, and the results put
//! together. Where every token does the same to its own slices, that is a selective scan: `a` is `exp(g)`, and
//! `u` falls into factors that rows of a state share and factors that its column has.

use planner_ir::{Binary, Graph, Op, Output, Real, Recurrence, Source, Type, Unary, ValueId};

/// The fewest tokens that are taken for a sequence.
const FEWEST: u64 = 2;

/// The graph with scans for sequences that are written out.
pub(super) fn carried(graph: &Graph) -> Graph {
    let mut new = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut values: Vec<ValueId> = vec![ValueId(usize::MAX); graph.values.len()];
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            values[id.0] = new.push_value(value.type_.clone(), value.source.clone());
        }
    }
    for node in &graph.nodes {
        let operands: Vec<ValueId> = node.operands.iter().map(|it| values[it.0]).collect();
        let types = graph.types_of(&node.results);
        let mut build = Build { graph: &mut new, origin: &node.origin };
        let results = match &node.op {
            Op::Concat { dim } => build.scan(*dim, &operands, &types[0]).map(|it| vec![it]),
            Op::Recurrence(it) => build.of_groups(*it, &operands),
            _ => None,
        };
        let results =
            results.unwrap_or_else(|| new.push_node(node.op.clone(), operands, types, node.origin.clone()));
        for (old, new) in node.results.iter().zip(results) {
            values[old.0] = new;
        }
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: values[it.value.0] };
    let outputs = graph.outputs.iter().map(output).collect();
    Graph { outputs, ..new }
}

/// One token's part of a value of all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// The value of all tokens.
    of: ValueId,
    /// The dimension along which they lie.
    dim: usize,
    /// Which token it is.
    token: u64,
}

/// What a token does: the decay, what is added, the results' weights, and the state before it.
struct Turn {
    decay: Part,
    added: Part,
    weights: Part,
    before: ValueId,
    after: ValueId,
}

/// A graph that operations are added to, each if its operands fit.
struct Build<'a> {
    graph: &'a mut Graph,
    origin: &'a str,
}

impl Build<'_> {
    fn op(&self, value: ValueId) -> Option<(&Op, &[ValueId])> {
        let Source::Result { node, .. } = self.graph.value(value).source else { return None };
        let node = self.graph.node(node);
        Some((&node.op, &node.operands))
    }

    fn shape(&self, value: ValueId) -> &[u64] {
        &self.graph.type_of(value).shape
    }

    /// The value that this one is a reshape of.
    fn plain(&self, mut value: ValueId) -> ValueId {
        while let Some((Op::Reshape { .. }, &[x])) = self.op(value) {
            value = x;
        }
        value
    }

    fn make(&mut self, op: Op, operands: &[ValueId]) -> Option<ValueId> {
        self.makes(op, operands)?.first().copied()
    }

    fn makes(&mut self, op: Op, operands: &[ValueId]) -> Option<Vec<ValueId>> {
        let types = op.infer(&self.graph.types_of(operands)).ok()?;
        Some(self.graph.push_node(op, operands.to_vec(), types, self.origin.to_owned()))
    }

    fn reshaped(&mut self, value: ValueId, shape: &[u64]) -> Option<ValueId> {
        if self.shape(value) == shape {
            return Some(value);
        }
        self.make(Op::Reshape { shape: shape.to_vec() }, &[value])
    }

    /// Which token's part a value is, if the other dimensions are whole and in order.
    fn part(&self, value: ValueId) -> Option<Part> {
        let (Op::Slice { starts, steps, sizes }, &[of]) = self.op(self.plain(value))? else { return None };
        let whole = self.shape(of);
        let mut cut = (0..whole.len()).filter(|&dim| sizes[dim] != whole[dim]);
        let (Some(dim), None) = (cut.next(), cut.next()) else { return None };
        let right = sizes[dim] == 1 && steps.iter().all(|&step| step == 1);
        let kept = |shape: &[u64]| shape.iter().copied().filter(|&it| it != 1).collect::<Vec<_>>();
        (right && kept(self.shape(value)) == kept(sizes)).then(|| Part { of, dim, token: starts[dim] })
    }

    /// The sequence whose results are put together along a dimension: `[b, h, s]`, made anew.
    fn scan(&mut self, dim: usize, results: &[ValueId], type_: &Type) -> Option<ValueId> {
        let tokens = u64::try_from(results.len()).ok().filter(|&it| it >= FEWEST)?;
        let &[batch, heads, length] = &type_.shape[..] else { return None };
        if dim != 2 || length != tokens {
            return None;
        }
        let turns: Vec<Turn> =
            results.iter().map(|&it| self.turn(it, [batch, heads])).collect::<Option<_>>()?;
        let first = turns.first()?;
        let numbers = 0..tokens;
        for (number, turn) in numbers.zip(&turns) {
            let own = |it: Part, all: Part| it == Part { token: number, ..all };
            let same = own(turn.decay, first.decay)
                && own(turn.added, first.added)
                && own(turn.weights, first.weights);
            if !same
                || [turn.decay, turn.added, turn.weights].iter().any(|it| self.shape(it.of)[it.dim] != tokens)
            {
                return None;
            }
        }
        let follows = turns.windows(2).all(|pair| self.plain(pair[1].before) == self.plain(pair[0].after));
        let rows = *self.shape(first.before).last()?;
        if !follows || self.shape(first.before) != [batch, heads, rows] {
            return None;
        }
        let (decay, added, weights, before) = (first.decay, first.added, first.weights, first.before);
        let (Op::Unary(Unary::Exp), &[decays]) = self.op(decay.of)? else { return None };
        let all = [batch, heads, tokens, rows];
        let in_order =
            decay.dim == 2 && added.dim == 2 && self.shape(decays) == all && self.shape(added.of) == all;
        if !in_order || weights.dim != 1 || self.shape(weights.of) != [batch, tokens, rows] {
            return None;
        }
        let (keys, news) = self.factors(added.of, all)?;
        let by_token = |build: &mut Self, value: ValueId| {
            build.make(Op::Transpose { permutation: vec![0, 2, 1, 3] }, &[value])
        };
        let operands = [
            self.reshaped(weights.of, &[batch, tokens, 1, rows])?,
            by_token(self, keys)?,
            by_token(self, news)?,
            by_token(self, decays)?,
            self.reshaped(before, &[batch, heads, rows, 1])?,
        ];
        let made = self.makes(Op::Recurrence(Recurrence::SelectiveScan), &operands)?;
        let y = self.reshaped(made[0], &[batch, tokens, heads])?;
        let y = self.make(Op::Transpose { permutation: vec![0, 2, 1] }, &[y])?;
        (self.graph.type_of(y) == type_).then_some(y)
    }

    /// What a token does whose result is `[b, h]`, of a state `[b, h, n]`.
    fn turn(&self, result: ValueId, [batch, heads]: [u64; 2]) -> Option<Turn> {
        let (Op::Contract(contract), &[after, weights]) = self.op(self.plain(result))? else { return None };
        // A state times a column, for each example.
        let (left, right) = (&contract.left[..], &contract.right[..]);
        let (&[b, h, n], &[b2, n2, ref rest @ ..]) = (left, right) else { return None };
        let summed = !contract.result.contains(&n) && contract.result.starts_with(&[b, h]);
        if b != b2 || n != n2 || rest.len() > 1 || !summed {
            return None;
        }
        let [found_batch, found_heads, _] = self.shape(after)[..] else { return None };
        if [found_batch, found_heads] != [batch, heads] {
            return None;
        }
        let (Op::Binary(Binary::Add), &[a, b]) = self.op(after)? else { return None };
        let weights = self.part(weights)?;
        [(a, b), (b, a)].into_iter().find_map(|(added, left)| {
            let (Op::Binary(Binary::Mul), &[x, y]) = self.op(left)? else { return None };
            let added = self.part(added)?;
            let exps = |part: &Part| matches!(self.op(part.of), Some((Op::Unary(Unary::Exp), _)));
            let (decay, before) = match (self.part(x).filter(exps), self.part(y).filter(exps)) {
                (Some(decay), _) => (decay, y),
                (None, Some(decay)) => (decay, x),
                (None, None) => return None,
            };
            Some(Turn { decay, added, weights, before, after })
        })
    }

    /// A product `[b, h, s, n]` as one of factors that all heads share, `[b, 1, s, n]`, and one of factors
    /// that all rows share, `[b, h, s, 1]`.
    fn factors(&mut self, value: ValueId, all: [u64; 4]) -> Option<(ValueId, ValueId)> {
        let [batch, heads, tokens, rows] = all;
        let (mut left, mut shared, mut own) = (vec![value], Vec::new(), Vec::new());
        while let Some(value) = left.pop() {
            match *self.shape(value) {
                [_, 1, _, _] => shared.push(value),
                [_, _, _, 1] => own.push(value),
                _ => match self.op(value)? {
                    (Op::Binary(Binary::Mul), &[a, b]) => left.extend([a, b]),
                    _ => return None,
                },
            }
        }
        let dtype = self.graph.type_of(value).dtype;
        let product = |build: &mut Self, factors: Vec<ValueId>, shape: [u64; 4]| {
            let mut factors = factors.into_iter();
            let first = match factors.next() {
                Some(first) => first,
                None => {
                    let one = Op::Fill { result: Type::new(dtype, shape), value: Real(1.0) };
                    build.make(one, &[])?
                }
            };
            let all = factors.try_fold(first, |all, it| build.make(Op::Binary(Binary::Mul), &[all, it]))?;
            if build.shape(all) == shape {
                return Some(all);
            }
            build.make(Op::Expand { shape: shape.to_vec() }, &[all])
        };
        let shared = product(self, shared, [batch, 1, tokens, rows])?;
        let own = product(self, own, [batch, heads, tokens, 1])?;
        Some((shared, own))
    }

    /// A recurrence of keys and queries that are not repeated for each head, if they were.
    fn of_groups(&mut self, it: Recurrence, operands: &[ValueId]) -> Option<Vec<ValueId>> {
        let [queries, keys] = [0, 1].map(|at: usize| self.unrepeated(operands[at]));
        let ((queries, times), (keys, others)) = (queries?, keys?);
        if times != others || it.gradient().is_none() {
            return None;
        }
        let &[batch, tokens, heads, rows] = self.shape(operands[0]) else { return None };
        let shape = [batch, tokens, heads / times, rows];
        let mut operands = operands.to_vec();
        operands[0] = self.reshaped(queries, &shape)?;
        operands[1] = self.reshaped(keys, &shape)?;
        self.makes(Op::Recurrence(it), &operands)
    }

    /// What is repeated to be `[b, s, h, d]`, each of fewer heads so many times in a row.
    fn unrepeated(&self, value: ValueId) -> Option<(ValueId, u64)> {
        let &[batch, tokens, heads, rows] = self.shape(value) else { return None };
        let (Op::Expand { shape }, &[x]) = self.op(self.plain(value))? else { return None };
        let &[b, s, groups, times, d] = &shape[..] else { return None };
        let right = [b, s, d] == [batch, tokens, rows] && groups * times == heads;
        (right && self.shape(x) == [b, s, groups, 1, d]).then_some((x, times))
    }
}

#[cfg(test)]
mod tests;
