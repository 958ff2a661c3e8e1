//! A model file with other data in its weights: everything else stays as it is, byte for byte.

use bytes::Bytes;
use planner_ir::Type;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

use crate::error::ImportError;
use crate::model::{branch_path, function_path, is_large};
use crate::proto::{AttributeProto, FunctionProto, NodeProto, StringStringEntryProto, TensorProto};
use crate::tensor;

/// A model file with other data in its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The ONNX file.
    pub model: Vec<u8>,
    /// What the file beside it holds, in ascending order of places; nothing if the model has all
    /// of its weights in itself.
    pub beside: Vec<Beside>,
}

/// A weight in the file beside a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The weight, as `Model::weights` names it.
    pub name: String,
    /// Where its data begin (bytes).
    pub offset: u64,
    /// How long they are (bytes).
    pub length: u64,
}

/// The data of a weight of that name and type (little-endian, row-major); none where they stay, or
/// why they cannot be made.
pub type NewData<'a> = &'a mut dyn FnMut(&str, &Type) -> Result<Option<Vec<u8>>, String>;

/// What the data of weights beside a model begin at multiples of (bytes), so that they can be
/// mapped.
///
/// Source: `onnx.proto`, `TensorProto.external_data`.
const PAGE: u64 = 4096;

/// A model file in which weights have other data, see `Model::replace`.
pub(crate) fn replace(bytes: &Bytes, file: &str, data: NewData<'_>) -> Result<Replaced, ImportError> {
    let mut replacing = Replacing { file, data, beside: Vec::new() };
    let mut model = Vec::with_capacity(bytes.len());
    for field in fields(bytes)? {
        match (field.number, &field.content) {
            (7, Some(graph)) => write(&mut model, 7, &replacing.graph("", graph)?),
            (25, Some(function)) => write(&mut model, 25, &replacing.function(function)?),
            _ => model.extend_from_slice(&field.whole),
        }
    }
    Ok(Replaced { model, beside: replacing.beside })
}

/// A field of a message.
struct Field {
    number: u32,
    /// All of it, as it stands in the file.
    whole: Bytes,
    /// What it contains, if it is a text, bytes or a message.
    content: Option<Bytes>,
}

fn fields(message: &Bytes) -> Result<Vec<Field>, ImportError> {
    let broken = |error: prost::DecodeError| ImportError::Encoding(error.to_string());
    let mut rest = message.clone();
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let start = message.len() - rest.len();
        let (number, kind) = decode_key(&mut rest).map_err(broken)?;
        let mut content = None;
        let length = match kind {
            WireType::Varint => decode_varint(&mut rest).map(|_| 0).map_err(broken)?,
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => {
                let length = decode_varint(&mut rest).map_err(broken)?;
                usize::try_from(length).unwrap_or(usize::MAX)
            }
            WireType::StartGroup | WireType::EndGroup => {
                return Err(ImportError::Encoding(format!("field {number} is a group")));
            }
        };
        if length > rest.len() {
            let message = format!("field {number} has {length} bytes, {} are left", rest.len());
            return Err(ImportError::Encoding(message));
        }
        let inside = rest.split_to(length);
        if kind == WireType::LengthDelimited {
            content = Some(inside);
        }
        let whole = message.slice(start..message.len() - rest.len());
        fields.push(Field { number, whole, content });
    }
    Ok(fields)
}

/// Adds a field that is a text, bytes or a message.
fn write(to: &mut Vec<u8>, number: u32, content: &[u8]) {
    encode_key(number, WireType::LengthDelimited, to);
    encode_varint(content.len() as u64, to);
    to.extend_from_slice(content);
}

/// What is known while a file is written anew.
struct Replacing<'a> {
    file: &'a str,
    data: NewData<'a>,
    beside: Vec<Beside>,
}

