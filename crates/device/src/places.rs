//! Where values lie on a device, beside each other and over each other.

use std::ops::Range;

use lower::{BufferId, Program, Region};

/// The region of a buffer, and its bytes there: of all micro-batches that have a place of their own.
fn place(program: &Program, buffer: BufferId) -> (Region, Range<u64>) {
    let storage = program.storage(buffer);
    let bytes = program.extent(program.buffer(buffer).storage);
    (storage.kind.region(), storage.offset..storage.offset + bytes)
}

/// Whether two buffers lie where some byte is of both.
pub(crate) fn meet(program: &Program, a: BufferId, b: BufferId) -> bool {
    let ((a, first), (b, second)) = (place(program, a), place(program, b));
    a == b && first.start < second.end && second.start < first.end
}

/// Whether each element of one buffer lies exactly where that of the other does.
pub(crate) fn is_same_place(program: &Program, a: BufferId, b: BufferId) -> bool {
    let [one, other] = [a, b].map(|it| &program.buffer(it).type_);
    let alike = one.shape == other.shape && one.dtype.bytes() == other.dtype.bytes();
    alike && place(program, a) == place(program, b)
}
