//! What devices compute with given layouts.

use std::collections::BTreeMap;

use kernels::{Array, Span, Tensor, TensorMut, compute, evaluate};
use planner_ir::{AxisId, DType, Layout, LoopId, Loops, Mesh, Op, Piece, Type};

use super::cases::{Case, Random, Trial};

/// A case's operation and one set of operands on a mesh, with what was computed before.
pub(super) struct World<'a> {
    case: &'a Case,
    trial: &'a Trial,
    mesh: &'a Mesh,
    loops: Loops,
    /// For each operand and layout, the block of each device.
    blocks: BTreeMap<(usize, Layout), Vec<Block>>,
    /// The operands' layouts and the results' blocks that `made` is of.
    given: (Vec<Layout>, Vec<Vec<Place>>),
    /// For each device its results, unless a kernel refused.
    made: Option<Vec<Vec<Array>>>,
}

/// The shape of a block and where it lies.
type Place = (Vec<u64>, Vec<Span>);

/// What a device holds of a value.
struct Block {
    array: Array,
    spans: Vec<Span>,
}

impl<'a> World<'a> {
    pub(super) fn new(case: &'a Case, trial: &'a Trial, mesh: &'a Mesh) -> Self {
        let loops = case.op.loops(&case.operand_types(), &case.result_types());
        Self { case, trial, mesh, loops, blocks: BTreeMap::new(), given: (vec![], vec![]), made: None }
    }

    /// Whether devices that hold the operands like this compute the results like that.
    pub(super) fn is_right(&mut self, operands: &[Layout], results: &[Layout]) -> bool {
        let devices = self.mesh.devices();
        let places: Vec<Vec<Place>> =
            (0..devices).map(|device| self.result_places(device, results)).collect();
        if self.given != (operands.to_vec(), places.clone()) {
            for (index, layout) in operands.iter().enumerate() {
                if !self.blocks.contains_key(&(index, layout.clone())) {
                    let blocks = self.operand_blocks(index, layout);
                    self.blocks.insert((index, layout.clone()), blocks);
                }
            }
            self.made = (0..devices)
                .zip(&places)
                .map(|(device, places)| self.run(device, operands, places))
                .collect();
            self.given = (operands.to_vec(), places);
        }
        let Some(made) = &self.made else { return false };
        results.iter().enumerate().all(|(index, layout)| {
            let of_device = |device: u64| &made[usize::try_from(device).unwrap()][index];
            (0..devices).all(|device| {
                let group = self.mesh.group(device, &layout.owed);
                let parts: Vec<&Array> = group.into_iter().map(of_device).collect();
                let expected = cut(&self.trial.results[index], layout, self.mesh, device);
                same(&sum(&parts), &expected)
            })
        })
    }

    fn result_places(&self, device: u64, results: &[Layout]) -> Vec<Place> {
        let place = |(index, layout): (usize, &Layout)| {
            let shape = &self.trial.results[index].type_().shape;
            let spans = self.spans(device, layout, shape, &self.loops.results[index]);
            (layout.local_shape(shape), spans)
        };
        results.iter().enumerate().map(place).collect()
    }

    /// Where a block lies, in the dimensions in which the operation depends on it; else 0.
    fn spans(&self, device: u64, layout: &Layout, shape: &[u64], dims: &[Vec<LoopId>]) -> Vec<Span> {
        let pieces = layout.pieces(self.mesh, device, shape);
        let span = |dim: usize| {
            let (extent, held) = (shape[dim], held(&pieces[dim]));
            let one_of = |loops: &[LoopId]| dims[dim].iter().any(|it| loops.contains(it));
            let positional = one_of(&self.loops.positional);
            match stripes(extent, &held) {
                Some(span) if positional && (span.stride == 1 || !one_of(&self.loops.contiguous)) => span,
                _ => Span::contiguous(extent, 0),
            }
        };
        (0..shape.len()).map(span).collect()
    }

