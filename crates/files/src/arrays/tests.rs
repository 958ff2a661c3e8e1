//! Tests of files of arrays: what is read back, and what is refused.

use std::fs;
use std::io::{Cursor, Write};

use expect_test::expect;
use half::{bf16, f16};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("shardloom-arrays-{}-{name}", std::process::id()))
}

/// What is read of a file with these bytes.
fn of(name: &str, bytes: &[u8]) -> Result<BTreeMap<String, Array>, String> {
    let path = place(name);
    fs::write(&path, bytes).unwrap();
    let found = read(&path).map_err(|failure| {
        failure.to_string().strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    });
    fs::remove_file(path).unwrap();
    found
}

/// One array of each type that numpy knows, of several shapes.
fn some() -> BTreeMap<String, Array> {
    let arrays = [
        ("f64", Array::of::<f64>([2, 1], &[0.1, -0.0])),
        ("f32", Array::of::<f32>([], &[f32::MIN])),
        ("f16", Array::of([1], &[f16::from_f32(0.5)])),
        ("i64", Array::of::<i64>([2, 2], &[i64::MIN, -1, 0, i64::MAX])),
        ("i32", Array::of::<i32>([0, 7], &[])),
        ("i16", Array::of::<i16>([1, 1, 2], &[-2, 2])),
        ("i8", Array::of::<i8>([1], &[-128])),
        ("u64", Array::of::<u64>([1], &[u64::MAX])),
        ("u32", Array::of::<u32>([1], &[u32::MAX])),
        ("u16", Array::of::<u16>([1], &[7])),
        ("u8", Array::of::<u8>([3], &[0, 1, 255])),
        ("bool", Array::of_truths([2], &[true, false])),
    ];
    arrays.map(|(name, array)| (name.to_owned(), array.unwrap())).into()
}

/// An archive with one entry of these bytes.
fn zipped(name: &str, bytes: &[u8], method: CompressionMethod) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    archive.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
    archive.write_all(bytes).unwrap();
    archive.finish().unwrap().into_inner()
}

/// An array as numpy writes it, with this text in its header.
fn npy(text: &str, elements: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), elements].concat()
}

#[test]
fn what_is_written_is_read_back() {
    let mut arrays = some();
    assert_eq!(of("back.npz", &npz::contents(&arrays).unwrap()).unwrap(), arrays);
    let narrow = Array::of([2], &[bf16::from_f32(1.5), bf16::from_f32(-0.25)]).unwrap();
    arrays.insert("bf16".to_owned(), narrow);
    assert_eq!(of("back.safetensors", &tensors::contents(&arrays).unwrap()).unwrap(), arrays);
    let read = of("narrow.npz", &npz::contents(&arrays).unwrap()).unwrap();
    assert_eq!(read["bf16"], Array::of::<f32>([2], &[1.5, -0.25]).unwrap());
}

#[test]
fn names_stay_and_entries_lead_out_of_no_folder() {
    for (name, entry) in [
        ("x", "x.npy"),
        ("layer/out:0", "layer/out:0.npy"),
        ("/layer/out", "%2Flayer/out.npy"),
        ("//x", "%2F/x.npy"),
        ("../../x", "%2E%2E/%2E%2E/x.npy"),
        ("a/..", "a/%2E%2E.npy"),
        ("..a/b..", "..a/b...npy"),
        ("a\\..\\b", "a%5C..%5Cb.npy"),
        ("100%", "100%25.npy"),
        ("%2F", "%252F.npy"),
        ("%252E%2E", "%25252E%252E.npy"),
        ("", ".npy"),
        ("ü\0", "ü%00.npy"),
    ] {
        assert_eq!(npz::entry_name(name), entry);
        let arrays = BTreeMap::from([(name.to_owned(), Array::of::<u8>([1], &[7]).unwrap())]);
        assert_eq!(of("names.npz", &npz::contents(&arrays).unwrap()).unwrap(), arrays, "{name}");
    }
}

