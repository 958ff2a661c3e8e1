//! Both steps of a decoder fitted into one memory.
//!
//! The fastest step of a token comes first. Prompts are planned in the memory that it leaves: what both have at rest
//! in the same layouts is there once, and so is the memory of a step, for they take turns. Where that is too little, the
//! token is planned again beside as much memory as prompts need, and of all layouts of the cache the next fastest is
//! taken, until both fit, or no token fits beside what prompts need.

use autoparallel::mesh;
use cost_models::quantity;
use files::{Failure, Say};
use lower::{ALIGNMENT, Least};
use plan::{Cache, Generation, Plan};
use planner_ir::{Graph, Layout, Mesh, Source, ValueId};
use search::{Beside, Live, Pinned, Rules};

use super::together::{fit_together, held, too_large};
use super::wanted::{Step, Wanted, chosen, layouts, own, parts};
use crate::pipeline::{self, Target};
use crate::ways::{Way, keeps};

/// Of what is missing beside a token, how many parts in a hundred are taken from it when it is planned again, the first
/// time and so on: what prompts need depends on how the token has its weights, so that less may be enough.
const PARTS: [u64; 6] = [25, 25, 50, 100, 100, 100];

/// How often a token is planned again, in all layouts of the cache together.
const AGAIN: usize = 64;

/// How much memory there is for the nearest plans that do not fit, where they are looked for (parts in a hundred of what
/// they are known to need).
const MORE: [u64; 8] = [100, 102, 105, 110, 120, 140, 170, 200];

/// How many tokens are looked at for these.
const NEAREST: usize = 8;

/// What part of the memory plans hold that have little left.
const NEARLY: u64 = 90;

/// A plan of single tokens.
#[derive(Clone)]
pub(super) struct Token<'a> {
    pub(super) plan: Plan,
    /// The layout of the cache.
    pub(super) layout: Layout,
    /// What the axes of its mesh are for, where that is limited.
    rules: Option<&'a Rules>,
    /// How much memory of steps of prompts it was planned beside (bytes).
    arena: u64,
    /// How often it was planned again.
    rounds: usize,
}

/// Both steps, and what is known of those that do not fit.
pub(super) struct Fitting<'a> {
    cache: &'a Cache,
    prefill: Option<Step>,
    decode: Step,
    wanted: &'a Wanted<'a>,
    say: &'a Say<'a>,
    /// Of steps that have no plan, that for which the least memory is missing.
    refused: Option<Failure>,
    /// How often a token was planned again.
    again: usize,
    /// Tokens beside which prompts do not fit, and what both need (bytes): those for which the least is missing.
    nearest: Vec<(u64, Token<'a>)>,
}

impl<'a> Fitting<'a> {
    pub(super) fn new(
        cache: &'a Cache,
        (prefill, decode): (Option<Step>, Step),
        wanted: &'a Wanted<'a>,
        say: &'a Say<'a>,
    ) -> Self {
        Self { cache, prefill, decode, wanted, say, refused: None, again: 0, nearest: Vec::new() }
    }