    fn operand_blocks(&self, index: usize, layout: &Layout) -> Vec<Block> {
        let value = &self.trial.operands[index];
        let addends = addends(value, self.mesh, &layout.owed, self.trial.random(index));
        let block = |device: u64| {
            let array =
                cut(&addends[place_among(self.mesh, device, &layout.owed)], layout, self.mesh, device);
            let spans = self.spans(device, layout, value.shape(), &self.loops.operands[index]);
            Block { array, spans }
        };
        (0..self.mesh.devices()).map(block).collect()
    }

    fn run(&self, device: u64, operands: &[Layout], places: &[Place]) -> Option<Vec<Array>> {
        let number = usize::try_from(device).unwrap();
        let block = |(index, layout): (usize, &Layout)| &self.blocks[&(index, layout.clone())][number];
        let blocks: Vec<&Block> = operands.iter().enumerate().map(block).collect();
        let tensors: Vec<Tensor> =
            blocks.iter().map(|it| Tensor { spans: &it.spans, ..it.array.tensor() }).collect();
        let array = |(place, whole): (&Place, &Array)| {
            Array::zeros(Type::new(whole.dtype(), place.0.clone())).unwrap()
        };
        let mut results: Vec<Array> = places.iter().zip(&self.trial.results).map(array).collect();
        let spans: Vec<Vec<Span>> = places.iter().map(|place| place.1.clone()).collect();
        let mut targets: Vec<TensorMut> = results
            .iter_mut()
            .zip(&spans)
            .map(|(array, spans)| TensorMut { spans, ..array.tensor_mut() })
            .collect();
        compute(&self.case.op, &tensors, &mut targets).ok()?;
        Some(results)
    }
}

/// The stripes, or the one, that these positions are.
pub(super) fn stripes(extent: u64, held: &[u64]) -> Option<Span> {
    let start = *held.first()?;
    let count = held.iter().zip(start..).take_while(|(held, next)| *held == next).count();
    let span = match held.get(count) {
        None => Span::contiguous(extent, start),
        Some(next) => Span { extent, start, run: u64::try_from(count).unwrap(), stride: next - start },
    };
    let right =
        (0..).zip(held).all(|(place, &at)| at == start + place / span.run * span.stride + place % span.run);
    right.then_some(span)
}

/// The positions that a device holds along a dimension.
pub(super) fn held(pieces: &[Piece]) -> Vec<u64> {
    let mut held = vec![0];
    for piece in pieces {
        let values = |&before: &u64| -> Vec<u64> {
            match piece.index {
                Some(index) => vec![before * piece.size + index],
                None => (0..piece.size).map(|index| before * piece.size + index).collect(),
            }
        };
        held = held.iter().flat_map(values).collect();
    }
    held
}

/// The block of a value that a device holds.
pub(super) fn cut(value: &Array, layout: &Layout, mesh: &Mesh, device: u64) -> Array {
    let pieces = layout.pieces(mesh, device, value.shape());
    taken(value, &pieces.iter().map(|it| held(it)).collect::<Vec<_>>())
}

/// The elements of a value at these positions along each dimension.
pub(super) fn taken(value: &Array, positions: &[Vec<u64>]) -> Array {
    let size = usize::try_from(value.dtype().bytes()).unwrap();
    let places = places(value.shape(), positions);
    let bytes: Vec<u8> =
        places.iter().flat_map(|&place| value.bytes()[place * size..][..size].to_vec()).collect();
    let shape: Vec<u64> = positions.iter().map(|it| u64::try_from(it.len()).unwrap()).collect();
    Array::from_bytes(Type::new(value.dtype(), shape), &bytes).unwrap()
}

