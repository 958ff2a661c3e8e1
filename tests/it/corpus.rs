//! Real models: planned for several meshes, run, and held against their oracles.
//!
//! The models in `tests/models` are always there. A larger collection outside the repository is used as
//! well where `SHARDLOOM_DATA` names it.

mod cases; // the models, and what they are given
mod chosen; // the plans that the search chooses
mod fused; // products fused where that is cheaper
pub(crate) mod forced; // plans made to use every partition that is offered
mod recurrences; // states that go from token to token
pub(crate) mod context; // attention whose keys and values go around
pub(crate) mod full; // graphs of full size, without weights
pub(crate) mod gpu; // plans on a GPU that is not there
mod trial; // a plan checked, run and held against what it has to compute

use driver::pipeline::{self, Target};
use rayon::prelude::*;
use search::MachinePrices;

pub(crate) use trial::{Priced, check_bytes, machine, machine_by};

/// Meshes of one to three axes, of 1, 2, 3, 4, 6 and 8 devices.
pub(crate) const EVERY_MESH: [&str; 12] =
    ["1", "2", "3", "4", "6", "8", "2x2", "2x3", "3x2", "2x4", "4x2", "2x2x2"];

/// Whether every model is planned for every mesh by all prices, instead of a sample of these: the long run
/// sets `DIFFERENTIAL`.
pub(crate) fn is_whole() -> bool {
    std::env::var_os("DIFFERENTIAL").is_some()
}

/// The programs of every model, as the search plans it for a mesh.
pub(crate) fn programs(mesh: &str) -> Vec<(String, Result<Vec<lower::Program>, String>)> {
    let (mesh, machine) = machine(mesh);
    let of = |case: &cases::Case| -> Result<Vec<lower::Program>, String> {
        let opened = case.prepare()?;
        let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
        let target = Target::of(&machine, &mesh);
        let header = plan::ModelFile { path: case.title.clone(), sha256: String::new(), dims: vec![] };
        let plan = pipeline::planned(&opened.prepared, &header, &target, &prices);
        let plan = plan.map_err(|error| format!("not planned: {error}"))?;
        lower::lower(&plan).map_err(|error| format!("not lowered: {error}"))
    };
    let (mut cases, _) = cases::all();
    // Other inputs of the same model need the same kernels.
    cases.retain(|case| !case.title.ends_with("io1"));
    cases.par_iter().map(|case| (case.title.clone(), of(case))).collect()
}

/// What a trial says is wrong, or that it panicked.
pub(crate) fn faults_of(title: &str, trial: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(trial));
    caught.unwrap_or_else(|_| vec![format!("{title}: panicked")])
}

/// Fails with all of these, one to a line.
pub(crate) fn expect_none(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
