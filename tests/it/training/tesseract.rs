//! Training steps on grids of rows, columns and depth: Tesseract's layers, whole.
//!
//! Products are streams of blocks along rows and columns, examples are split over depth and rows, what
//! a layer hands on is split over columns, and so are heads, hidden units and classes. Norms and the
//! loss are spelled out, so that a row stays split: a few numbers of each are summed.

use std::collections::BTreeMap;

use driver::pipeline::{self, Decisions, Prepared, Target, Training};
use kernels::Array;
use plan::{Assignment, Plan, Recompute};
use planner_ir::{
    AxisId, DType, Digit, Graph, Layout, Mesh, Move, NodeId, Op, Partition, Phase, Role, Source, State,
    StateKind, Type, Unary,
};
use run::{Reference, Session};
use search::{MachinePrices, Prices, Request, Section, Work};

use super::against::apart;
use super::cases::{self, ADAMW, Arrays, Case, MOMENTUM, floats, parted, step_inputs};
use super::chosen::check_plan;
use super::forms::falls;
use super::roles::stems;
use crate::corpus::{check_bytes, machine};
use crate::papers::graph::{self, Sizes};

/// How many rows and columns grids have.
const SIDE: u64 = 2;
/// Sizes that say what a loop runs over: heads are as many as parts of a row of scores, which are split
/// alike, no two others are alike, and lengths of sequences are odd.
const SIZES: Sizes = Sizes {
    layers: 2,
    batch: 8,
    sequence: 3,
    hidden: 20,
    heads: 4,
    vocabulary: Some(44),
    dtype: DType::F32,
    activation: Unary::Gelu,
};
/// How many classes a part of a row of scores has, at the sizes above: 44 classes in 4 parts.
const PARTS: u64 = 4;
/// How many steps are run.
const STEPS: usize = 3;
/// What a step costs that no grid takes (seconds).
const WRONG: f64 = 1000.0;

/// The axes of a grid: depth, if it has any, rows, columns.
struct Grid {
    mesh: Mesh,
    depth: Option<AxisId>,
    rows: AxisId,
    columns: AxisId,
}

impl Grid {
    fn of(mesh: &Mesh) -> Self {
        let last = mesh.axes.len() - 1;
        let depth = (last > 1).then_some(AxisId(0));
        Self { mesh: mesh.clone(), depth, rows: AxisId(last - 1), columns: AxisId(last) }
    }

    fn digit(&self, axis: AxisId) -> Digit {
        Digit::axis(&self.mesh, axis)
    }

    /// What examples are split over.
    fn examples(&self) -> Vec<Digit> {
        self.depth.into_iter().chain([self.rows]).map(|axis| self.digit(axis)).collect()
    }

    /// Whether an operation on examples is partitioned as a grid does it; any other may be as it likes,
    /// in one step.
    fn allows(&self, partition: &Partition, loops: &planner_ir::Loops, product: bool) -> bool {
        let of = |it: planner_ir::LoopId| (loops.get(it), &partition.loops[it.0]);
        let examples = |it: &planner_ir::LoopId| loops.get(*it).size == SIZES.batch;
        if !partition.passed.is_empty() || !loops.ids().any(|it| examples(&it)) {
            return partition.steps == 1 && partition.passed.is_empty();
        }
        let own = loops.ids().filter(examples).all(|it| *of(it).1 == self.examples());
        let mut others = loops.ids().filter(|it| !examples(it)).map(of);
        if product {
            let timed = |digits: &Vec<Digit>| digits.iter().any(|it| it.step != 0);
            let column = vec![self.digit(self.columns)];
            let mut split: Vec<_> = others.filter(|it| !it.1.is_empty()).collect();
            split.sort_by_key(|it| timed(it.1));
            let [first, second] = split[..] else { return false };
            return own
                && partition.steps == SIDE
                && partition.streams == [self.rows, self.columns]
                && *first.1 == column
                && timed(second.1);
        }
        let splits = |size: u64| [SIZES.hidden, SIZES.heads, 4 * SIZES.hidden, PARTS].contains(&size);
        own && partition.steps == 1
            && others.all(|(it, digits)| {
                let free = matches!(it.role, Role::Map | Role::Sum) && splits(it.size);
                if free { *digits == [self.digit(self.columns)] } else { digits.is_empty() }
            })
    }
}