    /// Steps of one token in each layout of the cache, as fast as they are alone; the fastest first.
    pub(super) fn tokens(&mut self, ways: &'a [Way]) -> Result<Vec<Token<'a>>, Failure> {
        let mut tokens = Vec::new();
        for (mesh, rules) in ways {
            let rules = rules.as_ref();
            let layouts = keeps(rules, mesh, layouts(self.cache, &self.decode.prepared.graph, mesh));
            for layout in chosen(self.wanted, layouts, mesh)? {
                let (sizes, kept) = (mesh::sizes(mesh), layout.display(mesh).to_string());
                (self.say)(format!("planning a token on mesh {sizes}, the cache {kept}").into());
                let on = (mesh, &layout, rules);
                match plan_of(self.cache, &mut self.decode, on, Beside::default(), self.wanted) {
                    Ok(plan) => tokens.push(Token { plan, layout, rules, arena: 0, rounds: 0 }),
                    Err(failure @ Failure::Usage(_)) => return Err(failure),
                    Err(refused) => self.note(refused.at("steps of single tokens alone")),
                }
            }
        }
        tokens.sort_by(|a, b| a.plan.seconds().total_cmp(&b.plan.seconds()));
        Ok(tokens)
    }

    /// The plans that fit beside each other of which a token is fastest, if one takes less than `below` (seconds).
    pub(super) fn fastest(
        &mut self,
        mut tokens: Vec<Token<'a>>,
        below: f64,
    ) -> Result<Option<Generation>, Failure> {
        while tokens.first().is_some_and(|it| it.plan.seconds() < below) {
            let token = tokens.remove(0);
            let Some(prefill) = &mut self.prefill else {
                let (cache, capacity) = (self.cache.clone(), self.wanted.capacity);
                return Ok(Some(Generation { cache, prefill: None, decode: token.plan, capacity }));
            };
            (self.say)(format!("planning prompts on mesh {}", mesh::sizes(&token.plan.mesh)).into());
            match pair(self.cache, prefill, &token, self.wanted) {
                Ok(generation) => return Ok(Some(generation)),
                Err(refused) => {
                    if let Some(token) = self.again(&token, refused)? {
                        let place = tokens.partition_point(|it| it.plan.seconds() <= token.plan.seconds());
                        tokens.insert(place, token);
                    }
                }
            }
        }
        Ok(None)
    }

    /// A token beside which prompts do not fit, planned again beside what they need.
    fn again(&mut self, token: &Token<'a>, refused: Failure) -> Result<Option<Token<'a>>, Failure> {
        let needs = refused.needs();
        self.note(refused.at("steps of prompts beside those of single tokens"));
        let Some(needs) = needs else { return Ok(None) };
        self.note_both(needs, token);
        let Some(part) = PARTS.get(token.rounds).filter(|_| self.again < AGAIN) else { return Ok(None) };
        self.again += 1;
        let missing = needs.saturating_sub(self.wanted.capacity);
        let less = (missing.saturating_mul(*part) / 100).max(1);
        let left = self.wanted.capacity.saturating_sub(least(&token.plan)?.resident);
        let arena = token.arena.max(left).saturating_add(less);
        (self.say)(format!("planning a token beside {} for prompts", quantity::bytes(arena)).into());
        let token = Token { arena, rounds: token.rounds + 1, ..token.clone() };
        match planned_again(self.cache, &mut self.decode, &token, self.wanted) {
            Ok(token) => Ok(Some(token)),
            Err(refused) => {
                // Prompts need the rest too.
                let token = Token { arena: arena.saturating_add(missing - less.min(missing)), ..token };
                let needs = refused.needs().map(|needs| needs.saturating_add(token.arena - arena));
                needs.into_iter().for_each(|needs| self.note_both(needs, &token));
                Ok(None)
            }
        }
    }

    /// Whether plans hold nearly all that there is, or some were refused.
    pub(super) fn is_tight(&self, found: Option<&Generation>) -> Result<bool, Failure> {
        let Some(generation) = found.filter(|_| self.refused.is_none()) else { return Ok(true) };
        Ok(held(generation)? > self.wanted.capacity / 100 * NEARLY)
    }

    fn note(&mut self, refused: Failure) {
        let needs = |it: &Failure| it.needs().unwrap_or(u64::MAX);
        if self.refused.as_ref().is_none_or(|before| needs(&refused) < needs(before)) {
            self.refused = Some(refused);
        }
    }

    fn note_both(&mut self, needs: u64, token: &Token<'a>) {
        // One of each layout of the cache.
        let same = |it: &Token<'_>| it.layout == token.layout && it.plan.mesh == token.plan.mesh;
        match self.nearest.iter().position(|it| same(&it.1)) {
            Some(before) if self.nearest[before].0 <= needs => return,
            Some(before) => drop(self.nearest.remove(before)),
            None => {}
        }
        let place = self.nearest.partition_point(|it| it.0 <= needs);
        self.nearest.insert(place, (needs, token.clone()));
        self.nearest.truncate(NEAREST);
    }

    /// Where nothing was found to fit, the nearest plans, which are looked for with more memory, if they fit after all; or
    /// what they hold.
    pub(super) fn nearest(mut self) -> Result<Generation, Failure> {
        if let Some(prefill) = &mut self.prefill {
            for (part, (needs, token)) in
                MORE.into_iter().flat_map(|it| self.nearest.iter().map(move |of| (it, of)))
            {
                let more = Wanted { capacity: needs / 100 * part + part, ..self.wanted.clone() };
                let token = planned_again(self.cache, &mut self.decode, token, &more);
                let both = token.and_then(|token| pair(self.cache, prefill, &token, &more));
                if let Ok(generation) = both {
                    let generation = with(generation, self.wanted.capacity)?;
                    return match held(&generation)? <= generation.capacity {
                        true => Ok(generation),
                        false => Err(too_large(&generation, "the nearest plans that were found hold")),
                    };
                }
            }
        }
        Err(self.refused.unwrap_or_else(none))
    }
}

/// What is said where no layout of the cache was tried.
fn none() -> Failure {
    Failure::Input(
        "no layout of the cache is as the runtime of `--for` keeps it: expected as many sequences as data \
         parallel devices or a multiple; another `--batch`, another `--mesh` or fewer devices would help"
            .to_owned(),
    )
}

/// The plan of a step, of which what is beside it takes its part of the memory.
fn plan_of(
    cache: &Cache,
    step: &mut Step,
    (mesh, layout, rules): (&Mesh, &Layout, Option<&Rules>),
    beside: Beside,
    wanted: &Wanted<'_>,
) -> Result<Plan, Failure> {
    let layouts = parts(cache, &step.prepared.graph);
    let layouts = layouts
        .into_iter()
        .filter_map(|(name, form, type_)| Some((name.to_owned(), own(layout, form, mesh, type_)?)));
    step.prepared.pinned = Some(Pinned { layouts: layouts.collect(), beside });
    let &Wanted { machine, capacity, steps, .. } = wanted;
    let target = Target { machine, mesh, capacity, steps, live: Live::ONE, rules };
    let prices = pipeline::prices(&target)?;
    let plan = pipeline::planned(&step.prepared, &step.header, &target, &prices);
    let plan = plan.map_err(|error| pipeline::refusal(&target, &error))?;
    plan::check(&plan).map_err(|error| Failure::internal("plan", error))?;
    Ok(plan)
}

/// A token planned again, beside as much memory of prompts as it says.
fn planned_again<'a>(
    cache: &Cache,
    decode: &mut Step,
    token: &Token<'a>,
    wanted: &Wanted<'_>,
) -> Result<Token<'a>, Failure> {
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
) -> Result<Generation, Failure> {
    let Least { resident, arena } = least(&token.plan)?;
    // Of inputs each step has its own, in one place; of those of prompts the cache is known.
    let cached = found(cache, &prefill.prepared.graph, &token.layout, &token.plan.mesh);
    let resident = resident - inputs(&token.plan).min(cached);
    let beside = Beside::of(&token.plan, resident, arena);
    let mut planned = |rules: Option<&Rules>| {
        plan_of(cache, prefill, (&token.plan.mesh, &token.layout, rules), beside.clone(), wanted)
    };
    // Where nothing is limited, that is tried first.
    let is_limited = wanted.ways.iter().any(|(_, rules)| rules.is_some());
    let free = if is_limited { None } else { planned(None).ok() };
    let mut prompts = free.map_or_else(|| planned(token.rules), Ok)?;
    let mut decode = token.plan.clone();
    let both = |prompts: &Plan, decode: &Plan| Generation {
        cache: cache.clone(),
        prefill: Some(prompts.clone()),
        decode: decode.clone(),
        capacity: wanted.capacity,
    };
    if held(&both(&prompts, &decode))? > wanted.capacity {
        // What runs ahead of its use takes what memory there is: of that, what only the other step has at rest is none.
        let shared: u64 = beside.shared(&prompts).into_iter().map(|it| it.next_multiple_of(ALIGNMENT)).sum();
        let at_rest = least(&prompts)?.resident.saturating_sub(inputs(&token.plan).min(cached));
        leave(&mut prompts, resident.saturating_sub(shared))?;
        leave(&mut decode, at_rest.saturating_sub(shared))?;
    }
    let generation = both(&prompts, &decode);
    fit_together(&generation)?;
    Ok(generation)
}

