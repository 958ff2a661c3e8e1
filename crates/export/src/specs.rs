//! Over which axes of a mesh each dimension of each value is split, as XLA's partitioners say it.

use std::collections::BTreeMap;

use plan::{Assignment, Plan, parameters};
use planner_ir::{Digit, Layout, Mesh, Op, Phase, Source, StateKind, Type, ValueId};

use crate::job::Job;
use crate::layers::trained;

/// How the values of a stage lie.
pub(crate) struct Stage<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) parameters: Vec<Lies<'a>>,
    /// The first thing that the optimizer keeps of each parameter.
    pub(crate) optimizer: Vec<Lies<'a>>,
    pub(crate) inputs: Vec<Lies<'a>>,
    /// What the operations of the model make, as it is used.
    pub(crate) values: Vec<Lies<'a>>,
}

/// How a value lies.
pub(crate) struct Lies<'a> {
    pub(crate) name: &'a str,
    pub(crate) type_: &'a Type,
    /// The axes of each dimension, outermost first.
    pub(crate) dims: Vec<Vec<&'a str>>,
}

/// The stages of a job, and in words what cannot be said of them.
pub(crate) fn stages<'a>(job: &Job<'a>) -> (Vec<Stage<'a>>, Vec<String>) {
    let mut lost = Vec::new();
    let stages = job.stages();
    let several = stages.len() > 1;
    let of = |(number, plan): (usize, &'a Plan)| {
        let place = if several { format!("stage {number}: ") } else { String::new() };
        let (stage, whole) = stage(plan);
        let said =
            |name| format!("{place}`{name}` lies in blocks that are no part of a dimension: it is whole");
        lost.extend(whole.into_iter().map(said));
        stage
    };
    let all = stages.into_iter().enumerate().map(of).collect();
    if several {
        lost.push("which stage works when: each stage has a mesh and specs of its own".to_owned());
    }
    lost.push(
        "how operations are computed: XLA chooses, from where parameters, inputs and results lie".to_owned(),
    );
    (all, lost)
}

/// A stage, and what is whole in it as its blocks cannot be said.
fn stage<'a>(plan: &'a Plan) -> (Stage<'a>, Vec<&'a str>) {
    let graph = &plan.graph;
    let mut whole = Vec::new();
    let mut one =
        |(name, value, layout): (&'a str, ValueId, &'a Layout)| lying(plan, name, value, layout, &mut whole);
    let at_rest = |value: ValueId| -> &'a Layout { &plan.layouts[value.0] };
    let parameters = trained(plan).into_iter().map(|(value, name)| (name, value, at_rest(value)));
    let mut parameters: Vec<Lies<'a>> = parameters.map(&mut one).collect();
    let named = |wanted: &dyn Fn(&'_ Source) -> bool| -> Vec<ValueId> {
        graph.value_ids().filter(|it| wanted(&graph.value(*it).source)).collect()
    };
    let name = |value: ValueId| -> &'a str {
        match &graph.value(value).source {
            Source::State(state) => state.name.as_str(),
            Source::Input(name) | Source::Weight(name) => name.as_str(),
            Source::Result { node, .. } => graph.node(*node).origin.as_str(),
        }
    };
    let is_moment = |it: &Source| matches!(it, Source::State(it) if it.kind == StateKind::FirstMoment);
    let moments = named(&is_moment).into_iter().map(|it| (name(it), it, at_rest(it)));
    let optimizer = moments.map(&mut one).collect();
    let inputs =
        named(&|it| matches!(it, Source::Input(_))).into_iter().map(|it| (name(it), it, at_rest(it)));
    let inputs = inputs.map(&mut one).collect();
    // Of several results of a name the last is what the model's node makes.
    let mut made: BTreeMap<&str, (ValueId, &Layout)> = BTreeMap::new();
    let mut order = Vec::new();
    for (node, assignment) in graph.nodes.iter().zip(&plan.assignments) {
        let [result] = node.results[..] else { continue };
        let is_made = node.phase == Phase::Forward && *assignment != Assignment::Prepared;
        let Some(layout) = used(plan, result).filter(|_| is_made && !node.origin.is_empty()) else {
            continue;
        };
        if made.insert(&node.origin, (result, layout)).is_none() {
            order.push(node.origin.as_str());
        }
    }
    let values = order.into_iter().map(|name| (name, made[name].0, made[name].1));
    let values = values.map(&mut one).collect();
    parameters.extend(prepared(plan, &mut whole));
    (Stage { mesh: &plan.mesh, parameters, optimizer, inputs, values }, whole)
}

/// The weights that devices have in other dimensions than the file does: split as what they become is.
fn prepared<'a>(plan: &'a Plan, whole: &mut Vec<&'a str>) -> Vec<Lies<'a>> {
    let mut all = Vec::new();
    for it in parameters(plan) {
        let mut dims = axes(&plan.mesh, &plan.layouts[it.value.0]);
        let mut value = it.value;
        // From what is at rest back to what it is made of.
        while let Source::Result { node, .. } = &plan.graph.value(value).source {
            let node = plan.graph.node(*node);
            let Some(&before) = node.operands.first().filter(|_| node.operands.len() == 1) else { break };
            let (to, from) = (plan.graph.type_of(value), plan.graph.type_of(before));
            dims = dims.and_then(|dims| back(&plan.mesh, &node.op, &dims, [&from.shape, &to.shape]));
            value = before;
        }
        let (Source::Weight(name), false) = (&plan.graph.value(value).source, value == it.value) else {
            continue;
        };
        let type_ = plan.graph.type_of(value);
        let dims = dims.unwrap_or_else(|| {
            whole.push(name);
            vec![Vec::new(); type_.shape.len()]
        });
        all.push(Lies { name, type_, dims });
    }
    all
}

