//! Training steps in stages, each on devices of its own: against PyTorch, and schedule against
//! schedule.
//!
//! Each oracle is cut into stages and held against PyTorch by the tolerances of plans; what crosses is
//! counted and compared with the pipeline's bytes. What does not change what is computed (the schedule,
//! the strategies of crossings, where a group has several stages) does not change a bit of it.

use std::path::{Path, PathBuf};

use cost_models::cluster::Cluster;
use driver::pipeline::staged::{Forward, Meshes, Order, Wanted, staged};
use lower::Origin;
use plan::{Arrival, Crossing, Pipeline, Precision, Recipe, Recompute};
use planner_ir::{Graph, Mesh, NodeId, Optimizer, Phase, Source};
use rayon::prelude::*;
use reshard::Strategy;
use rewrite::Steps;
use run::{Outcome, Session};
use schedule::Kind;

use super::cases::{self, ADAMW, Arrays, Case, MOMENTUM, SGD, parted, step_inputs};
use super::chosen::summed_once;
use super::narrow::seeded;
use super::{expect_none, faults_of};
use crate::corpus::{check_bytes, machine};

/// A pipeline that is wanted of a case.
#[derive(Clone, Debug)]
struct Trial {
    groups: u64,
    /// That of every group, or one for each.
    mesh: &'static str,
    chunks: usize,
    kind: Kind,
    micro_batches: u64,
    optimizer: Optimizer,
    again: Recompute,
}

const TWO: Trial = Trial {
    groups: 2,
    mesh: "1",
    chunks: 1,
    kind: Kind::OneForwardOneBackward,
    micro_batches: 2,
    optimizer: ADAMW,
    again: Recompute::Nothing,
};

/// A pipeline with the step that it is of.
struct Made {
    pipeline: Pipeline,
    graph: Graph,
}

impl Trial {
    /// The case with as many examples as micro-batches and meshes need.
    fn case(&self, path: &Path) -> Case {
        let case = Case::load(path);
        let wanted = self.micro_batches * if self.mesh == "1" { 1 } else { 2 };
        let examples = case.examples();
        let times = (1..=wanted).find(|times| (examples * times).is_multiple_of(wanted)).unwrap_or(1);
        case.stretched(times, 1)
    }

    fn recipe(&self, case: &Case) -> Recipe {
        let recipe = case.training(self.optimizer, self.again.clone()).recipe;
        Recipe { micro_batches: self.micro_batches, ..recipe }
    }

    fn made(&self, case: &Case) -> Result<Made, String> {
        self.made_by(case, &self.recipe(case))
    }

    fn made_by(&self, case: &Case, recipe: &Recipe) -> Result<Made, String> {
        self.made_in(case, (recipe, Some(&self.again)), None)
    }

    /// The same with so much memory on a device (bytes), where this is computed again of all blocks, or of each what
    /// takes least.
    fn made_in(
        &self,
        case: &Case,
        (recipe, again): (&Recipe, Option<&Recompute>),
        memory: Option<u64>,
    ) -> Result<Made, String> {
        let imported = case.imported(&parted(&case.batch(0), self.micro_batches)[0]);
        let forward = |recipe: &Recipe| {
            Forward::of(&case.file, &imported, recipe).map_err(|error| format!("no step: {error}"))
        };
        let blocks = forward(recipe)?.blocks();
        let recompute = again.map_or(vec![], |again| vec![again.clone(); blocks]);
        let recipe = Recipe { recompute, ..recipe.clone() };
        let started = forward(&recipe)?;
        let meshes: Result<Vec<Mesh>, _> = self.mesh.split(',').map(Mesh::parse).collect();
        let meshes = meshes.map_err(|error| error.to_string())?;
        let (devices, meshes) = match &meshes[..] {
            [mesh] => (mesh.devices() * self.groups, Meshes::Alike(mesh)),
            each => (each.iter().map(Mesh::devices).sum(), Meshes::Each(each)),
        };
        let (_, machine) = machine(&devices.to_string());
        let wanted = Wanted {
            cluster: &Cluster::of(machine),
            meshes,
            memory,
            steps: Steps::Auto,
            order: Order::Named(self.kind),
            chunks: self.chunks,
            first: None,
            fixed: &[],
            rules: None,
            alike: false,
        };
        let header =
            plan::ModelFile { path: case.title.clone(), sha256: case.file.sha256.clone(), dims: vec![] };
        let pipeline = staged(&started, &header, &wanted, &|_| {});
        let pipeline = pipeline.map_err(|error| format!("not planned: {error}"))?;
        let (step, _) = forward(&pipeline.recipe)?.step(None).map_err(|error| format!("no step: {error}"))?;
        Ok(Made { pipeline, graph: step.graph })
    }
}

