//! What both steps of a decoder are planned for: a machine, and the layouts in which their cache may be.

use cost_models::machine::Machine;
use files::Failure;
use plan::{Cache, Form, ModelFile};
use planner_ir::{Graph, Layout, Mesh, Source, Type, parse_layout};
use rewrite::{Splits, Steps, plain_layouts};

use crate::pipeline::Prepared;
use crate::ways::Way;

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

/// The layout that is asked for, or all.
pub(super) fn chosen(wanted: &Wanted<'_>, layouts: Vec<Layout>, mesh: &Mesh) -> Result<Vec<Layout>, Failure> {
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
pub(super) fn parts<'a>(cache: &'a Cache, graph: &'a Graph) -> Vec<(&'a str, Form, &'a Type)> {
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
pub(super) fn own(layout: &Layout, form: Form, mesh: &Mesh, type_: &Type) -> Option<Layout> {
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
pub(super) fn layouts(cache: &Cache, graph: &Graph, mesh: &Mesh) -> Vec<Layout> {
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
