//! Plans for tests: a small one, a deep one, and random ones, all right.

mod graphs; // random programs
mod maker; // a plan of a program, by random choices
mod memory; // what the fullest device holds
pub(crate) mod pipelines; // random pipelines
pub(crate) mod steps; // training steps partitioned by hand
mod temporal; // random partitions in time
mod training; // random training steps

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{AxisId, Mesh, Move, Phase, ValueId, parse_graph, parse_layout, parse_partition};

use crate::{
    Assignment, Copy, Exchanged, Hidden, LeftOut, MachineName, ModelFile, Pin, Plan, Proof, SpaceSize, Term,
    Transfer,
};

use maker::Steps;
pub(crate) use maker::{empty, partitions};
pub(crate) use training::random as training_step;

/// Two layers of a network on two devices by two, as the choices of these bytes make it.
pub(crate) fn small() -> Plan {
    let graph = parse_graph(
        r#"graph "two layers" {
  %0 = input "x" : f32[4,8]
  %1 = weight "up" : f32[16,8]
  %2 = weight "down" : f32[16,8]
  %3 = transpose permutation=[1,0] %1 : f32[8,16] # origin "up.T"
  %4 = contract "ab,bc->ac" %0 %3 : f32[4,16] # origin "/up/MatMul"
  %5 = gelu %4 : f32[4,16]
  %6 = contract "ab,bc->ac" %5 %2 : f32[4,8] # origin "/down/MatMul"
  %7 = add %6 %0 : f32[4,8]
  return "y" %7
}
"#,
    );
    let mesh = Mesh::parse("data=2,model=2").unwrap();
    let bytes: Vec<u8> = (0..400u32).map(|it| u8::try_from(it * 37 % 251).unwrap()).collect();
    with_memory(maker::plan(graph.unwrap(), mesh, Steps::One, &mut Unstructured::new(&bytes)).unwrap())
}

/// The plan of the document: two products by column and row on two devices.
pub(crate) fn example() -> Plan {
    let graph = parse_graph(
        r#"graph "example" {
  %0 = input "x" : f32[4,8]
  %1 = weight "up" : f32[8,16]
  %2 = weight "down" : f32[16,8]
  %3 = contract "ab,bc->ac" %0 %1 : f32[4,16] # origin "/up/MatMul"
  %4 = gelu %3 : f32[4,16]
  %5 = contract "ab,bc->ac" %4 %2 : f32[4,8] # origin "/down/MatMul"
  return "y" %5
}
"#,
    )
    .unwrap();
    let mesh = Mesh::of_sizes(&[2]);
    let layout = |text: &str| parse_layout(&mesh, text).unwrap();
    let computed = |partition: &str, operands: usize, seconds: f64| Assignment::Computed {
        partition: parse_partition(&mesh, partition).unwrap(),
        operands: vec![Copy::Made; operands],
        bytes: vec![],
        seconds,
        exchanged: Exchanged::default(),
    };
    let texts = ["[-,-]", "[-,a]", "[a,-]", "[-,a]", "[-,a]", "[-,-] owes a"];
    let mut plan = Plan {
        model: ModelFile {
            path: "two-layers.onnx".to_owned(),
            sha256: "0123456789abcdef".repeat(4),
            dims: vec![("batch".to_owned(), 4)],
        },
        machine: MachineName { name: "h100-80g-2x".to_owned(), devices: 2, sha256: None },
        layouts: texts.into_iter().map(layout).collect(),
        assignments: vec![
            computed("[-,-,a]", 2, 4.5e-6),
            computed("[-,a]", 1, 2.25e-6),
            computed("[-,a,-]", 2, 4.5e-6),
        ],
        transfers: vec![Transfer {
            value: ValueId(5),
            from: Copy::Made,
            moves: vec![Move::AllReduce { axes: vec![AxisId(0)] }],
            layout: layout("[-,-]"),
            bytes: vec![256],
            seconds: vec![1.2e-5],
            waits: false,
        }],
        outputs: vec![Copy::Transferred(0)],
        carried: Vec::new(),
        recipe: None,
        pins: Vec::new(),
        controls: Vec::new(),
        estimate: vec![
            Term { name: "matrix products".to_owned(), seconds: 9e-6 },
            Term { name: "element-wise".to_owned(), seconds: 2.25e-6 },
            Term { name: "all-reduce".to_owned(), seconds: 1.2e-5 },
        ],
        hidden: Hidden::default(),
        memory: vec![],
        capacity: 80_000_000_000,
        proof: Proof::Optimal,
        space: SpaceSize {
            unique_blocks: 1,
            blocks: 1,
            nodes: 120,
            classes: 40,
            saturated: true,
            left_out: vec![],
            choices: 14,
        },
        mesh: mesh.clone(),
        graph,
    };
    plan.memory = memory::holdings(&plan);
    plan
}

