//! A decoded model: what it takes, what it is made of, and what it needs to become a graph.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use planner_ir::{DType, Type};
use prost::Message;

use crate::error::{ImportError, Unbound};
use crate::extent::Extent;
use crate::packed::Packed;
use crate::proto::{self, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use crate::tensor::{self, External, WeightData};

/// The newest version of the standard operators that is known.
const NEWEST_OPSET: i64 = 28;

/// The newest version of the file format that is known.
const NEWEST_IR: i64 = 14;

/// Tensors up to this many elements in `Constant` nodes are part of the graph; larger ones are
/// weights.
pub(crate) const LARGEST_CONSTANT: u64 = 1024;

/// A model whose dimensions are not bound yet.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) graph: GraphProto,
    pub(crate) functions: BTreeMap<FunctionId, FunctionProto>,
    pub(crate) opsets: BTreeMap<String, i64>,
    inputs: Vec<Input>,
    weights: BTreeMap<String, TensorProto>,
    /// The weights that are not initializers of the outermost graph.
    nested: BTreeSet<String>,
    /// What the file says that weights are; empty if it says it of none.
    declared: BTreeMap<String, Declared>,
    files: BTreeMap<String, Bytes>,
    /// The file.
    pub(crate) bytes: Bytes,
}

/// What a weight is to the module that was exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// A parameter.
    Parameter,
    /// A buffer or a constant.
    Constant,
    /// Nothing: the exporter made it.
    Nothing,
}

/// The domain, name and overload of a local function.
pub(crate) type FunctionId = (String, String, String);

/// Something that a model is given at every run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its elements.
    pub dtype: DType,
    /// Its dimensions; `None` if the model does not even say how many there are.
    pub dims: Option<Vec<Dim>>,
}

/// The extent of a dimension of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Always this many elements.
    Number(u64),
    /// A symbol or an expression of symbols; where the model names none, `input[dimension]`.
    Symbol(String),
}

/// Decodes a model. The data of weights stay where they are in `bytes`.
pub fn read(bytes: Bytes) -> Result<Model, ImportError> {
    let length = bytes.len();
    let model = ModelProto::decode(bytes.clone()).map_err(|error| {
        ImportError::Encoding(format!("{} (the file has {length} bytes)", end(&error.to_string())))
    })?;
    if model.ir_version > NEWEST_IR {
        let message = format!("IR version {}, the newest known is {NEWEST_IR}", model.ir_version);
        return Err(ImportError::Encoding(message));
    }
    let mut graph = model.graph.ok_or_else(|| malformed("there is no graph"))?;
    let opsets = opsets(&model.opset_import)?;
    if opsets.is_empty() {
        return Err(malformed("no operator set is imported"));
    }
    let declared = declared(&mut graph);
    let (weights, nested) = take_weights(&mut graph, &model.functions)?;
    let inputs = inputs(&graph, &weights)?;
    let mut outputs = BTreeSet::new();
    if let Some(output) = graph.output.iter().find(|output| !outputs.insert(&output.name)) {
        return Err(malformed(format!("output `{}` is declared twice", output.name)));
    }
    let mut functions = BTreeMap::new();
    for function in model.functions {
        let id = (domain(&function.domain).to_owned(), function.name.clone(), function.overload.clone());
        if let Some(other) = functions.insert(id, function) {
            return Err(malformed(format!("function `{}` is defined twice", other.name)));
        }
    }
    Ok(Model { graph, functions, opsets, inputs, weights, nested, declared, files: BTreeMap::new(), bytes })
}

