//! The independent checker of plans: it trusts nothing that made one.
//!
//! What must hold before anything else can be looked at:
//! - **mesh**: axes have different names and sizes from 1; there are `MAX_DEVICES` at most.
//! - **devices**: the mesh has as many devices as the plan uses of its machine.
//! - **graph**: the program obeys the rules of `planner_ir::verify`.
//! - **count**: every value has a layout, every operation an assignment, every operand and output
//!   a copy, every move its bytes, and every operand and result of an operation of several steps.
//! - **reference**: values, transfers and axes that are named exist.
//!
//! Of values and operations:
//! - **layout-form**: a layout suits the mesh and the type of its value.
//! - **rest**: inputs, weights, prepared values and states owe no sum; gradients and totals may.
//! - **prepared**: what is prepared is computed from weights and constants alone.
//! - **partition**: blocks of loops are equal, every one is computed, and no loop is split that
//!   has to be whole. Over several steps nothing is passed through, or added to a sum.
//! - **operand-copy**: what is read is a copy of the operand.
//! - **operand-layout**: devices hold exactly the blocks of it that they compute with; over several
//!   steps, those from which each device is given its block of every step.
//! - **operand-owed**: it owes sums over the axes that the partition passes through the operation
//!   and, if it is added to a sum once, over those of that sum; over no others.
//! - **result-layout**: devices hold exactly the blocks of a result that they computed, or, over
//!   several steps, collected.
//! - **result-owed**: a result owes sums over the axes passed through and those along which each
//!   block of the summed loops that it does not index is computed once, in whichever step.
//!
//! Of what is returned and kept:
//! - **output**: what is returned is a copy of the output and owes no sum; a training step's is made
//!   in the update.
//! - **carried-copy**: what takes a state's place is a copy of what the state becomes.
//! - **carried-layout**: devices hold of it what they hold of the state at rest, and it owes the same
//!   sums.
//! - **part**: what an update reads is no copy that is made for every micro-batch, unless it is of
//!   what a gradient or total becomes, and no input that micro-batches read.
//! - **recipe**: it stands in plans of training steps only, has the program's micro-batches, a norm
//!   above 0 if gradients are clipped, the program's optimizer, whose decay may be left out; an
//!   input that it calls its labels is of i64.
//! - **precision**: where parameters are in f32 alone, none is in less and none has a master; where they are beside
//!   masters, each in less has one; where parameters are in bf16 alone, they have no masters, each becomes what is
//!   rounded by chance, and no two are by the same chance; else nothing in a step is.
//! - **pin**: operations that a user has fixed are there, and are computed so.
//!
//! Of transfers:
//! - **transfer-source**: it copies an earlier copy of the same value.
//! - **transfer-read**: something reads the copy, else it is counted and not made.
//! - **transfer-waits**: what is said to wait is an exchange that could run beside computing.
//! - **move**: the devices of a group hold what the move makes them exchange, and no block or
//!   addend is lost.
//! - **transfer-layout**: what devices hold after the moves is what the layout says.
//! - **bytes**: bytes are those of the elements and addends that devices lack; of an operation, those
//!   of the blocks that devices receive during its steps.
//!
//! Of what is right in every other way:
//! - **written**: layouts are written as partitions and moves write them, digit by digit: programs are made
//!   from digits as they stand.
//!
//! Of the sums:
//! - **seconds**: times are numbers from 0.
//! - **estimate**: the terms add up to the times of operations and transfers, each as often as it runs
//!   in a step.
//! - **memory**: what a device holds through a step is what is at rest. How the rest of its memory is
//!   packed is the affair of the programs, which say it byte for byte.
//! - **capacity**: it fits.
//! - **proof**: the lower bound is no more than the time.
//! - **space**: where something was left out, the space is not called saturated.
//! - **model**: hashes are ones, of the machine too, and the names of dimensions ascend.

mod blocks; // which blocks devices hold, by counting
mod moves; // what a move makes of what devices hold
mod operations; // rules of values and operations
mod generation; // rules of plans over one cache
mod pins; // rules of what a user has fixed
mod narrow; // rules of products in 8 bits
mod parts; // in which part of a training step copies are made
mod pipeline; // rules of pipelines
mod routed; // rows that are routed, by counting
mod steps; // rules of partitions in time, by counting
mod references; // what must hold before anything else can be looked at
mod states; // rules of what is returned and kept
mod rounding; // rules of parameters that are rounded by chance
mod totals; // rules of the sums
mod transfers; // rules of transfers
mod written; // how layouts are written

#[cfg(test)]
mod tests;

use planner_ir::{AxisId, Mesh, Violations};

use crate::plan::Plan;

pub use generation::{GENERATION_RULES, check_generation};
pub use pipeline::{PIPELINE_RULES, check_pipeline};

/// How many devices a mesh has at most: rules are checked device by device.
pub const MAX_DEVICES: u64 = 1 << 16;

/// The names of the rules.
pub const RULES: [&str; 35] = [
    "mesh",
    "devices",
    "graph",
    "count",
    "reference",
    "layout-form",
    "rest",
    "prepared",
    "partition",
    "operand-copy",
    "operand-layout",
    "operand-owed",
    "result-layout",
    "result-owed",
    "output",
    "carried-copy",
    "carried-layout",
    "part",
    "recipe",
    "precision",
    "pin",
    "transfer-source",
    "transfer-read",
    "transfer-waits",
    "move",
    "transfer-layout",
    "bytes",
    "written",
    "seconds",
    "estimate",
    "memory",
    "capacity",
    "proof",
    "space",
    "model",
];

/// The names of axes over which sums are owed.
fn owed_text(mesh: &Mesh, axes: &[AxisId]) -> String {
    let names: Vec<String> = axes.iter().map(|axis| format!("`{}`", mesh.axes[axis.0].name)).collect();
    if names.is_empty() { "no axis".to_owned() } else { names.join(", ") }
}

/// Whether a plan obeys the rules: it computes what its program says, and its sums are right.
pub fn check(plan: &Plan) -> Result<(), Violations> {
    let mut found = Violations(Vec::new());
    references::check(plan, &mut found);
    if found.0.is_empty() {
        operations::check(plan, &mut found);
        states::check(plan, &mut found);
        parts::check(plan, &mut found);
        pins::check(plan, &mut found);
        transfers::check(plan, &mut found);
        totals::check(plan, &mut found);
        if found.0.is_empty() {
            written::check(plan, &mut found);
        }
    }
    found.none_or(())
}

/// What an operation is called in messages.
fn operation_name(plan: &Plan, node: usize) -> String {
    match plan.graph.nodes[node].origin.as_str() {
        "" => format!("operation {node}"),
        origin => format!("operation {node} (`{origin}`)"),
    }
}