/// So many layers of a network on four devices, each with its own weights; without its memory.
pub(crate) fn deep(layers: usize) -> Plan {
    let mut text = "graph \"deep\" {\n  %0 = input \"x\" : f32[64,128]\n".to_owned();
    let (mut next, mut last) = (1, 0);
    for layer in 0..layers {
        for (product, shape) in ["q", "k", "v", "o", "up"].into_iter().map(|it| (it, "f32[128,128]")) {
            text +=
                &format!("  %{next} = weight \"transformer.layers.{layer}.{product}.weight\" : {shape}\n");
            let origin = format!("/transformer/layers.{layer}/{product}");
            for (offset, op) in [
                (1, format!("contract \"ab,bc->ac\" %{last} %{next}")),
                (2, format!("gelu %{}", next + 1)),
                (3, format!("neg %{}", next + 2)),
                (4, format!("add %{} %{last}", next + 3)),
            ] {
                text +=
                    &format!("  %{} = {op} : f32[64,128] # origin \"{origin}/{offset}\"\n", next + offset);
            }
            (last, next) = (next + 4, next + 5);
        }
    }
    text += &format!("  return \"y\" %{last}\n}}\n");
    let bytes: Vec<u8> = (0..layers * 4_000).map(|it| u8::try_from(it % 4_000 * 37 % 251).unwrap()).collect();
    let graph = parse_graph(&text).unwrap();
    maker::plan(graph, Mesh::of_sizes(&[2, 2]), Steps::One, &mut Unstructured::new(&bytes)).unwrap()
}

/// The meshes of random plans.
const MESHES: [&[u64]; 8] = [&[2], &[2, 2], &[4], &[2, 4], &[2, 2, 2], &[4, 1], &[1, 2], &[1]];

/// A plan of a random program on a random mesh.
pub(crate) fn random(u: &mut Unstructured<'_>) -> Result<Plan> {
    let mesh = Mesh::of_sizes(u.choose(&MESHES)?);
    if u.ratio(1, 3)? {
        let (graph, recipe) = training::random(u)?;
        let plan = maker::plan(graph, mesh, Steps::Any, u)?;
        return Ok(with_memory(Plan { recipe: Some(recipe), ..narrowed(pinned(plan, u)?, u)? }));
    }
    let graph = graphs::random(u)?;
    let plan = maker::plan(graph, mesh, Steps::Any, u)?;
    Ok(with_memory(narrowed(pinned(plan, u)?, u)?))
}

/// The plan, one of whose forward operations may have been fixed to be computed as it is.
fn pinned(mut plan: Plan, u: &mut Unstructured<'_>) -> Result<Plan> {
    let nodes = plan.graph.nodes.iter_mut().zip(&plan.assignments);
    let mut forward: Vec<_> = nodes.filter(|(node, _)| node.phase == Phase::Forward).collect();
    if !forward.is_empty() && u.arbitrary()? {
        let (node, assignment) = forward.swap_remove(u.choose_index(forward.len())?);
        if let Assignment::Computed { partition, .. } = assignment {
            node.origin = "/pinned/MatMul".to_owned();
            plan.pins.push(Pin { operations: "/pinned/*".to_owned(), partition: partition.clone() });
        }
    }
    Ok(plan)
}

/// The plan, of whose search something may have been left out.
fn narrowed(mut plan: Plan, u: &mut Unstructured<'_>) -> Result<Plan> {
    for it in [LeftOut::Stripes, LeftOut::Skews, LeftOut::Steps, LeftOut::Splits] {
        if u.ratio(1, 4)? {
            plan.space.left_out.push(it);
        }
    }
    plan.space.saturated = plan.space.left_out.is_empty();
    Ok(plan)
}

/// The plan with what the fullest device holds, and a capacity for that.
pub(crate) fn with_memory(mut plan: Plan) -> Plan {
    plan.memory = memory::holdings(&plan);
    plan.capacity = crate::held(&plan.memory) + 64;
    plan
}
