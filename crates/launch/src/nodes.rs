//! What is said to each host, where a launcher starts one process on each and that one starts ranks.

use files::Failure;

use crate::contract::{ADDRESS, PORT, Variable, named, number};

/// The names in which it is said.
struct Contract {
    nodes: &'static str,
    node: &'static str,
    place: [&'static str; 2],
    /// How many ranks a host has.
    ranks: Option<&'static str>,
}

/// Of several the first one whose number of hosts is set: by hand; on Kubernetes, where each pod of a
/// JobSet knows its index; by Kubeflow Trainer.
const CONTRACTS: [Contract; 3] = [
    Contract { nodes: NODES, node: "SHARDLOOM_NODE", place: [ADDRESS, PORT], ranks: None },
    Contract { nodes: NODES, node: "JOB_COMPLETION_INDEX", place: [ADDRESS, PORT], ranks: None },
    Contract {
        nodes: "PET_NNODES",
        node: "PET_NODE_RANK",
        place: ["PET_MASTER_ADDR", "PET_MASTER_PORT"],
        ranks: Some("PET_NPROC_PER_NODE"),
    },
];

/// How many hosts there are.
const NODES: &str = "SHARDLOOM_NODES";

/// This host among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// How many there are.
    pub nodes: u64,
    /// Which one it is.
    pub node: u64,
    /// Where rank 0 is, unless there is one host.
    pub place: Option<(String, u16)>,
    /// How many ranks it has, if that is said.
    pub ranks: Option<u64>,
}

impl Node {
    /// What the environment says; one host if it says nothing.
    pub fn of(variable: Variable<'_>) -> Result<Self, Failure> {
        let both = |it: &&Contract| variable(it.nodes).is_some() && variable(it.node).is_some();
        let half = |it: &&Contract| variable(it.nodes).is_some();
        let Some(contract) = CONTRACTS.iter().find(both).or_else(|| CONTRACTS.iter().find(half)) else {
            return Ok(Self { nodes: 1, node: 0, place: None, ranks: None });
        };
        let Contract { nodes: names, node: name, place: [address, port], ranks } = contract;
        let of = |name: &str| variable(name).map(|text| number(name, &text)).transpose();
        let missing = |is_not: &str| {
            Failure::Input(format!(
                "`{names}` is set and `{is_not}` is not: which host this is has to be known"
            ))
        };
        let nodes = of(names)?.unwrap_or(1).max(1);
        let node = of(name)?.map_or_else(|| if nodes == 1 { Ok(0) } else { Err(missing(name)) }, Ok)?;
        if node >= nodes {
            return Err(Failure::Input(format!(
                "`{name}` is {node}, and there are {nodes} hosts: expected less"
            )));
        }
        let place = if nodes == 1 { None } else { named(address, port, variable)? };
        if nodes > 1 && place.is_none() {
            return Err(missing(address));
        }
        // Such as `auto`: then it has to be said with the command.
        let ranks = ranks.and_then(variable).and_then(|text| text.parse().ok());
        Ok(Self { nodes, node, place, ranks })
    }
}
