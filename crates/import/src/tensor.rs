//! Tensors of the model file: their types and where their bytes are.

use bytes::Bytes;
use kernels::Array;
use planner_ir::{DType, Type};

use crate::packed::Packed;
use crate::proto::TensorProto;

/// The largest number of elements that a value may have: sizes and offsets stay far from
/// overflow.
const MOST_ELEMENTS: u64 = 1 << 54;

/// Where the data of a tensor are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightData {
    /// Here: little-endian, row-major, not aligned.
    Bytes(Bytes),
    /// In another file.
    External(External),
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// The file, relative to that of the model.
    pub file: String,
    /// Where the data begin (bytes).
    pub offset: u64,
    /// How long they are (bytes).
    pub length: u64,
}

/// The element type of a number of the format; of numbers that share bytes, what each is in one of its own.
pub(crate) fn dtype(number: i32) -> Result<DType, String> {
    Ok(match number {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::BF16,
        17 => DType::F8E4M3FN,
        18 => DType::F8E4M3FNUZ,
        19 => DType::F8E5M2,
        20 => DType::F8E5M2FNUZ,
        _ if let Some(packed) = Packed::of(number) => packed.dtype,
        _ => {
            let names = [(0, "undefined"), (8, "string"), (14, "complex64"), (15, "complex128")];
            let name = names.iter().find(|(it, _)| *it == number).map_or("low-precision", |it| it.1);
            return Err(format!("element type {number} ({name}) is not supported"));
        }
    })
}

/// The type of a tensor as its data lie in the file: numbers that share bytes are bytes.
pub(crate) fn type_of(proto: &TensorProto) -> Result<Type, String> {
    let numbers = numbers_of(proto)?;
    Ok(Packed::of(proto.data_type).map_or(numbers.clone(), |packed| packed.stored(&numbers.shape)))
}

/// The type of a tensor's numbers.
pub(crate) fn numbers_of(proto: &TensorProto) -> Result<Type, String> {
    let extent = |&dim: &i64| u64::try_from(dim).map_err(|_| format!("extent {dim} is negative"));
    let shape = proto.dims.iter().map(extent).collect::<Result<Vec<u64>, _>>()?;
    check_size(&shape)?;
    Ok(Type::new(dtype(proto.data_type)?, shape))
}

/// Refuses shapes that are no plausible value's. An extent of 0 makes any product 0, but the
/// others must still be sane.
pub(crate) fn check_size(shape: &[u64]) -> Result<(), String> {
    let product = shape.iter().try_fold(1u64, |product, &extent| product.checked_mul(extent.max(1)));
    match product.filter(|&product| product <= MOST_ELEMENTS) {
        Some(_) => Ok(()),
        None => Err(format!("shape {shape:?} has too many elements")),
    }
}

/// Where the data of a tensor are, which are as long as its type says.
pub(crate) fn data(proto: &TensorProto) -> Result<WeightData, String> {
    check(proto)?;
    let type_ = type_of(proto)?;
    if proto.data_location == 1 {
        return Ok(WeightData::External(external(proto, type_.bytes())?));
    }
    let bytes = match &proto.raw_data {
        Some(raw) if !raw.is_empty() => raw.clone(),
        _ => typed(proto, type_.dtype)?.into(),
    };
    Ok(WeightData::Bytes(bytes))
}

/// Whether the data of a tensor are as long as its type says; copies nothing.
pub(crate) fn check(proto: &TensorProto) -> Result<(), String> {
    let type_ = type_of(proto)?;
    if proto.data_location == 1 {
        return external(proto, type_.bytes()).map(|_| ());
    }
    let raw = proto.raw_data.as_ref().filter(|raw| !raw.is_empty());
    let (found, expected) = match raw {
        Some(raw) => (raw.len(), type_.bytes()),
        None => (typed_count(proto, type_.dtype), type_.elements()),
    };
    if u64::try_from(found) == Ok(expected) {
        return Ok(());
    }
    let unit = if raw.is_some() { "bytes" } else { "elements" };
    Err(format!("{found} {unit} of data, expected {expected} for {type_}"))
}

