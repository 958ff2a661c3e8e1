//! The meshes that are tried for a plan, and what their axes are for where another runtime runs it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use autoparallel::limits::Limits;
use autoparallel::mesh;
use autoparallel::serving::{ServingLimits, Shared, ruled};
use cost_models::machine::Machine;
use export::{Range, ServingRange, Target as Runtime};
use files::Failure;
use plan::{Parallelism, examples};
use planner_ir::{Axis, Graph, Layout, Mesh};
use search::Rules;

/// A mesh, and what its axes are for, if that is limited.
pub type Way = (Mesh, Option<Rules>);

/// The ways of a program on a machine, on this mesh if one is given.
pub fn of_program(
    runtime: Option<Runtime>,
    given: Option<&Mesh>,
    machine: &Machine,
    graph: &Graph,
) -> Result<Vec<Way>, Failure> {
    match runtime {
        Some(runtime) if graph.training.is_none() => {
            // Where no input counts examples, any number of groups may share them.
            let sequences = Some(examples(graph)).filter(|it| *it < u64::MAX).unwrap_or(0);
            of_inference(runtime, given, machine, &Shared::of(graph, sequences))
        }
        Some(runtime) => of_training(runtime, given, machine),
        None => Ok(unlimited(given, machine)),
    }
}

/// Those of plans that nothing limits.
pub fn unlimited(given: Option<&Mesh>, machine: &Machine) -> Vec<Way> {
    let meshes = given.map_or_else(|| mesh::candidates(machine.devices()), |it| vec![it.clone()]);
    meshes.into_iter().map(|it| (it, None)).collect()
}

/// What limits plans of training for a target.
pub fn limits(target: Runtime) -> Result<Limits, Failure> {
    let message =
        format!("`--for {target}` limits nothing but time steps: leave it out and give `--in-time never`");
    let range = target.range().ok_or(Failure::Usage(message))?;
    let Range { sequence, ref schedules, .. } = range;
    Ok(Limits { title: target.title(), zero: range.highest(), sequence, schedules: schedules.clone() })
}

fn of_training(runtime: Runtime, given: Option<&Mesh>, machine: &Machine) -> Result<Vec<Way>, Failure> {
    let limits = limits(runtime)?;
    let all = || limits.meshes(machine.devices(), machine.devices_per_node());
    let meshes = given.map_or_else(all, |it| vec![it.clone()]);
    let rules = |mesh: &Mesh| limits.rules(mesh, 1, None);
    let ways: Vec<Way> = meshes
        .into_iter()
        .flat_map(|mesh| rules(&mesh).into_iter().map(move |it| (mesh.clone(), Some(it))))
        .collect();
    match given {
        Some(mesh) if ways.is_empty() => Err(Failure::Usage(format!(
            "mesh {} has more axes than {} has kinds of parallelism, expected at most 3: data, context, tensor",
            mesh::sizes(mesh),
            limits.title
        ))),
        _ => Ok(ways),
    }
}

/// The ways of a server of a model.
pub fn of_inference(
    runtime: Runtime,
    given: Option<&Mesh>,
    machine: &Machine,
    shared: &Shared,
) -> Result<Vec<Way>, Failure> {
    let limits = served(runtime)?;
    let all = of_server(&limits, machine, shared);
    let ways = on_mesh(&all, given);
    if !ways.is_empty() {
        return Ok(ways);
    }
    let Shared { sequences, heads, .. } = shared;
    let heads = heads
        .map_or(String::new(), |[queries, keys]| format!(", {queries} heads of queries and {keys} of keys"));
    let by_name = given.is_some_and(|given| is_named(&given.axes));
    let shown = |mesh: &Mesh| if by_name { mesh.to_string() } else { mesh::sizes(mesh) };
    let mut known: Vec<String> = Vec::new();
    for (mesh, _) in &all {
        let mesh = format!("`{}`", shown(mesh));
        if !known.contains(&mesh) {
            known.push(mesh);
        }
    }
    let help = match (given, known.is_empty()) {
        (Some(_), false) => format!("expected `--mesh` one of {}", known.join(", ")),
        _ => "expected as many sequences as data parallel devices or a multiple, and heads that fall into equal \
              parts: another `--batch`, or another number of devices"
            .to_owned(),
    };
    Err(Failure::Usage(format!(
        "`--for {runtime}`: {} does not share a model of {sequences} sequences at once{heads} so among {} devices: {help}",
        limits.title,
        machine.devices()
    )))
}

