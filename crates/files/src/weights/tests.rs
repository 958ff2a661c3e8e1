//! Tests of files of trained weights.

use planner_ir::{Binary, DType};

use super::*;
use crate::model_file;
use crate::model_file::tests::moved;

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models").join(name).join("model.onnx")
}

/// An empty folder of its own.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("shardloom-weights-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// All weights of floating point but the first, in f32 as if trained: halves of what they were.
fn halved(file: &ModelFile) -> BTreeMap<String, Array> {
    let floats = file.model.weights().into_iter().filter(|(_, type_)| type_.dtype.is_float());
    let names: Vec<String> = floats.skip(1).map(|(name, _)| name.to_owned()).collect();
    let half = |name: &String| {
        let array = run::whole(file, name).unwrap();
        let wide: Vec<f64> = array.to_floats().unwrap().iter().map(|it| it / 2.0).collect();
        let wide = Array::of::<f64>(array.shape(), &wide).unwrap();
        (name.clone(), kernels::evaluate(&Op::Cast(DType::F32), &[&wide]).unwrap().remove(0))
    };
    names.iter().map(half).collect()
}

fn states(arrays: &BTreeMap<String, Array>) -> BTreeMap<State, Type> {
    let state = |(name, array): (&String, &Array)| {
        (State { kind: StateKind::Parameter, name: name.clone() }, array.type_().clone())
    };
    arrays.iter().map(state).collect()
}

