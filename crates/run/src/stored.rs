//! Arrays by name that are read block by block: the weights of a model, the states of a checkpoint.

use std::collections::BTreeMap;

use kernels::{Array, KernelError};
use lower::{Direction, Port, Stride, Strided};
use planner_ir::{DType, Op, Type};

use crate::copy::copy;
use crate::error::{RunError, expect_type};
use crate::view::{Copies, View};

/// How much is read at once (elements).
const AT_ONCE: u64 = 1 << 16;

/// How much is read before what was looked at is released (bytes).
const KEPT: u64 = 1 << 26;

/// Arrays by name, of which only what is asked for is read.
pub trait Stored {
    /// The type of an array; says why not if it cannot be read.
    fn type_of(&self, name: &str) -> Result<Type, String>;

    /// Reads elements of an array, little-endian, of its own type: those that a copy out of the whole,
    /// row-major, takes. There is room for exactly these.
    fn read(&self, name: &str, elements: &Strided, to: &mut [u8]) -> Result<(), String>;

    /// What has been looked at is not looked at again soon: whoever keeps it in memory may stop.
    fn release(&self) {}
}

impl Stored for BTreeMap<String, Array> {
    fn type_of(&self, name: &str) -> Result<Type, String> {
        self.get(name).map(|it| it.type_().clone()).ok_or_else(|| NONE.to_owned())
    }

    fn read(&self, name: &str, elements: &Strided, to: &mut [u8]) -> Result<(), String> {
        let array = self.get(name).ok_or(NONE)?;
        take(elements, array.dtype(), array.bytes(), to)
    }
}

/// What is said of an array that is not there.
const NONE: &str = "there is none of that name";

/// Copies elements of that type out of an array's bytes.
pub fn take(elements: &Strided, dtype: DType, from: &[u8], to: &mut [u8]) -> Result<(), String> {
    copy(elements, Direction::Take, dtype.bytes(), from, to).map_err(|error| error.to_string())
}

/// A whole array: the block that is everything.
pub fn whole(stored: &dyn Stored, name: &str) -> Result<Array, RunError> {
    converted(stored, name, &type_of(stored, name)?)
}

/// A whole array, converted if it is of another element type.
pub(crate) fn converted(stored: &dyn Stored, name: &str, type_: &Type) -> Result<Array, RunError> {
    named(stored, name, type_, View::all(&type_.shape), type_)
}

/// The block of a port of the array of its name, converted to the buffer's type if it is of another.
pub(crate) fn port_block(stored: &dyn Stored, port: &Port, local: &Type) -> Result<Array, RunError> {
    named(stored, &port.name, &port.type_, View::of_pieces(&port.pieces), local)
}

/// A block of an array, which has to be of that shape.
fn named(stored: &dyn Stored, name: &str, whole: &Type, view: View, local: &Type) -> Result<Array, RunError> {
    let Type { dtype, shape } = type_of(stored, name)?;
    expect_type(name, &Type { dtype: whole.dtype, shape }, whole)?;
    let ops = if dtype == local.dtype { Vec::new() } else { vec![Op::Cast(local.dtype)] };
    block(stored, name, &[Part { of: Of::Stored(name.to_owned()), ops, view }], local.clone())
}

/// The type of an array.
pub(crate) fn type_of(stored: &dyn Stored, name: &str) -> Result<Type, RunError> {
    stored.type_of(name).map_err(|why| RunError::Weight(name.to_owned(), why))
}

/// A part of a block: elements of an array, and what is made of each.
#[derive(Clone, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) of: Of<'a>,
    /// Operations on each element, the first one first.
    pub(crate) ops: Vec<Op>,
    pub(crate) view: View,
}

/// What elements are of.
#[derive(Clone, Debug)]
pub(crate) enum Of<'a> {
    /// The array of that name.
    Stored(String),
    /// One that is in memory.
    Memory(&'a Array),
}

