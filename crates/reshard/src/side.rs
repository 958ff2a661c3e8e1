//! The ranks at one end, and what each holds.

use planner_ir::{Digit, Layout, Mesh, Piece, Type};

use crate::error::{End, ReshardError};
use crate::portion::{Portion, Span};

/// Where a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Its rank among all of the cluster.
    pub rank: u64,
    /// Its node.
    pub node: u64,
    /// Its adapter to other nodes, of those that its node has. Several devices may share one.
    pub adapter: u64,
}

/// An adapter of a node to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Adapter {
    /// The node.
    pub(crate) node: u64,
    /// Which of the node's adapters.
    pub(crate) place: u64,
}

impl Place {
    /// The adapter by which the device reaches other nodes.
    pub(crate) fn way_out(&self) -> Adapter {
        Adapter { node: self.node, place: self.adapter }
    }
}

/// The adapters of some devices, ascending, each once.
pub(crate) fn adapters(places: &[Place]) -> Vec<Adapter> {
    let mut all: Vec<Adapter> = places.iter().map(Place::way_out).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// One end of the way: a mesh somewhere in the cluster, and the value's layout on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The devices as a grid.
    pub mesh: Mesh,
    /// Which blocks each of them holds or needs.
    pub layout: Layout,
    /// For each device of the mesh where it is. Both sides may have devices in one node, but no
    /// rank in common.
    pub places: Vec<Place>,
}

impl Side {
    /// A mesh of successive ranks, in nodes of so many devices and so many adapters, each for an equal run
    /// of the devices: rank r is device `r % devices` of node `r / devices`.
    pub fn successive(mesh: Mesh, layout: Layout, first_rank: u64, [devices, adapters]: [u64; 2]) -> Self {
        let devices = devices.max(1);
        let place = |device| {
            let rank = first_rank + device;
            Place { rank, node: rank / devices, adapter: rank % devices * adapters / devices }
        };
        let places = (0..mesh.devices()).map(place).collect();
        Self { mesh, layout, places }
    }

    /// The device of a rank.
    pub fn device(&self, rank: u64) -> Option<u64> {
        (0..).zip(&self.places).find(|(_, place)| place.rank == rank).map(|(device, _)| device)
    }

    /// Where a portion of the whole value lies in what a device holds, row-major in the layout's
    /// local shape. There is nothing if the device does not hold all of it, or not in one piece.
    pub fn local(&self, type_: &Type, device: u64, portion: &Portion) -> Option<Portion> {
        let pieces = self.layout.pieces(&self.mesh, device, &type_.shape);
        if portion.spans.len() != pieces.len() {
            return None;
        }
        let spans = portion.spans.iter().zip(&pieces).map(|(span, pieces)| local(*span, pieces));
        Some(Portion { spans: spans.collect::<Option<_>>()? })
    }

    /// Whether a value of that type can be on this side.
    pub(crate) fn check(&self, end: End, type_: &Type) -> Result<(), ReshardError> {
        self.layout.check(&self.mesh, type_).map_err(|error| ReshardError::Layout(end, error))?;
        if !self.layout.owed.is_empty() {
            let name = |axis: &planner_ir::AxisId| self.mesh.axes[axis.0].name.clone();
            return Err(ReshardError::Owed(end, self.layout.owed.iter().map(name).collect()));
        }
        let devices = self.mesh.devices();
        if u64::try_from(self.places.len()) != Ok(devices) {
            return Err(ReshardError::Places(end, self.places.len(), devices));
        }
        Ok(())
    }

    /// The places that hold each block, in the order of blocks, dimension by dimension; blocks
    /// have no digit for what every device holds.
    pub(crate) fn holders(&self) -> Vec<Vec<Place>> {
        let digits: Vec<&Digit> = self.layout.dims.iter().flatten().filter(|it| !it.is_free()).collect();
        let blocks = usize::try_from(self.layout.parts()).unwrap_or(0);
        let mut holders = vec![Vec::new(); blocks];
        for (device, place) in (0..).zip(&self.places) {
            let coordinates = self.mesh.coordinates(device);
            let block = digits.iter().fold(0, |block, digit| block * digit.size + digit.at(&coordinates, 0));
            if let Some(holders) = usize::try_from(block).ok().and_then(|block| holders.get_mut(block)) {
                holders.push(*place);
            }
        }
        holders
    }
}

/// Where a span lies in what has these factors of a dimension; the last factor counts inside a
/// block.
fn local(span: Span, pieces: &[Piece]) -> Option<Span> {
    let mut unit: u64 = pieces.iter().map(|piece| piece.size).product();
    if span.length == 0 || span.start.checked_add(span.length)? > unit {
        return None;
    }
    let mut start = 0;
    for piece in pieces {
        unit /= piece.size;
        let digit = span.start / unit % piece.size;
        match piece.index {
            Some(index) if index == digit => {}
            Some(_) => return None,
            None => start = start * piece.size + digit,
        }
    }
    let block = pieces.last()?.size;
    (span.start % block + span.length <= block).then_some(Span { start, length: span.length })
}
