//! Short forms of what lowerings emit, as methods of the builder.

use planner_ir::{Binary, Contract, DType, Label, Op, Real, Reduction, Type, Unary, ValueId};

use super::Result;
use crate::builder::Builder;

impl Builder {
    pub(super) fn dtype(&self, x: ValueId) -> DType {
        self.type_of(x).dtype
    }

    /// The extents of a value; an error if some depend on data.
    pub(super) fn shape(&self, x: ValueId) -> Result<Vec<u64>> {
        if self.is_open(x) {
            return Err(self.depends_on_data("the shape of an operand"));
        }
        Ok(self.type_of(x).shape.clone())
    }

    /// The extents of a value that must have that many dimensions.
    pub(super) fn extents<const N: usize>(&self, x: ValueId) -> Result<[u64; N]> {
        let shape = self.shape(x)?;
        let right = <[u64; N]>::try_from(shape.as_slice());
        right.map_err(|_| self.wrong(format!("shape {shape:?}, expected {N} dimensions")))
    }

    /// How many elements a value has; an error if that depends on data.
    pub(super) fn elements(&self, x: ValueId) -> Result<u64> {
        Ok(self.shape(x)?.iter().product())
    }

    /// The one integer that a value must be.
    pub(super) fn integer(&self, x: ValueId) -> Result<i64> {
        match self.integers(x)?.as_slice() {
            [one] => Ok(*one),
            several => Err(self.wrong(format!("{} integers, expected one", several.len()))),
        }
    }

    /// The one number that a value must be.
    pub(super) fn real(&self, x: ValueId) -> Result<f64> {
        match self.reals(x)?.as_slice() {
            [one] => Ok(*one),
            several => Err(self.wrong(format!("{} numbers, expected one", several.len()))),
        }
    }

    pub(super) fn rank(&self, x: ValueId) -> usize {
        self.type_of(x).rank()
    }

    pub(super) fn unary(&mut self, unary: Unary, x: ValueId) -> Result<ValueId> {
        self.emit1(Op::Unary(unary), &[x])
    }

    pub(super) fn binary(&mut self, binary: Binary, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.emit1(Op::Binary(binary), &[x, y])
    }

    pub(super) fn add(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.binary(Binary::Add, x, y)
    }

    pub(super) fn sub(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.binary(Binary::Sub, x, y)
    }

    pub(super) fn mul(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.binary(Binary::Mul, x, y)
    }

    pub(super) fn div(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.binary(Binary::Div, x, y)
    }

    /// `x` and one number of its element type.
    pub(super) fn with_number(&mut self, binary: Binary, x: ValueId, number: f64) -> Result<ValueId> {
        let number = self.number(x, number)?;
        self.binary(binary, x, number)
    }

    /// One number of the element type of `like`.
    pub(super) fn number(&mut self, like: ValueId, number: f64) -> Result<ValueId> {
        self.scalar(self.dtype(like), number)
    }

    pub(super) fn select(&mut self, condition: ValueId, yes: ValueId, no: ValueId) -> Result<ValueId> {
        self.emit1(Op::Select, &[condition, yes, no])
    }

    /// One number along dimensions that stay, with extent 1.
    pub(super) fn reduce(&mut self, reduction: Reduction, x: ValueId, dims: &[usize]) -> Result<ValueId> {
        if dims.is_empty() {
            return Ok(x);
        }
        self.emit1(Op::Reduce { reduction, dims: dims.to_vec() }, &[x])
    }

    pub(super) fn softmax(&mut self, x: ValueId, dim: usize) -> Result<ValueId> {
        self.emit1(Op::Softmax { dim }, &[x])
    }

    pub(super) fn gather(&mut self, x: ValueId, indices: ValueId, dim: usize) -> Result<ValueId> {
        self.emit1(Op::Gather { dim }, &[x, indices])
    }

    pub(super) fn concat(&mut self, parts: &[ValueId], dim: usize) -> Result<ValueId> {
        match parts {
            [one] => Ok(*one),
            _ => self.emit1(Op::Concat { dim }, parts),
        }
    }

    /// `size` elements from `start` along one dimension.
    pub(super) fn slice(&mut self, x: ValueId, dim: usize, start: u64, size: u64) -> Result<ValueId> {
        let mut sizes = self.shape(x)?;
        let there = sizes.get(dim).copied().unwrap_or(0);
        if start.checked_add(size).is_none_or(|end| end > there) {
            return Err(self.wrong(format!("{size} elements from {start} in dimension {dim} of {sizes:?}")));
        }
        if dim >= sizes.len() || size == there {
            return Ok(x);
        }
        let mut starts = vec![0; sizes.len()];
        let steps = vec![1; sizes.len()];
        (starts[dim], sizes[dim]) = (start, size);
        self.emit1(Op::Slice { starts, steps, sizes }, &[x])
    }

    /// The parts of these sizes along a dimension.
    pub(super) fn split(&mut self, x: ValueId, dim: usize, sizes: &[u64]) -> Result<Vec<ValueId>> {
        let mut start: u64 = 0;
        let mut parts = Vec::with_capacity(sizes.len());
        for &size in sizes {
            parts.push(self.slice(x, dim, start, size)?);
            start = start.saturating_add(size);
        }
        Ok(parts)
    }

    /// The same elements with dimensions of extent 1 at these places of the result, ascending.
    pub(super) fn unsqueeze(&mut self, x: ValueId, dims: &[usize]) -> Result<ValueId> {
        let mut shape = self.shape(x)?;
        for &dim in dims {
            if dim > shape.len() {
                return Err(self.wrong(format!("a new dimension {dim} of shape {shape:?}")));
            }
            shape.insert(dim, 1);
        }
        self.reshape(x, &shape)
    }

    /// The same elements without these dimensions, whose extents are 1; ascending.
    pub(super) fn squeeze(&mut self, x: ValueId, dims: &[usize]) -> Result<ValueId> {
        let mut shape = self.shape(x)?;
        for &dim in dims.iter().rev() {
            if shape.get(dim) != Some(&1) {
                return Err(self.wrong(format!("dimension {dim} of shape {shape:?}, expected extent 1")));
            }
            shape.remove(dim);
        }
        self.reshape(x, &shape)
    }

    /// `0, 1, ..`
    pub(super) fn iota(&mut self, dtype: DType, length: u64) -> Result<ValueId> {
        self.iota_from(dtype, length, 0.0)
    }

    /// `start, start + 1, ..`
    pub(super) fn iota_from(&mut self, dtype: DType, length: u64, start: f64) -> Result<ValueId> {
        self.emit1(Op::Iota { dtype, length, start: Real(start), step: Real(1.0) }, &[])
    }

    /// One number, repeated.
    pub(super) fn filled(&mut self, dtype: DType, shape: impl Into<Vec<u64>>, value: f64) -> Result<ValueId> {
        self.fill(Type::new(dtype, shape), value)
    }

    /// A contraction whose dimensions are named by lower-case letters.
    pub(super) fn contract(
        &mut self,
        left: (ValueId, &[u8]),
        right: (ValueId, &[u8]),
        result: &[u8],
    ) -> Result<ValueId> {
        let labels = |letters: &[u8]| letters.iter().map(|letter| Label(letter - b'a')).collect();
        let contract = Contract { left: labels(left.1), right: labels(right.1), result: labels(result) };
        self.emit1(Op::Contract(contract), &[left.0, right.0])
    }
}
