//! An operation on a GPU by itself: its operands and results in memory of their own, and what computes it.

use std::rc::Rc;

use kernels::cuda::{self, Launch, Piece, Uncovered, Work};
use planner_ir::{DType, Op, Type};

use crate::cache::loaded;
use crate::error::DeviceError;
use crate::gpu::{Gpu, Memory, Stream};
use crate::nvrtc::Nvrtc;
use crate::products::Products;
use crate::ready::{Given, Multiplied, Packed};

/// What operands are filled with first, before that is copied over and over (bytes).
const PATTERN: u64 = 1 << 20;

/// What computes single operations.
pub(crate) struct Maker {
    pub(crate) gpu: Rc<Gpu>,
    pub(crate) nvrtc: Nvrtc,
    pub(crate) products: Products,
    /// Where compiled kernels are kept.
    pub(crate) folder: Option<std::path::PathBuf>,
    /// What products may use (bytes).
    pub(crate) workspace: Memory,
}

/// An operation that is ready to be computed.
pub(crate) struct Single {
    pub(crate) operands: Vec<Memory>,
    pub(crate) results: Vec<Memory>,
    room: Memory,
    how: How,
}

enum How {
    Kernels(Vec<Packed>),
    Product(Box<Multiplied>, u64, u64),
}

impl Maker {
    /// An operation on values of these types, with memory for them, which holds what it happens to.
    pub(crate) fn single(
        &mut self,
        op: &Op,
        operands: &[Type],
        results: &[Type],
        stream: &Stream,
    ) -> Result<Single, DeviceError> {
        match whole(op, operands, results) {
            Ok(work) => self.kernels(&work, operands, results),
            Err(Uncovered::Library(product)) => self.product(&product, operands, results, stream),
            Err(why) => Err(missing(op, &why)),
        }
    }

    /// Kernels with memory for what they read and write.
    pub(crate) fn kernels(
        &self,
        work: &Work,
        operands: &[Type],
        results: &[Type],
    ) -> Result<Single, DeviceError> {
        let launches: Vec<&Launch> = work.launches.iter().collect();
        let all = loaded(&self.gpu, &self.nvrtc, self.folder.as_deref(), launches.into_iter())?;
        let how = How::Kernels(Packed::all(work, &all)?);
        let room = self.gpu.memory(work.room)?;
        Ok(Single { operands: self.room(operands)?, results: self.room(results)?, room, how })
    }

    /// Compiles kernels together, so that they are there when they are wanted one by one: where compiled
    /// kernels are kept.
    pub(crate) fn prepare(&self, works: &[Work]) -> Result<(), DeviceError> {
        if self.folder.is_some() {
            let launches = works.iter().flat_map(|work| &work.launches);
            loaded(&self.gpu, &self.nvrtc, self.folder.as_deref(), launches)?;
        }
        Ok(())
    }

    fn room(&self, types: &[Type]) -> Result<Vec<Memory>, DeviceError> {
        types.iter().map(|type_| self.gpu.memory(type_.bytes().max(1))).collect()
    }

    /// A product that a library computes.
    fn product(
        &mut self,
        product: &cuda::Multiplied,
        operands: &[Type],
        results: &[Type],
        stream: &Stream,
    ) -> Result<Single, DeviceError> {
        let copies = || product.before.iter().chain(&product.after);
        let all = loaded(&self.gpu, &self.nvrtc, self.folder.as_deref(), copies())?;
        let packed = |launches: &[Launch]| -> Result<Vec<Packed>, DeviceError> {
            launches.iter().map(|it| Packed::new(it, &all)).collect()
        };
        let (inputs, outputs) = (self.room(operands)?, self.room(results)?);
        let room = self.gpu.memory(product.room)?;
        let mut given = Given::default();
        give(&mut given, &inputs, &outputs, &room);
        let places = given.places(product.matrices, product.addend, self.workspace.start)?;
        let [left, _, made] = product.dtypes;
        let ready = self.products.ready(&product.product, [left, made], places, stream)?;
        let none = || DeviceError::Program(format!("cuBLASLt has no algorithm for {:?}", product.product));
        let multiplied = Multiplied {
            product: ready.ok_or_else(none)?,
            before: packed(&product.before)?,
            after: packed(&product.after)?,
            matrices: product.matrices,
            addend: product.addend,
            operands: vec![],
            results: vec![],
        };
        let how = How::Product(Box::new(multiplied), self.workspace.start, self.workspace.bytes);
        Ok(Single { operands: inputs, results: outputs, room, how })
    }
}

