//! Steps of one token that write their entry in place against the model's own, which move the cache up.

use std::collections::BTreeMap;

use driver::generation::bound::{Decoder, Wanted as Sizes};
use driver::generation::roles::{Told, roles};
use driver::generation::turned::Turned;
use driver::pipeline;
use files::model_file::{self, ModelFile};
use kernels::Array;
use lower::Strided;
use models::Use;
use plan::{Cache, Form, Growth};
use planner_ir::{Graph, Op, Scatter, Source, Type};
use rayon::prelude::*;
use run::{Sources, Stored};

use super::cases::{ALL, open};
use crate::models::{cases, weights};

type Arrays = BTreeMap<String, Array>;

/// How many places there are, and how many tokens come one after another: all slots are taken twice.
const PLACES: u64 = 6;
const TOKENS: u64 = 14;

/// How many sequences there are: the second one begins two tokens later.
const SEQUENCES: u64 = 2;

/// How far numbers may be from each other, in parts of the largest.
const TOLERANCE: f64 = 1e-4;

fn decoder(file: &ModelFile) -> Decoder<'_> {
    let sizes = Sizes { batch: Some(SEQUENCES), prompt: Some(1), context: Some(PLACES), dims: Vec::new() };
    Decoder::of(file, roles(&file.model, &Told::default()).unwrap(), &sizes).unwrap()
}

/// The type of an input, if the graph has it.
fn type_of<'a>(graph: &'a Graph, name: &str) -> Option<&'a Type> {
    let is_it = |it: &Source| matches!(it, Source::Input(input) if input == name);
    graph.values.iter().find(|it| is_it(&it.source)).map(|it| &it.type_)
}

/// Integers as an input has them.
fn integers(graph: &Graph, name: &str, numbers: &[i64]) -> Option<(String, Array)> {
    let type_ = type_of(graph, name)?;
    let array = Array::of(type_.shape.clone(), numbers).unwrap();
    let array = kernels::evaluate(&Op::Cast(type_.dtype), &[&array]).unwrap().remove(0);
    Some((name.to_owned(), array))
}

/// What the steps of both kinds are given besides the cache.
fn given(cache: &Cache, graph: &Graph, token: u64) -> Arrays {
    let number = |it: u64| i64::try_from(it).unwrap();
    // How many tokens of a sequence there are with this one: one that has not begun has the last alone.
    let held = |sequence: u64| (token + 1).saturating_sub(2 * sequence).max(1);
    let each = |of: &dyn Fn(u64) -> i64| (0..SEQUENCES).map(of).collect::<Vec<_>>();
    let tokens = each(&|sequence| number((7 * token + 5 * sequence + token * token) % 19));
    let positions = each(&|sequence| number(held(sequence) - 1));
    let hides = |sequence: u64| PLACES - held(sequence).min(PLACES);
    let mask = (0..SEQUENCES).flat_map(|it| (0..PLACES).map(move |place| i64::from(place >= hides(it))));
    let mut given = Arrays::new();
    given.extend(integers(graph, &cache.tokens, &tokens));
    given.extend(cache.mask.as_ref().and_then(|it| integers(graph, it, &mask.collect::<Vec<_>>())));
    given.extend(cache.positions.as_ref().and_then(|it| integers(graph, &it.name, &positions)));
    given
}

/// Weights that are made, and what a model has itself.
struct Made<'a>(Arrays, &'a ModelFile);

impl Stored for Made<'_> {
    fn type_of(&self, name: &str) -> Result<Type, String> {
        self.0.type_of(name).or_else(|_| self.1.type_of(name))
    }

    fn read(&self, name: &str, elements: &Strided, to: &mut [u8]) -> Result<(), String> {
        if self.0.contains_key(name) {
            self.0.read(name, elements, to)
        } else {
            self.1.read(name, elements, to)
        }
    }
}

/// A cache of nothing.
fn empty(cache: &Cache, graph: &Graph) -> Arrays {
    let zeros =
        |it: &plan::Kept| Some((it.past.clone(), Array::zeros(type_of(graph, &it.past)?.clone()).unwrap()));
    cache.kept.iter().filter_map(zeros).collect()
}

/// What the next step finds of what one has left: the last places, as many as it finds.
fn found(cache: &Cache, graph: &Graph, left: &Arrays) -> Arrays {
    let next = |it: &plan::Kept| {
        let (array, type_) = (&left[&it.present], type_of(graph, &it.past)?);
        let mut starts = vec![0; type_.rank()];
        if it.form == Form::Entries {
            starts[cache.dim] = array.shape()[cache.dim] - type_.shape[cache.dim];
        }
        let (steps, sizes) = (vec![1; type_.rank()], type_.shape.clone());
        let taken = kernels::evaluate(&Op::Slice { starts, steps, sizes }, &[array]).unwrap().remove(0);
        Some((it.past.clone(), taken))
    };
    cache.kept.iter().filter_map(next).collect()
}

