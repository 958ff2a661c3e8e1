//! Threads and memory that are not there, wherever they are asked for: one message, and nothing hangs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// What each thread takes of the address space (bytes), so that a limit of it decides how many there are: for
/// every user, which limits of processes do not.
const STACK: u64 = 2 << 30;

/// Runs the program where so many threads can be started.
fn with_threads(count: u64, arguments: &[&str]) -> Output {
    // A stack is one of the first things that there is no room for.
    let kilobytes = (STACK * count + STACK / 2) >> 10;
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v $0 && exec timeout -s KILL 60 \"$@\"", &kilobytes.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_shardloom")).args(crate::forced(arguments)).args(["-q"]);
    command.env("RUST_MIN_STACK", STACK.to_string()).env("RAYON_NUM_THREADS", "1").output().unwrap()
}

/// Fewer threads than are needed are refused for want of threads, up to a number with which all is well.
#[track_caller]
fn check(arguments: &[&str]) {
    let all = |count: u64| {
        let done = with_threads(count, arguments);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let code = done.status.code();
        if code == Some(0) {
            return true;
        }
        assert!(matches!(code, Some(2 | 4)), "{count} threads: {:?}\n{said}", done.status);
        let errors: Vec<&str> = said.lines().filter(|line| line.contains("error: ")).collect();
        let is_want =
            |it: &&str| it.contains(" thread") && (it.contains(" started") || it.contains(" start a "));
        let is_said = errors.iter().any(is_want);
        assert!(is_said && !said.contains("panicked"), "{count} threads: {:?}\n{said}", done.status);
        false
    };
    assert!(!all(0), "a program with threads has none");
    assert!((1..=20).any(all), "a program with 20 threads lacks one");
}

#[test]
fn want_of_threads_is_said_wherever_they_are_started() {
    let folder = std::env::temp_dir().join(format!("shardloom-threads-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let case = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name).to_str().unwrap().to_owned()
    };
    let model = case("models/gpt2-bytes.onnx");
    let planned = |name: &str, more: &[&str]| {
        let plan = path(name);
        let common = ["plan", &model, "--machine", "cpu-2x", "--mesh", "2", "--dim", "batch=4"];
        check(&[&common[..], &["--dim", "sequence=8", "-o", &plan], more].concat());
        plan
    };
    let answers = planned("run.json", &[]);
    check(&["run", &answers, "-o", &path("o.npz")]);
    let learns = planned("train.json", &["--mode", "train", "--loss", "cross-entropy:logits,labels"]);
    let (data, weights) = (case("texts/constitution.txt"), path("w.safetensors"));
    let of_data = ["train", &learns, "--data", &data, "--tokens", "u8", "--steps", "1", "--lr", "1e-3"];
    let training = [&of_data[..], &["--weights", &weights]].concat();
    check(&training);
    check(&[&["launch", "-n", "2"], &training[..]].concat());
    let (decoder, tokens) = (case("models/llama-past-dynamo2.9-op18-dyn/model.onnx"), path("generate.json"));
    let common =
        ["plan", &decoder, "--machine", "cpu-2x", "--mesh", "2", "-o", &tokens, "--mode", "generate"];
    check(&[&common[..], &["--context", "8", "--prompt", "4"]].concat());
    check(&["generate", &tokens, "--prompt-ids", "1,2", "--max-new-tokens", "2"]);
    fs::remove_dir_all(folder).unwrap();
}

/// Whatever asks for memory that is not there, as much as there may be: from little more than the program takes
/// itself.
#[test]
fn want_of_memory_is_said_wherever_it_is_asked_for() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/gpt2-bytes.onnx");
    let plan = std::env::temp_dir().join(format!("shardloom-memory-{}.json", std::process::id()));
    let (model, output) = (model.to_str().unwrap(), plan.to_str().unwrap());
    let common = ["-q", "plan", model, "--machine", "h100-80g-4x", "--mesh", "2x2", "--dim", "batch=8"];
    let training = ["--dim", "sequence=64", "--mode", "train", "--loss", "cross-entropy:logits,labels"];
    let is_refused = |megabytes: u32| {
        let mut command = Command::new("sh");
        let limits = format!("ulimit -v {megabytes}000; ulimit -c 0; exec \"$0\" \"$@\"");
        command.args(["-c", &limits, env!("CARGO_BIN_EXE_shardloom")]).args(common).args(training);
        let done = command.args(["-o", output]).env("RUST_BACKTRACE", "0").output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!((done.status.code(), errors.len()), (Some(2), 1), "{megabytes} MB: {said}");
        assert!(!plan.exists(), "{megabytes} MB");
        errors[0].starts_with("error: there is not enough memory for this: allow more")
    };
    let refused = [80, 100, 130, 160, 200].map(is_refused);
    assert!(refused.iter().filter(|it| **it).count() >= 2, "{refused:?}");
}

/// The programs of so many ranks are too many to be made at once: a check says so, and of what else it knows.
#[test]
fn more_instructions_than_are_made_at_once_are_said() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/gpt2-bytes.onnx");
    let plan = std::env::temp_dir().join(format!("shardloom-many-{}.json", std::process::id()));
    let (model, output) = (model.to_str().unwrap(), plan.to_str().unwrap());
    let done = |arguments: &[&str]| {
        let done =
            Command::new(env!("CARGO_BIN_EXE_shardloom")).args(crate::forced(arguments)).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let sizes = ["--mesh", "65536", "--dim", "batch=65536", "--dim", "sequence=8", "-o", output];
    done(&[&["-q", "plan", model, "--machine", "h100-80g-65536x"], &sizes[..]].concat());
    let said = done(&["check", output, "--model", model]);
    for part in [
        "--  not known: whether its programs do what it says, for 65536 programs of ",
        "expected 4194304 instructions of all of them at most",
        "ok  they hold what the plan says, byte for byte",
        "ok  the model is the one that was planned",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    fs::remove_file(plan).unwrap();
}
