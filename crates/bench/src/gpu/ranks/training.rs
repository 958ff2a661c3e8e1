//! Steps of training on several ranks of one GPU, in plans of every kind and in stages, against one rank on a
//! processor: the loss of each step, and every parameter after the last.

use std::collections::BTreeMap;

use ::train::{LOSS, RATE};
use cost_models::cluster::Cluster;
use device::Device;
use driver::pipeline::staged::{Forward, Meshes, Order, Wanted, staged};
use driver::pipeline::{self, Target};
use files::Failure;
use files::folder::Folder;
use files::inputs::Random;
use files::machine;
use files::model_file::{self, ModelFile};
use import::Bindings;
use kernels::Array;
use launch::gpu;
use lower::Program;
use model_zoo::folder::Writer;
use model_zoo::gpt2::{self, Size, Start};
use plan::{Assignment, Loss, NoDecay, Plan, Precision, Recipe, Recompute};
use planner_ir::{Graph, Mesh, Op, Optimizer, Real, State, StateKind};
use rewrite::Steps;
use run::Session;
use schedule::Kind;

use super::around::Around;
use super::{APART, APART_NARROW, SECTION};
use crate::gpu::equal::apart;
use crate::gpu::{Given, Row};
use crate::training::manner::DataFirst;

/// The model that is trained.
const SIZE: Size = Size { layers: 2, hidden: 32, heads: 4, vocabulary: 96, positions: 8 };

/// Examples of a step, and how long they are.
const BATCH: u64 = 8;
const SEQUENCE: u64 = 8;

/// How many steps are trained: as they are issued, captured, and issued again.
const STEPS: u64 = 3;

/// How large a step is. What is remembered of gradients shows in parameters, and noise in small ones does not
/// grow, as it would where they are divided by their size.
const LEARNING: f32 = 0.05;
const OPTIMIZER: Optimizer = Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.01) };

/// How a step is planned.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// As is cheapest.
    Cheapest,
    /// The batch split along the first axis, with what the optimizer keeps (ZeRO-1).
    Data,
    /// Products in time steps wherever they can be.
    Around,
    /// In two stages, each on a mesh of its own.
    Stages(Kind),
}

/// What is trained.
#[derive(Clone, Copy, Debug)]
struct Trial {
    title: &'static str,
    mesh: &'static [u64],
    way: Way,
    micro_batches: u64,
    precision: Precision,
}

const PLAIN: Trial = Trial {
    title: "trained on 1 rank",
    mesh: &[1],
    way: Way::Cheapest,
    micro_batches: 1,
    precision: Precision::F32,
};

const TRIALS: [Trial; 8] = [
    PLAIN,
    Trial { title: "trained on 1 rank in bf16", precision: Precision::Bf16, ..PLAIN },
    Trial { title: "trained on 2 ranks, 2 micro-batches", mesh: &[2], micro_batches: 2, ..PLAIN },
    Trial { title: "trained on 4 ranks, data parallel, ZeRO-1", mesh: &[4], way: Way::Data, ..PLAIN },
    Trial {
        title: "trained on 2x2 ranks in bf16, data and tensor parallel",
        mesh: &[2, 2],
        way: Way::Data,
        precision: Precision::Bf16,
        ..PLAIN
    },
    Trial { title: "trained on 4 ranks, products round rings", mesh: &[4], way: Way::Around, ..PLAIN },
    Trial {
        title: "trained in 2 stages on a rank each, 1f1b",
        way: Way::Stages(Kind::OneForwardOneBackward),
        micro_batches: 4,
        ..PLAIN
    },
    Trial {
        title: "trained in 2 stages on 2 ranks each, zb-h1",
        mesh: &[2],
        way: Way::Stages(Kind::ZeroBubbleH1),
        micro_batches: 4,
        ..PLAIN
    },
];

/// What training leaves: losses, then parameters.
pub(super) type Left = BTreeMap<String, Array>;

/// What the loss of a step is called among them.
pub(super) fn loss_of(step: u64) -> String {
    format!("the loss of step {step}")
}

/// The examples of a step, in micro-batches.
pub(super) type Fed = Vec<BTreeMap<String, Array>>;

