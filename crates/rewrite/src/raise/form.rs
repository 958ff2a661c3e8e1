//! What is known of a value's elements, whatever a program is given: by their places.
//!
//! Masks say something about pairs of queries and keys, mostly about how far apart they are. So of a
//! value of which the last two dimensions are rows and columns it is known, for each distance from
//! row to column, between which numbers the elements lie. Places themselves are integers that grow
//! evenly along dimensions; comparing them is where distances come from.

use planner_ir::{Binary, DType, Op, Reduction, Triangle, Type, Unary};

use super::term;
use blocks::Blocks;
use bounds::Bounds;

pub(super) mod bounds; // between which numbers an element lies
pub(super) mod blocks; // integers that grow evenly, divided

/// What is known of a value's elements.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    /// Integers that grow evenly along each dimension: the first, and for each dimension by how much.
    Even { start: i64, steps: Vec<i64> },
    /// Such integers divided by a number, and rounded down.
    Blocks(Blocks),
    /// Bounds by distance.
    Bands(Bands),
}

/// Bounds of the elements of a value by distance: column minus row.
///
/// From `cuts[i - 1]` on, and before `cuts[i]`, they are `bounds[i]`; `None` if elements may be no
/// numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bands {
    cuts: Vec<i64>,
    bounds: Vec<Option<Bounds>>,
}

/// Integers up to this are exact in an f32.
const EXACT: i64 = 1 << 24;

impl Bands {
    pub(super) fn all(bounds: Option<Bounds>) -> Self {
        Self { cuts: Vec::new(), bounds: vec![bounds] }
    }

    /// What is known of elements at distances from `from` on and before `to`, run by run: the first
    /// distance of each run.
    pub(super) fn runs(&self) -> impl Iterator<Item = (i64, Option<Bounds>)> + '_ {
        let starts = std::iter::once(i64::MIN).chain(self.cuts.iter().copied());
        starts.zip(self.bounds.iter().copied())
    }

    /// Between which numbers elements at a distance lie.
    pub(super) fn at(&self, distance: i64) -> Option<Bounds> {
        self.bounds[self.cuts.partition_point(|&cut| cut <= distance)]
    }

    /// Between which numbers all elements lie, if that is the same at every distance.
    pub(super) fn everywhere(&self) -> Option<Bounds> {
        self.bounds[0].filter(|_| self.cuts.is_empty())
    }

    /// Elements of which it is known what a function makes of those of some values.
    fn of(operands: &[&Self], function: impl Fn(&[Option<Bounds>]) -> Option<Bounds>) -> Self {
        let mut cuts: Vec<i64> = operands.iter().flat_map(|it| &it.cuts).copied().collect();
        cuts.sort_unstable();
        cuts.dedup();
        let starts = std::iter::once(i64::MIN).chain(cuts.iter().copied());
        let at = |distance| function(&operands.iter().map(|it| it.at(distance)).collect::<Vec<_>>());
        let bounds = starts.map(at).collect();
        Self { cuts, bounds }
    }

    /// With as few cuts as possible, for that many rows and columns; without any if there is one row
    /// or column: it is repeated along others, so that each element may be at any distance.
    fn short(mut self, type_: &Type) -> Self {
        let [rows, columns] = last_two(&type_.shape);
        let mut kept = Self::all(self.bounds[0]);
        for (cut, bounds) in self.cuts.drain(..).zip(self.bounds.drain(1..)) {
            if cut > 1 - rows && cut < columns && Some(&bounds) != kept.bounds.last() {
                kept.cuts.push(cut);
                kept.bounds.push(bounds);
            } else if cut <= 1 - rows {
                kept = Self::all(bounds);
            }
        }
        let alone = (rows == 1 || columns == 1) && !kept.cuts.is_empty();
        if alone { Self::all(hull(&kept).or(Bounds::any(type_.dtype))) } else { kept }
    }

    /// With distances that are larger by so much.
    fn moved(&self, by: i64) -> Self {
        Self {
            cuts: self.cuts.iter().map(|cut| cut.saturating_add(by)).collect(),
            bounds: self.bounds.clone(),
        }
    }
}

fn extent(extent: u64) -> i64 {
    i64::try_from(extent).unwrap_or(i64::MAX)
}

/// How many rows and columns there are.
fn last_two(shape: &[u64]) -> [i64; 2] {
    let from_end = |it: usize| shape.len().checked_sub(it).map_or(1, |dim| extent(shape[dim]));
    [from_end(2), from_end(1)]
}

impl Form {
    /// What is known of any value of that type.
    pub(super) fn any(type_: &Type) -> Self {
        Self::Bands(Bands::all(Bounds::any(type_.dtype)))
    }

