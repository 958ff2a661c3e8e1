//! Where each parameter lies, for each axis of a mesh, in the words of DTensor.

use std::collections::BTreeMap;

use plan::{Parameter, Plan, Split, Use, parameters};
use planner_ir::{AxisId, Layout, Mesh, Type, ValueId};
use serde_json::{Value, json};

use crate::job::Job;
use crate::layers::{layer, names, trained};

/// What an axis does to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placement {
    /// All devices along it have the same.
    Replicate,
    /// What they have are addends.
    Partial,
    /// Each has a block along a dimension, counted from the end if it is negative.
    Shard(i64),
    /// Each has one block of each of so many equal parts of a dimension.
    Strided(i64, u64),
}

impl Placement {
    /// As files have it.
    pub fn json(self) -> Value {
        match self {
            Self::Replicate => json!("replicate"),
            Self::Partial => json!("partial"),
            Self::Shard(dim) => json!({ "shard": dim }),
            Self::Strided(dim, parts) => json!({ "shard": dim, "split_factor": parts }),
        }
    }
}

/// The placements of a layout, one for each axis, applied in the order of the axes; nothing if its blocks are
/// numbered by sums of coordinates.
///
/// A digit stands inside of those before it. What stands before the digit of an axis and is not yet taken
/// when its turn comes (free digits, and digits of later axes) are parts of each of which it has a block.
pub fn placements(mesh: &Mesh, layout: &Layout) -> Option<Vec<Placement>> {
    let mut all = vec![Placement::Replicate; mesh.axes.len()];
    for &axis in &layout.owed {
        all[axis.0] = Placement::Partial;
    }
    for (dim, digits) in layout.dims.iter().enumerate() {
        let dim = i64::try_from(dim).ok()?;
        for (place, digit) in digits.iter().enumerate().filter(|(_, digit)| !digit.is_free()) {
            let axis = digit.plain()?;
            let later = digits[..place]
                .iter()
                .filter(|it| it.is_free() || it.plain().is_none_or(|other| other > axis));
            all[axis.0] = match later.map(|it| it.size).product() {
                1 => Placement::Shard(dim),
                parts => Placement::Strided(dim, parts),
            };
        }
    }
    Some(all)
}

/// Where a parameter lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_: Type,
    /// Between its uses.
    pub at_rest: Vec<Placement>,
    /// Where it is used.
    pub used: Vec<Placement>,
    /// Its gradient, summed over micro-batches.
    pub gradient: Vec<Placement>,
    /// What the optimizer keeps of it.
    pub optimizer: Vec<Placement>,
    /// What the module that it is of takes and makes, if that is an operation of its own.
    pub module: Option<[Vec<Placement>; 2]>,
}

/// The parameters of a plan, and in words what of them cannot be said.
pub fn placed(plan: &Plan) -> (Vec<Placed>, Vec<String>) {
    let known: BTreeMap<ValueId, Parameter> = parameters(plan).into_iter().map(|it| (it.value, it)).collect();
    let mut lost = Vec::new();
    let mut all = Vec::new();
    for (value, name) in trained(plan) {
        let at = |value: ValueId| placements(&plan.mesh, &plan.layouts[value.0]);
        let Some(at_rest) = at(value) else {
            lost.push(format!(
                "`{name}` lies in blocks that are numbered by sums of coordinates: it is whole"
            ));
            continue;
        };
        let parameter = known.get(&value);
        let other = |value: Option<ValueId>| value.and_then(at).unwrap_or_else(|| at_rest.clone());
        let uses = |axis: AxisId| parameter.map(|it| it.uses(plan, axis)).unwrap_or_default();
        let axes: Vec<Vec<Use>> = plan.mesh.axis_ids().map(uses).collect();
        let used = used(&at_rest, &axes, name, &mut lost);
        let module = parameter.filter(|_| name.ends_with(".weight")).and_then(|_| module(&axes));
        all.push(Placed {
            name: name.to_owned(),
            type_: plan.graph.type_of(value).clone(),
            used,
            gradient: other(parameter.and_then(|it| it.gradient)),
            optimizer: other(parameter.and_then(|it| it.kept.first().copied())),
            module,
            at_rest,
        });
    }
    (all, lost)
}

/// Where a parameter is used: as it lies along axes over which it is used split, and whole along others.
fn used(at_rest: &[Placement], axes: &[Vec<Use>], name: &str, lost: &mut Vec<String>) -> Vec<Placement> {
    let mut used = at_rest.to_vec();
    for (placement, uses) in used.iter_mut().zip(axes) {
        let split = uses.iter().any(|it| matches!(it, Use::Split(_) | Use::Rotated | Use::Square));
        match placement {
            _ if uses.is_empty() => {}
            Placement::Replicate if split => {
                lost.push(format!("`{name}` lies whole and is used in parts: it is used whole"));
            }
            _ if !split => *placement = Placement::Replicate,
            _ => {}
        }
    }
    used
}

/// What a module takes and makes, where each axis does one thing to it.
fn module(axes: &[Vec<Use>]) -> Option<[Vec<Placement>; 2]> {
    use Placement::{Partial, Replicate, Shard};
    let mut ends = [Vec::new(), Vec::new()];
    for uses in axes {
        let first = uses.first().copied().unwrap_or(Use::Whole);
        if uses.iter().any(|it| *it != first) {
            return None;
        }
        let [taken, made] = match first {
            Use::Whole => [Replicate, Replicate],
            Use::Batch => [Shard(0), Shard(0)],
            Use::Sequence => [Shard(1), Shard(1)],
            Use::Heads(dim) => [Shard(i64::try_from(dim).ok()?); 2],
            Use::Split(Split::Columns) => [Replicate, Shard(-1)],
            Use::Split(Split::Rows) => [Shard(-1), Partial],
            Use::Split(Split::Vocabulary) => [Replicate, Partial],
            Use::Split(Split::Experts | Split::Units | Split::Elements) | Use::Rotated | Use::Square => {
                return None;
            }
        };
        ends[0].push(taken);
        ends[1].push(made);
    }
    Some(ends)
}

/// How a parameter is split in products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// By what of a product's results it alone has.
    Columns,
    /// By what is summed.
    Rows,
    /// In another way.
    Other,
}

/// The parameters that products use split, by their names, in which `*` stands for the number of a layer: how
/// those of the first layer are.
pub fn cuts(job: &Job<'_>) -> BTreeMap<String, Cut> {
    let mut found = BTreeMap::new();
    for plan in job.stages() {
        for parameter in parameters(plan).iter().filter(|it| it.in_product) {
            let uses = plan.mesh.axis_ids().flat_map(|axis| parameter.uses(plan, axis));
            let split = uses.filter_map(|it| match it {
                Use::Split(split) => Some(split),
                _ => None,
            });
            let cut = match split.min_by_key(|it| *it != Split::Columns) {
                None => continue,
                Some(Split::Columns) => Cut::Columns,
                Some(Split::Rows) => Cut::Rows,
                Some(_) => Cut::Other,
            };
            for name in names(plan, parameter.value) {
                found.entry(of_all_layers(name)).or_insert(cut);
            }
        }
    }
    found
}

/// A name in which `*` stands for the number of the layer.
pub(crate) fn of_all_layers(name: &str) -> String {
    layer(name).map_or_else(
        || name.to_owned(),
        |(prefix, number)| {
            let rest = &name[prefix.len()..];
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            let after = rest.strip_prefix(&number.to_string()).unwrap_or(rest);
            let dot = if prefix.is_empty() { "" } else { "." };
            format!("{prefix}{dot}*{after}")
        },
    )
}

#[cfg(test)]
mod tests;
