//! Index notation with any number of operands.

use planner_ir::{Binary, Contract, DType, Label, Op, Reduction, ValueId};

use super::Result;
use crate::builder::Builder;
use crate::node::OnnxNode;

/// A value whose dimensions have labels.
#[derive(Clone)]
struct Labelled {
    value: ValueId,
    labels: Vec<Label>,
}

/// Operands are joined from the left, two at a time.
pub(super) fn einsum(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let values = (0..n.inputs.len()).map(|place| n.input(place)).collect::<Result<Vec<_>>>()?;
    let ranks: Vec<_> = values.iter().map(|&value| b.rank(value)).collect();
    let (lists, result) = parse(n, n.required_string("equation")?, &ranks)?;
    let mut terms = Vec::new();
    for (value, labels) in values.into_iter().zip(lists) {
        terms.push(diagonal(b, Labelled { value, labels })?);
    }
    if let Some(lost) = result.iter().find(|&&label| !occurs(&terms, label)) {
        return Err(n.wrong(format!("index {} of the result is in no operand", lost.0)));
    }
    let mut terms = terms.into_iter();
    let mut joined = terms.next().ok_or_else(|| n.wrong("no operands"))?;
    while let Some(next) = terms.next() {
        let rest = terms.as_slice();
        joined = join(b, joined, next, |label| result.contains(&label) || occurs(rest, label))?;
    }
    let joined = summed(b, joined, |label| result.contains(&label))?;
    let place = |label: &Label| joined.labels.iter().position(|it| it == label);
    let permutation: Vec<_> = result.iter().filter_map(place).collect();
    if permutation.iter().copied().eq(0..permutation.len()) {
        return Ok(joined.value);
    }
    b.transpose(joined.value, &permutation)
}

fn occurs(terms: &[Labelled], label: Label) -> bool {
    terms.iter().any(|term| term.labels.contains(&label))
}

/// The contraction of two terms, with the labels that are needed later.
fn join(
    b: &mut Builder,
    left: Labelled,
    right: Labelled,
    needed: impl Fn(Label) -> bool,
) -> Result<Labelled> {
    let thin = |b: &mut Builder, term: &Labelled, other: &Labelled| repeated(b, term, other);
    let (left, right) = (thin(b, &left, &right)?, thin(b, &right, &left)?);
    let shared = right.labels.clone();
    let left = summed(b, left, |label| needed(label) || shared.contains(&label))?;
    let shared = left.labels.clone();
    let right = summed(b, right, |label| needed(label) || shared.contains(&label))?;
    let only_right = right.labels.iter().filter(|label| !left.labels.contains(label));
    let labels: Vec<_> =
        left.labels.iter().chain(only_right).copied().filter(|&label| needed(label)).collect();
    let contract = Contract { left: left.labels, right: right.labels, result: labels.clone() };
    let value = b.emit1(Op::Contract(contract), &[left.value, right.value])?;
    Ok(Labelled { value, labels })
}

/// The term without the dimensions of extent 1 that the other repeats.
fn repeated(b: &mut Builder, term: &Labelled, other: &Labelled) -> Result<Labelled> {
    let (shape, other_shape) = (b.shape(term.value)?, b.shape(other.value)?);
    let repeats = |dim: usize| {
        let there = other.labels.iter().position(|label| *label == term.labels[dim]);
        shape[dim] == 1 && there.is_some_and(|there| other_shape[there] != 1)
    };
    let (away, kept): (Vec<_>, Vec<_>) = (0..shape.len()).partition(|&dim| repeats(dim));
    let labels = kept.iter().map(|&dim| term.labels[dim]).collect();
    Ok(Labelled { value: b.squeeze(term.value, &away)?, labels })
}