/// Whether a value is of the size of what layers hand on.
fn is_large(type_: &Type) -> bool {
    type_.shape.first() == Some(&SIZES.batch)
        && type_.elements() >= SIZES.batch * SIZES.sequence * SIZES.hidden
}

/// For each number of an operation in its section, those of that number that are products with parameters,
/// or gradients of such: what they are, of which types.
type Products = Vec<Vec<(Op, Vec<Type>)>>;

fn products<'a>(programs: impl IntoIterator<Item = (&'a Graph, &'a [Section])>) -> Products {
    let programs = programs.into_iter();
    let sections = programs.flat_map(|(graph, sections)| sections.iter().map(move |it| (graph, it)));
    let mut known: Products = Vec::new();
    for (graph, section) in sections {
        let stems = stems(graph);
        for (number, node) in section.graph.nodes.iter().enumerate() {
            if known.len() <= number {
                known.resize_with(number + 1, Vec::new);
            }
            if is_product(graph, &stems, section.repetitions[0].nodes[number]) {
                known[number].push((node.op.clone(), section.graph.types_of(&node.operands)));
            }
        }
    }
    known
}

fn is_product(graph: &Graph, stems: &[bool], id: NodeId) -> bool {
    let node = graph.node(id);
    let matrix = matches!(&node.op, Op::Contract(it) if it.result.len() > 1);
    matrix && (node.phase != Phase::Forward || node.operands.iter().any(|it| stems[it.0]))
}

/// Prices by which all but a grid's way is dear.
struct OnGrid<'a> {
    grid: Grid,
    machine: MachinePrices<'a>,
    products: Products,
}

impl OnGrid<'_> {
    fn is_product(&self, work: &Work<'_>) -> bool {
        self.products[work.node.0].iter().any(|it| it.0 == *work.op && work.whole.starts_with(&it.1))
    }
}

impl Prices for OnGrid<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        match self.grid.allows(work.partition, work.loops, self.is_product(work)) {
            true => self.machine.work(work),
            false => f64::INFINITY,
        }
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        let seconds = self.machine.step(type_, step, before, after);
        let moves = !matches!(step, Move::Slice { .. });
        if moves && is_large(type_) { WRONG + seconds } else { seconds }
    }

    /// Parameters are there once in each layer of the depth.
    fn rest(&self, state: &State, layout: &Layout) -> f64 {
        let matrix = layout.dims.len() > 1;
        let axes = layout.axes();
        let wanted = [self.grid.rows, self.grid.columns];
        let right = wanted.iter().all(|it| axes.contains(it))
            && !self.grid.depth.is_some_and(|it| axes.contains(&it));
        if state.kind == StateKind::Parameter && matrix && !right { WRONG } else { 0.0 }
    }
}

/// Numbers that look random, the same for the same name.
fn random(name: &str, type_: &Type, below: u64) -> Array {
    let mut state =
        name.bytes().fold(0x9E37_79B9_u64, |it, byte| it.wrapping_mul(31).wrapping_add(byte.into()));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let count = usize::try_from(type_.elements()).unwrap();
    if type_.dtype == DType::I64 {
        let numbers: Vec<i64> = (0..count).map(|_| i64::try_from(next() % below).unwrap()).collect();
        return Array::of::<i64>(type_.shape.clone(), &numbers).unwrap();
    }
    let mut number = || f32::from(u16::try_from(next() % 2001).unwrap()) / 1000.0 - 1.0;
    // Scales and biases are as large as norms leave values, products of matrices as their operands.
    let scale = if type_.rank() > 1 { 0.3 } else { 1.0 };
    let numbers: Vec<f32> = (0..count).map(|_| scale * number()).collect();
    Array::of::<f32>(type_.shape.clone(), &numbers).unwrap()
}

/// A batch: every example is another one, some labels do not count.
fn batch(number: usize) -> Arrays {
    let tokens = Type::new(DType::I64, [SIZES.batch, SIZES.sequence]);
    let ids = random(&format!("ids {number}"), &tokens, 44);
    let mut labels = random(&format!("labels {number}"), &tokens, 44).to_integers().unwrap();
    labels[4] = -100;
    let labels = Array::of::<i64>(tokens.shape.clone(), &labels).unwrap();
    [("ids".to_owned(), ids), ("labels".to_owned(), labels)].into()
}

