//! Loops over strided memory as arguments of kernels.

use std::fmt::Write as _;

use planner_ir::{DType, Type};

use super::launch::{Argument, Parameter, Piece};
use super::number::stored;
use crate::nest::{repeated, row_major};

/// Loops around each other, the first outermost, over several places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    /// How often each runs.
    pub(super) extents: Vec<i64>,
    /// For each place, how far each loop moves it (elements).
    pub(super) strides: Vec<Vec<i64>>,
}

impl Levels {
    /// The loops over a shape, as few as do: those of one iteration are left out, and those that go
    /// on where the next ends are one.
    pub(super) fn new(shape: &[u64], places: &[Vec<i64>]) -> Self {
        let mut levels: Vec<(i64, Vec<i64>)> = Vec::new();
        for (dim, &extent) in shape.iter().enumerate() {
            let extent = signed(extent);
            let strides: Vec<i64> = places.iter().map(|it| it[dim]).collect();
            if extent == 1 {
                continue;
            }
            match levels.last_mut() {
                Some((count, outer))
                    if outer.iter().zip(&strides).all(|(outer, inner)| *outer == inner * extent) =>
                {
                    *count *= extent;
                    *outer = strides;
                }
                _ => levels.push((extent, strides)),
            }
        }
        let place = |place: usize| levels.iter().map(|it| it.1[place]).collect();
        Self {
            extents: levels.iter().map(|it| it.0).collect(),
            strides: (0..places.len()).map(place).collect(),
        }
    }

    /// How many iterations there are.
    pub(super) fn count(&self) -> i64 {
        self.extents.iter().product()
    }

    /// Statements that take an index apart into one for each loop, `i0` and so on; extents are
    /// called `e0` and so on, with that prefix.
    pub(super) fn taken_apart(&self, type_: &str, index: &str, prefix: &str) -> String {
        let mut text = String::new();
        let last = self.extents.len();
        if last == 0 {
            return text;
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "    {type_} {prefix}rest = {index};");
        for level in (1..last).rev() {
            let _ = writeln!(
                text,
                "    const {type_} {prefix}i{level} = {prefix}rest % ({type_}){prefix}e{level}; \
                 {prefix}rest /= ({type_}){prefix}e{level};"
            );
        }
        let _ = writeln!(text, "    const {type_} {prefix}i0 = {prefix}rest;");
        text
    }

    /// Where a place is, from the indices; its strides are called `s` with that name.
    pub(super) fn offset(&self, type_: &str, place: usize, name: &str, prefix: &str) -> String {
        let terms: Vec<String> = self.strides[place]
            .iter()
            .enumerate()
            .filter(|(_, stride)| **stride != 0)
            .map(|(level, stride)| match stride {
                1 => format!("{prefix}i{level}"),
                _ => format!("{prefix}i{level} * ({type_})s{name}_{level}"),
            })
            .collect();
        if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
    }

    /// The extents that indices are taken apart by.
    pub(super) fn declare_extents(&self, prefix: &str, to: &mut Arguments) {
        for (level, &extent) in self.extents.iter().enumerate().skip(1) {
            to.integer(&format!("{prefix}e{level}"), extent);
        }
    }

    /// The strides of a place, of that name, that its offset is made with.
    pub(super) fn declare_strides(&self, place: usize, name: &str, to: &mut Arguments) {
        for (level, &stride) in self.strides[place].iter().enumerate() {
            if stride != 0 && stride != 1 {
                to.integer(&format!("s{name}_{level}"), stride);
            }
        }
    }
}

/// The parameters of a kernel and what it is given for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    /// As the source declares them.
    texts: Vec<String>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) given: Vec<Argument>,
}

impl Arguments {
    /// A pointer to what is read.
    pub(super) fn reads(&mut self, name: &str, dtype: DType, given: Argument) {
        self.pointer(&format!("const {} *{name}", stored(dtype)), given);
    }

    /// A pointer to what is written.
    pub(super) fn writes(&mut self, name: &str, dtype: DType, given: Argument) {
        self.pointer(&format!("{} *{name}", stored(dtype)), given);
    }

    /// A pointer with that declaration.
    pub(super) fn pointer(&mut self, declared: &str, given: Argument) {
        self.texts.push(declared.to_owned());
        self.parameters.push(Parameter::Pointer);
        self.given.push(given);
    }

    /// A number.
    pub(super) fn integer(&mut self, name: &str, value: i64) {
        self.texts.push(format!("t_i64 {name}"));
        self.parameters.push(Parameter::Integer);
        self.given.push(Argument::Integer(value));
    }

    /// The parameters as the source has them.
    pub(super) fn text(&self) -> String {
        self.texts.join(", ")
    }
}

impl Piece {
    /// How far it is from an element to the next one along each dimension (elements).
    pub(super) fn strides(&self) -> Vec<i64> {
        if self.order.is_empty() {
            return own_strides(&self.type_.shape);
        }
        let shape: Vec<u64> = self.order.iter().map(|&dim| self.type_.shape[dim]).collect();
        let mut strides = vec![0; shape.len()];
        for (&dim, stride) in self.order.iter().zip(own_strides(&shape)) {
            strides[dim] = stride;
        }
        strides
    }

    /// Whether its elements lie as its shape has them.
    pub(super) fn is_row_major(&self) -> bool {
        let shape = &self.type_.shape;
        let long: Vec<usize> = self.order.iter().copied().filter(|&dim| shape[dim] != 1).collect();
        long.is_sorted()
    }

    /// The same elements with the dimensions of a value that it is repeated to in another order, if they lie
    /// row-major then.
    pub(super) fn lying(&self, order: &[usize]) -> Option<Self> {
        let more = order.len().checked_sub(self.type_.shape.len())?;
        let shape = order.iter().map(|&dim| dim.checked_sub(more).map_or(1, |dim| self.type_.shape[dim]));
        let strides = self.strides();
        let long = order.iter().filter_map(|&dim| dim.checked_sub(more));
        let long: Vec<i64> = long.filter(|&dim| self.type_.shape[dim] != 1).map(|dim| strides[dim]).collect();
        let type_ = Type::new(self.type_.dtype, shape.collect::<Vec<u64>>());
        long.is_sorted_by(|outer, inner| outer >= inner).then(|| Self::whole(type_))
    }
}

/// An extent as a number that can be negative; none is as large as that it would not fit.
pub(super) fn signed(extent: u64) -> i64 {
    i64::try_from(extent).unwrap_or(i64::MAX)
}

/// The strides of a row-major value.
pub(super) fn own_strides(shape: &[u64]) -> Vec<i64> {
    row_major(&usizes(shape)).into_iter().map(|it| signed(u64::try_from(it).unwrap_or(u64::MAX))).collect()
}

/// The strides of a value repeated to a shape; none if it does not fit.
pub(super) fn repeated_strides(shape: &[u64], target: &[u64]) -> Option<Vec<i64>> {
    let strides = repeated(&usizes(shape), &usizes(target)).ok()?;
    Some(strides.into_iter().map(|it| signed(u64::try_from(it).unwrap_or(u64::MAX))).collect())
}

/// The type of indices of values of so many elements at most.
pub(super) fn index_type(elements: u64) -> &'static str {
    if elements < 1 << 30 { "t_i32" } else { "t_i64" }
}

fn usizes(shape: &[u64]) -> Vec<usize> {
    shape.iter().map(|&extent| usize::try_from(extent).unwrap_or(usize::MAX)).collect()
}
