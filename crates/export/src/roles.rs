//! What the axes of a mesh are for, in the words of frameworks.

use plan::{Along, Parallelism, Parameter, Plan, parameters};
use planner_ir::AxisId;

/// An axis and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AxisRole {
    /// What it is called.
    pub(crate) name: String,
    /// How many devices there are along it.
    pub(crate) size: u64,
    pub(crate) role: Parallelism,
    /// Whether experts are split over it.
    pub(crate) experts: bool,
    /// The stage of ZeRO of most of what is data parallel: 0 if there is none.
    pub(crate) zero: u8,
    /// Of how many bytes what is so.
    pub(crate) along: Along,
}

/// The axes of a plan's mesh along which there are several devices, outermost first.
pub(crate) fn roles(plan: &Plan) -> Vec<AxisRole> {
    roles_of(plan, &parameters(plan))
}

/// The same by these parameters alone.
pub(crate) fn roles_of(plan: &Plan, parameters: &[Parameter]) -> Vec<AxisRole> {
    let axes = plan.mesh.axis_ids().filter(|&axis| plan.mesh.size(axis) > 1);
    let of = |axis: AxisId| {
        let along = Along::of(plan, parameters, axis);
        let role = role(&along);
        AxisRole {
            name: plan.mesh.axes[axis.0].name.clone(),
            size: plan.mesh.size(axis),
            role,
            experts: along.experts > 0,
            zero: zero(&along),
            along,
        }
    };
    axes.map(of).collect()
}

/// Parameters that are used split, those of tables too (bytes).
pub(crate) fn split(along: &Along) -> u64 {
    along.tensor + along.vocabulary + along.rotated + along.square
}

/// What most bytes say; data parallel where nothing is said.
fn role(along: &Along) -> Parallelism {
    let bytes = |role: Parallelism| match role {
        Parallelism::Data => along.data,
        Parallelism::Context => along.context,
        Parallelism::Tensor => split(along),
    };
    // Of equals the last is the greatest.
    Parallelism::ALL.into_iter().rev().max_by_key(|&it| bytes(it)).unwrap_or(Parallelism::Data)
}

/// The stage of ZeRO that half of what is used whole has at least; the first if anything is sharded, for it takes no
/// longer than none: what is reduced and gathered is as much.
fn zero(along: &Along) -> u8 {
    let [first, second, third] = along.stages;
    let whole = (along.data + along.context).max(first + second + third);
    let most = |bytes: u64| bytes > 0 && bytes.saturating_mul(2) >= whole;
    match () {
        () if most(third) => 3,
        () if most(third + second) => 2,
        () if third + second + first > 0 => 1,
        () => 0,
    }
}