    /// As bounds by distance.
    pub(super) fn bands(&self, type_: &Type) -> Bands {
        match self {
            Self::Bands(bands) => bands.clone(),
            Self::Blocks(blocks) => Bands::all(blocks.bounds(type_)),
            Self::Even { start, steps } => {
                let ends = || {
                    let along = steps.iter().zip(&type_.shape);
                    along.map(|(step, &size)| step.saturating_mul(extent(size) - 1))
                };
                let of_sign = |sign: i64| ends().filter(move |it| it.signum() == sign);
                let end = |sign: i64| of_sign(sign).fold(*start, i64::saturating_add);
                let [least, most] = [end(-1), end(1)].map(float);
                Bands::all(Bounds::between(least, most))
            }
        }
    }

    /// As integers that grow evenly, if elements are such.
    pub(super) fn even(&self, rank: usize) -> Option<(i64, Vec<i64>)> {
        match self {
            Self::Even { start, steps } => Some((*start, steps.clone())),
            Self::Blocks(_) => None,
            Self::Bands(bands) => match (&bands.cuts[..], bands.bounds[0].and_then(Bounds::known)) {
                ([], Some(value)) => Some((whole(value)?, vec![0; rank])),
                _ => None,
            },
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "evenly growing integers are small")]
pub(super) fn float(number: i64) -> f64 {
    number as f64
}

fn whole(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "compared with what it was")]
    let whole = number as i64;
    (whole.unsigned_abs() <= EXACT.unsigned_abs() && float(whole).to_bits() == (number + 0.0).to_bits())
        .then_some(whole)
}

/// What is known of the result of an operation with one.
pub(super) fn form(op: &Op, operands: &[(&Form, &Type)], result: &Type) -> Form {
    known(op, operands, result).map_or_else(
        || Form::any(result),
        |form| match form {
            Form::Bands(bands) => Form::Bands(bands.short(result)),
            Form::Blocks(mut blocks) => {
                once(&mut blocks.steps, result);
                Form::Blocks(blocks)
            }
            Form::Even { start, mut steps } => {
                once(&mut steps, result);
                let form = Form::Even { start, steps };
                let bounds = form.bands(result).at(0);
                let small = bounds.is_some_and(|it| it.least.abs().max(it.most.abs()) <= float(EXACT));
                if small && holds_small_integers(result.dtype) { form } else { Form::any(result) }
            }
        },
    )
}

/// What there is one of is repeated along others.
fn once(steps: &mut [i64], type_: &Type) {
    for (step, _) in steps.iter_mut().zip(&type_.shape).filter(|it| *it.1 == 1) {
        *step = 0;
    }
}

fn known(op: &Op, operands: &[(&Form, &Type)], result: &Type) -> Option<Form> {
    let dtype = result.dtype;
    let bands = |it: usize| operands[it].0.bands(operands[it].1);
    Some(match op {
        Op::Fill { value, .. } => Form::Bands(Bands::all(bounds::cast(dtype, Bounds::one(value.0)))),
        Op::Iota { start, step, .. } => Form::Even { start: whole(start.0)?, steps: vec![whole(step.0)?] },
        Op::Constant { result, data } => constant(result, data)?,
        Op::Unary(function) => match (function, operands[0].0) {
            (Unary::Neg, Form::Even { start, steps }) => {
                Form::Even { start: -start, steps: steps.iter().map(|it| -it).collect() }
            }
            _ => Form::Bands(Bands::of(&[&bands(0)], |it| bounds::unary(*function, dtype, it[0]))),
        },
        Op::Cast(to) => match operands[0].0 {
            whole @ (Form::Even { .. } | Form::Blocks(_)) if holds_small_integers(*to) => whole.clone(),
            form => Form::Bands(Bands::of(&[&form.bands(operands[0].1)], |it| bounds::cast(*to, it[0]))),
        },
        Op::Binary(function) => binary(*function, operands, result),
        Op::Select => {
            let [c, a, b] = [0, 1, 2].map(bands);
            Form::Bands(Bands::of(&[&c, &a, &b], |it| bounds::select(dtype, it[0], it[1], it[2])))
        }
        Op::Triangle { triangle, diagonal } => {
            let cut = match triangle {
                Triangle::Upper => *diagonal,
                Triangle::Lower => diagonal.checked_add(1)?,
            };
            let zero = Bounds::one(0.0);
            let sides = Bands { cuts: vec![cut], bounds: vec![Bounds::one(0.0), Bounds::one(1.0)] };
            let kept = |it: &[Option<Bounds>]| {
                let upper = it[1].and_then(Bounds::known) == Some(1.0);
                if upper == (*triangle == Triangle::Upper) { it[0] } else { zero }
            };
            Form::Bands(Bands::of(&[&bands(0), &sides], kept))
        }
        Op::CumSum { dim, exclusive, reverse } => {
            let (form, type_) = operands[0];
            let same = form.even(type_.rank()).filter(|(_, steps)| steps.iter().all(|&it| it == 0));
            match same.filter(|_| !exclusive && !reverse) {
                Some((number, _)) => {
                    let steps = (0..result.rank()).map(|it| if it == *dim { number } else { 0 }).collect();
                    Form::Even { start: number, steps }
                }
                None => Form::Bands(Bands::all(counted(hull(&bands(0)), result, *dim))),
            }
        }
        Op::Reduce { reduction: Reduction::Max | Reduction::Min, .. } => {
            Form::Bands(Bands::all(hull(&bands(0)).or(Bounds::any(dtype))))
        }
        Op::Reshape { .. } | Op::Expand { .. } | Op::Transpose { .. } | Op::Slice { .. } => {
            moved(op, operands[0], result)?
        }
        Op::Concat { dim } => {
            let bands = || Form::Bands(joined_bands(*dim, operands, result));
            joined_even(*dim, operands, result).unwrap_or_else(bands)
        }
        Op::Gather { dim } => {
            // One number wherever it is taken from.
            let (form, type_) = operands[0];
            let (number, steps) = form.even(type_.rank()).filter(|_| *dim < type_.rank())?;
            steps.iter().all(|&it| it == 0).then_some(())?;
            Form::Even { start: number, steps: vec![0; result.rank()] }
        }
        _ => return None,
    })
}

