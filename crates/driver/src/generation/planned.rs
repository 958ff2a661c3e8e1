//! Both steps of a decoder planned, over one cache.

use autoparallel::mesh;
use cost_models::machine::Machine;
use cost_models::quantity;
use files::{Failure, Say};
use plan::{Cache, Form, Generation, ModelFile, Plan};
use planner_ir::{Graph, Layout, Mesh, Source, Type, parse_layout};
use rewrite::{Splits, Steps, plain_layouts};
use search::{Live, Pinned, Rules};

use crate::pipeline::{self, Prepared, Target};
use crate::ways::{Way, keeps};

/// A step as the search takes it, and what the plan says of its model.
pub struct Step {
    /// The program.
    pub prepared: Prepared,
    /// The model file.
    pub header: ModelFile,
}

/// What plans are made for.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The machine, all of whose devices are used.
    pub machine: &'a Machine,
    /// The meshes that are tried, and what their axes are for where another runtime runs the plan.
    pub ways: Vec<Way>,
    /// What a device can hold (bytes).
    pub capacity: u64,
    /// Whether operations may be done in time steps.
    pub steps: Steps,
    /// The layout of the cache's parts in its text form, if it is not to be chosen.
    pub layout: Option<String>,
}

/// A layout of the cache that was tried: the mesh, the layout, the time of a step of one token
/// (seconds).
pub type Tried = (Mesh, Layout, f64);

/// What each of both plans may take of a device's memory, tried one after the other where those that take more
/// do not fit beside each other (sixteenths).
const SHARES: [u64; 5] = [16, 14, 12, 10, 8];

/// Why there are no plans of both steps.
struct Refused {
    failure: Failure,
    /// Whether each fits alone.
    is_apart: bool,
}

/// The plans in which a step of one token is fastest, among all in which all parts of the cache have
/// one layout that splits no places; and the layouts that were tried. Both fit beside each other.
///
/// Prompts are planned in the layout that is best for single tokens: of these there are more.
pub fn planned(
    cache: &Cache,
    mut prefill: Option<Step>,
    mut decode: Step,
    wanted: &Wanted<'_>,
    say: &Say<'_>,
) -> Result<(Generation, Vec<Tried>), Failure> {
    let mut first = None;
    for share in SHARES {
        let each = Wanted { capacity: wanted.capacity / SHARES[0] * share, ..wanted.clone() };
        let each = if share == SHARES[0] { wanted } else { &each };
        match of_share(cache, prefill.as_mut(), &mut decode, (each, wanted.capacity), say) {
            Ok(done) => return Ok(done),
            Err(Refused { failure, is_apart: true }) => first = first.or(Some(failure)),
            Err(Refused { failure, .. }) => return Err(first.unwrap_or(failure)),
        }
    }
    Err(none(first))
}