/// What all devices together receive of each value that has so many numbers for each row (bytes).
fn received(plan: &Plan, numbers: u64) -> Vec<u64> {
    let rows = [SIZES.batch, SIZES.sequence, numbers];
    let moves = plan.transfers.iter().filter(|it| plan.graph.type_of(it.value).shape == rows);
    moves.flat_map(|it| it.bytes.clone()).filter(|bytes| *bytes > 0).collect()
}

/// A step on a grid: planned so, and held against one device that computes with whole norms.
fn check(mesh: &str) {
    let (mesh, machine) = machine(mesh);
    let grid = Grid::of(&mesh);
    let (blocks, recipe) = graph::forward(&SIZES, MOMENTUM);
    let whole = graph::step(&(blocks.clone(), recipe.clone()));
    let spelled = (0..blocks.segments.len()).collect();
    let recipe = plan::Recipe { spelled, ..recipe };
    let step = graph::step(&(blocks, recipe.clone()));
    let (products, stems) = (products([(&step.graph, &step.sections[..])]), stems(&step.graph));
    let prices = MachinePrices::new(&machine, &mesh).unwrap();
    let prices = OnGrid { grid: Grid::of(&mesh), machine: prices, products };
    let found = search::plan(&Request {
        graph: &step.graph,
        sections: &step.sections,
        mesh: &mesh,
        capacity: machine.usable_memory().0,
        prices: &prices,
        model: &plan::ModelFile { path: "layers".to_owned(), sha256: "0".repeat(64), dims: vec![] },
        machine: &plan::MachineName { name: machine.full_name(), devices: mesh.devices(), sha256: None },
        live: search::Live::ONE,
        steps: rewrite::Steps::Offered,
        pinned: None,
        fixed: &[],
        trail: None,
        memory: &search::counted,
        enough: &|_| false,
    });
    let plan = Plan { recipe: Some(recipe), ..found.unwrap() };
    check_plan(&plan).unwrap();
    println!("{mesh}: {:?}", plan::strategy(&plan));

    // Every product is a stream of blocks, and nothing of the size of what layers hand on is moved.
    let of_grid = step.graph.node_ids().filter(|&id| is_product(&step.graph, &stems, id));
    let streamed = |id: &NodeId| match &plan.assignments[id.0] {
        Assignment::Computed { partition, .. } => partition.streams == [grid.rows, grid.columns],
        _ => false,
    };
    let all: Vec<NodeId> = of_grid.collect();
    // Six products of each layer and that of the head, each in three phases.
    assert_eq!(all.len(), usize::try_from(3 * (6 * SIZES.layers + 1)).unwrap());
    assert!(all.iter().all(streamed), "{}", plan.graph);
    for it in &plan.transfers {
        let moved = it.bytes.iter().any(|bytes| *bytes > 0);
        assert!(
            !moved || !is_large(plan.graph.type_of(it.value)),
            "{:?} is moved by {:?}",
            it.value,
            it.moves
        );
    }
    // Matrices are there once in each layer of the depth.
    for value in plan.graph.value_ids() {
        let (type_, source) = (plan.graph.type_of(value), &plan.graph.value(value).source);
        let parameter = matches!(source, Source::State(it) if it.kind == StateKind::Parameter);
        if parameter && type_.rank() > 1 && type_.shape[1] > 1 {
            let held = plan.layouts[value.0].local_type(type_).elements();
            assert_eq!(held * SIDE * SIDE, type_.elements(), "{source:?}");
        }
    }
    // Each norm sums two numbers for each row forward, and two backward, over columns alone; the loss sums
    // one. Of each part of a row of scores one number is brought together.
    let norms = usize::try_from(2 * SIZES.layers + 1).unwrap();
    let rows = SIZES.batch * SIZES.sequence;
    let sum = 2 * (SIDE - 1) * rows * SIZES.dtype.bytes();
    assert_eq!(received(&plan, 1), vec![sum; 4 * norms + 1]);
    assert_eq!(received(&plan, PARTS), [(SIDE - 1) * rows * PARTS * SIZES.dtype.bytes()]);

    let named = |value: &planner_ir::Value| match &value.source {
        Source::Weight(name) | Source::State(State { name, .. }) => {
            Some((name.clone(), random(name, &value.type_, 0)))
        }
        _ => None,
    };
    let weights: BTreeMap<String, Array> = whole.graph.values.iter().filter_map(named).collect();
    let programs = lower::lower(&plan).unwrap();
    lower::verify(&programs).unwrap();
    let mut session = Session::new(programs, &weights).unwrap();
    let mut device = Reference::new(&whole.graph, &weights).unwrap();
    for number in 0..STEPS {
        let (batch, inputs) = (batch(number), step_inputs(&whole.graph, 0.01, number + 1));
        let expected = device.train(std::slice::from_ref(&batch), &inputs).unwrap();
        let outcome = session.train(&[batch], &inputs).unwrap();
        check_bytes(&plan, &outcome.received).unwrap();
        let [found, expected] = [&outcome.outputs, &expected].map(|it| floats(&it[train::LOSS])[0]);
        assert!((found - expected).abs() < 1e-5 * expected.abs(), "step {number}: {found}, {expected}");
    }
    let mut compared = 0;
    for value in &whole.graph.values {
        let Source::State(state) = &value.source else { continue };
        if state.kind.is_summed() {
            continue;
        }
        let found = floats(&session.gather(state).unwrap());
        let expected = floats(device.state(state).unwrap());
        let off = apart(&found, &expected, 0.0);
        assert!(off < 1e-4, "{} {} is off by {off:e}", state.kind.name(), state.name);
        compared += 1;
    }
    // Of each parameter itself and its moment.
    assert_eq!(compared, 2 * usize::try_from(16 * SIZES.layers + 4).unwrap());
    session.check_replicas().unwrap();
}