/// Those of all servers, and no more: on this mesh if one is given.
pub fn of_servers(given: Option<&Mesh>, machine: &Machine, shared: &Shared) -> Vec<Way> {
    let any = ServingLimits { title: "any server", data: true, mixed: true, same_keys: true };
    on_mesh(&of_server(&any, machine, shared), given)
}

fn of_server(limits: &ServingLimits, machine: &Machine, shared: &Shared) -> Vec<(Mesh, Rules)> {
    let all = limits.ways(shared, machine.devices(), machine.devices_per_node());
    all.iter().map(|it| ruled(it, shared)).collect()
}

fn on_mesh(all: &[(Mesh, Rules)], given: Option<&Mesh>) -> Vec<Way> {
    let on = all.iter().filter(|it| given.is_none_or(|given| is_on(&it.0, given)));
    on.map(|(mesh, rules)| (mesh.clone(), Some(rules.clone()))).collect()
}

/// Whether a server's mesh is the one that is given: axes of several devices have the same sizes, and the same names, in any
/// order, if they were given some. Groups of whole models are data parallel too, and devices that have the same keys tensor
/// parallel.
fn is_on(mesh: &Mesh, given: &Mesh) -> bool {
    let several = |mesh: &Mesh| mesh.axes.iter().filter(|it| it.size > 1).cloned().collect::<Vec<Axis>>();
    let (mesh, given) = (several(mesh), several(given));
    let sizes = |axes: &[Axis]| axes.iter().map(|it| it.size).collect::<Vec<u64>>();
    if !is_named(&given) {
        return sizes(&mesh) == sizes(&given);
    }
    let by_name = |axes: &[Axis], by_role: bool| {
        let mut all = BTreeMap::new();
        for Axis { name, size } in axes {
            let name = match &**name {
                "replica" if by_role => "data",
                "same_keys" if by_role => "tensor",
                name => name,
            };
            *all.entry(name.to_owned()).or_insert(1) *= size;
        }
        all
    };
    let names: BTreeMap<String, u64> = by_name(&given, false);
    names == by_name(&mesh, false) || names == by_name(&mesh, true)
}

/// Whether axes have names: those of a mesh of sizes are letters.
fn is_named(axes: &[Axis]) -> bool {
    axes.iter().any(|it| it.name.len() > 1)
}

/// What a runtime serves.
fn served(runtime: Runtime) -> Result<ServingLimits, Failure> {
    let message =
        format!("`--for {runtime}` limits no plans of inference: leave it out and give `--in-time never`");
    let range = runtime.serves().ok_or(Failure::Usage(message))?;
    let ServingRange { data, mixed, same_keys } = range;
    Ok(ServingLimits { title: runtime.title(), data, mixed, same_keys })
}

