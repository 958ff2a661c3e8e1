//! Tests of the two clocks: bounds hold, and the least time is found.

use cost_models::machine::shipped;
use plan::Precision;
use planner_ir::Mesh;

use super::*;
use crate::compose::{Part, compose, estimate, join};
use crate::fold::tests::{Sizes, planned, recipe, trained, transformer};
use crate::prepare::{Prepared, chain, kinds};
use crate::section::Section;
use crate::{Cut, MachinePrices, Prices, bound, fold};

/// What takes so long on each clock, and in the update.
#[derive(Clone, Copy, Debug)]
struct Point {
    loads: [Load; 2],
    update: f64,
}

impl Point {
    fn time(&self, overlap: Overlap) -> f64 {
        let takes = |load: &Load| load.all() - load.hidden(Some(overlap));
        self.update + self.loads.iter().map(takes).sum::<f64>()
    }

    fn weighed(&self, weights: &Weights) -> f64 {
        let [forward, backward] = &self.loads;
        let on = |phase: Phase, load: &Load| {
            weights.alone(phase) * (load.alone - load.blocking)
                + weights.exchanged(Phase::Forward, false) * load.blocking
                + weights.on_links(phase) * load.links
                + weights.exchanged(phase, true) * load.beside()
                + weights.routed(phase) * load.routed
                + weights.meanwhile(phase) * load.meanwhile
        };
        let of_gradients = weights.alone(Phase::Gradient) * backward.apart
            + weights.exchanged(Phase::Backward, false) * backward.waited;
        weights.alone(Phase::Update) * self.update
            + on(Phase::Forward, forward)
            + on(Phase::Backward, backward)
            + of_gradients
    }
}

/// Of random points, that of the least time is found or is not proven not to be there; where everything that may
/// run beside computing is shorter than it, it is found at once.
#[test]
fn the_least_time_lies_between_bound_and_plan() {
    let (mut optimal, mut gaps) = (0, 0);
    arbtest::arbtest(|u| {
        let cost = f64::from(u.int_in_range(0..=9_u8)?) / 10.0;
        let overlap = Overlap { cost, latency: u.arbitrary::<bool>()?.then_some(0.0) };
        let routes: bool = u.arbitrary()?;
        let mut points = Vec::new();
        for _ in 0..u.int_in_range(1..=12)? {
            let mut number = || Ok::<f64, arbtest::arbitrary::Error>(f64::from(u.int_in_range(0..=40_u8)?));
            let mut load = |is_backward: bool| {
                let mut numbers = [0.0; 6];
                for it in numbers.iter_mut().take(if is_backward { 6 } else { 4 }) {
                    *it = number()?;
                }
                let [alone, ahead, mut routed, mut meanwhile, waited, apart] = numbers;
                if !routes {
                    (routed, meanwhile) = (0.0, 0.0);
                }
                // Exchanges of the loss stand in the way.
                let blocking = if is_backward { 0.0 } else { alone / 2.0 };
                let links = blocking + waited + ahead;
                let load =
                    Load { alone, waited, apart, routed, meanwhile, ahead, behind: 0.0, blocking, links };
                Ok::<Load, arbtest::arbitrary::Error>(load)
            };
            let loads = [load(false)?, load(true)?];
            points.push(Point { loads, update: number()? });
        }
        let least = points.iter().map(|it| it.time(overlap)).fold(f64::INFINITY, f64::min);
        let mut clocks = Clocks::new(Some(overlap), false);
        let mut tried = 0;
        loop {
            let weights = clocks.weights();
            let by = |a: &&Point, b: &&Point| a.weighed(&weights).total_cmp(&b.weighed(&weights));
            let best = points.iter().min_by(by).expect("there is one");
            tried += 1;
            let taken = Taken { loads: best.loads, seconds: best.time(overlap) };
            if !clocks.go_on(taken, best.weighed(&weights)) {
                break;
            }
        }
        assert!(clocks.bound <= least * (1.0 + EXACT), "{} and {least}: {points:?}", clocks.bound);
        assert!(clocks.time >= least * (1.0 - EXACT));
        if clocks.gap() <= EXACT {
            optimal += 1;
        } else if !clocks.is_settled() {
            gaps += 1;
        }
        let hides = overlap.latency.is_none()
            && points.iter().all(|it| {
                let [forward, backward] = it.loads;
                forward.beside() <= forward.alone
                    && backward.waits() <= backward.computes()
                    && forward.waits() >= forward.computes()
                    && backward.beside() <= backward.alone
            });
        assert!(!hides || tried == 1 && clocks.gap() <= EXACT);
        Ok(())
    })
    .budget_ms(2_000);
    assert!(optimal > 0 && gaps > 0, "{optimal} proven, {gaps} not");
}

