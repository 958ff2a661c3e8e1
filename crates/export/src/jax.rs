//! Partition specs of JAX: a Python module with one for each parameter, and what the optimizer keeps of it.

use planner_ir::{Layout, Mesh, Source, StateKind};

use crate::file::File;
use crate::job::Job;
use crate::layers::trained;

/// The module, and in words what it does not say.
pub(crate) fn files(job: &Job<'_>) -> (Vec<File>, Vec<String>) {
    let mut lost = Vec::new();
    let stages = job.stages();
    let mut meshes = String::new();
    let (mut parameters, mut optimizer) = (String::new(), String::new());
    for (number, plan) in stages.iter().enumerate() {
        let axes: Vec<String> =
            plan.mesh.axes.iter().map(|it| format!("\"{}\": {}", it.name, it.size)).collect();
        meshes += &format!("    {{{}}},\n", axes.join(", "));
        let place = if stages.len() > 1 { format!("stage {number}: ") } else { String::new() };
        let mut line = |name: &str, layout: &Layout| {
            let said = spec(&plan.mesh, layout).unwrap_or_else(|| {
                lost.push(format!(
                    "{place}`{name}` lies in blocks that are no part of a dimension: it is whole"
                ));
                "P()".to_owned()
            });
            format!("        \"{name}\": {said},\n")
        };
        parameters += "    {\n";
        for (value, name) in trained(plan) {
            parameters += &line(name, &plan.layouts[value.0]);
        }
        parameters += "    },\n";
        optimizer += "    {\n";
        for value in plan.graph.value_ids() {
            if let Source::State(state) = &plan.graph.value(value).source
                && state.kind == StateKind::FirstMoment
            {
                optimizer += &line(&state.name, &plan.layouts[value.0]);
            }
        }
        optimizer += "    },\n";
    }
    if stages.len() > 1 {
        lost.push("which stage works when: each stage has a mesh and specs of its own".to_owned());
    }
    lost.push("how operations are computed: XLA chooses, from where parameters and inputs lie".to_owned());
    let text = format!(
        "{HEAD}MESHES = [\n{meshes}]\n\nPARAMETERS = [\n{parameters}]\n\nOPTIMIZER = [\n{optimizer}]\n{TAIL}"
    );
    (vec![File { name: "shardloom_jax.py", text }], lost)
}

const HEAD: &str = "\
\"\"\"Where the parameters of a plan of Shardloom lie, stage by stage, as JAX says it.

Names are those of the model that was planned. `shardings(mesh())` gives what `jax.device_put` and `jax.jit` take.
\"\"\"

import math

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

";

const TAIL: &str = "

def mesh(stage=0, devices=None):
    \"\"\"The mesh of a stage, of these devices or the first there are.\"\"\"
    sizes = MESHES[stage]
    devices = jax.devices() if devices is None else devices
    count = math.prod(sizes.values())
    return Mesh(np.array(devices[:count]).reshape(tuple(sizes.values())), tuple(sizes))


def shardings(mesh, stage=0, of=PARAMETERS):
    \"\"\"The sharding of each parameter, or with `of=OPTIMIZER` of what the optimizer keeps of it.\"\"\"
    return {name: NamedSharding(mesh, spec) for name, spec in of[stage].items()}
";

/// The axes of each dimension, outermost first; nothing if a part of each of several blocks lies together, or
/// blocks are numbered by sums of coordinates.
fn spec(mesh: &Mesh, layout: &Layout) -> Option<String> {
    let mut dims = Vec::new();
    for digits in &layout.dims {
        let axes: Option<Vec<String>> =
            digits.iter().map(|it| Some(format!("\"{}\"", mesh.axes[it.plain()?.0].name))).collect();
        dims.push(match &axes?[..] {
            [] => "None".to_owned(),
            [one] => one.clone(),
            several => format!("({})", several.join(", ")),
        });
    }
    while dims.last().is_some_and(|it| it == "None") {
        dims.pop();
    }
    Some(format!("P({})", dims.join(", ")))
}

#[cfg(test)]
mod tests {
    use planner_ir::{Mesh, parse_layout};

    use super::spec;

    #[test]
    fn dimensions_have_their_axes_outermost_first() {
        let mesh = Mesh::parse("a=2,b=2").unwrap();
        let of = |text: &str| spec(&mesh, &parse_layout(&mesh, text).unwrap().canonical());
        assert_eq!(of("[-,-]"), Some("P()".to_owned()));
        assert_eq!(of("[a,-]"), Some("P(\"a\")".to_owned()));
        assert_eq!(of("[-,b.a]"), Some("P(None, (\"b\", \"a\"))".to_owned()));
        assert_eq!(of("[*3.a,-]"), None);
        assert_eq!(of("[(a+b:2)]"), None);
    }
}
