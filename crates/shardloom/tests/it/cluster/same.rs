//! The same bits on threads, over TCP and through MPI.

use std::process::Command;

use super::{Folder, launch, plan, shardloom, words};

fn trained(folder: &Folder, name: &str, command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{name}: {}", words(&done));
    assert_eq!(String::from_utf8_lossy(&done.stdout).matches("step 2 ").count(), 1, "{name}");
    assert_eq!(folder.losses(name).len(), 2);
    assert_eq!(folder.losses(name), folder.losses("threads"), "{name}");
    for file in ["{}.safetensors", "{}/step-000002/parameter.safetensors"] {
        let bytes = |of| folder.bytes(&file.replace("{}", of));
        assert!(bytes(name) == bytes("threads"), "{name}: {file}");
    }
}

#[test]
fn processes_train_as_threads_do() {
    for stages in [false, true] {
        let (folder, plan) = (Folder::new(&format!("same-{stages}")), plan(stages));
        let arguments = folder.training(plan, "threads", "2");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        trained(&folder, "threads", &mut shardloom(&arguments));
        trained(&folder, "tcp", &mut launch(4, &[], &folder.training(plan, "tcp", "2")));
        #[cfg(feature = "mpi")]
        trained(&folder, "mpi", &mut super::mpi::mpirun(4, &folder.training(plan, "mpi", "2")));
    }
}
