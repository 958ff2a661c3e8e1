//! What devices compute step by step with a partition in time.
//!
//! Before the first step a device has its blocks at rest; afterwards what the partition's motions say
//! that neighbours, or the device whose turn it is, give it. Nothing is looked up in whole values then.

use kernels::{Array, Span, Tensor, TensorMut, compute, evaluate};
use planner_ir::{AxisId, Layout, LoopId, Loops, Merging, Mesh, Motion, Op, Partition, Piece, Type};

use super::cases::{Case, Trial};
use super::simulate::{cut, held, places, same, stripes, sum, taken};

/// The positions of a block along each dimension.
type Positions = Vec<Vec<u64>>;

/// An operation that is done in steps.
pub(super) struct Steps<'a> {
    mesh: &'a Mesh,
    partition: &'a Partition,
    /// What a step computes: the operation, or parts of what it makes.
    op: Op,
    loops: Loops,
    /// What makes two parts one, if they are not added.
    merge: Option<Op>,
    given: Vec<Type>,
    /// The types of what a step makes parts of.
    made: Vec<Type>,
}

/// What the devices have of one operand or result.
struct Held {
    motion: Motion,
    /// For each device, where its block at rest lies.
    at_rest: Vec<Positions>,
    /// For each device, what came last, or what there is of a result.
    blocks: Vec<Option<Array>>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(case: &Case, mesh: &'a Mesh, partition: &'a Partition) -> Self {
        let (operands, results) = (case.operand_types(), case.result_types());
        let (op, loops) = (case.op.clone(), case.op.loops(&operands, &results));
        match case.op.merging().filter(|_| partition.merges(&loops)) {
            None => Self { mesh, partition, op, loops, merge: None, given: operands, made: results },
            Some(Merging { part, merge }) => {
                let made = part.infer(&operands).unwrap();
                let loops = part.loops(&operands, &made);
                Self { mesh, partition, op: part, loops, merge: Some(merge), given: operands, made }
            }
        }
    }

    /// Whether devices that hold the operands like this at rest have the results like that at the end.
    pub(super) fn is_right(&self, trial: &Trial, operands: &[Layout], results: &[Layout]) -> bool {
        let layouts = operands.iter().zip(&trial.operands).enumerate();
        let mut given: Vec<Held> = layouts
            .map(|(index, (layout, value))| {
                assert!(layout.owed.is_empty(), "what moves owes nothing");
                let motion = self.partition.operand_motion(&self.loops, index);
                let mut held = self.held(motion, layout, value.shape());
                held.blocks = held.at_rest.iter().map(|it| Some(taken(value, it))).collect();
                held
            })
            .collect();
        let mut made: Vec<Held> = (0..self.made.len())
            .map(|index| {
                let motion = self.partition.result_motion(&self.loops, index);
                let own = self.partition.result(&self.loops, index);
                self.held(motion, results.get(index).unwrap_or(&own), &self.made[index].shape)
            })
            .collect();
        for time in 0..self.partition.steps {
            let mut parts: Vec<Vec<Array>> = Vec::new();
            for operand in given.iter_mut().filter(|it| time > 0 && rotates(&it.motion)) {
                self.turn(operand);
            }
            for device in 0..self.mesh.devices() {
                match self.step(&given, device, time) {
                    Some(made) => parts.push(made),
                    None => return false,
                }
            }
            self.put(&mut made, &parts, time);
        }
        results.iter().zip(&made).zip(&trial.results).all(|((layout, made), whole)| {
            (0..self.mesh.devices()).all(|device| {
                let of_device = |device: u64| made.blocks[usize::try_from(device).unwrap()].as_ref();
                let parts: Option<Vec<&Array>> =
                    self.mesh.group(device, &layout.owed).into_iter().map(of_device).collect();
                let expected = cut(whole, layout, self.mesh, device);
                parts.is_some_and(|parts| {
                    let found = sum(&parts);
                    found.shape() == expected.shape() && same(&found, &expected)
                })
            })
        })
    }