#[test]
fn layers_on_rows_and_columns_train_as_one_device() {
    check("2x2");
}

#[test]
fn layers_on_rows_and_columns_with_depth_train_as_one_device() {
    check("2x2x2");
}

/// Prices by which products of matrices are streams over both axes, and it is dear to bring rows together.
/// Where so many examples are said, rows of devices split them and nothing else of operations on examples:
/// a search among what is left is not too wide for blocks that are recomputed.
struct SlowLinks<'a> {
    grid: OnGrid<'a>,
    examples: Option<u64>,
}

impl SlowLinks<'_> {
    /// Whether rows split examples, if there are any.
    fn are_examples(&self, work: &Work<'_>) -> bool {
        let Some(examples) = self.examples else { return true };
        let rows = |it: &planner_ir::LoopId| {
            let digits = &work.partition.loops[it.0];
            digits.iter().any(|digit| digit.terms.iter().any(|it| it.0 == self.grid.grid.rows))
        };
        let of = |it: &planner_ir::LoopId| work.loops.get(*it).size == examples;
        let ids = || work.loops.ids();
        !ids().any(|it| of(&it)) || (ids().filter(rows).count() == 1 && ids().filter(rows).all(|it| of(&it)))
    }
}

impl Prices for SlowLinks<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        let OnGrid { grid, machine, .. } = &self.grid;
        let right = match self.grid.is_product(work) && falls(work.loops, SIDE) {
            true => work.partition.streams == [grid.rows, grid.columns],
            false => work.partition.steps == 1 && work.partition.passed.is_empty() && self.are_examples(work),
        };
        if right { machine.work(work) } else { f64::INFINITY }
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        let seconds = self.grid.machine.step(type_, step, before, after);
        let row = type_.rank() > 2 && type_.shape.last().is_some_and(|it| *it > 1);
        if row && !matches!(step, Move::Slice { .. }) { 1.0 + seconds } else { seconds }
    }
}

/// A step of GPT-2 whose blocks may be several things, on two rows and columns where links are slow.
struct Slow<'a> {
    case: &'a Case,
    prepared: Prepared,
    /// How many there are, if rows have to split them.
    examples: Option<u64>,
}

impl<'a> Slow<'a> {
    fn new(case: &'a Case, decisions: Decisions) -> Self {
        let training = Training { decisions, ..case.training(ADAMW, Recompute::Nothing) };
        Self { case, prepared: case.prepared(&training, &parted(&case.batch(0), 1)), examples: None }
    }

