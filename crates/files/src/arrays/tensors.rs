//! Safetensors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use kernels::Array;
use lower::Strided;
use planner_ir::{DType, Type};
use run::Stored;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::failure::Failure;
use crate::mapped::Mapped;

const NAMES: [(DType, Dtype); 17] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F8E4M3FN, Dtype::F8_E4M3),
    (DType::F8E4M3FNUZ, Dtype::F8_E4M3FNUZ),
    (DType::F8E5M2, Dtype::F8_E5M2),
    (DType::F8E5M2FNUZ, Dtype::F8_E5M2FNUZ),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U64, Dtype::U64),
    (DType::U32, Dtype::U32),
    (DType::U16, Dtype::U16),
    (DType::U8, Dtype::U8),
    (DType::Bool, Dtype::BOOL),
];

/// A file of tensors.
#[derive(Debug)]
pub(super) struct Tensors {
    map: Mapped,
    /// Of each its type, and where in the file it is: one after the other, up to the end.
    places: BTreeMap<String, (Type, Range<usize>)>,
}

impl Tensors {
    /// Reads which there are.
    pub(super) fn open(map: Mapped) -> Result<Self, String> {
        let (length, metadata) =
            SafeTensors::read_metadata(map.as_ref()).map_err(|error| error.to_string())?;
        let start = HEADER + length;
        let header = map.as_ref().get(HEADER..start).ok_or("ends within its header")?;
        let Names = serde_json::from_slice(header).map_err(|error| error.to_string())?;
        let mut places = BTreeMap::new();
        for (name, info) in metadata.tensors() {
            let wrong = |error: String| format!("array `{name}`: {error}");
            let (from, to) = info.data_offsets;
            let type_ = type_of(info.dtype, &info.shape).map_err(wrong)?;
            places.insert(name, (type_, start + from..start + to));
        }
        Ok(Self { map, places })
    }

    /// The types of its arrays.
    pub(super) fn types(&self) -> BTreeMap<String, Type> {
        self.places.iter().map(|(name, (type_, _))| (name.clone(), type_.clone())).collect()
    }

    /// An array.
    pub(super) fn array(&self, name: &str) -> Result<Array, String> {
        let (type_, bytes) = self.place(name)?;
        let array = Array::from_bytes(type_.clone(), bytes).map_err(|error| error.to_string())?;
        self.release();
        Ok(array)
    }

    /// Where the bytes of an array begin.
    pub(super) fn offset(&self, name: &str) -> Option<u64> {
        self.places.get(name).and_then(|(_, range)| u64::try_from(range.start).ok())
    }

    fn place(&self, name: &str) -> Result<(&Type, &[u8]), String> {
        self.map.check()?;
        let (type_, range) = self.places.get(name).ok_or("is not there")?;
        Ok((type_, self.map.as_ref().get(range.clone()).ok_or("is beyond the end of the file")?))
    }
}

/// The names in a header, each of which stands there once: of two arrays of a name only one would be read.
struct Names;

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("arrays by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
                let mut names = BTreeSet::new();
                while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("array `{name}` is there twice")));
                    }
                }
                Ok(Names)
            }
        }
        from.deserialize_map(Once)
    }
}

impl Stored for Tensors {
    fn type_of(&self, name: &str) -> Result<Type, String> {
        Ok(self.place(name)?.0.clone())
    }

    fn read(&self, name: &str, elements: &Strided, to: &mut [u8]) -> Result<(), String> {
        let (type_, bytes) = self.place(name)?;
        run::take(elements, type_.dtype, bytes, to)
    }

    fn release(&self) {
        self.map.release();
    }
}

fn type_of(dtype: Dtype, shape: &[usize]) -> Result<Type, String> {
    let known = NAMES.iter().find(|(_, it)| *it == dtype);
    let (dtype, _) = known.ok_or_else(|| format!("elements {dtype:?} are not known"))?;
    let extent = |&it: &usize| u64::try_from(it).map_err(|error| error.to_string());
    super::typed(*dtype, shape.iter().map(extent).collect::<Result<Vec<u64>, _>>()?)
}

/// Writes arrays of these names and types, which are made one after the other, so that only one is
/// in memory: the file's form, in which the names stand first. The path is for messages.
///
/// Source: the documentation of safetensors, "Format".
pub fn write_each(
    path: &Path,
    to: &mut dyn Write,
    arrays: &[(String, Type)],
    make: &mut dyn FnMut(&str) -> Result<Array, Failure>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unwritten(path, &error);
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, type_) in arrays {
        let start = end;
        end += type_.bytes();
        let known = NAMES.iter().find(|(it, _)| *it == type_.dtype);
        let dtype = known.map_or(Dtype::U8, |(_, dtype)| *dtype);
        let entry = serde_json::json!({ "dtype": dtype, "shape": type_.shape, "data_offsets": [start, end] });
        header.insert(name.clone(), entry);
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(HEADER), b' ');
    let length = u64::try_from(header.len()).unwrap_or(u64::MAX);
    to.write_all(&length.to_le_bytes()).and_then(|()| to.write_all(&header)).map_err(failed)?;
    for (name, type_) in arrays {
        let array = make(name)?;
        if array.type_() != type_ {
            let error = format!("`{name}` is {}, expected {type_}", array.type_());
            return Err(Failure::internal("arrays", error));
        }
        to.write_all(array.bytes()).map_err(failed)?;
    }
    to.flush().map_err(failed)
}

/// What the length of a file's header is a multiple of (bytes), so that arrays are aligned; and how long that
/// length itself is.
const HEADER: usize = 8;

/// A file of these arrays.
pub(super) fn contents(arrays: &BTreeMap<String, Array>) -> Result<Vec<u8>, String> {
    let view = |(name, array): (&String, &Array)| {
        let known = NAMES.iter().find(|(it, _)| *it == array.dtype());
        let dtype = known.map_or(Dtype::U8, |(_, dtype)| *dtype);
        let extent = |&it: &u64| usize::try_from(it).map_err(|error| error.to_string());
        let shape = array.shape().iter().map(extent).collect::<Result<Vec<usize>, _>>()?;
        // Views borrow the arrays, which outlive the call.
        let bytes = array.bytes().to_vec();
        Ok((name.clone(), dtype, shape, bytes))
    };
    let parts = arrays.iter().map(view).collect::<Result<Vec<_>, String>>()?;
    let views: Result<Vec<(String, TensorView<'_>)>, String> = parts
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).map_err(|error| error.to_string())?;
            Ok((name.clone(), view))
        })
        .collect();
    serialize(views?, None).map_err(|error| error.to_string())
}
