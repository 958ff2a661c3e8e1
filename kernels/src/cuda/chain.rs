//! Operations that one kernel computes together.

use planner_ir::{DType, Op};

use super::functions;
use super::launch::{Piece, Uncovered};
use super::number::{computed, converted, literal, rounded};
use crate::array::Span;

/// Operations that one kernel computes together, element by element; one of them may be a norm of rows.
///
/// A chain computes what its operations one by one would: what they hand on is rounded as if it
/// had been stored. Results may lie where operands of their type and shape do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The shape of everything that is made.
    pub shape: Vec<u64>,
    /// Where what is made lies in the whole value, for each dimension; empty if it is the whole.
    pub spans: Vec<Span>,
    /// The dimensions of what is made as they lie in memory, the outermost first; empty if they lie as the
    /// shape has them.
    pub order: Vec<usize>,
    /// What is read, broadcast to the shape.
    pub operands: Vec<Piece>,
    /// The operations.
    pub steps: Vec<Step>,
    /// What is stored: which result of which step.
    pub results: Vec<(usize, usize)>,
}

/// An operation of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub op: Op,
    /// Its operands.
    pub inputs: Vec<Input>,
    /// The elements of its results.
    pub results: Vec<DType>,
}

/// An operand of an operation of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The chain's operand of that number.
    Operand(usize),
    /// That result of that earlier step.
    Step(usize, usize),
}

/// What a step reads that no operand has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Which element of the whole value it is, row-major.
    Position,
    /// Its index along a dimension of the whole value.
    Index(usize),
    /// The number that its randomness starts from.
    Seed(u64),
}

/// What computes a step for one element.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    pub(super) statements: Vec<String>,
    /// A number for each result, of what is computed with for it.
    pub(super) results: Vec<String>,
}

impl Chain {
    /// One that does nothing yet, over a whole value of this shape, which lies as the shape has it.
    pub fn over(shape: Vec<u64>) -> Self {
        Self { shape, spans: vec![], order: vec![], operands: vec![], steps: vec![], results: vec![] }
    }

    /// The chain over its dimensions as they lie in memory, if they lie otherwise than the shape has them, and
    /// what it computes does not depend on where an element is.
    pub(super) fn lying(&self) -> Result<Option<Self>, Uncovered> {
        let ordered = !self.order.is_empty() || self.operands.iter().any(|it| !it.is_row_major());
        if !ordered {
            return Ok(None);
        }
        let rank = self.shape.len();
        let order = if self.order.is_empty() { (0..rank).collect() } else { self.order.clone() };
        let missing = || Uncovered::Missing(format!("elements in the order {order:?}"));
        let is_free = |step: &Step| is_pointwise(&step.op) && step.places(rank).is_empty();
        if !self.steps.iter().all(is_free) {
            return Err(missing());
        }
        let operands = self.operands.iter().map(|it| it.lying(&order)).collect::<Option<Vec<Piece>>>();
        Ok(Some(Self {
            shape: order.iter().map(|&dim| self.shape[dim]).collect(),
            spans: vec![],
            order: vec![],
            operands: operands.ok_or_else(missing)?,
            ..self.clone()
        }))
    }

    /// The elements of what a step reads.
    pub(super) fn dtype(&self, input: Input) -> DType {
        match input {
            Input::Operand(number) => self.operands[number].type_.dtype,
            Input::Step(step, result) => self.steps[step].results[result],
        }
    }
}

impl Step {
    /// The places that it reads.
    pub(super) fn places(&self, rank: usize) -> Vec<Place> {
        match &self.op {
            Op::Iota { .. } => vec![Place::Index(0)],
            Op::Triangle { .. } if rank >= 2 => vec![Place::Index(rank - 2), Place::Index(rank - 1)],
            Op::Dropout { seed, .. } | Op::RoundStochastically { seed } => {
                vec![Place::Position, Place::Seed(*seed)]
            }
            _ => vec![],
        }
    }