impl Made {
    fn programs(&self) -> Result<Vec<lower::Program>, String> {
        lower::pipeline(&self.pipeline).map_err(|error| format!("not lowered: {error}"))
    }

    fn session(&self, case: &Case) -> Result<Session, String> {
        case.started(self.programs()?)
    }

    /// The file says the pipeline, and three steps are as PyTorch's.
    fn check(&self, case: &Case, optimizer: Optimizer) -> Result<(), String> {
        let written = plan::json::write_pipeline(&self.pipeline);
        match plan::json::read_any(written.as_bytes()) {
            Ok(plan::json::Content::Pipeline(read)) if *read == self.pipeline => {}
            other => return Err(format!("its file is not the pipeline: {:?}", other.err())),
        }
        self.pipeline.stages.iter().try_for_each(|stage| summed_once(&stage.plan))?;
        let bytes = |outcome: &Outcome| self.check_received(outcome);
        let parts = self.pipeline.micro_batches();
        case.check_session(self.session(case)?, &self.graph, optimizer, parts, &bytes)
    }

    /// What each stage received in its own moves, and what arrived there, is what its plan and the
    /// crossings say.
    fn check_received(&self, outcome: &Outcome) -> Result<(), String> {
        let (mut transfers, mut nodes) = (0, 0);
        for (number, stage) in self.pipeline.stages.iter().enumerate() {
            let here = |origin: Origin| match origin {
                Origin::Move { transfer, step } => {
                    let own = transfers..transfers + stage.plan.transfers.len();
                    own.contains(&transfer).then(|| Origin::Move { transfer: transfer - transfers, step })
                }
                Origin::Motion { node, moving, time } => {
                    let own = nodes..nodes + stage.plan.graph.nodes.len();
                    own.contains(&node.0).then(|| Origin::Motion {
                        node: NodeId(node.0 - nodes),
                        moving,
                        time,
                    })
                }
                _ => None,
            };
            let received: Vec<(Origin, u64)> =
                outcome.received.iter().filter_map(|&(origin, bytes)| Some((here(origin)?, bytes))).collect();
            check_bytes(&stage.plan, &received).map_err(|error| format!("stage {number}: {error}"))?;
            transfers += stage.plan.transfers.len();
            nodes += stage.plan.graph.nodes.len();
        }
        for (number, crossing) in self.pipeline.crossings.iter().enumerate() {
            let of_it = outcome.received.iter().filter(|it| it.0 == Origin::Crossing(number));
            let received: u64 = of_it.map(|it| it.1).sum();
            let each: u64 = crossing.to.iter().map(|arrival| arrival.bytes).sum();
            let times = if self.is_once(crossing) { 1 } else { self.pipeline.micro_batches() };
            if received != each * times {
                return Err(format!(
                    "`{}` is {received} bytes received, expected {times} times {each}",
                    crossing.name
                ));
            }
        }
        Ok(())
    }

    /// Whether a crossing is made once in a step: by the update, or as a sum over micro-batches.
    fn is_once(&self, crossing: &Crossing) -> bool {
        let graph = &self.pipeline.stages[crossing.from].plan.graph;
        let output = graph.outputs.iter().find(|it| it.name == crossing.name).unwrap().value;
        let is_sum = |it: &planner_ir::Training| it.carried.iter().any(|it| it.next == output);
        let Source::Result { node, .. } = graph.value(output).source else { return false };
        graph.node(node).phase == Phase::Update || graph.training.as_ref().is_some_and(is_sum)
    }

    /// The pipeline with another order of work, of as many stages.
    fn ordered(&self, kind: Kind) -> Self {
        let (groups, chunks) = (self.pipeline.schedule.groups.len(), self.pipeline.schedule.chunks);
        let count = usize::try_from(self.pipeline.micro_batches()).unwrap();
        let schedule = kind.schedule(groups, chunks, count).unwrap();
        let pipeline = Pipeline { schedule, ..self.pipeline.clone() };
        plan::check_pipeline(&pipeline).unwrap();
        Self { pipeline, graph: self.graph.clone() }
    }

    /// The pipeline in which everything travels so.
    fn travelling(&self, strategy: Strategy, chunks: u64) -> Self {
        let mut pipeline = self.pipeline.clone();
        for arrival in pipeline.crossings.iter_mut().flat_map(|it| &mut it.to) {
            *arrival = Arrival { strategy: strategy.name().to_owned(), chunks, ..arrival.clone() };
        }
        Self { pipeline, graph: self.graph.clone() }
    }

