//! Blocks of many operations.

use super::*;
use crate::problem::Problem;

/// Functions of one value, each of the one before; or of the first, and then their sum.
fn long(operations: usize, is_wide: bool) -> Graph {
    let mut it = Draft(Graph::default());
    let x = it.input(&[64]);
    let mut made = vec![x];
    for _ in 0..operations {
        let of = if is_wide { x } else { made[made.len() - 1] };
        let value = it.op(Op::Unary(Unary::Tanh), &[of]);
        made.push(value);
    }
    let mut sum = made[made.len() - 1];
    if is_wide {
        for &addend in &made[1..made.len() - 1] {
            sum = it.op(Op::Binary(Binary::Add), &[sum, addend]);
        }
    }
    it.0.outputs.push(Output { name: "y".to_owned(), value: sum });
    it.0
}

/// The problem of a program as one block.
fn problem(graph: &Graph) -> Problem {
    let sections = [Section::whole(graph)];
    let mesh = Mesh::parse("2").expect("is a mesh");
    let machine = shipped::named("h100-80g-2x").expect("is a machine");
    let prices = MachinePrices::new(&machine, &mesh).expect("suits");
    let cut = Cut { graph, sections: &sections };
    let known = (&prices as &dyn Prices, &rewrite::Spaces::default(), crate::clocks::Weights::ONE);
    let prepared = crate::prepare::Prepared::new(
        cut,
        &mesh,
        known,
        (rewrite::Offer::default(), crate::Live::ONE),
        (None, &[]),
    );
    let prepared = prepared.unwrap_or_else(|error| panic!("{error}"));
    prepared.assembled[0].frame.clone()
}

/// Where values wait for each other, what is held at all operations grows with the square of their number:
/// the problem says for each value how long it is held.
#[test]
fn what_is_said_of_memory_grows_with_the_number_of_operations() {
    for is_wide in [false, true] {
        let [few, many] = [500, 1000].map(|operations| problem(&long(operations, is_wide)));
        let held = |problem: &Problem| problem.live.iter().map(|it| it.windows().len()).sum::<usize>();
        let said = |problem: &Problem| (problem.live.len(), problem.windows.len(), problem.bytes.len());
        let ((lives, windows, lists), most) = (said(&many), said(&few));
        assert!(lives <= 2 * most.0 + 4 && windows <= 2 * most.1 + 4 && lists <= 2 * most.2 + 4, "{most:?}");
        assert_eq!(held(&many) > 3 * held(&few), is_wide);
    }
}
