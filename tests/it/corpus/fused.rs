//! Products that are fused where that is cheaper, and only there.

use planner_ir::{Layout, Move, Op, Type};
use search::{MachinePrices, Prices, Work};

use super::cases::{self, Subject};
use super::trial;

/// Exports with queries, keys and values apart, in unequal numbers of heads, and packed into one.
const MODELS: [&str; 3] = ["llama-fwd-dynamo2.15-op23-dyn", "gpt2-eager-legacy2.9-op17-static", "vit-fwd-"];

/// Prices of a machine, but for slices.
struct Slices<'a> {
    inner: MachinePrices<'a>,
    /// What a slice takes (seconds).
    seconds: f64,
}

impl Prices for Slices<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        if matches!(work.op, Op::Slice { .. }) { self.seconds } else { self.inner.work(work) }
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        self.inner.step(type_, step, before, after)
    }
}

/// How many products a plan has in which a slice takes this long, which computes what it has to.
fn products(subject: &Subject, mesh: &str, seconds: f64) -> usize {
    let (mesh, machine) = trial::machine(mesh);
    let prices = Slices { inner: MachinePrices::new(&machine, &mesh).unwrap(), seconds };
    let plan = subject.chosen(&mesh, &machine, &prices).unwrap();
    subject.check(&plan).unwrap_or_else(|error| panic!("{} on {mesh}: {error}", subject.title));
    plan.graph.nodes.iter().filter(|node| matches!(node.op, Op::Contract(_))).count()
}

#[test]
fn products_are_fused_where_slices_are_cheap_and_apart_where_they_are_dear() {
    let (cases, _) = cases::all();
    for model in MODELS {
        let case = cases.iter().find(|case| case.title.starts_with(model)).unwrap();
        let subject = case.open().unwrap();
        let apart = subject.prepared.graph.nodes.iter();
        let apart = apart.filter(|node| matches!(node.op, Op::Contract(_))).count();
        for mesh in ["1", "2", "2x2"] {
            let [cheap, dear] = [0.0, 1.0].map(|seconds| products(&subject, mesh, seconds));
            assert!(cheap < apart, "{model} on {mesh}: {cheap} of {apart} products");
            assert_eq!(dear, apart, "{model} on {mesh}");
        }
    }
}
