//! Pipelines: random plans of stages whose gradients need not be right.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{Mesh, Op, Optimizer, Real, parse_graph};
use schedule::Kind;

use super::maker::{self, Steps};
use super::with_memory;
use crate::{
    Arrival, Crossing, Holding, Loss, MachineName, Pipeline, Plan, Precision, Proof, Recipe, Recompute,
    Stage, Term,
};

/// A pipeline of some stages `x = x w` on one or two devices each.
pub(crate) fn random(u: &mut Unstructured<'_>) -> Result<Pipeline> {
    of_stages(u, Precision::F32, text)
}

/// One of stages `x = x w v`, where all have the same v; parameters are rounded by chance.
pub(crate) fn rounded(u: &mut Unstructured<'_>) -> Result<Pipeline> {
    of_stages(u, Precision::Bf16Stochastic, rounded_text)
}

/// A pipeline of stages whose programs are written so, by their number and how many there are.
fn of_stages(
    u: &mut Unstructured<'_>,
    precision: Precision,
    text: fn(usize, usize) -> String,
) -> Result<Pipeline> {
    let groups: usize = u.int_in_range(2..=3)?;
    let kinds = [Kind::GPipe, Kind::Eager, Kind::ZeroBubbleH1, Kind::Interleaved, Kind::InterleavedDelayed];
    let kind = *u.choose(&kinds)?;
    let chunks = if kind.interleaves() { 2 } else { 1 };
    let stages = groups * chunks;
    let each = u.int_in_range(1..=2_u64)?;
    let recipe = Recipe {
        precision,
        micro_batches: 6,
        recompute: vec![Recompute::Nothing; stages],
        roles: crate::Roles::default(),
        ..Recipe::new(Loss::Output("loss".to_owned()), OPTIMIZER)
    };
    let schedule = kind.schedule(groups, chunks, 6).expect("six are a multiple of one, two and three");
    let stage = |number: usize, u: &mut Unstructured<'_>| {
        let graph = parse_graph(&text(number, stages)).expect("the text is that of a graph");
        let plan = maker::plan(graph, Mesh::of_sizes(&[each]), Steps::One, u)?;
        let plan = with_memory(Plan { recipe: Some(recipe.clone()), ..plan });
        let plan = Plan { capacity: CAPACITY, ..plan };
        let group = u64::try_from(number % groups).expect("it is small");
        let adapters = u.int_in_range(1..=2)?;
        Ok(Stage { first_block: 2 * number, first_device: group * each, adapters, plan })
    };
    let planned = (0..stages).map(|number| stage(number, u)).collect::<Result<Vec<_>>>()?;
    let work: f64 = planned.iter().map(|stage: &Stage| stage.plan.seconds()).sum();
    let devices = u64::try_from(groups).expect("it is small") * each;
    Ok(Pipeline {
        machine: MachineName { name: "cpu".to_owned(), devices, sha256: None },
        devices_per_node: u.int_in_range(1..=4)?,
        schedule,
        stages: planned,
        crossings: (0..stages.saturating_sub(1)).flat_map(between).collect(),
        recipe,
        estimate: vec![Term { name: "busiest stage".to_owned(), seconds: work }],
        memory: vec![vec![Holding { kind: "weights".to_owned(), bytes: 2048 }]; groups],
        capacity: CAPACITY,
        proof: if u.arbitrary()? { Proof::Optimal } else { Proof::Gap { lower_bound: work / 2.0 } },
    })
}

/// What a device can hold (bytes).
const CAPACITY: u64 = 1 << 30;

const OPTIMIZER: Optimizer = Optimizer::Sgd { decay: Real(0.5) };

/// What crosses between a stage and the next: its results, and their gradient.
fn between(stage: usize) -> [Crossing; 2] {
    let arrival =
        |stage| Arrival { stage, strategy: "broadcast".to_owned(), chunks: 16, bytes: 512, seconds: 1.5e-6 };
    [(format!("crossing:{stage}"), stage, stage + 1), (format!("crossing:{stage}b"), stage + 1, stage)]
        .map(|(name, from, to)| Crossing { name, from, to: vec![arrival(to)] })
}