/// Of layouts of a cache the one that rules have: sequences are split over all data parallel axes, heads over as many
/// tensor parallel ones as they can be, and nothing else is split; none where sequences cannot be.
pub(crate) fn keeps(rules: Option<&Rules>, mesh: &Mesh, layouts: Vec<Layout>) -> Vec<Layout> {
    let Some(rules) = rules else { return layouts };
    let axes = |layout: &Layout, dim: usize| -> Vec<usize> {
        layout.dims[dim].iter().flat_map(|digit| &digit.terms).map(|term| term.0.0).collect()
    };
    let is = |axis: &usize, role: Parallelism| rules.axes[*axis].role == role;
    // Along an axis of one device nothing is split.
    let wide = rules.axes.iter().zip(&mesh.axes).filter(|(_, axis)| axis.size > 1);
    let data = wide.filter(|(it, _)| it.role == Parallelism::Data).count();
    let heads = |layout: &Layout| if layout.dims.len() > 3 { axes(layout, 1) } else { Vec::new() };
    let allowed = |layout: &&Layout| {
        let (sequences, heads) = (axes(layout, 0), heads(layout));
        sequences.len() == data
            && sequences.iter().all(|it| is(it, Parallelism::Data))
            && heads.iter().all(|it| is(it, Parallelism::Tensor))
            && layout.axes().len() == sequences.len() + heads.len()
    };
    // Of as many axes the outermost.
    let most = layouts.iter().filter(allowed).max_by_key(|it| (heads(it).len(), Reverse(heads(it))));
    most.cloned().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use autoparallel::serving::{Shared, ruled};
    use plan::Served;
    use planner_ir::{DType, Type};
    use rewrite::{Splits, plain_layouts};

    use super::{Mesh, is_on, keeps};

    /// The layout that is left of all of a part of a cache, of so many sequences and heads.
    fn left(served: &Served, shape: &[u64]) -> Vec<String> {
        let shared = Shared { sequences: shape[0], heads: Some([8, shape[1]]), experts: None };
        let (mesh, rules) = ruled(served, &shared);
        let type_ = Type { dtype: DType::BF16, shape: shape.to_vec() };
        let layouts = plain_layouts(&mesh, &type_, Splits::All);
        keeps(Some(&rules), &mesh, layouts).iter().map(|it| it.display(&mesh).to_string()).collect()
    }

    /// What devices are given for by name is what they are for.
    #[test]
    fn meshes_of_servers_are_told_by_names() {
        let is = |mesh: &str, given: &str| is_on(&Mesh::parse(mesh).unwrap(), &Mesh::parse(given).unwrap());
        assert!(
            is("data=2,tensor=4", "2x4") && is("data=2,tensor=4", "2x1x4") && !is("data=2,tensor=4", "4x2")
        );
        assert!(is("data=2,tensor=4", "data=2,tensor=4") && is("data=2,tensor=4", "tensor=4,data=2"));
        assert!(
            !is("data=2,tensor=4", "tensor=2,data=4")
                && !is("tensor=8", "data=8")
                && !is("tensor=8", "tensr=8")
        );
        assert!(is("tensor=2,same_keys=2", "tensor=4") && is("tensor=2,same_keys=2", "tensor=2,same_keys=2"));
        assert!(is("replica=2,data=2,tensor=2", "tensor=2,data=4") && is("tensor=8", "tensor=8,data=1"));
        assert!(!is("tensor=2,same_keys=2", "data=4"));
    }

    #[test]
    fn caches_are_split_by_sequences_and_heads() {
        let served = Served { replicas: 1, data: 2, tensor: 2, experts: None };
        assert_eq!(left(&served, &[4, 2, 16, 8]), ["[data,tensor,-,-]"]);
        assert_eq!(left(&served, &[4, 1, 16, 8]), ["[data,-,-,-]"]);
        assert_eq!(left(&served, &[4, 16, 8]), ["[data,-,-]"]);
        assert!(left(&served, &[3, 2, 16, 8]).is_empty());
        let served = Served { replicas: 1, data: 1, tensor: 4, experts: None };
        assert_eq!(left(&served, &[4, 2, 16, 8]), ["[-,tensor,-,-]"]);
        // On one device the axes are of one, and nothing is split.
        let served = Served { replicas: 1, data: 1, tensor: 1, experts: None };
        assert_eq!(left(&served, &[1, 2, 16, 8]), ["[-,-,-,-]"]);
    }
}
