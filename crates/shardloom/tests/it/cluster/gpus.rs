//! Ranks that are processes with a GPU each, none of which is there: what they compute, how they end, what
//! is measured of them, and what is refused. The libraries in the places of the driver and of NCCL say what they check.

mod measured; // `calibrate --nccl`

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::OnceLock;
use std::thread;

use lower::{Action, Way};
use reshard::Strategy;

use super::{Folder, complaint, corpus, free_port, hit, launch, process, rank, shardloom, signal, words};
use crate::emulated::emulated;

/// How far losses and norms may be from those of one rank: sums are made in another order.
const TOLERANCE: f64 = 2e-3;

/// What says that ranks have GPUs which are not there.
fn on(libraries: &Path) -> Vec<String> {
    let cache = emulated().cache.clone();
    let all = ["--device", "cuda", "--libraries", libraries.to_str().unwrap(), "--cache"];
    all.into_iter().chain([cache.to_str().unwrap()]).map(str::to_owned).collect()
}

fn libraries() -> PathBuf {
    emulated().libraries.clone()
}

/// How a small GPT-2 is planned: once for all tests.
#[derive(Clone, Copy, Debug)]
enum Planned {
    Alone,
    Two,
    Four,
    Stages,
    /// In stages of two ranks, between which all ways of travelling are taken.
    Travelling,
}

/// A plan to train it on few tokens.
fn plan(how: Planned) -> &'static str {
    static PLANS: [OnceLock<(Folder, String)>; 5] = [const { OnceLock::new() }; 5];
    let more: &[&str] = match how {
        Planned::Alone => &["--machine", "cpu-1x"],
        Planned::Two => &["--machine", "cpu-2x", "--mesh", "2"],
        Planned::Four => &["--machine", "cpu-4x", "--mesh", "data=2,model=2"],
        Planned::Stages => &["--machine", "cpu-2x", "--stages", "2", "--mesh", "1", "--schedule", "1f1b"],
        Planned::Travelling => {
            &["--machine", "cpu-4x", "--stages", "2", "--mesh", "2", "--schedule", "eager-1f1b"]
        }
    };
    let (_, path) = PLANS[how as usize].get_or_init(|| {
        let folder = Folder::new(&format!("gpus-{how:?}"));
        let (plan, model) = (folder.path("plan.json"), corpus("models/gpt2-bytes.onnx"));
        let sizes = ["--dim", "batch=4", "--dim", "sequence=16", "--microbatches", "2", "--clip", "1"];
        let loss = ["--mode", "train", "--loss", "cross-entropy:logits,labels"];
        let common = ["plan", &model, "-o", &plan];
        expect_done(&shardloom(&[&common[..], &sizes, &loss, more].concat()).output().unwrap());
        if matches!(how, Planned::Travelling) {
            travel(Path::new(&plan));
        }
        (folder, plan)
    });
    path
}

/// Rewrites a pipeline, in which what crosses travels in every way: directly, by parts that receivers
/// give to each other, and in chunks along a chain.
fn travel(path: &Path) {
    let content = plan::json::read_any(&std::fs::read(path).unwrap()).unwrap();
    let plan::json::Content::Pipeline(mut pipeline) = content else { panic!("expected a pipeline") };
    pipeline.devices_per_node = 2;
    let arrivals = pipeline.crossings.iter_mut().flat_map(|it| &mut it.to);
    let mut taken = BTreeSet::new();
    for (arrival, strategy) in arrivals.zip(Strategy::ALL.into_iter().cycle()) {
        (arrival.strategy, arrival.chunks) = (strategy.name().to_owned(), 3);
        taken.insert(strategy);
    }
    assert_eq!(taken.len(), Strategy::ALL.len());
    // What a rank gets for others is passed on.
    let passed_on = |action: &Action| match action {
        Action::Receive(it) => it.parts.iter().filter(|part| part.way == Way::To).count(),
        _ => 0,
    };
    let programs = lower::pipeline(&pipeline).unwrap();
    let all = programs.iter().flat_map(|it| &it.instructions).map(|it| passed_on(&it.action));
    assert!(all.sum::<usize>() > 2);
    std::fs::write(path, plan::json::write_pipeline(&pipeline)).unwrap();
}

