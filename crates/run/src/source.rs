//! What a program is given; whole values to blocks and back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kernels::Array;
use lower::{Direction, Port, Strided};
use planner_ir::{Piece, Type};

use crate::copy::copy;
use crate::error::RunError;
use crate::stored::Stored;

/// What a program is given.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The inputs, by name.
    pub inputs: &'a BTreeMap<String, Array>,
    /// The weights.
    pub weights: &'a dyn Stored,
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("inputs", &self.inputs.keys()).finish_non_exhaustive()
    }
}

/// The blocks of a value, made once for all ranks that hold the same one.
#[derive(Default)]
pub(crate) struct Blocks(Vec<(Vec<Vec<Piece>>, Arc<Array>)>);

impl Blocks {
    /// The block of a port.
    pub(crate) fn block(
        &mut self,
        port: &Port,
        make: impl FnOnce() -> Result<Array, RunError>,
    ) -> Result<Arc<Array>, RunError> {
        if let Some((_, block)) = self.0.iter().find(|(pieces, _)| *pieces == port.pieces) {
            return Ok(Arc::clone(block));
        }
        let block = Arc::new(make()?);
        self.0.push((port.pieces.clone(), Arc::clone(&block)));
        Ok(block)
    }
}

/// The block of a port out of an array.
pub(crate) fn cut(whole: &Array, port: &Port, local: &Type) -> Result<Array, RunError> {
    let mut block = Array::zeros(local.clone()).map_err(|error| RunError::Whole(port.name.clone(), error))?;
    let strided = Strided::of_pieces(&port.pieces);
    copy(&strided, Direction::Take, local.dtype.bytes(), whole.bytes(), block.bytes_mut())?;
    Ok(block)
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
