//! Partition specs of JAX: a Python module with one for each parameter, what the optimizer keeps of it, each input,
//! and what each operation of the model makes.

use crate::file::File;
use crate::job::Job;
use crate::specs::{Lies, Stage, stages};

/// The module, and in words what it does not say.
pub(crate) fn files(job: &Job<'_>) -> (Vec<File>, Vec<String>) {
    let (stages, lost) = stages(job);
    let mut meshes = String::new();
    for stage in &stages {
        let axes: Vec<String> =
            stage.mesh.axes.iter().map(|it| format!("\"{}\": {}", it.name, it.size)).collect();
        meshes += &format!("    {{{}}},\n", axes.join(", "));
    }
    let mut text = format!("{HEAD}MESHES = [\n{meshes}]\n");
    let mut list = |title: &str, of: &dyn Fn(&Stage<'_>) -> String| {
        let all: String = stages.iter().map(|it| format!("    {{\n{}    }},\n", of(it))).collect();
        text += &format!("\n{title} = [\n{all}]\n");
    };
    list("PARAMETERS", &|it| lines(&it.parameters));
    list("OPTIMIZER", &|it| lines(&it.optimizer));
    list("INPUTS", &|it| lines(&it.inputs));
    list("VALUES", &|it| lines(&it.values));
    text += TAIL;
    (vec![File { name: "shardloom_jax.py", text }], lost)
}

fn lines(all: &[Lies<'_>]) -> String {
    all.iter().map(|it| format!("        \"{}\": {},\n", it.name, spec(&it.dims))).collect()
}

const HEAD: &str = "\
\"\"\"Where the values of a plan of Shardloom lie, stage by stage, as JAX says it.

Names are those of the model that was planned. `shardings(mesh())` gives what `jax.device_put` and `jax.jit` take;
`constrained` is for what an operation makes, inside of what is compiled.
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
    \"\"\"The sharding of each parameter, or with `of=OPTIMIZER` of what the optimizer keeps of it, or of `INPUTS`.\"\"\"
    return {name: NamedSharding(mesh, spec) for name, spec in of[stage].items()}


def constrained(value, name, mesh, stage=0):
    \"\"\"A value that lies as the plan has what the operation of that name makes, of the same dimensions.\"\"\"
    return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, VALUES[stage][name]))
";

fn spec(dims: &[Vec<&str>]) -> String {
    let dim = |axes: &Vec<&str>| {
        let axes: Vec<String> = axes.iter().map(|it| format!("\"{it}\"")).collect();
        match &axes[..] {
            [] => "None".to_owned(),
            [one] => one.clone(),
            several => format!("({})", several.join(", ")),
        }
    };
    let mut dims: Vec<String> = dims.iter().map(dim).collect();
    while dims.last().is_some_and(|it| it == "None") {
        dims.pop();
    }
    format!("P({})", dims.join(", "))
}

#[cfg(test)]
mod tests {
    use super::spec;

    #[test]
    fn dimensions_have_their_axes() {
        assert_eq!(spec(&[vec![], vec![]]), "P()");
        assert_eq!(spec(&[vec!["a"], vec![]]), "P(\"a\")");
        assert_eq!(spec(&[vec![], vec!["b", "a"]]), "P(None, (\"b\", \"a\"))");
    }
}
