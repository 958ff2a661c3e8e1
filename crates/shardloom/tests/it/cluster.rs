//! Ranks that are processes: what they compute, how they end, and what is refused.

mod same; // the same bits on threads, over TCP and through MPI
mod refused; // what does not fit together
mod gpus; // a GPU for each, which is not there
#[path = "../../../lower/src/tests/sketch.rs"]
#[expect(dead_code, reason = "training steps are made by hand in tests of other packages")]
mod sketch; // plans made by hand
mod exchanges; // every kind of exchange between such GPUs
mod failing; // ranks that are killed, stopped, or have no room
#[cfg(feature = "mpi")]
mod mpi; // the same under `mpirun`

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// A folder of one test, which goes away with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardloom-cluster-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A plan to train a small GPT-2, with what is said of it.
    fn planned(&self, name: &str, more: &[&str]) -> (String, String) {
        let (plan, model) = (self.path(name), corpus("models/gpt2-bytes.onnx"));
        let sizes = ["--dim", "batch=8", "--dim", "sequence=64", "--microbatches", "2", "--clip", "1"];
        let loss = ["--mode", "train", "--loss", "cross-entropy:logits,labels"];
        let common = ["plan", &model, "-o", &plan];
        let done = shardloom(&[&common[..], &sizes, &loss, more].concat()).output().unwrap();
        assert!(done.status.success(), "{}", words(&done));
        (plan, String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// A plan to make tokens of two sequences of this many at most, on two ranks.
    fn decoding(&self, context: &str) -> String {
        let (plan, model) =
            (self.path("plan.json"), corpus("models/llama-past-dynamo2.9-op18-dyn/model.onnx"));
        let common =
            ["plan", &model, "--machine", "cpu-2x", "--mesh", "2", "-o", &plan, "--mode", "generate"];
        let sizes = ["--batch", "2", "--context", context, "--prompt", "4", "--cache-layout", "[-,a,-,-]"];
        let done = shardloom(&[&common[..], &sizes].concat()).output().unwrap();
        assert!(done.status.success(), "{}", words(&done));
        plan
    }

    /// The arguments to train so many steps, with a checkpoint after every second one.
    fn training(&self, plan: &str, name: &str, steps: &str) -> Vec<String> {
        let (data, weights) = (corpus("texts/constitution.txt"), self.path(&format!("{name}.safetensors")));
        let (log, checkpoints) = (self.path(&format!("{name}.jsonl")), self.path(name));
        let common = ["train", plan, "--data", &data, "--tokens", "u8", "--steps", steps, "--lr", "0.001"];
        let outputs = ["--weights", &weights, "--log", &log, "--checkpoint", &checkpoints, "--every", "2"];
        [&common[..], &outputs].concat().into_iter().map(str::to_owned).collect()
    }

    /// The losses and norms of a log, with all their digits.
    fn losses(&self, name: &str) -> Vec<(f64, f64)> {
        let text = fs::read_to_string(self.path(&format!("{name}.jsonl"))).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|it| (it["loss"].as_f64().unwrap(), it["gradient_norm"].as_f64().unwrap())).collect()
    }

    /// The bytes of a file.
    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The newest checkpoint of a run, which is whole.
    fn newest(&self, name: &str) -> String {
        let latest = fs::read_to_string(self.path(&format!("{name}/latest"))).unwrap();
        let newest = format!("{name}/{}", latest.trim());
        assert!(Path::new(&self.path(&format!("{newest}/manifest.json"))).is_file());
        newest
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn corpus(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name).to_str().unwrap().to_owned()
}

fn shardloom(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardloom"));
    command.args(crate::forced(arguments));
    command
}

/// A plan to train on four ranks that need each other: on a mesh of two axes, or of two stages.
fn plan(stages: bool) -> &'static str {
    static PLANS: [OnceLock<(Folder, String)>; 2] = [const { OnceLock::new() }; 2];
    let (_, path) = PLANS[usize::from(stages)].get_or_init(|| {
        let folder = Folder::new(if stages { "stages" } else { "mesh" });
        let more: &[&str] = if stages {
            &["--machine", "cpu-4x", "--stages", "2", "--mesh", "2", "--schedule", "eager-1f1b"]
        } else {
            &["--machine", "cpu-4x", "--mesh", "data=2,model=2"]
        };
        let (plan, strategy) = folder.planned("plan.json", more);
        // Ranks that each do everything would not need each other.
        assert!(strategy.contains("tensor parallel over"), "{strategy}");
        (folder, plan)
    });
    path
}

