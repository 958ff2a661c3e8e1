//! What operations are called: by the module of the exported model that they are of, with dots.
//!
//! What exporters call nodes says little (`node_linear_25`) or is a path with slashes
//! (`/model/layers.0/mlp/Gemm_1`). An operation's name is, from what there is first:
//!
//! 1. where the exporter says the module, that and the node's own name: `model.layers.4.mlp.up_proj.linear_25`;
//! 2. a node's path, with dots for slashes: `model.layers.0.mlp.Gemm_1`;
//! 3. for a node that is merely numbered (`MatMul_117`), the module of a parameter among its operands and its
//!    name: `model.layers.0.mlp.MatMul_117`;
//! 4. the same with the module of what makes its first operand, in files whose exporter says modules of most;
//! 5. the node's name.

use std::collections::BTreeMap;

use crate::proto::NodeProto;

/// The key under which `torch.onnx` says of a node in which modules it was called: a list as Python writes it, the
/// outermost first, and last what the node is called itself.
const SCOPES: &str = "pkg.torch.onnx.name_scopes";

/// What `torch.onnx` puts before the name of each node.
const NODE: &str = "node_";

/// The modules of what has been met.
#[derive(Default)]
pub(crate) struct Paths {
    /// For each value the module of the node that makes it, where the exporter says it.
    modules: BTreeMap<String, String>,
}

impl Paths {
    /// What a node's operations are called. Of its inputs some are weights.
    pub(crate) fn of(&mut self, node: &NodeProto, name: &str, is_weight: &dyn Fn(&str) -> bool) -> String {
        let own = name.strip_prefix(NODE).filter(|it| !it.is_empty()).unwrap_or(name);
        if let Some(module) = scope(node) {
            self.makes(node, &module);
            return within(&module, own);
        }
        if name.starts_with('/') {
            return name.trim_start_matches('/').replace('/', ".");
        }
        if !is_numbered(name) {
            return name.to_owned();
        }
        let of_parameter = || {
            let weights = node.input.iter().filter(|it| is_weight(it));
            weights.filter_map(|it| Some(it.rsplit_once('.')?.0)).find(|it| !it.contains([':', '/']))
        };
        if let Some(module) = of_parameter() {
            return within(module, own);
        }
        match node.input.first().and_then(|it| self.modules.get(it)).cloned() {
            Some(module) => {
                self.makes(node, &module);
                within(&module, own)
            }
            None => name.to_owned(),
        }
    }

    fn makes(&mut self, node: &NodeProto, module: &str) {
        for output in &node.output {
            self.modules.insert(output.clone(), module.to_owned());
        }
    }
}

/// A name in a module; the whole model has none.
fn within(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}.{name}") }
}

/// The innermost module that the exporter says.
fn scope(node: &NodeProto) -> Option<String> {
    let said = &node.metadata_props.iter().find(|it| it.key == SCOPES)?.value;
    let list = said.strip_prefix('[')?.strip_suffix(']')?;
    let names: Vec<&str> = list.split(", ").map(|it| it.trim_matches(['\'', '"'])).collect();
    let (_, modules) = names.split_last()?;
    modules.last().map(|&it| it.to_owned())
}

/// Whether a name is a word and a number: `MatMul_117`, `node_Split_9918`.
fn is_numbered(name: &str) -> bool {
    !name.contains(['.', '/'])
        && name
            .rsplit_once('_')
            .is_some_and(|it| !it.1.is_empty() && it.1.bytes().all(|it| it.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{Paths, SCOPES};
    use crate::proto::{NodeProto, StringStringEntryProto};

    fn node(inputs: &[&str], output: &str, scopes: Option<&str>) -> NodeProto {
        let said = scopes.map(|it| StringStringEntryProto { key: SCOPES.to_owned(), value: it.to_owned() });
        NodeProto {
            input: inputs.iter().map(|&it| it.to_owned()).collect(),
            output: vec![output.to_owned()],
            metadata_props: said.into_iter().collect(),
            ..NodeProto::default()
        }
    }

    #[test]
    fn operations_are_called_by_their_modules() {
        let mut paths = Paths::default();
        let is_weight = |name: &str| name.ends_with(".weight") || name.starts_with("onnx::");
        let mut of = |node: &NodeProto, name: &str| paths.of(node, name, &is_weight);
        let said = node(&["x", "w"], "y", Some("['', 'model', 'model.h.0', 'model.h.0.mlp', 'linear_25']"));
        assert_eq!(of(&said, "node_linear_25"), "model.h.0.mlp.linear_25");
        assert_eq!(of(&node(&[], "z", Some("['', 'add_3']")), "node_add_3"), "add_3");
        // What is beside the exported module is of what it continues.
        assert_eq!(of(&node(&["y"], "s", None), "node_Split_9"), "model.h.0.mlp.Split_9");
        assert_eq!(of(&node(&["s"], "t", None), "node_Cast_10"), "model.h.0.mlp.Cast_10");
        assert_eq!(of(&node(&["u"], "v", None), "node_Cast_11"), "node_Cast_11");
        assert_eq!(of(&node(&["y"], "v", None), "/model/layers.0/mlp/Gemm_1"), "model.layers.0.mlp.Gemm_1");
        assert_eq!(of(&node(&["x", "h.0.ln.weight"], "v", None), "Mul_117"), "h.0.ln.Mul_117");
        assert_eq!(of(&node(&["x", "onnx::MatMul_12"], "v", None), "MatMul_117"), "MatMul_117");
        // What has been given a name keeps it.
        assert_eq!(of(&node(&["x", "h.0.ln.weight"], "v", None), "scale"), "scale");
        assert_eq!(of(&node(&["x", "h.0.ln.weight"], "v", None), "h.0.ln.Mul_1"), "h.0.ln.Mul_1");
    }
}