/// No bit of an archive may be another without a word, packed or not: what is read is what was written.
#[test]
fn every_flipped_bit_of_an_archive_is_found_or_is_of_no_meaning() {
    let x = Array::of::<i32>([4], &[1, -2, 3, 70_000]).unwrap();
    let y = Array::of::<f32>([2, 2], &[0.5, 0.25, -1.0, 3.0]).unwrap();
    let packed = npz::contents(&BTreeMap::from([("x".to_owned(), x.clone()), ("y".to_owned(), y)])).unwrap();
    let bytes = [npy::header(x.type_()).unwrap(), x.bytes().to_vec()].concat();
    let stored = zipped("x.npy", &bytes, CompressionMethod::Stored);
    for (name, archive) in [("packed.npz", packed), ("stored.npz", stored)] {
        let expected = of(name, &archive).unwrap();
        let (mut found, mut same) = (0, 0);
        for place in 0..8 * archive.len() {
            let mut archive = archive.clone();
            archive[place / 8] ^= 1 << (place % 8);
            match of(name, &archive) {
                Err(_) => found += 1,
                // An entry that is not called an array any more is missed by whoever asks for it.
                Ok(read) => {
                    same += 1;
                    let is_there = |(name, array): (&String, &Array)| expected.get(name) == Some(array);
                    assert!(read.iter().all(is_there), "{name}: bit {} of byte {}", place % 8, place / 8);
                }
            }
        }
        // What nobody reads: times, rights, versions.
        assert!(found > same, "{name}: {found} of {} are found", found + same);
    }
}

/// Bytes in which some, wherever they stand, are others.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for at in 0..=bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + from.len()].copy_from_slice(to);
        }
    }
    bytes
}

/// Of what an archive says twice, programs differ in what they take.
#[test]
fn archives_that_say_two_things_are_refused() {
    let one = |name: &str, number: u8| {
        let x = Array::of::<u8>([1], &[number]).unwrap();
        npz::contents(&BTreeMap::from([(name.to_owned(), x)])).unwrap()
    };
    let bytes = |number: u8| npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }", &[number]);
    let two = |options: SimpleFileOptions| {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, number) in [("x.npy", 7), ("y.npy", 8)] {
            archive.start_file(name, options).unwrap();
            archive.write_all(&bytes(number)).unwrap();
        }
        archive.finish().unwrap().into_inner()
    };
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let good = two(stored);
    let read = of("two.npz", &good).unwrap();
    assert_eq!(read.keys().collect::<Vec<_>>(), ["x", "y"]);
    // As others write them: with fields of 8 bytes, and with lengths after the bytes.
    assert_eq!(of("large.npz", &two(stored.large_file(true))).unwrap(), read);
    let mut stream = ZipWriter::new_stream(Vec::new());
    for (name, number) in [("x.npy", 7), ("y.npy", 8)] {
        stream.start_file(name, stored).unwrap();
        stream.write_all(&bytes(number)).unwrap();
    }
    assert_eq!(of("stream.npz", &stream.finish().unwrap().into_inner()).unwrap(), read);

    let says = |archive: &[u8]| of("says.npz", archive).unwrap_err();
    expect!["is not a .npz file: lists 2 entries, of which 1 have names of their own"]
        .assert_eq(&says(&replaced(&good, b"y.npy", b"x.npy")));
    // Fewer than there are, and an archive after another one: whole, or without its end.
    let end = good.len() - 22;
    let mut fewer = good.clone();
    fewer[end + 8..end + 12].copy_from_slice(&[1, 0, 1, 0]);
    assert!(of("fewer.npz", &fewer).is_err());
    let both = [&one("x", 1)[..], &one("x", 2)[..]].concat();
    for archive in [&both[..], &both[..both.len() - 1]] {
        assert_eq!(says(archive), format!("is not a .npz file: ends at byte 191, and has {}", archive.len()));
    }
    for length in 0..good.len() {
        assert!(of("cut.npz", &good[..length]).is_err(), "{length}");
    }
    // The first reaches over the second, wherever its length stands.
    let length = u32::try_from(bytes(7).len()).unwrap();
    let [short, long] = [length, length + 40].map(u32::to_le_bytes);
    let mut over = good.clone();
    let list = over.windows(4).position(|it| it == b"PK\x01\x02").unwrap();
    for place in [18, 22, list + 20, list + 24] {
        assert_eq!(over[place..place + 4], short);
        over[place..place + 4].copy_from_slice(&long);
    }
    assert_eq!(says(&over), "is not a .npz file: entry `x.npy` reaches into `y.npy`");
    // What stands before the bytes of an entry says something else than the list.
    for (place, what) in [(8, "method"), (14, "checksum"), (18, "length"), (22, "unpacked length")] {
        let mut other = good.clone();
        other[place] ^= 1;
        assert!(says(&other).contains(&format!("entry `x.npy` has the {what} ")), "{}", says(&other));
    }
}

