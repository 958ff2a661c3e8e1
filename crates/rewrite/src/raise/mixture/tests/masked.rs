//! Rows that masks mark, a region for each expert.

use std::fmt::Write as _;

use kernels::Array;
use planner_ir::{Graph, Op, Source, parse_graph};

use super::regions;
use crate::raise::mixture::mixed;
use crate::raise::share::shared;
use crate::raise::tests::evaluate::{Dice, difference, evaluate, tolerance};

const EXPERTS: usize = 4;

/// An expert of 3 numbers and 4 units for 5 tokens of 2 choices; its mask is of choices and tokens.
const CHOICES_FIRST: &str = "region body={
    takes 6
    %6 = iota dtype=i64 length=2 start=-1.0 step=4.0
    %7 = fill type=i64[2] value=1.0
    %8 = fill type=i64[1] value=2.0
    %9 = fill type=i64[1] value=1.0
    %10 = iota dtype=i64 length=2 start=-1.0 step=2.0
    %11 = iota dtype=i64 length=2 start=1.0 step=2.0
    %12 = fill type=f32[5,3] value=0.0
    %13 = dynamic_non_zero %0
    %14 = transpose permutation=[1,0] %13
    %15, %16 = dynamic_split dim=1 %14 %7
    %17 = dynamic_squeeze dims=[1] %15
    %18 = dynamic_squeeze dims=[1] %16
    %19 = gather dim=1 %1 %18
    %20 = dynamic_reshape zero_is_zero=false %19 %6
    %21 = contract \"ab,bc->ac\" %20 %2
    %22 = sigmoid %21
    %23 = mul %21 %22
    %24 = contract \"ab,bc->ac\" %20 %3
    %25 = mul %23 %24
    %26 = contract \"ab,bc->ac\" %25 %4
    %27 = mul %18 %8
    %28 = add %17 %27
    %29 = gather dim=0 %5 %28
    %30 = dynamic_shape %28
    %31 = dynamic_reshape zero_is_zero=false %29 %10
    %32 = concat dim=0 %30 %9
    %33 = dynamic_reshape zero_is_zero=false %31 %32
    %34 = mul %26 %33
    %35 = cast to=f32 %34
    %36 = dynamic_expand %35 %11
    %37 = dynamic_unsqueeze dims=[1] %18
    %38 = dynamic_shape %36
    %39 = dynamic_expand %37 %38
    %40 = scatter_elements dim=0 scatter=replace %12 %39 %36
    return %40 : f32[5,3]
  }";

/// The same expert; its mask is of tokens and choices.
const TOKENS_FIRST: &str = "region body={
    takes 6
    %6 = fill type=i64[2] value=1.0
    %7 = fill type=i64[1] value=2.0
    %8 = fill type=i64[1] value=-1.0
    %9 = iota dtype=i64 length=2 start=1.0 step=2.0
    %10 = fill type=f32[5,3] value=0.0
    %11 = dynamic_non_zero %0
    %12 = transpose permutation=[1,0] %11
    %13, %14 = dynamic_split dim=1 %12 %6
    %15 = dynamic_squeeze dims=[1] %13
    %16 = dynamic_squeeze dims=[1] %14
    %17 = mul %15 %7
    %18 = add %16 %17
    %19 = gather dim=0 %5 %18
    %20 = dynamic_shape %18
    %21 = dynamic_reshape zero_is_zero=false %19 %8
    %22 = dynamic_reshape zero_is_zero=false %21 %20
    %23 = gather dim=0 %1 %15
    %24 = contract \"ab,bc->ac\" %23 %2
    %25 = sigmoid %24
    %26 = mul %24 %25
    %27 = contract \"ab,bc->ac\" %23 %3
    %28 = mul %26 %27
    %29 = contract \"ab,bc->ac\" %28 %4
    %30 = dynamic_unsqueeze dims=[1] %22
    %31 = mul %29 %30
    %32 = dynamic_expand %31 %9
    %33 = dynamic_unsqueeze dims=[1] %15
    %34 = dynamic_shape %32
    %35 = dynamic_expand %33 %34
    %36 = scatter_elements dim=0 scatter=replace %10 %35 %32
    return %36 : f32[5,3]
  }";

