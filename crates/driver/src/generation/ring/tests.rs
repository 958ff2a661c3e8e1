//! Small steps that write against the same ones that move up, and steps that cannot write.

use files::inputs;
use kernels::Array;
use planner_ir::parse_graph;
use run::Sources;

use super::*;
use crate::generation::numbered;
use crate::generation::turned::Turned;

mod windows; // parts of which attention sees a window

/// How many places there are.
const PLACES: u64 = 6;

/// What is said of a step with keys, and perhaps values.
fn cache(parts: &[&str]) -> Cache {
    Cache { slot: Some(SLOT.to_owned()), ..numbered::cache(parts, PLACES) }
}

/// A step of one query `%0`, whose keys are `%6` and values `%7`, a number `%5` for each place, and what is made of
/// these, which is `%last`.
fn text(body: &str, last: &str) -> String {
    format!(
        r#"graph "step" {{
            %0 = input "q" : f32[2,4,1,4]
            %1 = input "past_k" : f32[2,2,5,4]
            %2 = input "past_v" : f32[2,2,5,4]
            %3 = input "new_k" : f32[2,2,1,4]
            %4 = input "new_v" : f32[2,2,1,4]
            %5 = input "numbers" : f32[2,1,1,6]
            %6 = concat dim=2 %1 %3 : f32[2,2,6,4]
            %7 = concat dim=2 %2 %4 : f32[2,2,6,4]
            {body}
            return "y" {last}, "k" %6, "v" %7
        }}"#
    )
}

