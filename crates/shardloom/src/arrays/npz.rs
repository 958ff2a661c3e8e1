//! Numpy archives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use half::{bf16, f16};
use kernels::{Array, Element};
use npyz::npz::{array_name_from_file_name, file_name_from_array_name};
use npyz::{AutoSerialize, Deserialize, NpyFile, Order, WriterBuilder};
use planner_ir::{DType, Type};
use zip::write::FileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::failure::Failure;

/// The arrays of an archive.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Array>, Failure> {
    let fail = |error: &dyn std::fmt::Display| Failure::file(path, format!("is not a .npz file: {error}"));
    let file = File::open(path).map_err(|error| fail(&error))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|error| fail(&error))?;
    let mut arrays = BTreeMap::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|error| fail(&error))?;
        let Some(name) = array_name_from_file_name(entry.name()).map(str::to_owned) else { continue };
        let array = NpyFile::new(entry).map_err(|error| error.to_string()).and_then(array);
        let array = array.map_err(|error| Failure::file(path, format!("array `{name}`: {error}")))?;
        arrays.insert(name, array);
    }
    Ok(arrays)
}

fn array<R: Read>(file: NpyFile<R>) -> Result<Array, String> {
    let npyz::DType::Plain(text) = file.dtype() else {
        return Err("has fields, expected plain numbers".to_owned());
    };
    let text = text.to_string();
    let shape = file.shape().to_vec();
    let turned = file.order() == Order::Fortran && shape.len() > 1;
    let stored = if turned { shape.iter().rev().copied().collect() } else { shape };
    let array = match text.trim_start_matches(['<', '|', '=']) {
        "f8" => numbers::<f64, R>(file, DType::F64, stored),
        "f4" => numbers::<f32, R>(file, DType::F32, stored),
        "f2" => numbers::<f16, R>(file, DType::F16, stored),
        "i8" => numbers::<i64, R>(file, DType::I64, stored),
        "i4" => numbers::<i32, R>(file, DType::I32, stored),
        "i2" => numbers::<i16, R>(file, DType::I16, stored),
        "i1" => numbers::<i8, R>(file, DType::I8, stored),
        "u8" => numbers::<u64, R>(file, DType::U64, stored),
        "u4" => numbers::<u32, R>(file, DType::U32, stored),
        "u2" => numbers::<u16, R>(file, DType::U16, stored),
        "u1" => numbers::<u8, R>(file, DType::U8, stored),
        "b1" => {
            let truths: Vec<bool> = file.into_vec().map_err(|error| error.to_string())?;
            let bytes: Vec<u8> = truths.into_iter().map(u8::from).collect();
            Array::from_bytes(Type::new(DType::Bool, stored), &bytes).map_err(|error| error.to_string())
        }
        _ => Err(format!("elements `{text}`, expected numbers or truth values, little-endian")),
    }?;
    if !turned {
        return Ok(array);
    }
    // What was written column by column is the transpose of what was meant.
    let permutation = (0..array.shape().len()).rev().collect();
    let turned = kernels::evaluate(&planner_ir::Op::Transpose { permutation }, &[&array]);
    turned.map_err(|error| error.to_string())?.pop().ok_or_else(|| "could not be transposed".to_owned())
}

fn numbers<T: Element + Deserialize, R: Read>(
    file: NpyFile<R>,
    dtype: DType,
    shape: Vec<u64>,
) -> Result<Array, String> {
    let numbers: Vec<T> = file.into_vec().map_err(|error| error.to_string())?;
    Array::from_bytes(Type::new(dtype, shape), bytemuck::cast_slice(&numbers))
        .map_err(|error| error.to_string())
}

/// An archive of these arrays.
pub(super) fn contents(arrays: &BTreeMap<String, Array>) -> Result<Vec<u8>, String> {
    let mut bytes = Cursor::new(Vec::new());
    let mut archive = ZipWriter::new(&mut bytes);
    for (name, array) in arrays {
        match array.dtype() {
            DType::F64 => add::<f64>(&mut archive, name, array),
            DType::F32 => add::<f32>(&mut archive, name, array),
            DType::F16 => add::<f16>(&mut archive, name, array),
            DType::BF16 => {
                let wide: Vec<f32> = elements::<bf16>(array)?.iter().map(|it| it.to_f32()).collect();
                put(&mut archive, name, array.shape(), wide)
            }
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => {
                let numbers = array.to_floats().map_err(|error| error.to_string())?;
                let wide: Vec<f32> = numbers.into_iter().map(single).collect();
                put(&mut archive, name, array.shape(), wide)
            }
            DType::I64 => add::<i64>(&mut archive, name, array),
            DType::I32 => add::<i32>(&mut archive, name, array),
            DType::I16 => add::<i16>(&mut archive, name, array),
            DType::I8 => add::<i8>(&mut archive, name, array),
            DType::U64 => add::<u64>(&mut archive, name, array),
            DType::U32 => add::<u32>(&mut archive, name, array),
            DType::U16 => add::<u16>(&mut archive, name, array),
            DType::U8 => add::<u8>(&mut archive, name, array),
            DType::Bool => {
                let truths = array.to_truths().map_err(|error| error.to_string())?;
                put(&mut archive, name, array.shape(), truths)
            }
        }?;
    }
    archive.finish().map_err(|error| error.to_string())?;
    drop(archive);
    Ok(bytes.into_inner())
}

type Archive<'a> = ZipWriter<&'a mut Cursor<Vec<u8>>>;

#[expect(clippy::cast_possible_truncation, reason = "numbers of 8 bits are exact in 32")]
fn single(number: f64) -> f32 {
    number as f32
}

fn elements<T: Element>(array: &Array) -> Result<&[T], String> {
    array.elements::<T>().map_err(|error| error.to_string())
}

fn add<T: Element + AutoSerialize>(
    archive: &mut Archive<'_>,
    name: &str,
    array: &Array,
) -> Result<(), String> {
    put(archive, name, array.shape(), elements::<T>(array)?.to_vec())
}

fn put<T: AutoSerialize>(
    archive: &mut Archive<'_>,
    name: &str,
    shape: &[u64],
    elements: Vec<T>,
) -> Result<(), String> {
    let large = std::mem::size_of_val(&elements[..]) >= LARGE;
    // The clock has no part in it: the same arrays give the same bytes.
    let options = FileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(zip::DateTime::default())
        .large_file(large);
    let write = || {
        archive.start_file(file_name_from_array_name(name), options)?;
        let mut writer = npyz::WriteOptions::new().default_dtype().shape(shape).writer(archive).begin_nd()?;
        writer.extend(elements)?;
        writer.finish()
    };
    write().map_err(|error| error.to_string())
}

/// Bytes from which on an entry needs lengths of 64 bits, with room for what packing adds.
const LARGE: usize = 0xF000_0000;
