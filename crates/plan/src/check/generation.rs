//! Rules of generation: roles, kept, same, capacity, and those of each step's plan.

use std::collections::BTreeSet;

use planner_ir::{DType, Source, Type, ValueId};

use super::Violations;
use crate::generation::{Cache, Form, Generation, Growth, Kept, input, output};
use crate::plan::{Assignment, Copy, Plan};

/// The names of the rules of generation, besides those of plans.
pub const GENERATION_RULES: [&str; 4] = ["roles", "kept", "same", "capacity"];

/// Whether plans of generation obey the rules: each is right, what the cache says of inputs and outputs
/// holds in both, and both hold what is kept alike.
pub fn check_generation(generation: &Generation) -> Result<(), Violations> {
    let mut found = Violations(Vec::new());
    for (name, plan) in generation.plans() {
        if let Err(Violations(of_plan)) = super::check(plan) {
            found.0.extend(of_plan.into_iter().map(|mut it| {
                it.place = format!("{name}, {}", it.place);
                it
            }));
        }
    }
    // What follows names values and their layouts.
    if found.0.is_empty() {
        for (name, plan) in generation.plans() {
            roles(name, plan, &generation.cache, &mut found);
            kept(name, plan, &generation.cache, &mut found);
            if plan.capacity > generation.capacity {
                let both = generation.capacity;
                let message = format!("it may hold {} bytes, both steps together {both}", plan.capacity);
                found.add("capacity", name, message);
            }
        }
        same(generation, &mut found);
        if let (Some(name), growth) = (&generation.cache.slot, generation.cache.growth)
            && growth != Growth::Behind
        {
            let message = format!("new entries come {}, expected behind all others", growth.name());
            found.add("roles", format!("`{name}`"), message);
        }
    }
    found.none_or(())
}

/// What a step finds and leaves besides what is kept.
fn roles(step: &str, plan: &Plan, cache: &Cache, found: &mut Violations) {
    let of_input = |name: &str| input(&plan.graph, name).map(|value| plan.graph.type_of(value).clone());
    let of_output = |name: &str| output(plan, name).map(|(value, _)| plan.graph.type_of(value).clone());
    let mut wrong = |what: &str, name: &str, type_: Option<Type>, expected: String| {
        let type_ = type_.map_or("absent".to_owned(), |it| it.to_string());
        found.add("roles", format!("{step}, `{name}`"), format!("{what} is {type_}, expected {expected}"));
    };
    let tokens = of_input(&cache.tokens);
    let (batch, width) = match &tokens {
        Some(type_) if !type_.dtype.is_float() && type_.rank() == 2 => (type_.shape[0], type_.shape[1]),
        _ => {
            return wrong("the input of tokens", &cache.tokens, tokens, "integers [batch, width]".to_owned());
        }
    };
    let one = step == "decode" && width != 1;
    if one || width > cache.capacity {
        let expected = if one { "a width of 1".to_owned() } else { format!("at most {}", cache.capacity) };
        wrong("the input of tokens", &cache.tokens, tokens, expected);
    }
    if let Some(name) = &cache.mask {
        let type_ = of_input(name);
        let places = match cache.growth {
            // The first tokens are all that there is.
            Growth::AtLength if step == "prefill" => width,
            _ => cache.capacity,
        };
        if type_.as_ref().is_some_and(|it| it.shape != [batch, places]) {
            wrong("the mask", name, type_, format!("[{batch}, {places}]"));
        }
    }
    if let Some(positions) = &cache.positions {
        let type_ = of_input(&positions.name);
        let suits = |it: &Type| !it.dtype.is_float() && (it.shape == [batch, width] || it.shape == [width]);
        if type_.as_ref().is_some_and(|it| !suits(it)) {
            wrong("the input of positions", &positions.name, type_, format!("integers [{batch}, {width}]"));
        }
    }
    if let Some(name) = cache.slot.as_ref().filter(|_| step == "decode") {
        let type_ = of_input(name);
        if type_ != Some(Type::new(DType::I64, [1])) {
            wrong("the input of the slot", name, type_, "i64[1]".to_owned());
        }
    }
    let needed = match cache.growth {
        Growth::Behind | Growth::AtLength => cache.mask.as_deref(),
        Growth::AtPosition => cache.positions.as_ref().map(|it| it.name.as_str()),
    };
    let starts_whole = cache.growth == Growth::AtLength && step == "prefill";
    if needed.and_then(of_input).is_none() && !starts_whole {
        let expected = format!("one that says where new entries come {}", cache.growth.name());
        wrong("the input", needed.unwrap_or("none"), None, expected);
    }
    let logits = of_output(&cache.logits);
    let suits = |it: &Type| it.dtype.is_float() && it.rank() == 3 && it.shape[..2] == [batch, width];
    if !logits.as_ref().is_some_and(suits) {
        wrong("the output of logits", &cache.logits, logits, format!("[{batch}, {width}, vocabulary]"));
    }
    let known = known(step, cache);
    for value in &plan.graph.values {
        if let Source::Input(name) = &value.source
            && !known.contains(name.as_str())
        {
            found.add(
                "roles",
                format!("{step}, `{name}`"),
                "nobody gives this input, expected a role for it",
            );
        }
    }
}

