//! Counts of small programs.

use planner_ir::{DType, State, parse_graph};

use super::*;

/// Tokens `[2,16]` looked up, a trained and a frozen product, attention of the results, an outer product, a product
/// of weights alone.
const PROGRAM: &str = r#"graph "small" {
  %0 = input "ids" : i64[2,16]
  %1 = weight "table" : bf16[100,8]
  %2 = gather dim=0 %1 %0 : bf16[2,16,8]
  %3 = weight "trained" : bf16[8,8]
  %4 = contract "abk,kn->abn" %2 %3 : bf16[2,16,8]
  %5 = weight "frozen" : bf16[8,24]
  %6 = contract "abk,kn->abn" %4 %5 : bf16[2,16,24]
  %7 = contract "abk,ack->abc" %6 %6 : bf16[2,16,16]
  %8 = contract "kn,nm->km" %3 %5 : bf16[8,24]
  %9 = input "one" : bf16[16,1]
  %10 = input "other" : bf16[1,16]
  %11 = contract "ak,kb->ab" %9 %10 : bf16[16,16]
  return "scores" %7, "weights" %8, "outer" %11
}
"#;

fn counted(graph: &Graph) -> [Flops; 3] {
    let work = StepWork::of(graph, &|_| false);
    assert_eq!(work.tokens, 32);
    let all = work.flops.all();
    assert_eq!(all, work.flops.0[&Precision::Bf16], "all in one arithmetic");
    [all.products, all.attention, all.seen]
}

#[test]
fn products_count_once_and_once_more_for_each_gradient() {
    let mut graph = parse_graph(PROGRAM).unwrap();
    let (first, second) = (2.0 * 32.0 * 8.0 * 8.0, 2.0 * 32.0 * 8.0 * 24.0);
    let scores = 2.0 * 2.0 * 16.0 * 16.0 * 24.0;
    assert_eq!(counted(&graph), [first + second, scores, scores].map(Flops), "an answer");
    let trained = State { kind: StateKind::Parameter, name: "trained".to_owned() };
    graph.values[3].source = Source::State(trained);
    // What comes before a trained weight has no gradient, a frozen one has none itself.
    assert_eq!(
        counted(&graph),
        [2.0 * first + 2.0 * second, 3.0 * scores, 3.0 * scores].map(Flops),
        "a weight is trained"
    );
    graph.nodes[1].phase = Phase::Backward;
    assert_eq!(counted(&graph)[0], Flops(2.0 * second), "what is done again does not count");
}

/// A stage does not see which of its inputs have gradients: it is told.
#[test]
fn what_stages_get_from_others_may_have_a_gradient() {
    let mut graph = parse_graph(PROGRAM).unwrap();
    graph.values[2].source = Source::Input("crossing".to_owned());
    let flops = |learned: bool| {
        let work = StepWork::of(&graph, &|name| learned && name == "crossing");
        (work.flops.all().products, work.learned)
    };
    let (alone, nothing) = flops(false);
    let (beside, outputs) = flops(true);
    assert_eq!(beside, 2.0 * alone);
    assert_eq!((nothing, outputs), (BTreeSet::new(), BTreeSet::from(["scores".to_owned()])));
    assert_eq!(graph.value(ValueId(2)).type_.dtype, DType::BF16);
}