/// Plans may take more than what is minimised counts: what comes of the same weights is the same, so that none are
/// tried twice.
#[test]
fn no_weights_are_tried_twice() {
    let mut several = 0;
    for seed in 0..200 {
        let mut dice = crate::problem::tests::Dice(seed);
        let mut load = || Load {
            alone: dice.time(40),
            waited: dice.time(20),
            apart: dice.time(20),
            ahead: dice.time(40),
            ..Load::default()
        };
        let one_by_one = |load: Load| Load { blocking: 0.0, ..load.one_by_one() };
        let points: Vec<Point> =
            (0..8).map(|_| Point { loads: [one_by_one(load()), load()], update: load().alone }).collect();
        let (mut clocks, mut tried) = (Clocks::new(Some(Overlap::costs(0.125)), false), Vec::new());
        loop {
            let weights = clocks.weights();
            assert!(!tried.contains(&weights), "seed {seed}: {weights:?} after {tried:?}");
            tried.push(weights);
            let by = |a: &&Point, b: &&Point| a.weighed(&weights).total_cmp(&b.weighed(&weights));
            let best = points.iter().min_by(by).expect("there is one");
            let taken = Taken { loads: best.loads, seconds: best.time(Overlap::costs(0.125)) + 5.0 };
            if !clocks.go_on(taken, best.weighed(&weights)) {
                break;
            }
        }
        several += usize::from(tried.len() > 1);
    }
    assert!(several > 20, "{several}");
}

