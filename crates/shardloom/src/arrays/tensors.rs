//! Safetensors.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use kernels::Array;
use lower::Strided;
use planner_ir::{DType, Type};
use run::Stored;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

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

/// The arrays of a file.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Array>, Failure> {
    let bytes =
        std::fs::read(path).map_err(|error| Failure::file(path, format!("cannot be read: {error}")))?;
    let tensors = SafeTensors::deserialize(&bytes)
        .map_err(|error| Failure::file(path, format!("is not a .safetensors file: {error}")))?;
    let mut arrays = BTreeMap::new();
    for (name, view) in tensors.tensors() {
        let array = array(&view).map_err(|error| Failure::file(path, format!("array `{name}`: {error}")))?;
        arrays.insert(name, array);
    }
    Ok(arrays)
}

fn array(view: &TensorView<'_>) -> Result<Array, String> {
    Array::from_bytes(type_of(view)?, view.data()).map_err(|error| error.to_string())
}

fn type_of(view: &TensorView<'_>) -> Result<Type, String> {
    let known = NAMES.iter().find(|(_, it)| *it == view.dtype());
    let (dtype, _) = known.ok_or_else(|| format!("elements {:?} are not known", view.dtype()))?;
    let extent = |&it: &usize| u64::try_from(it).map_err(|error| error.to_string());
    let shape = view.shape().iter().map(extent).collect::<Result<Vec<u64>, _>>()?;
    Ok(Type::new(*dtype, shape))
}

/// The names and types of a file's arrays.
pub(crate) fn types(path: &Path) -> Result<Vec<(String, Type)>, Failure> {
    let mut types = Vec::new();
    each_view(path, &mut |_, name, view| {
        types.push((name.to_owned(), type_of(view).map_err(|error| Failure::file(path, error))?));
        Ok(())
    })?;
    Ok(types)
}

/// Hands over the arrays of a file one after the other: their names, and where they are read from.
pub(crate) fn read_each(
    path: &Path,
    visit: &mut dyn FnMut(&str, &dyn Stored) -> Result<(), Failure>,
) -> Result<(), Failure> {
    each_view(path, &mut |map, name, view| visit(name, &Placed { map, name, view }))
}

/// An array where it lies in a mapped file.
struct Placed<'a> {
    map: &'a Mapped,
    name: &'a str,
    view: &'a TensorView<'a>,
}

impl Placed<'_> {
    fn view(&self, name: &str) -> Result<&TensorView<'_>, String> {
        (name == self.name).then_some(self.view).ok_or_else(|| format!("`{}` is read, not it", self.name))
    }
}

impl Stored for Placed<'_> {
    fn type_of(&self, name: &str) -> Result<Type, String> {
        type_of(self.view(name)?)
    }

    fn read(&self, name: &str, elements: &Strided, to: &mut [u8]) -> Result<(), String> {
        self.map.check()?;
        run::take(elements, self.type_of(name)?.dtype, self.view(name)?.data(), to)
    }
}

fn each_view(
    path: &Path,
    visit: &mut dyn FnMut(&Mapped, &str, &TensorView<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::file(path, format!("cannot be read: {error}"));
    let map = Mapped::open(path).map_err(failed)?;
    let tensors = SafeTensors::deserialize(map.as_ref())
        .map_err(|error| Failure::file(path, format!("is not a .safetensors file: {error}")))?;
    for (name, view) in tensors.iter() {
        visit(&map, name, &view)?;
        map.release();
    }
    Ok(())
}

/// Writes arrays of these names and types, which are made one after the other, so that only one is
/// in memory: the file's form, in which the names stand first. The path is for messages.
///
/// Source: the documentation of safetensors, "Format".
pub(crate) fn write_each(
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

/// What the length of a file's header is a multiple of (bytes), so that arrays are aligned.
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