/// A row for each trial.
pub(super) fn rows(given: &Given<'_>) -> Result<Vec<Row>, Failure> {
    let folder = Folder::new("gpu-trained", None)?;
    let path = gpt2::write(Writer::small(&folder.path), SIZE, Start::Untrained, 0)
        .map_err(|error| Failure::unwritten(&folder.path, &error))?;
    let file = model_file::open(&path)?;
    let mut expected = BTreeMap::new();
    for precision in [Precision::F32, Precision::Bf16] {
        (given.say)(format!("training in {precision:?}: one rank on a processor").to_lowercase().into());
        let (programs, _) = Trial { precision, ..PLAIN }.planned(&file)?;
        let session = Session::new(programs, &file).map_err(failed)?;
        expected.insert(format!("{precision:?}"), left(session, LEARNING, &PLAIN.fed()?)?);
    }
    let rows = TRIALS.map(|trial| {
        (given.say)(trial.title.to_owned().into());
        let row = Row::new(&SECTION, format!("a GPT-2 of 2 layers, {}", trial.title));
        let most = if trial.precision == Precision::F32 { APART } else { APART_NARROW };
        match trial.planned(&file) {
            Err(error) => row.failed(error),
            Ok((programs, in_steps)) => {
                let found = trial.fed().and_then(|fed| on_gpu(given, &file, programs, LEARNING, &fed));
                let row = match trial.way {
                    Way::Around => row.with("products in time steps", in_steps.to_string(), in_steps),
                    _ => row,
                };
                match found {
                    Err(error) => row.failed(error),
                    Ok(found) => {
                        row.apart(farthest(&found, &expected[&format!("{:?}", trial.precision)]), most)
                    }
                }
            }
        }
    });
    Ok(rows.into())
}

/// The largest difference of what a training leaves from what it should leave; of what it has not left,
/// infinity.
pub(super) fn farthest(found: &Left, expected: &Left) -> f64 {
    let of =
        |(name, expected): (&String, &Array)| found.get(name).map_or(f64::INFINITY, |it| apart(it, expected));
    expected.iter().map(of).fold(0.0, f64::max)
}

/// What training by these programs on the GPU leaves.
pub(super) fn on_gpu(
    given: &Given<'_>,
    file: &ModelFile,
    programs: Vec<Program>,
    rate: f32,
    steps: &[Fed],
) -> Result<Left, Failure> {
    let device = Device::together(&gpu::settings(&given.options.cuda), &programs)
        .map_err(|error| Failure::Input(error.to_string()))?;
    left(Session::on(Box::new(device), None, programs, file).map_err(failed)?, rate, steps)
}

/// What steps at a learning rate leave.
fn left(mut session: Session, rate: f32, steps: &[Fed]) -> Result<Left, Failure> {
    let rate = Array::of::<f32>([], &[rate]).map_err(internal)?;
    let own = BTreeMap::from([(RATE.to_owned(), rate)]);
    let mut left = Left::new();
    for (number, fed) in (1..).zip(steps) {
        let outcome = session.train(fed, &own).map_err(failed)?;
        let loss = outcome.outputs.get(LOSS).cloned().ok_or_else(|| internal("there is no loss"))?;
        left.insert(loss_of(number), loss);
    }
    session.check_replicas().map_err(failed)?;
    for State { kind, name } in session.states() {
        if kind == StateKind::Parameter {
            let state = State { kind, name: name.clone() };
            left.insert(name, session.gather(&state).map_err(failed)?);
        }
    }
    Ok(left)
}

/// The examples of a micro-batch of a step: those of a whole step do not depend on how it falls into parts.
fn fed(step: u64, part: u64, examples: u64) -> Result<BTreeMap<String, Array>, Failure> {
    let of = |name: &str| {
        let mut random = Random::new(step, name);
        let count = usize::try_from(BATCH * SEQUENCE).unwrap_or(0);
        #[expect(clippy::cast_possible_truncation, reason = "a number of the vocabulary")]
        let token = |random: &mut Random| ((random.number() + 1.0) / 2.0 * 90.0) as i64;
        let all: Vec<i64> = (0..count).map(|_| token(&mut random)).collect();
        let whole = Array::of::<i64>([BATCH, SEQUENCE], &all).map_err(internal)?;
        let op = Op::Slice {
            starts: vec![part * examples, 0],
            steps: vec![1, 1],
            sizes: vec![examples, SEQUENCE],
        };
        let made = kernels::evaluate(&op, &[&whole]).map_err(internal)?;
        let first = made.into_iter().next().ok_or_else(|| internal("a slice of nothing"))?;
        Ok::<_, Failure>((name.to_owned(), first))
    };
    ["input_ids", "labels"].into_iter().map(of).collect()
}

