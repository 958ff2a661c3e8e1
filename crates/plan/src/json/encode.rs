//! From a plan to what a file says.

use std::collections::BTreeMap;

use planner_ir::{Digit, Layout, Mesh, Partition};

use super::file;
use crate::pin::Pin;
use crate::plan::{Assignment, Copy, LeftOut, Plan, Proof};

/// Things that stand once each in a table, by their place in it.
struct Table<'a, T>(BTreeMap<&'a T, usize>);

impl<'a, T: Ord> Table<'a, T> {
    fn of(all: impl Iterator<Item = &'a T>) -> Self {
        let mut table = BTreeMap::new();
        for it in all {
            let next = table.len();
            table.entry(it).or_insert(next);
        }
        Self(table)
    }

    fn place(&self, it: &T) -> usize {
        self.0.get(it).copied().unwrap_or(usize::MAX)
    }

    fn texts(&self, text: impl Fn(&T) -> String) -> Vec<String> {
        let mut ordered: Vec<(usize, &T)> = self.0.iter().map(|(&it, &place)| (place, it)).collect();
        ordered.sort_unstable_by_key(|&(place, _)| place);
        ordered.into_iter().map(|(_, it)| text(it)).collect()
    }
}

/// What the file of a plan says.
pub(super) fn body(plan: &Plan) -> file::Body {
    let mesh = &plan.mesh;
    let copies = plan.transfers.iter().map(|transfer| &transfer.layout);
    let layouts: Table<'_, Layout> = Table::of(plan.layouts.iter().chain(copies));
    let partitions: Table<'_, Partition> = {
        let pinned = plan.pins.iter().map(|pin| &pin.partition);
        Table::of(plan.assignments.iter().filter_map(partition).chain(pinned))
    };
    let operation = |assignment: &Assignment| match assignment {
        Assignment::Prepared => file::Operation::Prepared,
        Assignment::Computed { partition, operands, bytes, seconds, exchanged } => {
            file::Operation::Computed(file::Computed {
                partition: partitions.place(partition),
                operands: operands.iter().copied().map(copy).collect(),
                bytes: bytes.clone(),
                seconds: *seconds,
                exchanged: exchanged.rows,
                links: exchanged.links,
            })
        }
    };
    let transfer = |it: &crate::Transfer| file::Transfer {
        value: it.value.0,
        from: copy(it.from),
        moves: it.moves.iter().map(|step| step_of(mesh, step)).collect(),
        layout: layouts.place(&it.layout),
        bytes: it.bytes.clone(),
        seconds: it.takes(),
        each: (it.moves.len() > 1).then(|| it.seconds.clone()),
        waits: it.waits,
    };
    let pin = |it: &Pin| file::Pin {
        operations: it.operations.clone(),
        partition: partitions.place(&it.partition),
    };
    file::Body {
        model: file::Model {
            path: plan.model.path.clone(),
            sha256: plan.model.sha256.clone(),
            dims: plan.model.dims.iter().map(|(name, size)| sized(name, *size)).collect(),
        },
        machine: file::Machine::from(&plan.machine),
        mesh: mesh.axes.iter().map(|axis| sized(&axis.name, axis.size)).collect(),
        graph: plan.graph.to_string().lines().map(str::to_owned).collect(),
        layouts: layouts.texts(|layout| layout.display(mesh).to_string()),
        partitions: partitions.texts(|partition| partition.display(mesh).to_string()),
        values: plan.layouts.iter().map(|layout| layouts.place(layout)).collect(),
        operations: plan.assignments.iter().map(operation).collect(),
        transfers: plan.transfers.iter().map(transfer).collect(),
        outputs: plan.outputs.iter().copied().map(copy).collect(),
        carried: plan.carried.iter().copied().map(copy).collect(),
        recipe: plan.recipe.as_ref().map(file::Recipe::of),
        pins: plan.pins.iter().map(pin).collect(),
        controls: plan.controls.iter().map(control).collect(),
        estimate: plan.estimate.iter().map(term).collect(),
        hidden: file::Hidden { forward: plan.hidden.forward, backward: plan.hidden.backward },
        memory: plan.memory.iter().map(holding).collect(),
        capacity: plan.capacity,
        proof: match plan.proof {
            Proof::Optimal => file::Proof::Optimal,
            Proof::Gap { lower_bound } => file::Proof::Gap { lower_bound },
        },
        space: file::Space {
            unique_blocks: plan.space.unique_blocks,
            blocks: plan.space.blocks,
            nodes: plan.space.nodes,
            classes: plan.space.classes,
            saturated: plan.space.saturated,
            left_out: plan.space.left_out.iter().copied().map(left_out).collect(),
            choices: plan.space.choices,
        },
    }
}

fn left_out(it: LeftOut) -> file::LeftOut {
    match it {
        LeftOut::Stripes => file::LeftOut::Stripes,
        LeftOut::Skews => file::LeftOut::Skews,
        LeftOut::Steps => file::LeftOut::Steps,
        LeftOut::Splits => file::LeftOut::Splits,
    }
}

fn partition(assignment: &Assignment) -> Option<&Partition> {
    match assignment {
        Assignment::Prepared => None,
        Assignment::Computed { partition, .. } => Some(partition),
    }
}

fn sized(name: &str, size: u64) -> file::Sized {
    file::Sized { name: name.to_owned(), size }
}

fn copy(copy: Copy) -> file::Copy {
    match copy {
        Copy::Made => file::Copy::Made,
        Copy::Transferred(transfer) => file::Copy::Transferred(transfer),
    }
}

fn step_of(mesh: &Mesh, step: &planner_ir::Move) -> file::Move {
    use planner_ir::Move;
    match step {
        Move::Slice { dim, digits } => file::Move::Slice { dim: *dim, digits: digits_of(mesh, digits) },
        Move::AllGather { dim, digits } => file::Move::AllGather { dim: *dim, digits: *digits },
        Move::AllReduce { axes } => {
            let name = |axis: &planner_ir::AxisId| match mesh.axes.get(axis.0) {
                Some(axis) => axis.name.clone(),
                None => "?".to_owned(),
            };
            file::Move::AllReduce { axes: axes.iter().map(name).collect() }
        }
        Move::ReduceScatter { dim, digits } => {
            file::Move::ReduceScatter { dim: *dim, digits: digits_of(mesh, digits) }
        }
        Move::AllToAll { from, to, digits } => {
            file::Move::AllToAll { from: *from, to: *to, digits: digits_of(mesh, digits) }
        }
        Move::Permute { dims } => {
            let layout = Layout { dims: dims.clone(), owed: vec![] };
            file::Move::Permute { dims: layout.display(mesh).to_string() }
        }
    }
}

fn control(it: &crate::Control) -> file::Control {
    file::Control { name: it.name.clone(), shape: it.shape.clone(), value: it.value }
}

pub(super) fn term(it: &crate::Term) -> file::Term {
    file::Term { name: it.name.clone(), seconds: it.seconds }
}

pub(super) fn holding(it: &crate::Holding) -> file::Holding {
    file::Holding { kind: it.kind.clone(), bytes: it.bytes }
}

/// Digits as they stand in the text form of a layout.
fn digits_of(mesh: &Mesh, digits: &[Digit]) -> String {
    let layout = Layout { dims: vec![digits.to_vec()], owed: vec![] };
    let text = layout.display(mesh).to_string();
    text[1..text.len() - 1].to_owned()
}