/// Ranks that a launcher starts, each with a GPU.
pub(super) fn launched(ranks: u32, arguments: &[String]) -> Command {
    let mut command = launch(ranks, &[], &[arguments, &on(&libraries())].concat());
    command.env("EMULATED_GPUS", ranks.to_string());
    command
}

pub(super) fn expect_done(done: &Output) {
    assert!(done.status.success(), "{}", words(done));
}

/// Trains two steps on GPUs, and on one rank on a processor.
fn check_training(how: Planned, ranks: u32) {
    let folder = Folder::new(&format!("gpus-train-{how:?}"));
    let arguments = folder.training(plan(Planned::Alone), "alone", "2");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    expect_done(&shardloom(&arguments).output().unwrap());
    expect_done(&launched(ranks, &folder.training(plan(how), "gpus", "2")).output().unwrap());
    let (found, expected) = (folder.losses("gpus"), folder.losses("alone"));
    assert_eq!(found.len(), 2);
    for (found, expected) in found.iter().zip(&expected) {
        let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * b.abs();
        assert!(near(found.0, expected.0) && near(found.1, expected.1), "{how:?}: {found:?}, {expected:?}");
    }
}

/// What a run has left, by name.
fn outputs(path: &str) -> BTreeMap<String, Vec<f64>> {
    let all = files::arrays::read(Path::new(path)).unwrap();
    all.into_iter().map(|(name, array)| (name, array.to_floats().unwrap())).collect()
}

