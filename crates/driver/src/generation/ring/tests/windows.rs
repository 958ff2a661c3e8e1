//! Small steps whose parts have as many places as attention sees against the model's own, which have all.

use super::*;
use crate::generation::numbered::numbered;

/// The cache of a layer with a window, of keys and values, and of one that sees all, with the slot of a ring or without.
fn seen(window: Option<u64>, slot: bool) -> Cache {
    let mut cache = cache(&["k", "v", "l", "w"]);
    cache.kept.iter_mut().take(2).for_each(|it| it.window = window);
    cache.slot = cache.slot.filter(|_| slot);
    cache
}

/// A step of so many queries `%0`, whose keys are `%10` and values `%11`, a number `%9` for each place, and another layer
/// of what is `%last` then, with keys `%12` and values `%13` of all places. Where queries are is `%15`, and where keys are
/// `%16`.
fn text(width: u64, body: &str, last: &str) -> String {
    let past = PLACES - width;
    numbered(&format!(
        r#"graph "step" {{
            %0 = input "q" : f32[2,4,{width},4]
            %1 = input "past_k" : f32[2,2,{past},4]
            %2 = input "past_v" : f32[2,2,{past},4]
            %3 = input "past_l" : f32[2,2,{past},4]
            %4 = input "past_w" : f32[2,2,{past},4]
            %5 = input "new_k" : f32[2,2,{width},4]
            %6 = input "new_v" : f32[2,2,{width},4]
            %7 = input "new_l" : f32[2,2,{width},4]
            %8 = input "new_w" : f32[2,2,{width},4]
            %9 = input "numbers" : f32[2,1,1,6]
            %10 = concat dim=2 %1 %5 : f32[2,2,6,4]
            %11 = concat dim=2 %2 %6 : f32[2,2,6,4]
            %12 = concat dim=2 %3 %7 : f32[2,2,6,4]
            %13 = concat dim=2 %4 %8 : f32[2,2,6,4]
            %14 = iota dtype=i64 length={width} start={past}.0 step=1.0 : i64[{width}]
            %15 = reshape shape=[{width},1] %14 : i64[{width},1]
            %16 = iota dtype=i64 length=6 start=0.0 step=1.0 : i64[6]
            {body}
            %99 = attention scale=0.5 causal=true softcap=0.0 window=none {last} %12 %13 : f32[2,4,{width},4]
            return "y" %99, "z" {last}, "k" %10, "v" %11, "l" %12, "w" %13
        }}"#
    ))
}

/// Attention of a window in named operations, with a mask of numbers.
fn named(width: u64, window: u64, more: &str) -> (String, &'static str) {
    let how = format!("scale=0.5 causal=true softcap=0.0 window={window}{more}");
    let sinks = if more.contains("sinks") { " %17" } else { "" };
    let body = format!(
        "%17 = fill type=f32[] value=-0.5 : f32[]
        %18 = greater %9 %17 : bool[2,1,1,6]
        %19 = attention {how} %0 %10 %11 %18{sinks} : f32[2,4,{width},4]"
    );
    (body, "%19")
}

/// The same as exporters spell it, beside a score for each row that is no key's, or without it; hidden scores are a number.
fn spelled(width: u64, window: u64, sinks: bool, hidden: &str) -> (String, &'static str) {
    let scores = format!(
        "%17 = fill type=f32[] value=-0.5 : f32[]
        %18 = greater %9 %17 : bool[2,1,1,6]
        %19 = less_or_equal %16 %15 : bool[{width},6]
        %20 = fill type=i64[] value={window}.0 : i64[]
        %21 = sub %15 %20 : i64[{width},1]
        %22 = greater %16 %21 : bool[{width},6]
        %23 = and %19 %22 : bool[{width},6]
        %24 = reshape shape=[1,1,{width},6] %23 : bool[1,1,{width},6]
        %25 = expand shape=[2,1,{width},6] %24 : bool[2,1,{width},6]
        %26 = and %25 %18 : bool[2,1,{width},6]
        %27 = equal %16 %15 : bool[{width},6]
        %28 = or %26 %27 : bool[2,1,{width},6]
        %30 = reshape shape=[2,2,1,6,4] %10 : f32[2,2,1,6,4]
        %31 = expand shape=[2,2,2,6,4] %30 : f32[2,2,2,6,4]
        %32 = reshape shape=[2,4,6,4] %31 : f32[2,4,6,4]
        %33 = transpose permutation=[0,1,3,2] %32 : f32[2,4,4,6]
        %34 = contract \"abcd,abde->abce\" %0 %33 : f32[2,4,{width},6]
        %35 = fill type=f32[] value={hidden} : f32[]
        %36 = select %28 %34 %35 : f32[2,4,{width},6]
        %37 = reshape shape=[2,2,1,6,4] %11 : f32[2,2,1,6,4]
        %38 = expand shape=[2,2,2,6,4] %37 : f32[2,2,2,6,4]
        %39 = reshape shape=[2,4,6,4] %38 : f32[2,4,6,4]"
    );
    let weights = if sinks {
        format!(
            "%40 = fill type=f32[2,4,{width},1] value=0.5 : f32[2,4,{width},1]
            %41 = concat dim=3 %36 %40 : f32[2,4,{width},7]
            %42 = softmax dim=3 %41 : f32[2,4,{width},7]
            %43 = slice starts=[0,0,0,0] steps=[1,1,1,1] sizes=[2,4,{width},6] %42 : f32[2,4,{width},6]"
        )
    } else {
        format!("%43 = softmax dim=3 %36 : f32[2,4,{width},6]")
    };
    let seen = format!("%44 = contract \"abcd,abde->abce\" %43 %39 : f32[2,4,{width},4]");
    (format!("{scores}\n{weights}\n{seen}"), "%44")
}

