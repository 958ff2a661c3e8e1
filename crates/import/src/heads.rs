//! Sizes that attention operators say of their caches: exporters give the dimension of a head a name.

use crate::model::{Dim, Model};
use crate::proto::NodeProto;
use crate::tensor;

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

/// The last extent of a value: by the product that makes it, or what it is split and reshaped to.
fn width(model: &Model, name: &str) -> Option<u64> {
    let mut name = name;
    // Behind a reshape whose last extent is what is left, only the whole of a row is known.
    let mut of_row = false;
    for _ in 0..FURTHEST {
        let made = |node: &&NodeProto| node.output.iter().any(|it| it == name);
        let node = model.graph.node.iter().find(made)?;
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
            "Split" => {
                let place = node.output.iter().position(|it| it == name)?;
                let sizes = match node.input.get(1) {
                    Some(sizes) => integers(model, sizes)?,
                    None => node.attribute.iter().find(|it| it.name == "split")?.ints.clone(),
                };
                return u64::try_from(*sizes.get(place)?).ok();
            }
            "Reshape" => {
                let last = node.input.get(1).and_then(|shape| integers(model, shape)?.last().copied());
                match last.and_then(|it| u64::try_from(it).ok()) {
                    Some(extent @ 1..) if !of_row => return Some(extent),
                    Some(_) => {}
                    None => of_row = true,
                }
                name = node.input.first()?;
            }
            "Add" if extents(1).is_none() && extents(0).is_some() => name = node.input.get(1)?,
            "Add"
            | "BiasAdd"
            | "Cast"
            | "Identity"
            | "RotaryEmbedding"
            | "RMSNormalization"
            | "SimplifiedLayerNormalization"
            | "LayerNormalization" => name = node.input.first()?,
            _ => return None,
        }
    }
    None
}

/// Integers that a model has as a weight or a constant.
fn integers(model: &Model, name: &str) -> Option<Vec<i64>> {
    let constant = || {
        let node = model.graph.node.iter().find(|node| node.output.first().is_some_and(|it| it == name))?;
        let value =
            node.attribute.iter().find(|it| it.name == "value").filter(|_| node.op_type == "Constant")?;
        value.t.as_ref()
    };
    let array = tensor::array(model.weight_proto(name).or_else(constant)?).ok()?;
    array.elements::<i64>().ok().map(<[i64]>::to_vec)
}
