//! Calls of local functions, which are inlined.

use super::{Bound, Importer, Scope};
use crate::error::ImportError;
use crate::model::{self, malformed};
use crate::proto::{AttributeProto, FunctionProto, NodeProto};

/// The attributes of a node; those that name one of the function around it have its value.
pub(crate) fn attributes(node: &NodeProto, scope: &Scope) -> Vec<AttributeProto> {
    let given = node.attribute.iter().filter(|attribute| attribute.g.is_none());
    resolved(given, scope)
}

fn resolved<'a>(attributes: impl Iterator<Item = &'a AttributeProto>, scope: &Scope) -> Vec<AttributeProto> {
    let resolve = |attribute: &AttributeProto| {
        if attribute.ref_attr_name.is_empty() {
            return Some(attribute.clone());
        }
        // One that the caller left out is left out here too.
        let given = scope.attributes.iter().find(|given| given.name == attribute.ref_attr_name)?;
        Some(AttributeProto { name: attribute.name.clone(), ..given.clone() })
    };
    attributes.filter_map(resolve).collect()
}

/// What a function returns for these inputs.
pub(crate) fn inline(
    importer: &mut Importer,
    function: &FunctionProto,
    inputs: &[Bound],
    attributes: &[AttributeProto],
) -> Result<Vec<Bound>, ImportError> {
    let name = &function.name;
    if inputs.len() > function.input.len() {
        let message =
            format!("function `{name}` is given {} inputs, it has {}", inputs.len(), function.input.len());
        return Err(malformed(message));
    }
    let opsets = model::opsets(&function.opset_import)?;
    let mut scope = Scope::new(&model::function_path(function), &opsets);
    scope.attributes = attributes.to_vec();
    for default in &function.attribute_proto {
        if !attributes.iter().any(|given| given.name == default.name) {
            scope.attributes.push(default.clone());
        }
    }
    for (index, input) in function.input.iter().enumerate() {
        scope.bind(input, inputs.get(index).cloned().unwrap_or(Bound::Nothing))?;
    }
    let outputs: Vec<&str> = function.output.iter().map(String::as_str).collect();
    importer.nodes(&function.node, &outputs, &mut scope)?;
    outputs
        .iter()
        .map(|output| {
            let bound = scope.find(output).cloned();
            bound.ok_or_else(|| malformed(format!("function `{name}` does not define its output `{output}`")))
        })
        .collect()
}
