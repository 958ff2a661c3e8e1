//! A rule's two sides, computed.

use std::collections::BTreeMap;

use egg::Id;
use kernels::Array;
use planner_ir::{Binary, DType, Op, Real, Type, Unary};

use super::evaluate::Dice;
use crate::raise::make::Make;
use crate::raise::pattern::{Bound, Match, Pattern, Shape};
use crate::raise::rules::Ready;
use crate::raise::term::{Head, Known, Scores, Terms};

/// What stands for the variables of a rule's pattern.
pub(super) struct Example {
    pub(super) rule: &'static str,
    /// `x=f32[2,3] w=prepared:f32[3] c=0.5`: a type, or a number of the example's elements.
    pub(super) classes: &'static str,
    /// The operations that the pattern leaves open, in order of first occurrence.
    pub(super) operations: Vec<Head>,
    /// The elements of numbers.
    pub(super) dtype: DType,
}

/// What came of applying a rule.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// These conditions do not hold.
    Refused(Vec<&'static str>),
    /// The builder made nothing.
    Nothing,
    /// What was made has another type.
    Type,
    /// The largest difference of the two sides, relative to the largest element.
    Apart(f64),
}

/// The left side of a rule, as an example has it, and where the rule's pattern matches it.
fn left(ready: &Ready, example: &Example) -> (Terms, Id, Vec<Bound>) {
    let mut terms = Terms::new(Known::default());
    let mut classes = Vec::new();
    for word in ready.pattern.classes.iter() {
        let value = example.classes.split(' ').find_map(|it| it.strip_prefix(&format!("{word}=")));
        classes.push(value.map(|value| class(&mut terms, value, example.dtype)));
    }
    let mut built = Built {
        terms: &mut terms,
        pattern: &ready.pattern,
        classes,
        operations: BTreeMap::new(),
        example,
        next: 0,
    };
    let root = built.shape(&ready.pattern.root);
    terms.rebuild();
    let term = terms[root].nodes[0].clone();
    let found = ready.pattern.matches(&terms, root, &term);
    (terms, root, found)
}

/// Whether the pattern of a rule matches what it is made into with an example.
pub(super) fn matches(ready: &Ready, example: &Example) -> bool {
    !left(ready, example).2.is_empty()
}

/// Applies a rule to the example; `despite` skips the conditions.
pub(super) fn outcome(ready: &Ready, example: &Example, despite: Option<&str>) -> Outcome {
    let (mut terms, root, found) = left(ready, example);
    let bound =
        found.first().unwrap_or_else(|| panic!("{}: the pattern does not match its example", example.rule));
    let found = Match { pattern: &ready.pattern, bound };
    let mut make = Make { terms: &mut terms };
    let refused: Vec<&str> =
        ready.rule.conditions.iter().filter(|it| !(it.holds)(&make, &found)).map(|it| it.name).collect();
    if despite.is_none() && !refused.is_empty() {
        return Outcome::Refused(refused);
    }
    if let Some(condition) = despite {
        assert_eq!(refused, [condition], "{}: refused by other conditions", example.rule);
    }
    let Some(made) = (ready.rule.build)(&mut make, &found) else {
        return Outcome::Nothing;
    };
    if terms[made].data.types != terms[root].data.types {
        return Outcome::Type;
    }
    let mut worst = 0.0f64;
    for seed in 0..4 {
        let mut values = BTreeMap::new();
        let below = if example.dtype == DType::I64 { 9 } else { 2 };
        let mut dice = Dice { state: seed, below };
        let expected = value(&terms, root, &mut dice, &mut values);
        let found = value(&terms, made, &mut dice, &mut values);
        worst = worst.max(super::evaluate::difference(&found, &expected));
    }
    Outcome::Apart(worst)
}

/// A value from outside, or a number.
fn class(terms: &mut Terms, text: &str, dtype: DType) -> Id {
    let (prepared, text) = text.strip_prefix("prepared:").map_or((false, text), |text| (true, text));
    let (name, shape) = text.strip_suffix(']').and_then(|text| text.split_once('[')).unwrap_or((text, ""));
    let shape: Vec<u64> =
        shape.split(',').filter(|it| !it.is_empty()).map(|it| it.parse().unwrap()).collect();
    let Some(named) = DType::named(name) else {
        return Make { terms }.fill(Type::new(dtype, shape), name.parse().unwrap()).unwrap();
    };
    let type_ = Type::new(named, shape);
    let number = terms.analysis.outside.len();
    terms.analysis.outside.push((type_, prepared));
    Make { terms }.term(Head::Outside(number), &[]).unwrap()
}

/// The left side of a rule, as it is made.
struct Built<'a> {
    terms: &'a mut Terms,
    pattern: &'a Pattern,
    classes: Vec<Option<Id>>,
    operations: BTreeMap<usize, Head>,
    example: &'a Example,
    next: usize,
}