#[test]
fn what_an_entry_claims_is_refused_before_it_is_unpacked() {
    let header = |shape: &str| format!("{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}");
    let says = |text: &str, elements: &[u8]| {
        let archive = zipped("x.npy", &npy(text, elements), CompressionMethod::Deflated);
        of("claims.npz", &archive).unwrap_err()
    };
    expect!["is not a .npz file: array `x`: has 77 bytes, expected 1600000077 as its header says"]
        .assert_eq(&says(&header("(100000000, 2)"), &[]));
    let message = says(&header("(1,)"), &[0; 16]);
    assert!(message.contains("bytes, expected"), "{message}");
    for shape in ["(4294967296, 4294967296, 0)", "(18446744073709551615,)"] {
        let message = says(&header(shape), &[]);
        assert!(message.contains("has too many elements"), "{message}");
    }
}

#[test]
fn headers_are_read_as_numpy_reads_them() {
    let eight = [1_u8, 0, 0, 0, 2, 0, 0, 0];
    for text in [
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n",
        "{\"shape\":(2L,),'fortran_order':False , 'descr':'=i4'}   ",
        "{'shape': (2), 'fortran_order': True, 'descr': '<i4'}",
    ] {
        let archive = zipped("x.npy", &npy(text, &eight), CompressionMethod::Stored);
        assert_eq!(of("good.npz", &archive).unwrap()["x"], Array::of::<i32>([2], &[1, 2]).unwrap());
    }
    let text = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }";
    let archive = zipped("x.npy", &npy(text, &[1, 4, 2, 5, 3, 6]), CompressionMethod::Deflated);
    let turned = Array::of::<u8>([2, 3], &[1, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!(of("turned.npz", &archive).unwrap()["x"], turned);
    for (text, message) in [
        ("{'descr': '>i4', 'fortran_order': False, 'shape': (2,)}", "elements `>i4`, expected numbers"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "elements `|O`, expected numbers"),
        ("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,)}", "has fields"),
        ("{'descr': '<i4', 'fortran_order': False}", "lacks `descr`, `fortran_order` or `shape`"),
        ("{'descr': '<i4', 'fortran_order': 1, 'shape': (2,)}", "`1, 'shape': (2,)}`, expected `True` or"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (-2,)}", "`-2,)}`, expected a size"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (2,)} x", "`x`, expected its end"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "says `more`"),
        (&"(".repeat(60_000), "expected `{`"),
        ("", "expected `{`"),
    ] {
        let archive = zipped("x.npy", &npy(text, &eight), CompressionMethod::Stored);
        let error = of("bad.npz", &archive).unwrap_err();
        assert!(error.starts_with("is not a .npz file: array `x`: ") && error.contains(message), "{error}");
    }
}

#[test]
fn tensors_that_are_not_where_their_header_says_are_refused() {
    let file = |header: &str, bytes: usize| {
        let length = u64::try_from(header.len()).unwrap().to_le_bytes();
        [&length[..], header.as_bytes(), &vec![0; bytes]].concat()
    };
    let one = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    assert_eq!(of("one.safetensors", &file(one, 8)).unwrap()["x"].shape(), [2]);
    for (header, bytes) in [
        (one, 7),
        (one, 9),
        (r#"{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, 8),
        (r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, 8),
        (
            r#"{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#,
            3,
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}"#,
            8,
        ),
        (r#"{"x":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}"#, 0),
        (r#"{"x":{"dtype":"F32","shape":[18446744073709551615,0],"data_offsets":[0,0]}}"#, 0),
        (r#"{"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}"#, 1),
    ] {
        let error = of("bad.safetensors", &file(header, bytes)).unwrap_err();
        assert!(error.starts_with("is not a .safetensors file: "), "{error}");
    }
    for bytes in [&[][..], &[255; 8], &[0; 7], &[0, 0, 0, 0, 0, 0, 0, 1]] {
        assert!(of("short.safetensors", bytes).unwrap_err().starts_with("is not a .safetensors file: "));
    }
}