/// The inputs that have a role.
fn known<'a>(step: &str, cache: &'a Cache) -> BTreeSet<&'a str> {
    let kept = cache.kept.iter().map(|it| it.past.as_str());
    let slot = cache.slot.iter().filter(|_| step == "decode");
    let others = cache.mask.iter().chain(cache.positions.iter().map(|it| &it.name)).chain(slot);
    kept.chain(others.map(String::as_str)).chain([cache.tokens.as_str()]).collect()
}

/// What is kept: of which types, and where new entries come.
fn kept(step: &str, plan: &Plan, cache: &Cache, found: &mut Violations) {
    let graph = &plan.graph;
    let Some(tokens) = input(graph, &cache.tokens).map(|it| graph.type_of(it)) else { return };
    let width = tokens.shape.get(1).copied().unwrap_or(0);
    if cache.kept.is_empty() {
        found.add("kept", step, "nothing is kept, expected keys and values");
    }
    let mut names = BTreeSet::new();
    for part in &cache.kept {
        let place = format!("{step}, `{}`", part.past);
        if !names.insert(&part.past) || !names.insert(&part.present) {
            found.add("kept", &place, "it is kept twice");
        }
        let Some((present, layout)) = output(plan, &part.present) else {
            found.add("kept", &place, format!("there is no output `{}`", part.present));
            continue;
        };
        let whole = graph.type_of(present);
        if let Err(message) = seen(part, cache) {
            found.add("kept", &place, message);
            continue;
        }
        let expected = match before(part, whole, width, cache) {
            Ok(expected) => expected,
            Err(message) => {
                found.add("kept", &place, message);
                continue;
            }
        };
        if let Err(message) = placed(step, plan, part, present, cache) {
            found.add("kept", &place, message);
        }
        // Ranks take what they left of a dimension that none of them splits: of a state the last one.
        let is_whole = match part.form {
            Form::Entries => layout.dims[cache.dim].is_empty(),
            Form::State => layout.dims.last().is_some_and(Vec::is_empty),
        };
        if !is_whole {
            let what = if part.form == Form::State { "last dimension is" } else { "places are" };
            found.add("kept", &place, format!("its {what} split, {}", layout.display(&plan.mesh)));
        }
        // The first step of all may find nothing.
        let Some(past) = input(graph, &part.past) else {
            if step == "decode" {
                found.add("kept", &place, "there is no such input");
            }
            continue;
        };
        let held = &plan.layouts[past.0];
        if *graph.type_of(past) != expected {
            found.add("kept", &place, format!("it is {}, expected {expected}", graph.type_of(past)));
        } else if held != layout {
            found.add(
                "kept",
                &place,
                format!("it is found {} and left {}", held.display(&plan.mesh), layout.display(&plan.mesh)),
            );
        }
    }
}