    /// What computes it from these numbers and places; names begin with `own`.
    pub(super) fn body(
        &self,
        inputs: &[(String, DType)],
        places: &[String],
        own: &str,
    ) -> Result<Body, Uncovered> {
        let numbers: Vec<&str> = inputs.iter().map(|it| it.0.as_str()).collect();
        let dtypes: Vec<DType> = inputs.iter().map(|it| it.1).collect();
        let to = self.results.first().copied().unwrap_or(DType::F32);
        // What is computed for narrow elements may be stored in wider ones, where sums grow.
        let one = |from: DType, number: String| Body {
            statements: vec![],
            results: vec![converted(from, to, &number)],
        };
        let body = match (&self.op, &numbers[..]) {
            (Op::Fill { value, .. }, []) => {
                let number = literal(DType::F64, value.0);
                one(DType::F64, number)
            }
            (Op::Iota { start, step, .. }, []) => {
                let (start, step) = (literal(DType::F64, start.0), literal(DType::F64, step.0));
                one(DType::F64, format!("{start} + {step} * (double)({})", places[0]))
            }
            (Op::Unary(function), [x]) => {
                let truth = matches!(to, DType::Bool);
                one(if truth { DType::Bool } else { dtypes[0] }, functions::unary(*function, dtypes[0], x)?)
            }
            (Op::Binary(function), [a, b]) => {
                let truth = matches!(to, DType::Bool);
                let number = functions::binary(*function, [dtypes[0], dtypes[1]], [a, b])?;
                one(if truth { DType::Bool } else { dtypes[0] }, number)
            }
            (Op::Select, [condition, a, b]) => one(dtypes[1], format!("({condition}) ? ({a}) : ({b})")),
            (Op::Cast(_), [x]) => one(dtypes[0], (*x).to_owned()),
            (Op::Expand { .. }, [x]) => one(dtypes[0], (*x).to_owned()),
            (Op::Gated(function), [a, b]) => {
                one(dtypes[0], format!("{} * ({b})", functions::unary(*function, dtypes[0], a)?))
            }
            (Op::UnaryGradient(function), [x, dy]) => {
                let product = format!("{} * ({dy})", functions::derivative(*function, dtypes[0], x)?);
                let cut = *function == planner_ir::Unary::Relu;
                // What is cut off has no gradient, whatever comes back: 0 times infinity is none.
                one(dtypes[0], if cut { format!("({x}) <= 0 ? 0 : {product}") } else { product })
            }
            (Op::GatedGradient(function), [a, b, dy]) => {
                let slope = functions::derivative(*function, dtypes[0], a)?;
                let made = functions::unary(*function, dtypes[0], a)?;
                Body {
                    statements: vec![],
                    results: vec![format!("{slope} * ({b}) * ({dy})"), format!("{made} * ({dy})")],
                }
            }
            (Op::Triangle { triangle, diagonal }, [x]) => {
                let (row, column) = (&places[0], &places[1]);
                let sign = if *triangle == planner_ir::Triangle::Upper { ">=" } else { "<=" };
                let inside = format!("(t_i64)({column}) {sign} (t_i64)({row}) + ({diagonal}ll)");
                one(dtypes[0], format!("{inside} ? ({x}) : 0"))
            }
            (Op::Dropout { ratio, .. }, [x, number @ ..]) if number.len() < 2 => {
                return Ok(dropout(ratio.0, (x, dtypes[0]), number.first().copied(), places, own));
            }
            (Op::RoundStochastically { .. }, [x, number @ ..]) if number.len() < 2 => {
                let bits = random_bits(number.first().copied(), places);
                one(DType::F32, format!("t_bf16_by_chance({x}, {bits})"))
            }
            (Op::Update(optimizer), _) => {
                let dtype = self.results[0];
                let numbers: Vec<String> = inputs
                    .iter()
                    .map(|(number, from)| converted(*from, computed_float(dtype), number))
                    .collect();
                let numbers: Vec<String> = numbers.into_iter().map(|it| format!("({it})")).collect();
                let expected = 2 + optimizer.moments() + optimizer.numbers();
                if numbers.len() != expected || !dtype.is_float() {
                    return Err(Uncovered::Missing(format!(
                        "a step of {dtype} with {} operands",
                        numbers.len()
                    )));
                }
                let (statements, results) = functions::update(*optimizer, dtype, &numbers, own);
                Body { statements, results }
            }
            _ => return Err(Uncovered::Missing(format!("{:?} of {} operands", self.op, numbers.len()))),
        };
        Ok(body)
    }
}

/// What is computed with in the place of a floating-point type.
fn computed_float(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The kept element, and whether it is kept.
fn dropout(
    ratio: f64,
    (x, dtype): (&str, DType),
    number: Option<&str>,
    places: &[String],
    own: &str,
) -> Body {
    /// The bits that a number from 0 to below 1 is made of.
    const UNITS: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number in range")]
    let least = (ratio * UNITS).ceil() as u64;
    let kept = format!("const int {own}kept = ({} >> 11) >= {least}ull;", random_bits(number, places));
    let scale = literal(dtype, 1.0 / (1.0 - ratio));
    Body {
        statements: vec![kept],
        results: vec![format!("{own}kept ? ({x}) * {scale} : 0"), format!("{own}kept")],
    }
}

/// Bits that depend on the seed, the number and the position alone.
fn random_bits(number: Option<&str>, places: &[String]) -> String {
    let (position, seed) = (&places[0], &places[1]);
    let seed = match number {
        None => format!("(t_u64)({seed})"),
        Some(number) => format!("t_mixed((t_u64)({seed})) + (t_u64)({number})"),
    };
    format!("t_mixed(t_mixed({seed}) + (t_u64)({position}))")
}

/// The declaration of what a step hands on, as it is after it was stored.
pub(super) fn handed_on(dtype: DType, name: &str, number: &str) -> String {
    format!("const {} {name} = {};", computed(dtype), rounded(dtype, number))
}

/// Whether an operation is computed element by element.
pub fn is_pointwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Fill { .. }
            | Op::Iota { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Gated(_)
            | Op::UnaryGradient(_)
            | Op::GatedGradient(_)
            | Op::Triangle { .. }
            | Op::Dropout { .. }
            | Op::RoundStochastically { .. }
            | Op::Update(_)
            | Op::Expand { .. }
    )
}
