//! What a server of a model runs: plans of inference in which each axis of a mesh does one thing.
//!
//! Devices fall into replicas, which are servers of their own and share nothing; those of a server into data
//! parallel groups, each with sequences of its own; those of a group compute attention heads and hidden units of
//! the same sequences. Experts are shared by all devices of a server, as whole experts or by their hidden units.
//!
//! Source: vLLM 0.33, `vllm/config/parallel.py`; SGLang 0.5.23, `sglang/srt/arg_groups/fields/parallel.py`;
//! TensorRT-LLM, `docs/source/features/parallel-strategy.md`.

use plan::{ExpertsBy, Parallelism, Served, common_divisor};
use planner_ir::{Axis, Graph, Mesh, Op};
use search::{OverExperts, Ruled, Rules};

use crate::mesh::divisors;

/// What a runtime serves of what there is to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingLimits {
    /// What it is called.
    pub title: &'static str,
    /// Whether data parallel groups of a server share experts.
    pub data: bool,
    /// Whether such groups may have several devices each.
    pub mixed: bool,
    /// Whether several devices of a group may have the same heads of keys.
    pub same_keys: bool,
}

/// What of a model decides among how many devices it can be shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// How many sequences there are at once.
    pub sequences: u64,
    /// Heads of queries, and of keys, if it has attention.
    pub heads: Option<[u64; 2]>,
    /// How many experts a layer has, if it has some.
    pub experts: Option<u64>,
}

impl Shared {
    /// What a program says, of so many sequences.
    pub fn of(graph: &Graph, sequences: u64) -> Self {
        let mut shared = Self { sequences, ..Self::default() };
        for node in &graph.nodes {
            let count = |operand: usize, dim: usize| {
                graph.type_of(node.operands[operand]).shape.get(dim).copied().unwrap_or(1)
            };
            match node.op {
                Op::Attention(_) => shared.heads = shared.heads.or(Some([count(0, 1), count(1, 1)])),
                Op::Experts { .. } => shared.experts = shared.experts.or(Some(count(2, 0))),
                _ => {}
            }
        }
        shared
    }
}

impl ServingLimits {
    /// The ways to share a model among so many devices in nodes of so many.
    pub fn ways(&self, shared: &Shared, devices: u64, node: u64) -> Vec<Served> {
        let mut ways = Vec::new();
        for tensor in divisors(devices, devices) {
            let splits_heads = shared.heads.is_none_or(|[queries, keys]| {
                queries.is_multiple_of(tensor)
                    && (keys.is_multiple_of(tensor) || self.same_keys && tensor.is_multiple_of(keys.max(1)))
            });
            if !splits_heads || tensor > node && !tensor.is_multiple_of(node) {
                continue;
            }
            for data in divisors(devices / tensor, devices) {
                let replicas = devices / tensor / data;
                let experts = match shared.experts {
                    // Without experts groups share nothing: servers and groups are one thing.
                    None if replicas > 1 => continue,
                    None => vec![None],
                    Some(_) if data > 1 && (!self.data || tensor > 1 && !self.mixed) => continue,
                    Some(_) if data * tensor == 1 => vec![None],
                    Some(count) => {
                        let whole = count.is_multiple_of(data * tensor).then_some(ExpertsBy::Experts);
                        whole.into_iter().chain([ExpertsBy::Units]).map(Some).collect()
                    }
                };
                if shared.sequences.is_multiple_of(replicas * data) {
                    ways.extend(experts.into_iter().map(|it| Served { replicas, data, tensor, experts: it }));
                }
            }
        }
        ways
    }
}

