//! Sums over ranks: the same element of several values.

use planner_ir::DType;

use super::launch::{Argument, Kernel, Launch, Work};
use super::number::{computed, narrowed};
use super::strides::{Arguments, signed};
use super::text::filled;

const TEMPLATE: &str = include_str!("templates/sum.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// The sum of so many values of that many elements, in their order, rounded once; result 0 may be one
/// of them.
pub fn summed(dtype: DType, addends: usize, elements: u64) -> Work {
    if elements == 0 || addends == 0 {
        return Work::default();
    }
    let mut arguments = Arguments::default();
    let mut terms = String::new();
    for number in 0..addends {
        arguments.reads(&format!("x{number}"), dtype, Argument::Operand(number));
        let load = format!("t_load_{}_1(x{number} + at, &one);", dtype.name());
        terms.push_str(&format!("    {load} sum {}= one;\n", if number == 0 { "" } else { "+" }));
    }
    arguments.writes("y", dtype, Argument::Result(0));
    arguments.integer("count", signed(elements));
    let source = filled(
        TEMPLATE,
        &[
            ("PARAMETERS", &arguments.text()),
            ("T", computed(dtype)),
            ("TERMS", &terms),
            ("SUM", &narrowed(dtype, "sum")),
        ],
    );
    let launch = Launch {
        kernel: Kernel::new("sum", &source, arguments.parameters),
        blocks: elements.div_ceil(THREADS),
        threads: 256,
        shared: 0,
        arguments: arguments.given,
    };
    Work { launches: vec![launch], room: 0 }
}
