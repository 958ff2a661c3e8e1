//! Arrays in numpy's files: the oracles of real models.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::read::DeflateDecoder;
use kernels::Array;
use planner_ir::{DType, Type};

/// The arrays of a file by name; those of unknown element types are left out.
pub(super) fn read(path: &Path) -> BTreeMap<String, Array> {
    let bytes = std::fs::read(path).unwrap();
    let entries = central(&bytes).into_iter();
    entries
        .filter_map(|(name, packed, method, start)| {
            let local = &bytes[start..];
            let header = 30 + usize::from(short(local, 26)) + usize::from(short(local, 28));
            let data = &local[header..header + packed];
            let mut plain = Vec::new();
            match method {
                0 => plain.extend_from_slice(data),
                _ => drop(DeflateDecoder::new(data).read_to_end(&mut plain).unwrap()),
            }
            Some((name.strip_suffix(".npy")?.to_owned(), npy(&plain)?))
        })
        .collect()
}

/// Name, compressed length, method and offset of each file in a zip archive.
fn central(bytes: &[u8]) -> Vec<(String, usize, u16, usize)> {
    let end = bytes.windows(4).rposition(|it| it == b"PK\x05\x06").unwrap();
    let count = short(&bytes[end..], 10);
    let mut at = long(&bytes[end..], 16);
    let mut entries = Vec::new();
    for _ in 0..count {
        let entry = &bytes[at..];
        let (name, extra, comment) = (short(entry, 28), short(entry, 30), short(entry, 32));
        let name_end = 46 + usize::from(name);
        let text = String::from_utf8(entry[46..name_end].to_vec()).unwrap();
        entries.push((text, long(entry, 20), short(entry, 10), long(entry, 42)));
        at += name_end + usize::from(extra) + usize::from(comment);
    }
    entries
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())).unwrap()
}

fn npy(bytes: &[u8]) -> Option<Array> {
    let (start, length) =
        if bytes[6] == 1 { (10, usize::from(short(bytes, 8))) } else { (12, long(bytes, 8)) };
    let header = std::str::from_utf8(&bytes[start..start + length]).unwrap();
    assert!(header.contains("'fortran_order': False"), "column-major: {header}");
    let between =
        |from: &str, to: &str| header.split(from).nth(1).unwrap().split(to).next().unwrap().to_owned();
    let dtype = match between("'descr': '", "'").as_str() {
        "<f8" => DType::F64,
        "<f4" => DType::F32,
        "<f2" => DType::F16,
        "<i8" => DType::I64,
        "<i4" => DType::I32,
        "|u1" => DType::U8,
        "|i1" => DType::I8,
        "|b1" => DType::Bool,
        _ => return None,
    };
    let shape = between("'shape': (", ")");
    let extents = shape.split(',').map(str::trim).filter(|it| !it.is_empty());
    let shape: Vec<u64> = extents.map(|it| it.parse().unwrap()).collect();
    Some(Array::from_bytes(Type::new(dtype, shape), &bytes[start + length..]).unwrap())
}