/// Between which numbers all elements lie.
fn hull(bands: &Bands) -> Option<Bounds> {
    let mut all = bands.bounds.iter().copied();
    let first = all.next()?;
    all.fold(first, |hull, it| bounds::select(DType::F64, None, hull, it))
}

/// Between which numbers sums of integers lie of which as many are added as there are along a dimension.
fn counted(of: Option<Bounds>, type_: &Type, dim: usize) -> Option<Bounds> {
    let many = float(extent(type_.shape.get(dim).copied().unwrap_or(1)));
    let of = of.filter(|_| !type_.dtype.is_float())?;
    let (least, most) = (of.least.min(0.0) * many, of.most.max(0.0) * many);
    let small = least >= -float(EXACT) && most <= float(EXACT);
    if small { Bounds::between(least, most) } else { Bounds::any(type_.dtype) }
}

/// Whether elements of that type are every integer up to `EXACT`.
fn holds_small_integers(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::F32 | DType::I64 | DType::I32)
}

/// What is known of known elements: nothing, if there are none.
pub(super) fn constant(type_: &Type, data: &[u8]) -> Option<Form> {
    let size = usize::try_from(type_.dtype.bytes()).ok()?;
    let numbers: Vec<f64> = data.chunks(size).map(|it| term::read(type_.dtype, it)).collect::<Option<_>>()?;
    let even = even_numbers(type_, &numbers).filter(|_| holds_small_integers(type_.dtype));
    even.or_else(|| by_distance(type_, &numbers))
}

/// For each dimension how far apart, in a row-major value, its elements are.
fn distances(shape: &[u64]) -> Vec<usize> {
    let size = |it: &u64| usize::try_from(*it).unwrap_or(usize::MAX);
    let mut distances: Vec<usize> = shape
        .iter()
        .rev()
        .scan(1usize, |next, it| {
            let distance = *next;
            *next = next.saturating_mul(size(it));
            Some(distance)
        })
        .collect();
    distances.reverse();
    distances
}

fn even_numbers(type_: &Type, numbers: &[f64]) -> Option<Form> {
    let whole: Vec<i64> = numbers.iter().map(|&it| self::whole(it)).collect::<Option<_>>()?;
    let (&start, distances) = (whole.first()?, distances(&type_.shape));
    let step = |(&distance, &size): (&usize, &u64)| if size > 1 { whole[distance] - start } else { 0 };
    let steps: Vec<i64> = distances.iter().zip(&type_.shape).map(step).collect();
    let at = |place: usize| {
        let along = distances.iter().zip(&type_.shape).zip(&steps).map(|((&distance, &size), step)| {
            step * extent(u64::try_from(place / distance).unwrap_or(0) % size)
        });
        start + along.sum::<i64>()
    };
    whole.iter().enumerate().all(|(place, &it)| it == at(place)).then_some(Form::Even { start, steps })
}