    /// What three steps leave: outputs and states, bit by bit.
    fn trained(&self, case: &Case) -> Result<Vec<Arrays>, String> {
        let mut session = self.session(case)?;
        let mut left = Vec::new();
        for number in 1..=3 {
            let parts = parted(&case.batch(number - 1), self.pipeline.micro_batches());
            let parts = seeded(&self.graph, parts, number);
            let inputs = step_inputs(&self.graph, 1e-2, number);
            left.push(session.train(&parts, &inputs).map_err(|error| format!("not run: {error}"))?.outputs);
        }
        session.check_replicas().map_err(|error| format!("replicas differ: {error}"))?;
        let states = session.states().into_iter().map(|state| {
            let whole = session.gather(&state).map_err(|error| error.to_string())?;
            Ok((format!("{:?} {}", state.kind, state.name), whole))
        });
        left.push(states.collect::<Result<_, String>>()?);
        Ok(left)
    }
}

/// The oracles whose names start so.
fn paths(names: &[&str]) -> Vec<PathBuf> {
    let all = cases::all();
    names.iter().filter_map(|name| all.iter().find(|path| path.ends_with(name)).cloned()).collect()
}

/// Models, and the pipelines that each is trained in.
fn trials() -> Vec<(&'static str, Trial)> {
    let four = Trial { groups: 4, micro_batches: 4, ..TWO };
    let with = |kind: Kind, again: Recompute, trial: &Trial| Trial { kind, again, ..trial.clone() };
    vec![
        ("gpt2/legacy.onnx", with(Kind::ZeroBubbleH2, Recompute::Full, &four)),
        ("gpt2/dynamo.onnx", Trial { mesh: "2x2", optimizer: MOMENTUM, ..TWO }),
        ("t5/legacy.onnx", with(Kind::ZeroBubbleH1, Recompute::Nothing, &four)),
        ("t5/legacy.onnx", Trial { mesh: "2", kind: Kind::Eager, ..TWO }),
        ("t5/legacy.onnx", Trial { mesh: "2x2", kind: Kind::Eager, ..four.clone() }),
        ("whisper/legacy.onnx", with(Kind::Eager, Recompute::Selective, &four)),
        ("whisper/legacy.onnx", Trial { mesh: "2", optimizer: SGD, kind: Kind::ZeroBubbleH1, ..TWO }),
        ("mixtral/legacy.onnx", Trial { mesh: "2", optimizer: MOMENTUM, kind: Kind::ZeroBubbleH1, ..TWO }),
        ("llama/dynamo.onnx", Trial { mesh: "2", ..four.clone() }),
        ("llama/legacy.onnx", Trial { chunks: 2, kind: Kind::InterleavedDelayed, optimizer: SGD, ..TWO }),
        ("vit/legacy.onnx", with(Kind::GPipe, Recompute::Full, &TWO)),
        ("gpt2/legacy.onnx", Trial { groups: 3, mesh: "1,1,2", ..TWO }),
        ("llama/legacy.onnx", Trial { groups: 3, mesh: "2x2,2,1", kind: Kind::ZeroBubbleH1, ..TWO }),
        ("bert/legacy.onnx", Trial { mesh: "2", kind: Kind::OneForwardOneBackwardDelayed, ..TWO }),
        ("gemma2/legacy.onnx", Trial { mesh: "2", chunks: 2, kind: Kind::Interleaved, ..TWO }),
    ]
}

/// Holds two stages, each on a mesh of its own, against PyTorch on a GPU that is not there.
pub(super) fn check_on_gpu(
    path: &Path,
    mesh: &'static str,
    kind: Kind,
    micro_batches: u64,
) -> Result<(), String> {
    let trial = Trial { mesh, kind, micro_batches, ..TWO };
    let case = trial.case(path);
    let made = trial.made(&case)?;
    let programs = made.programs()?;
    let gpu = crate::emulated::emulated();
    let session = crate::corpus::gpu::session(&gpu, programs, &case.file)?;
    let bytes = |outcome: &Outcome| made.check_received(outcome);
    case.check_session(session, &made.graph, trial.optimizer, micro_batches, &bytes)
}

/// The programs of two stages.
pub(super) fn programs(
    path: &Path,
    mesh: &'static str,
    kind: Kind,
    micro_batches: u64,
) -> Result<Vec<lower::Program>, String> {
    let trial = Trial { mesh, kind, micro_batches, ..TWO };
    trial.made(&trial.case(path))?.programs()
}

