//! Small models, written out.

use bytes::Bytes;
use prost::Message;

use crate::proto::{
    AttributeProto, DimensionProto, Extent, FunctionProto, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

pub(super) const FLOAT: i32 = 1;
pub(super) const INT64: i32 = 7;
pub(super) const BOOL: i32 = 9;

/// A node that is written `Add a b -> c`; `_` is a name left out.
pub(super) fn node(text: &str) -> NodeProto {
    let (left, right) = text.split_once("->").unwrap();
    let names = |text: &str| text.split_whitespace().map(|it| it.replace('_', "")).collect::<Vec<_>>();
    let mut left = names(left);
    let op_type = left.remove(0);
    NodeProto { op_type, input: left, output: names(right), ..NodeProto::default() }
}

impl NodeProto {
    pub(super) fn with(mut self, attribute: AttributeProto) -> Self {
        self.attribute.push(attribute);
        self
    }

    pub(super) fn of_domain(mut self, domain: &str) -> Self {
        domain.clone_into(&mut self.domain);
        self
    }
}

pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i: Some(value), kind: 2, ..AttributeProto::default() }
}

pub(super) fn tensor_attribute(name: &str, tensor: TensorProto) -> AttributeProto {
    AttributeProto { name: name.to_owned(), t: Some(tensor), kind: 4, ..AttributeProto::default() }
}

pub(super) fn graph_attribute(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { name: name.to_owned(), g: Some(graph), kind: 5, ..AttributeProto::default() }
}

/// The attribute that the function around has under that name.
pub(super) fn reference(name: &str, of: &str) -> AttributeProto {
    AttributeProto { name: name.to_owned(), ref_attr_name: of.to_owned(), ..AttributeProto::default() }
}

pub(super) fn floats(name: &str, dims: &[i64], elements: &[f32]) -> TensorProto {
    let raw: Vec<u8> = elements.iter().flat_map(|it| it.to_le_bytes()).collect();
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: FLOAT,
        raw_data: Some(raw.into()),
        ..TensorProto::default()
    }
}

pub(super) fn integers(name: &str, dims: &[i64], elements: &[i64]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: INT64,
        int64_data: elements.to_vec(),
        ..TensorProto::default()
    }
}

/// A value whose dimensions are numbers, symbols or, where empty, not named.
pub(super) fn value(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    let dim = |text: &&str| {
        let value = match text.parse::<i64>() {
            Ok(number) => Some(Extent::Number(number)),
            Err(_) if text.is_empty() => None,
            Err(_) => Some(Extent::Symbol((*text).to_owned())),
        };
        DimensionProto { value }
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type, shape: Some(shape) };
    ValueInfoProto { name: name.to_owned(), type_: Some(TypeProto { tensor: Some(tensor) }) }
}

/// A graph whose outputs are named.
pub(super) fn graph(
    input: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
    node: Vec<NodeProto>,
    outputs: &[&str],
) -> GraphProto {
    let output = outputs.iter().map(|name| value(name, FLOAT, &[])).collect();
    GraphProto { name: "g".to_owned(), input, initializer, node, output, ..GraphProto::default() }
}

pub(super) fn opset(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: domain.to_owned(), version }
}

pub(super) fn function(name: &str, inputs: &[&str], outputs: &[&str], node: Vec<NodeProto>) -> FunctionProto {
    let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    FunctionProto {
        name: name.to_owned(),
        domain: "local".to_owned(),
        input: names(inputs),
        output: names(outputs),
        node,
        opset_import: vec![opset("", 18), opset("local", 1)],
        ..FunctionProto::default()
    }
}

pub(super) fn model(graph: GraphProto, functions: Vec<FunctionProto>) -> ModelProto {
    ModelProto {
        ir_version: 9,
        graph: Some(graph),
        opset_import: vec![opset("", 18), opset("local", 1)],
        functions,
    }
}

pub(super) fn bytes(model: &ModelProto) -> Bytes {
    model.encode_to_vec().into()
}
