//! Safetensors.

use std::collections::BTreeMap;
use std::path::Path;

use kernels::Array;
use planner_ir::{DType, Type};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

use crate::failure::Failure;

const NAMES: [(DType, Dtype); 13] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
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
    let known = NAMES.iter().find(|(_, it)| *it == view.dtype());
    let (dtype, _) = known.ok_or_else(|| format!("elements {:?} are not known", view.dtype()))?;
    let extent = |&it: &usize| u64::try_from(it).map_err(|error| error.to_string());
    let shape = view.shape().iter().map(extent).collect::<Result<Vec<u64>, _>>()?;
    Array::from_bytes(Type::new(*dtype, shape), view.data()).map_err(|error| error.to_string())
}

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