fn step(graph: &Graph, given: &Arrays, past: &Arrays, weights: &dyn Stored) -> Arrays {
    let inputs: Arrays = given.clone().into_iter().chain(past.clone()).collect();
    run::reference(graph, Sources { inputs: &inputs, weights }).unwrap()
}

#[track_caller]
fn near(what: &str, found: &Arrays, expected: &Arrays) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, expected) in expected {
        let (found, expected) = (found[name].to_floats().unwrap(), expected.to_floats().unwrap());
        assert_eq!(found.len(), expected.len(), "{what}: {name}");
        let most = expected.iter().fold(1e-6, |most: f64, it| most.max(it.abs()));
        assert!(most.is_finite(), "{what}: {name}");
        for (place, (a, b)) in found.iter().zip(&expected).enumerate() {
            assert!((a - b).abs() <= TOLERANCE * most, "{what}: {name}, {place} is {a}, expected {b}");
        }
    }
}

/// Tokens one after another by the step that writes, as it is made and in named operations, and by the model's own.
fn same(name: &str, file: &ModelFile, weights: &dyn Stored) {
    let decoder = decoder(file);
    assert_eq!(decoder.moves_up(), None, "{name}");
    let (own, written, cache) =
        (decoder.step_of_model(1).unwrap(), decoder.step(1).unwrap(), decoder.cache());
    let slot = cache.slot.as_ref().unwrap();
    let writes = |it: &Op| matches!(it, Op::ScatterElements { scatter: Scatter::Write, .. });
    let raised = pipeline::prepare(&written, &mut |_, _| {}).unwrap().graph;
    for graph in [&written, &raised] {
        planner_ir::verify(graph).unwrap();
        let count = graph.nodes.iter().filter(|it| writes(&it.op)).count();
        assert_eq!(count, cache.entries().count(), "{name}");
    }
    let (mut past, mut turned) = (empty(&cache, &own), empty(&cache, &written));
    for token in 0..TOKENS {
        let inputs = given(&cache, &own, token);
        let expected = step(&own, &inputs, &past, weights);
        past = found(&cache, &own, &expected);
        let place = token % PLACES;
        let mut inputs = given(&cache, &written, token);
        inputs.extend(integers(&written, slot, &[i64::try_from(place).unwrap()]));
        let left = step(&written, &inputs, &turned, weights);
        let in_order = |left: &Arrays| Turned { cache: &cache, slot: place }.outputs(left).unwrap();
        near(&format!("{name}, token {token}"), &in_order(&left), &expected);
        let named = step(&raised, &inputs, &turned, weights);
        near(&format!("{name}, token {token}, in named operations"), &in_order(&named), &expected);
        turned = found(&cache, &written, &left);
    }
}

#[test]
fn exported_decoders_write_in_place_what_they_would_move_up() {
    let decoders: Vec<_> = ALL.iter().filter_map(|case| Some((case.name, open(case)?))).collect();
    let tried = decoders.par_iter().filter(|(name, file)| {
        let told = roles(&file.model, &Told::default()).unwrap();
        // Of others the places are written already.
        let is_behind = name.contains("-past-") && told.kept.iter().all(|it| it.form == Form::Entries);
        is_behind.then(|| same(name, file, file)).is_some()
    });
    assert!(tried.count() >= 2);
}

#[test]
fn configurations_write_in_place_what_they_would_move_up() {
    let folders = cases();
    let tried = folders.par_iter().map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let config = path.join("config.json");
        let file = model_file::open_for(&config, Use::Decode).unwrap();
        if name == "mamba2" {
            // Of states alone there is nothing to write.
            let decoder = decoder(&file);
            assert_eq!((decoder.cache().slot, decoder.moves_up()), (None, None));
            assert_eq!(decoder.cache().growth, Growth::Behind);
            return 0;
        }
        let weight = |(name, shape, bytes): (String, Vec<u64>, Vec<u8>)| {
            (name, Array::from_bytes(Type::new(planner_ir::DType::F32, shape), &bytes).unwrap())
        };
        let weights: Arrays = weights(&config).into_iter().map(weight).collect();
        same(name, &file, &Made(weights, &file));
        1
    });
    assert!(tried.sum::<usize>() > 20);
}

/// In full size too: their graphs have no weights.
#[test]
fn public_configurations_write_in_place() {
    let folder = crate::tidy::root().join("tests/configs");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    let count = files.par_iter().filter(|path| {
        let file = model_file::open_for(path, Use::Decode).unwrap();
        let decoder = decoder(&file);
        assert_eq!(decoder.moves_up(), None, "{}", path.display());
        decoder.cache().slot.is_some()
    });
    // All but Mamba-2.
    assert_eq!(count.count(), files.len() - 1);
}
