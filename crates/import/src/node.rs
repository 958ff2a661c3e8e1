//! A node of an ONNX graph as its translation sees it.

use kernels::Array;
use planner_ir::ValueId;

use crate::error::{ImportError, Place};
use crate::proto::AttributeProto;
use crate::tensor;

/// A node whose inputs are values already.
pub(crate) struct OnnxNode<'a> {
    pub(crate) name: &'a str,
    /// What its operations are called.
    pub(crate) path: &'a str,
    pub(crate) op_type: &'a str,
    /// Empty for the standard operators.
    pub(crate) domain: &'a str,
    /// The version of the operator set that the domain is imported in.
    pub(crate) opset: i64,
    pub(crate) attributes: &'a [AttributeProto],
    /// `None` where an optional input is left out.
    pub(crate) inputs: Vec<Option<ValueId>>,
    /// Which declared outputs have a name.
    pub(crate) outputs: Vec<bool>,
}

/// The numbers that old files, which name no kind, leave to the fields that are present.
mod kind {
    pub(super) const FLOAT: i32 = 1;
    pub(super) const INT: i32 = 2;
    pub(super) const STRING: i32 = 3;
    pub(super) const FLOATS: i32 = 6;
    pub(super) const INTS: i32 = 7;
}

impl<'a> OnnxNode<'a> {
    /// Where this is, for messages.
    pub(crate) fn place(&self) -> Place {
        let op = if self.domain.is_empty() {
            self.op_type.to_owned()
        } else {
            format!("{}.{}", self.domain, self.op_type)
        };
        Place { node: self.name.to_owned(), op }
    }

    /// The error that this has no translation; what would be needed.
    pub(crate) fn unsupported(&self, needed: impl Into<String>) -> ImportError {
        ImportError::Unsupported { place: self.place(), opset: self.opset, needed: needed.into() }
    }

    /// The error that something does not fit.
    pub(crate) fn wrong(&self, message: impl Into<String>) -> ImportError {
        ImportError::Node { place: self.place(), message: message.into() }
    }

    /// The error that a shape is not known before the run.
    pub(crate) fn depends_on_data(&self, what: impl Into<String>) -> ImportError {
        ImportError::DependsOnData { place: self.place(), what: what.into() }
    }

    fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        let attribute = self.attribute(name)?;
        attribute.i.or((attribute.kind == kind::INT).then_some(0))
    }

    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        let attribute = self.attribute(name)?;
        attribute.f.or((attribute.kind == kind::FLOAT).then_some(0.0))
    }

    pub(crate) fn string(&self, name: &str) -> Option<&'a str> {
        let attribute = self.attribute(name)?;
        match &attribute.s {
            Some(bytes) => std::str::from_utf8(bytes).ok(),
            None => (attribute.kind == kind::STRING).then_some(""),
        }
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&'a [i64]> {
        let attribute = self.attribute(name)?;
        let there = !attribute.ints.is_empty() || attribute.kind == kind::INTS;
        there.then_some(attribute.ints.as_slice())
    }

    pub(crate) fn floats(&self, name: &str) -> Option<&'a [f32]> {
        let attribute = self.attribute(name)?;
        let there = !attribute.floats.is_empty() || attribute.kind == kind::FLOATS;
        there.then_some(attribute.floats.as_slice())
    }

    /// A tensor that an attribute holds.
    pub(crate) fn tensor(&self, name: &str) -> Result<Option<Array>, ImportError> {
        let Some(proto) = self.attribute(name).and_then(|attribute| attribute.t.as_ref()) else {
            return Ok(None);
        };
        match tensor::array(proto) {
            Ok(array) => Ok(Some(array)),
            Err(message) => Err(self.wrong(format!("attribute `{name}`: {message}"))),
        }
    }

    pub(crate) fn required_int(&self, name: &str) -> Result<i64, ImportError> {
        self.int(name).ok_or_else(|| self.missing(name))
    }

    pub(crate) fn required_ints(&self, name: &str) -> Result<&'a [i64], ImportError> {
        self.ints(name).ok_or_else(|| self.missing(name))
    }

    pub(crate) fn required_string(&self, name: &str) -> Result<&'a str, ImportError> {
        self.string(name).ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> ImportError {
        self.wrong(format!("attribute `{name}` is missing"))
    }

    /// An input that must be there.
    pub(crate) fn input(&self, index: usize) -> Result<ValueId, ImportError> {
        self.optional(index).ok_or_else(|| self.wrong(format!("input {index} is missing")))
    }

    /// An input that may be left out.
    pub(crate) fn optional(&self, index: usize) -> Option<ValueId> {
        self.inputs.get(index).copied().flatten()
    }

    /// Whether that output has a name.
    pub(crate) fn wants(&self, output: usize) -> bool {
        self.outputs.get(output).copied().unwrap_or(false)
    }

    /// The dimension that an axis names; negative ones count from the end.
    pub(crate) fn dimension(&self, axis: i64, rank: usize) -> Result<usize, ImportError> {
        let whole = i64::try_from(rank).ok();
        let counted = if axis < 0 { whole.and_then(|whole| axis.checked_add(whole)) } else { Some(axis) };
        let dim = counted.and_then(|it| usize::try_from(it).ok()).filter(|&dim| dim < rank);
        dim.ok_or_else(|| self.wrong(format!("axis {axis} of {rank} dimensions")))
    }

    /// The dimensions that axes name, ascending, each once.
    pub(crate) fn dimensions(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, ImportError> {
        let dims = axes.iter().map(|&axis| self.dimension(axis, rank));
        let mut dims = dims.collect::<Result<Vec<usize>, _>>()?;
        dims.sort_unstable();
        if dims.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(self.wrong(format!("axes {axes:?} name a dimension twice")));
        }
        Ok(dims)
    }
}
