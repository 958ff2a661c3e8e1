//! What a rank runs when.

use lower::{Program, Stream};
use simulate::Span;

/// What runs on some streams, in the order in which it starts.
pub(super) fn on(program: &Program, spans: &[Span], wanted: &dyn Fn(Stream) -> bool) -> Vec<Span> {
    let of = |span: &&Span| wanted(program.instructions[span.instruction].stream);
    let mut all: Vec<Span> = spans.iter().filter(of).copied().collect();
    all.sort_by(|a, b| a.start.total_cmp(&b.start));
    all
}
