//! The U-Transformer in stages, on ranks.

use std::collections::BTreeMap;

use cost_models::cluster::Cluster;
use driver::pipeline;
use driver::pipeline::staged::{Forward, Meshes, Order, Wanted, staged};
use files::folder::Folder;
use files::inputs::Random;
use files::{machine, model_file};
use import::Bindings;
use kernels::Array;
use model_zoo::folder::Writer;
use model_zoo::unet::{Size, write};
use plan::{Loss, Precision, Recipe, Recompute};
use planner_ir::{Mesh, Optimizer, Real};
use rewrite::Steps;
use schedule::Kind;

const SIZE: Size = Size { channels: 32, blocks: 3, pixels: 8, images: 4 };
const MICRO_BATCHES: u64 = 4;

/// An array of numbers about 0.
fn array(name: &str, shape: &[u64]) -> (String, Array) {
    let mut random = Random::new(1, name);
    let count = shape.iter().product();
    #[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
    let numbers: Vec<f32> = (0..count).map(|_: u64| random.number() as f32).collect();
    (name.to_owned(), Array::of::<f32>(shape, &numbers).expect("as many as the shape says"))
}

/// The inputs of a micro-batch.
fn inputs(number: u64) -> BTreeMap<String, Array> {
    let Size { channels, pixels, images, .. } = SIZE;
    let shapes = [
        ("images", vec![images, 3, pixels, pixels]),
        ("time", vec![1]),
        ("context", vec![images, 4, 2 * channels]),
        ("targets", vec![images, 4, pixels, pixels]),
    ];
    let named = |(name, shape): (&str, Vec<u64>)| {
        let (_, array) = array(&format!("{name}{number}"), &shape);
        (name.to_owned(), array)
    };
    shapes.into_iter().map(named).collect()
}

/// The losses of three steps in stages, each on so many devices.
fn losses(stages: u64, devices: u64, kind: Kind) -> Vec<f64> {
    let folder = Folder::new(&format!("unet-{stages}-{devices}-{kind}"), None).expect("a folder");
    let path = write(Writer::small(&folder.path), SIZE).expect("written");
    let file = model_file::open(&path).expect("is a model");
    let graph = pipeline::import(&file, &Bindings::default(), &mut |_, _| {}).expect("imported");
    let recipe = Recipe {
        precision: Precision::F32,
        micro_batches: MICRO_BATCHES,
        ..Recipe::new(
            Loss::Output("loss".to_owned()),
            Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.0) },
        )
    };
    let forward = Forward::of(&file, &graph, &recipe).expect("derived").again(&Recompute::Full);
    let machine = machine::named(&format!("cpu-{}x", stages * devices), None).expect("is known");
    let wanted = Wanted {
        cluster: &Cluster::of(machine),
        meshes: Meshes::Alike(&Mesh::of_sizes(&[devices])),
        memory: None,
        steps: Steps::One,
        order: Order::Named(kind),
        chunks: 1,
        first: None,
        fixed: &[],
        rules: None,
        alike: false,
    };
    let header = plan::ModelFile { path: String::new(), sha256: file.sha256.clone(), dims: vec![] };
    let made = staged(&forward, &header, &wanted, &|_| {}).expect("fits");
    // Values pass from the way down to the way up, besides the one from stage to stage.
    let forwards = made.crossings.iter().filter(|it| it.from == 0).count();
    assert!(stages == 1 || forwards > 1, "{forwards}");
    let programs = lower::pipeline(&made).expect("lowered");
    let mut session = run::Session::new(programs, &file).expect("started");
    let micro_batches: Vec<_> = (0..MICRO_BATCHES).map(inputs).collect();
    let rate = Array::of::<f32>([], &[0.001]).expect("one number");
    let step = BTreeMap::from([(train::RATE.to_owned(), rate)]);
    let loss = |_| {
        let outcome = session.train(&micro_batches, &step).expect("trained");
        outcome.outputs[train::LOSS].to_floats().expect("a number")[0]
    };
    (0..3).map(loss).collect()
}

#[test]
fn stages_train_as_one_rank_does() {
    let one = losses(1, 1, Kind::OneForwardOneBackward);
    assert!(one[2] < one[0], "nothing is learnt: {one:?}");
    for (stages, devices, kind) in [(2, 2, Kind::Eager), (4, 1, Kind::ZeroBubbleH1)] {
        let found = losses(stages, devices, kind);
        for (found, expected) in found.iter().zip(&one) {
            assert!((found - expected).abs() < 1e-5 * expected, "{stages}x{devices}: {found}, {expected}");
        }
    }
}