/// With any weights no plan takes less than what it takes by them, and what the best takes by its own is as much,
/// where bound and plan meet.
#[test]
fn no_plan_takes_less_than_by_any_weights() {
    let small = Sizes { layers: 3, batch: 16, sequence: 1024, hidden: 1024, heads: 8, vocabulary: 512 };
    let (mut behind, mut in_steps) = (0.0, 0);
    for (precision, micro_batches, name, mesh, steps) in [
        (Precision::F32, 1, "h100-80g-8x", "4", rewrite::Steps::One),
        (Precision::Bf16, 1, "h100-80g-8x", "2x2", rewrite::Steps::One),
        (Precision::Bf16, 2, "h100-80g-8x", "2x2", rewrite::Steps::One),
        (Precision::Bf16, 1, "l40s-48g-8x", "8", rewrite::Steps::Offered),
    ] {
        let trained = trained(&transformer(small, micro_batches == 1), &recipe(precision, micro_batches));
        let sections: Vec<Section> = fold(&trained.step.graph, &trained.step.homes, &trained.step.forward);
        let mesh_ = Mesh::parse(mesh).expect("is a mesh");
        let machine = shipped::named(name).expect("is a machine");
        let prices = MachinePrices::new(&machine, &mesh_).expect("suits");
        let overlap = prices.beside().expect("exchanges beside computing");
        assert!(overlap.latency.is_some(), "all go through one switch, or along one axis");
        let cut = Cut { graph: &trained.step.graph, sections: &sections };
        let shares = [
            ONE_SUM,
            [[0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]],
            [[1.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]],
            [[0.25, 0.0, 0.75, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25, 0.0]],
            [[0.5, 0.0, 0.5, 0.0, 0.0], [0.0, 0.5, 0.0, 0.5, 0.0]],
            [[0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 1.0]],
            [[0.5, 0.0, 0.0, 0.0, 0.5], [0.0, 0.25, 0.0, 0.25, 0.5]],
        ];
        let weights = shares.map(|it| Weights::of(it, (overlap, false)));
        let offer = rewrite::Offer { steps, ..Default::default() };
        let known = (&prices as &dyn Prices, &rewrite::Spaces::default(), weights[0]);
        let program = Prepared::new(cut, &mesh_, known, (offer, crate::Live::ONE), (None, &[]));
        let program = [program.expect("has a space")];
        let kinds = kinds(&program);
        let chains = weights.map(|it| chain(&program, &kinds, &it));
        let least = planned(&trained, name, mesh, 1 << 40).expect("fits");
        for own in &chains {
            let found = bound::solve_chain(own, 1 << 40).expect("fits");
            let mut parts = Vec::new();
            for (index, section) in sections.iter().enumerate() {
                for (repetition, choices) in section.repetitions.iter().zip(&found.choices.blocks[index]) {
                    let (space, assembled) = (&program[0].spaces[index], &program[0].assembled[index]);
                    parts.push(Part { kind: (0, index), section, repetition, space, assembled, choices });
                }
            }
            let mut composed = compose(&trained.step.graph, &parts, &mesh_, &prices);
            let graph = &trained.step.graph;
            let returned =
                |it: &planner_ir::Output| composed.returned[it.value.0].unwrap_or(plan::Copy::Made);
            let mut plan = Plan {
                graph: graph.clone(),
                layouts: composed.layouts,
                assignments: composed.assignments,
                transfers: composed.transfers,
                carried: composed.carried,
                outputs: graph.outputs.iter().map(returned).collect(),
                ..least.clone()
            };
            join(&mut plan, &mut composed.in_place, (&prices, &composed.places));
            plan.estimate = estimate(&plan, &prices);
            plan.hidden = plan.hidden_at(Some(overlap));
            let time = plan.seconds();
            let is_least = steps == rewrite::Steps::One;
            assert!(!is_least || time >= least.seconds() * (1.0 - SETTLED), "{time}, {}", least.seconds());
            let moves = |it: &&plan::Assignment| matches!(it, plan::Assignment::Computed { exchanged, .. } if exchanged.links > 0.0);
            in_steps += plan.assignments.iter().filter(moves).count();
            assert_eq!(crate::mispriced(&plan, &prices), None);
            let mut other = plan.clone();
            if let Some(plan::Assignment::Computed { exchanged, .. }) =
                other.assignments.iter_mut().find(|it| moves(&&**it))
            {
                exchanged.links *= 2.0;
                let wrong = crate::mispriced(&other, &prices).expect("takes other times");
                assert!(wrong.contains(" on links takes "), "{wrong}");
            }
            behind += plan.loads(Some(overlap))[Clock::Backward as usize].behind;
            for other in &chains {
                let weighed = other.time(&found.choices);
                assert!(weighed <= time * (1.0 + EXACT), "{mesh}: {weighed} by weights, {time} in all");
            }
        }
    }
    assert!(behind > 0.0, "no gradient is summed behind");
    assert!(in_steps > 0, "nothing moves in time steps");
}

/// Where what layers exchange takes about as long as what they compute, some layers are one way and some another:
/// all either way take 7 % more than the bound, and one layer of eight more of either kind some. What little there is
/// beside the first fetches and the last sums comes on top: no bound knows it.
#[test]
fn blocks_of_two_kinds_are_mixed_where_that_is_faster() {
    for layers in [8, 16] {
        let sizes = Sizes { layers, batch: 8, sequence: 1024, hidden: 4096, heads: 32, vocabulary: 1024 };
        let trained = trained(&transformer(sizes, false), &recipe(Precision::Bf16, 1));
        let plan = planned(&trained, "h100-80g-8x", "8", 1 << 36).expect("fits");
        plan::check(&plan).expect("obeys the rules");
        let Proof::Gap { lower_bound } = plan.proof else { panic!("{:?}", plan.proof) };
        let machine = shipped::named("h100-80g-8x").expect("is a machine");
        let overlap = machine.transport.cost_beside().map(Overlap::costs);
        let by_sums: f64 = plan.loads(overlap).iter().map(|it| it.hidden(overlap)).sum();
        let sums = plan.seconds() + plan.hidden_seconds() - by_sums;
        assert!(sums < 1.03 * lower_bound, "{sums} and {lower_bound}");
        assert!((sums..1.06 * lower_bound).contains(&plan.seconds()), "{} and {lower_bound}", plan.seconds());
    }
}
