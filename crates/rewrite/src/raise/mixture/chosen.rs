//! Masks that mark which tokens chose an expert, and as which of their choices.

use planner_ir::{Binary, Dynamic, Graph, Op, Source, ValueId};

use super::body::Body;
use super::origin::{integers, made};

/// A mask of two dimensions, tokens and choices in either order: whether the token's choice is
/// the expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The numbers of the chosen experts, `[t, k]`: of the k largest or least of `experts`
    /// numbers, so that a token's choices differ and are from 0 to below `experts`.
    pub(super) experts: ValueId,
    /// How many experts there are to choose from.
    pub(super) count: u64,
    /// The expert.
    pub(super) expert: u64,
    /// Which dimension of the mask is the tokens': 0 or 1.
    pub(super) tokens: usize,
}

/// The most experts that are looked at.
const MOST: u64 = 1 << 12;

/// What a mask marks, if it is which tokens chose an expert: one row of what `one_hot` is of,
/// transposed so that experts come first.
pub(super) fn chosen(graph: &Graph, mask: ValueId) -> Option<Chosen> {
    let mut row = truth(graph, mask);
    if let (Op::Reshape { shape }, &[whole]) = made(graph, row)?
        && graph.type_of(whole).shape == [vec![1], shape.clone()].concat()
    {
        row = truth(graph, whole);
    }
    let (Op::Gather { dim: 0 }, &[by_expert, number]) = made(graph, row)? else {
        return None;
    };
    let (Op::Transpose { permutation }, &[by_token]) = made(graph, truth(graph, by_expert))? else {
        return None;
    };
    let tokens = match permutation.as_slice() {
        [2, 1, 0] => 1,
        [2, 0, 1] => 0,
        _ => return None,
    };
    let (experts, count) = one_hot(graph, truth(graph, by_token))?;
    let expert = number_of(graph, number, count)?;
    Some(Chosen { experts, count, expert, tokens })
}

/// A value that is zero where this one is.
fn truth(graph: &Graph, mut value: ValueId) -> ValueId {
    loop {
        value = match made(graph, value) {
            // Of truth values or the numbers 0 and 1, as `one_hot` checks in the end.
            Some((Op::Cast(_), &[x])) => x,
            Some((Op::Select, &[condition, yes, no]))
                if is_number(graph, yes, 1) && is_number(graph, no, 0) =>
            {
                condition
            }
            _ => return value,
        };
    }
}

/// The numbers of chosen experts, `[t, k]`, and how many experts there are, of truth values
/// `[t, k, e]` that say which number it is.
fn one_hot(graph: &Graph, value: ValueId) -> Option<(ValueId, u64)> {
    let (Op::Binary(Binary::Equal), &[chosen, numbers]) = made(graph, value)? else {
        return None;
    };
    let &[tokens, choices, count] = graph.type_of(value).shape.as_slice() else {
        return None;
    };
    let all = integers(made(graph, numbers)?.0, MOST)?;
    let in_order = graph.type_of(numbers).shape.last() == Some(&count)
        && u64::try_from(all.len()) == Ok(count)
        && (0..).zip(&all).all(|(index, &number)| index == number);
    let (Op::Reshape { shape }, &[chosen]) = made(graph, chosen)? else {
        return None;
    };
    let right =
        in_order && *shape == [tokens, choices, 1] && graph.type_of(chosen).shape == [tokens, choices];
    let chosen = from_the_end(graph, chosen, count);
    (right && is_top(graph, chosen, count)).then_some((chosen, count))
}

/// What the numbers of experts are where none is negative: those that are count from the end.
fn from_the_end(graph: &Graph, value: ValueId, count: u64) -> ValueId {
    let original = || {
        let (Op::Select, &[condition, added, chosen]) = made(graph, value)? else {
            return None;
        };
        let (Op::Binary(Binary::Less), &[less, zero]) = made(graph, condition)? else {
            return None;
        };
        let (Op::Binary(Binary::Add), &[also, addend]) = made(graph, added)? else {
            return None;
        };
        let right = [less, also] == [chosen; 2]
            && is_number(graph, zero, 0)
            && is_number(graph, addend, i64::try_from(count).ok()?);
        right.then_some(chosen)
    };
    original().unwrap_or(value)
}

/// Whether values are the places of the extremes of so many numbers of each row.
fn is_top(graph: &Graph, value: ValueId, count: u64) -> bool {
    let Source::Result { node, index: 1 } = graph.value(value).source else {
        return false;
    };
    let node = graph.node(node);
    matches!(node.op, Op::TopK { dim: 1, .. })
        && graph.type_of(node.operands[0]).shape.get(1..) == Some([count].as_slice())
}

/// Whether a value is that number, in all its elements.
fn is_number(graph: &Graph, value: ValueId, number: i64) -> bool {
    let numbers = made(graph, value).and_then(|(op, _)| integers(op, 1));
    numbers == Some(vec![number])
}

/// The number from 0 to below `count` that a value of one element is.
fn number_of(graph: &Graph, value: ValueId, count: u64) -> Option<u64> {
    let mut value = value;
    while let Some((Op::Reshape { .. }, &[operand])) = made(graph, value) {
        value = operand;
    }
    let number = match made(graph, value).and_then(|(op, _)| integers(op, 1)) {
        Some(numbers) => u64::try_from(*numbers.first()?).ok()?,
        None => place(graph, value, count)?,
    };
    (number < count).then_some(number)
}

/// The number that one place is of the places of the truths among `count` truth values.
///
/// A region that splits these places into `count` single ones answers only where all are true:
/// then they are all numbers in order. An export has such a region for the experts that any token
/// chose if all were chosen by the example that it was made with; of other inputs it makes no
/// result, where what the region becomes here makes what the exported model means.
fn place(graph: &Graph, value: ValueId, count: u64) -> Option<u64> {
    let Source::Result { node, index } = graph.value(value).source else {
        return None;
    };
    let node = graph.node(node);
    let Op::Region(region) = &node.op else {
        return None;
    };
    let body = Body::of(region);
    let (split, part) = body.maker(*region.results.get(index)?)?;
    let split = &region.nodes[split];
    let (Op::Dynamic(Dynamic::Split { dim: 0 }), &[places, counts]) = (&split.op, split.operands.as_slice())
    else {
        return None;
    };
    let [found] = body.operands(places, &Op::Transpose { permutation: vec![1, 0] })?;
    let [truths] = body.operands(found, &Op::Dynamic(Dynamic::NonZero))?;
    let ones = vec![1; usize::try_from(count).ok()?];
    let right = body.is_operand(truths)
        && graph.type_of(node.operands[truths]).shape == [count]
        && integers(body.made(counts)?.0, MOST)? == ones;
    right.then_some(u64::try_from(part).ok()?)
}
