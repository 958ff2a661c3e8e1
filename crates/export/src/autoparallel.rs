//! Placements of AutoParallel: a solution of parameters, and a Python module that fixes them before the rest is solved.
//!
//! Source: AutoParallel, `autoparallel/serialization.py` for the form of a solution, whose placements are written as
//! PyTorch prints them; `autoparallel/optimize_sharding.py`, `add_node_constraint`.

use serde_json::{Map, Value, json};

use crate::error::ExportError;
use crate::file::File;
use crate::job::Job;
use crate::placements::{Placement, placed};

/// The module, the same for all plans.
const MODULE: &str = include_str!("autoparallel/shardloom_autoparallel.py");

/// The files, and in words what they do not say.
pub(crate) fn files(job: &Job<'_>) -> Result<(Vec<File>, Vec<String>), ExportError> {
    let stages = job.stages();
    let [plan] = stages[..] else { return Err(ExportError::Pipeline("AutoParallel")) };
    let (parameters, mut lost) = placed(plan);
    let mut placements = Map::new();
    for it in &parameters {
        match it.at_rest.iter().copied().map(printed).collect::<Option<String>>() {
            Some(text) => drop(placements.insert(it.name.clone(), Value::String(text))),
            None => lost.push(format!(
                "`{}` is split in each of several parts: AutoParallel has no such placement, and chooses",
                it.name
            )),
        }
    }
    lost.push("how operations are computed: AutoParallel chooses, from where parameters lie".to_owned());
    let axes = &plan.mesh.axes;
    let solution = json!({
        "version": 1,
        "mesh_shape": axes.iter().map(|it| it.size).collect::<Vec<_>>(),
        "mesh_dim_names": axes.iter().map(|it| it.name.clone()).collect::<Vec<_>>(),
        "placements": placements,
    });
    let files = vec![
        File { name: "autoparallel.json", text: format!("{solution:#}\n") },
        File { name: "shardloom_autoparallel.py", text: MODULE.to_owned() },
    ];
    Ok((files, lost))
}

/// A placement as PyTorch prints it; nothing if there is none.
fn printed(placement: Placement) -> Option<String> {
    match placement {
        Placement::Replicate => Some("R".to_owned()),
        Placement::Partial => Some("P(sum)".to_owned()),
        Placement::Shard(dim) => Some(format!("S({dim})")),
        Placement::Strided(..) => None,
    }
}
