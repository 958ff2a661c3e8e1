//! Blocks of many operations.

use super::*;
use crate::prepare::held_at_operations;

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

#[test]
fn what_a_chain_holds_grows_with_its_length() {
    for operations in [100, 1000] {
        let most = u64::try_from(operations).expect("is small");
        assert_eq!(held_at_operations(&long(operations, false)), most - 1);
        assert!(held_at_operations(&long(operations, true)) > most * most / 2);
    }
}

#[test]
fn a_block_that_holds_too_much_is_refused() {
    let blocks = rewrite::blocks(&long(2, true));
    let mut sections = sections(&blocks);
    sections[0].graph = long(6000, true);
    let mesh = Mesh::parse("2").expect("is a mesh");
    let machine = shipped::named("h100-80g-2x").expect("is a machine");
    let prices = MachinePrices::new(&machine, &mesh).expect("suits");
    let cut = Cut { graph: &blocks.graph, sections: &sections };
    let known = (&prices as &dyn Prices, &rewrite::Spaces::default(), crate::clocks::Weights::ONE);
    let refused =
        Prepared::new(cut, &mesh, known, (rewrite::Offer::default(), crate::Live::ONE), (None, &[]));
    let error = refused.err().map(|it| it.to_string()).unwrap_or_default();
    assert!(error.contains("the limit is 4194304"), "{error}");
}
