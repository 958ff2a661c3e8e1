//! What is offered, and what a refusal says of it.

use cost_models::machine::shipped;
use planner_ir::{Mesh, parse_graph};
use rewrite::SpaceError;

use super::*;
use crate::problem::SearchError;
use crate::{MachinePrices, Section};

fn offer(splits: Splits, steps: Steps, striped: Option<u64>) -> Offer {
    Offer { splits, steps, striped }
}

fn too_large<T>() -> Result<T, PlanError> {
    Err(PlanError::Space(SpaceError::Limit(7)))
}

/// All, without stripes, without skews, without time steps, of one split at a time.
fn offers() -> Offers {
    let all = offer(Splits::All, Steps::Offered, Some(64));
    let turns = [Steps::Offered, Steps::Unskewed, Steps::One].map(|steps| offer(Splits::All, steps, None));
    let turns = [&[all], &turns[..]].concat();
    Offers { wanted: all, turns, last: offer(Splits::AtMost(1), Steps::One, None), at_once: None }
}

#[test]
fn a_refusal_among_fewer_partitions_says_what_was_too_large() {
    let offers = offers();
    let refused = |offer: Offer| match offer {
        it if it == offers.wanted => too_large::<()>(),
        _ => Err(PlanError::Search(SearchError::Contradiction)),
    };
    let error = offers.among(refused).unwrap_err();
    assert!(matches!(error.last(), PlanError::Search(SearchError::Contradiction)));
    assert_eq!(
        error.to_string(),
        format!(
            "the space of all partitions, in time steps too, is too large ({}); among fewer: every assignment is \
             forbidden",
            too_large::<()>().unwrap_err(),
        ),
    );
    // What is not too large is the answer, and says nothing of fewer.
    let one = Offers { turns: offers.turns[1..].to_vec(), ..offers.clone() };
    assert_eq!(one.among(refused).unwrap_err().to_string(), "every assignment is forbidden");
}

#[test]
fn a_space_that_outgrows_its_limit_is_too_large() {
    let offers = offers();
    let found = offers.among(|offer| if offer == offers.wanted { too_large() } else { Ok(offer) });
    assert_eq!(found.unwrap(), offers.turns[1]);
    let error = offers.among(|_| too_large::<()>()).unwrap_err();
    assert!(error.to_string().contains("more than 7 terms"), "{error}");
}

#[test]
fn no_more_is_left_out_than_is_too_large() {
    let offers = offers();
    let words = |least: usize| {
        let all = offers.turns.iter().chain([&offers.last]);
        let large: Vec<Offer> = all.take(least).copied().collect();
        let found = offers.among(|offer| if large.contains(&offer) { too_large() } else { Ok(offer) });
        offers.left_out(found.unwrap()).into_iter().map(LeftOut::name).collect::<Vec<_>>()
    };
    assert_eq!(words(0), [""; 0]);
    assert_eq!(words(1), ["stripes"]);
    assert_eq!(words(2), ["stripes", "skews"]);
    assert_eq!(words(3), ["stripes", "steps"]);
    assert_eq!(words(4), ["stripes", "steps", "splits"]);
}

/// Causal attention of 64 tokens to themselves.
const ATTENTION: &str = r#"graph "attention" {
  %0 = input "q" : f32[4,8,64,16]
  %1 = input "k" : f32[4,8,64,16]
  %2 = input "v" : f32[4,8,64,16]
  %3 = attention scale=0.25 causal=true softcap=0.0 window=none %0 %1 %2 : f32[4,8,64,16]
  return "y" %3
}
"#;

/// What is offered on a mesh of so many axes of two, as it is said where too much is too large.
fn offered(axes: usize, steps: Steps) -> Vec<String> {
    let graph = parse_graph(ATTENTION).unwrap();
    let sections = [Section::whole(&graph)];
    let mesh = Mesh::of_sizes(&vec![2; axes]);
    let machine = shipped::named("cpu-16x").unwrap();
    let request = Request {
        graph: &graph,
        sections: &sections,
        mesh: &mesh,
        capacity: 1 << 40,
        prices: &MachinePrices::new(&machine, &mesh).unwrap(),
        model: &plan::ModelFile { path: "m.onnx".to_owned(), sha256: "0".repeat(64), dims: vec![] },
        machine: &plan::MachineName { name: machine.full_name(), devices: mesh.devices(), sha256: None },
        steps,
        pinned: None,
        fixed: &[],
        live: crate::Live::ONE,
        trail: None,
        memory: &crate::counted,
        enough: &|_| false,
    };
    let Offers { turns, last, .. } = Offers::of(&request, &[Cut { graph: &graph, sections: &sections }], &[]);
    let said = |it: &Offer| {
        let splits = match it.splits {
            Splits::All => "all".to_owned(),
            Splits::AtMost(most) => most.to_string(),
        };
        let striped = if it.striped.is_some() { " striped" } else { "" };
        format!("{splits} {:?}{striped}", it.steps).to_lowercase()
    };
    turns.iter().chain([&last]).map(said).collect()
}

#[test]
fn fewer_are_offered_in_turn() {
    let begin = ["all offered striped", "all offered", "all unskewed"];
    let end = ["all one", "2 one", "1 one"];
    let turns = |between: &'static str| [&begin[..], &[between], &end].concat();
    assert_eq!(offered(1, Steps::Auto), turns("1 unskewed"));
    assert_eq!(offered(2, Steps::Auto), turns("2 unskewed"));
    assert_eq!(offered(2, Steps::One), end);
    // By default there are no time steps on three axes, and never stripes.
    assert_eq!(offered(3, Steps::Auto), end);
    assert_eq!(
        offered(3, Steps::Offered),
        ["all offered", "all unskewed", "3 unskewed", "all one", "2 one", "1 one"]
    );
    // Those that begin and end in plain layouts may be asked for.
    assert_eq!(offered(2, Steps::Unskewed), ["all unskewed", "2 unskewed", "all one", "2 one", "1 one"]);
    // On four not all are tried.
    assert_eq!(offered(4, Steps::Offered), ["2 one", "1 one"]);
}
