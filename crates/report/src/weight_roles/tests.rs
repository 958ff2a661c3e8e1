//! Tests of what is said of weights.

use ::plan::{Constant, Roles, Tie, Why};
use expect_test::expect;
use planner_ir::parse_graph;

use super::Weights;

#[test]
fn weights_are_said_by_reasons_and_alike_names_together() {
    let graph = parse_graph(
        "graph \"step\" {
  %0 = parameter \"layers.0.weight\" : f32[4,4]
  %1 = parameter \"layers.1.weight\" : f32[4,4]
  %2 = weight \"layers.0.bias\" : f32[4]
  %3 = weight \"layers.1.bias\" : f32[4]
  %4 = weight \"val_7\" : f32[1,1,6,6]
  %5 = weight \"far\" : f32[4]
  %6 = weight \"positions\" : i64[6]
  return \"loss\" %5
}
",
    )
    .unwrap();
    let roles = Roles {
        frozen: vec!["*.bias".to_owned()],
        constants: vec![Constant { name: "val_7".to_owned(), why: Why::Mask }],
        ties: vec![Tie {
            copy: "val_9".to_owned(),
            original: "layers.0.weight".to_owned(),
            transposed: true,
        }],
        ..Roles::default()
    };
    let weights = Weights::of(std::iter::once(&graph), &roles, None);
    expect![[r"
        trains     32 parameters in 2 tensors; 5 weights stay as they are
        constant   val_7: a mask: 0, and numbers so low that softmax makes them 0
        frozen     layers.*.bias (2): as asked
        unreached  far: no gradient reaches them
        tied       val_9: trained as `layers.0.weight`, transposed, whose copy it is (`--untie` parts them)"]]
    .assert_eq(&weights.lines().join("\n"));
    expect![[r#"{"constant":[{"name":"val_7","why":"mask"}],"frozen":["layers.0.bias","layers.1.bias"],"shared":[],"tied":[{"copy":"val_9","original":"layers.0.weight","transposed":true}],"trained":[{"name":"layers.0.weight","type":"f32[4,4]","why":null},{"name":"layers.1.weight","type":"f32[4,4]","why":null}],"unreached":["far"]}"#]]
    .assert_eq(&weights.json().to_string());
}
