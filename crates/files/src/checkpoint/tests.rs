//! Tests of checkpoints.

use std::collections::BTreeMap;
use std::fs;

use kernels::Array;
use planner_ir::{State, StateKind, Type};

use super::*;

/// An empty folder of its own.
fn empty(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("shardloom-checkpoint-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// Two parameters with their moments, different ones after each step.
fn states(step: u64) -> BTreeMap<State, Array> {
    let mut states = BTreeMap::new();
    for (number, kind) in [(0.0, StateKind::Parameter), (1.0, StateKind::FirstMoment)] {
        for (name, length) in [("a/b", 3.0), ("ü", 2.0)] {
            let state = State { kind, name: name.to_owned() };
            let number = f32::from(u16::try_from(step).unwrap()) * 10.0 + number;
            states.insert(state, Array::of::<f32>([3, 1], &[number, length, -0.0]).unwrap());
        }
    }
    states
}

fn types() -> BTreeMap<State, Type> {
    states(0).into_iter().map(|(state, array)| (state, array.type_().clone())).collect()
}

fn manifest(step: u64) -> Manifest {
    Manifest {
        step,
        seed: 7,
        epoch: 1,
        used: 4 * step,
        examples: 100,
        model_sha256: "00".to_owned(),
        skipped: 0,
        settings: [("optimizer".to_owned(), "adamw".to_owned())].into(),
        files: vec![],
    }
}

fn write(folder: &Path, step: u64, keep: Option<u64>) {
    let writer = Writer { folder: folder.to_owned(), keep, states: types().into_iter().collect() };
    let all = states(step);
    writer.write(manifest(step), &mut |state| Ok(all[state].clone())).unwrap();
}

fn read(checkpoint: &Checkpoint) -> BTreeMap<State, Array> {
    let mut found = BTreeMap::new();
    let mut visit = |state: State, from: &dyn run::Stored| {
        let array = run::whole(from, &state.name).unwrap();
        found.insert(state, array);
        Ok(())
    };
    checkpoint.each(&mut visit).unwrap();
    found
}

fn flip(path: &Path, place: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[place] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_is_written_is_read_back_and_the_newest_is_taken() {
    let folder = empty("round");
    for step in [3, 12] {
        write(&folder, step, None);
        let checkpoint = open(&folder).unwrap();
        assert_eq!(read(&checkpoint), states(step));
        checkpoint.expect(&types()).unwrap();
        let files = checkpoint.manifest.files.clone();
        assert_eq!(checkpoint.manifest, Manifest { files, ..manifest(step) });
    }
    assert_eq!(read(&open(&folder.join("step-000003")).unwrap()), states(3));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_oldest_are_removed_and_what_was_half_written_too() {
    let folder = empty("keep");
    for step in [5, 10, 15, 20] {
        write(&folder, step, Some(2));
        fs::create_dir(folder.join(".step-000099.new")).unwrap();
    }
    assert_eq!(steps(&folder).unwrap(), [15, 20]);
    write(&folder, 20, Some(1));
    let mut names = names(&folder).unwrap();
    names.sort();
    assert_eq!(names, ["latest", "step-000020"]);
    assert_eq!(read(&open(&folder).unwrap()), states(20));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn any_flipped_byte_is_found_and_an_older_checkpoint_is_named() {
    let folder = empty("flip");
    for step in [1, 2, 3] {
        write(&folder, step, None);
    }
    flip(&folder.join("step-000002/parameter.safetensors"), 100);
    let newest = folder.join("step-000003");
    for name in ["manifest.json", "parameter.safetensors", "first_moment.safetensors"] {
        let path = newest.join(name);
        let length = fs::read(&path).unwrap().len();
        for place in (0..length).step_by(7) {
            flip(&path, place);
            // Between two tokens of JSON one white space is as good as another.
            if let Ok(checkpoint) = open(&folder) {
                assert_eq!((name, read(&checkpoint)), ("manifest.json", states(3)), "byte {place}");
                assert_eq!(checkpoint.manifest.step, 3);
            } else {
                let error = open(&folder).unwrap_err().to_string();
                assert!(error.starts_with(&format!("{}: ", path.display())), "{error}");
                let older = folder.join("step-000001");
                assert!(error.ends_with(&format!("`--resume {}`", older.display())), "{error}");
            }
            flip(&path, place);
        }
    }
    open(&folder).unwrap();
    flip(&folder.join("latest"), 5);
    let error = open(&folder).unwrap_err().to_string();
    assert!(error.contains("latest") || error.contains("cannot be read"), "{error}");
    assert!(error.contains("step-000003") || error.contains("step-000001"), "{error}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn files_that_are_cut_or_gone_are_found() {
    let folder = empty("cut");
    write(&folder, 1, None);
    fs::remove_file(folder.join("latest")).unwrap();
    assert_eq!(read(&open(&folder).unwrap()), states(1));
    let path = folder.join("step-000001/parameter.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = open(&folder).unwrap_err().to_string();
    assert!(error.contains("parameter.safetensors: is damaged") && error.contains("no older one"), "{error}");
    fs::remove_file(&path).unwrap();
    assert!(open(&folder).unwrap_err().to_string().contains("cannot be read"));
    fs::remove_dir_all(&folder).unwrap();
    assert!(open(&folder).unwrap_err().to_string().contains("has no checkpoints"));
}

#[test]
fn other_states_are_refused() {
    let folder = empty("states");
    write(&folder, 1, None);
    let checkpoint = open(&folder).unwrap();
    let state = |kind, name: &str| State { kind, name: name.to_owned() };
    let mut more = types();
    more.insert(state(StateKind::SecondMoment, "ü"), Type::new(planner_ir::DType::F32, [3, 1]));
    let mut fewer = types();
    fewer.remove(&state(StateKind::Parameter, "a/b"));
    let mut wider = types();
    wider.insert(state(StateKind::Parameter, "ü"), Type::new(planner_ir::DType::F32, [4, 1]));
    for (expected, message) in [
        (more, "the second_moment of `ü` is not there, and the plan has it"),
        (fewer, "has the parameter of `a/b`, which the plan has not"),
        (wider, "the parameter of `ü` is f32[3,1], the plan has f32[4,1]"),
    ] {
        let error = checkpoint.expect(&expected).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    fs::remove_dir_all(folder).unwrap();
}
