//! Terms made by rules: every one is type checked before it exists.

use egg::Id;
use planner_ir::{Binary, Contract, DType, Label, Op, Real, Type, Unary};

use super::term::{Facts, Head, Scores, Term, Terms, infer};

/// The e-graph, as a rule's builder sees it. Where operands do not fit an operation there is no
/// term, and the rule does not apply.
pub(super) struct Make<'a> {
    pub(super) terms: &'a mut Terms,
}

impl Make<'_> {
    pub(super) fn facts(&self, id: Id) -> &Facts {
        &self.terms[id].data
    }

    pub(super) fn type_of(&self, id: Id) -> &Type {
        &self.facts(id).types[0]
    }

    pub(super) fn shape(&self, id: Id) -> &[u64] {
        &self.type_of(id).shape
    }

    pub(super) fn number(&self, id: Id) -> Option<f64> {
        self.facts(id).number.map(|it| it.0)
    }

    pub(super) fn prepared(&self, id: Id) -> bool {
        self.facts(id).prepared
    }

    /// What the term of that number is, if it is an operation.
    pub(super) fn op(&self, head: usize) -> &Op {
        match &self.terms.analysis.heads[head] {
            Head::Op(op) => op,
            _ => unreachable!("patterns bind operations"),
        }
    }

    /// The scores' attributes, of a head that is one.
    pub(super) fn scores_of(&self, head: usize) -> Option<Scores> {
        match &self.terms.analysis.heads[head] {
            Head::Scores(scores) => Some(*scores),
            _ => None,
        }
    }

    pub(super) fn term(&mut self, head: Head, children: &[Id]) -> Option<Id> {
        let facts: Vec<&Facts> = children.iter().map(|&it| &self.terms[it].data).collect();
        infer(&self.terms.analysis, &head, &facts)?;
        let head = self.terms.analysis.number(head);
        Some(self.terms.add(Term { head, children: children.to_vec() }))
    }

    /// An operation; contractions with their labels in order of first use.
    pub(super) fn apply(&mut self, op: Op, operands: &[Id]) -> Option<Id> {
        let op = match op {
            Op::Contract(contract) => Op::Contract(canonical(&contract)),
            op => op,
        };
        self.term(Head::Op(op), operands)
    }

    /// What a value repeats, if it is seen to repeat something.
    pub(super) fn unrepeated(&self, x: Id) -> Id {
        let expands = |it: &&Term| matches!(self.terms.analysis.heads[it.head], Head::Op(Op::Expand { .. }));
        self.terms[x].nodes.iter().find(expands).map_or(x, |it| it.children[0])
    }

    /// One number of no dimensions.
    pub(super) fn scalar(&mut self, dtype: DType, value: f64) -> Option<Id> {
        self.fill(Type::new(dtype, vec![]), value)
    }

    pub(super) fn fill(&mut self, result: Type, value: f64) -> Option<Id> {
        self.apply(Op::Fill { result, value: Real(value) }, &[])
    }

    pub(super) fn unary(&mut self, unary: Unary, x: Id) -> Option<Id> {
        self.apply(Op::Unary(unary), &[x])
    }

    pub(super) fn binary(&mut self, binary: Binary, a: Id, b: Id) -> Option<Id> {
        self.apply(Op::Binary(binary), &[a, b])
    }

    /// `x * factor`; x itself if it is 1.
    pub(super) fn scaled(&mut self, x: Id, factor: f64) -> Option<Id> {
        if factor.to_bits() == 1f64.to_bits() {
            return Some(x);
        }
        let factor = self.scalar(self.type_of(x).dtype, factor)?;
        self.binary(Binary::Mul, x, factor)
    }

    pub(super) fn reshape(&mut self, x: Id, shape: &[u64]) -> Option<Id> {
        if self.shape(x) == shape {
            return Some(x);
        }
        self.apply(Op::Reshape { shape: shape.to_vec() }, &[x])
    }

    pub(super) fn transpose(&mut self, x: Id, permutation: &[usize]) -> Option<Id> {
        if permutation.iter().enumerate().all(|(index, &dim)| index == dim) {
            return Some(x);
        }
        self.apply(Op::Transpose { permutation: permutation.to_vec() }, &[x])
    }

    pub(super) fn cast(&mut self, x: Id, dtype: DType) -> Option<Id> {
        if self.type_of(x).dtype == dtype {
            return Some(x);
        }
        self.apply(Op::Cast(dtype), &[x])
    }

    /// x with dimensions, whose labels are `from`, in the order of `to`; labels that x lacks get
    /// dimensions of extent 1.
    pub(super) fn arranged(&mut self, x: Id, from: &[Label], to: &[Label]) -> Option<Id> {
        let place = |label: &Label| from.iter().position(|it| it == label);
        let permutation: Vec<usize> = to.iter().filter_map(place).collect();
        if permutation.len() != from.len() {
            return None;
        }
        let shape: Vec<u64> = to.iter().map(|it| place(it).map_or(1, |dim| self.shape(x)[dim])).collect();
        let transposed = self.transpose(x, &permutation)?;
        self.reshape(transposed, &shape)
    }
}

/// The contraction with its labels numbered in order of first use.
pub(super) fn canonical(contract: &Contract) -> Contract {
    let mut known: Vec<Label> = Vec::new();
    for label in contract.left.iter().chain(&contract.right) {
        if !known.contains(label) {
            known.push(*label);
        }
    }
    let rename = |labels: &[Label]| -> Vec<Label> {
        let number = |label: &Label| known.iter().position(|it| it == label).unwrap_or(known.len());
        labels.iter().map(|label| Label(u8::try_from(number(label)).unwrap_or(u8::MAX))).collect()
    };
    Contract {
        left: rename(&contract.left),
        right: rename(&contract.right),
        result: rename(&contract.result),
    }
}