/// The mesh, and what its axes are for. Where there are more devices of a group than heads of keys, several
/// have the same ones: they are along an axis of their own.
pub fn ruled(served: &Served, shared: &Shared) -> (Mesh, Rules) {
    let over = match served.experts {
        None => OverExperts::AsOthers,
        Some(ExpertsBy::Experts) => OverExperts::Split,
        Some(ExpertsBy::Units) => OverExperts::Units,
    };
    let keys = shared.heads.map_or(served.tensor, |[_, keys]| common_divisor(served.tensor, keys));
    let heads = if keys > 1 { keys } else { served.tensor };
    let axes = [
        ("replica", served.replicas, Parallelism::Data, OverExperts::AsOthers),
        ("data", served.data, Parallelism::Data, over),
        ("tensor", heads, Parallelism::Tensor, over),
        ("same_keys", served.tensor / heads, Parallelism::Tensor, over),
    ];
    let mut axes: Vec<_> = axes.into_iter().filter(|it| it.1 > 1).collect();
    if axes.is_empty() {
        axes.push(("data", 1, Parallelism::Data, OverExperts::AsOthers));
    }
    let mesh = Mesh { axes: axes.iter().map(|it| Axis { name: it.0.to_owned(), size: it.1 }).collect() };
    let axes = axes.into_iter().map(|it| Ruled { role: it.2, experts: it.3, shards: false }).collect();
    (mesh, Rules { axes, sequence: false, zero: 0, exact: false, sums_once: false })
}

#[cfg(test)]
mod tests {
    use plan::{ExpertsBy, Served};

    use super::{ServingLimits, Shared, ruled};

    const SERVER: ServingLimits = ServingLimits { title: "server", data: true, mixed: true, same_keys: true };

    fn ways(limits: &ServingLimits, shared: &Shared, devices: u64, node: u64) -> Vec<String> {
        let shown = |it: &Served| {
            let (mesh, rules) = ruled(it, shared);
            assert_eq!((mesh.devices(), mesh.axes.len()), (devices, rules.axes.len()));
            format!("{} on {mesh}", it.in_words())
        };
        limits.ways(shared, devices, node).iter().map(shown).collect()
    }

    #[test]
    fn heads_and_sequences_are_split_evenly() {
        let shared = Shared { sequences: 2, heads: Some([8, 4]), experts: None };
        let expected = ["data 2, tensor 2 on data=2,tensor=2", "tensor 4 on tensor=4"];
        assert_eq!(ways(&SERVER, &shared, 4, 8), expected);
        let shared = Shared { sequences: 1, heads: Some([8, 2]), experts: None };
        assert_eq!(ways(&SERVER, &shared, 4, 8), ["tensor 4 on tensor=2,same_keys=2"]);
        assert!(ways(&ServingLimits { same_keys: false, ..SERVER }, &shared, 4, 8).is_empty());
        let shared = Shared { sequences: 1, heads: Some([6, 6]), experts: None };
        assert!(ways(&SERVER, &shared, 4, 8).is_empty());
        assert!(ways(&SERVER, &shared, 6, 4).is_empty());
    }

    #[test]
    fn devices_of_a_server_share_experts() {
        let shared = Shared { sequences: 4, heads: Some([4, 4]), experts: Some(4) };
        let all = SERVER.ways(&shared, 2, 8);
        let of = |replicas, data, tensor, experts| Served { replicas, data, tensor, experts };
        let both = [Some(ExpertsBy::Experts), Some(ExpertsBy::Units)];
        let mut expected = vec![of(2, 1, 1, None)];
        expected.extend(both.map(|it| of(1, 2, 1, it)));
        expected.extend(both.map(|it| of(1, 1, 2, it)));
        assert_eq!(all, expected);
        let odd = Shared { experts: Some(3), ..shared };
        assert!(SERVER.ways(&odd, 2, 8).iter().all(|it| it.experts != Some(ExpertsBy::Experts)));
        let mixed = |limits: &ServingLimits| {
            limits.ways(&shared, 4, 8).iter().any(|it| it.data == 2 && it.tensor == 2)
        };
        assert!(mixed(&SERVER) && !mixed(&ServingLimits { mixed: false, ..SERVER }));
        let none = ServingLimits { data: false, ..SERVER };
        assert!(none.ways(&shared, 4, 8).iter().all(|it| it.data == 1));
    }
}
