//! Schedules by hand and programs by hand, against what they must take.

mod sharing; // links are shared as max-min fairness says
mod beside; // computing and moving slow each other down
mod clock; // chains, graphs, and tasks that wait for each other
mod rings; // collectives as messages around a ring
mod pipelines; // pipelines drawn on paper
mod script; // programs made by hand
mod programs; // what programs take
mod stages; // programs of the stages of pipelines
mod symmetry; // ranks taken together and apart
mod memory; // what is held when
mod traces; // what is written for others to show

/// Whether two times are the same but for rounding.
fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * other.abs().max(1e-30)
}
