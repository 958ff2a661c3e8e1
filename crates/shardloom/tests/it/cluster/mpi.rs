//! Ranks that `mpirun` has started: how they end.

use std::process::Command;

use super::{Folder, complaint, hit, plan, process, shardloom, signal, words};

/// So many processes.
pub(super) fn mpirun(number: u32, arguments: &[String]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-n", &number.to_string(), env!("CARGO_BIN_EXE_shardloom")]).args(arguments);
    let allowed = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    // More processes than processors.
    command.envs(allowed.map(|name| (name, "1"))).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = Folder::new("mpi-refused");
    let refused = mpirun(3, &folder.training(plan(false), "three", "1")).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let expected = "error: the plan is for 4 ranks, but 3 processes have been started: start 4";
    assert!(complaint(&refused).starts_with(expected), "{}", words(&refused));
    let mut two = mpirun(2, &folder.training(plan(false), "two", "1"));
    two.args([":", "-n", "2", env!("CARGO_BIN_EXE_shardloom")]).args(folder.training(plan(true), "two", "1"));
    let refused = two.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        complaint(&refused).starts_with("error: ranks 0 and 2 differ in the plan: "),
        "{}",
        words(&refused)
    );
}

#[test]
fn all_end_when_one_is_killed() {
    let folder = Folder::new("mpi-killed");
    let launcher = mpirun(4, &folder.training(plan(true), "hit", "100000"));
    let done = hit(launcher, 3, &|launcher| signal("-KILL", &process(launcher, "OMPI_COMM_WORLD_RANK=2")));
    assert!(!done.status.success());
    assert!(words(&done).contains("rank 2"), "{}", words(&done));
    folder.newest("hit");
}

#[test]
fn all_end_when_one_does_not_answer() {
    let folder = Folder::new("mpi-stopped");
    let mut arguments = folder.training(plan(true), "hit", "100000");
    arguments.extend(["--wait-limit", "6"].map(str::to_owned));
    let stop = |launcher: &_| signal("-STOP", &process(launcher, "OMPI_COMM_WORLD_RANK=2"));
    let done = hit(mpirun(4, &arguments), 3, &stop);
    assert_eq!(done.status.code(), Some(6));
    assert!(words(&done).contains("has waited 6 s for rank"), "{}", words(&done));
}

#[test]
fn ranks_of_mpirun_reach_each_other_over_tcp_too() {
    let folder = Folder::new("mpi-tcp");
    let mut arguments = folder.training(plan(false), "tcp", "1");
    arguments.extend(["--transport", "tcp"].map(str::to_owned));
    let done = mpirun(4, &arguments).output().unwrap();
    assert!(done.status.success(), "{}", words(&done));
    assert_eq!(folder.losses("tcp").len(), 1);
}

/// Two stages, each on two data ranks by two tensor ranks: the bits of threads, and the losses of one rank.
#[test]
fn stages_on_meshes_of_two_axes_train_as_one_rank_does() {
    let folder = Folder::new("mpi-stages");
    let trained = |name: &str, command: &mut Command| {
        let done = command.output().unwrap();
        assert!(done.status.success(), "{name}: {}", words(&done));
        folder.losses(name)
    };
    let on_threads = |plan: &str, name: &str| {
        let arguments = folder.training(plan, name, "1");
        trained(name, &mut shardloom(&arguments.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let (one, _) = folder.planned("one.json", &["--machine", "cpu-1x"]);
    let one = on_threads(&one, "one");
    let more = ["--machine", "cpu-8x", "--stages", "2", "--mesh", "data=2,model=2"];
    let (plan, said) = folder.planned("two.json", &more);
    assert!(said.contains("tensor parallel over") && said.contains("data parallel over"), "{said}");
    let expected = on_threads(&plan, "threads");
    let apart = |(of, to): (f64, f64)| (of - to).abs() / to;
    assert!(expected.len() == 1 && apart((expected[0].0, one[0].0)) < 1e-5, "{expected:?} {one:?}");
    let found = trained("mpi", &mut mpirun(8, &folder.training(&plan, "mpi", "1")));
    assert_eq!(found, expected);
    assert!(folder.bytes("mpi.safetensors") == folder.bytes("threads.safetensors"));
}
