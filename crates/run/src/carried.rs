//! What sessions hand from step to step where it is: outputs that become inputs, rank by rank.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernels::{Array, KernelError};
use lower::{Direction, Port, Strided};

use crate::copy::copy;
use crate::error::RunError;
use crate::session::Session;

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

impl Session {
    /// Says which inputs are at rest from step to step and which outputs stay where they are: nobody
    /// gives the former, nor is given the latter. The inputs are zeros at first.
    pub fn keep(&mut self, handed: &[Handed]) -> Result<(), RunError> {
        self.kept_inputs = handed.iter().map(|it| it.input.clone()).collect();
        self.kept_outputs = handed.iter().map(|it| it.output.clone()).collect();
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

    /// Takes the outputs of the last step of another session, or of its own, as inputs of the next
    /// one. Each rank takes its own blocks: none is sent.
    pub fn take(&mut self, from: &Self, handed: &[Handed]) -> Result<(), RunError> {
        let blocks = from.handed(self, handed)?;
        self.put_all(blocks)
    }

    /// The same of the last step of its own.
    pub fn take_own(&mut self, handed: &[Handed]) -> Result<(), RunError> {
        let blocks = self.handed(self, handed)?;
        self.put_all(blocks)
    }

    fn put_all(&mut self, blocks: Vec<(usize, Port, Array)>) -> Result<(), RunError> {
        blocks.into_iter().try_for_each(|(rank, port, block)| self.put(rank, port.buffer, Arc::new(block)))
    }

    /// For each rank that is here, the blocks of its outputs that another session takes, and where to.
    fn handed(&self, to: &Self, handed: &[Handed]) -> Result<Vec<(usize, Port, Array)>, RunError> {
        let mut blocks = Vec::new();
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
                let mut start = vec![0; whole.rank()];
                let mut rest = whole.shape.clone();
                let (Some(places), Some(taken)) = (whole.shape.get(*dim), part.shape.get(*dim)) else {
                    return Err(unlike());
                };
                start[*dim] = places.checked_sub(*taken).ok_or_else(unlike)?;
                rest[*dim] = *taken;
                if rest != part.shape || whole.dtype != part.dtype || !same_blocks(from, into, *dim) {
                    return Err(unlike());
                }
                let failed = |error: KernelError| RunError::Whole(input.clone(), error);
                let mut block = Array::zeros(part.clone()).map_err(failed)?;
                let last = Strided::of_box(&whole.shape, &start, &rest);
                let there = self.output_of(number, from)?;
                copy(&last, Direction::Take, part.dtype.bytes(), &there, block.bytes_mut())?;
                blocks.push((number, into.clone(), block));
            }
        }
        Ok(blocks)
    }
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