impl Built<'_> {
    fn shape(&mut self, shape: &Shape) -> Id {
        match shape {
            Shape::Class(index) | Shape::Number(index) => self.classes[*index].unwrap_or_else(|| {
                panic!("{}: no value for `{}`", self.example.rule, self.pattern.classes[*index])
            }),
            Shape::Literal(value) => {
                let result = Type::new(self.example.dtype, vec![]);
                Make { terms: self.terms }.fill(result, *value).unwrap()
            }
            Shape::Term { kind, operation, class, children } => {
                let known = operation.and_then(|it| self.operations.get(&it).cloned());
                let head = known.or_else(|| fixed(kind).map(Head::Op)).unwrap_or_else(|| {
                    self.next += 1;
                    self.example.operations[self.next - 1].clone()
                });
                if let Some(operation) = operation {
                    self.operations.insert(*operation, head.clone());
                }
                let children: Vec<Id> = children.iter().map(|it| self.shape(it)).collect();
                let made = Make { terms: self.terms }.term(head, &children);
                let made = made
                    .unwrap_or_else(|| panic!("{}: the example has no type at {kind}", self.example.rule));
                if let Some(class) = class {
                    self.classes[*class] = Some(made);
                }
                made
            }
        }
    }
}

/// The operation of a kind that has no attributes.
fn fixed(kind: &str) -> Option<Op> {
    Some(match kind {
        "add" => Op::Binary(Binary::Add),
        "sub" => Op::Binary(Binary::Sub),
        "mul" => Op::Binary(Binary::Mul),
        "div" => Op::Binary(Binary::Div),
        "pow" => Op::Binary(Binary::Pow),
        "sigmoid" => Op::Unary(Unary::Sigmoid),
        "tanh" => Op::Unary(Unary::Tanh),
        "erf" => Op::Unary(Unary::Erf),
        "exp" => Op::Unary(Unary::Exp),
        "neg" => Op::Unary(Unary::Neg),
        "sqrt" => Op::Unary(Unary::Sqrt),
        "reciprocal" => Op::Unary(Unary::Reciprocal),
        "isnan" => Op::Unary(Unary::IsNan),
        "select" => Op::Select,
        _ => return None,
    })
}

/// The value of a class that has one term.
fn value(terms: &Terms, id: Id, dice: &mut Dice, known: &mut BTreeMap<Id, Array>) -> Array {
    if let Some(array) = known.get(&id) {
        return array.clone();
    }
    let term = &terms[id].nodes[0];
    let operands: Vec<Array> = term.children.iter().map(|&it| value(terms, it, dice, known)).collect();
    let array = match &terms.analysis.heads[term.head] {
        Head::Outside(_) => dice.array(&terms[id].data.types[0]),
        Head::Project(_) => unreachable!("no rule matches several results"),
        Head::Op(op) => kernels::evaluate(op, &operands.iter().collect::<Vec<_>>()).unwrap().remove(0),
        Head::Scores(scores) => self::scores(*scores, &operands, &terms[id].data.types[0]),
    };
    known.insert(id, array.clone());
    array
}

/// Scores by their definition.
fn scores(scores: Scores, operands: &[Array], result: &Type) -> Array {
    let (q, k) = (operands[0].to_floats().unwrap(), operands[1].to_floats().unwrap());
    let size = |it: u64| usize::try_from(it).unwrap();
    let (q_shape, k_shape) = (operands[0].shape(), operands[1].shape());
    let [b, h, s, t] = [result.shape[0], result.shape[1], result.shape[2], result.shape[3]].map(size);
    let (g, d) = (size(k_shape[1]), size(q_shape[3]));
    let add = operands.get(2).map(|mask| {
        let shape = result.shape.clone();
        let mask = kernels::evaluate(&Op::Expand { shape }, &[mask]).unwrap().remove(0);
        match mask.dtype() {
            DType::Bool => {
                mask.to_truths().unwrap().iter().map(|&it| if it { 0.0 } else { f64::NEG_INFINITY }).collect()
            }
            _ => mask.to_floats().unwrap(),
        }
    });
    let mut floats = Vec::new();
    for index in 0..b * h * s * t {
        let (key, row) = (index % t, index / t);
        let head = row / s % h;
        let k_row = ((row / s / h) * g + head / (h / g)) * t + key;
        let mut sum = (0..d).map(|it| q[row * d + it] * k[k_row * d + it]).sum::<f64>() * scores.scale.0;
        if scores.softcap != Real(0.0) {
            sum = scores.softcap.0 * (sum / scores.softcap.0).tanh();
        }
        floats.push(sum + add.as_ref().map_or(0.0, |add: &Vec<f64>| add[index]));
    }
    #[expect(clippy::cast_possible_truncation, reason = "rounded on purpose")]
    let narrow: Vec<f32> = floats.into_iter().map(|it| it as f32).collect();
    let wide = Array::of(result.shape.clone(), &narrow).unwrap();
    kernels::evaluate(&Op::Cast(result.dtype), &[&wide]).unwrap().remove(0)
}
