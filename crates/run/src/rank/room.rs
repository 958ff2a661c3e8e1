//! The memory of a rank, beside that of another one whose steps take turns with its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernels::{Array, KernelError};
use lower::Kind;
use planner_ir::{DType, Type};

use super::Rank;
use crate::error::RunError;

impl Rank {
    /// Has memory for a step: its own; that of another one, which does not need it now; or new memory, if that
    /// is too small.
    pub(crate) fn make_room(&mut self, other: Option<&mut Self>) -> Result<(), RunError> {
        let suffices =
            |it: &Self| u64::try_from(it.arena.bytes().len()).unwrap_or(u64::MAX) >= self.program.arena;
        if suffices(self) {
            return Ok(());
        }
        if let Some(other) = other {
            let nothing = Self::memory(0)?;
            let taken = std::mem::replace(&mut other.arena, nothing);
            self.arena = taken;
        }
        if !suffices(self) {
            // What is too small goes first.
            self.arena = Self::memory(0)?;
            self.arena = Self::memory(self.program.arena)?;
        }
        Ok(())
    }

    /// Has no inputs at rest any more.
    pub(crate) fn leave_inputs(&mut self) {
        let Self { program, rest, .. } = self;
        let inputs = rest.iter_mut().zip(&program.storages).filter(|(_, it)| it.kind == Kind::Input);
        inputs.for_each(|(block, _)| *block = None);
    }

    /// Memory of so many bytes.
    pub(super) fn memory(bytes: u64) -> Result<Array, RunError> {
        let failed = |error: KernelError| RunError::Whole("arena".to_owned(), error);
        Array::zeros(Type::new(DType::U8, [bytes])).map_err(failed)
    }

    /// What is held: each block at rest with its address and its size, and the memory of a step (bytes).
    pub(crate) fn held(&self) -> (BTreeMap<*const u8, u64>, u64) {
        let size = |array: &Array| u64::try_from(array.bytes().len()).unwrap_or(u64::MAX);
        let blocks = self.rest.iter().flatten().filter(|it| size(it) > 0);
        let of = |it: &Arc<Array>| (it.bytes().as_ptr(), size(it).next_multiple_of(lower::ALIGNMENT));
        (blocks.map(of).collect(), size(&self.arena))
    }
}
