//! Tests of stages: what is counted is what is placed; short models are shallower ones.

use std::collections::BTreeMap;

use cost_models::cluster::Cluster;
use cost_models::known::Count;
use cost_models::units::BytesPerSecond;
use files::folder::Folder;
use files::machine;
use files::model_file::{self, ModelFile};
use import::Bindings;
use model_zoo::folder::Writer;
use model_zoo::gpt2::{self, Size, Start};
use plan::{Holding, Loss, NoDecay, Pipeline, Precision, Recipe, Recompute, held};
use planner_ir::{Mesh, Optimizer, Real};
use rewrite::Steps;
use schedule::{Kind, verify};
use search::Live;

use super::placed::fits;
use super::{Forward, Meshes, Order, Wanted, message, staged, under_way};

const MICRO_BATCHES: u64 = 8;

fn recipe() -> Recipe {
    Recipe {
        precision: Precision::Bf16,
        micro_batches: MICRO_BATCHES,
        no_decay: NoDecay { names: vec![], vectors: true },
        ..Recipe::new(
            Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() },
            Optimizer::Sgd { decay: Real(0.0) },
        )
    }
}

/// GPT-2 of some depth and its dimensions, without weights.
fn model(folder: &Folder, layers: u64) -> (ModelFile, BTreeMap<String, u64>) {
    let size = Size { layers, hidden: 512, heads: 8, vocabulary: 2048, positions: 128 };
    let folder = folder.path.join(layers.to_string());
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = gpt2::write(Writer::absent(&folder), size, Start::Alike, 0).expect("written");
    let dims = BTreeMap::from([("batch".to_owned(), 2), ("sequence".to_owned(), 128)]);
    (model_file::open(&path).expect("is a model"), dims)
}

fn imported((file, dims): &(ModelFile, BTreeMap<String, u64>)) -> planner_ir::Graph {
    let bindings = Bindings { dims: dims.clone(), ..Bindings::default() };
    file.model.import(&bindings).expect("imported")
}

#[test]
fn what_a_search_counts_of_micro_batches_under_way_is_what_programs_place() {
    let folder = Folder::new("under-way", None).expect("a folder");
    let model = model(&folder, 8);
    let forward = Forward::of(&model.0, &imported(&model), &recipe()).expect("derived");
    let forward = forward.again(&Recompute::Nothing);
    let machine = machine::named("a100-80g-8x", None).expect("is shipped");
    let mesh = Mesh::of_sizes(&[2]);
    let header = plan::ModelFile {
        path: "model.onnx".to_owned(),
        sha256: model.0.sha256.clone(),
        dims: model.1.iter().map(|(name, &size)| (name.clone(), size)).collect(),
    };
    for kind in [Kind::OneForwardOneBackward, Kind::Eager, Kind::ZeroBubbleH1, Kind::GPipe] {
        let wanted = Wanted {
            cluster: &Cluster::of(machine.clone()),
            meshes: Meshes::Alike(&mesh),
            memory: None,
            steps: Steps::One,
            order: Order::Named(kind),
            chunks: 1,
            first: None,
            fixed: &[],
            rules: None,
            alike: false,
        };
        let pipeline = staged(&forward, &header, &wanted, &|_| {}).expect("fits");
        let schedule = pipeline.schedule.clone();
        let micro_batches = schedule.micro_batches();
        let live = under_way(&verify(schedule, pipeline.stages.len(), micro_batches).expect("a schedule"));
        let bytes = |memory: &[Holding]| memory.iter().map(|it| it.bytes).sum::<u64>();
        // Without what is held because exchanges go ahead: there is room for that, or they do not.
        let mut plain = pipeline.clone();
        plain.stages.iter_mut().for_each(|stage| stage.plan.hidden = plan::Hidden::default());
        let in_order = lower::pipelined(&plain).expect("lowered").memory().expect("placed");
        for (number, stage) in pipeline.stages.iter().enumerate() {
            let counted = bytes(&search::held(&stage.plan, live[number]));
            let placed = bytes(&in_order[pipeline.group(number)]);
            let ahead = bytes(&pipeline.memory[pipeline.group(number)]);
            assert!(ahead <= pipeline.capacity_of(pipeline.group(number)), "{kind}, stage {number}: {ahead}");
            // Beside what is counted: two places for what is sent and received, and gaps.
            let apart = counted.abs_diff(placed);
            assert!(apart * 100 <= placed * 8, "{kind}, stage {number}: {counted} counted, {placed} placed");

            // What blocks keep is what more micro-batches under way add, to the byte.
            let homes = vec![0; stage.plan.graph.nodes.len()];
            let kept = search::kept(&stage.plan, &homes, 1)[0].0;
            let made = |live: Live| {
                let mut memory = search::held(&stage.plan, live);
                memory.retain(|it| it.kind == "activations" || it.kind == "communication");
                bytes(&memory)
            };
            let Live { backward, gradients, apart } = live[number];
            let left = if apart > 1 { apart } else { 0 };
            let more = kept.bytes(Live { backward: backward - 1, gradients: gradients - 1, apart: left });
            let one = Live { apart: apart.min(1), ..Live::ONE };
            assert_eq!(made(live[number]) - made(one), more, "{kind}, stage {number}");
        }
    }
}

