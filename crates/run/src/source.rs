//! Where weights and inputs come from; whole values to blocks and back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kernels::{Array, KernelError};
use lower::{Direction, Port, Preparation, Strided, Whole};
use planner_ir::{Piece, Type, ValueId};

use crate::copy::copy;
use crate::error::RunError;

/// What a program is given.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The inputs, by name.
    pub inputs: &'a BTreeMap<String, Array>,
    /// Reads a weight, by name; says why not if it cannot.
    pub weight: &'a dyn Fn(&str) -> Result<Array, String>,
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("inputs", &self.inputs.keys()).finish_non_exhaustive()
    }
}

/// A weight, if it can be read.
pub(crate) fn weight(sources: Sources, name: &str) -> Result<Array, RunError> {
    (sources.weight)(name).map_err(|why| RunError::Weight(name.to_owned(), why))
}

/// Refuses a value of another type.
pub(crate) fn expect_type(name: &str, found: &Type, expected: &Type) -> Result<(), RunError> {
    if found == expected {
        return Ok(());
    }
    Err(RunError::Type(name.to_owned(), found.clone(), expected.clone()))
}

/// Computes what is computed once: the values that are kept.
pub(crate) fn prepare(
    preparation: &[Preparation],
    kept: impl Fn(ValueId) -> bool,
    sources: Sources,
) -> Result<BTreeMap<ValueId, Array>, RunError> {
    let mut last: BTreeMap<&Whole, usize> = BTreeMap::new();
    for (index, step) in preparation.iter().enumerate() {
        last.extend(step.operands.iter().map(|operand| (operand, index)));
    }
    let mut weights: BTreeMap<&str, Array> = BTreeMap::new();
    let mut prepared: BTreeMap<ValueId, Array> = BTreeMap::new();
    for (index, step) in preparation.iter().enumerate() {
        for operand in &step.operands {
            if let Whole::Weight(name) = operand
                && !weights.contains_key(name.as_str())
            {
                weights.insert(name, weight(sources, name)?);
            }
        }
        let operand = |operand: &Whole| match operand {
            Whole::Weight(name) => weights.get(name.as_str()),
            Whole::Prepared(value) => prepared.get(value),
        };
        let operands: Option<Vec<&Array>> = step.operands.iter().map(operand).collect();
        let operands =
            operands.ok_or_else(|| RunError::Program(format!("`{}` is prepared too early", step.origin)))?;
        let results = kernels::evaluate(&step.op, &operands)
            .map_err(|error| RunError::Whole(step.origin.clone(), error))?;
        prepared.extend(step.results.iter().copied().zip(results));
        for operand in step.operands.iter().filter(|operand| last.get(operand) == Some(&index)) {
            match operand {
                Whole::Weight(name) => drop(weights.remove(name.as_str())),
                Whole::Prepared(value) if !kept(*value) => drop(prepared.remove(value)),
                Whole::Prepared(_) => {}
            }
        }
    }
    Ok(prepared)
}

/// The blocks of a whole value, made once for all ranks that hold the same one.
pub(crate) struct Cut {
    whole: Arc<Array>,
    blocks: Vec<(Vec<Vec<Piece>>, Arc<Array>)>,
}

impl Cut {
    pub(crate) fn new(whole: Array) -> Self {
        Self { whole: Arc::new(whole), blocks: Vec::new() }
    }

    /// The block of a port, of the buffer's type.
    pub(crate) fn block(&mut self, port: &Port, local: &Type) -> Result<Arc<Array>, RunError> {
        expect_type(&port.name, self.whole.type_(), &port.type_)?;
        if port.pieces.iter().flatten().all(|piece| piece.index.is_none()) {
            return Ok(Arc::clone(&self.whole));
        }
        if let Some((_, block)) = self.blocks.iter().find(|(pieces, _)| *pieces == port.pieces) {
            return Ok(Arc::clone(block));
        }
        let failed = |error: KernelError| RunError::Whole(port.name.clone(), error);
        let mut block = Array::zeros(local.clone()).map_err(failed)?;
        let strided = Strided::of_pieces(&port.pieces);
        copy(&strided, Direction::Take, local.dtype.bytes(), self.whole.bytes(), block.bytes_mut())?;
        let block = Arc::new(block);
        self.blocks.push((port.pieces.clone(), Arc::clone(&block)));
        Ok(block)
    }
}

