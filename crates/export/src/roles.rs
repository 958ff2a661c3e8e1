//! What the axes of a mesh are for, in the words of frameworks.

use plan::{Along, Plan, parameters};
use planner_ir::AxisId;

/// What an axis is for: one thing for all parameters of a stage that are no experts'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    /// Parameters are used whole, and examples are split.
    Data,
    /// Parameters are used whole, and the sequence is split.
    Context,
    /// Parameters are used split.
    Tensor,
}

impl Role {
    /// Every role, in the order in which frameworks nest groups, the outermost first.
    pub(crate) const ALL: [Self; 3] = [Self::Data, Self::Context, Self::Tensor];

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Data => "data parallel",
            Self::Context => "context parallel",
            Self::Tensor => "tensor parallel",
        }
    }
}

/// An axis and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AxisRole {
    pub(crate) axis: AxisId,
    /// What it is called.
    pub(crate) name: String,
    /// How many devices there are along it.
    pub(crate) size: u64,
    pub(crate) role: Role,
    /// Whether experts are split over it.
    pub(crate) experts: bool,
    /// The stage of ZeRO of most of what is data parallel: 0 if there is none.
    pub(crate) zero: u8,
    /// Of how many bytes what is so.
    pub(crate) along: Along,
}

/// The axes of a plan's mesh along which there are several devices, outermost first.
pub(crate) fn roles(plan: &Plan) -> Vec<AxisRole> {
    let parameters = parameters(plan);
    let axes = plan.mesh.axis_ids().filter(|&axis| plan.mesh.size(axis) > 1);
    let of = |axis: AxisId| {
        let along = Along::of(plan, &parameters, axis);
        let role = role(&along);
        AxisRole {
            axis,
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
fn role(along: &Along) -> Role {
    let bytes = |role: Role| match role {
        Role::Data => along.data,
        Role::Context => along.context,
        Role::Tensor => split(along),
    };
    // Of equals the last is the greatest.
    Role::ALL.into_iter().rev().max_by_key(|&it| bytes(it)).unwrap_or(Role::Data)
}

/// The stage of ZeRO that half of what is used whole has at least.
fn zero(along: &Along) -> u8 {
    let [first, second, third] = along.stages;
    let whole = (along.data + along.context).max(first + second + third);
    let most = |bytes: u64| bytes > 0 && bytes.saturating_mul(2) >= whole;
    match () {
        () if most(third) => 3,
        () if most(third + second) => 2,
        () if most(third + second + first) => 1,
        () => 0,
    }
}