/// A block of that type, of these parts. But for the block nothing is allocated that grows with it.
pub(crate) fn block(
    stored: &dyn Stored,
    name: &str,
    parts: &[Part<'_>],
    type_: Type,
) -> Result<Array, RunError> {
    let failed = |error: KernelError| RunError::Whole(name.to_owned(), error);
    let mut block = Array::zeros(type_).map_err(failed)?;
    let mut kept = 0;
    for Part { of, ops, view } in parts {
        let type_ = match of {
            Of::Stored(name) => type_of(stored, name)?,
            Of::Memory(array) => array.type_().clone(),
        };
        let read = |elements: &Strided, to: &mut [u8]| match of {
            Of::Stored(name) => {
                let unread = |why: String| RunError::Weight(name.clone(), why);
                stored.read(name, elements, to).map_err(unread)
            }
            Of::Memory(array) => copy(elements, Direction::Take, type_.dtype.bytes(), array.bytes(), to),
        };
        let dtype = block.dtype();
        if ops.is_empty() {
            expect_type(name, &Type { dtype: type_.dtype, ..block.type_().clone() }, block.type_())?;
        }
        for Copies { from, to } in at_most(&view.copies(&type_.shape), AT_ONCE) {
            if kept > KEPT {
                stored.release();
                kept = 0;
            }
            kept += from.elements() * type_.dtype.bytes();
            // Where elements stay as they are and together, they need no place of their own.
            if ops.is_empty() && to.loops.iter().all(|it| it.from == it.to) {
                read(
                    &from,
                    place(&mut block, to.start, from.elements()).ok_or_else(|| failed(KernelError::Size))?,
                )?;
                continue;
            }
            let mut piece = Array::zeros(Type::new(type_.dtype, [from.elements()])).map_err(failed)?;
            read(&from, piece.bytes_mut())?;
            for op in ops {
                let made = kernels::evaluate(op, &[&piece]).map_err(failed)?;
                piece = made.into_iter().next().ok_or_else(|| failed(KernelError::Size))?;
            }
            expect_type(name, piece.type_(), &Type::new(dtype, piece.shape()))?;
            copy(&to, Direction::Put, dtype.bytes(), piece.bytes(), block.bytes_mut())?;
        }
    }
    stored.release();
    Ok(block)
}

/// The bytes of some elements that follow each other.
fn place(block: &mut Array, start: u64, count: u64) -> Option<&mut [u8]> {
    let bytes = block.dtype().bytes();
    let start = usize::try_from(start.checked_mul(bytes)?).ok()?;
    let count = usize::try_from(count.checked_mul(bytes)?).ok()?;
    block.bytes_mut().get_mut(start..start.checked_add(count)?)
}

/// The same copies as several, each of at most so many elements.
fn at_most(copies: &Copies, most: u64) -> Vec<Copies> {
    let Some(((outer, inner), (to, inner_to))) =
        copies.from.loops.split_first().zip(copies.to.loops.split_first())
    else {
        return vec![copies.clone()];
    };
    let some = |first: u64, loops: [Vec<Stride>; 2]| {
        let [from_loops, to_loops] = loops;
        Copies {
            from: Strided { start: copies.from.start + first * outer.from, loops: from_loops },
            to: Strided { start: copies.to.start + first * to.from, loops: to_loops },
        }
    };
    let one = |number: u64| some(number, [inner.to_vec(), inner_to.to_vec()]);
    let each = one(0).from.elements();
    if each > most {
        return (0..outer.count).flat_map(|number| at_most(&one(number), most)).collect();
    }
    let together = most / each.max(1);
    let several = |first: u64| {
        let count = together.min(outer.count - first);
        let with = |it: &Stride, inner: &[Stride]| [&[Stride { count, ..*it }], inner].concat();
        some(first, [with(outer, inner), with(to, inner_to)])
    };
    let firsts = (0..outer.count).step_by(usize::try_from(together).unwrap_or(usize::MAX));
    firsts.map(several).collect()
}
