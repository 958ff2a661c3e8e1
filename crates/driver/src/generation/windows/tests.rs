//! Windows of parts of small steps.

use planner_ir::{Graph, parse_graph};

use super::*;
use crate::generation::numbered::{self, numbered};

/// How many places there are; of them two are of new tokens.
const PLACES: u64 = 6;

fn cache(parts: &[&str]) -> Cache {
    numbered::cache(parts, PLACES)
}

/// The windows of keys and values of a step of two queries `%0`, whose keys are `%5` and values `%6`.
#[track_caller]
fn found(body: &str, outputs: &str) -> Vec<(String, u64)> {
    let text = format!(
        r#"graph "step" {{
            %0 = input "q" : f32[2,4,2,4]
            %1 = input "past_k" : f32[2,2,4,4]
            %2 = input "past_v" : f32[2,2,4,4]
            %3 = input "new_k" : f32[2,2,2,4]
            %4 = input "new_v" : f32[2,2,2,4]
            %5 = concat dim=2 %1 %3 : f32[2,2,6,4]
            %6 = concat dim=2 %2 %4 : f32[2,2,6,4]
            {body}
            return {outputs}, "k" %5, "v" %6
        }}"#
    );
    let text = numbered(&text);
    let graph = parse_graph(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    planner_ir::verify(&graph).unwrap_or_else(|error| panic!("{error}: {text}"));
    of_step(&graph, &cache(&["k", "v"])).into_iter().map(|it| (it.past, it.seen)).collect()
}

fn both(window: u64) -> Vec<(String, u64)> {
    vec![("past_k".to_owned(), window), ("past_v".to_owned(), window)]
}

/// Attention in which a query sees so many keys.
fn attention(result: u64, window: &str, rest: &str) -> String {
    let how = format!("scale=0.5 causal=true softcap=0.0 window={window}");
    format!("%{result} = attention {how} {rest} : f32[2,4,2,4]")
}

