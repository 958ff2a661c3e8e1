//! Files that are none, are damaged, or lead elsewhere: one message and the right exit code, at once.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// A folder of one test, which goes away with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardloom-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A pipe of that name, to which nobody writes.
    fn pipe(&self, name: &str) -> String {
        let path = self.path(name);
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    /// A copy of a file of the repository.
    fn copy(&self, from: &str, name: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::copy(case(from), &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn case(name: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    tests.join(name).to_str().unwrap().to_owned()
}

/// A program that is ended where it waits for what never comes.
fn limited(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_shardloom")]).args(crate::forced(arguments));
    command
}

fn words(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[track_caller]
fn works(arguments: &[&str]) -> String {
    let done = limited(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", words(&done));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// The message of a command that fails with exit code 2.
#[track_caller]
fn fails(arguments: &[&str]) -> String {
    let done = limited(arguments).output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{arguments:?}: {}", words(&done));
    assert_eq!(words(&done).trim_end().lines().count(), 1, "{}", words(&done));
    words(&done)
}

const EXAMPLE: &str = "models/gpt2-eager-legacy2.9-op17-static/model.onnx";

/// A plan to train a small model on two ranks.
fn plan() -> &'static str {
    static PLAN: OnceLock<(Folder, String)> = OnceLock::new();
    let (_, path) = PLAN.get_or_init(|| {
        let folder = Folder::new("plan");
        let (model, plan) = (case("models/gpt2-loss.onnx"), folder.path("plan.json"));
        let sizes = ["--machine", "cpu-2x", "--mesh", "2", "--dim", "batch=4", "--dim", "seq=16"];
        works(&[&["plan", &model, "--mode", "train", "--loss", "loss", "-o", &plan][..], &sizes].concat());
        (folder, plan)
    });
    path
}

/// Trains up to a step, with a checkpoint after each second one.
fn training<'a>(steps: &'a str, weights: &'a str, checkpoints: &'a str, data: &'a str) -> Vec<&'a str> {
    let common = ["train", plan(), "--data", data, "--tokens", "u8", "--lr", "0.01", "--steps", steps];
    let outputs = ["--weights", weights, "--checkpoint", checkpoints, "--every", "2"];
    [&common[..], &outputs].concat()
}

#[test]
fn a_pipe_in_place_of_any_file_is_refused_at_once() {
    let folder = Folder::new("pipes");
    let model = case(EXAMPLE);
    let [onnx, json, npz, tensors, text] =
        ["m.onnx", "p.json", "a.npz", "a.safetensors", "text"].map(|name| folder.pipe(name));
    folder.copy("cases/faults/external/model.onnx", "model.onnx");
    folder.pipe("data");
    let (external, out) = (folder.path("model.onnx"), folder.path("o.npz"));
    let train = ["--tokens", "u8", "--steps", "1", "--lr", "1", "--weights", &folder.path("w.safetensors")];
    for arguments in [
        &["import", &onnx][..],
        &["import", &external],
        &["run", &external, "--ranks", "2", "-o", &out],
        &["plan", &model, "--machine", &json, "-o", &folder.path("q.json")],
        &["explain", &json],
        &["check", &json],
        &["run", &json, "-o", &out],
        &["run", &model, "--ranks", "2", "--inputs", &npz, "-o", &out],
        &["run", &model, "--ranks", "2", "--inputs", &tensors, "-o", &out],
        &["schedule", "--file", &text],
        &["predict", "--config", &text],
        &[&["train", plan(), "--data", &text][..], &train].concat(),
        &[&["train", plan(), "--data", &npz][..], &train[2..]].concat(),
        &[&["train", &json, "--data", &text][..], &train].concat(),
    ] {
        let message = fails(arguments);
        assert!(message.contains("it is a pipe, a device or a socket, expected a file"), "{message}");
    }
}

#[test]
fn weights_are_below_the_folder_of_the_model() {
    let folder = Folder::new("links");
    let [secret, out] = ["secret", "o.npz"].map(|name| folder.path(name));
    fs::write(&secret, [1; 16]).unwrap();
    let model = folder.copy("cases/faults/external/model.onnx", "model/model.onnx");
    let run = ["run", &model, "--ranks", "1", "-o", &out];
    let data = folder.path("model/data");
    for target in [&secret, "../secret"] {
        symlink(target, &data).unwrap();
        let message = fails(&run);
        assert!(
            message.contains("weights in `data`, which is a link to ") && message.contains("secret"),
            "{message}"
        );
        fs::remove_file(&data).unwrap();
    }
    assert!(!Path::new(&out).exists());
    // A link to a file below is as good as the file.
    fs::create_dir(folder.path("model/below")).unwrap();
    fs::write(folder.path("model/below/w"), [0; 16]).unwrap();
    symlink("below/w", &data).unwrap();
    works(&run);
    // Caches of model hubs: both are links to where all files are.
    let (names, blobs) = (folder.path("cache/names/one"), folder.path("cache/blobs"));
    fs::create_dir_all(&names).unwrap();
    fs::create_dir_all(&blobs).unwrap();
    fs::copy(&model, format!("{blobs}/1")).unwrap();
    fs::write(format!("{blobs}/2"), [0; 16]).unwrap();
    symlink("../../blobs/1", format!("{names}/model.onnx")).unwrap();
    symlink("../../blobs/2", format!("{names}/data")).unwrap();
    works(&["run", &format!("{names}/model.onnx"), "--ranks", "1", "-o", &out]);
}

#[test]
fn names_of_outputs_lead_out_of_no_folder() {
    let folder = Folder::new("names");
    let (model, out) = (case("cases/faults/entry-names/model.onnx"), folder.path("o.npz"));
    let name = "../../../../tmp/w/rel/PWNED";
    let said = works(&["run", &model, "--ranks", "2", "-o", &out]);
    assert!(
        said.contains(&format!("{name} f32[2,4], as `%2E%2E/%2E%2E/%2E%2E/%2E%2E/tmp/w/rel/PWNED`")),
        "{said}"
    );
    let bytes = fs::read(&out).unwrap();
    assert!(!bytes.windows(3).any(|it| it == b"../"));
    assert!(files::arrays::read(Path::new(&out)).unwrap().contains_key(name));
}

#[test]
fn a_wrong_checksum_is_found_and_what_is_not_asked_for_is_not_read() {
    let folder = Folder::new("checksums");
    let (model, out) = (case(EXAMPLE), folder.path("o.npz"));
    let run =
        |inputs: &str| limited(&["run", &model, "--ranks", "1", "--inputs", inputs, "-o", &out]).output();
    let [good, bad] = ["good", "bad"].map(|name| case(&format!("cases/faults/checksums/{name}.npz")));
    assert!(run(&good).unwrap().status.success());
    fs::remove_file(&out).unwrap();
    let done = run(&bad).unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(words(&done).contains("bad.npz: array `input_ids`: is damaged: "), "{}", words(&done));
    assert!(!Path::new(&out).exists());
    // Names and types are looked at first: of the same file for a model without such an input nothing is unpacked.
    let other = case("cases/faults/entry-names/model.onnx");
    let message = fails(&["run", &other, "--ranks", "1", "--inputs", &bad, "-o", &out]);
    assert!(message.contains("is not an input"), "{message}");
}

#[test]
fn what_goes_on_takes_the_newest_checkpoint_that_is_whole_and_says_so() {
    let folder = Folder::new("whole");
    let [text, weights, whole] = ["text", "w.safetensors", "whole"].map(|name| folder.path(name));
    fs::write(&text, (0..2000_u32).map(|it| u8::try_from(it * it / 7 % 211).unwrap()).collect::<Vec<_>>())
        .unwrap();
    works(&training("6", &weights, &whole, &text));
    let expected = fs::read(&weights).unwrap();
    type Damage = fn(&Folder, &str);
    let damages: [(&str, Damage, &str); 6] = [
        ("empty", |_, folder| fs::write(format!("{folder}/latest"), "").unwrap(), "step-000006"),
        ("pipe", |it, folder| drop(it.pipe(&format!("{folder}/latest"))), "step-000006"),
        ("gone", |_, folder| fs::remove_dir_all(format!("{folder}/step-000006")).unwrap(), "step-000004"),
        (
            "cut",
            |_, folder| fs::write(format!("{folder}/step-000006/manifest.json"), "{").unwrap(),
            "step-000004",
        ),
        (
            "manifest",
            |it, folder| drop(it.pipe(&format!("{folder}/step-000006/manifest.json"))),
            "step-000004",
        ),
        (
            "states",
            |it, folder| drop(it.pipe(&format!("{folder}/step-000006/parameter.safetensors"))),
            "step-000004",
        ),
    ];
    for (name, damage, from) in damages {
        let place = folder.path(name);
        assert!(Command::new("cp").args(["-r", &whole, &place]).status().unwrap().success());
        damage(&folder, &place);
        let arguments = training("8", &weights, &place, &text);
        // One that is asked for by name is not taken for another.
        let message = fails(&[&arguments[..], &["--resume", &place]].concat());
        assert!(message.contains(&format!("`--resume {place}/{from}`")), "{message}");
        let said = works(&[&training("6", &weights, &place, &text)[..], &["--continue"]].concat());
        assert!(said.contains(&format!("the newest that is whole is {place}/{from}, it goes on")), "{said}");
        assert!(fs::read(&weights).unwrap() == expected, "{name}");
        assert_eq!(fs::read_to_string(format!("{place}/latest")).unwrap(), "step-000006\n");
    }
    // Where none is whole it does not start anew over what may still be saved.
    fs::remove_dir_all(folder.path("cut")).unwrap();
    assert!(Command::new("cp").args(["-r", &whole, &folder.path("cut")]).status().unwrap().success());
    for step in [2, 4, 6] {
        fs::write(folder.path(&format!("cut/step-00000{step}/manifest.json")), "").unwrap();
    }
    let place = folder.path("cut");
    let message = fails(&[&training("6", &weights, &place, &text)[..], &["--continue"]].concat());
    assert!(message.contains("there is no older one that is whole"), "{message}");
}

#[test]
fn a_second_job_in_a_folder_of_checkpoints_is_refused_as_long_as_the_first_lives() {
    let folder = Folder::new("jobs");
    let [text, weights, place] = ["text", "w.safetensors", "both"].map(|name| folder.path(name));
    fs::write(&text, [7; 2000]).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_shardloom"));
    program.args(training("1000000", &weights, &place, &text)).args(["--keep", "1"]).stdout(Stdio::piped());
    let mut first = program.spawn().unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("step 1 ")));
    for more in [&[][..], &["--continue"]] {
        let message = fails(&[&training("2", &weights, &place, &text)[..], more].concat());
        assert!(message.contains("another job writes checkpoints into this folder"), "{message}");
    }
    first.kill().unwrap();
    first.wait().unwrap();
    // However a job ends, it keeps nobody from going on.
    works(
        &[&training("1000000", &weights, &place, &text)[..], &["--continue", "--stop-after", "lower"]]
            .concat(),
    );
}

/// What takes long is not begun for an output that cannot be written.
#[test]
fn outputs_that_cannot_be_written_are_refused_first() {
    let folder = Folder::new("outputs");
    let model = case("models/gpt2-bytes.onnx");
    let sizes = ["--machine", "cpu-2x", "--mesh", "2", "--dim", "batch=2", "--dim", "sequence=8"];
    let [json, csv, trace, tensors, arrays] =
        ["a.json", "a.csv", "b.json", "a.safetensors", "a.npz"].map(|name| folder.path(name));
    for place in [&json, &csv, &trace, &tensors, &arrays] {
        fs::create_dir(place).unwrap();
    }
    let train = ["train", plan(), "--data", &model, "--tokens", "u8", "--steps", "1000000", "--lr", "0.01"];
    let loss = ["--machine", "cpu-2x", "--mode", "train", "--loss", "cross-entropy:logits,labels"];
    for arguments in [
        &[&["plan", &model, "-o", &json][..], &sizes].concat()[..],
        &["calibrate", "-o", &json],
        &["run", &model, "--ranks", "2", "--dim", "batch=2", "--dim", "sequence=8", "-o", &arrays],
        &[&["sweep", &model, "--over", "batch=2,4", "--csv", &csv][..], &loss].concat(),
        &["simulate", plan(), "--trace", &trace],
        &[&train[..], &["--weights", &tensors]].concat(),
        &["validate", "--plans", "--data", &case("cases/validation"), "--report", &csv],
    ] {
        let message = fails(arguments);
        assert!(message.contains("cannot be written: is a directory"), "{message}");
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 5);
    // Nor is a lock that is a link followed out of the folder.
    let (place, target) = (folder.path("checkpoints"), folder.path("elsewhere"));
    fs::create_dir(&place).unwrap();
    symlink(&target, format!("{place}/.lock")).unwrap();
    let weights = folder.path("w.safetensors");
    let message = fails(&[&train[..], &["--weights", &weights, "--checkpoint", &place]].concat());
    assert!(message.contains(".lock: cannot be held: it is no file"), "{message}");
    assert!(!Path::new(&target).exists());
}

#[test]
fn a_file_that_may_not_grow_has_its_exit_code() {
    let folder = Folder::new("size");
    let [weights, text, place] = ["w.safetensors", "text", "kept"].map(|name| folder.path(name));
    fs::write(&text, [7; 2000]).unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 8; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_shardloom")]);
    let done = limited.args(training("2", &weights, &place, &text)).output().unwrap();
    assert_eq!(done.status.code(), Some(7), "{}", words(&done));
    assert!(words(&done).contains("cannot be written: File too large"), "{}", words(&done));
    assert!(!Path::new(&format!("{place}/latest")).exists());
}
