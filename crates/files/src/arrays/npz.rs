//! Numpy archives.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};

use kernels::Array;
use planner_ir::{DType, Op, Type};
use zip::read::ZipFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{self, Header};
use crate::mapped::Mapped;

/// What the name of an array ends in.
pub(super) const ENDING: &str = ".npy";
/// How many bytes one that is packed can stand for, and a few. Source: zlib's "maximum compression factor".
const MOST_PACKED: u64 = 1032;

/// An archive.
#[derive(Debug)]
pub(super) struct Archive {
    map: Mapped,
    zip: ZipArchive<Cursor<Mapped>>,
    entries: BTreeMap<String, (usize, Header)>,
}

impl Archive {
    /// Reads which arrays there are: of each no more than its header is unpacked.
    pub(super) fn open(map: Mapped) -> Result<Self, String> {
        let mut zip = ZipArchive::new(Cursor::new(map.clone())).map_err(|error| error.to_string())?;
        super::entries::check(map.as_ref(), &mut zip)?;
        let mut entries = BTreeMap::new();
        for index in 0..zip.len() {
            let mut entry = zip.by_index(index).map_err(|error| error.to_string())?;
            let Some(name) = array_name(entry.name()) else { continue };
            let header = checked(&mut entry).map_err(|error| format!("array `{name}`: {error}"))?;
            if entries.insert(name.clone(), (index, header)).is_some() {
                return Err(format!("array `{name}` is there twice"));
            }
        }
        map.release();
        Ok(Self { map, zip, entries })
    }

    /// The types of its arrays.
    pub(super) fn types(&self) -> BTreeMap<String, Type> {
        self.entries.iter().map(|(name, (_, header))| (name.clone(), header.type_.clone())).collect()
    }

    /// An array, whose checksum has to be right.
    pub(super) fn read(&self, name: &str) -> Result<Array, String> {
        let (index, header) = self.entries.get(name).ok_or("is not there")?;
        self.map.check()?;
        // A copy of where it is, not of what is in it.
        let mut zip = self.zip.clone();
        let mut entry = zip.by_index(*index).map_err(|error| error.to_string())?;
        if Header::read(&mut entry)? != *header {
            return Err("has changed since the file was opened".to_owned());
        }
        let Header { type_, turned, .. } = header;
        let mut stored = type_.clone();
        if *turned {
            stored.shape.reverse();
        }
        let mut array = Array::zeros(stored).map_err(|error| error.to_string())?;
        let read = entry.read_exact(array.bytes_mut()).and_then(|()| entry.read(&mut [0]));
        match read {
            // It is only where there is nothing more that the checksum is compared.
            Ok(0) => {}
            Ok(_) => return Err("has more elements than its header says".to_owned()),
            Err(error) => return Err(format!("is damaged: {error}")),
        }
        self.map.release();
        if !turned {
            return Ok(array);
        }
        // What was written column by column is the transpose of what was meant.
        let permutation = (0..array.shape().len()).rev().collect();
        let turned = kernels::evaluate(&Op::Transpose { permutation }, &[&array]);
        turned.map_err(|error| error.to_string())?.pop().ok_or_else(|| "could not be transposed".to_owned())
    }
}

/// The header of an array, if it says of it what the archive does: how much there is, and that so much can be
/// unpacked from what is there.
fn checked<R: Read>(entry: &mut ZipFile<'_, R>) -> Result<Header, String> {
    let header = Header::read(entry)?;
    let (found, packed) = (entry.size(), entry.compressed_size());
    let expected = header.type_.bytes().saturating_add(header.length);
    if found != expected {
        return Err(format!("has {found} bytes, expected {expected} as its header says"));
    }
    if found > packed.saturating_add(1).saturating_mul(MOST_PACKED) {
        return Err(format!("has {packed} bytes, which cannot be unpacked to {found}"));
    }
    Ok(header)
}

/// An archive of these arrays.
pub(super) fn contents(arrays: &BTreeMap<String, Array>) -> Result<Vec<u8>, String> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, array) in arrays {
        let wide;
        let array = if array.dtype().is_float() && array.dtype().bytes() <= 2 && array.dtype() != DType::F16 {
            // What NumPy has no number of: exact in f32.
            let numbers = array.to_floats().map_err(|error| error.to_string())?;
            let numbers: Vec<f32> = numbers.into_iter().map(single).collect();
            wide = Array::of(array.shape(), &numbers).map_err(|error| error.to_string())?;
            &wide
        } else {
            array
        };
        // The clock has no part in it: the same arrays give the same bytes.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(zip::DateTime::default())
            .large_file(array.bytes().len() >= LARGE);
        let header = npy::header(array.type_())?;
        archive.start_file(entry_name(name), options).map_err(|error| error.to_string())?;
        archive
            .write_all(&header)
            .and_then(|()| archive.write_all(array.bytes()))
            .map_err(|error| error.to_string())?;
    }
    archive.finish().map(Cursor::into_inner).map_err(|error| error.to_string())
}

#[expect(clippy::cast_possible_truncation, reason = "numbers of 16 bits and less are exact in 32")]
fn single(number: f64) -> f32 {
    number as f32
}

/// Bytes from which on an entry needs lengths of 64 bits, with room for what packing adds.
const LARGE: usize = 0xF000_0000;

/// The entry of an array: its name, in which what would lead out of the folder that an archive is unpacked
/// in is written otherwise: a first `/`, a part that is `..`, and `\`. So is `%`, by which it is told.
pub(super) fn entry_name(name: &str) -> String {
    let name = WRITTEN.iter().fold(name.to_owned(), |name, (it, written)| name.replace(it, written));
    let parts: Vec<&str> = name.split('/').map(|part| if part == ".." { UP } else { part }).collect();
    let name = parts.join("/");
    match name.strip_prefix('/') {
        Some(rest) => format!("{FIRST}{rest}{ENDING}"),
        None => format!("{name}{ENDING}"),
    }
}

/// The name of the array of an entry; none if it is another file.
fn array_name(entry: &str) -> Option<String> {
    let name = entry.strip_suffix(ENDING)?.replace(FIRST, "/").replace(UP, "..");
    Some(WRITTEN.iter().rev().fold(name, |name, (it, written)| name.replace(written, it)))
}

/// What is written otherwise wherever it stands.
const WRITTEN: [(&str, &str); 3] = [("%", "%25"), ("\\", "%5C"), ("\0", "%00")];
/// How `..` is written where it is a whole part.
const UP: &str = "%2E%2E";
/// How `/` is written where it is first.
const FIRST: &str = "%2F";
