//! Both steps of a decoder fitted into one memory.
//!
//! The fastest step of a token comes first. Prompts are planned in the memory that it leaves: what both have at rest
//! in the same layouts is there once, and so is the memory of a step, for they take turns. Where that is too little, the
//! token is planned again beside as much memory as prompts need, and of all layouts of the cache the next fastest is
//! taken, until both fit, or no token fits beside what prompts need.

use autoparallel::mesh;
use cost_models::quantity;
use files::{Failure, Say};
use plan::{Cache, Generation, Plan};
use planner_ir::Layout;
use search::{Beside, Rules};

use super::planned::{Step, Wanted, plan_of};
use super::together::{fit_together, held, in_words};

/// A plan of single tokens.
#[derive(Clone)]
pub(super) struct Token<'a> {
    pub(super) plan: Plan,
    /// The layout of the cache.
    pub(super) layout: Layout,
    /// What the axes of its mesh are for, where that is limited.
    pub(super) rules: Option<&'a Rules>,
    /// How much memory of steps of prompts it was planned beside (bytes).
    pub(super) arena: u64,
    /// How often it was planned again.
    pub(super) rounds: usize,
}

/// How often a token is planned again with the cache in one layout: each time beside more memory of prompts.
const ROUNDS: usize = 8;

/// How much memory there is for the nearest plans that do not fit, where they are looked for (parts in a hundred of what
/// they are known to need).
const MORE: [u64; 4] = [100, 102, 110, 130];

/// Why a step has no plan.
pub(super) struct Refused {
    pub(super) failure: Failure,
    /// What the nearest plan needs on a device, with what is beside it, where memory is what is missing (bytes).
    pub(super) needs: Option<u64>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, needs: None }
    }
}

/// Of what was refused, that for which the least memory is missing.
#[derive(Default)]
pub(super) struct Nearest<'a> {
    refused: Option<Refused>,
    /// What both steps need (bytes), where the token was planned so.
    both: Option<(u64, Token<'a>)>,
}

impl<'a> Nearest<'a> {
    /// Takes note of a step that has no plan.
    pub(super) fn note(&mut self, refused: Refused) {
        let needs = |it: &Refused| it.needs.unwrap_or(u64::MAX);
        if self.refused.as_ref().is_none_or(|before| needs(&refused) < needs(before)) {
            self.refused = Some(refused);
        }
    }

    /// Takes note of a token beside which prompts do not fit, and of what both need (bytes).
    fn note_both(&mut self, needs: u64, token: &Token<'a>) {
        if self.both.as_ref().is_none_or(|before| needs < before.0) {
            self.both = Some((needs, token.clone()));
        }
    }

    /// Why there is no plan of a step.
    pub(super) fn failure(self) -> Failure {
        self.refused.map_or_else(
            || {
                Failure::Input(
                    "no layout of the cache is as the runtime of `--for` keeps it: expected as many sequences as data \
                     parallel devices or a multiple; another `--batch`, another `--mesh` or fewer devices would help"
                        .to_owned(),
                )
            },
            |it| it.failure,
        )
    }
}