impl Model {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.graph.name
    }

    /// What it is given at every run.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// What it returns.
    pub fn outputs(&self) -> Vec<&str> {
        self.graph.output.iter().map(|output| output.name.as_str()).collect()
    }

    /// The symbols in the dimensions of its inputs, and where each occurs.
    pub fn symbols(&self) -> Vec<Unbound> {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for input in &self.inputs {
            let Some(dims) = &input.dims else { continue };
            for (index, dim) in dims.iter().enumerate() {
                let Dim::Symbol(text) = dim else { continue };
                for symbol in extent(text).symbols() {
                    places.entry(symbol.to_owned()).or_default().push(format!("{}[{index}]", input.name));
                }
            }
        }
        places.into_iter().map(|(symbol, places)| Unbound { symbol, places }).collect()
    }

    /// The names and types of its weights.
    pub fn weights(&self) -> Vec<(&str, Type)> {
        let types = self
            .weights
            .iter()
            .filter_map(|(name, proto)| Some((name.as_str(), tensor::type_of(proto).ok()?)));
        types.collect()
    }

    /// The type of a weight.
    pub fn weight_type(&self, name: &str) -> Option<Type> {
        self.weights.get(name).and_then(|proto| tensor::type_of(proto).ok())
    }

    /// What the file says that a weight is, if it says that of any.
    pub fn declared(&self, name: &str) -> Option<Declared> {
        let said = || self.declared.get(name).copied().unwrap_or(Declared::Nothing);
        (!self.declared.is_empty()).then(said)
    }

    /// Where the data of a weight are.
    pub fn weight(&self, name: &str) -> Result<WeightData, ImportError> {
        let error = |message| ImportError::Weight { name: name.to_owned(), message };
        let proto =
            self.weights.get(name).ok_or_else(|| error("the model has none of that name".to_owned()))?;
        match tensor::data(proto).map_err(error)? {
            WeightData::External(external) => self.piece(external).map_err(error),
            here @ WeightData::Bytes(_) => Ok(here),
        }
    }

    /// The files beside the model that its weights are in, as it names them.
    pub fn files(&self) -> Vec<&str> {
        let named = self.weights.values().filter_map(tensor::file);
        let mut files: Vec<&str> = named.collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Where in these files they are.
    pub fn places(&self) -> Vec<External> {
        self.weights.values().filter_map(tensor::place).collect()
    }

    /// Gives the contents of a file that weights are in. Weights in files that are not given have
    /// types only.
    pub fn attach(&mut self, file: &str, contents: Bytes) {
        self.files.insert(file.to_owned(), contents);
    }

    /// The weight of that name as the file declares it.
    pub(crate) fn weight_proto(&self, name: &str) -> Option<&TensorProto> {
        self.weights.get(name)
    }

    /// How the numbers of an input share bytes in files, if they do.
    pub(crate) fn packed(&self, input: &str) -> Option<Packed> {
        let info = self.graph.input.iter().find(|info| info.name == input)?;
        Packed::of(info.type_.as_ref()?.tensor.as_ref()?.elem_type)
    }

    /// Whether a weight is not an initializer of the outermost graph.
    pub(crate) fn is_nested(&self, name: &str) -> bool {
        self.nested.contains(name)
    }

    fn piece(&self, external: External) -> Result<WeightData, String> {
        let Some(contents) = self.files.get(&external.file) else {
            return Ok(WeightData::External(external));
        };
        let range = usize::try_from(external.offset)
            .ok()
            .zip(usize::try_from(external.offset + external.length).ok());
        let inside = range.filter(|&(_, end)| end <= contents.len());
        let (start, end) = inside.ok_or_else(|| {
            let External { file, offset, length } = &external;
            format!("{length} bytes at {offset} of `{file}`, which has {}", contents.len())
        })?;
        Ok(WeightData::Bytes(contents.slice(start..end)))
    }
}

/// The end of a message that names every message around the wrong one.
fn end(message: &str) -> String {
    let length = message.chars().count();
    if length <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let end: String = message.chars().skip(length - LONGEST_MESSAGE).collect();
    format!("..{end}")
}

/// What is shown of a message (characters).
const LONGEST_MESSAGE: usize = 200;

/// The name of a domain; the standard one has two.
pub(crate) fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// The versions of imported operator sets.
pub(crate) fn opsets(imports: &[proto::OperatorSetIdProto]) -> Result<BTreeMap<String, i64>, ImportError> {
    let mut opsets = BTreeMap::new();
    for import in imports {
        let name = domain(&import.domain);
        if name.is_empty() && import.version > NEWEST_OPSET {
            return Err(ImportError::Opset {
                domain: name.to_owned(),
                found: import.version,
                known: NEWEST_OPSET,
            });
        }
        opsets.insert(name.to_owned(), import.version);
    }
    Ok(opsets)
}

/// The extent that the text of a dimension stands for. A name that the model does not give,
/// `input[dimension]`, is a symbol.
pub(crate) fn extent(text: &str) -> Extent {
    if text.ends_with(']') { Extent::Symbol(text.to_owned()) } else { Extent::parse(text) }
}

pub(crate) fn malformed(message: impl Into<String>) -> ImportError {
    ImportError::Malformed(message.into())
}

/// What names of weights in a nested graph begin with.
pub(crate) fn branch_path(path: &str, node: &NodeProto, attribute: &str) -> String {
    let name = if node.name.is_empty() { node.output.first() } else { Some(&node.name) };
    format!("{path}{}/{attribute}/", name.map_or("", String::as_str))
}

/// What names of weights in a function begin with.
pub(crate) fn function_path(function: &FunctionProto) -> String {
    format!("{}.{}/", function.domain, function.name)
}