    /// The plan where products are streams and rows dear, with so much memory, if not with all that there is.
    fn plan(&self, capacity: Option<u64>) -> Result<Plan, String> {
        let (mesh, machine) = machine("2x2");
        let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
        let variants = self.prepared.variants.as_ref().ok_or("blocks have one form")?;
        let others = variants.others().iter().map(|(graph, sections)| (graph, &sections[..]));
        let own = (&self.prepared.graph, &self.prepared.sections[..]);
        let products = products(others.chain([own]));
        let grid = OnGrid { grid: Grid::of(&mesh), machine: prices, products };
        let prices = SlowLinks { grid, examples: self.examples };
        let target = Target { steps: rewrite::Steps::Offered, ..Target::of(&machine, &mesh) };
        let target = Target { capacity: capacity.unwrap_or(target.capacity), ..target };
        let header = plan::ModelFile {
            path: self.case.title.clone(),
            sha256: self.case.file.sha256.clone(),
            dims: vec![],
        };
        pipeline::planned(&self.prepared, &header, &target, &prices)
            .map_err(|error| format!("not planned: {error}"))
    }

    /// Says what a plan is not that its recipe says, or that PyTorch does otherwise.
    fn check(&self, plan: &Plan) -> Result<(), String> {
        if spelled(plan) == 0 {
            return Err("no norm is spelled out".to_owned());
        }
        check_plan(plan)?;
        // The recipe alone says which blocks are spelled out.
        let imported = self.case.imported(&self.case.batch(0));
        let recipe = plan.recipe.as_ref().ok_or("there is no recipe")?;
        let derived = pipeline::derived(&self.case.file, &imported, recipe);
        let (step, _) = derived.map_err(|error| format!("{error:?}"))?;
        if step.joined_as(&plan.graph).graph != plan.graph {
            return Err("the recipe makes another program".to_owned());
        }
        self.case.check_training(plan, ADAMW, 1)?;
        self.case.check_on_gpu(plan, ADAMW, 1).map_err(|error| format!("on a GPU that is not there: {error}"))
    }
}

/// In how many blocks norms are spelled out.
fn spelled(plan: &Plan) -> usize {
    plan.recipe.as_ref().map_or(0, |it| it.spelled.len())
}

/// A real model planned where links are slow: the search spells norms out by itself, and not where links
/// are as fast as they are. What it plans trains as PyTorch.
fn check_chosen(case: &Case, decisions: Decisions) -> Result<(), String> {
    let slow = Slow::new(case, decisions);
    let (mesh, machine) = machine("2x2");
    let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
    let fast = case.plan_in(&slow.prepared, &mesh, &machine, &prices, rewrite::Steps::One)?;
    if spelled(&fast) > 0 {
        return Err("norms are spelled out where that gains nothing".to_owned());
    }
    slow.check(&slow.plan(None)?)
}

#[test]
fn norms_are_spelled_out_where_that_is_faster_and_train_as_pytorch() {
    let case = cases::gpt2();
    let case = case.stretched(1, SIDE);
    // Where what is kept is a choice, that everything fits does not end the search.
    for decisions in [Decisions::Only(Recompute::Nothing), Decisions::Values] {
        check_chosen(&case, decisions).unwrap();
    }
}

#[test]
fn blocks_whose_norms_are_spelled_out_are_computed_again_where_memory_ends() {
    let case = cases::gpt2();
    let case = case.stretched(1, SIDE);
    let held = |plan: &Plan| plan.memory.iter().map(|it| it.bytes).sum::<u64>();
    let slow = |decisions| Slow { examples: Some(case.examples()), ..Slow::new(&case, decisions) };
    let ample = slow(Decisions::Only(Recompute::Nothing)).plan(None).unwrap();
    let least = slow(Decisions::Only(Recompute::Full)).plan(None).unwrap();
    assert!(spelled(&ample) > 0 && spelled(&least) > 0 && held(&least) < held(&ample));
    // As much as the least takes: blocks that keep everything do not fit.
    let slow = slow(Decisions::Blocks);
    let plan = slow.plan(Some(held(&least))).unwrap();
    println!("{} of {} bytes: {:?}", held(&plan), held(&ample), plan::strategy(&plan));
    let recipe = plan.recipe.as_ref().unwrap();
    let again = |it: &&usize| recipe.recompute[**it] != Recompute::Nothing;
    assert!(recipe.spelled.iter().any(|it| again(&it)), "{recipe:?}");
    slow.check(&plan).unwrap();
}
