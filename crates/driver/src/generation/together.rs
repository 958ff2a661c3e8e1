//! What a device holds of both steps of a decoder.

use cost_models::quantity;
use files::Failure;
use lower::{ALIGNMENT, Kind, Program};
use plan::Generation;

use crate::pipeline;

/// What a device holds of both steps (bytes): what is alike at rest is there once, and so are inputs and the memory of a
/// step, for they take turns.
pub fn held(generation: &Generation) -> Result<u64, Failure> {
    let (tokens, prompts) = programs(generation)?;
    Ok(of(&tokens, prompts.as_ref()))
}

/// Refuses plans of prompts and of single tokens that do not fit beside each other: ranks hold both. What a
/// device holds of them ([`held`]).
pub fn fit_together(generation: &Generation) -> Result<u64, Failure> {
    let together = held(generation)?;
    if together <= generation.capacity {
        return Ok(together);
    }
    Err(too_large(generation, "a device holds"))
}

/// A rank's programs: all ranks have the same instructions over buffers of the same sizes.
fn programs(generation: &Generation) -> Result<(Program, Option<Program>), Failure> {
    let prompts = generation.prefill.as_ref().map(pipeline::alike).transpose()?;
    Ok((pipeline::alike(&generation.decode)?.program, prompts.map(|it| it.program)))
}

fn of(tokens: &Program, prompts: Option<&Program>) -> u64 {
    prompts.map_or(tokens.resident + tokens.arena, |prompts| run::held_beside(tokens, prompts))
}

/// Why both steps do not fit: by how much, what takes most, and what would help.
pub(super) fn too_large(generation: &Generation, hold: &str) -> Failure {
    let (tokens, prompts) = match programs(generation) {
        Ok(programs) => programs,
        Err(failure) => return failure,
    };
    let together = of(&tokens, prompts.as_ref());
    let missing = together.saturating_sub(generation.capacity);
    let inputs = |program: &Program| -> u64 {
        let inputs = program.storages.iter().filter(|it| it.kind == Kind::Input);
        inputs.map(|it| it.bytes.next_multiple_of(ALIGNMENT)).sum()
    };
    let arena = prompts.as_ref().map_or(0, |it| it.arena);
    let found = inputs(&tokens).max(prompts.as_ref().map_or(0, inputs));
    let weights = together - tokens.arena.max(arena) - found;
    let fewer = "a smaller `--batch` or `--context`, more devices or devices with more memory would help";
    let help = match missing <= arena.saturating_sub(tokens.arena) {
        true => format!("fewer tokens of prompts at once (`--prompt`), {fewer}"),
        false => fewer.to_owned(),
    };
    let [together, weights, found, arena, token, capacity] =
        [together, weights, found, arena, tokens.arena, generation.capacity].map(quantity::bytes);
    let left = match generation.cache.slot {
        Some(_) => "the cache as prompts leave it",
        None => "the cache as they leave it",
    };
    let message = format!(
        "the steps of prompts and of single tokens do not fit beside each other: {hold} {together} on a device, which \
         may hold {capacity}: {weights} of weights, {found} of inputs, the cache among them, and the memory of the \
         steps, which take turns, {arena} of prompts and {token} of a token, {left} among it; \
         {missing} bytes are missing; {help}"
    );
    // Other plans may hold less.
    Failure::NoRoom { needs: None, message }
}
