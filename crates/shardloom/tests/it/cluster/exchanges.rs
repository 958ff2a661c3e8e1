//! Every kind of exchange between ranks that are processes with a GPU each, none of which is there: bit by
//! bit what threads make of the same plans.
//!
//! One plan is made by hand, with partitions in time and moves that searches seldom choose; a pipeline has
//! its crossings travel in every way. Numbers are small whole ones, so that sums have the same bits in
//! whatever order they are made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use files::arrays;
use kernels::Array;
use lower::{Action, CollectiveKind};
use plan::{Holding, ModelFile, Plan};
use planner_ir::{
    AxisId, Contract, DType, Digit, Label, Layout, Mesh, Move, Op, Source, Type, Unary, ValueId,
    parse_layout, parse_partition,
};

use super::gpus::{expect_done, launched};
use super::sketch::Sketch;
use super::{Folder, corpus, shardloom};

/// A model that the plan by hand does without: it has inputs alone.
const MODEL: &str = "models/llama-fwd-dynamo2.15-op23-dyn/model.onnx";

/// The extent of all dimensions.
const SIZE: u64 = 8;

/// A program by hand, on four devices.
struct Sketched(Sketch);

impl Sketched {
    fn layout(&self, text: &str) -> Layout {
        parse_layout(&self.0.plan.mesh, text).unwrap()
    }

    fn input(&mut self, name: &str, dtype: DType, layout: &str) -> ValueId {
        let dims = self.layout(layout).dims;
        self.0.input(name, Type::new(dtype, [SIZE, SIZE]), dims)
    }

    /// A product of two values, of those labels; operands get there by a move first, if there is one.
    fn product(&mut self, labels: [&str; 3], of: [ValueId; 2], text: &str, first: Option<Move>) -> ValueId {
        let [left, right, result] = labels.map(|text| text.bytes().map(|it| Label(it - b'a')).collect());
        let partition = parse_partition(&self.0.plan.mesh, text).unwrap();
        let mut first = first;
        let op = Op::Contract(Contract { left, right, result });
        self.0.node_with(op, &of, partition, &mut |_, _, _, _| first.take())[0]
    }

    fn output(&mut self, name: &str, value: ValueId, layout: &str, first: Option<Move>) {
        let (dims, mut first) = (self.layout(layout).dims, first);
        self.0.output(name, value, dims, &mut |_, _, _, _| first.take());
    }
}

const FORWARD: [&str; 3] = ["mk", "kn", "mn"];
const OF_INPUT: [&str; 3] = ["mn", "kn", "mk"];
const OF_WEIGHT: [&str; 3] = ["mk", "mn", "kn"];

