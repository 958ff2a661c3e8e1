//! Sizes that attention operators say of their caches: exporters give the dimension of a head a name.

use crate::model::{Dim, Model};
use crate::proto::NodeProto;

/// How many nodes are gone back over, from keys to the weights that make them.
const FURTHEST: usize = 16;

/// The text of a cache's last dimension, its size, and the node that says so.
pub(crate) fn sizes(model: &Model) -> Vec<(&str, u64, String)> {
    let mut sizes = Vec::new();
    for node in &model.graph.node {
        if node.op_type != "GroupQueryAttention" || node.domain != "com.microsoft" {
            continue;
        }
        for past in [3, 4] {
            let Some(name) = node.input.get(past) else { continue };
            let Some(input) = model.inputs().iter().find(|input| input.name == *name) else { continue };
            let Some(Some(Dim::Symbol(text))) = input.dims.as_ref().map(|dims| dims.get(3)) else { continue };
            if let Some(size) = head_size(model, node) {
                sizes.push((text.as_str(), size, format!("a head of `{}`", node.name)));
            }
        }
    }
    sizes
}

/// How many numbers a head has: by the weights that make keys, or queries, keys and values in one.
fn head_size(model: &Model, node: &NodeProto) -> Option<u64> {
    let number = |name: &str| {
        let attribute = node.attribute.iter().find(|it| it.name == name)?;
        u64::try_from(attribute.i?).ok().filter(|&it| it > 0)
    };
    let (heads, groups) = (number("num_heads")?, number("kv_num_heads")?);
    let keys = node.input.get(1).filter(|name| !name.is_empty());
    let (name, count) = match keys {
        Some(keys) => (keys, groups),
        None => (node.input.first()?, heads.checked_add(groups.checked_mul(2)?)?),
    };
    let width = width(model, name)?;
    width.is_multiple_of(count).then(|| width / count)
}

/// The last extent of what a product makes, from which a value comes.
fn width(model: &Model, name: &str) -> Option<u64> {
    let mut name = name;
    for _ in 0..FURTHEST {
        let node = model.graph.node.iter().find(|node| node.output.first().is_some_and(|it| it == name))?;
        let extents = |place: usize| {
            let proto = model.weight_proto(node.input.get(place)?)?;
            proto.dims.iter().map(|&dim| u64::try_from(dim).ok()).collect::<Option<Vec<u64>>>()
        };
        let attribute =
            |name: &str| node.attribute.iter().find(|it| it.name == name).and_then(|attribute| attribute.i);
        let turned = attribute("transB").unwrap_or(0) != 0;
        match node.op_type.as_str() {
            "MatMul" | "Gemm" | "FusedMatMul" => {
                let extents = extents(1)?;
                return if turned { extents.iter().rev().nth(1).copied() } else { extents.last().copied() };
            }
            "MatMulNBits" => return u64::try_from(attribute("N")?).ok(),
            "Add" if extents(1).is_none() && extents(0).is_some() => name = node.input.get(1)?,
            "Add"
            | "BiasAdd"
            | "Cast"
            | "Identity"
            | "Reshape"
            | "RotaryEmbedding"
            | "RMSNormalization"
            | "SimplifiedLayerNormalization"
            | "LayerNormalization" => name = node.input.first()?,
            _ => return None,
        }
    }
    None
}