/// The places of the experts that any token chose, if all were chosen.
const HIT: &str = "region body={
    takes 1
    %1 = fill type=i64[4] value=1.0
    %2 = dynamic_non_zero %0
    %3 = transpose permutation=[1,0] %2
    %4, %5, %6, %7 = dynamic_split dim=0 %3 %1
    return %4 %5 %6 %7 : i64[1,1], i64[1,1], i64[1,1], i64[1,1]
  }";

/// Which spelling.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spelling {
    /// Masks of choices and tokens; experts are those that are chosen.
    ChoicesFirst,
    /// Masks of tokens and choices; experts have numbers.
    TokensFirst,
}

/// What a graph has besides.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Besides {
    /// Nothing.
    Nothing,
    /// Negative numbers of experts, which count from the end.
    FromTheEnd,
    /// Weights that are transposed before they are used.
    Transposed,
    /// Numbers of experts that are given and not chosen.
    Given,
    /// More experts to choose from, which compute nothing.
    Others,
    /// The tokens themselves, added in the end.
    Tokens,
    /// The last expert, added once more.
    Again,
    /// Other tokens for the last expert.
    OtherTokens,
    /// Other shares of the last expert.
    OtherShares,
    /// One expert fewer where the export was made, and the last by its number.
    Three,
}

/// The text of a graph, and how many values it has.
struct Text {
    text: String,
    values: usize,
}

impl Text {
    /// Adds a line whose first value has the number that is returned.
    fn add(&mut self, made: &str, types: &str) -> usize {
        let first = self.values;
        self.values += types.matches('[').count();
        let names: Vec<String> = (first..self.values).map(|it| format!("%{it}")).collect();
        writeln!(self.text, "  {} = {made} : {types}", names.join(", ")).unwrap();
        first
    }
}

/// A mixture of four experts, of which each of 5 tokens chooses two, never the idle ones.
fn spelled(spelling: Spelling, idle: &[usize]) -> String {
    spelled_with(spelling, idle, Besides::Nothing)
}