/// The same in less memory (bytes), of which each of the plans takes what it did of more.
fn with(mut generation: Generation, capacity: u64) -> Result<Generation, Failure> {
    let less = generation.capacity.saturating_sub(capacity);
    generation.capacity = capacity;
    if held(&generation)? <= capacity {
        let Generation { prefill, decode, .. } = &mut generation;
        prefill.iter_mut().chain([decode]).try_for_each(|plan| leave(plan, less))?;
    }
    Ok(generation)
}

/// What the cache takes of a device as a step finds it in a layout (bytes).
fn found(cache: &Cache, graph: &Graph, layout: &Layout, mesh: &Mesh) -> u64 {
    let past = |name: &str| cache.kept.iter().any(|it| it.past == name);
    let parts = parts(cache, graph).into_iter().filter(|it| past(it.0));
    let bytes = |(_, form, type_)| Some(own(layout, form, mesh, type_)?.local_bytes(type_));
    parts.filter_map(bytes).map(|it| it.next_multiple_of(ALIGNMENT)).sum()
}

/// What the inputs of a plan take of a device (bytes).
fn inputs(plan: &Plan) -> u64 {
    let is_input = |value: &ValueId| matches!(plan.graph.value(*value).source, Source::Input(_));
    let bytes = |value: ValueId| plan.layouts[value.0].local_bytes(plan.graph.type_of(value));
    let inputs = plan.graph.value_ids().filter(is_input).map(bytes);
    inputs.map(|it| it.next_multiple_of(ALIGNMENT)).sum()
}

/// Leaves so much of the memory of a plan to the other step (bytes).
fn leave(plan: &mut Plan, bytes: u64) -> Result<(), Failure> {
    plan.capacity = plan.capacity.saturating_sub(bytes);
    plan.memory = lower::memory(plan).map_err(|error| Failure::internal("lower", error))?;
    plan::check(plan).map_err(|error| Failure::internal("plan", error))
}

/// What a device holds of a plan if nothing is exchanged ahead of its use.
fn least(plan: &Plan) -> Result<Least, Failure> {
    lower::least(plan).map_err(|error| Failure::internal("lower", error))
}