fn inputs(graph: &GraphProto, weights: &BTreeMap<String, TensorProto>) -> Result<Vec<Input>, ImportError> {
    let mut inputs: Vec<Input> = Vec::new();
    // An input with an initializer has a default, which is what counts.
    for info in graph.input.iter().filter(|info| !weights.contains_key(&info.name)) {
        if info.name.is_empty() {
            return Err(malformed("an input has no name"));
        }
        if inputs.iter().any(|other| other.name == info.name) {
            return Err(malformed(format!("input `{}` is declared twice", info.name)));
        }
        inputs.push(input(info)?);
    }
    Ok(inputs)
}

fn input(info: &ValueInfoProto) -> Result<Input, ImportError> {
    let name = info.name.clone();
    let tensor = info.type_.as_ref().and_then(|type_| type_.tensor.as_ref());
    let tensor = tensor.ok_or_else(|| malformed(format!("input `{name}` is not a tensor")))?;
    let dtype =
        tensor::dtype(tensor.elem_type).map_err(|error| malformed(format!("input `{name}`: {error}")))?;
    let dims = tensor.shape.as_ref().map(|shape| {
        let dims = shape.dim.iter().enumerate().map(|(index, dim)| match &dim.value {
            Some(proto::Extent::Number(number)) => match u64::try_from(*number) {
                Ok(number) => Dim::Number(number),
                Err(_) => Dim::Symbol(format!("{name}[{index}]")),
            },
            Some(proto::Extent::Symbol(symbol)) if !symbol.is_empty() => Dim::Symbol(symbol.clone()),
            _ => Dim::Symbol(format!("{name}[{index}]")),
        });
        dims.collect()
    });
    Ok(Input { name, dtype, dims })
}

/// The key under which `torch.onnx` says of a value of the exported module what it is.
const KIND: &str = "pkg.torch.export.graph_signature.InputSpec.kind";

/// Takes what the exporter says that initializers are.
fn declared(graph: &mut GraphProto) -> BTreeMap<String, Declared> {
    let notes = std::mem::take(&mut graph.value_info);
    let notes = notes.iter().map(|note| (&note.name, &note.metadata_props));
    let own = graph.initializer.iter().map(|it| (&it.name, &it.metadata_props));
    let names: BTreeSet<&str> = graph.initializer.iter().map(|it| it.name.as_str()).collect();
    let mut declared = BTreeMap::new();
    for (name, said) in notes.chain(own).filter(|(name, _)| names.contains(name.as_str())) {
        let kind = said.iter().find(|it| it.key == KIND);
        let kind = match kind.map(|it| it.value.as_str()) {
            Some("PARAMETER") => Declared::Parameter,
            Some("BUFFER" | "CONSTANT_TENSOR") => Declared::Constant,
            _ => continue,
        };
        declared.insert(name.clone(), kind);
    }
    declared
}

/// Takes the initializers, and the large constants of all graphs and functions, by name.
fn take_weights(
    graph: &mut GraphProto,
    functions: &[FunctionProto],
) -> Result<(BTreeMap<String, TensorProto>, BTreeSet<String>), ImportError> {
    let mut weights = Vec::new();
    for proto in std::mem::take(&mut graph.initializer) {
        weights.push((proto.name.clone(), proto));
    }
    let own = weights.len();
    nested_weights("", &graph.node, &mut weights);
    for function in functions {
        nested_weights(&function_path(function), &function.node, &mut weights);
    }
    if !graph.sparse_initializer.is_empty() {
        return Err(malformed("sparse weights are not supported"));
    }
    let nested = weights[own..].iter().map(|(name, _)| name.clone()).collect();
    let mut named = BTreeMap::new();
    for (name, mut proto) in weights {
        let error = |message| ImportError::Weight { name: name.clone(), message };
        tensor::check(&proto).map_err(error)?;
        tensor::make_raw(&mut proto).map_err(error)?;
        if named.insert(name.clone(), proto).is_some() {
            return Err(malformed(format!("weight `{name}` is defined twice")));
        }
    }
    Ok((named, nested))
}

fn nested_weights(path: &str, nodes: &[NodeProto], weights: &mut Vec<(String, TensorProto)>) {
    for node in nodes {
        for attribute in &node.attribute {
            if let Some(proto) = attribute.t.as_ref().filter(|it| node.op_type == "Constant" && is_large(it))
            {
                let name = node.output.first().map_or("", String::as_str);
                weights.push((format!("{path}{name}"), proto.clone()));
            }
            if let Some(graph) = &attribute.g {
                let path = branch_path(path, node, &attribute.name);
                for proto in &graph.initializer {
                    weights.push((format!("{path}{}", proto.name), proto.clone()));
                }
                nested_weights(&path, &graph.node, weights);
            }
        }
    }
}

/// Whether a tensor of a `Constant` node is a weight.
pub(crate) fn is_large(proto: &TensorProto) -> bool {
    tensor::type_of(proto).is_ok_and(|type_| type_.elements() > LARGEST_CONSTANT)
}
