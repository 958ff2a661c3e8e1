//! From the nodes of a model to operations: names become values, functions and branches whose
//! condition is known are inlined, lists of values stay in the importer.

mod function; // calls of local functions
mod branch; // branches
mod turns; // loops
mod sequence; // lists of values
mod finish; // from what was built to a graph

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Binary, DType, Graph, Op, Triangle, Type, ValueId};

use crate::bind::Bindings;
use crate::builder::Builder;
use crate::constant::{self, Banded};
use crate::dynamic;
use crate::error::{ImportError, Place};
use crate::lower;
use crate::model::{self, Model, malformed};
use crate::node::OnnxNode;
use crate::order;
use crate::packed::Packed;
use crate::path::Paths;
use crate::positions::Seen;
use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use crate::tensor::{self, WeightData};

/// How many nodes are translated at most, those of inlined functions included: functions that
/// call functions can ask for exponentially many.
const MOST_NODES: usize = 1_000_000;

/// How deep functions and branches are nested at most.
const DEEPEST: usize = 48;

/// The largest integer weight that counts as a constant (elements).
const LARGEST_INTEGERS: u64 = 1024;

/// The largest weight of other numbers that an operator can take as an attribute (elements).
const LARGEST_ATTRIBUTE: u64 = 16;

/// Whether a value of that type may be a mask of pairs: truth values, or as many rows as columns of numbers.
fn may_be_mask(type_: &Type) -> bool {
    match type_.shape[..] {
        [.., _, _] if type_.dtype.bytes() == 1 => true,
        [.., rows, columns] => type_.dtype.is_float() && rows == columns,
        _ => false,
    }
}

/// The graph of a model whose inputs have these types; inputs whose values are bound are constants. What was
/// seen of positions comes back.
pub(crate) fn graph(
    model: &Model,
    types: &[Type],
    bindings: &Bindings,
    positions: Seen,
) -> Result<(Graph, Seen), ImportError> {
    let mut importer = Importer {
        model,
        parameters: &bindings.parameters,
        builder: Builder::default(),
        positions,
        translated: 0,
        depth: 0,
        weights: BTreeMap::new(),
        paths: Paths::default(),
    };
    let mut scope = Scope::new("", &model.opsets);
    for (input, type_) in model.inputs().iter().zip(types) {
        tensor::check_size(&type_.shape)
            .map_err(|message| malformed(format!("input `{}`: {message}", input.name)))?;
        let value = match bindings.controls.get(&input.name) {
            Some(array) => importer.builder.constant(array.clone()),
            None => importer.builder.input(&input.name, type_.clone()),
        };
        importer.builder.set_packed(value, model.packed(&input.name));
        scope.bind(&input.name, Bound::Value(value))?;
    }
    for (name, _) in model.weights() {
        // Weights of nested graphs and large constants are bound where they stand.
        if !model.is_nested(name) {
            let value = importer.weight(name, name)?;
            scope.bind(name, Bound::Value(value))?;
        }
    }
    let names: Vec<&str> = model.outputs();
    if names.is_empty() {
        return Err(malformed("the model has no outputs".to_owned()));
    }
    importer.nodes(&model.graph.node, &names, &mut scope)?;
    let mut outputs = Vec::new();
    for name in names {
        let value = importer.output(name, &scope)?;
        outputs.push((name.to_owned(), value));
    }
    let graph = finish::graph(importer.builder, model.name(), outputs)?;
    Ok((graph, importer.positions))
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Bound {
    Value(ValueId),
    /// A list of values, known now.
    Sequence(Vec<ValueId>),
    /// An optional input that the caller of a function left out.
    Nothing,
}

/// The names that nodes can see.
pub(crate) struct Scope<'s> {
    names: BTreeMap<String, Bound>,
    /// The names around a branch.
    outer: Option<&'s Self>,
    pub(crate) opsets: &'s BTreeMap<String, i64>,
    /// What the names of weights in these nodes begin with.
    pub(crate) path: String,
    /// The attributes that a function was called with.
    pub(crate) attributes: Vec<AttributeProto>,
}

impl<'s> Scope<'s> {
    pub(crate) fn new(path: &str, opsets: &'s BTreeMap<String, i64>) -> Self {
        Self { names: BTreeMap::new(), outer: None, opsets, path: path.to_owned(), attributes: Vec::new() }
    }

    /// The names that a branch sees.
    pub(crate) fn inside(outer: &'s Self, path: &str) -> Self {
        let attributes = outer.attributes.clone();
        Self { outer: Some(outer), attributes, ..Self::new(path, outer.opsets) }
    }

