//! The words by which `plan` is asked again for what a plan is of: as it is, or with more left open.

use std::collections::{BTreeMap, BTreeSet};

use ::plan::json::Content;
use ::plan::{Assignment, is_called};
use ::plan::{
    Generation, Loss, MachineName, Masters, ModelFile, NoDecay, Pipeline, Plan, Precision, Recipe, Roles,
};
use cost_models::machine::setting;
use files::given;
use planner_ir::{Mesh, NodeId, Optimizer, Phase, Real};
use serde_json::{Value, json};

/// A way to plan again: what is kept of the plan, and the words of a shell.
pub(crate) struct Way {
    /// What is kept.
    kept: &'static str,
    /// The command, to which other limits and pins are added.
    command: Vec<String>,
    /// What a device may hold, if it is not what the machine says (bytes).
    memory: Option<u64>,
}

impl Way {
    /// For a page.
    pub(crate) fn json(&self) -> Value {
        json!({ "kept": self.kept, "command": shell(&self.command), "memory": self.memory })
    }

    /// The command that makes the plan as it was asked for, with these pins besides.
    pub(crate) fn with_pins(&self, pins: &[String]) -> String {
        let memory = self.memory.map(|it| option("--memory", it)).unwrap_or_default();
        let pins = pins.iter().flat_map(|it| option("--pin", it)).collect();
        shell(&[self.command.clone(), memory, pins].concat())
    }

    /// The command with a memory limit (bytes).
    pub(crate) fn with_memory(&self, bytes: u64) -> String {
        format!("{} --memory {bytes}", shell(&self.command))
    }
}

/// The ways to plan again what a plan is of, the nearest first; none where a plan does not say all that was asked. The
/// machine of a file is that file; a device of it holds so much, where that is one number (bytes).
pub(crate) fn ways(content: &Content, file: Option<&str>, usable: Option<u64>) -> Vec<Way> {
    let (capacity, mut ways) = match content {
        // Inputs that decide control flow have values that no option says.
        Content::Plan(plan) if !plan.controls.is_empty() => return Vec::new(),
        Content::Plan(plan) => (plan.capacity, of_plan(plan, file)),
        Content::Pipeline(pipeline) => (pipeline.capacity, of_pipeline(pipeline, file)),
        Content::Generation(generation) => (generation.decode.capacity, of_generation(generation, file)),
    };
    let memory = Some(capacity).filter(|_| usable.is_some_and(|it| it != capacity));
    ways.iter_mut().for_each(|it| it.memory = memory);
    ways
}

/// Why no pin says how an operation is computed.
const OF_GRADIENTS: &str =
    "a pin is of forward operations, and this one goes with them: pin the forward operation that it is of";
const OF_ANOTHER: &str = "the step in which it is not computed so has another operation in its place";
const OF_OTHERS: &str =
    "other operations of its name are computed in other ways, and a pin is of all of a name";

/// Pins by which operations, which stand at the same place of equal blocks, are computed as in another plan of the
/// same program: one for all where a name with `*` is of no other operation, else one for each. Or why no pin says it.
pub(crate) fn pins_of(plan: &Plan, made: &Plan, nodes: &[NodeId]) -> Result<Vec<String>, &'static str> {
    let mut named: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for &node in nodes {
        if plan.graph.node(node).phase != Phase::Forward {
            return Err(OF_GRADIENTS);
        }
        let Some(Assignment::Computed { partition, .. }) = made.assignments.get(node.0) else {
            return Err(OF_ANOTHER);
        };
        let (one, other) = (plan.graph.node(node), made.graph.node(node));
        if one.op != other.op || other.phase != Phase::Forward {
            return Err(OF_ANOTHER);
        }
        let text = partition.exchanged_plainly().display(&made.mesh).to_string();
        named.entry(text).or_default().insert(&one.origin);
    }
    let loops = nodes.first().and_then(|it| loops_of(made, *it));
    let wanted: BTreeSet<NodeId> = nodes.iter().copied().collect();
    let meant = |names: &[String]| -> BTreeSet<NodeId> {
        let is_meant = |node: &NodeId| {
            let is_called = |name: &String| is_called(made.graph.node(*node), name);
            loops_of(made, *node) == loops && names.iter().any(is_called)
        };
        made.graph.node_ids().filter(is_meant).collect()
    };
    let with = |names: &[String], partition: &str| -> Vec<String> {
        names.iter().map(|name| format!("{name}={partition}")).collect()
    };
    if let [(partition, origins)] = &named.iter().collect::<Vec<_>>()[..] {
        let pattern = origins.first().map(|it| starred(it)).into_iter().collect::<Vec<_>>();
        if meant(&pattern) == wanted {
            return Ok(with(&pattern, partition));
        }
    }
    let all: Vec<String> = named.values().flatten().map(|it| (*it).to_owned()).collect();
    if all.is_empty() || meant(&all) != wanted {
        return Err(OF_OTHERS);
    }
    let each = named.iter().flat_map(|(partition, origins)| {
        with(&origins.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(), partition)
    });
    Ok(each.collect())
}

