//! Tests of blocks of weights, read out of files.

use kernels::Array;
use planner_ir::{Layout, Mesh, Piece, parse_layout};

use super::*;
use crate::mapped::tests::resident;

/// Models with weights in f32, f16 and bf16.
const MODELS: [&str; 3] =
    ["gpt2-eager-legacy2.9-op17-static", "llama-fp16-legacy2.9-op17-dyn", "gpt2-bf16-dynamo2.9-op20-dyn"];

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models").join(name).join("model.onnx")
}

/// Whether a block has an element of the whole, by its number.
fn has(pieces: &[Vec<Piece>], shape: &[u64], mut number: u64) -> bool {
    let mut dims = pieces.iter().zip(shape).rev();
    dims.all(|(pieces, extent)| {
        let (mut place, _) = (number % extent, number /= extent);
        pieces.iter().rev().all(|piece| {
            let (value, _) = (place % piece.size, place /= piece.size);
            piece.index.is_none_or(|index| index == value)
        })
    })
}

/// Reads all weights of a file in blocks of several layouts, and holds them to elements taken out of the
/// bytes of the whole one by one; how many there were.
fn check(file: &ModelFile, bytes: &dyn Fn(&str) -> Vec<u8>) -> usize {
    let mesh = Mesh::of_sizes(&[2, 2]);
    let mut count = 0;
    for (name, type_) in file.model.weights() {
        let whole = bytes(name);
        assert_eq!(file.type_of(name).unwrap(), type_);
        assert!(run::whole(file, name).unwrap().bytes() == whole, "{name}");
        let dims = match type_.rank() {
            1 => ["[-]", "[a]", "[*2.b]", "[a.b]"],
            2 => ["[-,-]", "[a,b]", "[-,*4.a]", "[(a+b:2),b]"],
            _ => continue,
        };
        let layouts = dims.map(|text| parse_layout(&mesh, text).unwrap());
        for layout in layouts.iter().filter(|it: &&Layout| it.check(&mesh, &type_).is_ok()) {
            for device in 0..mesh.devices() {
                let pieces = layout.pieces(&mesh, device, &type_.shape);
                let size = usize::try_from(type_.dtype.bytes()).unwrap();
                let held =
                    whole.chunks(size).zip(0..).filter(|(_, number)| has(&pieces, &type_.shape, *number));
                let expected: Vec<u8> = held.flat_map(|(element, _)| element.to_vec()).collect();
                let mut found = Array::zeros(layout.local_type(&type_)).unwrap();
                file.read(name, &Strided::of_pieces(&pieces), found.bytes_mut()).unwrap();
                assert!(found.bytes() == expected, "{name} {layout:?} on {device}");
                count += 1;
            }
        }
    }
    count
}

/// The bytes of a weight as the file has them.
fn stored(file: &ModelFile) -> impl Fn(&str) -> Vec<u8> {
    |name: &str| match file.model.weight(name).unwrap() {
        WeightData::Bytes(bytes) => bytes.to_vec(),
        WeightData::External(external) => panic!("`{name}` is in {external:?}"),
    }
}

#[test]
fn blocks_of_the_weights_of_a_file_are_those_of_the_whole() {
    for name in MODELS {
        let file = open(&model(name)).unwrap();
        assert!(check(&file, &stored(&file)) > 100, "{name}");
    }
}