fn words(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// The one line that says why all have ended.
fn complaint(done: &Output) -> String {
    let all = words(done);
    let lines: Vec<&str> = all.lines().filter(|line| line.contains("error: ")).collect();
    assert_eq!(lines.len(), 1, "{all}");
    lines[0].to_owned()
}

/// So many ranks on this host.
fn launch(number: u32, options: &[&str], arguments: &[String]) -> Command {
    let number = number.to_string();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = shardloom(&[&["launch", "-n", &number][..], options].concat());
    command.args(crate::forced(&words));
    command
}

/// One rank, by what `torchrun` says.
fn rank(rank: u32, size: u32, port: u16, token: &str, arguments: &[String]) -> Command {
    let mut command = shardloom(&[]);
    command.args(arguments).env("SHARDLOOM_TOKEN", token);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The processes that one has started.
fn children(of: u32) -> Vec<String> {
    let parent = format!("PPid:\t{of}");
    let all = fs::read_dir("/proc").unwrap();
    let names = all.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let is_child = |id: &String| {
        // Other processes come and go.
        fs::read_to_string(format!("/proc/{id}/status"))
            .unwrap_or_default()
            .lines()
            .any(|line| line == parent)
    };
    names.filter(is_child).collect()
}

/// The process of a rank, by what its launcher has said to it.
fn process(launcher: &Child, variable: &str) -> String {
    let says_so = |id: &String| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|&it| it == 0).any(|it| it == variable.as_bytes())
    };
    let found = children(launcher.id()).into_iter().find(says_so);
    found.unwrap_or_else(|| panic!("no process of {} has {variable}", launcher.id()))
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}

/// Starts a training and does something to it after a step: how it ends.
fn hit(launcher: Command, step: u32, blow: &dyn Fn(&Child)) -> Output {
    hit_after(launcher, &|line| line.starts_with(&format!("step {step} ")), blow)
}

/// Starts something and does something to it after a line that it prints: how it ends.
fn hit_after(mut launcher: Command, is_it: &dyn Fn(&str) -> bool, blow: &dyn Fn(&Child)) -> Output {
    let mut launcher = launcher.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    if lines.any(|it| is_it(&it.unwrap())) {
        blow(&launcher);
    }
    // The pipe has to be read, or the first rank waits for it.
    lines.for_each(drop);
    launcher.wait_with_output().unwrap()
}

/// A decoder for two sequences on two ranks, whose cache is split between them.
fn decoder() -> &'static str {
    static PLAN: OnceLock<(Folder, String)> = OnceLock::new();
    let (_, path) = PLAN.get_or_init(|| {
        let folder = Folder::new("generate");
        let plan = folder.decoding("16");
        (folder, plan)
    });
    path
}

/// The arguments to make tokens: fifteen lines of them.
fn generating(first: &str, manner: &[&str]) -> Vec<String> {
    let prompts = ["generate", decoder(), "--prompt-ids", first, "--prompt-ids", "6,7"];
    [&prompts[..], manner].concat().into_iter().map(str::to_owned).collect()
}

const DRAWN: [&str; 4] = ["--temperature", "1", "--seed", "3"];

#[test]
fn processes_generate_as_threads_do() {
    let arguments = generating("1,2,3,4,5", &DRAWN);
    let threads = shardloom(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
    assert!(threads.status.success(), "{}", words(&threads));
    let processes = launch(2, &[], &arguments).output().unwrap();
    assert!(processes.status.success(), "{}", words(&processes));
    assert_eq!(String::from_utf8_lossy(&threads.stdout).lines().count(), 15);
    assert_eq!(processes.stdout, threads.stdout);
    // On GPUs, both plans of which exchange by the same communicators.
    let gpus = gpus::launched(2, &arguments).output().unwrap();
    assert!(gpus.status.success(), "{}", words(&gpus));
    assert_eq!(String::from_utf8_lossy(&gpus.stdout), String::from_utf8_lossy(&threads.stdout));
}

/// Ranks that are to make tokens of other prompts, or in another manner.
#[test]
fn ranks_that_generate_something_else_are_refused() {
    let one = generating("1,2,3,4,5", &DRAWN);
    let others = [
        (generating("1,2,3,4,4", &DRAWN), "the prompts"),
        (generating("1,2,3,4,5", &["--temperature", "1", "--seed", "4"]), "how tokens are chosen"),
    ];
    for (other, what) in others {
        let port = free_port();
        let start = |(number, arguments): (u32, &Vec<String>)| {
            rank(number, 2, port, "a token of this test alone", arguments).spawn().unwrap()
        };
        let all = [(0, &one), (1, &other)].map(start).map(|it| it.wait_with_output().unwrap());
        for done in &all {
            assert_eq!(done.status.code(), Some(2), "{}", words(done));
            assert!(done.stdout.is_empty());
        }
        let said = complaint(&all[0]);
        assert!(said.starts_with(&format!("error: ranks 0 and 1 differ in {what}: ")), "{said}");
    }
}