/// Says where the values of a launch are.
fn give(given: &mut Given, operands: &[Memory], results: &[Memory], room: &Memory) {
    given.operands.clear();
    given.operands.extend(operands.iter().map(|it| it.start));
    given.results.clear();
    given.results.extend(results.iter().map(|it| it.start));
    given.room = room.start;
}

/// The kernels of an operation on whole values.
pub(crate) fn whole(op: &Op, operands: &[Type], results: &[Type]) -> Result<Work, Uncovered> {
    let pieces = |types: &[Type]| types.iter().cloned().map(Piece::whole).collect::<Vec<_>>();
    cuda::kernels(op, &pieces(operands), &pieces(results))
}

fn missing(op: &Op, why: &Uncovered) -> DeviceError {
    DeviceError::Program(format!("{op:?} has no kernel: {why}"))
}

impl Single {
    /// Issues it.
    pub(crate) fn issue(&self, stream: &Stream, given: &mut Given) -> Result<(), DeviceError> {
        give(given, &self.operands, &self.results, &self.room);
        match &self.how {
            How::Product(product, start, bytes) => product.issue((*start, *bytes), stream, given),
            How::Kernels(launches) => launches.iter().try_for_each(|launch| launch.launch(stream, given)),
        }
    }

    /// Puts numbers between -1 and 1 into its operands, zeros where they are whole numbers: what units of
    /// products take depends on what they multiply.
    pub(crate) fn fill(&self, types: &[Type], stream: &Stream) -> Result<(), DeviceError> {
        for (memory, type_) in self.operands.iter().zip(types) {
            let Some(pattern) = pattern(type_.dtype, memory.bytes.min(PATTERN)) else {
                stream.fill(memory.start, 0, memory.bytes)?;
                continue;
            };
            stream.put(memory.start, &pattern)?;
            let mut there = u64::try_from(pattern.len()).unwrap_or(0).max(1);
            while there < memory.bytes {
                let more = there.min(memory.bytes - there);
                stream.copy(memory.start + there, memory.start, more)?;
                there += more;
            }
        }
        Ok(())
    }
}

/// So many bytes of numbers between -1 and 1, each as likely; none of types without fractions.
fn pattern(dtype: DType, bytes: u64) -> Option<Vec<u8>> {
    let mut state = 0x9e37_79b9_u32;
    let mut number = || {
        // Source: Marsaglia, "Xorshift RNGs", 2003.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f32::from(i16::from_ne_bytes([state.to_ne_bytes()[1], state.to_ne_bytes()[2]])) / 32768.0
    };
    let mut made = Vec::new();
    for _ in 0..bytes.div_ceil(dtype.bytes().max(1)) {
        let number = number();
        match dtype {
            DType::F64 => made.extend(f64::from(number).to_ne_bytes()),
            DType::F32 => made.extend(number.to_ne_bytes()),
            // The upper half of 32 bits.
            DType::BF16 => made.extend((number.to_bits() >> 16).to_ne_bytes().into_iter().take(2)),
            DType::F16 => made.extend(half(number).to_ne_bytes()),
            _ => return None,
        }
    }
    made.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
    Some(made)
}

/// A number between -1 and 1 in 16 bits, towards zero; what is too small for a normal one is zero.
fn half(number: f32) -> u16 {
    let bits = number.to_bits();
    let sign = bits >> 16 & 0x8000;
    let exponent = bits >> 23 & 0xff;
    let normal = exponent.checked_sub(112).filter(|it| *it > 0);
    let made = normal.map_or(sign, |exponent| sign | exponent << 10 | bits >> 13 & 0x3ff);
    u16::try_from(made).unwrap_or(0)
}
