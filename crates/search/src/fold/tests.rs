//! Tests of folded training steps: how they are cut, and their plans.

use cost_models::machine::shipped;
use plan::{Loss, MachineName, ModelFile, NoDecay, Plan, Precision, Recipe, Recompute};
use planner_ir::{
    Attention, Binary, Blind, Contract, DType, Label, Mesh, Op, Optimizer, Output, Real, StateKind, Type,
    Unary,
};
use train::Step as TrainingStep;

use super::*;
use crate::compose::{Part, compose, estimate, join, memory};
use crate::prepare::{Prepared, chain, kinds};
use crate::{Cut, Derived, MachinePrices, PlanError, Request, plan, plan_among};
use crate::{bound, eliminate};

/// Builds forward programs with inferred types; operations are called by their numbers.
pub(crate) struct Draft(Graph);

/// The sizes of a model like GPT-3.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) layers: u64,
    pub(crate) batch: u64,
    pub(crate) sequence: u64,
    pub(crate) hidden: u64,
    pub(crate) heads: u64,
    pub(crate) vocabulary: u64,
}

/// GPT-3 with 175 billion parameters.
pub(crate) const GPT_3: Sizes =
    Sizes { layers: 96, batch: 1, sequence: 2048, hidden: 12288, heads: 96, vocabulary: 51200 };

impl Draft {
    pub(crate) fn input(&mut self, dtype: DType, shape: &[u64]) -> ValueId {
        let name = format!("x{}", self.0.values.len());
        self.0.push_value(Type::new(dtype, shape), Source::Input(name))
    }

    pub(crate) fn weight(&mut self, shape: &[u64]) -> ValueId {
        let name = format!("w{}", self.0.values.len());
        self.0.push_value(Type::new(DType::F32, shape), Source::Weight(name))
    }

    pub(crate) fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = op.infer(&self.0.types_of(operands)).expect("types fit");
        let origin = format!("n{}", self.0.nodes.len());
        self.0.push_node(op, operands.to_vec(), types, origin)[0]
    }

    pub(crate) fn contract(
        &mut self,
        left: &str,
        right: &str,
        result: &str,
        operands: &[ValueId],
    ) -> ValueId {
        let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
        let op = Contract { left: labels(left), right: labels(right), result: labels(result) };
        self.op(Op::Contract(op), operands)
    }

    fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op(Op::Binary(Binary::Add), &[a, b])
    }

    fn norm(&mut self, x: ValueId, hidden: u64) -> ValueId {
        let [scale, bias] = [0, 0].map(|_| self.weight(&[hidden]));
        self.op(Op::LayerNorm { dims: 1, epsilon: Real(1e-5) }, &[x, scale, bias])
    }

    fn layer(&mut self, x: ValueId, sizes: Sizes) -> ValueId {
        let Sizes { hidden, heads, .. } = sizes;
        let size = hidden / heads;
        let h = self.norm(x, hidden);
        let mut project = || {
            let w = self.weight(&[hidden, heads, size]);
            let y = self.contract("abk", "khd", "ahbd", &[h, w]);
            let bias = self.weight(&[heads, 1, size]);
            self.add(y, bias)
        };
        let [q, k, v] = [project(), project(), project()];
        let attention = Attention {
            scale: Real(0.1),
            causal: true,
            softcap: Real(0.0),
            window: None,
            blind: Blind::Zero,
            sinks: false,
            statistics: false,
        };
        let a = self.op(Op::Attention(attention), &[q, k, v]);
        let w = self.weight(&[heads, size, hidden]);
        let o = self.contract("ahbd", "hdk", "abk", &[a, w]);
        let bias = self.weight(&[hidden]);
        let o = self.add(o, bias);
        let x = self.add(x, o);
        let h = self.norm(x, hidden);
        let up = self.weight(&[hidden, 4 * hidden]);
        let u = self.contract("abk", "kn", "abn", &[h, up]);
        let bias = self.weight(&[4 * hidden]);
        let u = self.add(u, bias);
        let m = self.op(Op::Unary(Unary::GeluTanh), &[u]);
        let down = self.weight(&[4 * hidden, hidden]);
        let d = self.contract("abk", "kn", "abn", &[m, down]);
        let bias = self.weight(&[hidden]);
        let d = self.add(d, bias);
        self.add(x, d)
    }
}