/// Between which numbers elements lie, by distance; nothing if one is no number.
fn by_distance(type_: &Type, numbers: &[f64]) -> Option<Form> {
    let [rows, columns] = last_two(&type_.shape);
    let mut found = std::collections::BTreeMap::new();
    for (place, &number) in (0..).zip(numbers) {
        let distance = place % columns - place / columns % rows;
        let number = Bounds::one(number);
        number?;
        let known = found.entry(distance).or_insert(number);
        *known = bounds::select(DType::F64, None, *known, number);
    }
    let cuts = found.keys().skip(1).copied().collect();
    (!found.is_empty()).then_some(())?;
    Some(Form::Bands(Bands { cuts, bounds: found.into_values().collect() }))
}

fn binary(function: Binary, operands: &[(&Form, &Type)], result: &Type) -> Form {
    let even = |it: usize| {
        let (form, type_) = operands[it];
        holds_small_integers(type_.dtype).then(|| form.even(type_.rank())).flatten()
    };
    if let (Some(a), Some(b)) = (even(0), even(1))
        && let Some(form) = of_even(function, a, b, result)
    {
        return form;
    }
    if let Some(form) = blocks::of(function, [operands[0], operands[1]], result) {
        return form;
    }
    let [a, b] = [0, 1].map(|it: usize| operands[it].0.bands(operands[it].1));
    Form::Bands(Bands::of(&[&a, &b], |it| bounds::binary(function, result.dtype, it[0], it[1])))
}

/// What a function makes of integers that grow evenly: such again, or truth values by distance.
fn of_even(function: Binary, a: (i64, Vec<i64>), b: (i64, Vec<i64>), result: &Type) -> Option<Form> {
    let rank = result.rank();
    let aligned = |steps: &Vec<i64>| [vec![0; rank - steps.len()], steps.clone()].concat();
    let (left, right) = (aligned(&a.1), aligned(&b.1));
    let constant = |steps: &[i64]| steps.iter().all(|&it| it == 0);
    let each = |function: &dyn Fn(i64, i64) -> i64| -> Form {
        let steps = left.iter().zip(&right).map(|(&a, &b)| function(a, b)).collect();
        Form::Even { start: function(a.0, b.0), steps }
    };
    // Whether `ahead + grows * (rows or columns)` is at least 0, by distance.
    let at_least_zero = |ahead: i64, steps: &dyn Fn(usize) -> i64| {
        let grows: Vec<i64> = (0..rank).map(steps).collect();
        let [outer @ .., row, column] = &grows[..] else { return None };
        let opposite = constant(outer) && *row == -column && *column != 0;
        let truths = |below: f64, above: f64| vec![Bounds::one(below), Bounds::one(above)];
        opposite.then(|| match *column {
            // ahead + column * distance >= 0 from this distance on
            column @ 1.. => Bands { cuts: vec![-ahead.div_euclid(column)], bounds: truths(0.0, 1.0) },
            // ... up to this one
            column => Bands { cuts: vec![ahead.div_euclid(-column) + 1], bounds: truths(1.0, 0.0) },
        })
    };
    let greater = |by: i64| at_least_zero(a.0 - b.0 - by, &|dim| left[dim] - right[dim]);
    let less = |by: i64| at_least_zero(b.0 - a.0 - by, &|dim| right[dim] - left[dim]);
    match function {
        Binary::Add => Some(each(&|a, b| a + b)),
        Binary::Sub => Some(each(&|a, b| a - b)),
        Binary::Mul if constant(&left) => {
            let steps = right.iter().map(|it| it * a.0).collect();
            Some(Form::Even { start: a.0 * b.0, steps })
        }
        Binary::Mul if constant(&right) => {
            let steps = left.iter().map(|it| it * b.0).collect();
            Some(Form::Even { start: a.0 * b.0, steps })
        }
        Binary::GreaterOrEqual => greater(0).map(Form::Bands),
        Binary::Greater => greater(1).map(Form::Bands),
        Binary::LessOrEqual => less(0).map(Form::Bands),
        Binary::Less => less(1).map(Form::Bands),
        _ => None,
    }
}

