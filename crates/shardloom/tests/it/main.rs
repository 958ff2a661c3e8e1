//! Tests that need the program itself.
//!
//! Modules are marked as tests, so that what serves tests may panic.

#[cfg(test)]
mod cluster; // ranks that are processes
#[cfg(test)]
#[path = "../../../device/src/emulated.rs"]
mod emulated; // GPUs that are not there
#[cfg(test)]
mod faults; // inputs that did harm once
#[cfg(test)]
mod files; // files that are none, are damaged or lead elsewhere
#[cfg(test)]
mod fuzz; // inputs that nobody would write
#[cfg(test)]
mod options; // what is asked for and cannot be
#[cfg(test)]
mod partition; // `partition`, drawn and refused
#[cfg(test)]
mod prices; // prices of this host, measured when nobody names others
#[cfg(test)]
mod limits; // threads and memory that are not there
#[cfg(test)]
mod train; // `train`, from a plan file to weights

/// The arguments of a command, with which it writes over files that are there, if it writes some: and runs
/// models by prices that are the same on all hosts.
#[cfg(test)]
fn forced(arguments: &[&str]) -> Vec<String> {
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