/// A plan with every kind of exchange.
fn by_hand() -> Plan {
    let mesh = Mesh::of_sizes(&[2, 2]);
    let digit = |axis| Digit::axis(&mesh, AxisId(axis));
    let mut it = Sketched(Sketch::new(&mesh));
    let [x, up, down, row] = [
        ("x", DType::F32, "[a,(a+b:2)]"),
        ("up", DType::F32, "[(a+b:2),b]"),
        ("down", DType::F32, "[b,(a+b:2)]"),
        ("row", DType::F32, "[a,b]"),
    ]
    .map(|(name, dtype, layout)| it.input(name, dtype, layout));
    // Squares, whose messages go around, and a message back to plain blocks.
    let hidden = it.product(FORWARD, [x, up], "2 steps [a,(a+b+@t:2),b]", None);
    let skewed = it.product(FORWARD, [hidden, down], "2 steps [a,(b+@t:2),(a+b:2)]", None);
    let back = Move::Permute { dims: it.layout("[a,b]").dims };
    it.output("back", skewed, "[a,b]", Some(back));
    // SUMMA: broadcasts, and sums that one rank gets.
    let streamed = it.product(FORWARD, [hidden, row], "2 steps [a,(@t:2),b] streams a,b", None);
    let of_input = it.product(OF_INPUT, [streamed, row], "2 steps [a,b,(@t:2)] streams a,b", None);
    it.output("of_input", of_input, "[a,b]", None);
    // Blocks of columns to blocks of rows, and back.
    let [rows, columns] =
        [(1, 0), (0, 1)].map(|(from, to)| Move::AllToAll { from, to, digits: vec![digit(1)] });
    let by_rows = it.product(FORWARD, [hidden, row], "[a.b,-,-]", Some(rows));
    it.output("by_rows", by_rows, "[a,b]", Some(columns));
    // Sums that are owed: each rank its block, or all.
    let scattered = it.product(FORWARD, [hidden, row], "[a,b,-]", None);
    let scatter = Move::ReduceScatter { dim: 1, digits: vec![digit(1)] };
    it.output("scattered", scattered, "[a,b]", Some(scatter));
    let summed = it.product(FORWARD, [hidden, row], "[a,b,-]", None);
    it.output("summed", summed, "[a,-]", None);
    // The gradient of a weight that goes around and gathers addends, of narrow numbers.
    let [left, right] = ["left", "right"].map(|name| it.input(name, DType::BF16, "[a,-]"));
    let gradient = it.product(OF_WEIGHT, [left, right], "2 steps [a,(a+@t+1:2),-]", None);
    it.output("gradient", gradient, "[-,-]", None);
    let narrow = it.product(OF_WEIGHT, [left, right], "[a,-,-]", None);
    it.output("narrow", narrow, "[-,-]", None);
    // Rows that go to their experts, and what is made of them back.
    let [tokens, gates] = [("tokens", "[a.b,-]"), ("gates", "[a.b,-]")]
        .map(|(name, layout)| it.input(name, DType::F32, layout));
    let [up, down] = ["experts_up", "experts_down"].map(|name| {
        let dims = it.layout("[a.b,-,-]").dims;
        it.0.input(name, Type::new(DType::F32, [SIZE; 3]), dims)
    });
    let experts = Op::Experts { activation: Unary::Relu, limit: None, active: SIZE };
    let routed = parse_partition(&mesh, "[-,a.b,-,-,-] routes a.b").unwrap();
    let of_experts = it.0.node(experts, &[tokens, gates, up, down], routed)[0];
    it.output("of_experts", of_experts, "[a.b,-]", None);
    // A type of which NCCL knows nothing.
    let split = parse_partition(&mesh, "[a,b]").unwrap();
    let truth = it.0.node(Op::Cast(DType::Bool), &[hidden], split)[0];
    it.output("truth", truth, "[-,-]", None);
    complete(it.0.plan)
}

/// A plan of rings whose halves go both ways at once, in two slots and in one: of operands, and of sums
/// of wide and of narrow numbers.
fn both_ways() -> Plan {
    let mut it = Sketched(Sketch::new(&Mesh::of_sizes(&[4])));
    let [x, columns, rows] = [("x", "[a,-]"), ("columns", "[-,a]"), ("rows", "[a,-]")]
        .map(|(name, layout)| it.input(name, DType::F32, layout));
    let hidden = it.product(FORWARD, [x, columns], "4 steps both ways [a,-,(a-@t:4)]", None);
    it.output("hidden", hidden, "[a,-]", None);
    let added = it.product(FORWARD, [columns, rows], "4 steps both ways [(a+@t+1:4),a,-]", None);
    it.output("added", added, "[a,-]", None);
    let [left, right] = ["left", "right"].map(|name| it.input(name, DType::BF16, "[a,-]"));
    let gradient = it.product(OF_WEIGHT, [left, right], "4 steps both ways [a,(a+@t+1:4),-]", None);
    it.output("gradient", gradient, "[a,-]", None);
    let over = it.product(FORWARD, [x, columns], "4 steps both ways in place [a,-,(a-@t:4)]", None);
    it.output("over", over, "[a,-]", None);
    let gathered = it.product(OF_WEIGHT, [left, right], "4 steps in place [a,(a+@t+1:4),-]", None);
    it.output("gathered", gathered, "[a,-]", None);
    complete(it.0.plan)
}