fn check(name: &str, path: &Path, trial: &Trial) -> Vec<String> {
    let case = trial.case(path);
    let checked = trial.made(&case).and_then(|made| made.check(&case, trial.optimizer));
    checked.err().map(|error| format!("{name}, {trial:?}: {error}")).into_iter().collect()
}

#[test]
fn stages_train_as_pytorch() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let trials: Vec<_> = trials().into_iter().filter(|(name, _)| name.contains(&wanted)).collect();
    let found = trials.par_iter().map(|(name, trial)| {
        let paths = paths(&[name]);
        paths.iter().flat_map(|path| faults_of(name, || check(name, path, trial))).collect::<Vec<_>>()
    });
    let found: Vec<Vec<String>> = found.collect();
    expect_none(&found.into_iter().flatten().collect::<Vec<_>>());
}

/// Where memory is short each block of each stage keeps what its plan says: some of its values, with those of other
/// stages otherwise. What is computed is what PyTorch computes; it takes no less than with more memory, and no more than
/// where all blocks compute everything again.
#[test]
fn blocks_of_stages_keep_what_they_may() {
    let four = Trial { groups: 2, micro_batches: 4, ..TWO };
    let trials = [
        ("gpt2/legacy.onnx", Trial { kind: Kind::Eager, mesh: "2", ..four.clone() }),
        ("t5/legacy.onnx", four.clone()),
        ("mixtral/legacy.onnx", Trial { mesh: "2", ..four }),
    ];
    let mut mixed = 0;
    for (name, trial) in trials {
        for path in paths(&[name]) {
            // What is kept is much beside states only where there are many tokens.
            let case = trial.case(&path).stretched(64, 1);
            let recipe = trial.recipe(&case);
            let made = |again, memory| trial.made_in(&case, (&recipe, again), memory);
            let keeps = |made: &Made| made.pipeline.recipe.recompute.clone();
            let held = |made: &Made| made.pipeline.held();
            let roomy = made(None, None).unwrap();
            let all = made(Some(&Recompute::Full), None).unwrap();
            assert!(keeps(&roomy).iter().all(|it| *it == Recompute::Nothing), "{name}");
            let (most, least) = (held(&roomy), held(&all));
            let mut before = roomy.pipeline.seconds();
            for part in [7, 6, 5, 4, 2] {
                let room = least + (most - least.min(most)) * part / 8;
                let (Ok(short), Ok(alike)) =
                    (made(None, Some(room)), made(Some(&Recompute::Full), Some(room)))
                else {
                    continue;
                };
                assert!(held(&short) <= room, "{name} in {room}");
                let (seconds, of_all) = (short.pipeline.seconds(), alike.pipeline.seconds());
                assert!(seconds >= before * 0.999 && seconds <= of_all * 1.001, "{name}: {seconds} {of_all}");
                before = seconds;
                let kinds: std::collections::BTreeSet<_> = keeps(&short).into_iter().collect();
                mixed += usize::from(kinds.len() > 1);
                short.check(&case, trial.optimizer).unwrap();
            }
        }
    }
    assert!(mixed >= 3, "of {mixed} only not the same is computed again of all blocks");
}

/// Says what differs between what several pipelines leave.
fn same(case: &Case, all: &[(String, Made)]) -> Vec<String> {
    let left: Vec<_> = all.par_iter().map(|(name, made)| (name, made.trained(case))).collect();
    let Some((first, expected)) = left.first() else { return vec!["nothing is compared".to_owned()] };
    let mut wrong = Vec::new();
    for (name, found) in &left {
        match (expected, found) {
            (Ok(expected), Ok(found)) if expected != found => wrong.push(format!(
                "{}: {name} leaves other bits than {first}: {}",
                case.title,
                differing(expected, found)
            )),
            (_, Err(error)) => wrong.push(format!("{} by {name}: {error}", case.title)),
            _ => {}
        }
    }
    wrong
}

fn differing(expected: &[Arrays], found: &[Arrays]) -> String {
    let pairs = expected.iter().zip(found).enumerate();
    let of = |(step, (expected, found)): (usize, (&Arrays, &Arrays))| {
        let other = expected.iter().filter(|(name, array)| found.get(*name) != Some(array));
        other.map(|(name, _)| format!("{step}: {name}")).collect::<Vec<_>>()
    };
    pairs.flat_map(of).take(10).collect::<Vec<_>>().join(", ")
}

