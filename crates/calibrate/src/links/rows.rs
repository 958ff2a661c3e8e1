//! What is timed of exchanges, and what it is priced by.

use cost_models::collective;
use cost_models::machine::Machine;
use cost_models::quantity;
use cost_models::topology::Topology;
use cost_models::units::Bytes;
use device::Exchanged;

use super::Ranks;

/// The least value that is exchanged (bytes), and how many times larger each next one is.
const SMALLEST: u64 = 8;
const STEP: u64 = 4;

/// Which ranks exchange with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// All.
    All,
    /// Those of each node, all nodes at the same time.
    Node,
    /// The first two of each node, all nodes at the same time.
    Two,
}

impl Among {
    /// Those that are different from each other.
    pub fn all(ranks: Ranks) -> Vec<Self> {
        let mut all = vec![Self::All];
        if ranks.nodes > 1 && ranks.each > 1 {
            all.push(Self::Node);
        }
        if ranks.each > 2 {
            all.push(Self::Two);
        }
        all
    }

    /// The sets of ranks that this is: no two have a rank in common.
    pub fn groups(self, ranks: Ranks) -> Vec<Vec<u64>> {
        let of_nodes = |count: u64| (0..ranks.nodes).map(move |it| it * ranks.each..it * ranks.each + count);
        match self {
            Self::All => vec![(0..ranks.all()).collect()],
            Self::Node => of_nodes(ranks.each).map(Iterator::collect).collect(),
            Self::Two => of_nodes(2).map(Iterator::collect).collect(),
        }
    }

    fn name(self, ranks: Ranks) -> String {
        let count = self.groups(ranks).first().map_or(0, Vec::len);
        match self {
            Self::All if ranks.nodes > 1 => format!("{count} ranks of {} nodes", ranks.nodes),
            _ => format!("{count} ranks"),
        }
    }
}

/// An exchange that is timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Its name in notes and tables.
    pub name: String,
    /// What is exchanged.
    pub what: Exchanged,
    /// The size of the value (bytes).
    pub bytes: u64,
    /// Among which sets of ranks, by their number.
    pub group: usize,
    /// The ranks of one of them, and how all are on nodes.
    members: Vec<u64>,
    ranks: Ranks,
}

impl Timed {
    /// What prices say it takes (seconds), on nodes of a machine; nothing where it is no such machine.
    pub fn priced(&self, machine: &Machine) -> Option<f64> {
        let node = machine.node.devices.value.0;
        let devices = if self.ranks.nodes > 1 { node * self.ranks.nodes } else { self.ranks.each };
        let machine = machine.clone().with_devices(devices).ok()?;
        let place = |rank: &u64| rank / self.ranks.each * node + rank % self.ranks.each;
        let ranks: Vec<u64> = self.members.iter().map(place).collect();
        let group = Topology::of(&machine).alone(&ranks).ok()?;
        let price = match self.what {
            Exchanged::AllReduce => collective::all_reduce,
            Exchanged::AllGather => collective::ring_all_gather,
            Exchanged::ReduceScatter => collective::reduce_scatter,
            Exchanged::AllToAll => collective::all_to_all,
            Exchanged::Broadcast => collective::broadcast,
            Exchanged::Send => collective::send,
        };
        Some(price(&machine, &group, Bytes(self.bytes)).0)
    }
}

/// Everything that is timed with room for values of so many bytes.
pub(super) fn all(among: &[Among], ranks: Ranks, room: u64) -> Vec<Timed> {
    let mut all: Vec<Timed> = Vec::new();
    for (group, among) in among.iter().enumerate() {
        let members = among.groups(ranks).into_iter().next().unwrap_or_default();
        let count = u64::try_from(members.len()).unwrap_or(u64::MAX);
        // Two that exchange all parts do what two that send do.
        let whats = Exchanged::ALL.into_iter().filter(|it| count > 2 || *it != Exchanged::AllToAll);
        for what in whats {
            let sizes = std::iter::successors(Some(SMALLEST), |it| it.checked_mul(STEP));
            let sizes = sizes.map(|it| it.next_multiple_of(what.granule(count)));
            for bytes in sizes.take_while(|it| *it <= room) {
                let name =
                    format!("{} of {} among {}", what.name(), quantity::bytes(bytes), among.name(ranks));
                if all.last().is_none_or(|it| it.name != name) {
                    all.push(Timed { name, what, bytes, group, members: members.clone(), ranks });
                }
            }
        }
    }
    all
}
