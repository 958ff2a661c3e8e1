//! Tensors of the model file: their types and where their bytes are.

use bytes::Bytes;
use kernels::Array;
use planner_ir::{DType, Type};

use crate::proto::TensorProto;

/// The largest number of elements that a value may have: sizes and offsets stay far from
/// overflow.
const MOST_ELEMENTS: u64 = 1 << 48;

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

/// The element type of a number of the format.
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
        _ => {
            let names = [(0, "undefined"), (8, "string"), (14, "complex64"), (15, "complex128")];
            let name = names.iter().find(|(it, _)| *it == number).map_or("low-precision", |it| it.1);
            return Err(format!("element type {number} ({name}) is not supported"));
        }
    })
}

/// The type of a tensor.
pub(crate) fn type_of(proto: &TensorProto) -> Result<Type, String> {
    let mut shape = Vec::with_capacity(proto.dims.len());
    let mut elements = 1u64;
    for &dim in &proto.dims {
        let extent = u64::try_from(dim).map_err(|_| format!("extent {dim} is negative"))?;
        elements = elements
            .checked_mul(extent.max(1))
            .filter(|&elements| elements <= MOST_ELEMENTS)
            .ok_or_else(|| format!("shape {:?} has too many elements", proto.dims))?;
        shape.push(extent);
    }
    Ok(Type::new(dtype(proto.data_type)?, shape))
}

/// Where the data of a tensor are, which are as long as its type says.
pub(crate) fn data(proto: &TensorProto) -> Result<WeightData, String> {
    let type_ = type_of(proto)?;
    if proto.data_location == 1 {
        return Ok(WeightData::External(external(proto, type_.bytes())?));
    }
    let bytes = match &proto.raw_data {
        Some(raw) if !raw.is_empty() || type_.elements() == 0 => raw.clone(),
        _ => typed(proto, type_.dtype)?.into(),
    };
    if u64::try_from(bytes.len()) != Ok(type_.bytes()) {
        return Err(format!("{} bytes of data, expected {} for {type_}", bytes.len(), type_.bytes()));
    }
    Ok(WeightData::Bytes(bytes))
}

/// A tensor as a value, if its data are in the model file.
pub(crate) fn array(proto: &TensorProto) -> Result<Array, String> {
    match data(proto)? {
        WeightData::Bytes(bytes) => {
            Array::from_bytes(type_of(proto)?, &bytes).map_err(|error| error.to_string())
        }
        WeightData::External(external) => Err(format!("its data are in the file `{}`", external.file)),
    }
}

fn external(proto: &TensorProto, bytes: u64) -> Result<External, String> {
    let entry = |key: &str| proto.external_data.iter().find(|entry| entry.key == key).map(|it| it.value.as_str());
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

/// The elements of a tensor that are not raw bytes: several types share a field.
fn typed(proto: &TensorProto, dtype: DType) -> Result<Vec<u8>, String> {
    let wide = proto.int32_data.iter().flat_map(|it| it.to_le_bytes());
    // Narrow types stand in the low bytes of a 32-bit field.
    let low = |count: usize| proto.int32_data.iter().flat_map(move |it| it.to_le_bytes().into_iter().take(count));
    Ok(match dtype {
        DType::F32 => proto.float_data.iter().flat_map(|it| it.to_le_bytes()).collect(),
        DType::F64 => proto.double_data.iter().flat_map(|it| it.to_le_bytes()).collect(),
        DType::I64 => proto.int64_data.iter().flat_map(|it| it.to_le_bytes()).collect(),
        DType::U64 => proto.uint64_data.iter().flat_map(|it| it.to_le_bytes()).collect(),
        DType::U32 => proto.uint64_data.iter().flat_map(|it| it.to_le_bytes().into_iter().take(4)).collect(),
        DType::I32 => wide.collect(),
        DType::F16 | DType::BF16 | DType::I16 | DType::U16 => low(2).collect(),
        DType::I8 | DType::U8 => low(1).collect(),
        DType::Bool => proto.int32_data.iter().map(|&it| u8::from(it != 0)).collect(),
    })
}