/// What crosses leaves a node by all the adapters that its devices have, as a price of setups says.
#[test]
fn devices_with_adapters_of_their_own_hand_over_at_once() {
    let of = |adapters: u64| {
        let mut machine = machine::named("h100-80g-16x", None).expect("is shipped");
        let network = machine.network.as_mut().expect("a network");
        network.adapters.value = Count(adapters);
        // So slow that nothing else takes long.
        network.adapter_bandwidth.value = BytesPerSecond(1e6);
        let pipeline = stages_of(&[8], &Cluster::of(machine.clone()), None);
        let forward = pipeline.crossings.iter().find(|it| it.from == 0).expect("something crosses");
        let bytes = 2 * 128 * 512 * 2;
        (forward.to[0].seconds, message(&machine, 8, bytes).expect("a network"))
    };
    let (shared, four, own) = (of(1), of(4), of(8));
    assert!(
        (shared.0 / four.0 - 4.0).abs() < 0.1 && (shared.0 / own.0 - 8.0).abs() < 0.2,
        "{shared:?} {own:?}"
    );
    for (crossing, priced) in [shared, four, own] {
        assert!((crossing / priced - 1.0).abs() < 0.05, "{crossing} {priced}");
    }
}

/// A GPT-2 of twelve layers in stages on such a mesh.
fn stages_of(mesh: &[u64], cluster: &Cluster, first: Option<Vec<usize>>) -> Pipeline {
    let mesh = Mesh::of_sizes(mesh);
    let folder = Folder::new(&format!("stages-of-{}", mesh.devices()), None).expect("a folder");
    let model = model(&folder, 12);
    let forward = Forward::of(&model.0, &imported(&model), &recipe()).expect("derived");
    let forward = forward.again(&Recompute::Nothing);
    let header = plan::ModelFile {
        path: String::new(),
        sha256: model.0.sha256.clone(),
        dims: model.1.iter().map(|(name, &size)| (name.clone(), size)).collect(),
    };
    let wanted = Wanted {
        cluster,
        meshes: Meshes::Alike(&mesh),
        memory: None,
        steps: Steps::One,
        order: Order::Named(Kind::OneForwardOneBackward),
        chunks: 1,
        first,
        fixed: &[],
        rules: None,
        alike: false,
    };
    staged(&forward, &header, &wanted, &|_| {}).expect("fits")
}

/// Who looks for a setup that fits tells what does not fit from what is refused for another reason.
#[test]
fn stages_that_do_not_fit_are_known_not_to() {
    let machine = machine::named("a100-80g-4x", None).expect("is shipped");
    let mut pipeline = stages_of(&[2], &Cluster::of(machine), None);
    fits(&pipeline).expect("was planned so");
    pipeline.capacity = 1;
    pipeline.stages.iter_mut().for_each(|it| it.plan.capacity = 1);
    let refused = fits(&pipeline).expect_err("a byte is too little");
    assert_eq!(refused.needs(), Some(held(&pipeline.memory[0])));
    assert_eq!(files::Failure::Input("no such file".to_owned()).needs(), None);
}