/// Whether a part that is written where it is found stays there, and one of which a slot is told is written so.
fn placed(step: &str, plan: &Plan, part: &Kept, present: ValueId, cache: &Cache) -> Result<(), String> {
    let graph = &plan.graph;
    let maker = match graph.value(present).source {
        Source::Result { node, .. } => Some(node),
        _ => None,
    };
    let over = maker.and_then(|node| Some((node, graph.written(node)?)));
    let Some((node, past)) = over else {
        let is_told = cache.slot.is_some() && step == "decode" && part.form == Form::Entries;
        return if is_told { Err("it is not written at the slot".to_owned()) } else { Ok(()) };
    };
    if step != "decode" {
        return Err("it is written where it is found, expected single tokens alone to be".to_owned());
    }
    if input(graph, &part.past) != Some(past) {
        return Err("it is written over another part".to_owned());
    }
    let (operand, assignment) = (graph.node(node).op.written(), plan.assignments.get(node.0));
    let stays = matches!((assignment, operand), (Some(Assignment::Computed { partition, operands, .. }), Some(at))
        if partition.steps == 1 && operands.get(at) == Some(&Copy::Made));
    if stays { Ok(()) } else { Err("it is written in another layout or in time steps".to_owned()) }
}

/// Whether a part may have as few places as it says.
fn seen(part: &Kept, cache: &Cache) -> Result<(), String> {
    let Some(window) = part.window else { return Ok(()) };
    if part.form == Form::State || cache.growth != Growth::Behind {
        return Err(format!(
            "it has a window of {window}, expected one of entries that come behind all others"
        ));
    }
    if !(2..cache.capacity).contains(&window) {
        let capacity = cache.capacity;
        return Err(format!("it has a window of {window}, expected 2 at least and fewer than {capacity}"));
    }
    Ok(())
}

/// Of which type a part is found that a step of so many tokens leaves so.
fn before(part: &Kept, left: &Type, width: u64, cache: &Cache) -> Result<Type, String> {
    let mut expected = left.clone();
    match (part.form, expected.shape.get_mut(cache.dim)) {
        (Form::State, _) if cache.growth == Growth::Behind => {}
        (Form::State, _) => {
            let growth = cache.growth.name();
            return Err(format!("it is a state, and new entries come {growth}, expected behind all others"));
        }
        (Form::Entries, Some(places)) if *places == cache.places(part) => {
            *places = cache.found(part, width);
        }
        (Form::Entries, _) => {
            return Err(format!("`{}` is {left}, expected {} places", part.present, cache.places(part)));
        }
    }
    Ok(expected)
}

/// What the two steps have in common.
fn same(generation: &Generation, found: &mut Violations) {
    let Generation { cache, prefill: Some(prefill), decode, .. } = generation else { return };
    let mut differs = |what: &str, same: bool| {
        if !same {
            found.add("same", "prefill and decode", format!("they differ in {what}"));
        }
    };
    differs(
        "their model file",
        (&prefill.model.path, &prefill.model.sha256) == (&decode.model.path, &decode.model.sha256),
    );
    differs("their machine", prefill.machine == decode.machine);
    differs("their mesh", prefill.mesh == decode.mesh);
    let batch = |plan: &Plan| {
        let tokens = input(&plan.graph, &cache.tokens)?;
        plan.graph.type_of(tokens).shape.first().copied()
    };
    differs("their batch", batch(prefill) == batch(decode));
    for part in &cache.kept {
        let left = |plan| output(plan, &part.present).map(|(_, layout)| layout.clone());
        differs(&format!("how they hold `{}`", part.present), left(prefill) == left(decode));
    }
}
