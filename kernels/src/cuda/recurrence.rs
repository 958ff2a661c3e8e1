//! States that go from token to token.

use planner_ir::Recurrence;

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::{computed, suffix};
use super::strides::{Arguments, signed};
use super::text::filled;

const TEMPLATE: &str = include_str!("templates/recurrence.cu");

/// The threads of a block.
const THREADS: u64 = 128;

/// The results of all tokens and the last state; gradients have no kernel.
pub(super) fn recurrence(it: Recurrence, operands: &[Piece], results: &[Piece]) -> Result<Work, Uncovered> {
    let ([_, k, v, g, ..], [y, state]) = (operands, results) else {
        return Err(Uncovered::Missing(format!("{it:?} of {} operands", operands.len())));
    };
    if it.gradient().is_none() || operands.len() != it.operands() {
        return Err(Uncovered::Missing(format!("{it:?}: train a model with it on processors")));
    }
    let &[batches, tokens, heads, columns] = &v.type_.shape[..] else {
        return Err(Uncovered::Missing(format!("a recurrence of {}", v.type_)));
    };
    let [groups, rows] = [k.type_.shape[2], k.type_.shape[3]];
    let lines = batches * heads * columns;
    if lines == 0 {
        return Ok(Work::default());
    }
    let dtype = v.type_.dtype;
    let mut arguments = Arguments::default();
    let names: &[&str] =
        if it.replaces() { &["q", "k", "v", "g", "rates", "start"] } else { &["q", "k", "v", "g", "start"] };
    for (number, (name, operand)) in names.iter().zip(operands).enumerate() {
        arguments.reads(name, operand.type_.dtype, Argument::Operand(number));
    }
    arguments.writes("y", y.type_.dtype, Argument::Result(0));
    arguments.writes("last", state.type_.dtype, Argument::Result(1));
    for (name, number) in [
        ("lines", lines),
        ("tokens", tokens),
        ("groups", groups),
        ("heads", heads),
        ("rows", rows),
        ("columns", columns),
    ] {
        arguments.integer(name, signed(number));
    }
    let own = g.type_.shape[3] != 1;
    let decay = |indent: &str, place: &str| {
        let (name, exp) = (g.type_.dtype.name(), suffix(dtype));
        format!("{indent}t_load_{name}_1(g + {place}, &decay);\n{indent}left = t_exp_{exp}(decay);\n")
    };
    let once = if own { String::new() } else { decay("        ", "own") };
    let each = if own { decay("            ", "own * rows + row") } else { String::new() };
    let held = state.type_.dtype.name();
    // Before anything is added, a delta rule asks what is there of the key.
    let found = if it.replaces() {
        let rate = operands[4].type_.dtype.name();
        format!(
            "        sum = 0;
        for (t_i64 row = 0; row < rows; row++) {{
            t_load_{held}_1(last + first + row * columns, &held);
            t_load_{}_1(k + keys + row, &key);
{each}            held *= left;
            sum += key * held;
            t_store_{held}_1(last + first + row * columns, &held);
        }}
        t_load_{rate}_1(rates + own, &decay);
        value = decay * (value - sum);
",
            dtype.name()
        )
    } else {
        String::new()
    };
    let (each, left) = if it.replaces() { (String::new(), "") } else { (each, " * left") };
    let parameters = arguments.text();
    let texts = [
        ("PARAMETERS", parameters.as_str()),
        ("T", computed(dtype)),
        ("D", dtype.name()),
        ("MADE", y.type_.dtype.name()),
        ("STATE", held),
        ("ONCE", &once),
        ("EACH", &each),
        ("FOUND", &found),
        ("LEFT", left),
    ];
    let launch = Launch {
        kernel: Kernel::new("recurrence", &filled(TEMPLATE, &texts), arguments.parameters),
        blocks: lines.div_ceil(THREADS),
        threads: 128,
        shared: 0,
        arguments: arguments.given,
    };
    Ok(Work { launches: vec![launch], room: 0 })
}