#[test]
fn gpus_of_processes_compute_as_one_rank() {
    let folder = Folder::new("gpus-forward");
    let model = corpus("models/llama-fwd-dynamo2.15-op23-dyn/model.onnx");
    let run = |name: &str, machine: &str, mesh: &str| {
        let (plan, output) = (folder.path(&format!("{name}.json")), folder.path(&format!("{name}.npz")));
        let sizes = ["--dim", "batch=2", "--dim", "seq=8"];
        let planned =
            [&["plan", &model, "--machine", machine, "--mesh", mesh, "-o", &plan][..], &sizes].concat();
        let done = shardloom(&planned).output().unwrap();
        expect_done(&done);
        (["run", &plan, "-o", &output].map(str::to_owned).to_vec(), output)
    };
    let (arguments, expected) = run("alone", "cpu-1x", "1");
    expect_done(&shardloom(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap());
    let (mut arguments, found) = run("gpus", "cpu-2x", "2");
    arguments.extend(["--steps", "2"].map(str::to_owned));
    expect_done(&launched(2, &arguments).output().unwrap());
    let (found, expected) = (outputs(&found), outputs(&expected));
    assert!(!expected.is_empty() && found.keys().eq(expected.keys()));
    for (name, expected) in expected {
        let largest = expected.iter().fold(0.0_f64, |most, it| most.max(it.abs()));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * largest;
        assert!(found[&name].iter().zip(&expected).all(near), "{name}");
    }
}

#[test]
fn gpus_of_processes_train_as_one_rank() {
    check_training(Planned::Four, 4);
    check_training(Planned::Travelling, 4);
}

#[test]
fn all_end_when_a_rank_with_a_gpu_is_killed() {
    let folder = Folder::new("gpus-killed");
    for rank in ["0", "1"] {
        let launcher = launched(2, &folder.training(plan(Planned::Two), "hit", "100000"));
        let blow = |launcher: &Child| {
            signal("-KILL", &process(launcher, &format!("SHARDLOOM_RANK={rank}")));
        };
        let done = hit(launcher, 1, &blow);
        assert_eq!(done.status.code(), Some(5), "{}", words(&done));
        let line = complaint(&done);
        assert!(line.contains(&format!("error: rank {rank} on `")) && line.contains("is gone"), "{line}");
    }
}

#[test]
fn a_gpu_that_waits_for_a_rank_that_does_not_go_on_names_it() {
    let folder = Folder::new("gpus-hang");
    let mut arguments = folder.training(plan(Planned::Two), "hit", "2");
    // The first rank writes its log to a pipe that nobody reads.
    assert!(Command::new("mkfifo").arg(folder.path("hit.jsonl")).status().unwrap().success());
    arguments.extend(["--wait-limit", "3"].map(str::to_owned));
    let done = launched(2, &arguments).output().unwrap();
    assert_eq!(done.status.code(), Some(6), "{}", words(&done));
    let line = complaint(&done);
    assert!(
        line.contains("error: rank 0 on `") && line.contains("has not gone on: it is in step 0"),
        "{line}"
    );
}

/// What is said where ranks with GPUs do not start, with what of the environment of all of them.
fn refused(code: i32, libraries: &Path, environment: &[(&str, &str)]) -> String {
    let folder = Folder::new(&format!("gpus-{}{}", environment[0].1, libraries.ends_with("libraries")));
    let limit = ["--join-limit", "3"].map(str::to_owned);
    let arguments = [&folder.training(plan(Planned::Two), "none", "1"), &on(libraries)[..], &limit].concat();
    let mut command = launch(2, &[], &arguments);
    let done = command.envs(environment.iter().copied()).output().unwrap();
    assert_eq!(done.status.code(), Some(code), "{}", words(&done));
    complaint(&done)
}

#[test]
fn what_ranks_with_gpus_lack_is_one_message() {
    let two = ("EMULATED_GPUS", "2");
    // Ranks that are never connected are mostly waited for.
    let [never, old, one] = thread::scope(|scope| {
        let never = scope.spawn(|| refused(6, &libraries(), &[("EMULATED_NCCL", "never"), two]));
        let old = refused(2, &libraries(), &[("EMULATED_NCCL", "old"), two]);
        let one = refused(2, &libraries(), &[("EMULATED_GPUS", "1")]);
        [never.join().unwrap(), old, one]
    });
    assert!(old.contains("libnccl.so.2 is version 2.16.2, expected 2.18.0 or newer"), "{old}");
    assert!(never.contains("have not been connected by NCCL 2.30.7 in 3 s"), "{never}");
    assert!(one.contains("ranks 0 and 1 have the same GPU (emulated GPU)"), "{one}");

    let without = Folder::new("gpus-without");
    for name in ["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"] {
        std::os::unix::fs::symlink(libraries().join(name), without.path(name)).unwrap();
    }
    let said = refused(2, &without.0, &[two]);
    assert!(said.contains("NCCL, by which ranks on GPUs exchange (libnccl.so.2) is not there"), "{said}");
}

#[test]
fn a_host_with_fewer_gpus_than_ranks_is_refused() {
    let folder = Folder::new("gpus-few");
    let mut command = launched(4, &folder.training(plan(Planned::Four), "none", "1"));
    let done = command.env("EMULATED_GPUS", "3").output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{}", words(&done));
    assert!(complaint(&done).contains("this is rank 3 of its host, counted from 0, which has 3 GPUs"));
}

#[test]
fn ranks_with_gpus_and_different_plans_are_refused() {
    let (folder, port) = (Folder::new("gpus-plans"), free_port());
    let start = |number: u32| {
        let plan = plan(if number == 0 { Planned::Two } else { Planned::Stages });
        let arguments = [folder.training(plan, "one", "1"), on(&libraries())].concat();
        let mut command = rank(number, 2, port, "a token of this test alone", &arguments);
        command.env("LOCAL_RANK", number.to_string()).env("EMULATED_GPUS", "2").spawn().unwrap()
    };
    let all = [start(0), start(1)].map(|it| it.wait_with_output().unwrap());
    for done in &all {
        assert_eq!(done.status.code(), Some(2), "{}", words(done));
    }
    assert!(
        complaint(&all[0]).starts_with("error: ranks 0 and 1 differ in the plan: "),
        "{}",
        words(&all[0])
    );
}
