//! Terms of the e-graph: operations, values from outside, and what is known of a class.

use std::collections::BTreeMap;

use egg::{Analysis, DidMerge, EGraph, Id, Language};
use planner_ir::{Blind, DType, Op, Real, Type};

/// A term: what it is, by its number among `Known::heads`, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Term {
    pub(super) head: usize,
    pub(super) children: Vec<Id>,
}

impl Language for Term {
    type Discriminant = usize;

    fn discriminant(&self) -> usize {
        self.head
    }

    fn matches(&self, other: &Self) -> bool {
        self.head == other.head && self.children.len() == other.children.len()
    }

    fn children(&self) -> &[Id] {
        &self.children
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}

/// What a term is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Head {
    /// A value from outside, by its number in the graph.
    Outside(usize),
    /// An operation.
    Op(Op),
    /// One of the results of an operation that has several.
    Project(usize),
    /// The scores of attention; never part of a program.
    Scores(Scores),
}

/// `bound(scale * q[b,h,s,:]·k[b,g,t,:]) [+ mask]` as in `Attention`: operands q, k, and
/// optionally a mask, which is added if it is of numbers; where one of truth values is false the
/// score is minus infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scores {
    pub(super) scale: Real,
    pub(super) softcap: Real,
    /// What a query gets that sees no key.
    pub(super) blind: Blind,
}

/// What is known of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The type of the value, or those of several results.
    pub(super) types: Vec<Type>,
    /// The number that all elements are, if they are all one known number.
    pub(super) number: Option<Real>,
    /// Whether it can be computed from weights and constants alone.
    pub(super) prepared: bool,
}

/// The heads so far, the boundary, and whether anything went wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) heads: Vec<Head>,
    pub(super) numbers: BTreeMap<Head, usize>,
    /// For each value from outside its type and whether it is prepared.
    pub(super) outside: Vec<(Type, bool)>,
    /// Two types that a rule claimed to be those of one value.
    pub(super) conflict: Option<(Type, Type)>,
}

pub(super) type Terms = EGraph<Term, Known>;

impl Known {
    /// The number of a head.
    pub(super) fn number(&mut self, head: Head) -> usize {
        if let Some(&number) = self.numbers.get(&head) {
            return number;
        }
        self.heads.push(head.clone());
        self.numbers.insert(head, self.heads.len() - 1);
        self.heads.len() - 1
    }
}

/// The types of a term's results, given its children's; `None` if they do not fit.
pub(super) fn infer(known: &Known, head: &Head, children: &[&Facts]) -> Option<Vec<Type>> {
    let operands = || children.iter().map(|it| it.types.first().cloned()).collect::<Option<Vec<Type>>>();
    match head {
        Head::Outside(value) => Some(vec![known.outside.get(*value)?.0.clone()]),
        Head::Op(op) => op.infer(&operands()?).ok(),
        Head::Project(index) => Some(vec![children.first()?.types.get(*index)?.clone()]),
        Head::Scores(_) => {
            let operands = operands()?;
            let (q, k) = (operands.first()?, operands.get(1)?);
            let right = q.rank() == 4 && k.rank() == 4 && q.dtype == k.dtype && q.shape[0] == k.shape[0];
            let heads = right && q.shape[3] == k.shape[3] && q.shape[1].is_multiple_of(k.shape[1].max(1));
            let scores = Type::new(q.dtype, vec![q.shape[0], q.shape[1], q.shape[2], k.shape[2]]);
            let fits = |mask: &Type| mask.dtype == DType::Bool || mask.dtype == q.dtype;
            let covers = |mask: &Type| {
                mask.rank() <= 4
                    && mask.shape.iter().rev().zip(scores.shape.iter().rev()).all(|(&a, &b)| a == 1 || a == b)
            };
            let masked = operands.get(2).is_none_or(|mask| fits(mask) && covers(mask));
            (heads && masked).then(|| vec![scores])
        }
    }
}