/// A model like GPT-3, up to its logits; its embedding is its last product's weight if `tied`.
pub(crate) fn transformer(sizes: Sizes, tied: bool) -> Graph {
    let mut it = Draft(Graph::default());
    let ids = it.input(DType::I64, &[sizes.batch, sizes.sequence]);
    let table = it.weight(&[sizes.vocabulary, sizes.hidden]);
    let x = it.op(Op::Gather { dim: 0 }, &[table, ids]);
    let positions = it.weight(&[sizes.sequence, sizes.hidden]);
    let mut x = it.add(x, positions);
    for _ in 0..sizes.layers {
        x = it.layer(x, sizes);
    }
    let h = it.norm(x, sizes.hidden);
    let head = if tied { table } else { it.weight(&[sizes.vocabulary, sizes.hidden]) };
    let logits = it.contract("abk", "nk", "abn", &[h, head]);
    it.0.outputs.push(Output { name: "logits".to_owned(), value: logits });
    it.0
}

/// Two products with a function between them, so many times; up to its logits.
pub(crate) fn products(layers: u64, rows: u64, hidden: u64, classes: u64) -> Graph {
    let mut it = Draft(Graph::default());
    let mut x = it.input(DType::F32, &[rows, hidden]);
    for _ in 0..layers {
        let w = it.weight(&[hidden, hidden]);
        let y = it.contract("ak", "kn", "an", &[x, w]);
        x = it.op(Op::Unary(Unary::Tanh), &[y]);
    }
    let w = it.weight(&[hidden, classes]);
    let logits = it.contract("ak", "kn", "an", &[x, w]);
    it.0.outputs.push(Output { name: "logits".to_owned(), value: logits });
    it.0
}

/// Adam, so many micro-batches.
pub(crate) fn recipe(precision: Precision, micro_batches: u64) -> Recipe {
    let [beta1, beta2, epsilon, decay] = [0.9, 0.95, 1e-8, 0.1].map(Real);
    Recipe {
        precision,
        micro_batches,
        clip: Some(1.0),
        no_decay: NoDecay { names: vec![], vectors: true },
        ..Recipe::new(
            Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() },
            Optimizer::AdamW { beta1, beta2, epsilon, decay },
        )
    }
}

/// A step and its recipe, with a decision for each block.
pub(crate) struct Trained {
    pub(crate) step: TrainingStep,
    pub(crate) recipe: Recipe,
}

pub(crate) fn trained(graph: &Graph, recipe: &Recipe) -> Trained {
    derived(graph, recipe, &[Recompute::Nothing])
}

/// The same model with this done again in all blocks, or in each as decided.
pub(crate) fn derived(graph: &Graph, recipe: &Recipe, decisions: &[Recompute]) -> Trained {
    let forward = train::forward(graph, recipe).expect("has a loss");
    let blocks = rewrite::blocks(&forward);
    let count = blocks.segments.len();
    let recompute = if let [all] = decisions { vec![all.clone(); count] } else { decisions.to_vec() };
    let recipe = Recipe { recompute, ..recipe.clone() };
    let step = train::step(&blocks, &recipe).expect("can be trained");
    planner_ir::verify(&step.graph).expect("is a step");
    Trained { step, recipe }
}

pub(crate) fn planned(
    trained: &Trained,
    machine: &str,
    mesh: &str,
    capacity: u64,
) -> Result<Plan, PlanError> {
    Ok(planned_among(std::slice::from_ref(trained), None, machine, mesh, capacity)?.0)
}