/// The plans of both steps that fit beside each other and in which a token is fastest, from those of single tokens,
/// fastest first, and from what was refused before.
pub(super) fn fitted<'a>(
    cache: &Cache,
    (mut prefill, mut decode): (Step, Step),
    (mut tokens, mut nearest): (Vec<Token<'a>>, Nearest<'a>),
    wanted: &Wanted<'_>,
    say: &Say<'_>,
) -> Result<Generation, Failure> {
    while !tokens.is_empty() {
        let token = tokens.remove(0);
        say(format!("planning prompts on mesh {}", mesh::sizes(&token.plan.mesh)).into());
        let refused = match pair(cache, &mut prefill, &token, wanted) {
            Ok(generation) => return Ok(generation),
            Err(refused) => refused,
        };
        let needs = refused.needs;
        nearest.note(refused);
        let Some(needs) = needs else { continue };
        nearest.note_both(needs, &token);
        let arena = needs.saturating_sub(least(&token.plan)?.resident);
        if arena <= token.arena || token.rounds == ROUNDS {
            continue;
        }
        say(format!("planning a token beside {} for prompts", quantity::bytes(arena)).into());
        let token = Token { arena, rounds: token.rounds + 1, ..token };
        match again(cache, &mut decode, &token, wanted) {
            Ok(token) => {
                let place = tokens.partition_point(|it| it.plan.seconds() <= token.plan.seconds());
                tokens.insert(place, token);
            }
            Err(refused) => refused.needs.into_iter().for_each(|needs| nearest.note_both(needs, &token)),
        }
    }
    let Some((needs, token)) = &nearest.both else { return Err(nearest.failure()) };
    for part in MORE {
        let more = Wanted { capacity: needs.saturating_mul(part) / 100, ..wanted.clone() };
        let token = again(cache, &mut decode, token, &more);
        if let Ok(generation) = token.and_then(|token| pair(cache, &mut prefill, &token, &more)) {
            return Err(too_large(&generation, wanted.capacity)?);
        }
    }
    Err(nearest.failure())
}

/// A token planned again, beside as much memory of prompts as it says.
fn again<'a>(
    cache: &Cache,
    decode: &mut Step,
    token: &Token<'a>,
    wanted: &Wanted<'_>,
) -> Result<Token<'a>, Refused> {
    let on = (&token.plan.mesh, &token.layout, token.rules);
    let plan = plan_of(cache, decode, on, Beside::of_steps(token.arena), wanted)?;
    Ok(Token { plan, ..token.clone() })
}

/// The plan of prompts beside one of single tokens.
fn pair(
    cache: &Cache,
    prefill: &mut Step,
    token: &Token<'_>,
    wanted: &Wanted<'_>,
) -> Result<Generation, Refused> {
    let lower::Least { resident, arena } = least(&token.plan)?;
    let beside = Beside::of(&token.plan, resident, arena);
    let on = (&token.plan.mesh, &token.layout, token.rules);
    let prompts = plan_of(cache, prefill, on, beside.clone(), wanted)?;
    let (prompts_at_rest, capacity) = (least(&prompts)?.resident, wanted.capacity);
    let decode = token.plan.clone();
    let mut generation = Generation { cache: cache.clone(), prefill: Some(prompts), decode, capacity };
    if held(&generation)? > capacity {
        // What runs ahead of its use takes what memory there is: there is less, for the other step's is at rest.
        let Generation { prefill: Some(prompts), decode, .. } = &mut generation else {
            return Err(Failure::internal("plan", "prompts were planned").into());
        };
        let shared = beside.shared(prompts).into_iter().map(|it| it.next_multiple_of(lower::ALIGNMENT));
        let shared: u64 = shared.sum();
        leave(prompts, resident.saturating_sub(shared))?;
        leave(decode, prompts_at_rest.saturating_sub(shared))?;
    }
    fit_together(&generation)?;
    Ok(generation)
}

/// Leaves so much of the memory of a plan to the other step (bytes).
fn leave(plan: &mut Plan, bytes: u64) -> Result<(), Failure> {
    plan.capacity = plan.capacity.saturating_sub(bytes);
    plan.memory = lower::memory(plan).map_err(|error| Failure::internal("lower", error))?;
    plan::check(plan).map_err(|error| Failure::internal("plan", error))
}

/// What a device holds of a plan if nothing is exchanged ahead of its use.
fn least(plan: &Plan) -> Result<lower::Least, Failure> {
    lower::least(plan).map_err(|error| Failure::internal("lower", error))
}

/// Says of the nearest plans by how much they do not fit (bytes).
fn too_large(generation: &Generation, capacity: u64) -> Result<Failure, Failure> {
    let generation = Generation { capacity, ..generation.clone() };
    Ok(Failure::Input(in_words(&generation, "the nearest plans that were found hold")?))
}