impl Trial {
    /// What its steps are given.
    fn fed(&self) -> Result<Vec<Fed>, Failure> {
        let parts = self.micro_batches;
        (1..=STEPS).map(|step| (0..parts).map(|part| fed(step, part, BATCH / parts)).collect()).collect()
    }

    fn recipe(&self) -> Recipe {
        Recipe {
            precision: self.precision,
            micro_batches: self.micro_batches,
            clip: Some(1.0),
            no_decay: NoDecay { names: vec![], vectors: true },
            ..Recipe::new(
                Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() },
                OPTIMIZER,
            )
        }
    }

    /// The programs of its ranks, and how many products are in time steps.
    fn planned(&self, file: &ModelFile) -> Result<(Vec<Program>, usize), Failure> {
        let batch = BATCH / self.micro_batches;
        let dims = [("batch", batch), ("sequence", SEQUENCE)];
        let dims: Vec<(String, u64)> = dims.map(|(name, size)| (name.to_owned(), size)).to_vec();
        let bindings = Bindings { dims: dims.iter().cloned().collect(), ..Bindings::default() };
        let imported = pipeline::import(file, &bindings, &mut |_, _| {}).map_err(internal)?;
        let header =
            plan::ModelFile { path: file.path.display().to_string(), sha256: file.sha256.clone(), dims };
        let mesh = Mesh::of_sizes(self.mesh);
        if let Way::Stages(kind) = self.way {
            return Ok((self.staged(file, &imported, &header, (&mesh, kind))?, 0));
        }
        let machine = machine::named(&format!("cpu-{}x", mesh.devices()), None)?;
        let steps = if matches!(self.way, Way::Around) { Steps::Offered } else { Steps::Auto };
        let target = Target { steps, ..Target::of(&machine, &mesh) };
        let prices = pipeline::prices(&target)?;
        let training = pipeline::Training {
            recipe: self.recipe(),
            decisions: pipeline::Decisions::Only(Recompute::Nothing),
            phases: pipeline::Phases::Together,
        };
        let prepared = pipeline::prepare_training(file, &imported, &training, &mut |_, _| {})?;
        let plan = match self.way {
            Way::Data => {
                let prices = DataFirst { machine: &prices, batch, tokens: batch * SEQUENCE };
                pipeline::planned(&prepared, &header, &target, &prices)
            }
            Way::Around => pipeline::planned(&prepared, &header, &target, &Around { machine: &prices }),
            Way::Cheapest | Way::Stages(_) => pipeline::planned(&prepared, &header, &target, &prices),
        };
        let plan = plan.map_err(|error| pipeline::refusal(&target, &error))?;
        plan::check(&plan).map_err(|error| Failure::internal("plan", error))?;
        let in_steps = in_steps(&plan);
        if matches!(self.way, Way::Around) && in_steps == 0 {
            return Err(internal("no product of the plan is in time steps"));
        }
        Ok((pipeline::lower(&plan, &mut |_, _| {})?, in_steps))
    }

    fn staged(
        &self,
        file: &ModelFile,
        imported: &Graph,
        header: &plan::ModelFile,
        (mesh, kind): (&Mesh, Kind),
    ) -> Result<Vec<Program>, Failure> {
        let forward = Forward::of(file, imported, &self.recipe())?.again(&Recompute::Nothing);
        let machine = machine::named(&format!("cpu-{}x", 2 * mesh.devices()), None)?;
        let wanted = Wanted {
            cluster: &Cluster::of(machine),
            meshes: Meshes::Alike(mesh),
            memory: None,
            steps: Steps::Auto,
            order: Order::Named(kind),
            chunks: 1,
            first: None,
            fixed: &[],
            rules: None,
            alike: false,
        };
        let pipeline = staged(&forward, header, &wanted, &|_| {})?;
        pipeline::lower_pipeline(&pipeline, &mut |_, _| {})
    }
}

/// How many products of a plan are in time steps.
fn in_steps(plan: &Plan) -> usize {
    let nodes = plan.graph.nodes.iter().zip(&plan.assignments);
    let is_in_steps =
        |it: &Assignment| matches!(it, Assignment::Computed { partition, .. } if partition.steps > 1);
    nodes.filter(|(node, it)| matches!(node.op, Op::Contract(_)) && is_in_steps(it)).count()
}

pub(super) fn failed(error: run::RunError) -> Failure {
    Failure::input("run", error)
}

pub(super) fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::internal("bench gpu", error)
}
