//! Rows of attention all of whose keys are hidden by a large finite mask: on one device and on ranks the
//! model trains as in PyTorch, however queries, keys and heads are split.

use driver::pipeline::{self, Decisions, Phases, Prepared, Target, Training};
use files::arrays;
use files::model_file::{self, ModelFile};
use import::Bindings;
use kernels::{Array, evaluate};
use plan::{Loss, Plan, Precision, Recipe, Recompute};
use planner_ir::{Layout, Loops, Move, Op, Partition, State, StateKind, Type};
use rewrite::Steps;
use search::{MachinePrices, Prices, Work};

use super::against::apart;
use super::cases::{Arrays, SGD, floats};
use super::chosen::check_plan;
use super::{expect_none, faults_of};
use crate::corpus::{Priced, machine_by};
use crate::outside;
use crate::tier::first;

/// How the model's weights are called in PyTorch, which has those of products the other way.
const WEIGHTS: [(&str, &str, bool); 6] = [
    ("e.weight", "e.weight", false),
    ("val_5", "q.weight", true),
    ("val_12", "k.weight", true),
    ("val_19", "v.weight", true),
    ("val_84", "o.weight", true),
    ("val_85", "head.weight", true),
];

/// How attention and its gradient are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// As is cheapest.
    Free,
    /// Queries and keys, keys and values going around.
    Ring,
    /// Heads: Ulysses.
    Heads,
    /// Examples.
    Batch,
}

/// What is planned: the mesh, how attention is split, what is done again. The first are one of each kind.
const TRIALS: [(&str, Split, Recompute); 11] = [
    ("1", Split::Free, Recompute::Nothing),
    ("2", Split::Free, Recompute::Full),
    ("2x2", Split::Free, Recompute::Nothing),
    ("3", Split::Ring, Recompute::Full),
    ("2", Split::Heads, Recompute::Nothing),
    ("2", Split::Batch, Recompute::Selective),
    ("3", Split::Free, Recompute::Nothing),
    ("4", Split::Free, Recompute::Selective),
    ("2x3", Split::Free, Recompute::Full),
    ("2", Split::Ring, Recompute::Nothing),
    ("4", Split::Ring, Recompute::Nothing),
];

/// Fast links, where attention that is split otherwise is dear.
struct Attends<'a> {
    machine: MachinePrices<'a>,
    split: Split,
    ranks: u64,
}

impl Attends<'_> {
    fn is_wanted(&self, partition: &Partition, loops: &Loops) -> bool {
        let of =
            |dim: usize| loops.operands[1][dim].first().is_some_and(|it| !partition.loops[it.0].is_empty());
        let around = partition.steps == self.ranks;
        match self.split {
            Split::Free => true,
            Split::Ring => around,
            Split::Heads => of(1) && partition.steps == 1,
            Split::Batch => of(0) && partition.steps == 1,
        }
    }
}

impl Prices for Attends<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        let attends = matches!(work.op, Op::Attention(_) | Op::AttentionGradient { .. });
        let dear = attends && !self.is_wanted(work.partition, work.loops);
        self.machine.work(work) + if dear { DEAR } else { 0.0 }
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        self.machine.step(type_, step, before, after)
    }
}

/// What it costs to split attention otherwise (seconds).
const DEAR: f64 = 1000.0;

/// The model, a batch, and what PyTorch made of it in two steps of plain descent.
struct Case {
    file: ModelFile,
    batch: Arrays,
    expected: Arrays,
}

impl Case {
    fn load() -> Self {
        let folder = outside::root().join("tests/cases/faults/attention_blind_rows");
        let read = |name: &str| arrays::read(&folder.join(name)).unwrap();
        let file = model_file::open(&folder.join("model.onnx")).unwrap();
        Self { file, batch: read("data.npz"), expected: read("expected.npz") }
    }

    fn prepared(&self, decision: &Recompute) -> Prepared {
        let recipe = Recipe {
            precision: Precision::F32,
            ..Recipe::new(
                Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() },
                SGD,
            )
        };
        let decisions = Decisions::Only(decision.clone());
        let training = Training { recipe, decisions, phases: Phases::Together };
        // Labels are no input of the model.
        let of_model = self.batch.iter().filter(|it| it.0 != "labels");
        let inputs = of_model.map(|(name, it)| (name.clone(), it.shape().to_vec())).collect();
        let bindings = Bindings { inputs, ..Bindings::default() };
        let imported = pipeline::import(&self.file, &bindings, &mut |_, _| {}).unwrap();
        pipeline::prepare_training(&self.file, &imported, &training, &mut |_, _| {}).unwrap()
    }

    fn plan(&self, (mesh, split, decision): &(&str, Split, Recompute)) -> Result<Plan, String> {
        let (mesh, machine) = machine_by(Priced::FastNet, mesh);
        let prepared = self.prepared(decision);
        let of_machine = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
        let prices = Attends { machine: of_machine, split: *split, ranks: mesh.devices() };
        let target = Target { steps: Steps::Offered, ..Target::of(&machine, &mesh) };
        let header =
            plan::ModelFile { path: "blind".to_owned(), sha256: self.file.sha256.clone(), dims: vec![] };
        let plan = pipeline::planned(&prepared, &header, &target, &prices);
        let plan = plan.map_err(|error| format!("not planned: {error}"))?;
        if plan.seconds() < DEAR { Ok(plan) } else { Err("attention is not split so".to_owned()) }
    }

    /// Two steps, each loss and the weights after them held against PyTorch's.
    fn check(&self, plan: &Plan) -> Result<(), String> {
        let programs = lower::lower(plan).map_err(|error| format!("not lowered: {error}"))?;
        lower::verify(&programs).map_err(|error| format!("the programs are rejected: {error}"))?;
        let mut session = run::Session::new(programs, &self.file).map_err(|error| error.to_string())?;
        let rate = Arrays::from([(train::RATE.to_owned(), Array::of::<f32>(vec![], &[0.1]).unwrap())]);
        for (step, expected) in floats(&self.expected["losses"]).into_iter().enumerate() {
            let outcome =
                session.train(std::slice::from_ref(&self.batch), &rate).map_err(|error| error.to_string())?;
            let loss = floats(&outcome.outputs[train::LOSS])[0];
            if (loss - expected).abs() > 2e-6 * expected {
                return Err(format!("step {step}: loss {loss}, expected {expected}"));
            }
        }
        for (name, of_pytorch, is_turned) in WEIGHTS {
            let state = State { kind: StateKind::Parameter, name: name.to_owned() };
            let found = session.gather(&state).map_err(|error| error.to_string())?;
            let turned =
                || evaluate(&Op::Transpose { permutation: vec![1, 0] }, &[&found]).unwrap().remove(0);
            let found = floats(&if is_turned { turned() } else { found.clone() });
            let off = apart(&found, &floats(&self.expected[of_pytorch]), 0.0);
            if off > 1e-6 {
                return Err(format!("{of_pytorch} is off by {off:e}"));
            }
        }
        Ok(())
    }
}

#[test]
fn rows_that_see_no_key_train_as_in_pytorch() {
    let case = Case::load();
    let mut failures = Vec::new();
    for trial in first(6, &TRIALS) {
        let what = format!("{trial:?}");
        failures.extend(faults_of(&what, || {
            let checked = case.plan(trial).and_then(|plan| {
                check_plan(&plan)?;
                println!("{what}: {:?}", plan::strategy(&plan));
                case.check(&plan)
            });
            checked.err().map(|error| format!("{what}: {error}")).into_iter().collect()
        }));
    }
    expect_none(&failures);
}