/// The same with weights in another file, and with numbers in a field of their type.
#[test]
fn wherever_a_file_has_its_weights_blocks_of_them_are_the_same() {
    let folder = std::env::temp_dir().join(format!("shardloom-blocks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (path, data) = (folder.join("model.onnx"), folder.join("w.bin"));
    for name in MODELS {
        let file = open(&model(name)).unwrap();
        let contents = std::fs::read(&file.path).unwrap();
        let mut beside = Vec::new();
        std::fs::write(&path, moved(&contents, &mut beside)).unwrap();
        std::fs::write(&data, &beside).unwrap();
        let outside = open(&path).unwrap();
        assert_eq!(outside.model.files(), ["w.bin"]);
        assert!(check(&outside, &stored(&file)) > 100, "{name}");
        // What has been read is in blocks, and the file in memory no more.
        outside.release();
        assert_eq!(resident(&data.canonicalize().unwrap()), Some(0));
        // Packed numbers of 32 bits lie as in raw data.
        let mut changed = 0;
        let typed = with_weights(&contents, &mut |tensor| {
            let is_f32 =
                fields(tensor).iter().any(|(number, whole, _)| *number == 2 && whole == &[2 << 3, 1]);
            let one = |(number, whole, content): (u64, &[u8], &[u8])| match number {
                9 if is_f32 => field(4, content),
                _ => whole.to_vec(),
            };
            changed += u64::from(is_f32);
            fields(tensor).into_iter().flat_map(one).collect()
        });
        std::fs::write(&path, typed).unwrap();
        if changed > 0 {
            let typed = open(&path).unwrap();
            // They are there once, however often they are read.
            let (name, _) = typed.model.weights()[0];
            assert_eq!(typed.bytes(name).unwrap().as_ptr(), typed.bytes(name).unwrap().as_ptr());
            assert!(check(&typed, &stored(&file)) > 100, "{name}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_not_there_is_named() {
    let file = open(&model(MODELS[0])).unwrap();
    let error = run::whole(&file, "w").unwrap_err().to_string();
    assert_eq!(error, "weight `w` cannot be read: the model has no weight `w`");
}

/// A model whose raw tensors of more than 64 bytes are in the file `w.bin`: field 9 of a tensor
/// becomes fields 13 and 14.
pub fn moved(file: &[u8], contents: &mut Vec<u8>) -> Vec<u8> {
    with_weights(file, &mut |tensor| {
        let raw = fields(tensor).into_iter().find(|(number, _, content)| *number == 9 && content.len() > 64);
        let Some((_, whole, raw)) = raw else { return tensor.to_vec() };
        let rest = fields(tensor).into_iter().filter(|it| it.1 != whole);
        let mut new: Vec<u8> = rest.flat_map(|it| it.1.to_vec()).collect();
        for (key, value) in [("location", "w.bin".to_owned()), ("offset", contents.len().to_string())] {
            let entry = [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
            new.extend(field(13, &entry));
        }
        new.extend([14 << 3, 1]);
        contents.extend_from_slice(raw);
        new
    })
}

/// A model with other initializers.
fn with_weights(file: &[u8], initializer: &mut dyn FnMut(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut graph = |graph: &[u8]| -> Vec<u8> {
        let one = |(number, whole, content): (u64, &[u8], &[u8])| match number {
            5 => field(5, &initializer(content)),
            _ => whole.to_vec(),
        };
        fields(graph).into_iter().flat_map(one).collect()
    };
    let one = |(number, whole, content): (u64, &[u8], &[u8])| match number {
        7 => field(7, &graph(content)),
        _ => whole.to_vec(),
    };
    fields(file).into_iter().flat_map(one).collect()
}

/// The fields of a protobuf message: number, all of it, what is in it.
fn fields(message: &[u8]) -> Vec<(u64, &[u8], &[u8])> {
    let varint = |place: &mut usize| {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let byte = message[*place];
            *place += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    };
    let (mut place, mut found) = (0, Vec::new());
    while place < message.len() {
        let start = place;
        let key = varint(&mut place);
        let length = match key & 7 {
            0 => (varint(&mut place), 0).1,
            1 => 8,
            2 => usize::try_from(varint(&mut place)).unwrap(),
            _ => 4,
        };
        place += length;
        found.push((key >> 3, &message[start..place], &message[place - length..place]));
    }
    found
}

fn field(number: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for mut rest in [number << 3 | 2, content.len() as u64] {
        while rest >= 0x80 {
            bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        bytes.push(u8::try_from(rest).unwrap());
    }
    bytes.extend_from_slice(content);
    bytes
}

#[test]
fn a_model_that_becomes_shorter_after_it_was_opened_is_an_error() {
    let folder = std::env::temp_dir().join(format!("shardloom-shorter-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("model.onnx");
    std::fs::copy(model(MODELS[0]), &path).unwrap();
    let file = open(&path).unwrap();
    let (name, type_) = file.model.weights().remove(0);
    let mut bytes = vec![0; usize::try_from(type_.bytes()).unwrap()];
    let all =
        Strided::of_pieces(&Layout::replicated(type_.rank()).pieces(&Mesh::of_sizes(&[1]), 0, &type_.shape));
    file.read(name, &all, &mut bytes).unwrap();
    let length = std::fs::metadata(&path).unwrap().len();
    // All pages are gone, which whoever looks at them is ended for.
    file.release();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    let error = file.read(name, &all, &mut bytes).unwrap_err();
    let expected = format!("`{}` is 10 bytes long, expected {length} as when it was opened", path.display());
    assert_eq!(error, expected);
    std::fs::remove_dir_all(folder).unwrap();
}