impl Replacing<'_> {
    fn graph(&mut self, path: &str, bytes: &Bytes) -> Result<Vec<u8>, ImportError> {
        let mut graph = Vec::with_capacity(bytes.len());
        for field in fields(bytes)? {
            match (field.number, &field.content) {
                (1, Some(node)) => self.node_field(&mut graph, 1, path, node)?,
                (5, Some(proto)) => {
                    let decoded = decode::<TensorProto>(proto)?;
                    let name = format!("{path}{}", decoded.name);
                    write(&mut graph, 5, &self.tensor(&name, &decoded, proto)?);
                }
                _ => graph.extend_from_slice(&field.whole),
            }
        }
        Ok(graph)
    }

    fn function(&mut self, bytes: &Bytes) -> Result<Vec<u8>, ImportError> {
        let path = function_path(&decode::<FunctionProto>(bytes)?);
        let mut function = Vec::with_capacity(bytes.len());
        for field in fields(bytes)? {
            match (field.number, &field.content) {
                (7, Some(node)) => self.node_field(&mut function, 7, &path, node)?,
                _ => function.extend_from_slice(&field.whole),
            }
        }
        Ok(function)
    }

    fn node_field(
        &mut self,
        to: &mut Vec<u8>,
        number: u32,
        path: &str,
        bytes: &Bytes,
    ) -> Result<(), ImportError> {
        let decoded = decode::<NodeProto>(bytes)?;
        let mut node = Vec::with_capacity(bytes.len());
        for field in fields(bytes)? {
            match (field.number, &field.content) {
                (5, Some(attribute)) => write(&mut node, 5, &self.attribute(path, &decoded, attribute)?),
                _ => node.extend_from_slice(&field.whole),
            }
        }
        write(to, number, &node);
        Ok(())
    }

    fn attribute(&mut self, path: &str, node: &NodeProto, bytes: &Bytes) -> Result<Vec<u8>, ImportError> {
        let decoded = decode::<AttributeProto>(bytes)?;
        let constant = decoded.t.as_ref().filter(|it| node.op_type == "Constant" && is_large(it));
        let mut attribute = Vec::with_capacity(bytes.len());
        for field in fields(bytes)? {
            match (field.number, &field.content, constant) {
                (5, Some(proto), Some(constant)) => {
                    let name = node.output.first().map_or("", String::as_str);
                    write(&mut attribute, 5, &self.tensor(&format!("{path}{name}"), constant, proto)?);
                }
                (6, Some(graph), _) => {
                    let path = branch_path(path, node, &decoded.name);
                    write(&mut attribute, 6, &self.graph(&path, graph)?);
                }
                _ => attribute.extend_from_slice(&field.whole),
            }
        }
        Ok(attribute)
    }

    fn tensor(&mut self, name: &str, proto: &TensorProto, bytes: &Bytes) -> Result<Vec<u8>, ImportError> {
        let error = |message| ImportError::Weight { name: name.to_owned(), message };
        let type_ = tensor::type_of(proto).map_err(error)?;
        if proto.data_location == 1 {
            return self.external(name, &type_, bytes);
        }
        let Some(data) = (self.data)(name, &type_).map_err(error)? else { return Ok(bytes.to_vec()) };
        if data.len() as u64 != type_.bytes() {
            return Err(error(format!("{} bytes of new data, expected {}", data.len(), type_.bytes())));
        }
        let mut tensor = Vec::with_capacity(bytes.len());
        let mut data = Some(data);
        for field in fields(bytes)? {
            // Numbers of any type, or raw bytes: the new data stand where the first of them stood.
            if matches!(field.number, 4 | 5 | 7 | 9 | 10 | 11) {
                data.take().into_iter().for_each(|data| write(&mut tensor, 9, &data));
            } else {
                tensor.extend_from_slice(&field.whole);
            }
        }
        data.into_iter().for_each(|data| write(&mut tensor, 9, &data));
        Ok(tensor)
    }

    /// A tensor whose data are in the file beside the model.
    fn external(&mut self, name: &str, type_: &Type, bytes: &Bytes) -> Result<Vec<u8>, ImportError> {
        let offset = self.beside.last().map_or(0, |last| (last.offset + last.length).next_multiple_of(PAGE));
        let length = type_.bytes();
        let mut tensor = Vec::with_capacity(bytes.len());
        // A checksum would be that of the data before, and a place in another file means nothing.
        for field in fields(bytes)?.iter().filter(|field| field.number != 13) {
            tensor.extend_from_slice(&field.whole);
        }
        let (place, size) = (offset.to_string(), length.to_string());
        for (key, value) in [("location", self.file), ("offset", &place), ("length", &size)] {
            let entry = StringStringEntryProto { key: key.to_owned(), value: value.to_owned() };
            write(&mut tensor, 13, &entry.encode_to_vec());
        }
        self.beside.push(Beside { name: name.to_owned(), offset, length });
        Ok(tensor)
    }
}

fn decode<M: Message + Default>(bytes: &Bytes) -> Result<M, ImportError> {
    M::decode(bytes.clone()).map_err(|error| ImportError::Encoding(error.to_string()))
}