/// The names of a stage's two inputs, and its outputs, which are these values.
fn ends(stage: usize, stages: usize, [forward, backward]: [&str; 2]) -> [String; 3] {
    let input = stage.checked_sub(1).map_or("x".to_owned(), |before| format!("crossing:{before}"));
    let back = if stage + 1 < stages { format!("crossing:{stage}b") } else { "y".to_owned() };
    let forward = (stage + 1 < stages).then(|| format!("\"crossing:{stage}\" {forward}"));
    let backward = stage.checked_sub(1).map(|before| format!("\"crossing:{before}b\" {backward}"));
    let outputs: Vec<String> = forward.into_iter().chain(backward).collect();
    [input, back, outputs.join(", ")]
}

fn text(stage: usize, stages: usize) -> String {
    let [input, back, outputs] = ends(stage, stages, ["%5", "%8"]);
    let update = Op::Update(OPTIMIZER);
    format!(
        r#"graph "stage" {{
  %0 = input "{input}" : f32[8,16]
  %1 = input "{back}" : f32[8,16]
  %2 = input "rate" : f32[]
  %3 = parameter "w{stage}" : f32[16,16]
  %4 = gradient "w{stage}" : f32[16,16]
  %5 = contract "ab,bc->ac" %0 %3 : f32[8,16]
  %6 = contract "ab,ac->bc" %0 %1 : f32[16,16] in gradient
  %7 = add %4 %6 : f32[16,16] in gradient
  %8 = contract "ac,bc->ab" %1 %3 : f32[8,16] in backward
  %9 = reciprocal %2 : f32[] in update
  %10 = {update} %3 %7 %9 %2 : f32[16,16] in update
  return {outputs}
  train 6 %3 becomes %10, %4 becomes %7
}}
"#
    )
}

fn rounded_text(stage: usize, stages: usize) -> String {
    let [input, back, outputs] = ends(stage, stages, ["%11", "%17"]);
    let update = Op::Update(OPTIMIZER);
    let block = stage + 1;
    format!(
        r#"graph "stage" {{
  %0 = input "{input}" : f32[8,16]
  %1 = input "{back}" : f32[8,16]
  %2 = input "rate" : f32[]
  %3 = input "rounding" : i64[]
  %4 = parameter "w{stage}" : bf16[16,16]
  %5 = gradient "w{stage}" : f32[16,16]
  %6 = parameter "v" : bf16[16,16]
  %7 = gradient "v" : f32[16,16]
  %8 = cast to=f32 %4 : f32[16,16]
  %9 = cast to=f32 %6 : f32[16,16]
  %10 = contract "ab,bc->ac" %0 %8 : f32[8,16]
  %11 = contract "ab,bc->ac" %10 %9 : f32[8,16]
  %12 = contract "ab,ac->bc" %10 %1 : f32[16,16] in gradient
  %13 = add %7 %12 : f32[16,16] in gradient
  %14 = contract "ac,bc->ab" %1 %9 : f32[8,16] in backward
  %15 = contract "ab,ac->bc" %0 %14 : f32[16,16] in gradient
  %16 = add %5 %15 : f32[16,16] in gradient
  %17 = contract "ac,bc->ab" %14 %8 : f32[8,16] in backward
  %18 = reciprocal %2 : f32[] in update
  %19 = cast to=f32 %4 : f32[16,16] in update
  %20 = {update} %19 %16 %18 %2 : f32[16,16] in update
  %21 = fill type=i64[] value={block}.0 : i64[] in update
  %22 = add %3 %21 : i64[] in update
  %23 = round_stochastically seed=0 %20 %22 : bf16[16,16] in update
  %24 = cast to=f32 %6 : f32[16,16] in update
  %25 = {update} %24 %13 %18 %2 : f32[16,16] in update
  %26 = fill type=i64[] value=1.0 : i64[] in update
  %27 = add %3 %26 : i64[] in update
  %28 = round_stochastically seed=1 %25 %27 : bf16[16,16] in update
  return {outputs}
  train 6 %4 becomes %23, %5 becomes %16, %6 becomes %28, %7 becomes %13
}}
"#
    )
}