/// A step of so many tokens, all of whose forms are those of the model.
#[track_caller]
fn same(width: u64, window: u64, (body, last): (String, &str)) {
    let graph = parsed(&text(width, &body, last));
    let moved = seen(Some(window), false);
    let recent = recent(&graph, &moved, width).unwrap_or_else(|why| panic!("{why}: {body}"));
    planner_ir::verify(&recent).unwrap();
    let turned = Turned { cache: &moved, width, slot: 0 };
    held_alike(&graph, &recent, turned, &body);
    // Named operations are found in it as in the model's.
    let raised = rewrite::raise(&recent).unwrap().graph;
    held_alike(&graph, &raised, turned, &body);
    let count = |graph: &Graph| graph.nodes.iter().filter(|it| matches!(it.op, Op::Attention(_))).count();
    assert_eq!(count(&raised), 2, "{body}");
    assert_eq!(places(&recent, "past_k"), (window - 1).min(PLACES - width));
    assert_eq!(places(&recent, "past_l"), PLACES - width);
    if width > 1 {
        return;
    }
    let cache = seen(Some(window), true);
    let written = ring(&graph, &cache, SLOT).unwrap_or_else(|why| panic!("{why}: {body}"));
    planner_ir::verify(&written).unwrap();
    assert_eq!((places(&written, "past_k"), places(&written, "past_l")), (window, PLACES));
    for slot in 0..cache.period() {
        held_alike(&graph, &written, Turned { cache: &cache, width, slot }, &body);
    }
}

/// How many places a part is found with.
fn places(graph: &Graph, name: &str) -> u64 {
    let is_it = |it: &Source| matches!(it, Source::Input(input) if input == name);
    graph.values.iter().find(|it| is_it(&it.source)).unwrap().type_.shape[2]
}

#[test]
fn windows_see_what_they_would_of_all_places() {
    for width in 1..=5 {
        for window in 2..PLACES {
            same(width, window, named(width, window, ""));
            same(width, window, named(width, window, " sinks=true"));
            for sinks in [false, true] {
                same(width, window, spelled(width, window, sinks, "-inf"));
                same(width, window, spelled(width, window, sinks, "-1e30"));
            }
        }
    }
}

#[test]
fn slots_of_several_numbers_of_places_are_counted_together() {
    let period = |window| seen(window, true).period();
    assert_eq!([None, Some(2), Some(4), Some(5)].map(period), [6, 6, 12, 30]);
}

/// Without a window a step is as it was.
#[test]
fn parts_without_windows_have_all_places() {
    let (body, last) = spelled(2, 3, false, "-inf");
    let graph = parsed(&text(2, &body, last));
    let cache = seen(None, false);
    assert_eq!(planned(graph.clone(), &cache, 2).unwrap(), graph);
    let (body, last) = spelled(1, 3, false, "-inf");
    let graph = parsed(&text(1, &body, last));
    let written = ring(&graph, &seen(None, true), SLOT).unwrap();
    assert!(written.nodes.iter().all(|it| !matches!(&it.op, Op::Slice { .. })));
    assert_eq!(places(&written, "past_k"), PLACES);
}

/// What asks for all places is refused, so that the part has them.
#[test]
fn what_asks_for_other_places_is_refused() {
    let cache = seen(Some(3), false);
    for (body, last, why) in [
        (
            "%17 = reshape shape=[2,2,24] %10 : f32[2,2,24]
            %18 = slice starts=[0,0,0] steps=[1,1,1] sizes=[2,2,16] %17 : f32[2,2,16]
            %19 = reshape shape=[2,4,2,4] %18 : f32[2,4,2,4]",
            "%19",
            "other numbers among them",
        ),
        (
            "%17 = slice starts=[0,0,1,0] steps=[1,1,1,1] sizes=[2,2,4,4] %10 : f32[2,2,4,4]
            %19 = reshape shape=[2,4,2,4] %17 : f32[2,4,2,4]",
            "%19",
            "takes some of them",
        ),
        (
            "%17 = cum_sum dim=2 exclusive=false reverse=false %10 : f32[2,2,6,4]
            %18 = slice starts=[0,0,0,0] steps=[1,1,1,1] sizes=[2,2,4,4] %17 : f32[2,2,4,4]
            %19 = reshape shape=[2,4,2,4] %18 : f32[2,4,2,4]",
            "%19",
            "may ask for their order",
        ),
    ] {
        let found = recent(&parsed(&text(2, body, last)), &cache, 2).expect_err(body);
        assert!(found.contains(why), "{found}, expected {why}");
    }
}
