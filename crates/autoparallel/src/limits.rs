//! What another runtime runs: plans in which each axis of a mesh does one thing, by some schedules.

use plan::Parallelism;
use planner_ir::{Axis, Mesh};
use schedule::Kind;
use search::{OverExperts, Ruled, Rules};

/// What a runtime runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What it is called.
    pub title: &'static str,
    /// The highest stage of ZeRO, without and with a pipeline.
    pub zero: [u8; 2],
    /// Whether sequences may be split between products that use parameters split.
    pub sequence: bool,
    /// Its schedules; none if it has no pipelines.
    pub schedules: Vec<Kind>,
}

/// What the axes of a mesh may be for, outermost first: data parallel devices lie farthest apart, and tensor
/// parallel ones nearest.
const ROLES: [&[Parallelism]; 7] = [
    &[Parallelism::Data],
    &[Parallelism::Tensor],
    &[Parallelism::Context],
    &[Parallelism::Data, Parallelism::Tensor],
    &[Parallelism::Data, Parallelism::Context],
    &[Parallelism::Context, Parallelism::Tensor],
    &[Parallelism::Data, Parallelism::Context, Parallelism::Tensor],
];

impl Limits {
    /// What the axes of a mesh may be for, each way once; none if there are more axes than kinds of parallelism. Where
    /// it is given how many devices share experts, those are the nearest ones ([`over_nearest`]), and data parallel
    /// devices may lie along two axes.
    pub fn rules(&self, mesh: &Mesh, groups: usize, experts: Option<u64>) -> Vec<Rules> {
        let wide = |axis: &&Axis| axis.size > 1;
        let count = mesh.axes.iter().filter(wide).count();
        let of = |roles: &[Parallelism]| {
            let mut roles = roles.iter().copied();
            // An axis of one device does nothing.
            let role =
                |axis: &Axis| if wide(&axis) { roles.next() } else { None }.unwrap_or(Parallelism::Data);
            let roles: Vec<Parallelism> = mesh.axes.iter().map(role).collect();
            let rules = self.of_roles(&roles, groups);
            if let Some(experts) = experts { over_nearest(mesh, rules, experts) } else { Some(rules) }
        };
        let apart =
            |roles: &&[Parallelism]| roles[0] == Parallelism::Data && experts.is_some_and(|it| it > 1);
        let replicas = ROLES.iter().filter(|it| apart(it)).map(|it| [&[Parallelism::Data], *it].concat());
        let all = ROLES.iter().map(|it| it.to_vec()).chain(replicas);
        all.filter(|roles| roles.len() == count.max(1)).filter_map(|roles| of(&roles)).collect()
    }

    /// Those of a runtime that runs all that there is, so that nothing is limited but what axes are for.
    pub(crate) fn none() -> Self {
        Self { title: "", zero: [3; 2], sequence: true, schedules: Kind::ALL.to_vec() }
    }

    /// The rules of axes that are for this.
    fn of_roles(&self, roles: &[Parallelism], groups: usize) -> Rules {
        let axis = |&role: &Parallelism| Ruled {
            role,
            experts: if role == Parallelism::Data { OverExperts::MaySplit } else { OverExperts::AsOthers },
            shards: role != Parallelism::Tensor,
        };
        let zero = self.zero[usize::from(groups > 1)];
        Rules {
            axes: roles.iter().map(axis).collect(),
            sequence: self.sequence,
            zero,
            exact: false,
            sums_once: false,
        }
    }

    /// The meshes of so many devices in nodes of so many: all along one axis, and two of which the inner one is
    /// within a node.
    pub fn meshes(&self, devices: u64, node: u64) -> Vec<Mesh> {
        let inner = (2..=node.min(devices / 2)).filter(|&it| devices.is_multiple_of(it));
        let two = inner.map(|inner| Mesh::of_sizes(&[devices / inner, inner]));
        std::iter::once(Mesh::of_sizes(&[devices])).chain(two).collect()
    }
}

