//! Wrong bytes anywhere in a model are an error or another model, never a panic.

use arbtest::arbtest;
use bytes::Bytes;

use super::make::{FLOAT, bytes, floats, graph, int, integers, model, node, value};
use super::outside;
use crate::{Bindings, Dim, Model, read};

/// A small model with shape arithmetic, a dynamic part and weights.
fn written() -> Bytes {
    let graph = graph(
        vec![value("a", FLOAT, &["n", "4"])],
        vec![floats("w", &[4, 2], &[0.5; 8]), integers("z", &[1], &[0]), integers("m", &[1], &[-1])],
        vec![
            node("MatMul a w -> b"),
            node("Shape b -> s"),
            node("Gather s z -> d"),
            node("Concat d m -> t").with(int("axis", 0)),
            node("Reshape b t -> r"),
            node("NonZero r -> places"),
            node("Transpose places -> indices"),
            node("GatherND r indices -> some"),
            node("Softmax some -> p"),
            node("ScatterND r indices p -> c"),
        ],
        &["c"],
    );
    bytes(&model(graph, Vec::new()))
}

fn sizes(model: &Model) -> Bindings {
    let dims = model.symbols().into_iter().map(|unbound| (unbound.symbol, 3));
    Bindings { dims: dims.collect(), ..Bindings::default() }
}

/// Whether it is still a model.
fn survives(bytes: Vec<u8>) -> bool {
    let Ok(model) = read(bytes.into()) else { return false };
    for (name, type_) in model.weights() {
        let _ = model.weight(name);
        let _ = type_.bytes();
    }
    for input in model.inputs() {
        assert!(input.dims.iter().flatten().all(|dim| *dim != Dim::Symbol(String::new())));
    }
    model.import(&sizes(&model)).is_ok()
}

/// Mutates `bytes` for some seconds; how many mutants were models, and how many were not.
fn mutate(bytes: &[u8], milliseconds: u64) -> (usize, usize) {
    let (mut alive, mut dead) = (0, 0);
    arbtest(|u| {
        let mut mutant = bytes.to_vec();
        for _ in 0..u.int_in_range(1..=4)? {
            let at = u.choose_index(mutant.len())?;
            match u.int_in_range(0..=3)? {
                0 => mutant[at] = u.arbitrary()?,
                1 => mutant[at] ^= 1 << u.int_in_range(0..=7)?,
                2 => drop(mutant.remove(at)),
                _ => mutant.insert(at, u.arbitrary()?),
            }
        }
        if survives(mutant) {
            alive += 1
        } else {
            dead += 1
        }
        Ok(())
    })
    .budget_ms(milliseconds);
    (alive, dead)
}

#[test]
fn mutants_of_a_small_model_do_no_harm() {
    assert!(survives(written().to_vec()));
    let (alive, dead) = mutate(&written(), 1500);
    println!("{alive} mutants were imported, {dead} were not");
    assert!(alive > 0 && dead > 0);
}

#[test]
fn mutants_of_a_real_model_do_no_harm() {
    let path = outside::root().join("tests/models/bert-fill-optimum0.1-op18-ortopt/model.onnx");
    let (alive, dead) = mutate(&std::fs::read(path).unwrap(), 1500);
    println!("{alive} mutants were imported, {dead} were not");
    assert!(alive > 0 && dead > 0);
}
