//! The model of both uses is one model, and is understood: a sequence at once, and token by token.

use std::collections::BTreeMap;
use std::path::Path;

use driver::compile;
use driver::generation::bound::{Decoder, Wanted as Sizes};
use driver::generation::planned::{Step, Wanted, planned};
use driver::generation::roles::{Told, roles};
use driver::generation::sequences::Sequences;
use driver::pipeline::{self, Prepared, Target};
use files::folder::Folder;
use files::machine;
use files::model_file::{self, ModelFile};
use import::Bindings;
use kernels::Array;
use model_zoo::folder::Writer;
use model_zoo::llama::{Size, Use, write};
use planner_ir::{Mesh, Op, Source};
use rewrite::Steps;
use run::Session;

const TOKENS: [i64; 6] = [5, 60, 3, 3, 17, 42];

fn model(folder: &Path, use_: Use) -> ModelFile {
    model_file::open(&write(Writer::small(folder), Size::LITTLE, use_, 1).unwrap()).unwrap()
}

/// What the model of whole sequences says after each of the tokens.
fn at_once(folder: &Path) -> (ModelFile, Prepared, Vec<f64>) {
    let file = model(folder, Use::Training);
    let dims = [("batch".to_owned(), 1), ("sequence".to_owned(), 6)].into();
    let bindings = Bindings { dims, ..Bindings::default() };
    let graph = pipeline::import(&file, &bindings, &mut |_, _| {}).unwrap();
    let prepared = pipeline::prepare(&graph, &mut |_, _| {}).unwrap();
    let machine = machine::named("cpu-1x", None).unwrap();
    let mesh = Mesh::of_sizes(&[1]);
    let header = compile::header(&file, &bindings, &graph);
    let plan = pipeline::plan(&prepared, &header, &Target::of(&machine, &mesh), &mut |_, _| {}).unwrap();
    let programs = pipeline::lower(&plan, &mut |_, _| {}).unwrap();
    let mut session = Session::new(programs, &file).unwrap();
    let given = BTreeMap::from([("input_ids".to_owned(), Array::of([1, 6], &TOKENS).unwrap())]);
    let logits = session.step(&given).unwrap().outputs["logits"].to_floats().unwrap();
    (file, prepared, logits)
}

#[test]
fn a_sequence_at_once_is_as_token_by_token() {
    let folder = Folder::new("llama", None).unwrap();
    let (file, prepared, logits) = at_once(&folder.path);
    let graph = &prepared.graph;
    let count = |is: &dyn Fn(&Op) -> bool| graph.nodes.iter().filter(|it| is(&it.op)).count();
    assert_eq!(count(&|op| matches!(op, Op::Attention(it) if it.causal)), 1);
    assert_eq!(count(&|op| matches!(op, Op::RmsNorm { .. })), 3);
    assert_eq!(count(&|op| matches!(op, Op::Rotary(_))), 2);
    assert_eq!(count(&|op| matches!(op, Op::Gated(_))), 1);
    let weights = graph.values.iter().filter(|it| matches!(it.source, Source::Weight(_)));
    let tables = Size::LITTLE.positions * Size::LITTLE.hidden / Size::LITTLE.heads;
    assert_eq!(weights.map(|it| it.type_.elements()).sum::<u64>(), Size::LITTLE.parameters() + tables);
    drop(file);

    let file = model(&folder.path, Use::Generation);
    let sizes = Sizes { batch: Some(1), prompt: Some(4), context: Some(8), dims: Vec::new() };
    let decoder = Decoder::of(&file, roles(&file.model, &Told::default()).unwrap(), &sizes).unwrap();
    let step = |width| {
        let graph = decoder.step(width).unwrap();
        Step {
            prepared: pipeline::prepare(&graph, &mut |_, _| {}).unwrap(),
            header: decoder.header(&graph, width).unwrap(),
        }
    };
    let machine = machine::named("cpu-1x", None).unwrap();
    let wanted = Wanted {
        machine: &machine,
        ways: vec![(Mesh::of_sizes(&[1]), None)],
        capacity: machine.usable_memory().0,
        steps: Steps::Auto,
        layout: None,
    };
    let (generation, _) = planned(&decoder.cache(), Some(step(4)), step(1), &wanted, &|_| {}).unwrap();
    let session = |plan| {
        let programs = pipeline::lower(plan, &mut |_, _| {}).unwrap();
        Session::new(programs, &file).unwrap()
    };
    let prefill = generation.prefill.as_ref().map(session);
    let prompts = vec![TOKENS[..3].to_vec()];
    let mut sequences = Sequences::new(&generation, prefill, session(&generation.decode), prompts).unwrap();
    let vocabulary = logits.len() / TOKENS.len();
    for (place, expected) in logits.chunks(vocabulary).enumerate().skip(2) {
        let found = sequences.logits().unwrap().remove(0).unwrap();
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5;
        assert!(found.iter().zip(expected).all(near), "{place}: {found:?}, expected {expected:?}");
        sequences.push(&[TOKENS.get(place + 1).copied()]);
    }
}

#[test]
fn logits_may_have_a_weight_of_their_own() {
    let folder = Folder::new("llama-head", None).unwrap();
    let size = Size { tied: false, ..Size::LITTLE };
    let path = write(Writer::small(&folder.path), size, Use::Training, 1).unwrap();
    let bindings = Bindings {
        dims: [("batch".to_owned(), 1), ("sequence".to_owned(), 6)].into(),
        ..Bindings::default()
    };
    let file = model_file::open(&path).unwrap();
    let graph = pipeline::import(&file, &bindings, &mut |_, _| {}).unwrap();
    let weights = graph.values.iter().filter(|it| matches!(it.source, Source::Weight(_)));
    let tables = size.positions * size.hidden / size.heads;
    assert_eq!(weights.map(|it| it.type_.elements()).sum::<u64>(), size.parameters() + tables);
    assert_eq!(size.parameters(), Size::LITTLE.parameters() + size.vocabulary * size.hidden);
}