fn spelled_with(spelling: Spelling, idle: &[usize], besides: Besides) -> String {
    let mut it = Text { text: "graph \"masked\" {\n".to_owned(), values: 0 };
    let x = it.add("input \"x\"", "f32[5,3]");
    let given = it.add("input \"given\"", "i64[5,2]");
    let scores = it.add("input \"scores\"", "f32[5,4]");
    let bias: Vec<&str> = (0..EXPERTS).map(|it| if idle.contains(&it) { "-4" } else { "0" }).collect();
    let bias = it.add(&format!("constant type=i64[4] data=[{}]", bias.join(",")), "i64[4]");
    let bias = it.add(&format!("cast to=f32 %{bias}"), "f32[4]");
    let mut scores = it.add(&format!("add %{scores} %{bias}"), "f32[5,4]");
    if besides == Besides::Others {
        scores = it.add(&format!("concat dim=1 %{scores} %{scores}"), "f32[5,8]");
    }
    let mut weight = |index: usize| {
        let [from, to] = if index % 3 == 2 { ["4,3", "3,4"] } else { ["3,4", "4,3"] };
        if besides != Besides::Transposed {
            return it.add(&format!("weight \"{index}\""), &format!("f32[{from}]"));
        }
        let weight = it.add(&format!("weight \"{index}\""), &format!("f32[{to}]"));
        it.add(&format!("transpose permutation=[1,0] %{weight}"), &format!("f32[{from}]"))
    };
    let weights: Vec<usize> = (0..3 * EXPERTS).map(&mut weight).collect();
    let top = it.add(&format!("top_k dim=1 k=2 extreme=largest %{scores}"), "f32[5,2], i64[5,2]");
    let shares = it.add(&format!("tanh %{top}"), "f32[5,2]");
    let one = it.add("fill type=i64[] value=1.0", "i64[]");
    let none = it.add("fill type=i64[] value=0.0", "i64[]");
    let mut chosen = if besides == Besides::Given { given } else { top + 1 };
    if besides == Besides::FromTheEnd {
        let count = it.add("fill type=i64[] value=4.0", "i64[]");
        let negative = it.add(&format!("less %{chosen} %{none}"), "bool[5,2]");
        let moved = it.add(&format!("add %{chosen} %{count}"), "i64[5,2]");
        chosen = it.add(&format!("select %{negative} %{moved} %{chosen}"), "i64[5,2]");
    }
    let chosen = it.add(&format!("reshape shape=[5,2,1] %{chosen}"), "i64[5,2,1]");
    let numbers = it.add("constant type=i64[1,1,4] data=[0,1,2,3]", "i64[1,1,4]");
    let equal = it.add(&format!("equal %{chosen} %{numbers}"), "bool[5,2,4]");
    let one_hot = it.add(&format!("select %{equal} %{one} %{none}"), "i64[5,2,4]");
    let mut sum = it.add("fill type=f32[5,3] value=0.0", "f32[5,3]");
    let (permutation, extents) = match spelling {
        Spelling::ChoicesFirst => ("[2,1,0]", "2,5"),
        Spelling::TokensFirst => ("[2,0,1]", "5,2"),
    };
    let by_expert =
        it.add(&format!("transpose permutation={permutation} %{one_hot}"), &format!("i64[4,{extents}]"));
    let flat = it.add(&format!("reshape shape=[10,1] %{shares}"), "f32[10,1]");
    let rows = it.add(&format!("reshape shape=[1,5,3] %{x}"), "f32[1,5,3]");
    let hit = match spelling {
        Spelling::ChoicesFirst => {
            let counts = it.add(&format!("reduce_sum dims=[1,2] %{by_expert}"), "i64[4,1,1]");
            let counts = it.add(&format!("reshape shape=[4] %{counts}"), "i64[4]");
            let any = it.add(&format!("greater %{counts} %{none}"), "bool[4]");
            if besides == Besides::Three {
                let three =
                    HIT.replace("i64[4]", "i64[3]").replace(", %7", "").replace(" %7 : i64[1,1],", " :");
                it.add(&format!("{three} %{any}"), "i64[1,1], i64[1,1], i64[1,1]")
            } else {
                it.add(&format!("{HIT} %{any}"), "i64[1,1], i64[1,1], i64[1,1], i64[1,1]")
            }
        }
        Spelling::TokensFirst => 0,
    };
    for expert in 0..EXPERTS {
        let last = expert + 1 == EXPERTS;
        let (row, rows, body) = match spelling {
            Spelling::ChoicesFirst => {
                let number = match besides {
                    Besides::Three if last => it.add("fill type=i64[1] value=3.0", "i64[1]"),
                    _ => it.add(&format!("reshape shape=[1] %{}", hit + expert), "i64[1]"),
                };
                let row = it.add(&format!("gather dim=0 %{by_expert} %{number}"), "i64[1,2,5]");
                (it.add(&format!("reshape shape=[2,5] %{row}"), "i64[2,5]"), rows, CHOICES_FIRST)
            }
            Spelling::TokensFirst => {
                let number = it.add(&format!("fill type=i64[] value={expert}.0"), "i64[]");
                (it.add(&format!("gather dim=0 %{by_expert} %{number}"), "i64[5,2]"), x, TOKENS_FIRST)
            }
        };
        let mask = it.add(&format!("cast to=bool %{row}"), &format!("bool[{extents}]"));
        let of = &weights[3 * expert..];
        let rows = match besides {
            Besides::OtherTokens if last => it.add(&format!("tanh %{rows}"), "f32[5,3]"),
            _ => rows,
        };
        let flat = match besides {
            Besides::OtherShares if last => it.add(&format!("tanh %{flat}"), "f32[10,1]"),
            _ => flat,
        };
        let operands = format!("%{mask} %{rows} %{} %{} %{} %{flat}", of[0], of[1], of[2]);
        let part = it.add(&format!("{body} {operands}"), "f32[5,3]");
        sum = it.add(&format!("add %{sum} %{part}"), "f32[5,3]");
        if besides == Besides::Again && last {
            sum = it.add(&format!("add %{sum} %{part}"), "f32[5,3]");
        }
    }
    if besides == Besides::Tokens {
        sum = it.add(&format!("add %{sum} %{x}"), "f32[5,3]");
    }
    it.text + &format!("  return \"y\" %{sum}\n}}\n")
}