/// Where nodes have several adapters, what crosses goes by all of them, and all ranks of a stage do the same:
/// also those of the first and the last one, which send each other a tied embedding.
#[test]
fn ranks_of_a_planned_stage_are_one_kind() {
    for (groups, mesh) in [(2, [2, 8]), (2, [4, 8]), (4, [2, 4]), (4, [2, 8])] {
        let devices: u64 = groups * mesh.iter().product::<u64>();
        let machine = machine::named(&format!("h100-80g-{devices}x"), None).expect("is shipped");
        let cluster = Cluster::of(machine);
        let pipeline = stages_of(&mesh, &cluster, None);
        assert!(pipeline.stages.iter().all(|stage| stage.adapters == 8));
        let last = pipeline.stages.len() - 1;
        let tied = |it: &plan::Crossing| {
            (it.from, it.to[0].stage) == (last, 0) || (it.from, it.to[0].stage) == (0, last)
        };
        assert!(pipeline.crossings.iter().any(tied) || last == 1, "{groups} groups");
        let kinds = |pipeline: &Pipeline| {
            let programs = lower::grouped(pipeline).expect("lowered");
            let timeline =
                simulate::simulate_grouped(&programs, &cluster, simulate::Order::Streams).expect("runs");
            // What is known of a group is what all its programs say.
            let each = lower::pipeline(pipeline).expect("lowered");
            let apart = simulate::simulate_cluster(&each, &cluster, simulate::Order::Streams).expect("runs");
            assert!((timeline.seconds / apart.seconds - 1.0).abs() < 1e-9);
            assert_eq!(timeline.classes.len(), apart.classes.len());
            u64::try_from(timeline.classes.len()).expect("is small")
        };
        assert_eq!(kinds(&pipeline), groups, "{mesh:?}");
    }
}

/// Nodes that are equal, told as two kinds, are one machine; of kinds that differ the faster one has more
/// blocks, each stage takes what it takes on its own kind, and the simulated step is as estimated.
#[test]
fn stages_are_on_nodes_of_two_kinds() {
    let named = |name: &str| machine::named(name, None).expect("is known");
    let joined = |names: [&str; 2]| Cluster::joined(names.map(named).to_vec()).expect("go together");
    let (fast, slow) = ("a100-80g-2x", "v100-16g-2x");
    let same = stages_of(&[2], &joined([fast, fast]), None);
    let cut: Vec<usize> = same.stages.iter().map(|stage| stage.first_block).collect();
    let mixed = stages_of(&[2], &joined([fast, slow]), None);
    let own = stages_of(&[2], &joined([slow, fast]), Some(cut.clone()));
    // The faster kind has more blocks, and that is worth it.
    assert!(mixed.stages[1].first_block > cut[1], "{} {}", mixed.stages[1].first_block, cut[1]);
    let even = stages_of(&[2], &joined([fast, slow]), Some(cut.clone()));
    assert!(mixed.seconds() < even.seconds(), "{} {}", mixed.seconds(), even.seconds());
    // What a stage takes depends on its own kind alone.
    let phases = |of: &Pipeline, stage: usize| of.stages[stage].plan.phases(of.schedule.splits_backward);
    assert_eq!(phases(&even, 0), phases(&same, 0));
    assert!(phases(&even, 1).0.total() > phases(&same, 1).0.total());
    assert!(phases(&own, 0).0.total() > phases(&same, 0).0.total());
    assert_eq!(phases(&own, 1), phases(&same, 1));
    // And so does what it may hold.
    let may: Vec<u64> = (0..2).map(|group| mixed.capacity_of(group)).collect();
    assert_eq!(may, [fast, slow].map(|name| named(name).usable_memory().0));
    assert_eq!(plan::check_pipeline(&mixed).map_err(|error| error.to_string()), Ok(()));
    for (pipeline, kinds) in [(&mixed, [fast, slow]), (&own, [slow, fast]), (&same, [fast, fast])] {
        let programs = lower::pipeline(pipeline).expect("lowered");
        let order = simulate::Order::Streams;
        let timeline = simulate::simulate_cluster(&programs, &joined(kinds), order).expect("runs");
        let apart = (timeline.seconds - pipeline.seconds()).abs() / pipeline.seconds();
        // So small a model does little but start operations, setting sums to zero is not estimated, and what is
        // exchanged first and last has nothing to hide it.
        assert!(
            apart < 0.2,
            "{kinds:?}: {} is estimated, {} simulated",
            pipeline.seconds(),
            timeline.seconds
        );
    }
}
