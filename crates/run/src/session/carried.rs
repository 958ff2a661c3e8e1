//! What sessions hand from step to step where it is: outputs that become inputs, rank by rank.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernels::{Array, KernelError};
use lower::{BufferId, Direction, Port, Strided};
use planner_ir::Type;

use super::Session;
use crate::copy::copy;
use crate::error::RunError;

/// An output of one program that becomes an input of another one: all of it, or its last places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The output.
    pub output: String,
    /// The input, of the same type but for fewer places.
    pub input: String,
    /// The dimension along which the places are, which is whole on every rank.
    pub dim: usize,
}

/// A part of a block of one rank that is copied to a block of a rank at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The rank and the buffer that is read: an output.
    pub from: (usize, BufferId),
    /// The rank and the buffer that is written: an input, all of it.
    pub to: (usize, BufferId),
    /// Which elements are taken.
    pub taken: Strided,
}

impl Session {
    /// Says which inputs are at rest from step to step and which outputs stay where they are: nobody
    /// gives the former, nor is given the latter. The inputs are zeros at first, and after each step
    /// what its outputs are: each rank takes its own blocks, none is sent.
    pub fn keep(&mut self, handed: &[Handed]) -> Result<(), RunError> {
        self.kept_inputs = handed.iter().map(|it| it.input.clone()).collect();
        self.kept_outputs = handed.iter().map(|it| it.output.clone()).collect();
        self.carried = self.moved(self, handed)?;
        if let Some(seat) = &self.engine {
            seat.carry(self.ranks.len(), &self.carried)?;
        }
        self.clear()
    }

    /// Sets the inputs that are at rest to zero.
    pub fn clear(&mut self) -> Result<(), RunError> {
        for held in self.ports(|program| &program.inputs) {
            if !self.kept_inputs.contains(&held.name) {
                continue;
            }
            for (rank, _, port) in &held.ports {
                if !self.is_here(*rank) {
                    continue;
                }
                let type_ = self.ranks[*rank].program.buffer(port.buffer).type_.clone();
                let failed = |error: KernelError| RunError::Whole(held.name.clone(), error);
                let zeros = Array::zeros(type_).map_err(failed)?;
                self.put(*rank, port.buffer, Arc::new(zeros))?;
            }
        }
        Ok(())
    }

    /// Takes the outputs of the last step of another session, which one of them has been made beside, as
    /// inputs of the next one, before which the other one's inputs are lost. Each rank takes its own blocks: none is
    /// sent.
    pub fn take(&mut self, from: &mut Self, handed: &[Handed]) -> Result<(), RunError> {
        let moved = from.moved(self, handed)?;
        from.leave_inputs();
        if let Some(seat) = &self.engine {
            return seat.hand(&moved);
        }
        let blocks = from.blocks(self, &moved)?;
        self.put_all(blocks)
    }

    /// The same of the last step of its own, as it keeps them.
    pub(crate) fn carry(&mut self) -> Result<(), RunError> {
        // Engines have done it.
        if self.engine.is_some() || self.carried.is_empty() {
            return Ok(());
        }
        let blocks = self.blocks(self, &self.carried)?;
        self.put_all(blocks)
    }

    fn put_all(&mut self, blocks: Vec<(usize, BufferId, Array)>) -> Result<(), RunError> {
        blocks.into_iter().try_for_each(|(rank, buffer, block)| self.put(rank, buffer, Arc::new(block)))
    }

    /// What ranks on processors take: for each block the rank, where to, and what it is.
    fn blocks(&self, to: &Self, moved: &[Moved]) -> Result<Vec<(usize, BufferId, Array)>, RunError> {
        let block = |it: &Moved| {
            let ((number, from), (_, into)) = (it.from, it.to);
            let port = self.ranks[number].program.outputs.iter().find(|port| port.buffer == from);
            let missing = || RunError::Program(format!("b{} is no output of rank {number}", from.0));
            let port = port.ok_or_else(missing)?;
            let type_ = to.ranks[number].program.buffer(into).type_.clone();
            let failed = |error: KernelError| RunError::Whole(port.name.clone(), error);
            let bytes = type_.dtype.bytes();
            let mut block = Array::zeros(type_).map_err(failed)?;
            let there = self.output_of(number, port)?;
            copy(&it.taken, Direction::Take, bytes, &there, block.bytes_mut())?;
            Ok((number, into, block))
        };
        moved.iter().map(block).collect()
    }

    /// What ranks that are here take from step to step: parts of outputs of this session's programs as
    /// inputs of another's.
    fn moved(&self, to: &Self, handed: &[Handed]) -> Result<Vec<Moved>, RunError> {
        let place = |session: &Self, rank| session.engine.as_ref().map_or(rank, |seat| seat.place(rank));
        let mut moved = Vec::new();
        for (number, (before, after)) in self.ranks.iter().zip(&to.ranks).enumerate() {
            if !self.is_here(number) {
                continue;
            }
            let by_name = |ports: &'_ [Port]| -> BTreeMap<String, Port> {
                ports.iter().map(|port| (port.name.clone(), port.clone())).collect()
            };
            let (outputs, inputs) = (by_name(&before.program.outputs), by_name(&after.program.inputs));
            for Handed { output, input, dim } in handed {
                // A program may start anew, and take nothing.
                let Some(into) = inputs.get(input) else { continue };
                let missing = || RunError::Program(format!("there is no output `{output}` for `{input}`"));
                let from = outputs.get(output).ok_or_else(missing)?;
                let (whole, part) =
                    (&before.program.buffer(from.buffer).type_, &after.program.buffer(into.buffer).type_);
                let unlike = || RunError::Type(input.clone(), whole.clone(), part.clone());
                let storage = |port: &Port| before.program.buffer(port.buffer).storage;
                if std::ptr::eq(before, after) && storage(from) == storage(into) {
                    // It is there, written over what it was.
                    continue;
                }
                if !same_blocks(from, into, *dim) {
                    return Err(unlike());
                }
                moved.push(Moved {
                    from: (place(self, number), from.buffer),
                    to: (place(to, number), into.buffer),
                    taken: last(whole, part, *dim).ok_or_else(unlike)?,
                });
            }
        }
        Ok(moved)
    }
}

/// The last places of a block along a dimension, as many as another one has; nothing if they differ in
/// something else.
fn last(whole: &Type, part: &Type, dim: usize) -> Option<Strided> {
    let (places, taken) = (whole.shape.get(dim)?, part.shape.get(dim)?);
    let mut start = vec![0; whole.rank()];
    let mut rest = whole.shape.clone();
    start[dim] = places.checked_sub(*taken)?;
    rest[dim] = *taken;
    let same = rest == part.shape && whole.dtype == part.dtype;
    same.then(|| Strided::of_box(&whole.shape, &start, &rest))
}

/// Whether a rank holds the same blocks of two values that differ in how many places they have along
/// a dimension, and all of that one.
fn same_blocks(from: &Port, into: &Port, dim: usize) -> bool {
    let other = |port: &Port| {
        let dims = port.pieces.iter().enumerate().filter(|(it, _)| *it != dim);
        dims.map(|(_, pieces)| pieces.clone()).collect::<Vec<_>>()
    };
    let whole = |port: &Port| port.pieces.get(dim).is_some_and(|it| it.iter().all(|it| it.index.is_none()));
    other(from) == other(into) && whole(from) && whole(into)
}
