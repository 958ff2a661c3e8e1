//! Who reads what a program's instructions make.

use lower::{BufferId, Kind, Program, StorageId};

/// For each storage of a program what reads it.
pub(crate) struct Uses<'a> {
    program: &'a Program,
    /// The instructions that do, in order.
    readers: Vec<Vec<usize>>,
    /// Whether it is there after a step, or returned.
    lasts: Vec<bool>,
}

impl<'a> Uses<'a> {
    pub(crate) fn of(program: &'a Program) -> Self {
        let mut readers = vec![Vec::new(); program.storages.len()];
        for (number, instruction) in program.instructions.iter().enumerate() {
            for buffer in instruction.action.reads() {
                let readers: &mut Vec<usize> = &mut readers[program.buffer(buffer).storage.0];
                if readers.last() != Some(&number) {
                    readers.push(number);
                }
            }
        }
        let mut lasts: Vec<bool> = program.storages.iter().map(|it| it.kind != Kind::Activation).collect();
        for port in &program.outputs {
            lasts[program.buffer(port.buffer).storage.0] = true;
        }
        Self { program, readers, lasts }
    }

    /// Whether what lies in a storage is needed for anything but some instructions.
    pub(crate) fn is_needed(&self, storage: StorageId, but: &[usize]) -> bool {
        self.lasts[storage.0] || self.readers[storage.0].iter().any(|it| !but.contains(it))
    }

    /// Whether what lies in a storage is there after a step, or returned.
    pub(crate) fn lasts(&self, storage: StorageId) -> bool {
        self.lasts[storage.0]
    }

    /// Whether what lies in a storage is read by an instruction that is none of some.
    pub(crate) fn is_read(&self, storage: StorageId, but: impl Fn(usize) -> bool) -> bool {
        self.readers[storage.0].iter().any(|&reader| !but(reader))
    }

    /// All instructions that read a value, if nothing else needs it.
    pub(crate) fn readers(&self, buffer: BufferId) -> Option<&[usize]> {
        let storage = self.program.buffer(buffer).storage.0;
        (!self.lasts[storage]).then_some(&self.readers[storage])
    }
}