/// Four stages on four devices by every schedule, and on two devices with two each.
#[test]
fn schedules_do_not_change_a_bit() {
    for path in paths(&["gpt2/legacy.onnx", "t5/legacy.onnx"]) {
        let trial = Trial { groups: 4, micro_batches: 4, ..TWO };
        let case = trial.case(&path);
        let recipe = Recipe { clip: Some(0.5), ..trial.recipe(&case) };
        let four = trial.made_by(&case, &recipe).unwrap();
        let inside = Trial { groups: 2, chunks: 2, kind: Kind::Interleaved, ..trial };
        let two = inside.made_by(&case, &recipe).unwrap();
        let kinds = Kind::ALL.into_iter();
        let made = kinds.map(|kind| {
            let of = if kind.interleaves() { &two } else { &four };
            (kind.name().to_owned(), of.ordered(kind))
        });
        expect_none(&same(&case, &made.collect::<Vec<_>>()));
    }
}

/// By every strategy, in one piece or several, and on nodes of one, two and all devices.
#[test]
fn strategies_of_crossings_do_not_change_a_bit() {
    for path in paths(&["gpt2/legacy.onnx", "whisper/legacy.onnx"]) {
        let trial = Trial { mesh: "2x2", kind: Kind::Eager, ..TWO };
        let case = trial.case(&path);
        let made = trial.made(&case).unwrap();
        let mut all = Vec::new();
        for strategy in Strategy::ALL {
            for (chunks, devices_per_node) in [(1, 1), (3, 2), (16, 8)] {
                let mut made = made.travelling(strategy, chunks);
                made.pipeline.devices_per_node = devices_per_node;
                all.push((format!("{} {chunks} {devices_per_node}", strategy.name()), made));
            }
        }
        expect_none(&same(&case, &all));
    }
}

/// In bf16, with what does not change and gradients scaled down, one after another and at once, on two devices
/// for each stage: what they owe of gradients is summed once, for the norm and for the update.
#[test]
fn recipes_mean_the_same_in_stages() {
    for path in paths(&["gpt2/legacy.onnx", "llama/legacy.onnx"]) {
        let trial = Trial { micro_batches: 2, ..TWO };
        let case = trial.case(&path);
        let plain = trial.recipe(&case);
        let narrow = Recipe { precision: Precision::Bf16, clip: Some(0.5), ..plain.clone() };
        let alone = Recipe { precision: Precision::Bf16Stochastic, ..narrow.clone() };
        let mut frozen = Recipe { clip: Some(0.5), ..plain };
        frozen.roles.frozen.push("*mlp*".to_owned());
        for recipe in [narrow, alone, frozen] {
            let [two, alone] = [2, 1].map(|groups| {
                let kind = Kind::OneForwardOneBackward;
                Trial { groups, kind, mesh: "2", ..trial.clone() }.made_by(&case, &recipe).unwrap()
            });
            for stage in two.pipeline.stages.iter().chain(&alone.pipeline.stages) {
                summed_once(&stage.plan).unwrap();
            }
            expect_none(&near(&case, &recipe, &two, &alone));
            expect_none(&same(
                &case,
                &[("1f1b".to_owned(), two.ordered(Kind::GPipe)), ("gpipe".to_owned(), two)],
            ));
        }
    }
}

/// Chances and magnitudes of steps before are those of the whole step, in whichever stage a layer is.
#[test]
fn narrow_products_mean_the_same_in_stages() {
    for path in paths(&["gpt2/legacy.onnx"]) {
        let trial = Trial { micro_batches: 2, ..TWO };
        let case = Case::load(&path).stretched(4, 32);
        for precision in [Precision::Nvfp4, Precision::Fp8Delayed] {
            let recipe = Recipe { precision, ..trial.recipe(&case) };
            let [two, alone] =
                [2, 1].map(|groups| Trial { groups, ..trial.clone() }.made_by(&case, &recipe).unwrap());
            expect_none(&near(&case, &recipe, &two, &alone));
        }
    }
}

/// Says which losses, norms and states of a pipeline are far from those of one stage.
fn near(case: &Case, recipe: &Recipe, two: &Made, alone: &Made) -> Vec<String> {
    let allowed = if recipe.precision == Precision::F32 { 1e-3 } else { 5e-2 };
    let (found, expected) = (two.trained(case).unwrap(), alone.trained(case).unwrap());
    let mut wrong = Vec::new();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{}", case.title);
        for (name, expected) in expected {
            let [found, expected] = [&found[name], expected].map(cases::floats);
            let off = super::against::apart(&found, &expected, 0.0);
            if off > allowed {
                wrong.push(format!("{}: {name} is off by {off:e}", case.title));
            }
        }
    }
    wrong
}
