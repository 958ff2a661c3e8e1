//! ONNX models, written: nodes, weights in the model or in a file beside it, inputs and outputs.
//!
//! Numbers of fields are those of `onnx.proto`.

mod message; // the wire format

use std::collections::BTreeSet;
use std::io::{self, Write};

use message::Message;

/// The name of the file that weights are in, where they have no other.
pub const WEIGHTS: &str = "weights.bin";
/// The version of the file format.
const IR_VERSION: u64 = 8;
/// The version of the file format of operators from this version on.
const NEWER: (u64, u64) = (10, 23);
/// The version of the operators, if nothing else is said.
const OPERATORS: u64 = 17;
/// The numbers of element types.
const INT64: u64 = 7;
/// The number of the element type of truth values.
pub const BOOL: i64 = 9;
/// The key by which exporters say what a weight is to the module, and what they say.
const KIND: &str = "pkg.torch.export.graph_signature.InputSpec.kind";

/// What numbers a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Of 32 bits.
    F32,
    /// The first 16 of these.
    Bf16,
    /// Of 16 bits with a longer fraction.
    F16,
}

impl Element {
    /// Its number in the format.
    pub fn number(self) -> u64 {
        match self {
            Self::F32 => 1,
            Self::F16 => 10,
            Self::Bf16 => 16,
        }
    }

    /// How large a number is (bytes).
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Writes a number, rounded.
    fn write(self, number: f32, to: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::F32 => to.write_all(&number.to_le_bytes()),
            Self::Bf16 => to.write_all(&half::bf16::from_f32(number).to_le_bytes()),
            Self::F16 => to.write_all(&half::f16::from_f32(number).to_le_bytes()),
        }
    }
}

/// An attribute of a node.
#[derive(Clone, Copy, Debug)]
pub enum Attribute<'a> {
    /// A number.
    Integer(i64),
    /// A real number.
    Float(f32),
    /// Several numbers.
    Integers(&'a [i64]),
    /// A word.
    Text(&'a str),
}

/// A weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its extents.
    pub shape: Vec<u64>,
    /// Its numbers.
    pub element: Element,
}

