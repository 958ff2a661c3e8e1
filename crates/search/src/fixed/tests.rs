//! Tests of what a user has fixed: a small world, planned in every way.

use cost_models::machine::shipped;
use planner_ir::{Graph, parse_graph};

use super::*;
use crate::{MachinePrices, PlanError, Prices, Request, Section, Work, plan as planned};

/// Two layers of a network; what is multiplied by a weight is called by it.
const LAYERS: &str = r#"graph "layers" {
  %0 = input "x" : f32[64,512]
  %1 = weight "up" : f32[512,512]
  %2 = weight "down" : f32[512,512]
  %3 = contract "ab,bc->ac" %0 %1 : f32[64,512] # origin "/up"
  %4 = relu %3 : f32[64,512] # origin "/relu"
  %5 = contract "ab,bc->ac" %4 %2 : f32[64,512] # origin "/down"
  return "y" %5
}
"#;

/// Prices by which only what is allowed can be.
struct Only<'a> {
    machine: MachinePrices<'a>,
    allows: &'a (dyn Fn(&Work<'_>) -> bool + Sync),
}

impl Prices for Only<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        if (self.allows)(work) { self.machine.work(work) } else { f64::INFINITY }
    }

    fn step(
        &self,
        type_: &planner_ir::Type,
        step: &planner_ir::Move,
        before: &planner_ir::Layout,
        after: &planner_ir::Layout,
    ) -> f64 {
        self.machine.step(type_, step, before, after)
    }
}