/// How many loops the partition of an operation is of; none if it is not computed at every step.
fn loops_of(plan: &Plan, node: NodeId) -> Option<usize> {
    match &plan.assignments[node.0] {
        Assignment::Computed { partition, .. } => Some(partition.loops.len()),
        Assignment::Prepared => None,
    }
}

/// Pins by which all operations of a model are computed as in a plan: where all of as many loops are computed alike
/// one for these, else one for each name, with `*` where that is of no others. Names that are of operations that are
/// computed in several ways have none.
pub(crate) fn pins_of_all(made: &Plan) -> Vec<String> {
    let mut by_loops: BTreeMap<usize, Vec<(NodeId, String)>> = BTreeMap::new();
    for node in made.graph.node_ids().filter(|it| made.graph.node(*it).phase == Phase::Forward) {
        if let Assignment::Computed { partition, .. } = &made.assignments[node.0] {
            let text = partition.exchanged_plainly().display(&made.mesh).to_string();
            by_loops.entry(partition.loops.len()).or_default().push((node, text));
        }
    }
    let mut pins = Vec::new();
    for alike in by_loops.values() {
        let of = |pattern: &str| -> BTreeSet<&str> {
            let called = alike.iter().filter(|(node, _)| is_called(made.graph.node(*node), pattern));
            called.map(|(_, text)| text.as_str()).collect()
        };
        let mut patterns = BTreeSet::from(["*".to_owned()]);
        if of("*").len() > 1 {
            let origin = |node: &NodeId| &made.graph.node(*node).origin;
            let named = alike.iter().map(|(node, _)| origin(node));
            patterns = named
                .map(|name| if of(&starred(name)).len() > 1 { name.clone() } else { starred(name) })
                .collect();
        }
        for pattern in &patterns {
            if let [text] = of(pattern).into_iter().collect::<Vec<_>>()[..] {
                pins.push(format!("{pattern}={text}"));
            }
        }
    }
    pins
}