#[test]
fn an_exported_model_has_the_new_weights_in_their_types_and_the_others() {
    let folder = folder("export");
    for name in
        ["gpt2-eager-legacy2.9-op17-static", "llama-fp16-legacy2.9-op17-dyn", "gpt2-bf16-dynamo2.9-op20-dyn"]
    {
        let file = model_file::open(&model(name)).unwrap();
        let arrays = halved(&file);
        assert!(arrays.len() > 10);
        let trained = trained(&states(&arrays), &[]);
        let path = folder.join("out.onnx");
        export(&path, &file, &trained, &mut |state| Ok(arrays[&state.name].clone())).unwrap();
        let after = model_file::open(&path).unwrap();
        assert_eq!(after.model.weights(), file.model.weights());
        for (name, type_) in file.model.weights() {
            let (before, after) = (run::whole(&file, name).unwrap(), run::whole(&after, name).unwrap());
            match arrays.get(name) {
                None => assert_eq!(before, after),
                Some(array) => {
                    let bytes = converted(&path, name, array, &type_).unwrap();
                    assert_eq!(after.bytes(), bytes, "{name}");
                    assert_eq!(after.dtype(), before.dtype());
                }
            }
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_file(&path).unwrap();
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_the_types_of_a_model_cannot_say_is_not_exported() {
    let folder = folder("beyond");
    let file = model_file::open(&model("llama-fp16-legacy2.9-op17-dyn")).unwrap();
    let mut arrays = halved(&file);
    let name = arrays.keys().next().unwrap().clone();
    let path = folder.join("out.onnx");
    for (value, fits) in [(65_504.0, true), (65_536.0, false), (-1e6, false), (f32::INFINITY, true)] {
        let array = &arrays[&name];
        let mut values = array.elements::<f32>().unwrap().to_vec();
        *values.last_mut().unwrap() = value;
        let array = Array::of::<f32>(array.shape(), &values).unwrap();
        arrays.insert(name.clone(), array);
        let made = export(&path, &file, &trained(&states(&arrays), &[]), &mut |state| {
            Ok(arrays[&state.name].clone())
        });
        assert_eq!(made.is_ok(), fits, "{value}");
        assert_eq!(path.exists(), fits, "{value}");
        if let Err(failure) = made {
            let failure = failure.to_string();
            assert!(failure.contains(&format!("`{name}` is f16 in the model, and has {value}")), "{failure}");
        }
        let _ = std::fs::remove_file(&path);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A model in a folder, with its larger weights in another file; the arrays that it is exported with.
fn split(folder: &Path) -> (ModelFile, BTreeMap<String, Array>) {
    let file = model_file::open(&model("gpt2-eager-legacy2.9-op17-static")).unwrap();
    let mut contents = Vec::new();
    let moved = moved(&std::fs::read(&file.path).unwrap(), &mut contents);
    std::fs::write(folder.join("model.onnx"), moved).unwrap();
    std::fs::write(folder.join("w.bin"), contents).unwrap();
    (model_file::open(&folder.join("model.onnx")).unwrap(), halved(&file))
}

fn export_of(path: &Path, file: &ModelFile, arrays: &BTreeMap<String, Array>) {
    export(path, file, &trained(&states(arrays), &[]), &mut |state| Ok(arrays[&state.name].clone())).unwrap();
}

/// The file of weights beside an exported model.
fn data_of(path: &Path) -> PathBuf {
    let file = model_file::open(path).unwrap();
    let [data] = file.model.files()[..] else { panic!("one file") };
    path.with_file_name(data)
}

fn check_weights(path: &Path, from: &ModelFile, arrays: &BTreeMap<String, Array>) {
    let after = model_file::open(path).unwrap();
    for (name, _) in from.model.weights() {
        let expected = arrays.get(name).cloned().unwrap_or_else(|| run::whole(from, name).unwrap());
        assert_eq!(run::whole(&after, name).unwrap(), expected, "{name}");
    }
}

#[test]
fn a_model_with_weights_in_other_files_is_exported_with_one_beside_it() {
    let folder = folder("beside");
    let (before, arrays) = split(&folder);
    assert_eq!(before.model.files(), ["w.bin"]);
    let data = std::fs::read(folder.join("w.bin")).unwrap();
    let out = folder.join("out.onnx");
    export_of(&out, &before, &arrays);
    check_weights(&out, &before, &arrays);
    assert!(data_of(&out).to_str().unwrap().contains("out.onnx.sha256-"));
    assert_eq!(std::fs::read(folder.join("w.bin")).unwrap(), data, "what was there stays");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Such as where the second of two exports of the same name was ended before its model was in its place.
#[test]
fn a_model_has_its_own_weights_whatever_was_exported_half() {
    let (folder, other) = (folder("half"), folder("other-half"));
    let (before, arrays) = split(&folder);
    let (out, second) = (folder.join("out.onnx"), other.join("out.onnx"));
    export_of(&out, &before, &arrays);
    let first_data = data_of(&out);
    let later: BTreeMap<String, Array> = arrays
        .iter()
        .map(|(name, array)| {
            (name.clone(), kernels::evaluate(&Op::Binary(Binary::Add), &[array, array]).unwrap().remove(0))
        })
        .collect();
    export_of(&second, &before, &later);
    let half = folder.join(data_of(&second).file_name().unwrap());
    std::fs::copy(data_of(&second), &half).unwrap();
    check_weights(&out, &before, &arrays);
    // When it is done again, what is there is of it alone, and of others what was there.
    let others = ["x.onnx.sha256-0123456789abcdef.data", "out.onnx.data", "out.onnx.sha256-01.data"];
    others.iter().for_each(|name| std::fs::write(folder.join(name), "").unwrap());
    export_of(&out, &before, &later);
    check_weights(&out, &before, &later);
    assert!(half.exists() && !first_data.exists());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 4 + others.len());
    // An input keeps its weights, under whatever name.
    let own = model_file::open(&out).unwrap();
    std::fs::rename(&out, folder.join("in.onnx")).unwrap();
    export_of(&out, &own, &arrays);
    check_weights(&folder.join("in.onnx"), &before, &later);
    [folder, other].iter().for_each(|it| std::fs::remove_dir_all(it).unwrap());
}

#[test]
fn any_flipped_byte_of_exported_weights_is_found() {
    let folder = folder("flipped");
    let (before, arrays) = split(&folder);
    let out = folder.join("out.onnx");
    export_of(&out, &before, &arrays);
    let data = data_of(&out);
    let whole = std::fs::read(&data).unwrap();
    for place in (0..whole.len()).step_by(whole.len() / 20) {
        let mut flipped = whole.clone();
        flipped[place] ^= 1;
        std::fs::write(&data, flipped).unwrap();
        let words = model_file::open(&out).unwrap_err().to_string();
        assert!(words.contains("cannot be read: it is damaged: its SHA-256 is "), "{words}");
    }
    std::fs::write(&data, whole).unwrap();
    check_weights(&out, &before, &arrays);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn masters_are_written_rather_than_parameters() {
    let folder = folder("masters");
    let path = folder.join("w.safetensors");
    let state = |kind, name: &str| State { kind, name: name.to_owned() };
    let states = BTreeMap::from([
        (state(StateKind::Parameter, "a"), Type::new(DType::BF16, [2])),
        (state(StateKind::Master, "a"), Type::new(DType::F32, [2])),
        (state(StateKind::Parameter, "b"), Type::new(DType::F32, [1])),
        (state(StateKind::FirstMoment, "b"), Type::new(DType::F32, [1])),
    ]);
    let a = Array::of::<f32>([2], &[1.5, 2.5]).unwrap();
    let b = Array::of::<f32>([1], &[3.5]).unwrap();
    let gather = &mut |wanted: &State| match (wanted.kind, wanted.name.as_str()) {
        (StateKind::Master, "a") => Ok(a.clone()),
        (StateKind::Parameter, "b") => Ok(b.clone()),
        _ => Err(Failure::internal("test", "another state")),
    };
    write(&path, &trained(&states, &[]), gather).unwrap();
    let expected = BTreeMap::from([("a".to_owned(), a.clone()), ("b".to_owned(), b.clone())]);
    assert_eq!(arrays::read(&path).unwrap(), expected);
    std::fs::remove_dir_all(folder).unwrap();
}
