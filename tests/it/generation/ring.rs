//! Steps of one token that write their entry in place against the model's own, which move the cache up.

use std::collections::BTreeMap;

use driver::generation::bound::{Decoder, Wanted as Sizes};
use driver::generation::roles::{Told, roles};
use driver::generation::turned::Turned;
use driver::pipeline;
use files::model_file::{self, ModelFile};
use kernels::Array;
use models::Use;
use plan::{Cache, Form, Growth};
use planner_ir::{Graph, Op, Scatter, Source, Type};
use rayon::prelude::*;
use run::{Sources, Stored};

use super::cases::{ALL, open};
use super::made::Made;
use crate::models::cases;

type Arrays = BTreeMap<String, Array>;

/// How many places there are, and how many tokens come one after another: all slots are taken twice.
const PLACES: u64 = 6;
const TOKENS: u64 = 14;

/// How many tokens of prompts there are before, a step's each time.
const PROMPTS: [u64; 2] = [3, 3];

/// How many sequences there are: the second one begins two tokens later.
const SEQUENCES: u64 = 2;

/// How far numbers may be from each other, in parts of the largest.
const TOLERANCE: f64 = 1e-4;

fn decoder(file: &ModelFile, prompt: u64) -> Decoder<'_> {
    let sizes =
        Sizes { batch: Some(SEQUENCES), prompt: Some(prompt), context: Some(PLACES), dims: Vec::new() };
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

/// What the steps of both kinds are given besides the cache, of so many tokens from one on.
fn given(cache: &Cache, graph: &Graph, first: u64, width: u64) -> Arrays {
    let number = |it: u64| i64::try_from(it).unwrap();
    // How many tokens of a sequence there are with one: one that has not begun has the last alone.
    let held = |sequence: u64, token: u64| (token + 1).saturating_sub(2 * sequence).max(1);
    let each = |of: &dyn Fn(u64, u64) -> i64| {
        let of_sequence = |sequence| (first..first + width).map(move |token| of(sequence, token));
        (0..SEQUENCES).flat_map(of_sequence).collect::<Vec<_>>()
    };
    let tokens = each(&|sequence, token| number((7 * token + 5 * sequence + token * token) % 19));
    let positions = each(&|sequence, token| number(held(sequence, token) - 1));
    let hides = |sequence: u64| PLACES - held(sequence, first + width - 1).min(PLACES);
    let mask = (0..SEQUENCES).flat_map(|it| (0..PLACES).map(move |place| i64::from(place >= hides(it))));
    let mut given = Arrays::new();
    given.extend(integers(graph, &cache.tokens, &tokens));
    given.extend(cache.mask.as_ref().and_then(|it| integers(graph, it, &mask.collect::<Vec<_>>())));
    given.extend(cache.positions.as_ref().and_then(|it| integers(graph, &it.name, &positions)));
    given
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

/// Tokens by the steps of a decoder, as they are made and in named operations, and by the model's own: one after another,
/// perhaps after prompts. Which windows its parts have.
fn same(name: &str, file: &ModelFile, weights: &dyn Stored, prompts: &[u64]) -> Vec<Option<u64>> {
    let decoder = decoder(file, prompts.first().copied().unwrap_or(1));
    assert_eq!(decoder.moves_up(), None, "{name}");
    let cache = decoder.cache();
    let slot = cache.slot.as_ref().unwrap();
    let made = |width: u64| {
        let planned = decoder.step(width).unwrap();
        let raised = pipeline::prepare(&planned, &mut |_, _| {}).unwrap().graph;
        [&planned, &raised].into_iter().for_each(|it| planner_ir::verify(it).unwrap());
        (decoder.step_of_model(width).unwrap(), planned, raised)
    };
    let (one, several) = (made(1), decoder.prompt().map(made));
    let writes = |it: &Op| matches!(it, Op::ScatterElements { scatter: Scatter::Write, .. });
    for graph in [&one.1, &one.2] {
        let count = graph.nodes.iter().filter(|it| writes(&it.op)).count();
        assert_eq!(count, cache.entries().count(), "{name}");
    }
    let mut left: Option<[Arrays; 2]> = None;
    let (mut first, mut singles) = (0, 0);
    for width in prompts.iter().copied().chain([1].repeat(usize::try_from(TOKENS).unwrap())) {
        let (own, planned, raised) = several.as_ref().filter(|_| width > 1).unwrap_or(&one);
        let [past, turned] = match &left {
            Some([own_left, planned_left]) => {
                [found(&cache, own, own_left), found(&cache, planned, planned_left)]
            }
            None => [empty(&cache, own), empty(&cache, planned)],
        };
        let place = singles % cache.period();
        let expected = step(own, &given(&cache, own, first, width), &past, weights);
        let mut inputs = given(&cache, planned, first, width);
        if width == 1 {
            inputs.extend(integers(planned, slot, &[i64::try_from(place).unwrap()]));
            singles += 1;
        }
        let way = Turned { cache: &cache, width, slot: place };
        let expected_left = way.left(&expected).unwrap();
        let of_planned = step(planned, &inputs, &turned, weights);
        near(&format!("{name}, token {first}"), &way.outputs(&of_planned).unwrap(), &expected_left);
        let named = way.outputs(&step(raised, &inputs, &turned, weights)).unwrap();
        near(&format!("{name}, token {first}, in named operations"), &named, &expected_left);
        left = Some([expected, of_planned]);
        first += width;
    }
    cache.entries().map(|it| it.window).collect()
}

#[test]
fn exported_decoders_write_in_place_what_they_would_move_up() {
    let decoders: Vec<_> = ALL.iter().filter_map(|case| Some((case.name, open(case)?))).collect();
    let tried = decoders.par_iter().filter(|(name, file)| {
        let told = roles(&file.model, &Told::default()).unwrap();
        // Of others the places are written already.
        let is_behind = name.contains("-past-") && told.kept.iter().all(|it| it.form == Form::Entries);
        is_behind.then(|| [&[], &PROMPTS[..]].map(|it| same(name, file, file, it))).is_some()
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
            let decoder = decoder(&file, 1);
            assert_eq!((decoder.cache().slot, decoder.moves_up()), (None, None));
            assert_eq!(decoder.cache().growth, Growth::Behind);
            return (0, 0);
        }
        let made = Made::of(&config);
        let weights = made.beside(&file);
        let windows = same(name, &file, &weights, &[]);
        assert_eq!(same(name, &file, &weights, &PROMPTS), windows, "{name}");
        (1, usize::from(windows.iter().any(Option::is_some)))
    });
    let (tried, windows) = tried.reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert!(tried > 20 && windows > 4, "{tried}, {windows} of them with windows");
}

/// In full size too: their graphs have no weights.
#[test]
fn public_configurations_write_in_place() {
    let folder = crate::tidy::root().join("tests/configs");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    let count = files.par_iter().filter(|path| {
        let file = model_file::open_for(path, Use::Decode).unwrap();
        let decoder = decoder(&file, 1);
        assert_eq!(decoder.moves_up(), None, "{}", path.display());
        decoder.cache().slot.is_some()
    });
    // All but Mamba-2.
    assert_eq!(count.count(), files.len() - 1);
}