/// A name whose numbers may be others.
fn starred(name: &str) -> String {
    let part = |it: &str| if it.parse::<u64>().is_ok() { "*".to_owned() } else { it.to_owned() };
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

fn of_plan(plan: &Plan, file: Option<&str>) -> Vec<Way> {
    let recipe = plan.recipe.as_ref();
    let problem = [problem(&plan.model, &plan.machine, file), recipe.map(words).unwrap_or_default()].concat();
    let own = [problem.clone(), option("--mesh", &plan.mesh), pins(plan)].concat();
    let mut ways = vec![
        Way { kept: "this mesh", command: own, memory: None },
        Way { kept: "nothing: several meshes are tried", command: problem, memory: None },
    ];
    ways.extend(recipe.and_then(|recipe| whole_cluster(recipe, &plan.model, &plan.machine, file)));
    ways
}

fn of_pipeline(pipeline: &Pipeline, file: Option<&str>) -> Vec<Way> {
    let Some(first) = pipeline.stages.first() else { return Vec::new() };
    let (model, recipe) = (&first.plan.model, &pipeline.recipe);
    let mut ways = Vec::new();
    if let Some(kind) = pipeline.schedule.kind() {
        let groups = pipeline.schedule.groups.len();
        let meshes: Vec<&Mesh> = pipeline.stages.iter().take(groups).map(|it| &it.plan.mesh).collect();
        let stages = if meshes.windows(2).all(|it| it[0] == it[1]) {
            [option("--stages", groups), option("--mesh", &first.plan.mesh)].concat()
        } else {
            let sizes: Vec<String> = meshes.iter().map(|it| autoparallel::mesh::sizes(it)).collect();
            option("--stages", sizes.join(","))
        };
        let cut: Vec<String> = pipeline.stages.iter().map(|it| it.first_block.to_string()).collect();
        let chunks = pipeline.schedule.chunks;
        let chunks = if chunks > 1 { option("--chunks", chunks) } else { Vec::new() };
        let order = [option("--schedule", kind.name()), chunks, option("--cut", cut.join(","))].concat();
        let parts = [problem(model, &pipeline.machine, file), words(recipe), stages, order];
        ways.push(Way {
            kept: "these stages, meshes and micro-batches",
            command: parts.concat(),
            memory: None,
        });
    }
    ways.extend(whole_cluster(recipe, model, &pipeline.machine, file));
    ways
}

/// Stages, meshes, micro-batches, schedule and recomputation, all searched; of models that count examples by a
/// dimension of the usual name.
fn whole_cluster(
    recipe: &Recipe,
    model: &ModelFile,
    machine: &MachineName,
    file: Option<&str>,
) -> Option<Way> {
    const EXAMPLES: &str = "batch";
    let (_, batch) = model.dims.iter().find(|(name, _)| name == EXAMPLES)?;
    let dims = model.dims.iter().filter(|(name, _)| name != EXAMPLES).cloned().collect();
    let model = ModelFile { dims, ..model.clone() };
    let global = batch.checked_mul(recipe.micro_batches)?;
    let recipe = words(&Recipe { micro_batches: 1, ..recipe.clone() });
    let open = [option("--stages", "auto"), option("--global-batch", global)].concat();
    let command = [problem(&model, machine, file), recipe, open].concat();
    Some(Way {
        kept: "nothing: stages, meshes, micro-batches, schedule and recomputation are searched",
        command,
        memory: None,
    })
}

fn of_generation(generation: &Generation, file: Option<&str>) -> Vec<Way> {
    let (decode, cache) = (&generation.decode, &generation.cache);
    let tokens = |plan: &Plan| -> Option<Vec<u64>> {
        let inputs = given::expected(&plan.graph);
        inputs.iter().find(|(name, _)| *name == cache.tokens).map(|(_, type_)| type_.shape.clone())
    };
    let Some(batch) = tokens(decode).and_then(|it| it.first().copied()) else { return Vec::new() };
    let prompt = generation.prefill.as_ref().and_then(|plan| tokens(plan)?.get(1).copied()).unwrap_or(1);
    let asked = [("--batch", batch), ("--prompt", prompt), ("--context", cache.capacity)];
    let asked = asked.map(|(name, number)| option(name, number)).concat();
    // Sizes follow from these.
    let model = ModelFile { dims: Vec::new(), ..decode.model.clone() };
    let problem = [problem(&model, &decode.machine, file), option("--mode", "generate"), asked].concat();
    let own = [problem.clone(), option("--mesh", &decode.mesh)].concat();
    vec![
        Way { kept: "this mesh", command: own, memory: None },
        Way { kept: "nothing: several meshes are tried", command: problem, memory: None },
    ]
}

/// What is planned for which machine.
fn problem(model: &ModelFile, machine: &MachineName, file: Option<&str>) -> Vec<String> {
    let (name, settings) = setting::parts(&machine.name);
    let mut all = vec!["shardloom".to_owned(), "plan".to_owned(), model.path.clone()];
    all.extend(option("--machine", file.unwrap_or(name)));
    if file.is_some() {
        all.extend(option("--devices", machine.devices));
    }
    all.extend(settings.into_iter().flat_map(|it| option("--set", it)));
    all.extend(model.dims.iter().flat_map(|(name, size)| option("--dim", format!("{name}={size}"))));
    all
}

fn pins(plan: &Plan) -> Vec<String> {
    plan.pins.iter().flat_map(|it| option("--pin", it.text(&plan.mesh))).collect()
}

/// The options that a recipe comes of: what was decided of blocks is left open.
fn words(recipe: &Recipe) -> Vec<String> {
    let Recipe {
        loss,
        optimizer,
        precision,
        masters,
        micro_batches,
        clip,
        no_decay,
        recompute: _,
        roles,
        spelled: _,
    } = recipe;
    let mut all = [option("--mode", "train"), option::<&Loss>("--loss", loss)].concat();
    if *precision != Precision::File {
        all.extend(option("--precision", precision));
    }
    if *masters != Masters::default() {
        all.extend(option("--masters", masters));
    }
    let decay = match optimizer {
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => {
            if (*beta1, *beta2) != (Real(0.9), Real(0.999)) {
                all.extend(option("--betas", format!("{},{}", beta1.0, beta2.0)));
            }
            if *epsilon != Real(1e-8) {
                all.extend(option("--epsilon", epsilon.0));
            }
            decay
        }
        Optimizer::Sgd { decay } => {
            all.extend(option("--optimizer", "sgd"));
            decay
        }
        Optimizer::Momentum { momentum, decay } => {
            all.extend(option("--optimizer", "sgd-momentum"));
            all.extend(option("--momentum", momentum.0));
            decay
        }
    };
    if *decay != Real(0.0) {
        all.extend(option("--weight-decay", decay.0));
    }
    let NoDecay { names, vectors } = no_decay;
    if *vectors {
        all.extend(option("--no-decay", "vectors"));
    }
    all.extend(clip.iter().flat_map(|it| option("--clip", it)));
    let Roles { frozen, trained, untied, constants: _, ties: _ } = roles;
    let patterns = [("--no-decay", names), ("--freeze", frozen), ("--train", trained), ("--untie", untied)];
    all.extend(patterns.into_iter().flat_map(|(name, all)| all.iter().flat_map(move |it| option(name, it))));
    if *micro_batches > 1 {
        all.extend(option("--microbatches", micro_batches));
    }
    all
}

fn option<T: ToString>(name: &str, value: T) -> Vec<String> {
    vec![name.to_owned(), value.to_string()]
}

/// Words as a shell reads them.
fn shell(words: &[String]) -> String {
    let plain = |it: &String| {
        !it.is_empty() && it.chars().all(|it| it.is_ascii_alphanumeric() || "-_./=,:+%@".contains(it))
    };
    let quoted =
        |it: &String| if plain(it) { it.clone() } else { format!("'{}'", it.replace('\'', r"'\''")) };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::arguments::{Arguments, Command};

    /// What is asked for comes back.
    #[test]
    fn words_of_a_recipe_give_that_recipe() {
        let asked = [
            "--loss out",
            "--loss cross-entropy:logits,labels --precision bf16 --clip 0.5 --microbatches 8 --freeze a.* --untie b",
            "--loss out --optimizer sgd --weight-decay 0.1 --no-decay vectors --no-decay 'h.*' --precision fp8",
            "--loss out --optimizer sgd-momentum --momentum 0.3 --train wte --precision bf16-stochastic",
            "--loss out --betas 0.8,0.95 --epsilon 1e-6 --precision fp32",
        ];
        let recipe = |words: Vec<String>| {
            let plan = ["shardloom", "plan", "m.onnx", "--machine", "cpu-1x"].map(str::to_owned);
            match Arguments::try_parse_from(plan.into_iter().chain(words)).unwrap().command {
                Command::Plan(it) => it.recipe.recipe(it.runtime).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        for asked in asked {
            let asked = format!("--mode train {}", asked.replace('\'', ""));
            let first = recipe(asked.split(' ').map(str::to_owned).collect());
            assert_eq!(recipe(words(&first)), first, "{asked}");
        }
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        let words = ["a=2,b", "[a,-]", "it's", ""].map(str::to_owned);
        assert_eq!(shell(&words), r"a=2,b '[a,-]' 'it'\''s' ''");
    }
}