/// The same rules, where whole experts are split over so many devices: the nearest, whatever else these are for. Nothing
/// if those are not all places along the innermost axes.
///
/// Source of the order: Megatron-LM, `megatron/core/parallel_state.py`, `expert_decoder_rank_generator`: `tp-cp-ep-dp-pp`,
/// where `tp` is expert tensor parallelism, 1, and `cp` is 1.
pub fn over_nearest(mesh: &Mesh, mut rules: Rules, experts: u64) -> Option<Rules> {
    let mut left = experts;
    for (axis, rule) in mesh.axes.iter().zip(&mut rules.axes).rev() {
        rule.experts = OverExperts::AsOthers;
        if left > 1 && axis.size > 1 {
            rule.experts = OverExperts::Split;
            left = if left.is_multiple_of(axis.size) { left / axis.size } else { return None };
        }
    }
    (left == 1).then_some(rules)
}

/// How many data parallel devices there are by some rules.
pub fn data(mesh: &Mesh, rules: &Rules) -> u64 {
    size(mesh, rules, Parallelism::Data)
}

/// How many devices lie along the axes that are for this.
pub(crate) fn size(mesh: &Mesh, rules: &Rules, role: Parallelism) -> u64 {
    let axes = mesh.axes.iter().zip(&rules.axes).filter(|(_, it)| it.role == role);
    axes.map(|(axis, _)| axis.size).product()
}

/// Rules in words: what the axes are for.
pub fn in_words(rules: &Rules) -> String {
    rules.axes.iter().map(|it| it.role.name()).collect::<Vec<_>>().join(" x ")
}

#[cfg(test)]
mod tests {
    use planner_ir::Mesh;

    use search::{OverExperts, Ruled, Rules};

    use super::{Limits, data, in_words};

    const LIMITS: Limits = Limits { title: "other", zero: [3, 1], sequence: true, schedules: vec![] };

    #[test]
    fn axes_are_for_one_thing_each() {
        let said = |mesh: &str| {
            let mesh = Mesh::parse(mesh).unwrap();
            let said = |it| format!("{} {}", in_words(it), data(&mesh, it));
            LIMITS.rules(&mesh, 1, None).iter().map(said).collect::<Vec<_>>()
        };
        assert_eq!(said("4"), ["data 4", "tensor 1", "context 1"]);
        assert_eq!(said("4x2"), ["data x tensor 4", "data x context 4", "context x tensor 1"]);
        assert_eq!(said("1x2"), ["data x data 2", "data x tensor 1", "data x context 1"]);
        assert_eq!(said("2x2x2x2"), Vec::<String>::new());
    }

    /// Whole experts lie over the nearest devices, whatever these are for besides, and over all places along axes.
    #[test]
    fn experts_lie_over_the_nearest_devices() {
        let said = |mesh: &str, experts: u64| {
            let mesh = Mesh::parse(mesh).unwrap();
            let one = |it: &Rules| {
                let axis = |it: &Ruled| if it.experts == OverExperts::Split { "split" } else { "whole" };
                format!("{}: {}", in_words(it), it.axes.iter().map(axis).collect::<Vec<_>>().join(" "))
            };
            LIMITS.rules(&mesh, 1, Some(experts)).iter().map(one).collect::<Vec<_>>()
        };
        let two = ["data x tensor", "data x context", "context x tensor", "data x data"];
        assert_eq!(said("4x2", 2), two.map(|it| format!("{it}: whole split")));
        assert_eq!(said("4x2", 8), two.map(|it| format!("{it}: split split")));
        assert_eq!(
            said("4x2", 1),
            two[..3].iter().map(|it| format!("{it}: whole whole")).collect::<Vec<_>>()
        );
        assert_eq!(said("4x2", 4), Vec::<String>::new());
        let three = ["data x context x tensor", "data x data x tensor", "data x data x context"];
        assert_eq!(said("2x2x2", 4)[..3], three.map(|it| format!("{it}: whole split split")));
        assert_eq!(said("1x2", 2)[0], "data x data: whole split");
        assert_eq!(said("4x2", 3), Vec::<String>::new());
    }

    #[test]
    fn inner_axes_are_within_nodes() {
        let all = LIMITS.meshes(16, 8);
        assert_eq!(all.iter().map(crate::mesh::sizes).collect::<Vec<_>>(), ["16", "8x2", "4x4", "2x8"]);
    }
}