#[test]
fn windows_are_what_attention_sees() {
    for (window, expected) in [("none", 0), ("1", 0), ("2", 2), ("5", 5), ("6", 0), ("9", 0)] {
        let expected = if expected == 0 { vec![] } else { both(expected) };
        assert_eq!(found(&attention(7, window, "%0 %5 %6"), r#""y" %7"#), expected, "{window}");
    }
}

/// Attention as exporters spell it, by a mask of where queries and keys are.
fn spelled(mask: &str) -> String {
    format!(
        "%7 = reshape shape=[2,2,1,6,4] %5 : f32[2,2,1,6,4]
        %8 = expand shape=[2,2,2,6,4] %7 : f32[2,2,2,6,4]
        %9 = reshape shape=[2,4,6,4] %8 : f32[2,4,6,4]
        %10 = reshape shape=[2,2,1,6,4] %6 : f32[2,2,1,6,4]
        %11 = expand shape=[2,2,2,6,4] %10 : f32[2,2,2,6,4]
        %12 = reshape shape=[2,4,6,4] %11 : f32[2,4,6,4]
        %13 = iota dtype=i64 length=2 start=4.0 step=1.0 : i64[2]
        %14 = reshape shape=[2,1] %13 : i64[2,1]
        %15 = iota dtype=i64 length=6 start=0.0 step=1.0 : i64[6]
        %16 = less_or_equal %15 %14 : bool[2,6]
        {mask}
        %20 = transpose permutation=[0,1,3,2] %9 : f32[2,4,4,6]
        %21 = contract \"abcd,abde->abce\" %0 %20 : f32[2,4,2,6]
        %22 = fill type=f32[] value=-inf : f32[]
        %23 = select %19 %21 %22 : f32[2,4,2,6]
        %24 = softmax dim=3 %23 : f32[2,4,2,6]
        %25 = contract \"abcd,abde->abce\" %24 %12 : f32[2,4,2,4]"
    )
}

#[test]
fn windows_of_masks_are_found() {
    let within = |op: &str| {
        spelled(&format!(
            "%17 = fill type=i64[] value=3.0 : i64[]
            %26 = sub %14 %17 : i64[2,1]
            %18 = {op} %15 %26 : bool[2,6]
            %19 = and %16 %18 : bool[2,6]"
        ))
    };
    let output = r#""y" %25"#;
    // A key that is three places before the query's own is the fourth.
    assert_eq!(found(&within("greater"), output), both(3));
    assert_eq!(found(&within("greater_or_equal"), output), both(4));
    let causal = spelled("%19 = cast to=bool %16 : bool[2,6]");
    assert_eq!(found(&causal, output), vec![]);
}

#[test]
fn what_asks_for_more_has_all_places() {
    let near = attention(7, "3", "%0 %5 %6");
    // Of several the widest.
    for (other, expected) in [("2", both(3)), ("4", both(4)), ("none", vec![])] {
        let body = format!("{near}\n{}\n%9 = add %7 %8 : f32[2,4,2,4]", attention(8, other, "%0 %5 %6"));
        assert_eq!(found(&body, r#""y" %9"#), expected, "{other}");
    }
    // Of keys alone something else is made, or they are returned, or are queries too.
    let values = vec![("past_v".to_owned(), 3)];
    let sum = format!("{near}\n%8 = reduce_sum dims=[2] %5 : f32[2,2,1,4]");
    assert_eq!(found(&sum, r#""y" %7, "z" %8"#), values);
    let returned = format!("{near}\n%8 = exp %5 : f32[2,2,6,4]");
    assert_eq!(found(&returned, r#""y" %7, "z" %8"#), values);
    let queries = "%7 = slice starts=[0,0,4,0] steps=[1,1,1,1] sizes=[2,2,2,4] %5 : f32[2,2,2,4]
        %8 = attention scale=0.5 causal=true softcap=0.0 window=3 %7 %5 %6 : f32[2,2,2,4]";
    assert_eq!(found(queries, r#""y" %8"#), values);
    // What is made of a place alone keeps the window, and what is made of all places does not.
    let norm = |dims: &str, weight: &str| {
        format!(
            "%7 = fill type=f32[{weight}] value=1.0 : f32[{weight}]
            %8 = rms_norm dims={dims} epsilon=0.000001 %5 %7 : f32[2,2,6,4]
            {}",
            attention(9, "3", "%0 %8 %6")
        )
    };
    assert_eq!(found(&norm("1", "4"), r#""y" %9"#), both(3));
    assert_eq!(found(&norm("2", "6,4"), r#""y" %9"#), values);
    let turned = "%7 = fill type=f32[6] value=1.0 : f32[6]
        %8 = transpose permutation=[0,1,3,2] %5 : f32[2,2,4,6]
        %9 = rms_norm dims=1 epsilon=0.000001 %8 %7 : f32[2,2,4,6]
        %10 = transpose permutation=[0,1,3,2] %9 : f32[2,2,6,4]";
    let turned = format!("{turned}\n{}", attention(11, "3", "%0 %10 %6"));
    assert_eq!(found(&turned, r#""y" %11"#), values);
    // Not all keys are places.
    let beside = "%7 = slice starts=[0,0,1,0] steps=[1,1,1,1] sizes=[2,2,5,4] %5 : f32[2,2,5,4]
        %8 = slice starts=[0,0,1,0] steps=[1,1,1,1] sizes=[2,2,5,4] %6 : f32[2,2,5,4]";
    assert_eq!(found(&format!("{beside}\n{}", attention(9, "3", "%0 %7 %8")), r#""y" %9"#), vec![]);
}

/// A step of so many tokens and two layers, of keys `k` and values `v`, and `l` and `w`, in which attention sees so many
/// places. What attention sees of the second one's keys has places among other numbers in between, if it is odd.
fn layers(width: u64, windows: [u64; 2], is_odd: bool) -> Graph {
    let layer = |first: u64, window: u64, [q, k, v]: [u64; 3]| {
        let (mask, last, start) = (first + 2, first + 3, PLACES - window);
        let how = if width == 1 {
            "false softcap=0.0 window=none".to_owned()
        } else {
            format!("true softcap=0.0 window={window}")
        };
        let operands = if width == 1 { format!("%{q} %{k} %{v} %{mask}") } else { format!("%{q} %{k} %{v}") };
        format!(
            "%{first} = fill type=i64[] value={start}.0 : i64[]
            %{0} = greater_or_equal %13 %{first} : bool[6]
            %{mask} = reshape shape=[1,1,1,6] %{0} : bool[1,1,1,6]
            %{last} = attention scale=0.5 causal={how} {operands} : f32[2,4,{width},4]",
            first + 1
        )
    };
    let inputs = ["k", "v", "l", "w"].iter().zip(1..).map(|(name, at)| {
        let (new, all, past) = (at + 4, at + 8, PLACES - width);
        format!(
            "%{at} = input \"past_{name}\" : f32[2,2,{past},4]
            %{new} = input \"new_{name}\" : f32[2,2,{width},4]
            %{all} = concat dim=2 %{at} %{new} : f32[2,2,6,4]"
        )
    });
    let inputs: Vec<String> = inputs.collect();
    let odd = "%20 = reshape shape=[2,2,24] %11 : f32[2,2,24]
            %21 = reshape shape=[2,2,6,4] %20 : f32[2,2,6,4]";
    let (keys, odd) = if is_odd { (21, odd) } else { (11, "") };
    let text = format!(
        "graph \"step\" {{
            %0 = input \"q\" : f32[2,4,{width},4]
            {}
            %13 = iota dtype=i64 length=6 start=0.0 step=1.0 : i64[6]
            {}
            {odd}
            {}
            return \"y\" %33, \"k\" %9, \"v\" %10, \"l\" %11, \"w\" %12
        }}",
        inputs.join("\n"),
        layer(14, windows[0], [0, 9, 10]),
        layer(30, windows[1], [17, keys, 12])
    );
    let graph = parse_graph(&numbered(&text)).unwrap_or_else(|error| panic!("{error}: {text}"));
    planner_ir::verify(&graph).unwrap_or_else(|error| panic!("{error}: {text}"));
    graph
}

/// The windows of `k`, `v`, `l` and `w`, and why others have none.
fn of_all(one: &Graph, several: Option<&Graph>) -> (Vec<Option<u64>>, String) {
    let found = windows(&cache(&["k", "v", "l", "w"]), one, several.map(|it| (it, 2)));
    (found.kept.iter().map(|it| it.window).collect(), found.why.unwrap_or_default())
}

#[test]
fn every_step_has_to_see_so_few() {
    let (near, all) = (vec![Some(3); 4], vec![None; 4]);
    let one = |windows| layers(1, windows, false);
    let several = |windows| layers(2, windows, false);
    assert_eq!(of_all(&one([3, 3]), None), (near.clone(), String::new()));
    assert_eq!(of_all(&one([3, 3]), Some(&several([3, 3]))), (near, String::new()));
    assert_eq!(of_all(&one([6, 6]), Some(&several([6, 6]))), (all.clone(), String::new()));
    // Models branch on how many queries there are.
    let (found, why) = of_all(&one([6, 6]), Some(&several([3, 3])));
    assert_eq!(found, all);
    assert!(why.contains("of 2 tokens sees 3") && why.contains("of a single token"), "{why}");
    assert_eq!(of_all(&one([6, 6]), None), (all.clone(), String::new()));
    assert_eq!(of_all(&one([3, 3]), Some(&several([6, 6]))), (all, String::new()));
    let (found, why) = of_all(&one([3, 6]), Some(&several([3, 3])));
    assert_eq!(found, [Some(3), Some(3), None, None]);
    assert!(why.contains("`past_l`"), "{why}");
    let (found, why) = of_all(&one([3, 3]), Some(&several([3, 6])));
    assert_eq!(found, [Some(3), Some(3), None, None]);
    assert!(why.contains("of a single token sees 3") && why.contains("of 2 tokens"), "{why}");
    // Of both the wider one.
    let wider = of_all(&one([4, 2]), Some(&several([3, 5])));
    assert_eq!(wider, (vec![Some(4), Some(4), Some(5), Some(5)], String::new()));
}

#[test]
fn layers_of_which_steps_cannot_be_made_have_all_places_alone() {
    for several in [None, Some(layers(2, [3, 3], true))] {
        let (found, why) = of_all(&layers(1, [3, 3], true), several.as_ref());
        assert_eq!(found, [Some(3), Some(3), None, None]);
        assert!(why.contains("other numbers among them"), "{why}");
    }
}
