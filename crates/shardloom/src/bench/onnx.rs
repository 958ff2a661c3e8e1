//! ONNX files, written: nodes, weights in the model or in a file beside it, inputs and outputs.
//!
//! Numbers of fields are those of `onnx.proto`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The name of the file that the weights are in.
const WEIGHTS: &str = "weights.bin";
/// The version of the file format.
const IR_VERSION: u64 = 8;
/// The version of the operators, if nothing else is said.
const OPERATORS: u64 = 17;
/// The number of the element type int64.
const INT64: u64 = 7;
/// The length after which buffered weights are written (bytes).
const BUFFER: usize = 1 << 20;

/// What numbers a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// Of 32 bits.
    F32,
    /// The first 16 of these.
    Bf16,
}

impl Element {
    /// Its number in the format.
    fn number(self) -> u64 {
        match self {
            Self::F32 => 1,
            Self::Bf16 => 16,
        }
    }

    /// How large a number is (bytes).
    fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Writes a number, rounded.
    fn write(self, number: f32, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::F32 => to.write_all(&number.to_le_bytes()),
            Self::Bf16 => to.write_all(&half::bf16::from_f32(number).to_le_bytes()),
        }
    }
}

/// An attribute of a node.
pub(crate) enum Attribute<'a> {
    /// A number.
    Integer(i64),
    /// A real number.
    Float(f32),
    /// Several numbers.
    Integers(&'a [i64]),
}

/// A model that is being written.
pub(crate) struct Writer {
    path: PathBuf,
    element: Element,
    operators: u64,
    data: Data,
    nodes: Vec<Message>,
    weights: Vec<Message>,
    inputs: Vec<Message>,
    outputs: Vec<Message>,
}

/// Where the weights are.
enum Data {
    /// In the model.
    Inside,
    /// In a file beside it, of which so much is written (bytes).
    Beside { file: BufWriter<File>, length: u64 },
    /// In a file beside it that is not there, of which so much would be written (bytes).
    Absent { length: u64 },
}

/// A tensor whose bytes come next in the file of weights.
fn beside(tensor: Message, length: &mut u64, bytes: u64) -> Message {
    let entry = |key: &str, value: &str| Message::default().text(1, key).text(2, value);
    let offset = *length;
    *length += bytes;
    tensor
        .message(13, &entry("location", WEIGHTS))
        .message(13, &entry("offset", &offset.to_string()))
        .message(13, &entry("length", &bytes.to_string()))
        .number(14, 1)
}

impl Writer {
    /// A model in a folder, its weights in a file beside it.
    pub(crate) fn large(folder: &Path) -> io::Result<Self> {
        let file = BufWriter::with_capacity(BUFFER, File::create(folder.join(WEIGHTS))?);
        Ok(Self::new(folder, Data::Beside { file, length: 0 }))
    }

    /// A model in a folder, its weights in it: less than 2 GiB.
    pub(crate) fn small(folder: &Path) -> Self {
        Self::new(folder, Data::Inside)
    }

    /// A model in a folder whose weights are nowhere: for plans they need not be there.
    pub(crate) fn absent(folder: &Path) -> Self {
        Self::new(folder, Data::Absent { length: 0 })
    }

    fn new(folder: &Path, data: Data) -> Self {
        let (nodes, weights, inputs, outputs) = Default::default();
        let (element, operators) = (Element::F32, OPERATORS);
        let path = folder.join("model.onnx");
        Self { path, element, operators, data, nodes, weights, inputs, outputs }
    }

    /// The same with operators of another version.
    pub(crate) fn of_version(self, operators: u64) -> Self {
        Self { operators, ..self }
    }

    /// The same with weights, inputs and outputs of such numbers.
    pub(crate) fn of_elements(self, element: Element) -> Self {
        Self { element, ..self }
    }

    /// A weight.
    pub(crate) fn weight(
        &mut self,
        name: &str,
        shape: &[u64],
        mut number: impl FnMut() -> f32,
    ) -> io::Result<String> {
        let count: u64 = shape.iter().product();
        let tensor = shape.iter().fold(Message::default(), |tensor, &extent| tensor.number(1, extent));
        let element = self.element;
        let tensor = tensor.number(2, element.number()).text(8, name);
        let tensor = match &mut self.data {
            Data::Inside => {
                let mut bytes = Vec::new();
                (0..count).try_for_each(|_| element.write(number(), &mut bytes))?;
                tensor.bytes(9, &bytes)
            }
            Data::Beside { file, length } => {
                (0..count).try_for_each(|_| element.write(number(), file))?;
                beside(tensor, length, count * element.bytes())
            }
            Data::Absent { length } => beside(tensor, length, count * element.bytes()),
        };
        self.weights.push(tensor);
        Ok(name.to_owned())
    }