/// Values for what a graph is given.
fn outside(graph: &Graph, seed: u64) -> Vec<Array> {
    let mut dice = Dice { state: seed, below: 2 };
    let given = graph.values.iter().filter(|it| !matches!(it.source, Source::Result { .. }));
    given.map(|value| dice.array(&value.type_)).collect()
}

/// The graph of a text without regions, and how many of them are left.
fn raised(text: &str) -> (Graph, usize) {
    let graph = shared(&mixed(&parse_graph(text).unwrap()));
    planner_ir::verify(&graph).unwrap();
    let left = regions(&graph);
    (graph, left)
}

/// Computes two graphs on the same values, those that the second can be computed on; how often
/// that was.
fn compare(found: &Graph, expected: &Graph, seeds: std::ops::Range<u64>) -> usize {
    let mut compared = 0;
    for seed in seeds {
        let Ok(expected) = evaluate(expected, &outside(expected, seed)) else { continue };
        let found = evaluate(found, &outside(found, seed)).unwrap();
        compared += 1;
        for (found, expected) in found.iter().zip(&expected) {
            let apart = difference(found, expected);
            assert!(apart <= tolerance(expected.dtype()), "seed {seed}: off by {apart:e}");
        }
    }
    compared
}

/// No, one and two experts that no token chooses.
const IDLE: [&[usize]; 6] = [&[], &[0], &[1], &[3], &[0, 2], &[2, 3]];

#[test]
fn experts_by_number_compute_the_same_whoever_is_idle() {
    for idle in IDLE {
        let text = spelled(Spelling::TokensFirst, idle);
        let (found, left) = raised(&text);
        assert_eq!(left, 0);
        assert_eq!(compare(&found, &parse_graph(&text).unwrap(), 0..20), 20, "{idle:?}");
    }
}

#[test]
fn experts_that_are_chosen_compute_the_same_if_all_are() {
    let text = spelled(Spelling::ChoicesFirst, &[]);
    let (found, left) = raised(&text);
    assert_eq!(left, 0);
    let compared = compare(&found, &parse_graph(&text).unwrap(), 0..40);
    assert!(compared > 20, "{compared}");
}

/// The exported graph cannot be computed then; what it means is what experts by number compute.
#[test]
fn experts_that_are_chosen_are_those_by_number_if_some_are_idle() {
    for idle in &IDLE[1..] {
        let text = spelled(Spelling::ChoicesFirst, idle);
        let (found, _) = raised(&text);
        assert_eq!(compare(&found, &parse_graph(&text).unwrap(), 0..20), 0, "{idle:?}");
        let by_number = parse_graph(&spelled(Spelling::TokensFirst, idle)).unwrap();
        assert_eq!(compare(&found, &by_number, 0..20), 20, "{idle:?}");
    }
}

/// The text with something else, wherever it stands.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

/// Whether a text becomes a graph without regions that computes the same.
fn assert_same(text: &str) -> Graph {
    let (found, left) = raised(text);
    assert_eq!(left, 0, "{text}");
    assert_eq!(compare(&found, &parse_graph(text).unwrap(), 0..20), 20);
    found
}

#[test]
fn units_without_a_gate_and_scattered_sums_compute_the_same() {
    let text = spelled(Spelling::TokensFirst, &[1]);
    let text = replaced(&text, "%29 = contract \"ab,bc->ac\" %28 %4", "%29 = contract \"ab,bc->ac\" %26 %4");
    let found = assert_same(&replaced(&text, "scatter=replace", "scatter=add"));
    let experts = |it: &&planner_ir::Node| matches!(it.op, Op::Experts { active: 2, .. });
    assert_eq!(found.nodes.iter().find(experts).unwrap().operands.len(), 4);
}