/// The same, where each plan may take so much, and both of them together this capacity (bytes).
fn of_share(
    cache: &Cache,
    prefill: Option<&mut Step>,
    decode: &mut Step,
    (wanted, capacity): (&Wanted<'_>, u64),
    say: &Say<'_>,
) -> Result<(Generation, Vec<Tried>), Refused> {
    let fails = |failure| Refused { failure, is_apart: false };
    let mut found: Vec<(Plan, Layout, Option<&Rules>)> = Vec::new();
    let (mut refused, mut is_apart) = (None, false);
    for (mesh, rules) in &wanted.ways {
        let rules = rules.as_ref();
        let layouts = keeps(rules, mesh, layouts(cache, &decode.prepared.graph, mesh));
        for layout in chosen(wanted, layouts, mesh).map_err(fails)? {
            let kept = layout.display(mesh).to_string();
            say(format!("planning a token on mesh {}, the cache {kept}", mesh::sizes(mesh)).into());
            match plan_of(cache, decode, &layout, (mesh, rules), wanted) {
                Ok(plan) => found.push((plan, layout, rules)),
                Err(failure @ Failure::Usage(_)) => return Err(fails(failure)),
                Err(failure) => refused = Some(failure),
            }
        }
    }
    found.sort_by(|(a, ..), (b, ..)| a.seconds().total_cmp(&b.seconds()));
    let tried = found.iter().map(|(plan, layout, _)| (plan.mesh.clone(), layout.clone(), plan.seconds()));
    let tried: Vec<Tried> = tried.collect();
    let Some(prefill) = prefill else {
        let decode = found.into_iter().next().map(|(plan, ..)| plan);
        let decode = decode.ok_or_else(|| fails(none(refused)))?;
        return Ok((Generation { cache: cache.clone(), prefill: None, decode }, tried));
    };
    for (decode, layout, rules) in found {
        let mesh = decode.mesh.clone();
        say(format!("planning prompts on mesh {}", mesh::sizes(&mesh)).into());
        let prompts = match plan_of(cache, prefill, &layout, (&mesh, rules), wanted) {
            Ok(plan) => Plan { capacity, ..plan },
            Err(failure) => {
                refused = Some(failure);
                continue;
            }
        };
        let decode = Plan { capacity, ..decode };
        let generation = Generation { cache: cache.clone(), prefill: Some(prompts), decode };
        match fit_together(&generation) {
            Ok(_) => return Ok((generation, tried)),
            Err(failure) => {
                is_apart = true;
                refused = Some(failure);
            }
        }
    }
    Err(Refused { failure: none(refused), is_apart })
}

/// What a device holds of both steps (bytes): what is alike at rest is there once, and so is the memory of a
/// step, for they take turns.
pub fn held(generation: &Generation) -> Result<u64, Failure> {
    // All ranks have the same instructions over buffers of the same sizes.
    let tokens = pipeline::alike(&generation.decode)?.program;
    let Some(prefill) = &generation.prefill else { return Ok(tokens.resident + tokens.arena) };
    Ok(run::held_beside(&tokens, &pipeline::alike(prefill)?.program))
}

/// Refuses plans of prompts and of single tokens that do not fit beside each other: ranks hold both. What a
/// device holds of them ([`held`]).
pub fn fit_together(generation: &Generation) -> Result<u64, Failure> {
    let capacity = generation.plans().map(|(_, plan)| plan.capacity).min().unwrap_or(0);
    let together = held(generation)?;
    if together <= capacity {
        return Ok(together);
    }
    let alone = |(name, plan): (&str, &Plan)| {
        let program = pipeline::alike(plan)?.program;
        Ok(format!("{} of {name}", quantity::bytes(program.resident + program.arena)))
    };
    let alone: Vec<String> = generation.plans().map(alone).collect::<Result<_, Failure>>()?;
    Err(Failure::Input(format!(
        "the steps of prompts and of single tokens do not fit beside each other: a device holds {}, {} in all, and \
         may hold {}: {} bytes are missing; fewer tokens of prompts at once (`--prompt`), a smaller `--batch` or \
         `--context` would help",
        alone.join(" and "),
        quantity::bytes(together),
        quantity::bytes(capacity),
        together - capacity
    )))
}

fn none(refused: Option<Failure>) -> Failure {
    refused.unwrap_or_else(|| {
        Failure::Input(
            "no layout of the cache is as the runtime of `--for` keeps it: expected as many sequences as data \
             parallel devices or a multiple; another `--batch`, another `--mesh` or fewer devices would help"
                .to_owned(),
        )
    })
}

fn plan_of(
    cache: &Cache,
    step: &mut Step,
    layout: &Layout,
    (mesh, rules): (&Mesh, Option<&Rules>),
    wanted: &Wanted<'_>,
) -> Result<Plan, Failure> {
    let layouts = parts(cache, &step.prepared.graph);
    let layouts = layouts
        .into_iter()
        .filter_map(|(name, form, type_)| Some((name.to_owned(), own(layout, form, mesh, type_)?)));
    step.prepared.pinned = Some(Pinned { layouts: layouts.collect() });
    let &Wanted { machine, capacity, steps, .. } = wanted;
    let target = Target { machine, mesh, capacity, steps, live: Live::ONE, rules };
    pipeline::plan(&step.prepared, &step.header, &target, &mut |_, _| {})
}

/// The layout that is asked for, or all.
fn chosen(wanted: &Wanted<'_>, layouts: Vec<Layout>, mesh: &Mesh) -> Result<Vec<Layout>, Failure> {
    let Some(text) = &wanted.layout else { return Ok(layouts) };
    let refused = |why: String| Failure::Usage(format!("`--cache-layout {text}`: {why}"));
    let layout = parse_layout(mesh, text).map_err(|error| refused(error.to_string()))?;
    if layouts.contains(&layout) {
        return Ok(vec![layout]);
    }
    let known: Vec<String> = layouts.iter().map(|it| it.display(mesh).to_string()).collect();
    Err(refused(format!("expected one of {} on mesh {mesh}", known.join(", "))))
}

/// The inputs and outputs that are parts of a cache, with their types.
fn parts<'a>(cache: &'a Cache, graph: &'a Graph) -> Vec<(&'a str, Form, &'a Type)> {
    let form =
        |name: &str| cache.kept.iter().find(|it| it.past == name || it.present == name).map(|it| it.form);
    let inputs = graph.values.iter().filter_map(|it| match &it.source {
        Source::Input(name) => Some((name.as_str(), form(name)?, &it.type_)),
        _ => None,
    });
    let outputs = graph.outputs.iter();
    let outputs = outputs.filter_map(|it| Some((it.name.as_str(), form(&it.name)?, graph.type_of(it.value))));
    inputs.chain(outputs).collect()
}

/// The layout of a part of a cache that is kept in a layout: its own, or that of a state, whose sequences are split as
/// those of entries are, and whose heads where it has as many dimensions. The rest of a state is whole.
fn own(layout: &Layout, form: Form, mesh: &Mesh, type_: &Type) -> Option<Layout> {
    let fits = |it: &Layout| it.dims.len() == type_.rank() && it.check(mesh, type_).is_ok();
    let split = |dims: usize| {
        let of = |dim: usize| layout.dims.get(dim).filter(|_| dim < dims).cloned().unwrap_or_default();
        Layout { dims: (0..type_.rank()).map(of).collect(), owed: Vec::new() }
    };
    match form {
        Form::Entries => Some(layout.clone()).filter(fits),
        Form::State if type_.rank() == layout.dims.len() => [2, 1].map(split).into_iter().find(fits),
        Form::State => Some(split(1)).filter(fits),
    }
}

/// The layouts in which all parts of a cache may be kept: whole along the places; where it is of states alone, split
/// by sequences and heads of the first with as many dimensions as there are.
fn layouts(cache: &Cache, graph: &Graph, mesh: &Mesh) -> Vec<Layout> {
    let parts = parts(cache, graph);
    let entries = parts.iter().find(|it| it.1 == Form::Entries);
    let Some((_, form, first)) = entries.or_else(|| parts.iter().max_by_key(|it| it.2.rank())) else {
        return Vec::new();
    };
    let is_whole = |dim: usize| match form {
        Form::Entries => dim == cache.dim,
        Form::State => dim > 1,
    };
    let mut layouts = plain_layouts(mesh, first, Splits::All);
    layouts.retain(|it| (0..it.dims.len()).all(|dim| !is_whole(dim) || it.dims[dim].is_empty()));
    layouts.retain(|it| parts.iter().all(|&(_, form, type_)| own(it, form, mesh, type_).is_some()));
    layouts
}
