//! Ranks that are processes, started by `mpirun`: what they compute, and how they end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A folder of one test, which goes away with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardloom-mpi-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A plan to train on four ranks.
    fn plan(&self, name: &str, more: &[&str]) -> String {
        let (plan, model) = (self.path(name), corpus("models/gpt2-bytes.onnx"));
        let sizes = ["--dim", "batch=8", "--dim", "sequence=64", "--microbatches", "2", "--clip", "1"];
        let loss = ["--mode", "train", "--loss", "cross-entropy:logits,labels", "--machine", "cpu-4x"];
        let common = ["plan", &model, "-o", &plan];
        let done = shardloom(&[&common[..], &sizes, &loss, more].concat()).output().unwrap();
        assert!(done.status.success(), "{}", words(&done));
        // Ranks that each do everything would not need each other.
        let strategy = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(strategy.contains("tensor parallel over"), "{strategy}");
        plan
    }

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
    command.args(arguments);
    command
}

/// So many processes.
fn mpirun(number: u32, arguments: &[String]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-n", &number.to_string(), env!("CARGO_BIN_EXE_shardloom")]).args(arguments);
    let allowed = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    // More processes than processors.
    command.envs(allowed.map(|name| (name, "1"))).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
}

fn words(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn processes_train_as_threads_do() {
    let folder = Folder::new("same");
    let plans = [
        folder.plan("plan.json", &["--mesh", "data=2,model=2"]),
        folder.plan("pipeline.json", &["--stages", "2", "--mesh", "2", "--schedule", "eager-1f1b"]),
    ];
    for plan in &plans {
        let arguments = folder.training(plan, "threads", "3");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let done = shardloom(&arguments).output().unwrap();
        assert!(done.status.success(), "{}", words(&done));
        let done = mpirun(4, &folder.training(plan, "processes", "3")).output().unwrap();
        assert!(done.status.success(), "{}", words(&done));
        assert_eq!(String::from_utf8_lossy(&done.stdout).matches("step 3 ").count(), 1);
        assert_eq!(folder.losses("processes"), folder.losses("threads"));
        assert_eq!(folder.losses("threads").len(), 3);
        for name in ["{}.safetensors", "{}/step-000003/parameter.safetensors"] {
            let bytes = |of| fs::read(folder.path(&name.replace("{}", of))).unwrap();
            assert!(bytes("processes") == bytes("threads"), "{name}");
        }
        for name in ["processes", "threads"] {
            fs::remove_dir_all(folder.path(name)).unwrap();
        }
    }
    let refused = mpirun(3, &folder.training(&plans[0], "three", "1")).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let expected = "error: the plan is for 4 ranks, but 3 processes have been started: start 4";
    assert_eq!(words(&refused).matches(expected).count(), 1, "{}", words(&refused));
    let mut two = mpirun(2, &folder.training(&plans[0], "two", "1"));
    two.args([":", "-n", "2", env!("CARGO_BIN_EXE_shardloom")]).args(folder.training(&plans[1], "two", "1"));
    let refused = two.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let expected = "error: ranks 0 and 2 differ in the plan: ";
    assert_eq!(words(&refused).matches(expected).count(), 1, "{}", words(&refused));
}

/// The process of a rank that a launcher on this machine has started.
fn process(launcher: &Child, rank: u32) -> String {
    let parent = format!("PPid:\t{}", launcher.id());
    let variable = format!("OMPI_COMM_WORLD_RANK={rank}");
    let is_rank = |id: &String| {
        // Other processes come and go.
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        status.lines().any(|line| line == parent)
            && environment.split(|&it| it == 0).any(|it| it == variable.as_bytes())
    };
    let all = fs::read_dir("/proc").unwrap();
    let mut names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.find(is_rank).unwrap()
}

/// Does something to rank 2 in the middle of a training: how it ends.
fn hit(signal: &str, folder: &Folder, more: &[&str]) -> Output {
    let plan = folder.plan("pipeline.json", &["--stages", "2", "--mesh", "2", "--schedule", "eager-1f1b"]);
    let mut arguments = folder.training(&plan, "hit", "100000");
    arguments.extend(more.iter().map(|&it| it.to_owned()));
    let mut launcher = mpirun(4, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("step 3 ")));
    let killed = Command::new("kill").args([signal, &process(&launcher, 2)]).status().unwrap();
    assert!(killed.success());
    // The pipe has to be read, or the first rank waits for it.
    lines.for_each(drop);
    launcher.wait_with_output().unwrap()
}

#[test]
fn all_end_when_one_is_killed() {
    let folder = Folder::new("killed");
    let done = hit("-KILL", &folder, &[]);
    assert!(!done.status.success());
    assert!(words(&done).contains("rank 2"), "{}", words(&done));
    assert!(!Path::new(&folder.path("hit.safetensors")).exists());
    // The newest checkpoint is whole.
    let latest = fs::read_to_string(folder.path("hit/latest")).unwrap();
    let newest = Path::new(&folder.path("hit")).join(latest.trim());
    assert!(newest.join("manifest.json").is_file());
}

#[test]
fn all_end_when_one_does_not_answer() {
    let folder = Folder::new("stopped");
    let done = hit("-STOP", &folder, &["--wait-limit", "15"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(words(&done).contains("has waited 15 s for rank"), "{}", words(&done));
}