/// What the sketch leaves out: the model, which is there, and what inputs take.
fn complete(mut plan: Plan) -> Plan {
    let file = files::model_file::open(Path::new(&corpus(MODEL))).unwrap();
    plan.model = ModelFile { path: corpus(MODEL), sha256: file.sha256, dims: Vec::new() };
    let held = plan.graph.values.iter().zip(&plan.layouts);
    let inputs = held.filter(|(value, _)| matches!(value.source, Source::Input(_)));
    let inputs = inputs.map(|(value, layout)| layout.local_bytes(&value.type_));
    plan.memory = vec![Holding { kind: "inputs".to_owned(), bytes: inputs.sum() }];
    plan.capacity = 1 << 30;
    plan
}

/// Whole numbers from -3 to 3 for all inputs.
fn inputs(plan: &Plan) -> BTreeMap<String, Array> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u8::try_from((state >> 16) % 7).unwrap()) - 3.0
    };
    let mut made = |value: &planner_ir::Value| {
        let Source::Input(name) = &value.source else { return None };
        let count = usize::try_from(value.type_.elements()).unwrap();
        let numbers: Vec<f32> = (0..count).map(|_| next()).collect();
        let whole = Array::of(value.type_.shape.clone(), &numbers).unwrap();
        let cast = kernels::evaluate(&Op::Cast(value.type_.dtype), &[&whole]).unwrap().remove(0);
        Some((name.clone(), cast))
    };
    plan.graph.values.iter().filter_map(&mut made).collect()
}

/// What programs of a plan exchange.
fn kinds(plan: &Plan) -> BTreeSet<&'static str> {
    let programs = lower::lower(plan).unwrap();
    let kind = |action: &Action| match action {
        Action::Collective(it) => Some(it.kind.name()),
        Action::Message(_) => Some("message"),
        _ => None,
    };
    programs.iter().flat_map(|it| &it.instructions).filter_map(|it| kind(&it.action)).collect()
}

#[test]
fn gpus_of_processes_exchange_in_every_way() {
    let plan = by_hand();
    let all = [
        CollectiveKind::AllGather,
        CollectiveKind::AllReduce,
        CollectiveKind::AllToAll,
        CollectiveKind::Broadcast(0),
        CollectiveKind::Combine,
        CollectiveKind::Dispatch,
        CollectiveKind::Reduce(0),
        CollectiveKind::ReduceScatter,
    ];
    let all: BTreeSet<&str> = all.into_iter().map(CollectiveKind::name).chain(["message"]).collect();
    assert_eq!(kinds(&plan), all);
    check("gpus-exchanges", &plan);
}

#[test]
fn gpus_of_processes_exchange_both_ways_at_once() {
    let plan = both_ways();
    let programs = lower::lower(&plan).unwrap();
    let streams =
        programs.iter().flat_map(|it| &it.instructions).filter(|it| matches!(it.action, Action::Message(_)));
    let streams: BTreeSet<&str> = streams.map(|it| it.stream.name()).collect();
    assert_eq!(streams, BTreeSet::from(["communication", "contrary"]));
    check("gpus-both-ways", &plan);
}

/// Runs a plan on four processes, and holds it against threads.
fn check(folder: &str, plan: &Plan) {
    let folder = Folder::new(folder);
    let [file, given, threads, gpus] =
        ["plan.json", "inputs.safetensors", "threads.safetensors", "gpus.safetensors"]
            .map(|it| folder.path(it));
    std::fs::write(&file, plan::json::write(plan)).unwrap();
    arrays::write(Path::new(&given), &inputs(plan)).unwrap();
    let run =
        |output: &str| ["run", &file, "--inputs", &given, "-o", output, "--steps", "2"].map(str::to_owned);
    expect_done(&shardloom(&run(&threads).each_ref().map(String::as_str)).output().unwrap());
    expect_done(&launched(4, &run(&gpus)).output().unwrap());
    let [found, expected] = [&gpus, &threads].map(|it| arrays::read(Path::new(it)).unwrap());
    assert_eq!(expected.len(), plan.graph.outputs.len());
    for (name, expected) in &expected {
        assert!(
            found.get(name) == Some(expected),
            "`{name}` is {:?}, expected {expected:?}",
            found.get(name)
        );
    }
}
