//! What a partition in time is called: the names are read off what moves.
//!
//! One thing that rotates over one axis is a weight or a gradient of one that is rotated (RTP), or
//! an activation that is gathered or summed in a ring. Two that rotate over two axes are a square
//! (Cannon, PrimePar), with addends along a further axis 2.5-D; two that are streamed are SUMMA,
//! with a further axis Tesseract.

use planner_ir::{AxisId, Loops, Mesh, Motion, Partition, Role, Slots, Ways};

use super::bytes;

/// An operand or a result, as it is spoken of.
pub(super) struct Spoken {
    /// What it is called.
    pub(super) name: String,
    /// Whether it is a weight or its gradient.
    pub(super) weight: bool,
    /// What a device's block takes (bytes).
    pub(super) block: u64,
}

/// What a partition in time is called, and the axes of which that says everything.
pub(super) struct Family {
    pub(super) words: String,
    pub(super) axes: Vec<AxisId>,
}

/// For each operand and then each result, how its blocks move.
pub(super) fn motions(loops: &Loops, partition: &Partition) -> Vec<Motion> {
    let operands = (0..loops.operands.len()).map(|index| partition.operand_motion(loops, index));
    operands.chain((0..loops.results.len()).map(|index| partition.result_motion(loops, index))).collect()
}

/// The axes along which blocks move.
pub(super) fn axes_of(motion: &Motion) -> Vec<AxisId> {
    match motion {
        Motion::Stationary | Motion::Whole => vec![],
        Motion::Rotating(shift) => shift.axes(),
        Motion::Streaming(axis) => vec![*axis],
    }
}

/// The two axes of a partition in which two things move over two axes.
pub(super) fn square(motions: &[Motion]) -> Option<[AxisId; 2]> {
    let moving: Vec<Vec<AxisId>> = motions.iter().map(axes_of).filter(|axes| !axes.is_empty()).collect();
    let mut axes = moving.concat();
    axes.sort_unstable();
    axes.dedup();
    if moving.len() == 2 { <[AxisId; 2]>::try_from(axes).ok() } else { None }
}

/// What a partition of several steps is called; `spoken` are its operands and then its results.
pub(super) fn family(mesh: &Mesh, loops: &Loops, partition: &Partition, spoken: &[Spoken]) -> Family {
    let motions = motions(loops, partition);
    let names = |axes: &[AxisId]| {
        axes.iter().map(|axis| mesh.axes[axis.0].name.as_str()).collect::<Vec<_>>().join(", ")
    };
    if let Some(square) = square(&motions) {
        let streams = motions.iter().any(|it| matches!(it, Motion::Streaming(_)));
        let further: Vec<AxisId> =
            partition.axes().into_iter().filter(|axis| !square.contains(axis)).collect();
        let all = [&square[..], &further].concat();
        let sums = |it: &planner_ir::LoopId| {
            loops.get(*it).role == Role::Sum
                && partition.loops[it.0].iter().any(|it| it.terms.iter().any(|it| further.contains(&it.0)))
        };
        return match (streams, &further[..]) {
            (true, [_]) => {
                let sizes: Vec<String> = all.iter().map(|&axis| mesh.size(axis).to_string()).collect();
                Family { words: format!("Tesseract {} over {}", sizes.join("x"), names(&all)), axes: all }
            }
            (true, _) => Family { words: format!("SUMMA over {}", names(&square)), axes: square.to_vec() },
            (false, _) => {
                let kind = if loops.ids().any(|it| sums(&it)) { "2.5-D" } else { "2-D" };
                Family { words: format!("{kind} square over {}", names(&square)), axes: square.to_vec() }
            }
        };
    }
    let one = |(index, (motion, it)): (usize, (&Motion, &Spoken))| {
        let Spoken { name, weight, block } = it;
        let over = names(&axes_of(motion));
        let result = index >= loops.operands.len();
        let verb = match (motion, weight, result) {
            (Motion::Stationary | Motion::Whole, ..) => return None,
            (Motion::Rotating(_), true, _) => format!("rotates {name}"),
            (Motion::Rotating(_), false, false) => format!("ring all-gather of {name}"),
            (Motion::Rotating(_), false, true) => format!("ring reduce-scatter of {name}"),
            (Motion::Streaming(_), _, false) => format!("broadcasts {name}"),
            (Motion::Streaming(_), _, true) => format!("reduces {name}"),
        };
        let how = match motion {
            Motion::Rotating(_) => format!("{} shifts of {}", partition.steps - 1, bytes(*block)),
            _ => format!("{} blocks of {}", partition.steps, bytes(*block)),
        };
        let ways = if partition.ways == Ways::Both { " both ways" } else { "" };
        let ways = if partition.slots == Slots::One && matches!(motion, Motion::Rotating(_)) {
            format!("{ways} in place")
        } else {
            ways.to_owned()
        };
        Some(format!("{verb}{ways} over {over} ({how})").replace("(1 shifts", "(1 shift"))
    };
    let words: Vec<String> = motions.iter().zip(spoken).enumerate().filter_map(one).collect();
    let words = if words.is_empty() { format!("in {} steps", partition.steps) } else { words.join(", ") };
    Family { words, axes: vec![] }
}