#[test]
fn narrow_numbers_stay_narrow() {
    let text = replaced(&spelled(Spelling::TokensFirst, &[1]), "tanh", "sigmoid");
    assert_same(&replaced(&text, "f32", "bf16"));
}

#[test]
fn numbers_from_the_end_are_those_from_the_start() {
    assert_same(&spelled_with(Spelling::TokensFirst, &[0], Besides::FromTheEnd));
}

#[test]
fn weights_transposed_before_are_taken_as_they_were() {
    let found = assert_same(&spelled_with(Spelling::TokensFirst, &[0], Besides::Transposed));
    assert!(!found.nodes.iter().any(|it| matches!(it.op, Op::Transpose { .. })));
}

#[test]
fn what_is_added_to_all_experts_stays() {
    assert_same(&spelled_with(Spelling::TokensFirst, &[0], Besides::Tokens));
}

#[test]
fn an_expert_that_is_added_once_more_keeps_its_region() {
    let text = spelled_with(Spelling::TokensFirst, &[0], Besides::Again);
    let (found, left) = raised(&text);
    assert_eq!(left, 1);
    assert_eq!(compare(&found, &parse_graph(&text).unwrap(), 0..20), 20);
}

#[test]
fn a_part_of_a_sum_that_is_used_besides_keeps_its_regions() {
    let text = spelled(Spelling::TokensFirst, &[]);
    let sums: Vec<&str> = text.lines().filter(|it| it.contains("= add") && it.contains("[5,3]")).collect();
    let name = sums[1].trim().split(' ').next().unwrap();
    let text = replaced(&text, "  return \"y\"", &format!("  return \"part\" {name}, \"y\""));
    let (found, left) = raised(&text);
    assert_eq!(left, 2);
    assert!(found.nodes.iter().any(|it| matches!(it.op, Op::Experts { .. })));
    assert_eq!(compare(&found, &parse_graph(&text).unwrap(), 0..20), 20);
}

/// Checks that each change to the first place of a text leaves all its regions.
fn assert_left(spelling: Spelling, all: usize, changes: &[(&str, &str, &str)]) {
    let text = spelled(spelling, &[]);
    for &(what, from, to) in changes {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{what}");
        assert_eq!(regions(&mixed(&parse_graph(&changed).unwrap())), all, "{what}");
    }
}

#[test]
fn other_regions_over_masks_of_choices_are_left_alone() {
    let changes = [
        (
            "scattered into ones",
            "fill type=f32[5,3] value=0.0\n    %13",
            "fill type=f32[5,3] value=1.0\n    %13",
        ),
        ("rows of the choices", "gather dim=1 %1 %18", "gather dim=1 %1 %17"),
        ("scattered to the choices", "dynamic_unsqueeze dims=[1] %18", "dynamic_unsqueeze dims=[1] %17"),
        ("shares of other places", "%27 = mul %18 %8", "%27 = mul %18 %9"),
        ("shares of the token twice", "%28 = add %17 %27", "%28 = add %18 %27"),
        ("shares of the difference", "%28 = add %17 %27", "%28 = sub %17 %27"),
        ("shares added", "%34 = mul %26 %33", "%34 = add %26 %33"),
        ("shares in a row, not a column", "%32 = concat dim=0 %30 %9", "%32 = concat dim=0 %9 %30"),
        ("shares of shares", "%34 = mul %26 %33", "%34 = mul %33 %33"),
        ("a maximum", "scatter=replace", "scatter=max"),
        ("scattered along rows", "scatter_elements dim=0", "scatter_elements dim=1"),
        ("units added", "%25 = mul %23 %24", "%25 = add %23 %24"),
        ("no activation", "%23 = mul %21 %22", "%23 = add %21 %22"),
        ("weights transposed", "%24 = contract \"ab,bc->ac\"", "%24 = contract \"ab,cb->ac\""),
        ("rows apart", "length=2 start=-1.0 step=4.0", "length=2 start=-1.0 step=2.0"),
        ("other coordinates", "dynamic_split dim=1 %14", "dynamic_split dim=0 %14"),
        ("another conversion", "%35 = cast to=f32", "%35 = cast to=f64"),
    ];
    assert_left(Spelling::ChoicesFirst, EXPERTS + 1, &changes);
}

