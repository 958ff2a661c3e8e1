//! Rules of products in 8 and in 4 bits.

use planner_ir::{DType, Graph, Node, Op};

use super::{Violations, operation_name};
use crate::plan::Plan;
use crate::recipe::{Precision, Scaling};

/// Adds the narrow products of a step that has none, or whose scales are others.
pub(super) fn check(plan: &Plan, precision: Precision, found: &mut Violations) {
    for index in others(&plan.graph, precision) {
        let message = format!("is a narrow product that a step of precision `{precision}` does not have");
        found.add("precision", operation_name(plan, index), message);
    }
}

/// The narrow products whose scales are not those of a precision.
fn others(graph: &Graph, precision: Precision) -> Vec<usize> {
    let remembers = |it: &Node| matches!(it.op, Op::Quantize { parts: Some(_), .. });
    let whole = if graph.nodes.iter().any(remembers) { Scaling::Delayed } else { Scaling::Whole };
    let scaled = |operand| match graph.type_of(operand).dtype {
        DType::F32 => whole,
        DType::U8 => Scaling::Blocks,
        _ => Scaling::Nvfp4,
    };
    let nodes = graph.nodes.iter().enumerate();
    let narrow = nodes.filter(|(_, node)| node.op.has_scales());
    let other = narrow
        .filter(|(_, node)| node.operands[2..4].iter().any(|&it| precision.scaling() != Some(scaled(it))));
    other.map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use planner_ir::parse_graph;

    use super::*;

    /// How many products of a graph are not of a precision, by the type of their scales.
    fn count(scale: &str, precision: Precision) -> usize {
        let (codes, all) = match scale {
            "f8e4m3fn[32,2]" => ("u8[32,16]", " %3 %3"),
            _ => ("f8e4m3fn[32,32]", ""),
        };
        let text = format!(
            r#"graph "g" {{
  %0 = input "a" : {codes}
  %1 = input "b" : {codes}
  %2 = input "scale" : {scale}
  %3 = input "all" : f32[]
  %4 = scaled_contract "ab,cb->ac" to=bf16 %0 %1 %2 %2{all} : bf16[32,32]
  return "y" %4
}}
"#
        );
        others(&parse_graph(&text).unwrap(), precision).len()
    }

    #[test]
    fn narrow_products_are_of_their_precision() {
        use Precision::{Bf16, F32, File, Fp8, Mxfp8, Nvfp4};
        let all = [F32, Bf16, File, Fp8, Mxfp8, Nvfp4];
        assert_eq!(all.map(|it| count("f32[]", it)), [1, 1, 1, 0, 1, 1]);
        assert_eq!(all.map(|it| count("u8[1,1]", it)), [1, 1, 1, 1, 0, 1]);
        assert_eq!(all.map(|it| count("f8e4m3fn[32,2]", it)), [1, 1, 1, 1, 1, 0]);
    }
}