/// A whole value that is put together from the blocks of several ranks.
pub(crate) struct Joined<'a> {
    whole: Array,
    /// The blocks that are there.
    blocks: Vec<Held<'a>>,
}

/// A block that a rank has.
struct Held<'a> {
    pieces: &'a [Vec<Piece>],
    rank: u64,
    bytes: &'a [u8],
}

impl<'a> Joined<'a> {
    pub(crate) fn new(name: &str, type_: &Type) -> Result<Self, RunError> {
        let whole = Array::zeros(type_.clone());
        let whole = whole.map_err(|error| RunError::Whole(name.to_owned(), error))?;
        Ok(Self { whole, blocks: Vec::new() })
    }

    /// Adds the block of a rank; if it is there already, it has to be the same.
    pub(crate) fn add(&mut self, port: &'a Port, rank: u64, bytes: &'a [u8]) -> Result<(), RunError> {
        if let Some(held) = self.blocks.iter().find(|held| held.pieces == port.pieces) {
            let same = held.bytes == bytes;
            return if same { Ok(()) } else { Err(RunError::Replicas(port.name.clone(), held.rank, rank)) };
        }
        let strided = Strided::of_pieces(&port.pieces);
        copy(&strided, Direction::Put, port.type_.dtype.bytes(), bytes, self.whole.bytes_mut())?;
        self.blocks.push(Held { pieces: &port.pieces, rank, bytes });
        Ok(())
    }

    /// The whole, if all of it is there.
    pub(crate) fn finish(self, name: &str) -> Result<Array, RunError> {
        let factors = |held: &Held<'a>| -> Vec<Vec<u64>> {
            held.pieces.iter().map(|pieces| pieces.iter().map(sharing).collect()).collect()
        };
        let alike = self.blocks.windows(2).all(|pair| factors(&pair[0]) == factors(&pair[1]));
        let is_whole = if alike {
            let there: usize = self.blocks.iter().map(|held| held.bytes.len()).sum();
            there == self.whole.bytes().len()
        } else {
            // Stages may hold what they both use in layouts of their own.
            self.check_common(name)?;
            self.is_covered()?
        };
        if is_whole {
            return Ok(self.whole);
        }
        Err(RunError::Program(format!("no rank has some of `{name}`")))
    }

    /// Refuses blocks that say other things of the same elements: of these, the last ones put in are
    /// those of the whole.
    fn check_common(&self, name: &str) -> Result<(), RunError> {
        let element = self.whole.dtype().bytes();
        let Some(last) = self.blocks.last() else { return Ok(()) };
        for held in &self.blocks {
            let mut block = vec![0; held.bytes.len()];
            let strided = Strided::of_pieces(held.pieces);
            copy(&strided, Direction::Take, element, self.whole.bytes(), &mut block)?;
            if block != held.bytes {
                return Err(RunError::Replicas(name.to_owned(), held.rank, last.rank));
            }
        }
        Ok(())
    }

    /// Whether each element is in a block.
    fn is_covered(&self) -> Result<bool, RunError> {
        let element = usize::try_from(self.whole.dtype().bytes()).unwrap_or(1);
        let mut covered = vec![0; self.whole.bytes().len() / element];
        for held in &self.blocks {
            let ones = vec![1; held.bytes.len() / element];
            copy(&Strided::of_pieces(held.pieces), Direction::Put, 1, &ones, &mut covered)?;
        }
        Ok(covered.iter().all(|&it| it == 1))
    }
}

/// Into how many blocks a factor falls of which a rank holds one; 1 if it holds all.
fn sharing(piece: &Piece) -> u64 {
    piece.index.map_or(1, |_| piece.size)
}