impl Parameter {
    /// How many numbers it has.
    pub fn count(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// Where the data of a weight are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, relative to the model's folder.
    pub file: String,
    /// Where in it they begin (bytes).
    pub offset: u64,
}

/// Where the weights are.
pub enum Data<'a> {
    /// In the model.
    Inside,
    /// In a file beside it, which is written to.
    Beside(Box<dyn Write + 'a>),
    /// In a file beside it that is not there: for plans they need not be.
    Absent,
    /// In files that are there.
    Placed(&'a dyn Fn(&Parameter) -> Option<Place>),
}

/// A model that is being written.
pub struct Writer<'a> {
    element: Element,
    operators: u64,
    data: Data<'a>,
    /// How much is written to the file of weights, or would be (bytes).
    length: u64,
    scope: String,
    /// Whether it is said of each weight what it is to the module.
    declares: bool,
    nodes: Vec<Message>,
    weights: Vec<Message>,
    known: BTreeSet<String>,
    parameters: Vec<Parameter>,
    inputs: Vec<Message>,
    outputs: Vec<Message>,
}

impl<'a> Writer<'a> {
    /// An empty model.
    pub fn new(data: Data<'a>) -> Self {
        Self {
            element: Element::F32,
            operators: OPERATORS,
            data,
            length: 0,
            scope: String::new(),
            declares: false,
            nodes: Vec::new(),
            weights: Vec::new(),
            known: BTreeSet::new(),
            parameters: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// The same with operators of another version.
    pub fn of_version(self, operators: u64) -> Self {
        Self { operators, ..self }
    }

    /// The same with weights, inputs and outputs of such numbers.
    pub fn of_elements(self, element: Element) -> Self {
        Self { element, ..self }
    }

    /// The same, which says what each weight is to the module: a parameter, or a constant.
    pub fn declaring(self) -> Self {
        Self { declares: true, ..self }
    }

    /// What weights, inputs and outputs are made of.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The weights that were written.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Gives the nodes that come the name of the module that they are of.
    pub fn within(&mut self, scope: &str) {
        scope.clone_into(&mut self.scope);
    }

    /// A weight; the same one where one of that name is there.
    pub fn weight(&mut self, name: &str, shape: &[u64], number: impl FnMut() -> f32) -> io::Result<String> {
        self.weight_of(self.element, name, shape, number)
    }

    /// A weight of such numbers.
    pub fn weight_of(
        &mut self,
        element: Element,
        name: &str,
        shape: &[u64],
        mut number: impl FnMut() -> f32,
    ) -> io::Result<String> {
        if !self.known.insert(name.to_owned()) {
            return Ok(name.to_owned());
        }
        let parameter = Parameter { name: name.to_owned(), shape: shape.to_vec(), element };
        let count = parameter.count();
        let tensor = self.declared(self.typed(name, shape, element.number()), "PARAMETER");
        let bytes = count * element.bytes();
        let tensor = match &mut self.data {
            Data::Inside => {
                let mut bytes = Vec::new();
                (0..count).try_for_each(|_| element.write(number(), &mut bytes))?;
                tensor.bytes(9, &bytes)
            }
            Data::Beside(file) => {
                (0..count).try_for_each(|_| element.write(number(), file))?;
                let offset = self.length;
                beside(tensor, &Place { file: WEIGHTS.to_owned(), offset }, bytes)
            }
            Data::Absent => {
                let offset = self.length;
                beside(tensor, &Place { file: WEIGHTS.to_owned(), offset }, bytes)
            }
            Data::Placed(places) => {
                let missing = || Place { file: WEIGHTS.to_owned(), offset: self.length };
                beside(tensor, &places(&parameter).unwrap_or_else(missing), bytes)
            }
        };
        self.length += bytes;
        self.parameters.push(parameter);
        self.weights.push(tensor);
        Ok(name.to_owned())
    }

    /// Integers in the model file.
    pub fn integers(&mut self, name: &str, shape: &[u64], numbers: &[i64]) -> String {
        let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
        self.constant(name, shape, INT64, &bytes)
    }

    /// One number in the model file.
    pub fn float(&mut self, name: &str, number: f32) -> String {
        self.floats_of(Element::F32, name, &[], &[number])
    }

    /// The same number several times, in the model file.
    pub fn constants(&mut self, name: &str, count: u64, number: f32) {
        let numbers = vec![number; usize::try_from(count).unwrap_or(0)];
        self.floats_of(Element::F32, name, &[count], &numbers);
    }

    /// Real numbers in the model file, rounded.
    pub fn floats_of(&mut self, element: Element, name: &str, shape: &[u64], numbers: &[f32]) -> String {
        let mut bytes = Vec::new();
        for number in numbers {
            // Writing to a vector does not fail.
            let _ = element.write(*number, &mut bytes);
        }
        self.constant(name, shape, element.number(), &bytes)
    }

    fn constant(&mut self, name: &str, shape: &[u64], element: u64, bytes: &[u8]) -> String {
        if self.known.insert(name.to_owned()) {
            let tensor = self.typed(name, shape, element).bytes(9, bytes);
            self.weights.push(self.declared(tensor, "CONSTANT_TENSOR"));
        }
        name.to_owned()
    }

    fn typed(&self, name: &str, shape: &[u64], element: u64) -> Message {
        let tensor = shape.iter().fold(Message::default(), |tensor, &extent| tensor.number(1, extent));
        tensor.number(2, element).text(8, name)
    }

    fn declared(&self, tensor: Message, kind: &str) -> Message {
        if self.declares { tensor.message(16, &entry(KIND, kind)) } else { tensor }
    }

    /// The result of an operation.
    pub fn node(&mut self, op: &str, operands: &[&str], attributes: &[(&str, Attribute<'_>)]) -> String {
        let [result] = self.nodes(op, operands, attributes);
        result
    }

    /// The results of an operation that has several.
    pub fn nodes<const N: usize>(
        &mut self,
        op: &str,
        operands: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) -> [String; N] {
        let name = self.name(op);
        let results: [String; N] =
            std::array::from_fn(|index| if N == 1 { name.clone() } else { format!("{name}_{index}") });
        let names: Vec<&str> = results.iter().map(String::as_str).collect();
        self.push(op, &name, operands, &names, attributes);
        results
    }

    fn name(&self, op: &str) -> String {
        let number = self.nodes.len();
        if self.scope.is_empty() { format!("{op}_{number}") } else { format!("{}.{op}_{number}", self.scope) }
    }

    fn push(
        &mut self,
        op: &str,
        name: &str,
        operands: &[&str],
        results: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) {
        let mut node = operands.iter().fold(Message::default(), |node, name| node.text(1, name));
        node = results.iter().fold(node, |node, name| node.text(2, name));
        node = node.text(3, name).text(4, op);
        for (name, attribute) in attributes {
            let named = Message::default().text(1, name);
            let attribute = match attribute {
                Attribute::Float(number) => named.float(2, *number).number(20, 1),
                Attribute::Integer(number) => named.number(3, signed(*number)).number(20, 2),
                Attribute::Text(text) => named.text(4, text).number(20, 3),
                Attribute::Integers(numbers) => {
                    let all = numbers.iter().fold(named, |it, &number| it.number(8, signed(number)));
                    all.number(20, 7)
                }
            };
            node = node.message(5, &attribute);
        }
        self.nodes.push(node);
    }

    /// An input of integers.
    pub fn input(&mut self, name: &str, dims: &[&str]) {
        self.inputs.push(value(name, INT64, dims));
    }

    /// An input of real numbers whose shape is known.
    pub fn floats(&mut self, name: &str, shape: &[u64]) {
        let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
        self.numbers(name, &dims.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// An input of real numbers.
    pub fn numbers(&mut self, name: &str, dims: &[&str]) {
        self.inputs.push(value(name, self.element.number(), dims));
    }

    /// An output of numbers. It is the result of an operation.
    pub fn output(&mut self, name: &str, result: &str, dims: &[&str]) {
        self.output_of(self.element, name, result, dims);
    }

    /// An output of such numbers.
    pub fn output_of(&mut self, element: Element, name: &str, result: &str, dims: &[&str]) {
        self.within("");
        self.push("Identity", &self.name("Identity"), &[result], &[name], &[]);
        self.outputs.push(value(name, element.number(), dims));
    }

    /// The model's bytes, once everything is written to the file beside it.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        if let Data::Beside(file) = &mut self.data {
            file.flush()?;
        }
        let mut graph = self.nodes.iter().fold(Message::default(), |graph, node| graph.message(1, node));
        graph = graph.text(2, "model");
        for (field, messages) in [(5, &self.weights), (11, &self.inputs), (12, &self.outputs)] {
            graph = messages.iter().fold(graph, |graph, message| graph.message(field, message));
        }
        let operators = Message::default().text(1, "").number(2, self.operators);
        let version = if self.operators < NEWER.1 { IR_VERSION } else { NEWER.0 };
        let model = Message::default().number(1, version).message(7, &graph).message(8, &operators);
        Ok(model.0)
    }
}

/// A tensor whose bytes are in a file.
fn beside(tensor: Message, place: &Place, bytes: u64) -> Message {
    tensor
        .message(13, &entry("location", &place.file))
        .message(13, &entry("offset", &place.offset.to_string()))
        .message(13, &entry("length", &bytes.to_string()))
        .number(14, 1)
}

fn entry(key: &str, value: &str) -> Message {
    Message::default().text(1, key).text(2, value)
}

/// The name and the type of an input or output; dimensions are symbols or numbers.
fn value(name: &str, element: u64, dims: &[&str]) -> Message {
    let dim = |text: &&str| match text.parse::<u64>() {
        Ok(number) => Message::default().number(1, number),
        Err(_) => Message::default().text(2, text),
    };
    let shape = dims.iter().map(dim).fold(Message::default(), |shape, dim| shape.message(1, &dim));
    let tensor = Message::default().number(1, element).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

fn signed(number: i64) -> u64 {
    u64::from_le_bytes(number.to_le_bytes())
}
