//! Single numbers of a model file: those that operators take as attributes are no parameters.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{self, Model};
use crate::proto::NodeProto;

impl Model {
    /// The values that nodes of the outermost graph read as more than an attribute, and how many nodes do.
    pub fn readers(&self) -> BTreeMap<&str, usize> {
        let mut readers = BTreeMap::new();
        for node in &self.graph.node {
            let read = node.input.iter().enumerate().filter(|(place, _)| !is_attribute(node, *place));
            let names: BTreeSet<&str> = read.map(|(_, name)| name.as_str()).collect();
            names.into_iter().for_each(|name| *readers.entry(name).or_default() += 1);
        }
        readers
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