/// The number that all elements of a result are.
fn number(head: &Head, children: &[&Facts], result: &Type) -> Option<Real> {
    let Head::Op(op) = head else {
        return None;
    };
    let child = |index: usize| children.get(index)?.number.map(|it| it.0);
    let value = match op {
        Op::Fill { value, .. } => value.0,
        Op::Constant { result, data } => uniform(result.dtype, data)?,
        Op::Reshape { .. } | Op::Transpose { .. } | Op::Expand { .. } | Op::Slice { .. } => child(0)?,
        Op::Cast(dtype) if dtype.is_float() => child(0)?,
        Op::Unary(planner_ir::Unary::Sqrt) => child(0)?.sqrt(),
        Op::Unary(planner_ir::Unary::Neg) => -child(0)?,
        Op::Unary(planner_ir::Unary::Reciprocal) => 1.0 / child(0)?,
        Op::Binary(binary) if result.dtype.is_float() => {
            let (a, b) = (child(0)?, child(1)?);
            match binary {
                planner_ir::Binary::Add => a + b,
                planner_ir::Binary::Sub => a - b,
                planner_ir::Binary::Mul => a * b,
                planner_ir::Binary::Div => a / b,
                planner_ir::Binary::Pow => a.powf(b),
                _ => return None,
            }
        }
        _ => return None,
    };
    // A zero is a zero: its sign would make two facts of one.
    Some(Real(if value == 0.0 { 0.0 } else { value }))
}

/// The number that all elements of a constant are.
fn uniform(dtype: DType, data: &[u8]) -> Option<f64> {
    let size = usize::try_from(dtype.bytes()).ok()?;
    let first = data.get(..size)?;
    if data.len() > 1 << 16 || !data.chunks(size).all(|element| element == first) {
        return None;
    }
    read(dtype, first)
}

/// An element as a number, where that is exact.
pub(super) fn read(dtype: DType, bytes: &[u8]) -> Option<f64> {
    let whole = |value: i64| i32::try_from(value).ok().map(f64::from);
    match dtype {
        DType::F64 => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        DType::F32 => Some(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
        DType::BF16 => {
            Some(f64::from(f32::from_bits(u32::from(u16::from_le_bytes(bytes.try_into().ok()?)) << 16)))
        }
        DType::F16 => Some(half(u16::from_le_bytes(bytes.try_into().ok()?))),
        DType::I64 => whole(i64::from_le_bytes(bytes.try_into().ok()?)),
        DType::I32 => Some(f64::from(i32::from_le_bytes(bytes.try_into().ok()?))),
        DType::Bool => Some(f64::from(*bytes.first()?)),
        _ => None,
    }
}

/// A binary16.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if bits & 1023 == 0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

impl Analysis<Term> for Known {
    type Data = Facts;

    fn make(terms: &mut Terms, term: &Term, _id: Id) -> Facts {
        let children: Vec<&Facts> = term.children.iter().map(|&it| &terms[it].data).collect();
        let head = &terms.analysis.heads[term.head];
        let types = infer(&terms.analysis, head, &children).unwrap_or_default();
        let number = types.first().and_then(|result| number(head, &children, result));
        let prepared = match head {
            Head::Outside(value) => terms.analysis.outside[*value].1,
            _ => children.iter().all(|it| it.prepared),
        };
        Facts { types, number, prepared }
    }

    fn merge(&mut self, into: &mut Facts, from: Facts) -> DidMerge {
        if into.types != from.types
            && let (Some(a), Some(b)) = (into.types.first(), from.types.first())
        {
            self.conflict.get_or_insert_with(|| (a.clone(), b.clone()));
        }
        let number = into.number.or(from.number);
        let prepared = into.prepared || from.prepared;
        let changed = DidMerge(
            number != into.number || prepared != into.prepared,
            number != from.number || prepared != from.prepared,
        );
        into.number = number;
        into.prepared = prepared;
        changed
    }
}