    /// Integers in the model file.
    pub(crate) fn integers(&mut self, name: &str, shape: &[u64], numbers: &[i64]) -> String {
        let tensor = shape.iter().fold(Message::default(), |tensor, &extent| tensor.number(1, extent));
        let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
        self.weights.push(tensor.number(2, INT64).text(8, name).bytes(9, &bytes));
        name.to_owned()
    }

    /// One number in the model file.
    pub(crate) fn float(&mut self, name: &str, number: f32) -> String {
        let tensor =
            Message::default().number(2, Element::F32.number()).text(8, name).bytes(9, &number.to_le_bytes());
        self.weights.push(tensor);
        name.to_owned()
    }

    /// The result of an operation.
    pub(crate) fn node(
        &mut self,
        op: &str,
        operands: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        let result = format!("{op}_{}", self.nodes.len());
        self.push(op, operands, &[&result], attributes);
        result
    }

    /// The results of an operation that has several.
    pub(crate) fn nodes<const N: usize>(
        &mut self,
        op: &str,
        operands: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) -> [String; N] {
        let number = self.nodes.len();
        let results: [String; N] = std::array::from_fn(|index| format!("{op}_{number}_{index}"));
        let names: Vec<&str> = results.iter().map(String::as_str).collect();
        self.push(op, operands, &names, attributes);
        results
    }

    fn push(&mut self, op: &str, operands: &[&str], results: &[&str], attributes: &[(&str, Attribute<'_>)]) {
        let mut node = operands.iter().fold(Message::default(), |node, name| node.text(1, name));
        node = results.iter().fold(node, |node, name| node.text(2, name));
        node = node.text(3, &format!("{op}_{}", self.nodes.len())).text(4, op);
        for (name, attribute) in attributes {
            let attribute_ = Message::default().text(1, name);
            let attribute_ = match attribute {
                Attribute::Float(number) => attribute_.float(2, *number).number(20, 1),
                Attribute::Integer(number) => attribute_.number(3, signed(*number)).number(20, 2),
                Attribute::Integers(numbers) => {
                    let all = numbers.iter().fold(attribute_, |it, &number| it.number(8, signed(number)));
                    all.number(20, 7)
                }
            };
            node = node.message(5, &attribute_);
        }
        self.nodes.push(node);
    }

    /// An input of integers.
    pub(crate) fn input(&mut self, name: &str, dims: &[&str]) {
        self.inputs.push(value(name, INT64, dims));
    }

    /// An input of real numbers whose shape is known.
    pub(crate) fn floats(&mut self, name: &str, shape: &[u64]) {
        let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
        self.numbers(name, &dims.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// An input of real numbers.
    pub(crate) fn numbers(&mut self, name: &str, dims: &[&str]) {
        self.inputs.push(value(name, self.element.number(), dims));
    }

    /// The same number several times, in the model file.
    pub(crate) fn constants(&mut self, name: &str, count: u64, number: f32) {
        let bytes: Vec<u8> = (0..count).flat_map(|_| number.to_le_bytes()).collect();
        let tensor = Message::default()
            .number(1, count)
            .number(2, Element::F32.number())
            .text(8, name)
            .bytes(9, &bytes);
        self.weights.push(tensor);
    }

    /// An output of numbers. It is the result of an operation.
    pub(crate) fn output(&mut self, name: &str, result: &str, dims: &[&str]) {
        self.push("Identity", &[result], &[name], &[]);
        self.outputs.push(value(name, self.element.number(), dims));
    }

    /// Writes the model; where it is.
    pub(crate) fn finish(mut self) -> io::Result<PathBuf> {
        if let Data::Beside { file, .. } = &mut self.data {
            file.flush()?;
        }
        let mut graph = self.nodes.iter().fold(Message::default(), |graph, node| graph.message(1, node));
        graph = graph.text(2, "model");
        for (field, messages) in [(5, &self.weights), (11, &self.inputs), (12, &self.outputs)] {
            graph = messages.iter().fold(graph, |graph, message| graph.message(field, message));
        }
        let operators = Message::default().text(1, "").number(2, self.operators);
        let model = Message::default().number(1, IR_VERSION).message(7, &graph).message(8, &operators);
        std::fs::write(&self.path, &model.0)?;
        Ok(self.path)
    }
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

/// A message in the wire format of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(self, field: u64, number: u64) -> Self {
        self.varint(field << 3).varint(number)
    }

    fn float(self, field: u64, number: f32) -> Self {
        let mut message = self.varint(field << 3 | 5);
        message.0.extend(number.to_le_bytes());
        message
    }

    fn bytes(self, field: u64, bytes: &[u8]) -> Self {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let mut message = self.varint(field << 3 | 2).varint(length);
        message.0.extend(bytes);
        message
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn varint(mut self, mut number: u64) -> Self {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                self.0.push(low & 0x7f);
                return self;
            }
            self.0.push(low | 0x80);
        }
    }
}
