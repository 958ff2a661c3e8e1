//! Plans for tests: a small one, a deep one, and random ones, all right.

mod graphs; // random programs
mod maker; // a plan of a program, by random choices
mod memory; // what the fullest device holds

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{Mesh, parse_graph};

use crate::Plan;

pub(crate) use maker::partitions;

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
    maker::plan(graph.unwrap(), mesh, &mut Unstructured::new(&bytes)).unwrap()
}

/// The meshes of random plans.
const MESHES: [&[u64]; 8] = [&[2], &[2, 2], &[4], &[2, 4], &[2, 2, 2], &[4, 1], &[1, 2], &[1]];

/// A plan of a random program on a random mesh.
pub(crate) fn random(u: &mut Unstructured<'_>) -> Result<Plan> {
    let mesh = Mesh::of_sizes(u.choose(&MESHES)?);
    let graph = graphs::random(u)?;
    maker::plan(graph, mesh, u)
}