/// Integers that grow evenly, put one after another, if they go on growing so.
fn joined_even(dim: usize, operands: &[(&Form, &Type)], result: &Type) -> Option<Form> {
    let evens: Vec<(i64, Vec<i64>)> =
        operands.iter().map(|(form, type_)| form.even(type_.rank())).collect::<Option<_>>()?;
    let sizes: Vec<i64> = operands.iter().map(|(_, type_)| extent(type_.shape[dim])).collect();
    let (start, mut steps) = evens.first()?.clone();
    let along = || evens.iter().zip(&sizes).find(|(_, size)| **size > 1).map(|(even, _)| even.1[dim]);
    let apart = || Some(evens.get(1)?.0 - start);
    steps[dim] = if sizes[0] > 1 { steps[dim] } else { along().or_else(apart)? };
    let mut expected = start;
    for ((first, own), size) in evens.iter().zip(&sizes) {
        let same = own.iter().zip(&steps).enumerate().all(|(at, (own, step))| {
            own == step || (at == dim && *size == 1) || (at != dim && result.shape[at] == 1)
        });
        if !same || *first != expected {
            return None;
        }
        expected = expected.checked_add(steps[dim].checked_mul(*size)?)?;
    }
    Some(Form::Even { start, steps })
}

/// Values put one after another: by distance, what is known of all that have elements there.
fn joined_bands(dim: usize, operands: &[(&Form, &Type)], result: &Type) -> Bands {
    let mut before = 0;
    let mut parts = Vec::new();
    for (form, type_) in operands {
        let [rows, columns] = last_two(&type_.shape);
        // By so much distances grow.
        let by = match result.rank() - dim {
            1 => before,
            2 => -before,
            _ => 0,
        };
        before += extent(type_.shape[dim]);
        let within = Bands {
            cuts: vec![by + 1 - rows, by + columns],
            bounds: [0.0, 1.0, 0.0].map(Bounds::one).to_vec(),
        };
        parts.extend([form.bands(type_).moved(by), within]);
    }
    Bands::of(&parts.iter().collect::<Vec<_>>(), |it| {
        let there = it.chunks(2).filter(|part| part[1].and_then(Bounds::known) == Some(1.0));
        let hull = there.map(|part| part[0]).reduce(|a, b| bounds::select(result.dtype, None, a, b));
        hull.unwrap_or_else(|| Bounds::any(result.dtype))
    })
}

/// What is known of elements that are elsewhere, or repeated.
fn moved(op: &Op, (form, type_): (&Form, &Type), result: &Type) -> Option<Form> {
    if let Form::Blocks(blocks) = form {
        return blocks.of_places(moved(op, (&blocks.places(), type_), result)?);
    }
    let as_before = last_two(&type_.shape) == last_two(&result.shape);
    match (op, form) {
        (_, Form::Bands(bands)) if bands.cuts.is_empty() => Some(form.clone()),
        (Op::Reshape { .. } | Op::Expand { .. }, Form::Bands(_)) => as_before.then(|| form.clone()),
        (Op::Reshape { .. }, Form::Even { start, steps }) => {
            let wide = |shape: &[u64]| -> Vec<u64> { shape.iter().copied().filter(|&it| it != 1).collect() };
            (wide(&type_.shape) == wide(&result.shape)).then_some(())?;
            let along = steps.iter().zip(&type_.shape).filter(|it| *it.1 != 1).map(|it| *it.0);
            let mut along = along.collect::<Vec<_>>().into_iter();
            let step = |&size: &u64| if size == 1 { 0 } else { along.next().unwrap_or(0) };
            Some(Form::Even { start: *start, steps: result.shape.iter().map(step).collect() })
        }
        (Op::Expand { .. }, Form::Even { start, steps }) => {
            let step = |(step, &size): (&i64, &u64)| if size == 1 { 0 } else { *step };
            let own = steps.iter().zip(&type_.shape).map(step);
            let steps = std::iter::repeat_n(0, result.rank() - type_.rank()).chain(own).collect();
            Some(Form::Even { start: *start, steps })
        }
        (Op::Transpose { permutation }, Form::Even { start, steps }) => {
            Some(Form::Even { start: *start, steps: permutation.iter().map(|&dim| steps[dim]).collect() })
        }
        (Op::Transpose { permutation }, Form::Bands(_)) => {
            let kept = permutation.iter().rev().zip((0..permutation.len()).rev()).take(2);
            kept.into_iter().all(|(&from, to)| from == to).then(|| form.clone())
        }
        (Op::Slice { starts, steps: every, .. }, Form::Even { start, steps }) => {
            let first = starts.iter().zip(steps).map(|(&at, step)| extent(at) * step).sum::<i64>();
            let steps = every.iter().zip(steps).map(|(every, step)| every * step).collect();
            Some(Form::Even { start: start + first, steps })
        }
        (Op::Slice { starts, steps, .. }, Form::Bands(bands)) => {
            let dims = starts.len();
            let in_order = steps[dims.checked_sub(2)?..].iter().all(|&it| it == 1);
            let by = extent(starts[dims - 2]) - extent(starts[dims - 1]);
            in_order.then(|| Form::Bands(bands.moved(by)))
        }
        _ => None,
    }
}