    pub(crate) fn bind(&mut self, name: &str, bound: Bound) -> Result<(), ImportError> {
        match self.names.insert(name.to_owned(), bound) {
            None => Ok(()),
            Some(_) => Err(malformed(format!("value `{name}` is defined twice"))),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Bound> {
        self.names.get(name).or_else(|| self.outer?.find(name))
    }
}

/// What a translation needs everywhere.
pub(crate) struct Importer<'m> {
    pub(crate) model: &'m Model,
    /// The weights of one element that are no constants.
    parameters: &'m BTreeSet<String>,
    pub(crate) builder: Builder,
    positions: Seen,
    translated: usize,
    depth: usize,
    /// The values of weights that have been met.
    weights: BTreeMap<String, ValueId>,
    paths: Paths,
}

impl Importer<'_> {
    /// How many nodes have been translated.
    pub(crate) fn translated(&self) -> usize {
        self.translated
    }

    /// Translates the nodes that these values need.
    pub(crate) fn nodes(
        &mut self,
        nodes: &[NodeProto],
        wanted: &[&str],
        scope: &mut Scope,
    ) -> Result<(), ImportError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(malformed(format!("functions and branches are nested more than {DEEPEST} deep")));
        }
        for index in order::needed(nodes, wanted, |name| scope.find(name).is_some())? {
            self.translated += 1;
            if self.translated > MOST_NODES {
                return Err(malformed(format!(
                    "there are more than {MOST_NODES} nodes after inlining functions"
                )));
            }
            let node = &nodes[index];
            let results = self.node(node, scope)?;
            for (name, bound) in node.output.iter().zip(results) {
                if !name.is_empty() {
                    scope.bind(name, bound)?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// What a graph inside a node returns; its own names are not seen outside.
    pub(crate) fn inner(&mut self, graph: &GraphProto, scope: &mut Scope) -> Result<Vec<Bound>, ImportError> {
        for proto in &graph.initializer {
            let value = self.weight(&format!("{}{}", scope.path, proto.name), &proto.name)?;
            scope.bind(&proto.name, Bound::Value(value))?;
        }
        let names: Vec<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
        self.nodes(&graph.node, &names, scope)?;
        names
            .iter()
            .map(|name| {
                let bound = scope.find(name).cloned();
                bound.ok_or_else(|| malformed(format!("output `{name}` is not defined")))
            })
            .collect()
    }

    /// A weight of the model, which is a constant if it is an integer list, a mask of later keys, or a single
    /// number that is not to be trained.
    pub(crate) fn weight(&mut self, name: &str, display: &str) -> Result<ValueId, ImportError> {
        let error = |message| ImportError::Weight { name: display.to_owned(), message };
        let missing = || error("the model has none of that name".to_owned());
        let proto: &TensorProto = self.model.weight_proto(name).ok_or_else(missing)?;
        let type_ = tensor::numbers_of(proto).map_err(error)?;
        let packed = Packed::of(proto.data_type);
        let constant = match type_.dtype.is_float() {
            true if self.parameters.contains(name) => 0,
            true => 1,
            false => LARGEST_INTEGERS,
        };
        let elements = type_.elements();
        let small = elements <= constant.max(LARGEST_ATTRIBUTE);
        let may_be_mask = packed.is_none() && constant > 0 && may_be_mask(&type_);
        let data = if small || may_be_mask { Some(self.model.weight(name)?) } else { None };
        let Some(WeightData::Bytes(bytes)) = data else {
            let stored = self.stored(name, tensor::type_of(proto).map_err(error)?);
            let Some(packed) = packed else { return Ok(stored) };
            let value = packed.unpacked(&mut self.builder, stored, &type_.shape)?;
            self.builder.set_packed(value, Some(packed));
            return Ok(value);
        };
        if !small {
            // A mask of later keys, or of keys far before, is not trained, and is known.
            let is_mask = |&(number, banded): &(f64, Banded)| constant::is_mask(&type_, number, banded);
            return match constant::banded(&type_, &bytes).filter(is_mask) {
                None => Ok(self.stored(name, type_)),
                Some((number, banded)) => self.banded(type_, number, banded),
            };
        }
        let array = tensor::numbers(proto, &bytes).map_err(error)?;
        if elements <= constant || packed.is_some() {
            let value = self.builder.constant(array);
            self.builder.set_packed(value, packed);
            return Ok(value);
        }
        let value = self.stored(name, type_);
        self.builder.set_attribute(value, array);
        Ok(value)
    }

    /// A value of that type that is one number along diagonals.
    fn banded(&mut self, type_: Type, number: f64, banded: Banded) -> Result<ValueId, ImportError> {
        let adds = if type_.dtype == DType::Bool { Binary::Or } else { Binary::Add };
        let full = self.builder.fill(type_, number)?;
        let mut side =
            |triangle, diagonal, of| self.builder.emit1(Op::Triangle { triangle, diagonal }, &[of]);
        match banded {
            Banded::Side(triangle, diagonal) => side(triangle, diagonal, full),
            Banded::Within(first, last) => {
                let up_to = side(Triangle::Lower, last, full)?;
                side(Triangle::Upper, first, up_to)
            }
            Banded::Outside(last, first) => {
                let sides = [side(Triangle::Lower, last, full)?, side(Triangle::Upper, first, full)?];
                self.builder.emit1(Op::Binary(adds), &sides)
            }
        }
    }

    /// The value that is read from the model file, one for all who use it.
    fn stored(&mut self, name: &str, type_: Type) -> ValueId {
        let Self { builder, weights, .. } = self;
        *weights.entry(name.to_owned()).or_insert_with(|| builder.weight(name, type_))
    }

    fn output(&mut self, name: &str, scope: &Scope) -> Result<ValueId, ImportError> {
        let place = Place { node: name.to_owned(), op: "an output of the model".to_owned() };
        match scope.find(name) {
            None => Err(malformed(format!("output `{name}` is not defined"))),
            Some(Bound::Value(value)) if self.builder.is_open(*value) => {
                let what = "its shape".to_owned();
                Err(ImportError::DependsOnData { place, what })
            }
            Some(Bound::Value(value)) => Ok(*value),
            Some(_) => Err(ImportError::Node { place, message: "it is not one value".to_owned() }),
        }
    }

    /// The results of a node.
    fn node(&mut self, proto: &NodeProto, scope: &Scope) -> Result<Vec<Bound>, ImportError> {
        let name =
            if proto.name.is_empty() { proto.output.first().map_or("", String::as_str) } else { &proto.name };
        let domain = model::domain(&proto.domain);
        let inputs = proto.input.iter().map(|name| find(name, scope)).collect::<Result<Vec<_>, _>>()?;
        let attributes = function::attributes(proto, scope);
        let id = (domain.to_owned(), proto.op_type.clone(), proto.overload.clone());
        if let Some(function) = self.model.functions.get(&id) {
            return function::inline(self, function, &inputs, &attributes);
        }
        let opset = *scope.opsets.get(domain).ok_or_else(|| {
            malformed(format!(
                "node `{name}`: operator set `{domain}` is not imported (for `{}`)",
                proto.op_type
            ))
        })?;
        let values = inputs.iter().map(|bound| match bound {
            Bound::Value(value) => Some(*value),
            _ => None,
        });
        let weights = &self.weights;
        let is_weight = |name: &str| weights.contains_key(&format!("{}{name}", scope.path));
        let path = self.paths.of(proto, name, &is_weight);
        let mut node = OnnxNode {
            name,
            path: &path,
            op_type: &proto.op_type,
            domain,
            opset,
            attributes: &attributes,
            inputs: values.collect(),
            outputs: proto.output.iter().map(|name| !name.is_empty()).collect(),
        };
        self.builder.set_place(node.place(), node.path);
        self.positions.meet(&mut self.builder, &mut node)?;
        if domain.is_empty() {
            match node.op_type {
                "If" => return branch::lower(self, proto, &node, scope),
                "Loop" => return turns::looped(self, proto, &node, &inputs, scope),
                "Scan" => return turns::scanned(self, proto, &node, &inputs, scope),
                "Identity" => return Ok(inputs),
                "Constant" => {
                    if let Some(value) = self.large_constant(proto, &node, scope)? {
                        return Ok(vec![Bound::Value(value)]);
                    }
                }
                _ => {}
            }
            if let Some(results) = sequence::lower(&mut self.builder, &node, &inputs)? {
                return Ok(results);
            }
        }
        if inputs.iter().any(|bound| matches!(bound, Bound::Sequence(_))) {
            return Err(node.unsupported("a list of values is not one value"));
        }
        let results = self.values(&node)?;
        if results.len() < proto.output.len() {
            return Err(node.wrong(format!(
                "{} outputs, expected at most {}",
                proto.output.len(),
                results.len()
            )));
        }
        let wanted = results.into_iter().zip(&node.outputs);
        let bound = wanted.map(|(value, &wanted)| match value {
            Some(value) => Ok(Bound::Value(value)),
            None if wanted => Err(node.unsupported("one of its outputs")),
            None => Ok(Bound::Nothing),
        });
        bound.collect()
    }

    /// The results of an operator; where shapes depend on data, those of the dynamic form.
    fn values(&mut self, node: &OnnxNode) -> Result<Vec<Option<ValueId>>, ImportError> {
        match lower::lower(&mut self.builder, node) {
            Err(ImportError::DependsOnData { .. }) => dynamic::lower(&mut self.builder, node),
            other => other,
        }
    }

    fn large_constant(
        &mut self,
        proto: &NodeProto,
        node: &OnnxNode,
        scope: &Scope,
    ) -> Result<Option<ValueId>, ImportError> {
        let tensor = node.attributes.iter().find_map(|attribute| attribute.t.as_ref());
        let Some(output) = proto.output.first().filter(|_| tensor.is_some_and(model::is_large)) else {
            return Ok(None);
        };
        let name = format!("{}{output}", scope.path);
        if self.model.weight_proto(&name).is_none() {
            return Ok(None);
        }
        Ok(Some(self.weight(&name, output)?))
    }
}

fn find(name: &str, scope: &Scope) -> Result<Bound, ImportError> {
    if name.is_empty() {
        return Ok(Bound::Nothing);
    }
    let bound = scope.find(name).cloned();
    bound.ok_or_else(|| malformed(format!("value `{name}` is not defined")))
}
