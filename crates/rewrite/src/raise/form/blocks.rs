//! Integers that grow evenly, divided: in which block of so many a place lies.
//!
//! Masks of chunks show a query the keys of its own block. Which pairs lie in one block is no function of
//! how far apart they are, but those that are as far apart as a block is long never do.

use planner_ir::{Binary, DType, Type};

use super::{Bands, EXACT, Form, bounds, float};
use crate::raise::form::bounds::Bounds;

/// `floor(place / length)`, where `place >= 0` grows evenly and `length >= 2`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::raise) struct Blocks {
    /// The first place.
    pub(in crate::raise) start: i64,
    /// For each dimension by how much places grow.
    pub(in crate::raise) steps: Vec<i64>,
    /// How many places a block has.
    pub(in crate::raise) length: i64,
}

impl Blocks {
    /// The places.
    pub(super) fn places(&self) -> Form {
        Form::Even { start: self.start, steps: self.steps.clone() }
    }

    /// Blocks of other places, if it is known which.
    pub(super) fn of_places(&self, places: Form) -> Option<Form> {
        let Form::Even { start, steps } = places else { return None };
        Some(Form::Blocks(Self { start, steps, length: self.length }))
    }

    /// Between which numbers all elements lie.
    pub(super) fn bounds(&self, type_: &Type) -> Option<Bounds> {
        let places = self.places().bands(type_).everywhere()?;
        let length = float(self.length);
        Bounds::between((places.least / length).floor(), (places.most / length).floor())
    }
}

/// What a function makes of two values of which one is in blocks, or becomes so.
pub(super) fn of(function: Binary, operands: [(&Form, &Type); 2], result: &Type) -> Option<Form> {
    let [(a, left), (b, right)] = operands;
    let rank = result.rank();
    let is_zero = |(form, type_): (&Form, &Type)| {
        form.even(type_.rank()).is_some_and(|(start, steps)| start == 0 && steps.iter().all(|&it| it == 0))
    };
    match (function, a, b) {
        (Binary::Div, _, _) if !result.dtype.is_float() => {
            let (start, steps) = a.even(left.rank())?;
            let (length, constant) = b.even(right.rank())?;
            let least = a.bands(left).everywhere()?.least;
            (length >= 2 && least >= 0.0 && constant.iter().all(|&it| it == 0)).then_some(())?;
            Some(Form::Blocks(Blocks { start, steps: aligned(&steps, rank), length }))
        }
        (Binary::Add | Binary::Sub, Form::Blocks(blocks), _) if is_zero(operands[1]) => {
            Some(Form::Blocks(Blocks { steps: aligned(&blocks.steps, rank), ..blocks.clone() }))
        }
        (_, Form::Blocks(a), Form::Blocks(b)) if a.length == b.length => {
            let apart = apart(a, b, rank)?;
            let zero = Bands::all(Bounds::one(0.0));
            Some(Form::Bands(match function {
                Binary::Sub => apart,
                Binary::Equal
                | Binary::Less
                | Binary::LessOrEqual
                | Binary::Greater
                | Binary::GreaterOrEqual => {
                    Bands::of(&[&apart, &zero], |it| bounds::binary(function, DType::Bool, it[0], it[1]))
                }
                _ => return None,
            }))
        }
        _ => None,
    }
}

fn aligned(steps: &[i64], rank: usize) -> Vec<i64> {
    [vec![0; rank - steps.len()], steps.to_vec()].concat()
}

/// By how many blocks one place is after another, by the distance from row to column, if places are as far
/// apart as that is. With places `x - y = by`, it is between `floor(by / length)` and `ceil(by / length)`.
fn apart(a: &Blocks, b: &Blocks, rank: usize) -> Option<Bands> {
    let (left, right) = (aligned(&a.steps, rank), aligned(&b.steps, rank));
    let grows: Vec<i64> = left.iter().zip(&right).map(|(a, b)| a - b).collect();
    let [outer @ .., row, column] = &grows[..] else { return None };
    (outer.iter().all(|&it| it == 0) && *row == -column && column.abs() == 1).then_some(())?;
    let (length, ahead) = (a.length, a.start - b.start);
    let far = float(EXACT);
    let mut bounds =
        [(-far, -1.0), (-1.0, 0.0), (0.0, 0.0), (0.0, 1.0), (1.0, far)].map(|it| Bounds::between(it.0, it.1));
    // From these on, places are so far apart.
    let mut cuts = [1 - length, 0, 1, length];
    if *column > 0 {
        cuts = cuts.map(|it| it - ahead);
    } else {
        cuts = cuts.map(|it| ahead - it + 1);
        cuts.reverse();
        bounds.reverse();
    }
    Some(Bands { cuts: cuts.to_vec(), bounds: bounds.to_vec() })
}