/// Over which axes the dimensions of an operand are split where those of the result are so; nothing if that is not
/// over axes.
fn back<'a>(
    mesh: &Mesh,
    op: &Op,
    dims: &[Vec<&'a str>],
    [from, to]: [&[u64]; 2],
) -> Option<Vec<Vec<&'a str>>> {
    match op {
        Op::Cast(_) => Some(dims.to_vec()),
        Op::Transpose { permutation } => {
            let mut all = vec![Vec::new(); dims.len()];
            for (dim, &place) in dims.iter().zip(permutation) {
                *all.get_mut(place)? = dim.clone();
            }
            Some(all)
        }
        Op::Reshape { .. } => {
            let devices = |axes: &[&str]| -> u64 {
                mesh.axes.iter().filter(|it| axes.contains(&it.name.as_str())).map(|it| it.size).product()
            };
            let mut next = dims.iter().zip(to).peekable();
            let mut all = Vec::new();
            for &extent in from {
                let (mut axes, mut size, mut full) = (Vec::new(), 1, true);
                while size < extent || next.peek().is_some_and(|it| *it.1 == 1) {
                    let (dim, &part) = next.next()?;
                    // A part of a part that is not split to the end lies in several places.
                    if !full && !dim.is_empty() {
                        return None;
                    }
                    full = full && devices(dim) == part;
                    axes.extend(dim.iter().copied());
                    size *= part;
                }
                if size != extent {
                    return None;
                }
                all.push(axes);
            }
            Some(all)
        }
        _ => None,
    }
}

/// The layout of a result: where sums are owed, that in which none are.
fn used(plan: &Plan, value: ValueId) -> Option<&Layout> {
    let made = &plan.layouts[value.0];
    let copies = plan.transfers.iter().filter(|it| it.value == value).map(|it| &it.layout);
    std::iter::once(made).chain(copies).find(|it| it.owed.is_empty())
}

fn lying<'a>(
    plan: &'a Plan,
    name: &'a str,
    value: ValueId,
    layout: &Layout,
    whole: &mut Vec<&'a str>,
) -> Lies<'a> {
    let type_ = plan.graph.type_of(value);
    let dims = axes(&plan.mesh, layout).unwrap_or_else(|| {
        whole.push(name);
        vec![Vec::new(); type_.shape.len()]
    });
    Lies { name, type_, dims }
}

/// The axes of each dimension, outermost first; nothing if a part of each of several blocks lies together, or
/// blocks are numbered by sums of coordinates.
fn axes<'a>(mesh: &'a Mesh, layout: &Layout) -> Option<Vec<Vec<&'a str>>> {
    let of_dim = |digits: &Vec<Digit>| -> Option<Vec<&'a str>> {
        digits.iter().map(|it| Some(mesh.axes[it.plain()?.0].name.as_str())).collect()
    };
    layout.dims.iter().map(of_dim).collect()
}

#[cfg(test)]
mod tests {
    use planner_ir::{Mesh, Op, parse_layout};

    use super::{axes, back};

    #[test]
    fn weights_are_split_as_what_they_become() {
        let mesh = Mesh::parse("a=2,b=4").unwrap();
        let to = [8, 8, 64];
        let op = Op::Reshape { shape: to.to_vec() };
        let of = |dims: [&[&'static str]; 3]| back(&mesh, &op, &dims.map(<[_]>::to_vec), [&[64, 64], &to]);
        assert_eq!(of([&["b"], &[], &["a"]]), Some(vec![vec!["b"], vec!["a"]]));
        assert_eq!(of([&["a", "b"], &[], &[]]), Some(vec![vec!["a", "b"], vec![]]));
        assert_eq!(of([&["b"], &["a"], &[]]), None);
        let op = Op::Transpose { permutation: vec![1, 0] };
        let of = |dims: [&[&'static str]; 2]| back(&mesh, &op, &dims.map(<[_]>::to_vec), [&[4, 8], &[8, 4]]);
        assert_eq!(of([&["b"], &[]]), Some(vec![vec![], vec!["b"]]));
    }

    #[test]
    fn dimensions_have_their_axes_outermost_first() {
        let mesh = Mesh::parse("a=2,b=2").unwrap();
        let of = |text: &str| {
            let found = axes(&mesh, &parse_layout(&mesh, text).unwrap().canonical())?;
            Some(found.iter().map(|it| it.join(" ")).collect::<Vec<_>>())
        };
        let said = |dims: &[&str]| Some(dims.iter().map(|&it| it.to_owned()).collect::<Vec<_>>());
        assert_eq!(of("[-,-]"), said(&["", ""]));
        assert_eq!(of("[a,-]"), said(&["a", ""]));
        assert_eq!(of("[-,b.a]"), said(&["", "b a"]));
        assert_eq!(of("[*3.a,-]"), None);
        assert_eq!(of("[(a+b:2)]"), None);
    }
}