/// The places of the elements at these positions along each dimension, in a value of that shape.
pub(super) fn places(shape: &[u64], positions: &[Vec<u64>]) -> Vec<usize> {
    let mut places = vec![0];
    for (positions, &extent) in positions.iter().zip(shape) {
        let further = |place: &u64| {
            let before = place * extent;
            positions.iter().map(move |at| before + at)
        };
        places = places.iter().flat_map(further).collect();
    }
    places.into_iter().map(|it| usize::try_from(it).unwrap()).collect()
}

/// The number of a device among those that differ from it in these axes only.
fn place_among(mesh: &Mesh, device: u64, axes: &[AxisId]) -> usize {
    let coordinates = mesh.coordinates(device);
    let place = axes.iter().fold(0, |place, &axis| place * mesh.size(axis) + coordinates[axis.0]);
    usize::try_from(place).unwrap()
}

/// Values whose sum is the value: one for each device along the axes.
fn addends(value: &Array, mesh: &Mesh, axes: &[AxisId], mut random: Random) -> Vec<Array> {
    let count: u64 = axes.iter().map(|&axis| mesh.size(axis)).product();
    let mut addends: Vec<Array> = vec![value.clone()];
    for _ in 1..count {
        let part = random.like(value);
        let rest = combine(&addends[0], &part, |a, b| a - b, i64::wrapping_sub);
        addends[0] = rest;
        addends.push(part);
    }
    addends
}

pub(super) fn sum(parts: &[&Array]) -> Array {
    let mut sum = parts[0].clone();
    for part in &parts[1..] {
        sum = combine(&sum, part, |a, b| a + b, i64::wrapping_add);
    }
    sum
}

/// Two values element by element.
fn combine(a: &Array, b: &Array, float: fn(f64, f64) -> f64, integer: fn(i64, i64) -> i64) -> Array {
    let type_ = a.type_().clone();
    if a.dtype().is_float() {
        let (x, y) = (a.to_floats().unwrap(), b.to_floats().unwrap());
        let numbers: Vec<f64> = x.iter().zip(&y).map(|(&x, &y)| float(x, y)).collect();
        return of_floats(type_, &numbers);
    }
    let (x, y) = (a.to_integers().unwrap(), b.to_integers().unwrap());
    let numbers: Vec<i64> = x.iter().zip(&y).map(|(&x, &y)| integer(x, y)).collect();
    of_integers(type_, &numbers)
}

/// The value of that type with those elements, to the nearest.
pub(super) fn of_floats(type_: Type, numbers: &[f64]) -> Array {
    if type_.dtype == DType::BF16 || type_.dtype.is_f8() {
        let narrow = Op::Cast(type_.dtype);
        let wide = of_floats(Type { dtype: DType::F32, ..type_ }, numbers);
        return evaluate(&narrow, &[&wide]).unwrap().remove(0);
    }
    #[expect(clippy::cast_possible_truncation, reason = "f32 is what is asked for")]
    let bytes: Vec<u8> = match type_.dtype {
        DType::F32 => numbers.iter().flat_map(|&it| (it as f32).to_le_bytes()).collect(),
        _ => numbers.iter().flat_map(|it| it.to_le_bytes()).collect(),
    };
    Array::from_bytes(type_, &bytes).unwrap()
}

/// The value of that type with the low bytes of those elements.
pub(super) fn of_integers(type_: Type, numbers: &[i64]) -> Array {
    let size = usize::try_from(type_.dtype.bytes()).unwrap();
    let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()[..size].to_vec()).collect();
    Array::from_bytes(type_, &bytes).unwrap()
}

/// Whether two values are equal: exactly, but for rounding.
pub(super) fn same(a: &Array, b: &Array) -> bool {
    /// What functions of floating-point numbers may differ by, relative to their size or to 1.
    const TOLERANCE: f64 = 2e-4;
    if a.bytes() == b.bytes() {
        return true;
    }
    if !a.dtype().is_float() {
        return false;
    }
    let (x, y) = (a.to_floats().unwrap(), b.to_floats().unwrap());
    x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= TOLERANCE * y.abs().max(1.0))
}