/// The plan among several variants of a step; none but the first without a way to derive them.
pub(crate) fn planned_among(
    variants: &[Trained],
    model: Option<&Graph>,
    machine: &str,
    mesh: &str,
    capacity: u64,
) -> Result<(Plan, Vec<usize>), PlanError> {
    let cut = |it: &Trained| fold(&it.step.graph, &it.step.homes, &it.step.forward);
    let sections: Vec<Vec<Section>> = variants.iter().map(cut).collect();
    let mesh = Mesh::parse(mesh).expect("is a mesh");
    let machine = shipped::named(machine).expect("is a machine");
    let prices = MachinePrices::new(&machine, &mesh).expect("suits");
    let request = Request {
        graph: &variants[0].step.graph,
        sections: &sections[0],
        mesh: &mesh,
        capacity,
        prices: &prices,
        model: &ModelFile { path: "model.onnx".to_owned(), sha256: "0".repeat(64), dims: vec![] },
        machine: &MachineName { name: machine.full_name(), devices: mesh.devices(), sha256: None },
        steps: rewrite::Steps::One,
        live: crate::Live::ONE,
        pinned: None,
        fixed: &[],
        trail: None,
        memory: &crate::counted,
        enough: &|_| false,
    };
    let cuts = variants.iter().zip(&sections).map(|(it, sections)| Cut { graph: &it.step.graph, sections });
    let decide = |chosen: &[usize]| -> Trained {
        let decisions: Vec<Recompute> =
            chosen.iter().map(|&it| variants[it].recipe.recompute[0].clone()).collect();
        derived(model.expect("is there"), &variants[0].recipe, &decisions)
    };
    let derive = |chosen: &[usize]| {
        let TrainingStep { graph, homes, .. } = decide(chosen).step;
        Derived { graph, homes }
    };
    let (plan, chosen) = match model {
        Some(_) => plan_among(&request, &cuts.skip(1).collect::<Vec<_>>(), &derive)?,
        None => (plan(&request)?, vec![]),
    };
    let recipe = if model.is_some() { decide(&chosen).recipe } else { variants[0].recipe.clone() };
    Ok((Plan { recipe: Some(recipe), ..plan }, chosen))
}

fn repetitions(trained: &Trained) -> Vec<usize> {
    let sections = fold(&trained.step.graph, &trained.step.homes, &trained.step.forward);
    sections.iter().map(|section| section.repetitions.len()).collect()
}

#[test]
fn equal_layers_with_their_gradients_are_one_section() {
    let small = Sizes { layers: 6, batch: 2, sequence: 8, hidden: 16, heads: 4, vocabulary: 32 };
    let counts = repetitions(&trained(&transformer(small, false), &recipe(Precision::F32, 2)));
    assert_eq!(counts, [1, 6, 1]);
}

/// A model whose layers are equal but small.
const SMALL: Sizes = Sizes { layers: 4, batch: 8, sequence: 8, hidden: 16, heads: 4, vocabulary: 32 };

/// Enough for anything (bytes).
const ROOM: u64 = 80_000_000_000;

fn held(plan: &Plan, kind: &str) -> u64 {
    plan.memory.iter().find(|it| it.kind == kind).map_or(0, |it| it.bytes)
}

fn total(plan: &Plan) -> u64 {
    plan.memory.iter().map(|it| it.bytes).sum()
}

#[test]
fn what_several_segments_share_is_joined() {
    let tied = trained(&transformer(SMALL, true), &recipe(Precision::Bf16, 2));
    let sections = fold(&tied.step.graph, &tied.step.homes, &tied.step.forward);
    let counts: Vec<usize> = sections.iter().map(|section| section.repetitions.len()).collect();
    assert_eq!(counts, [1, 4, 1]);
    // The parameter, and its gradient, to which both ends add.
    let anywhere = |section: &Section| -> BTreeSet<usize> {
        let anywhere = section.shared.iter().filter(|it| it.sharing == Sharing::Anywhere);
        anywhere.map(|it| it.number).collect()
    };
    assert_eq!(anywhere(&sections[0]).len(), 2);
    assert_eq!(anywhere(&sections[0]), anywhere(&sections[2]));
}

#[test]
fn plans_of_training_steps_obey_the_rules() {
    for (tied, precision, micro_batches) in
        [(false, Precision::F32, 1), (true, Precision::F32, 3), (true, Precision::Bf16, 2)]
    {
        let trained = trained(&transformer(SMALL, tied), &recipe(precision, micro_batches));
        for mesh in ["1", "4", "2x2"] {
            let plan = planned(&trained, "h100-80g-8x", mesh, ROOM).expect("fits");
            plan::check(&plan).expect("obeys the rules");
            assert_eq!(plan.carried.len(), plan.graph.training.as_ref().map_or(0, |it| it.carried.len()));
        }
    }
}

