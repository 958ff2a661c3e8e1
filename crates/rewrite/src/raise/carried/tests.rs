//! Sequences that are written out compute the same as scans.

use planner_ir::{Graph, Op, Recurrence, Source, parse_graph};

use super::carried;
use crate::raise::placed::placed;
use crate::raise::share::shared;
use crate::raise::tests::evaluate::{Dice, evaluate};

/// A sequence of three tokens as exporters of Mamba write it: decays and what is added by head, token and
/// row, the results' weights by token and row.
fn written_out() -> String {
    let mut text = r#"graph "scan" {
  %0 = input "g" : f32[2,3,3,4]
  %1 = input "k" : f32[2,1,3,4]
  %2 = input "v" : f32[2,3,3,1]
  %3 = input "c" : f32[2,3,4]
  %4 = input "h" : f32[2,3,4]
  %5 = exp %0 : f32[2,3,3,4]
  %6 = mul %1 %2 : f32[2,3,3,4]
"#
    .to_owned();
    let (mut next, mut state, mut parts) = (7, 4, Vec::new());
    for token in 0..3 {
        for (from, sizes, kept) in [(5, "2,3,1,4", "2,3,4"), (6, "2,3,1,4", "2,3,4"), (3, "2,1,4", "2,4,1")] {
            let starts = if from == 3 { format!("0,{token},0") } else { format!("0,0,{token},0") };
            let steps = if from == 3 { "1,1,1" } else { "1,1,1,1" };
            text += &format!(
                "  %{next} = slice starts=[{starts}] steps=[{steps}] sizes=[{sizes}] %{from} : f32[{sizes}]\n"
            );
            text += &format!("  %{} = reshape shape=[{kept}] %{next} : f32[{kept}]\n", next + 1);
            next += 2;
        }
        let (decay, added, weights) = (next - 5, next - 3, next - 1);
        text += &format!("  %{next} = mul %{decay} %{state} : f32[2,3,4]\n");
        text += &format!("  %{} = add %{next} %{added} : f32[2,3,4]\n", next + 1);
        state = next + 1;
        text += &format!("  %{} = contract \"dac,dcb->dab\" %{state} %{weights} : f32[2,3,1]\n", next + 2);
        parts.push(format!("%{}", next + 2));
        next += 3;
    }
    text + &format!("  %{next} = concat dim=2 {} : f32[2,3,3]\n  return \"y\" %{next}\n}}\n", parts.join(" "))
}

/// The graph with scans, if it computes the same.
fn found(text: &str) -> Graph {
    let graph = parse_graph(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let found = shared(&carried(&placed(&graph)));
    planner_ir::verify(&found).unwrap();
    let mut dice = Dice { state: 1, below: 7 };
    let outside = graph.values.iter().filter(|it| !matches!(it.source, Source::Result { .. }));
    let arrays: Vec<_> = outside.map(|it| dice.array(&it.type_)).collect();
    let [expected, made] = [&graph, &found].map(|it| evaluate(it, &arrays).unwrap().remove(0));
    assert_eq!(made.type_(), expected.type_());
    let largest = expected.to_floats().unwrap().iter().fold(1.0_f64, |largest, it| largest.max(it.abs()));
    for (made, expected) in made.to_floats().unwrap().iter().zip(expected.to_floats().unwrap()) {
        assert!((made - expected).abs() <= 1e-5 * largest, "{made}, expected {expected}\n{found}");
    }
    found
}

fn scans(graph: &Graph) -> usize {
    graph.nodes.iter().filter(|it| it.op == Op::Recurrence(Recurrence::SelectiveScan)).count()
}

#[test]
fn a_sequence_written_out_is_one_scan() {
    let found = found(&written_out());
    assert_eq!(scans(&found), 1, "{found}");
    let sums = found.nodes.iter().filter(|it| matches!(it.op, Op::Contract(_))).count();
    assert_eq!(sums, 0, "{found}");
}

#[test]
fn tokens_that_do_not_do_the_same_stay_apart() {
    let text = written_out();
    // A token twice, a state that does not follow, results in another order.
    let turned = text.replace(
        "starts=[0,0,2,0] steps=[1,1,1,1] sizes=[2,3,1,4] %5",
        "starts=[0,0,1,0] steps=[1,1,1,1] sizes=[2,3,1,4] %5",
    );
    let last = text.lines().find(|it| it.contains("concat")).unwrap().to_owned();
    let names: Vec<&str> = last.split_whitespace().filter(|it| it.starts_with('%')).collect();
    let other = last.replace(&format!("{} {}", names[1], names[2]), &format!("{} {}", names[2], names[1]));
    let second = text.lines().filter(|it| it.contains("= mul")).nth(2).unwrap().to_owned();
    let state = second.split_whitespace().nth(4).unwrap();
    let broken = second.replace(state, "%4");
    for changed in [turned, text.replace(&last, &other), text.replace(&second, &broken)] {
        assert_ne!(changed, text);
        assert_eq!(scans(&found(&changed)), 0, "{changed}");
    }
}

#[test]
fn heads_are_not_repeated_for_a_recurrence() {
    let text = r#"graph "heads" {
  %0 = input "q" : f32[2,3,2,1,4]
  %1 = input "k" : f32[2,3,2,1,4]
  %2 = input "v" : f32[2,3,6,5]
  %3 = input "g" : f32[2,3,6,1]
  %4 = input "h" : f32[2,6,4,5]
  %5 = expand shape=[2,3,2,3,4] %0 : f32[2,3,2,3,4]
  %6 = expand shape=[2,3,2,3,4] %1 : f32[2,3,2,3,4]
  %7 = reshape shape=[2,3,24] %5 : f32[2,3,24]
  %8 = reshape shape=[2,3,6,4] %7 : f32[2,3,6,4]
  %9 = reshape shape=[2,3,6,4] %6 : f32[2,3,6,4]
  %10, %11 = selective_scan %8 %9 %2 %3 %4 : f32[2,3,6,5], f32[2,6,4,5]
  return "y" %10, "last" %11
}
"#;
    let found = found(text);
    assert!(!found.nodes.iter().any(|it| matches!(it.op, Op::Expand { .. })), "{found}");
    // Of the keys alone.
    let text = text
        .replace("selective_scan %8 %9", "selective_scan %8 %8")
        .replace("%9 = reshape shape=[2,3,6,4] %6", "%9 = reshape shape=[2,3,6,4] %7");
    assert_eq!(scans(&self::found(&text)), 1);
}