#[test]
fn other_regions_over_masks_of_tokens_are_left_alone() {
    let text = spelled(Spelling::TokensFirst, &[]);
    let line = |part: &str| text.lines().find(|it| it.contains(part)).unwrap();
    let chosen = line("reshape shape=[5,2,1]");
    let (name, _) = chosen.split_once(" = ").unwrap();
    let filled = format!("{name} = fill type=i64[5,2,1] value=1.0 : i64[5,2,1]");
    let one_hot = line("= select");
    let [.., equal, one, none, _, _] = one_hot.split(' ').collect::<Vec<_>>()[..] else { unreachable!() };
    let swapped = one_hot.replace(&format!("{equal} {one} {none}"), &format!("{equal} {none} {one}"));
    let sums: Vec<&str> = text.lines().filter(|it| it.contains("= add") && it.contains("[5,3]")).collect();
    let subtracted = sums[0].replace("add", "sub");
    let sum = |index: usize| format!("return \"y\" {}", sums[index].trim().split(' ').next().unwrap());
    let changes = [
        ("the sum starts at one", "fill type=f32[5,3] value=0.0", "fill type=f32[5,3] value=1.0"),
        ("numbers in another order", "data=[0,1,2,3]", "data=[1,0,2,3]"),
        ("numbers that nothing chose", chosen, &filled),
        ("the tokens that did not choose", one_hot, &swapped),
        ("a difference", sums[0], &subtracted),
        ("an expert twice", "fill type=i64[] value=3.0", "fill type=i64[] value=2.0"),
        ("the other dimension of the mask", "gather dim=0 %1 %15", "gather dim=0 %1 %16"),
        ("shares in another shape", "%30 = dynamic_unsqueeze dims=[1]", "%30 = dynamic_unsqueeze dims=[0]"),
        ("the gate of other rows", "%27 = contract \"ab,bc->ac\" %23", "%27 = contract \"ab,bc->ac\" %19"),
        ("rows of shares", "%23 = gather dim=0 %1 %15", "%23 = gather dim=0 %5 %15"),
    ];
    assert_left(Spelling::TokensFirst, EXPERTS, &changes);
    let missing = replaced(&text, &sum(EXPERTS - 1), &sum(EXPERTS - 2));
    assert_eq!(raised(&missing).1, EXPERTS - 1);
}

#[test]
fn experts_that_are_not_of_one_mixture_are_left_alone() {
    for besides in [Besides::Given, Besides::Others, Besides::OtherTokens, Besides::OtherShares] {
        let (_, left) = raised(&spelled_with(Spelling::TokensFirst, &[], besides));
        assert_eq!(left, EXPERTS, "{besides:?}");
    }
}

#[test]
fn an_export_made_where_an_expert_was_idle_is_left_alone() {
    let text = spelled_with(Spelling::ChoicesFirst, &[1], Besides::Three);
    let (found, left) = raised(&text);
    assert_eq!(left, EXPERTS + 1);
    assert!(compare(&found, &parse_graph(&text).unwrap(), 0..40) > 20);
}

#[test]
fn results_of_other_elements_are_left_alone() {
    let text = spelled(Spelling::ChoicesFirst, &[]).replace("f32", "f64").replace("f64[5,3]", "f32[5,3]");
    let text = replaced(&text, "\"x\" : f32", "\"x\" : f64");
    let text = replaced(&text, "%35 = cast to=f64", "%35 = cast to=f32");
    assert!(compare(&raised(&text).0, &parse_graph(&text).unwrap(), 0..40) > 20);
    assert_eq!(raised(&text).1, EXPERTS + 1);
}