#[test]
fn a_step_cut_into_sections_is_as_fast_as_the_chain_is_by_elimination() {
    let trained = trained(&products(3, 64, 8, 4), &recipe(Precision::F32, 2));
    let sections = fold(&trained.step.graph, &trained.step.homes, &trained.step.forward);
    let mesh = Mesh::parse("2").expect("is a mesh");
    let machine = shipped::named("h100-80g-8x").expect("is a machine");
    let prices = MachinePrices::new(&machine, &mesh).expect("suits");
    let cut = Cut { graph: &trained.step.graph, sections: &sections };
    let one = crate::clocks::Weights::ONE;
    let prepared = |prices: &dyn crate::prices::Prices| {
        let offer = rewrite::Offer { steps: rewrite::Steps::One, ..Default::default() };
        let known = (prices, &rewrite::Spaces::default(), one);
        Prepared::new(cut, &mesh, known, (offer, crate::Live::ONE), (None, &[])).expect("has a space")
    };
    let of = |programs: &[Prepared<'_>]| {
        let kinds = kinds(programs);
        (chain(programs, &kinds, &one), kinds)
    };
    let (alone, kinds) = of(&[prepared(&prices)]);
    assert!(kinds.iter().all(|it| *it == [0]), "{kinds:?}");
    let flat = alone.flat();
    // Sections that are the same in several programs stand once.
    assert_eq!(of(&[prepared(&prices), prepared(&prices)]), (alone, kinds));
    let other = shipped::named("a100-80g-8x").expect("is a machine");
    let other = MachinePrices::new(&other, &mesh).expect("suits");
    let (three, kinds) = of(&[prepared(&prices), prepared(&prices), prepared(&other)]);
    let variants = three.segments.iter().map(|it| it.variants.len());
    assert!(kinds.contains(&vec![0, 2]) && kinds.iter().all(|it| !it.contains(&1)), "{kinds:?}");
    assert!(variants.zip(&kinds).all(|(many, kinds)| many == if kinds.len() == 1 { 0 } else { kinds.len() }));
    let truth = eliminate::solve(&flat.problem).expect("has a least time").time;
    let plan = planned(&trained, "h100-80g-8x", "2", ROOM).expect("fits");
    assert_eq!(plan.proof, plan::Proof::Optimal);
    // The plan's time is of all that it says, the problem's of all that was chosen.
    assert!((plan.seconds() - truth).abs() < 1e-9 * truth, "{} and {truth}", plan.seconds());
}

#[test]
fn what_is_counted_from_below_is_there_and_times_are_those_of_the_plan() {
    for (tied, micro_batches, mesh, part) in
        [(true, 2, "1", 100), (true, 2, "4", 100), (false, 2, "2x2", 100), (true, 3, "4", 70)]
    {
        let sizes = Sizes { batch: 16, sequence: 64, ..SMALL };
        let trained = trained(&transformer(sizes, tied), &recipe(Precision::Bf16, micro_batches));
        let roomy = planned(&trained, "h100-80g-8x", mesh, ROOM).expect("fits");
        let capacity = total(&roomy) * part / 100;
        let sections = fold(&trained.step.graph, &trained.step.homes, &trained.step.forward);
        let mesh_ = Mesh::parse(mesh).expect("is a mesh");
        let machine = shipped::named("h100-80g-8x").expect("is a machine");
        let prices = MachinePrices::new(&machine, &mesh_).expect("suits");
        let cut = Cut { graph: &trained.step.graph, sections: &sections };
        let weights = crate::clocks::Weights::ONE;
        let prepared = [Prepared::new(
            cut,
            &mesh_,
            (&prices, &rewrite::Spaces::default(), weights),
            (rewrite::Offer { steps: rewrite::Steps::One, ..Default::default() }, crate::Live::ONE),
            (None, &[]),
        )
        .expect("has a space")];
        let chain = chain(&prepared, &kinds(&prepared), &weights);
        let found = bound::solve_chain(&chain, capacity).expect("fits");
        let choices = &found.choices.blocks;
        let mut parts = Vec::new();
        for (index, section) in sections.iter().enumerate() {
            for (repetition, choices) in section.repetitions.iter().zip(&choices[index]) {
                let (space, assembled) = (&prepared[0].spaces[index], &prepared[0].assembled[index]);
                parts.push(Part { kind: (0, index), section, repetition, space, assembled, choices });
            }
        }
        let mut composed = compose(&trained.step.graph, &parts, &mesh_, &prices);
        let mut plan = Plan {
            graph: trained.step.graph.clone(),
            layouts: composed.layouts,
            assignments: composed.assignments,
            transfers: composed.transfers,
            carried: composed.carried,
            ..roomy
        };
        join(&mut plan, &mut composed.in_place, (&prices, &composed.places));
        let there: u64 = memory(&plan, crate::Live::ONE).iter().map(|it| it.bytes).sum();
        let counted = chain.usage(&found.choices).peak();
        assert!(counted <= there, "{counted} counted, {there} there");
        // Nearly all is: what is missing are copies on their way.
        assert!(counted >= there / 4 * 3, "{counted} counted, {there} there");
        let seconds: f64 = estimate(&plan, &prices).iter().map(|term| term.seconds).sum();
        assert!((seconds - found.time).abs() < 1e-9 * seconds, "{seconds} and {}", found.time);
    }
}

