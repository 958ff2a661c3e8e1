//! Single numbers of a model file: those that operators take as attributes are no parameters.

use std::collections::BTreeSet;

use crate::model::{self, Model};
use crate::proto::NodeProto;

impl Model {
    /// The weights that some node of the outermost graph reads as more than an attribute.
    pub fn operands(&self) -> BTreeSet<&str> {
        let mut operands = BTreeSet::new();
        for node in &self.graph.node {
            let read = node.input.iter().enumerate().filter(|(place, _)| !is_attribute(node, *place));
            operands.extend(read.map(|(_, name)| name.as_str()));
        }
        operands
    }
}

/// Whether an operator takes an operand as an attribute: a bound, an exponent, a ratio, a scale of
/// quantised numbers, what is filled in or compared with.
fn is_attribute(node: &NodeProto, place: usize) -> bool {
    let standard = model::domain(&node.domain).is_empty();
    match node.op_type.as_str() {
        "Clip" | "Dropout" | "Pow" | "OneHot" | "Pad" | "Resize" | "Range" if standard => place > 0,
        "Min" | "Max" | "Mod" | "Where" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Equal"
        | "Constant" | "ConstantOfShape" | "ScatterElements" | "ScatterND" | "Trilu" | "Upsample" => standard,
        name => {
            name.starts_with("Quantize")
                || name.starts_with("Dequantize")
                || name.starts_with("QLinear")
                || name.ends_with("NBits")
        }
    }
}
