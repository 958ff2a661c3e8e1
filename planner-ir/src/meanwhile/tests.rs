//! What may be computed while rows are exchanged, in small programs.

use crate::graph::NodeId;
use crate::text::parse_graph;

/// A layer of experts, two for some tokens each and one for all, whose sum is normed and used by a second layer.
const LAYERS: &str = r#"graph "mixture" {
  %0 = input "x" : f32[4,8]
  %1 = input "gates" : f32[4,2]
  %2 = weight "up" : f32[2,4,8]
  %3 = weight "down" : f32[2,8,4]
  %4 = weight "shared.up" : f32[4,8]
  %5 = weight "shared.down" : f32[8,4]
  %6 = weight "norm" : f32[8]
  %7 = relu %0 : f32[4,8]
  %8 = experts activation=silu active=1 %7 %1 %2 %3 : f32[4,8]
  %9 = contract "tc,uc->tu" %7 %4 : f32[4,4]
  %10 = relu %9 : f32[4,4]
  %11 = contract "tu,cu->tc" %10 %5 : f32[4,8]
  %12 = reshape shape=[4,8] %8 : f32[4,8]
  %13 = add %12 %11 : f32[4,8]
  %14 = add %0 %13 : f32[4,8]
  %15 = rms_norm dims=1 epsilon=0.00001 %14 %6 : f32[4,8]
  %16 = experts activation=silu active=1 %15 %1 %2 %3 : f32[4,8]
  %17 = contract "tc,uc->tu" %15 %4 : f32[4,4]
  %18 = add %14 %16 : f32[4,8]
  return "y" %18, "z" %17
}
"#;

/// Experts of what experts of all tokens make, to which that is added.
const LEADING: &str = r#"graph "chain" {
  %0 = input "x" : f32[4,8]
  %1 = input "gates" : f32[4,2]
  %2 = weight "up" : f32[2,4,8]
  %3 = weight "down" : f32[2,8,4]
  %4 = weight "shared.up" : f32[4,8]
  %5 = weight "shared.down" : f32[8,4]
  %6 = contract "tc,uc->tu" %0 %4 : f32[4,4]
  %7 = contract "tu,cu->tc" %6 %5 : f32[4,8]
  %8 = experts activation=silu active=1 %7 %1 %2 %3 : f32[4,8]
  %9 = add %8 %7 : f32[4,8]
  return "y" %9
}
"#;

fn beside(text: &str) -> Vec<(NodeId, Vec<NodeId>)> {
    parse_graph(text).unwrap().meanwhile().into_iter().map(|it| (it.routed, it.computed)).collect()
}

#[test]
fn experts_of_all_tokens_are_computed_while_rows_go_to_others() {
    // Nothing is added to what the second experts make but what leads to them.
    assert_eq!(beside(LAYERS), [(NodeId(1), vec![NodeId(2), NodeId(3), NodeId(4)]), (NodeId(9), vec![])]);
}

#[test]
fn operations_that_lead_to_experts_or_come_of_them_are_not() {
    assert_eq!(beside(LEADING), [(NodeId(2), vec![])]);
    let comes = LAYERS.replace("\"tc,uc->tu\" %7 %4", "\"tc,uc->tu\" %8 %4");
    assert_eq!(beside(&comes)[0], (NodeId(1), vec![]));
}

#[test]
fn operations_of_other_phases_are_not() {
    let later = LAYERS.replace("%10 = relu %9 : f32[4,4]", "%10 = relu %9 : f32[4,4] in backward");
    assert_eq!(beside(&later)[0], (NodeId(1), vec![NodeId(4)]));
}