fn parsed(text: &str) -> Graph {
    let graph = parse_graph(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    planner_ir::verify(&graph).unwrap_or_else(|error| panic!("{error}: {text}"));
    graph
}

/// The steps are the same at every slot; the one that writes.
#[track_caller]
fn same(body: &str, last: &str) -> Graph {
    let graph = parsed(&text(body, last));
    let cache = cache(&["k", "v"]);
    let written = ring(&graph, &cache, SLOT).unwrap_or_else(|why| panic!("{why}: {body}"));
    planner_ir::verify(&written).unwrap();
    for slot in 0..PLACES {
        held_alike(&graph, &written, Turned { cache: &cache, width: 1, slot }, body);
    }
    written
}

/// A step leaves what the model's does, on the same cache.
#[track_caller]
fn held_alike(graph: &Graph, made: &Graph, turned: Turned<'_>, what: &str) {
    let evaluated = |graph: &Graph, inputs: &BTreeMap<String, Array>| {
        let weights = &BTreeMap::<String, Array>::new();
        run::reference(graph, Sources { inputs, weights }).unwrap()
    };
    let mut inputs = inputs::made(made, turned.slot);
    if turned.cache.is_written(turned.width) {
        inputs.insert(SLOT.to_owned(), Array::of(vec![1], &[i64::try_from(turned.slot).unwrap()]).unwrap());
    }
    let expected = turned.left(&evaluated(graph, &turned.inputs(&inputs).unwrap())).unwrap();
    let found = turned.outputs(&evaluated(made, &inputs)).unwrap();
    for (name, expected) in expected {
        let (found, expected) = (found[&name].to_floats().unwrap(), expected.to_floats().unwrap());
        assert_eq!(found.len(), expected.len(), "{what}: {name}");
        let pairs = found.into_iter().zip(expected);
        let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-5;
        let slot = turned.slot;
        assert!(pairs.clone().all(near), "{what}, slot {slot}, {name}: {:?}", pairs.collect::<Vec<_>>());
    }
}

/// Why there is no step that writes.
#[track_caller]
fn refused(text: &str, parts: &[&str], why: &str) {
    let found = ring(&parsed(text), &cache(parts), SLOT).expect_err(text);
    assert!(found.contains(why), "{found}, expected {why}");
}

const ZERO: &str = "%8 = fill type=f32[] value=0.0 : f32[]
    %9 = greater %5 %8 : bool[2,1,1,6]";

#[test]
fn attention_sees_the_same_keys() {
    for blind in ["", " blind=mean"] {
        for window in ["none", "1", "4", "6", "9"] {
            for causal in [true, false] {
                let how = format!("scale=0.5 causal={causal} softcap=0.0 window={window}{blind}");
                same(&format!("%8 = attention {how} %0 %6 %7 : f32[2,4,1,4]"), "%8");
                same(&format!("{ZERO}\n%10 = attention {how} %0 %6 %7 %9 : f32[2,4,1,4]"), "%10");
            }
        }
        // Numbers, added.
        let how = format!("scale=0.5 causal=true softcap=0.0 window=none{blind}");
        same(&format!("%8 = attention {how} %0 %6 %7 %5 : f32[2,4,1,4]"), "%8");
    }
    let how = "scale=0.5 causal=true softcap=0.0 window=3";
    let hidden = "%10 = fill type=f32[] value=-inf : f32[]
        %11 = select %9 %5 %10 : f32[2,1,1,6]";
    same(&format!("{ZERO}\n{hidden}\n%12 = attention {how} %0 %6 %7 %11 : f32[2,4,1,4]"), "%12");
    same(&format!("{ZERO}\n%10 = attention {how} sinks=true %0 %6 %7 %9 %8 : f32[2,4,1,4]"), "%10");
    // Documents of queries and keys, and a mask that is alike for all keys.
    let documents = "%10 = cast to=i64 %9 : i64[2,1,1,6]
        %11 = slice starts=[0,0,0,5] steps=[1,1,1,1] sizes=[2,1,1,1] %10 : i64[2,1,1,1]";
    same(&format!("{ZERO}\n{documents}\n%12 = attention {how} %0 %6 %7 %11 %10 : f32[2,4,1,4]"), "%12");
    let one = "%12 = slice starts=[0,0,0,0] steps=[1,1,1,1] sizes=[2,1,1,1] %9 : bool[2,1,1,1]";
    same(
        &format!("{ZERO}\n{documents}\n{one}\n%13 = attention {how} %0 %6 %7 %12 %11 %10 : f32[2,4,1,4]"),
        "%13",
    );
}

/// Attention as exporters spell it: keys repeated, masks added or chosen, windows as constants.
const SPELLED: &str = "%8 = reshape shape=[2,2,1,6,4] %6 : f32[2,2,1,6,4]
    %9 = expand shape=[2,2,2,6,4] %8 : f32[2,2,2,6,4]
    %10 = reshape shape=[2,4,6,4] %9 : f32[2,4,6,4]
    %11 = transpose permutation=[0,1,3,2] %10 : f32[2,4,4,6]
    %12 = contract \"abcd,abde->abce\" %0 %11 : f32[2,4,1,6]";

#[test]
fn what_is_spelled_is_the_same() {
    let rest = "%13 = add %12 %5 : f32[2,4,1,6]
        %14 = softmax dim=3 %13 : f32[2,4,1,6]
        %15 = reduce_sum dims=[3] %14 : f32[2,4,1,1]
        %16 = iota dtype=f32 length=6 start=0.0 step=1.0 : f32[6]
        %17 = mul %14 %16 : f32[2,4,1,6]
        %18 = reduce_max dims=[3] %17 : f32[2,4,1,1]
        %19 = add %15 %18 : f32[2,4,1,1]";
    let written = same(&format!("{SPELLED}\n{rest}"), "%19");
    // The order, and what is known by it of two values.
    let gathers = written.nodes.iter().filter(|it| matches!(it.op, Op::Gather { .. })).count();
    assert_eq!(gathers, 2);
    // Sinks: a score more.
    let sinks = "%13 = fill type=f32[2,4,1,1] value=0.5 : f32[2,4,1,1]
        %14 = concat dim=3 %12 %13 : f32[2,4,1,7]
        %15 = iota dtype=f32 length=7 start=0.0 step=0.25 : f32[7]
        %16 = add %14 %15 : f32[2,4,1,7]
        %17 = softmax dim=3 %16 : f32[2,4,1,7]";
    let seen = "%18 = slice starts=[0,0,0,0] steps=[1,1,1,1] sizes=[2,4,1,6] %17 : f32[2,4,1,6]
        %19 = add %18 %5 : f32[2,4,1,6]
        %20 = reduce_sum dims=[3] %19 : f32[2,4,1,1]";
    same(&format!("{SPELLED}\n{sinks}\n{seen}"), "%20");
    let of_sink = "%18 = slice starts=[0,0,0,6] steps=[1,1,1,1] sizes=[2,4,1,1] %17 : f32[2,4,1,1]";
    same(&format!("{SPELLED}\n{sinks}\n{of_sink}"), "%18");
    // What is masked by what is computed of many operations is brought into order where it comes from.
    let masks = "%13 = fill type=f32[] value=0.0 : f32[]
        %14 = greater %5 %13 : bool[2,1,1,6]
        %15 = fill type=f32[] value=-1e30 : f32[]
        %16 = select %14 %13 %15 : f32[2,1,1,6]
        %17 = add %12 %16 : f32[2,4,1,6]
        %18 = select %14 %17 %15 : f32[2,4,1,6]
        %19 = softmax dim=3 %18 : f32[2,4,1,6]
        %20 = reduce_max dims=[3] %19 : f32[2,4,1,1]";
    let written = same(&format!("{SPELLED}\n{masks}"), "%20");
    let gathers = written.nodes.iter().filter(|it| matches!(it.op, Op::Gather { .. })).count();
    assert_eq!(gathers, 1);
}

#[test]
fn what_takes_places_apart_is_refused() {
    let of = |rest: &str, last: &str| text(&format!("{SPELLED}\n{rest}"), last);
    for (rest, last, why) in [
        (
            "%13 = cum_sum dim=3 exclusive=false reverse=false %12 : f32[2,4,1,6]",
            "%13",
            "may ask for their order",
        ),
        ("%13 = arg_extreme extreme=largest dim=3 %12 : i64[2,4,1,1]", "%13", "may ask for their order"),
        ("%13 = reshape shape=[2,2,12] %12 : f32[2,2,12]", "%13", "other numbers among them"),
        (
            "%13 = slice starts=[0,0,0,1] steps=[1,1,1,1] sizes=[2,4,1,5] %12 : f32[2,4,1,5]",
            "%13",
            "takes some of them",
        ),
        (
            "%13 = constant type=i64[1] data=[2] : i64[1]\n%14 = gather dim=3 %12 %13 : f32[2,4,1,1]",
            "%14",
            "asks where they are",
        ),
        ("%13 = concat dim=3 %12 %12 : f32[2,4,1,12]", "%13", "other numbers among them"),
        ("%13 = exp %12 : f32[2,4,1,6]", "%13", "the output `y` has all places"),
    ] {
        refused(&of(rest, last), &["k", "v"], why);
    }
}

#[test]
fn attention_that_cannot_be_turned_is_refused() {
    let how = "causal=true softcap=0.0 window=3";
    for (body, why) in [
        (
            format!("%8 = attention scale=0.5 {how} blind=once %0 %6 %7 : f32[2,4,1,4]"),
            "depends on how they are hidden",
        ),
        (
            format!("%8 = attention scale=0.5 {how} blind=mean %0 %6 %7 %5 : f32[2,4,1,4]"),
            "depends on how they are hidden",
        ),
    ] {
        refused(&text(&body, "%8"), &["k", "v"], why);
    }
    let two = "%8 = concat dim=2 %0 %0 : f32[2,4,2,4]
        %9 = attention scale=0.5 causal=true softcap=0.0 window=none %8 %6 %7 : f32[2,4,2,4]";
    refused(&text(two, "%9"), &["k", "v"], "has 2 queries");
}

#[test]
fn entries_that_are_not_put_behind_others_are_refused() {
    let of = |op: &str, result: &str| {
        format!(
            r#"graph "step" {{
                %0 = input "past_k" : f32[2,2,5,4]
                %1 = input "new" : f32[2,2,1,4]
                {op}
                return {result}
            }}"#
        )
    };
    let behind = "%2 = concat dim=2 %0 %1 : f32[2,2,6,4]";
    let twice = format!("{behind}\n%3 = exp %0 : f32[2,2,5,4]");
    let others = "%2 = slice starts=[0,0,0,0] steps=[1,1,1,1] sizes=[2,2,4,4] %0 : f32[2,2,4,4]";
    let more = "%2 = concat dim=2 %1 %1 : f32[2,2,2,4]\n%3 = concat dim=2 %0 %2 : f32[2,2,7,4]";
    let other = format!("{behind}\n%3 = exp %2 : f32[2,2,6,4]");
    let own = "%2 = fill type=f32[2,2,6,4] value=0.0 : f32[2,2,6,4]\n%3 = concat dim=2 %2 %1 : f32[2,2,7,4]";
    for (op, result, why) in [
        (behind, r#""k" %2, "y" %0"#, "is another value"),
        (&twice, r#""k" %2, "y" %3"#, "used by 2 operations"),
        (others, r#""k" %2"#, "expected a concatenation"),
        ("%2 = concat dim=2 %1 %0 : f32[2,2,6,4]", r#""k" %2"#, "expected a concatenation"),
        (more, r#""k" %3"#, "expected 1 new places"),
        (&other, r#""k" %3"#, "is another value"),
        (own, r#""k" %3"#, "used by 0 operations"),
    ] {
        refused(&of(op, result), &["k"], why);
    }
    refused(&of(behind, r#""k" %2"#), &["k", "w"], "there is no input `past_w`");
    refused(&of(behind, r#""k" %2"#), &[], "no part of the cache has a place for each token");
    let longer = of(behind, r#""k" %2"#).replace("[2,2,5,4]", "[2,2,8,4]").replace("[2,2,6,4]", "[2,2,9,4]");
    refused(&longer, &["k"], "expected 6 places");
    // What is kept of a token is of all places itself.
    let scores = r#"graph "step" {
        %0 = input "past_k" : f32[2,2,5,6]
        %1 = input "new" : f32[2,2,1,6]
        %2 = input "past_s" : f32[2,2,5,6]
        %3 = concat dim=2 %0 %1 : f32[2,2,6,6]
        %4 = contract "abcd,abed->abce" %1 %3 : f32[2,2,1,6]
        %5 = concat dim=2 %2 %4 : f32[2,2,6,6]
        return "k" %3, "s" %5
    }"#;
    refused(scores, &["k", "s"], "keeps what has all places of the cache itself");
}

#[test]
fn the_slot_has_a_name_of_its_own() {
    let graph = parsed(&text(
        "%8 = attention scale=0.5 causal=true softcap=0.0 window=none %0 %6 %7 : f32[2,4,1,4]",
        "%8",
    ));
    let positions = plan::Positions { name: SLOT.to_owned(), nodes: vec![] };
    let cache = Cache { positions: Some(positions), ..cache(&["k", "v"]) };
    assert_eq!(Single::of(&graph, &cache, &[]).unwrap().slot, "cache_slot_");
}