    fn held(&self, motion: Motion, layout: &Layout, shape: &[u64]) -> Held {
        let positions = |device| layout.pieces(self.mesh, device, shape).iter().map(|it| held(it)).collect();
        let at_rest: Vec<Positions> = (0..self.mesh.devices()).map(positions).collect();
        Held { motion, blocks: vec![None; at_rest.len()], at_rest }
    }

    /// Every device takes what its neighbour has.
    fn turn(&self, held: &mut Held) {
        let Motion::Rotating(shift) = &held.motion else { return };
        let before = held.blocks.clone();
        for (device, block) in (0..).zip(&mut held.blocks) {
            block.clone_from(&before[usize::try_from(shift.of(self.mesh, device)).unwrap()]);
        }
    }

    /// The device of a streamed block's turn in a device's line.
    fn at_turn(&self, device: u64, axis: AxisId, time: u64) -> usize {
        let mut coordinates = self.mesh.coordinates(device);
        coordinates[axis.0] = time;
        usize::try_from(self.mesh.device(&coordinates)).unwrap()
    }

    /// The block of an operand or result at a step, by the digits.
    fn positions(&self, dims: &[Vec<LoopId>], shape: &[u64], device: u64, time: u64) -> Positions {
        let coordinates = self.mesh.coordinates(device);
        let of_loop = |&it: &LoopId| {
            let digits = &self.partition.loops[it.0];
            let piece = |index: Option<u64>, size: u64| Piece { size, index };
            let own = digits
                .iter()
                .map(|digit| piece((!digit.is_free()).then(|| digit.at(&coordinates, time)), digit.size));
            let inner = self.loops.get(it).size / digits.iter().map(|it| it.size).product::<u64>();
            own.chain([piece(None, inner)]).collect::<Vec<_>>()
        };
        let dim = |(dim, &extent): (&Vec<LoopId>, &u64)| match dim[..] {
            [] => (0..extent).collect(),
            [it] if self.partition.loops[it.0].iter().all(|digit| !digit.is_free()) => {
                let block = self.partition.blocks(self.mesh, &self.loops, device, time)[it.0];
                (block.start..block.start + block.length).collect()
            }
            _ => held(&dim.iter().flat_map(of_loop).collect::<Vec<_>>()),
        };
        dims.iter().zip(shape).map(dim).collect()
    }

    /// Where a block lies, in the dimensions in which the operation depends on it; else 0.
    fn spans(&self, dims: &[Vec<LoopId>], shape: &[u64], positions: &Positions) -> Vec<Span> {
        let span = |dim: usize| {
            let positional = dims[dim].iter().any(|it| self.loops.positional.contains(it));
            let found = stripes(shape[dim], &positions[dim]).filter(|_| positional);
            found.unwrap_or(Span::contiguous(shape[dim], 0))
        };
        (0..shape.len()).map(span).collect()
    }

    /// What a device makes at a step; nothing if the kernel refuses.
    fn step(&self, given: &[Held], device: u64, time: u64) -> Option<Vec<Array>> {
        let number = usize::try_from(device).unwrap();
        let mut operands = Vec::new();
        for (index, operand) in given.iter().enumerate() {
            let dims = &self.loops.operands[index];
            let shape = &self.given[index].shape;
            let positions = self.positions(dims, shape, device, time);
            let block = match operand.motion {
                Motion::Stationary | Motion::Rotating(_) => operand.blocks[number].clone()?,
                Motion::Streaming(axis) => operand.blocks[self.at_turn(device, axis, time)].clone()?,
                Motion::Whole => {
                    taken(operand.blocks[number].as_ref()?, &within(&operand.at_rest[number], &positions)?)
                }
            };
            operands.push((block, self.spans(dims, shape, &positions)));
        }
        let tensors: Vec<Tensor> =
            operands.iter().map(|(block, spans)| Tensor { spans, ..block.tensor() }).collect();
        let mut results = Vec::new();
        for (dims, type_) in self.loops.results.iter().zip(&self.made) {
            let positions = self.positions(dims, &type_.shape, device, time);
            let shape: Vec<u64> = positions.iter().map(|it| u64::try_from(it.len()).unwrap()).collect();
            let zeros = Array::zeros(Type::new(type_.dtype, shape)).unwrap();
            results.push((zeros, self.spans(dims, &type_.shape, &positions)));
        }
        let mut targets: Vec<TensorMut> =
            results.iter_mut().map(|(array, spans)| TensorMut { spans, ..array.tensor_mut() }).collect();
        compute(&self.op, &tensors, &mut targets).ok()?;
        Some(results.into_iter().map(|it| it.0).collect())
    }