/// The term summed over the labels that are not needed.
fn summed(b: &mut Builder, term: Labelled, needed: impl Fn(Label) -> bool) -> Result<Labelled> {
    let (kept, away): (Vec<_>, Vec<_>) = (0..term.labels.len()).partition(|&dim| needed(term.labels[dim]));
    let sum = b.reduce(Reduction::Sum, term.value, &away)?;
    let labels = kept.iter().map(|&dim| term.labels[dim]).collect();
    Ok(Labelled { value: b.squeeze(sum, &away)?, labels })
}

/// The term with each label once: of dimensions with the same label, the elements at equal
/// places.
fn diagonal(b: &mut Builder, mut term: Labelled) -> Result<Labelled> {
    let twin = |labels: &[Label]| {
        let first = |dim: usize| labels[..dim].iter().position(|label| *label == labels[dim]);
        (0..labels.len()).find_map(|dim| first(dim).map(|first| (first, dim)))
    };
    while let Some((first, second)) = twin(&term.labels) {
        let shape = b.shape(term.value)?;
        let iota = b.iota(DType::I64, shape[first])?;
        let along = |b: &mut Builder, dim: usize| {
            let mut one = vec![1; shape.len()];
            one[dim] = shape[dim];
            b.reshape(iota, &one)
        };
        let (row, column) = (along(b, first)?, along(b, second)?);
        let equal = b.binary(Binary::Equal, row, column)?;
        let zero = b.number(term.value, 0.0)?;
        let alone = b.select(equal, term.value, zero)?;
        let sum = b.reduce(Reduction::Sum, alone, &[second])?;
        term.value = b.squeeze(sum, &[second])?;
        term.labels.remove(second);
    }
    Ok(term)
}

/// The labels of each operand and of the result.
///
/// Letters are numbered alphabetically; after them the dimensions of an ellipsis, from its last.
fn parse(n: &OnnxNode, equation: &str, ranks: &[usize]) -> Result<(Vec<Vec<Label>>, Vec<Label>)> {
    let plain = equation.replace("...", ".").replace(char::is_whitespace, "");
    let (operands, result) = match plain.split_once("->") {
        Some((operands, result)) => (operands, Some(result.to_owned())),
        None => (plain.as_str(), None),
    };
    let operands: Vec<_> = operands.split(',').collect();
    if operands.len() != ranks.len() {
        return Err(n.wrong(format!("equation `{equation}` for {} operands", ranks.len())));
    }
    let mut letters: Vec<_> = operands.concat().chars().filter(|&it| it != '.').collect();
    letters.sort_unstable();
    let once = |letter: &&char| letters.iter().filter(|it| it == letter).count() == 1;
    let implicit: String = ['.'].iter().chain(letters.iter().filter(once)).collect();
    letters.dedup();
    if let Some(bad) = letters.iter().find(|it| !it.is_ascii_alphabetic()) {
        return Err(n.wrong(format!("`{bad}` in equation `{equation}`")));
    }

    let label = |number: usize| Label(u8::try_from(number).unwrap_or(u8::MAX));
    let expand = |term: &str, dots: usize| {
        let mut labels = Vec::new();
        for token in term.chars() {
            match letters.iter().position(|&it| it == token) {
                Some(number) => labels.push(label(number)),
                None if token == '.' => {
                    labels.extend((0..dots).rev().map(|place| label(letters.len() + place)));
                }
                None => return Err(n.wrong(format!("`{token}` in equation `{equation}`"))),
            }
        }
        Ok(labels)
    };
    let dots = |term: &str, rank: usize| {
        if term.contains('.') { (rank + 1).saturating_sub(term.len()) } else { 0 }
    };
    let mut lists = Vec::new();
    let mut widest = 0;
    for (term, &rank) in operands.iter().zip(ranks) {
        let list = expand(term, dots(term, rank))?;
        if list.len() != rank {
            return Err(n.wrong(format!("`{term}` for {rank} dimensions")));
        }
        widest = widest.max(dots(term, rank));
        lists.push(list);
    }
    Ok((lists, expand(&result.unwrap_or(implicit), widest)?))
}
