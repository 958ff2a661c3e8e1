//! The command line: what users do, and what they do wrong.

mod blind; // rows that see no key, on rings of ranks
mod clusters; // plans of whole clusters
mod cuda; // kernels for GPUs
mod good; // what works
mod kept; // files that are there
mod manual; // completions, manual pages, names that are nearly right
mod page; // pages for a browser
mod parameters; // what is trained, and what is not
mod pins; // operations whose partition is fixed
mod pipelines; // training in stages
mod memory; // what devices hold, and what plans leave free
mod operators; // loops, narrow numbers, features at places
mod predict; // prices of stated setups, beside measurements
mod score; // configurations of frameworks
mod prices; // plans and the prices they were made by
mod schedule; // schedules of pipelines, drawn
mod simulate; // plans by the clock
mod sizes; // sizes and values that a plan is for
mod throughput; // plans in the field's numbers
mod wrong; // one clear message and the right exit code

use std::fs;
use std::path::{Path, PathBuf};

/// A folder of one test, which goes away with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardloom-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a command left: exit code, standard output, standard error.
pub(crate) struct Left {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The arguments of a command, with which it writes over files that are there, if it writes some: and runs
/// models by prices that are the same on all hosts.
pub(crate) fn forced(arguments: &[&str]) -> Vec<String> {
    let writes = |it: &&str| shardloom::arguments::options(it).iter().any(|option| option == "force");
    let mut all: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
    if let Some(place) = arguments.iter().position(writes).filter(|_| !arguments.contains(&"--force")) {
        all.insert(place + 1, "--force".to_owned());
    }
    let runs_a_model = arguments.contains(&"run") && arguments.iter().any(|it| it.ends_with(".onnx"));
    if runs_a_model && !arguments.contains(&"--machine") && !arguments.contains(&"--model") {
        all.extend(["--machine", "cpu-1x"].map(str::to_owned));
    }
    all
}

/// What is left by a command that may write over files.
pub(crate) fn shardloom(arguments: &[&str]) -> Left {
    let arguments = forced(arguments);
    as_it_is(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What is left by a command with these arguments alone.
pub(crate) fn as_it_is(arguments: &[&str]) -> Left {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["shardloom"].into_iter().chain(arguments.iter().copied());
    let code = shardloom::main_with(all, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Left { code, out: text(out), err: text(err) }
}

/// What is printed by a command that has to work.
pub(crate) fn works(arguments: &[&str]) -> String {
    let left = shardloom(arguments);
    assert_eq!((left.code, left.err.as_str()), (0, ""), "{arguments:?}");
    left.out
}

/// The one message of a command that has to fail with this exit code.
pub(crate) fn fails(code: u8, arguments: &[&str]) -> String {
    let left = shardloom(arguments);
    assert_eq!((left.code, left.out.as_str()), (code, ""), "{arguments:?}: {}", left.err);
    assert!(!left.err.contains("panicked"), "{}", left.err);
    left.err
}

/// Checks that a message is of one line that has these parts.
#[track_caller]
pub(crate) fn says(message: &str, parts: &[&str]) {
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "no `{part}` in: {message}");
    }
}

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/gpt2-eager-legacy2.9-op17-static");
    folder.join(name).to_str().unwrap().to_owned()
}

/// A plan of the example for four ranks, in this folder.
fn planned(folder: &Folder, name: &str, more: &[&str]) -> String {
    let (model, plan) = (example("model.onnx"), folder.path(name));
    let mut arguments = vec!["plan", &model, "--machine", "cpu-4x", "-o", &plan];
    arguments.extend(more);
    works(&arguments);
    plan
}
