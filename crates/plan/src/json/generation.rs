//! Generation to what a file says, and back.

use super::error::ReadError;
use super::{decode, encode, file};
use crate::generation::{Cache, Form, Generation, Growth, Kept, Positions};

pub(super) fn body(generation: &Generation) -> file::GenerationBody {
    let cache = &generation.cache;
    let positions = |it: &Positions| file::Positions { name: it.name.clone(), nodes: it.nodes.clone() };
    let kept = |it: &Kept| file::Kept {
        past: it.past.clone(),
        present: it.present.clone(),
        form: match it.form {
            Form::Entries => None,
            Form::State => Some(file::Form::State),
        },
        window: it.window,
    };
    file::GenerationBody {
        cache: file::Cache {
            tokens: cache.tokens.clone(),
            mask: cache.mask.clone(),
            positions: cache.positions.as_ref().map(positions),
            logits: cache.logits.clone(),
            kept: cache.kept.iter().map(kept).collect(),
            dim: cache.dim,
            growth: match cache.growth {
                Growth::Behind => file::Growth::Behind,
                Growth::AtLength => file::Growth::AtLength,
                Growth::AtPosition => file::Growth::AtPosition,
            },
            capacity: cache.capacity,
            slot: cache.slot.clone(),
        },
        prefill: generation.prefill.as_ref().map(encode::body),
        decode: encode::body(&generation.decode),
        capacity: Some(generation.capacity).filter(|it| *it != generation.least_capacity()),
    }
}

pub(super) fn generation(body: &file::GenerationBody) -> Result<Generation, ReadError> {
    let cache = &body.cache;
    let growth = match cache.growth {
        file::Growth::Behind => Growth::Behind,
        file::Growth::AtLength => Growth::AtLength,
        file::Growth::AtPosition => Growth::AtPosition,
    };
    let positions = |it: &file::Positions| Positions { name: it.name.clone(), nodes: it.nodes.clone() };
    let kept = |it: &file::Kept| Kept {
        past: it.past.clone(),
        present: it.present.clone(),
        form: match it.form {
            None => Form::Entries,
            Some(file::Form::State) => Form::State,
        },
        window: it.window,
    };
    let mut generation = Generation {
        cache: Cache {
            tokens: cache.tokens.clone(),
            mask: cache.mask.clone(),
            positions: cache.positions.as_ref().map(positions),
            logits: cache.logits.clone(),
            kept: cache.kept.iter().map(kept).collect(),
            dim: cache.dim,
            growth,
            capacity: cache.capacity,
            slot: cache.slot.clone(),
        },
        prefill: body.prefill.as_ref().map(decode::plan).transpose()?,
        decode: decode::plan(&body.decode)?,
        capacity: 0,
    };
    generation.capacity = body.capacity.unwrap_or(generation.least_capacity());
    Ok(generation)
}