/// Sums for each micro-batch are hidden by computing, but make it longer: of many it is better to sum once.
#[test]
fn a_small_model_is_data_parallel_and_sums_its_gradients_once() {
    let trained = trained(&products(3, 1 << 20, 128, 16), &recipe(Precision::F32, 64));
    let plan = planned(&trained, "h100-80g-8x", "8", ROOM).expect("fits");
    plan::check(&plan).expect("obeys the rules");
    for value in plan.graph.value_ids() {
        let Source::State(state) = &plan.graph.value(value).source else { continue };
        let layout = &plan.layouts[value.0];
        assert!(layout.axes().is_empty(), "{state:?} is split");
        if state.kind == StateKind::Gradient {
            assert_eq!(layout.owed.len(), 1, "{state:?} is summed for each micro-batch");
        }
    }
}

#[test]
fn states_are_split_as_memory_shrinks() {
    let trained = trained(&products(4, 1 << 15, 2048, 64), &recipe(Precision::Bf16, 1));
    let roomy = planned(&trained, "h100-80g-8x", "8", ROOM).expect("fits");
    let mut tight = roomy.clone();
    let mut capacity = total(&roomy);
    loop {
        capacity = capacity.min(total(&tight)) / 100 * 95;
        match planned(&trained, "h100-80g-8x", "8", capacity) {
            Ok(plan) => tight = plan,
            Err(_) => break,
        }
        plan::check(&tight).expect("obeys the rules");
        assert!(total(&tight) <= capacity);
    }
    // Bytes of each parameter, over 8 devices.
    let parameters: u64 = 4 * 2048 * 2048 + 2048 * 64;
    for (kind, bytes) in [("masters", 4), ("optimizer", 8), ("gradients", 4)] {
        assert!(held(&tight, kind) <= bytes * parameters / 8 * 11 / 10, "{:?}", tight.memory);
    }
    assert!(tight.seconds() >= roomy.seconds());
}

#[test]
fn blocks_are_computed_again_where_memory_is_short() {
    let model = transformer(Sizes { batch: 32, sequence: 256, hidden: 256, ..SMALL }, false);
    let all = [Recompute::Nothing, Recompute::Full];
    let all = all.map(|it| derived(&model, &recipe(Precision::F32, 1), &[it]));
    let among = |capacity: u64| planned_among(&all, Some(&model), "h100-80g-8x", "4", capacity);
    let (roomy, chosen) = among(ROOM).expect("fits");
    assert!(chosen.iter().all(|&it| it == 0), "{chosen:?}");
    let (tight, chosen) = among(total(&roomy) / 100 * 60).expect("fits");
    plan::check(&tight).expect("obeys the rules");
    assert!(chosen.contains(&1), "{chosen:?}");
    assert!(tight.seconds() > roomy.seconds());
}

#[test]
fn a_block_of_gpt_3_is_planned_with_proof() {
    let trained = trained(&transformer(Sizes { layers: 17, ..GPT_3 }, false), &recipe(Precision::Bf16, 8));
    let plan = planned(&trained, "h100-80g-8x", "2x2x2", 80_000_000_000).expect("fits");
    plan::check(&plan).expect("obeys the rules");
    // Memory is nearly full.
    let bound = match plan.proof {
        plan::Proof::Optimal => plan.seconds(),
        plan::Proof::Gap { lower_bound } => lower_bound,
    };
    assert!(plan.seconds() < 1.005 * bound, "{} and {bound}", plan.seconds());
    assert!(plan.space.saturated);
}
