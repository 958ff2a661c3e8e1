//! Copies of outputs to where inputs are at rest, within the memory of a device.

use kernels::cuda::Work;
use lower::Direction;
use run::Moved;

use crate::cache::Loaded;
use crate::error::DeviceError;
use crate::gpu::Stream;
use crate::rank::Rank;
use crate::ready::{Given, Packed};
use crate::tasks::strided;

/// Copies that are ready to be issued.
#[derive(Default)]
pub(crate) struct Moves(Vec<Move>);

/// A copy of elements, or of all bytes.
struct Move {
    from: u64,
    to: u64,
    how: How,
}

enum How {
    /// So many bytes that follow each other.
    Bytes(u64),
    /// Kernels.
    Kernels(Vec<Packed>),
}

impl Moves {
    /// The kernels of a copy; none where bytes follow each other.
    pub(crate) fn work(from: &Rank, moved: &Moved) -> Work {
        if moved.taken.is_identity() {
            return Work::default();
        }
        let bytes = from.program.buffer(moved.from.1).type_.dtype.bytes();
        strided(&moved.taken, Direction::Take, bytes)
    }

    /// Adds a copy between two ranks whose kernels have been loaded.
    pub(crate) fn add(
        &mut self,
        moved: &Moved,
        [from, to]: [&Rank; 2],
        work: &Work,
        loaded: &Loaded,
    ) -> Result<(), DeviceError> {
        let how = if moved.taken.is_identity() {
            How::Bytes(to.bytes(moved.to.1))
        } else {
            How::Kernels(Packed::all(work, loaded)?)
        };
        let (from, to) = (from.address(moved.from.1, 0), to.address(moved.to.1, 0));
        self.0.push(Move { from, to, how });
        Ok(())
    }

    /// Issues all of them on a stream.
    pub(crate) fn issue(&self, stream: &Stream, given: &mut Given) -> Result<(), DeviceError> {
        for Move { from, to, how } in &self.0 {
            match how {
                How::Bytes(bytes) => stream.copy(*to, *from, *bytes)?,
                How::Kernels(launches) => {
                    given.operands.clear();
                    given.operands.push(*from);
                    given.results.clear();
                    given.results.push(*to);
                    launches.iter().try_for_each(|launch| launch.launch(stream, given))?;
                }
            }
        }
        Ok(())
    }
}