/// Makes the elements of a tensor bytes, of which any part can be read, if they are numbers: they have been
/// decoded with the model, and are there once.
pub(crate) fn make_raw(proto: &mut TensorProto) -> Result<(), String> {
    let is_raw = proto.raw_data.as_ref().is_some_and(|raw| !raw.is_empty());
    if is_raw || proto.data_location == 1 {
        return Ok(());
    }
    let bytes = typed(proto, type_of(proto)?.dtype)?;
    proto.raw_data = Some(bytes.into());
    (proto.float_data, proto.double_data) = (Vec::new(), Vec::new());
    (proto.int32_data, proto.int64_data, proto.uint64_data) = (Vec::new(), Vec::new(), Vec::new());
    Ok(())
}

/// The file that the data of a tensor are in, if it is not that of the model.
pub(crate) fn file(proto: &TensorProto) -> Option<&str> {
    let entry = proto.external_data.iter().find(|entry| entry.key == "location");
    entry.filter(|_| proto.data_location == 1).map(|entry| entry.value.as_str())
}

/// Where the data of a tensor are, if that is another file.
pub(crate) fn place(proto: &TensorProto) -> Option<External> {
    let type_ = type_of(proto).ok().filter(|_| proto.data_location == 1)?;
    external(proto, type_.bytes()).ok()
}

/// A tensor as a value, if its data are in the model file.
pub(crate) fn array(proto: &TensorProto) -> Result<Array, String> {
    match data(proto)? {
        WeightData::Bytes(bytes) => numbers(proto, &bytes),
        WeightData::External(external) => Err(format!("its data are in the file `{}`", external.file)),
    }
}

/// A tensor as a value, by its data.
pub(crate) fn numbers(proto: &TensorProto, bytes: &[u8]) -> Result<Array, String> {
    let type_ = numbers_of(proto)?;
    match Packed::of(proto.data_type) {
        Some(packed) => packed.array(&type_.shape, bytes),
        None => Array::from_bytes(type_, bytes).map_err(|error| error.to_string()),
    }
}

fn external(proto: &TensorProto, bytes: u64) -> Result<External, String> {
    let entry =
        |key: &str| proto.external_data.iter().find(|entry| entry.key == key).map(|it| it.value.as_str());
    let number = |key: &str, default: u64| match entry(key) {
        None => Ok(default),
        Some(text) => text.parse::<u64>().map_err(|_| format!("{key} `{text}` is not a number of bytes")),
    };
    let file = entry("location").ok_or("external data without a location")?.to_owned();
    let (offset, length) = (number("offset", 0)?, number("length", bytes)?);
    if length != bytes {
        return Err(format!("{length} bytes of external data, expected {bytes}"));
    }
    offset.checked_add(length).ok_or_else(|| format!("offset {offset} is too large"))?;
    Ok(External { file, offset, length })
}

fn typed_count(proto: &TensorProto, dtype: DType) -> usize {
    match dtype {
        DType::F32 => proto.float_data.len(),
        DType::F64 => proto.double_data.len(),
        DType::I64 => proto.int64_data.len(),
        DType::U64 | DType::U32 => proto.uint64_data.len(),
        _ => proto.int32_data.len(),
    }
}

/// The elements of a tensor that are not raw bytes: several types share a field.
fn typed(proto: &TensorProto, dtype: DType) -> Result<Vec<u8>, String> {
    let wide = proto.int32_data.iter().flat_map(|it| it.to_le_bytes());
    // Narrow types stand in the low bytes of a 32-bit field.
    let low =
        |count: usize| proto.int32_data.iter().flat_map(move |it| it.to_le_bytes().into_iter().take(count));
    Ok(match dtype {
        DType::F32 => proto.float_data.iter().flat_map(|it| it.to_le_bytes()).collect(),
        DType::F64 => proto.double_data.iter().flat_map(|it| it.to_le_bytes()).collect(),
        DType::I64 => proto.int64_data.iter().flat_map(|it| it.to_le_bytes()).collect(),
        DType::U64 => proto.uint64_data.iter().flat_map(|it| it.to_le_bytes()).collect(),
        DType::U32 => proto.uint64_data.iter().flat_map(|it| it.to_le_bytes().into_iter().take(4)).collect(),
        DType::I32 => wide.collect(),
        DType::F16 | DType::BF16 | DType::I16 | DType::U16 => low(2).collect(),
        DType::I8 | DType::U8 => low(1).collect(),
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => low(1).collect(),
        DType::Bool => proto.int32_data.iter().map(|&it| u8::from(it != 0)).collect(),
    })
}