/// The plan on two threads with this fixed and the rest allowed.
fn plan_of(
    graph: &Graph,
    sections: &[Section],
    fixed: &[Fixed],
    allows: &(dyn Fn(&Work<'_>) -> bool + Sync),
) -> Result<plan::Plan, PlanError> {
    let (machine, mesh) = (shipped::named("cpu-2x").unwrap(), Mesh::of_sizes(&[2]));
    let prices = Only { machine: MachinePrices::new(&machine, &mesh).unwrap(), allows };
    planned(&Request {
        graph,
        sections,
        mesh: &mesh,
        capacity: 1 << 40,
        prices: &prices,
        model: &plan::ModelFile { path: "m.onnx".to_owned(), sha256: "0".repeat(64), dims: vec![] },
        machine: &plan::MachineName { name: machine.full_name(), devices: 2, sha256: None },
        steps: rewrite::Steps::Offered,
        pinned: None,
        fixed,
        live: crate::Live::ONE,
        trail: None,
        memory: &crate::counted,
        enough: &|_| false,
    })
}

fn pin(operations: &str, partition: &str) -> Fixed {
    Fixed { operations: operations.to_owned(), partition: partition.to_owned() }
}

/// Every partition of each operation, by what is said where none is as is asked for.
fn choices(graph: &Graph, sections: &[Section], name: &str, impossible: &str) -> Vec<String> {
    let error = plan_of(graph, sections, &[pin(name, impossible)], &|_| true).unwrap_err();
    let PlanError::Fixed(FixedError::Choices(_, _, all)) = error else { panic!("{error}") };
    all.iter().map(|it| it.split(": ").next().unwrap().to_owned()).collect()
}

#[test]
fn what_is_fixed_costs_as_much_as_the_best_of_all_plans_that_have_it() {
    let graph = parse_graph(LAYERS).unwrap();
    let sections = [Section::whole(&graph)];
    let seconds = |fixed: &[Fixed]| plan_of(&graph, &sections, fixed, &|_| true).map(|it| it.seconds());
    let names = ["/up", "/relu", "/down"];
    let impossible = ["[a,a,a]", "[a,a]", "[a,a,a]"];
    let all: Vec<Vec<String>> =
        names.iter().zip(impossible).map(|(name, text)| choices(&graph, &sections, name, text)).collect();
    assert!(all.iter().all(|it| it.len() > 2), "{all:?}");
    // Every plan but for how copies are moved: all operations fixed.
    let mut plans: Vec<([&str; 3], f64)> = Vec::new();
    for up in &all[0] {
        for relu in &all[1] {
            for down in &all[2] {
                let fixed: Vec<Fixed> =
                    names.iter().zip([up, relu, down]).map(|(name, it)| pin(name, it)).collect();
                plans.push(([up, relu, down], seconds(&fixed).unwrap()));
            }
        }
    }
    let least = |has: &dyn Fn(&[&str; 3]) -> bool| {
        plans.iter().filter(|it| has(&it.0)).map(|it| it.1).fold(f64::INFINITY, f64::min)
    };
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b;
    assert!(near(seconds(&[]).unwrap(), least(&|_| true)));
    let mut dearer = 0;
    for (place, name) in names.iter().enumerate() {
        for partition in &all[place] {
            let fixed = plan_of(&graph, &sections, &[pin(name, partition)], &|_| true).unwrap();
            assert!(near(fixed.seconds(), least(&|plan| plan[place] == partition)), "{name} {partition}");
            assert_eq!(fixed.proof, plan::Proof::Optimal);
            assert_eq!(plan::check(&fixed), Ok(()));
            // The same by prices that forbid all else.
            let mesh = Mesh::of_sizes(&[2]);
            let text = |it: &Work<'_>| it.partition.display(&mesh).to_string();
            let allows = |it: &Work<'_>| it.node.0 != place || text(it) == *partition;
            let forbidden = plan_of(&graph, &sections, &[], &allows).unwrap();
            assert!(near(fixed.seconds(), forbidden.seconds()), "{name} {partition}");
            dearer += usize::from(!near(fixed.seconds(), seconds(&[]).unwrap()));
        }
    }
    assert!(dearer > 3);
}

/// Four equal layers are one section; where something is fixed of the third, they are three.
#[test]
fn one_of_equal_blocks_is_fixed() {
    let mut text = "graph \"deep\" {\n  %0 = input \"x\" : f32[64,512]\n".to_owned();
    let mut x = 0;
    for layer in 0..4 {
        let at = |place: usize| 6 * layer + place;
        for (place, what) in [(1, "up"), (2, "down")] {
            text += &format!("  %{} = weight \"{what}.{layer}\" : f32[512,512]\n", at(place));
        }
        for (place, op, name) in [
            (3, format!("contract \"ab,bc->ac\" %{x} %{}", at(1)), "up"),
            (4, format!("relu %{}", at(3)), "relu"),
            (5, format!("contract \"ab,bc->ac\" %{} %{}", at(4), at(2)), "down"),
            (6, format!("add %{} %{x}", at(5)), "add"),
        ] {
            text += &format!("  %{} = {op} : f32[64,512] # origin \"/h.{layer}/{name}\"\n", at(place));
        }
        x = at(6);
    }
    let graph = parse_graph(&format!("{text}  return \"y\" %{x}\n}}\n")).unwrap();
    let blocks = rewrite::blocks(&graph);
    let sections = crate::sections(&blocks);
    let repeated: Vec<usize> = sections.iter().map(|it| it.repetitions.len()).collect();
    assert_eq!(repeated, [1, 4, 1]);
    let made = |fixed: &[Fixed]| plan_of(&blocks.graph, &sections, fixed, &|_| true).unwrap();
    let partitions = |plan: &plan::Plan| -> Vec<String> {
        let of = |it: &plan::Assignment| match it {
            plan::Assignment::Computed { partition, .. } => partition.display(&plan.mesh).to_string(),
            plan::Assignment::Prepared => "prepared".to_owned(),
        };
        plan.assignments.iter().map(of).collect()
    };
    let free = made(&[]);
    let third = made(&[pin("/h.2/up", "[-,a,-]")]);
    assert_eq!((free.space.unique_blocks, third.space.unique_blocks), (3, 5));
    assert_eq!(plan::check(&third), Ok(()));
    assert_eq!(partitions(&third)[8], "[-,a,-]");
    assert!(third.seconds() > free.seconds());
    // All of them at once are one section still; what the free plan has changes nothing.
    let all = made(&[pin("/h.*/up", "[-,a,-]")]);
    assert_eq!(all.space.unique_blocks, 3);
    assert!(all.seconds() > third.seconds());
    let own = partitions(&free);
    let same = made(&[pin("/h.0/up", &own[0]), pin("/h.3/relu", &own[13])]);
    let (pins, space) = (Vec::new(), free.space.clone());
    assert_eq!(plan::Plan { pins, space, ..same }, free);
}

/// What is said of it is in the tests of the command line.
#[test]
fn what_cannot_be_fixed_is_refused() {
    let graph = parse_graph(LAYERS).unwrap();
    let sections = [Section::whole(&graph)];
    let refused = |fixed: &[Fixed]| match plan_of(&graph, &sections, fixed, &|_| true) {
        Err(PlanError::Fixed(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(&[pin("/up", "[a,-,")]), FixedError::Text(..)));
    assert!(matches!(refused(&[pin("/relu", "[a,a]")]), FixedError::Choices(..)));
    assert!(matches!(refused(&[pin("/up", "2 steps both ways [a,-,(a+@t:2)]")]), FixedError::Exchange(_)));
    assert!(matches!(refused(&[pin("/up", "[-,a,-] routes a by 2")]), FixedError::Exchange(_)));
    let twice = [pin("/*", "[a,-,-]"), pin("/down", "[-,a,-]")];
    assert!(matches!(refused(&twice), FixedError::Twice(.., operation) if operation == "/down"));
    // What is no operation of this program may be one of another stage.
    for other in [pin("/others", "[a]"), pin("/*", "[a]")] {
        assert!(plan_of(&graph, &sections, &[other], &|_| true).unwrap().pins.is_empty());
    }
    assert_eq!(pin("/*", "[a]").counts(&graph), [2, 3].into());
    for (text, loops) in [("[]", Some(0)), ("4 steps [-,(a+@t:4)] passes b,c", Some(2)), ("a,b", None)] {
        assert_eq!(pin("/up", text).loops(), loops);
    }
}

/// Of operations of which some cannot be as is fixed, the others are.
#[test]
fn what_can_be_fixed_beside_what_cannot_is_left() {
    let graph = parse_graph(LAYERS).unwrap();
    let of = |error: &FixedError| -> Vec<&str> {
        graph.nodes.iter().filter(|node| error.is_of(node)).map(|node| node.origin.as_str()).collect()
    };
    let fixed = [pin("/*", "[a,-,-]"), pin("/relu", "[a,-]")];
    let down = FixedError::Choices(fixed[0].clone(), "/down".to_owned(), vec![]);
    assert_eq!(of(&down), ["/down"]);
    let others = [pin("/relu", "[a,-,-]"), pin("/up", "[a,-,-]"), pin("/relu", "[a,-]")];
    assert_eq!(down.without(&fixed, &graph), others);
    // In the end there is nothing.
    let both = FixedError::Twice(others[0].clone(), others[2].clone(), "/relu".to_owned());
    assert_eq!(both.without(&others, &graph), [pin("/up", "[a,-,-]")]);
    let up = FixedError::Choices(others[1].clone(), "/up".to_owned(), vec![]);
    assert!(up.without(&others[1..2], &graph).is_empty());
    // What no operation is to blame for is not fixed at all.
    for error in [FixedError::Exchange(fixed[0].clone()), FixedError::Apart(vec![fixed[0].clone()])] {
        assert_eq!(of(&error), ["/up", "/relu", "/down"]);
        assert_eq!(error.without(&fixed, &graph), fixed[1..]);
    }
}

/// What is prepared has no choice: pins that meet there only do not clash.
#[test]
fn pins_meet_where_something_is_chosen() {
    let (down, sum) =
        ("  %5 = contract \"ab,bc->ac\" %4 %2", "add %1 %2 : f32[512,512] # origin \"/down/weight\"");
    let prepared = LAYERS.replace(down, &format!("  %5 = {sum}\n  %6 = contract \"ab,bc->ac\" %4 %5"));
    let graph = parse_graph(&prepared.replace("\"y\" %5", "\"y\" %6")).unwrap();
    let sections = [Section::whole(&graph)];
    let met = [pin("/*/weight", "[a,-]"), pin("/d*", "[-,a]"), pin("/up", "[a,-,-]")];
    assert_eq!(plan_of(&graph, &sections, &met, &|_| true).unwrap().pins.len(), 1);
}

/// A form of a block is left out where it cannot be as is fixed, as long as another one can.
#[test]
fn forms_of_a_block_have_all_that_is_fixed() {
    let mesh = Mesh::of_sizes(&[2]);
    let graph = parse_graph(LAYERS).unwrap();
    let fixed = [pin("/up", "[a,-,-]"), pin("/relu", "[a,-]")];
    let pins = pins(&fixed, &[&graph], &mesh).unwrap();
    let kept = |of: &[usize], refused: Option<&str>| Kept {
        of: of.iter().copied().collect(),
        refused: refused.map(|it| FixedError::Choices(fixed[0].clone(), it.to_owned(), vec![])),
    };
    let of = |forms: &[Kept]| allowed(&forms.iter().collect::<Vec<_>>(), &mesh, &pins);
    assert_eq!(of(&[kept(&[], None), kept(&[], None)]), Ok(vec![true, true]));
    // One form refuses, or has no such operation.
    assert_eq!(of(&[kept(&[0], None), kept(&[0], Some("fused"))]), Ok(vec![true, false]));
    assert_eq!(of(&[kept(&[0], Some("alone")), kept(&[0], None)]), Ok(vec![false, true]));
    assert_eq!(of(&[kept(&[0], None), kept(&[0, 1], None)]), Ok(vec![false, true]));
    // All of them do.
    let why = |forms: &[Kept]| of(forms).unwrap_err();
    assert!(matches!(
        why(&[kept(&[0], Some("alone")), kept(&[0], Some("fused"))]),
        FixedError::Choices(_, operation, _) if operation == "alone"
    ));
    let apart = why(&[kept(&[0], None), kept(&[1], None)]);
    assert_eq!(apart.pins(), [&fixed[0], &fixed[1]]);
}