    /// Puts what the devices have made at a step to what there is of the results.
    fn put(&self, results: &mut [Held], parts: &[Vec<Array>], time: u64) {
        results.iter_mut().filter(|it| rotates(&it.motion)).for_each(|it| self.turn(it));
        for (device, parts) in (0..).zip(parts) {
            let number = usize::try_from(device).unwrap();
            let before: Option<Vec<Array>> = results.iter().map(|it| it.blocks[number].clone()).collect();
            let merged = self.merge.as_ref().map(|merge| match before {
                None => parts.clone(),
                Some(before) => evaluate(merge, &before.iter().chain(parts).collect::<Vec<_>>()).unwrap(),
            });
            for (index, result) in results.iter_mut().enumerate() {
                let part = &parts[index];
                match (&result.motion, &merged) {
                    (Motion::Stationary, Some(merged)) => result.blocks[number] = Some(merged[index].clone()),
                    (Motion::Stationary | Motion::Rotating(_), _) => {
                        let before = result.blocks[number].take();
                        result.blocks[number] =
                            Some(before.map_or_else(|| part.clone(), |before| sum(&[&before, part])));
                    }
                    (Motion::Streaming(axis), _) => {
                        let to = self.at_turn(device, *axis, time);
                        let before = result.blocks[to].take();
                        result.blocks[to] =
                            Some(before.map_or_else(|| part.clone(), |before| sum(&[&before, part])));
                    }
                    (Motion::Whole, _) => {
                        let (dims, shape) = (&self.loops.results[index], &self.made[index].shape);
                        let at_rest = &result.at_rest[number];
                        let place = within(at_rest, &self.positions(dims, shape, device, time));
                        let before = result.blocks[number].take();
                        result.blocks[number] = place.map(|place| replaced(before, at_rest, &place, part));
                    }
                }
            }
        }
    }
}

fn rotates(motion: &Motion) -> bool {
    matches!(motion, Motion::Rotating(_))
}

/// Where in what is held some positions are, if all are.
fn within(held: &Positions, positions: &Positions) -> Option<Positions> {
    let place =
        |held: &Vec<u64>, at: &u64| held.iter().position(|it| it == at).map(|it| u64::try_from(it).unwrap());
    let dims = held.iter().zip(positions);
    dims.map(|(held, positions)| positions.iter().map(|at| place(held, at)).collect()).collect()
}

/// What is held at these positions, with a part in its place.
fn replaced(before: Option<Array>, held: &Positions, place: &Positions, part: &Array) -> Array {
    let shape: Vec<u64> = held.iter().map(|it| u64::try_from(it.len()).unwrap()).collect();
    let type_ = Type::new(part.dtype(), shape);
    let mut bytes = before.map_or_else(
        || Array::zeros(type_.clone()).unwrap().bytes().to_vec(),
        |before| before.bytes().to_vec(),
    );
    let size = usize::try_from(part.dtype().bytes()).unwrap();
    for (number, to) in places(&type_.shape, place).into_iter().enumerate() {
        bytes[to * size..][..size].copy_from_slice(&part.bytes()[number * size..][..size]);
    }
    Array::from_bytes(type_, &bytes).unwrap()
}
