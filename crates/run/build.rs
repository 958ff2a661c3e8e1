//! Builds what calls MPI, where that is wanted.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "src/processes/link.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=MPICC");
    if env::var_os("CARGO_FEATURE_MPI").is_none() {
        return;
    }
    let compiler = env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
    let folder = env::var("OUT_DIR").expect("cargo says where");
    let object = Path::new(&folder).join("link.o").display().to_string();
    let archive = Path::new(&folder).join("liblink_mpi.a").display().to_string();
    output(&compiler, &["-O2", "-fPIC", "-Wall", "-Werror", "-c", SOURCE, "-o", &object]);
    output("ar", &["crs", &archive, &object]);
    println!("cargo::rustc-link-search=native={folder}");
    println!("cargo::rustc-link-lib=static=link_mpi");
    // What the wrapper would hand to the linker.
    for word in output(&compiler, &["-show"]).split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={folder}");
        } else if let Some(library) = word.strip_prefix("-l") {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
    }
}

/// What a program prints.
fn output(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output();
    let done = done.unwrap_or_else(|error| {
        panic!("`{program}` cannot be started: {error}; the feature `mpi` needs it (Debian: libopenmpi-dev)")
    });
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "`{program} {}` failed: {complaint}", arguments.join(" "));
    String::from_utf8_lossy(&done.stdout).into_owned()
}
