//! What is brought from where to where.
//!
//! Source: `suite_microbenchmark.py` in the artifact of Zhuang et al., "On Optimizing the
//! Communication of Model Parallelism" (MLSys 2023), branch `mlsys23-artifact` of Alpa at 7e802519:
//! the nine cases of many to many devices, of which the eighth repeats the seventh, and those of
//! one to many. Nodes have up to four devices. The last two are of the same cluster, five such nodes, and
//! not of the suite: its suite has at most eight devices that need the same.

use planner_ir::{AxisId, Digit, Layout, Mesh};
use reshard::Side;

/// One end of a case.
pub(super) struct End {
    /// How many nodes, and how many devices in each.
    pub(super) mesh: [u64; 2],
    /// For each dimension what it is split over.
    pub(super) splits: [Split; 3],
}

/// What a dimension is split over.
#[derive(Clone, Copy)]
pub(super) enum Split {
    /// Nothing.
    None,
    /// Nodes.
    Nodes,
    /// The devices of each node.
    Devices,
    /// Nodes, and the devices of each.
    Both,
}

/// A value of 32-bit integers that goes from one mesh to another.
pub(super) struct Case {
    /// What it is called.
    pub(super) name: &'static str,
    /// The shape of the whole value.
    pub(super) shape: [u64; 3],
    /// Where it is.
    pub(super) from: End,
    /// Where it has to be.
    pub(super) to: End,
}

/// 2 GiB in three dimensions.
const CUBE: [u64; 3] = [1024, 1024, 512];

/// 1 GiB in one dimension.
const ROW: [u64; 3] = [1 << 28, 1, 1];

/// Split nowhere.
const WHOLE: [Split; 3] = [Split::None; 3];

/// Split in its first dimension, over nodes.
const FIRST: [Split; 3] = [Split::Nodes, Split::None, Split::None];

/// Split in its second dimension, over nodes.
const SECOND: [Split; 3] = [Split::None, Split::Nodes, Split::None];

const fn case(
    name: &'static str,
    shape: [u64; 3],
    from: ([u64; 2], [Split; 3]),
    to: ([u64; 2], [Split; 3]),
) -> Case {
    let from = End { mesh: from.0, splits: from.1 };
    Case { name, shape, from, to: End { mesh: to.0, splits: to.1 } }
}

/// One device to all of so many nodes.
const fn one_to(name: &'static str, nodes: u64, devices: u64) -> Case {
    case(name, ROW, ([1, 1], WHOLE), ([nodes, devices], WHOLE))
}

/// All cases.
pub(super) const CASES: [Case; 17] = [
    case("1", CUBE, ([2, 4], FIRST), ([2, 4], FIRST)),
    case("2", CUBE, ([2, 4], WHOLE), ([2, 4], FIRST)),
    case("3", CUBE, ([2, 4], SECOND), ([2, 4], FIRST)),
    case(
        "4",
        CUBE,
        ([2, 4], [Split::None, Split::Both, Split::None]),
        ([2, 4], [Split::Both, Split::None, Split::None]),
    ),
    case("5", CUBE, ([2, 4], [Split::Devices, Split::None, Split::None]), ([2, 4], FIRST)),
    case("6", [3072, 1024, 170], ([2, 4], FIRST), ([3, 4], FIRST)),
    case("7, 8", CUBE, ([1, 4], [Split::Devices, Split::None, Split::None]), ([2, 4], WHOLE)),
    case("9", CUBE, ([2, 4], SECOND), ([2, 4], [Split::None, Split::None, Split::Nodes])),
    one_to("1 to 1x1", 1, 1),
    one_to("1 to 1x2", 1, 2),
    one_to("1 to 1x3", 1, 3),
    one_to("1 to 1x4", 1, 4),
    one_to("1 to 2x2", 2, 2),
    one_to("1 to 3x2", 3, 2),
    one_to("1 to 4x2", 4, 2),
    one_to("1 to 3x4", 3, 4),
    one_to("1 to 4x4", 4, 4),
];

impl End {
    /// How it is written: the mesh, and each dimension's axes, such as `2x4 (n, -, -)`.
    pub(super) fn text(&self) -> String {
        let name = |split: &Split| match split {
            Split::None => "-",
            Split::Nodes => "n",
            Split::Devices => "d",
            Split::Both => "nd",
        };
        let splits: Vec<&str> = self.splits.iter().map(name).collect();
        format!("{}x{} ({})", self.mesh[0], self.mesh[1], splits.join(", "))
    }

    /// The end as a side whose first device has this rank; nodes have as many ranks as devices, and an adapter.
    fn side(&self, first_rank: u64) -> Side {
        let mesh = Mesh::of_sizes(&self.mesh);
        let axes = |split: &Split| match split {
            Split::None => vec![],
            Split::Nodes => vec![AxisId(0)],
            Split::Devices => vec![AxisId(1)],
            Split::Both => vec![AxisId(0), AxisId(1)],
        };
        let digits = |split: &Split| axes(split).into_iter().map(|axis| Digit::axis(&mesh, axis)).collect();
        let layout = Layout { dims: self.splits.iter().map(digits).collect(), owed: vec![] }.canonical();
        Side::successive(mesh, layout, first_rank, [self.mesh[1], 1])
    }
}

impl Case {
    /// Both sides, in nodes of their own.
    pub(super) fn sides(&self) -> (Side, Side) {
        let devices = self.from.mesh[0] * self.from.mesh[1];
        (self.from.side(0), self.to.side(devices.next_multiple_of(self.to.mesh[1])))
    }
}
