//! Spaces of programs in which what is alike stands once.

use std::collections::BTreeSet;

use super::*;

/// A sum, in a tree of these many operands, of the functions of so many products of one value; what is returned.
fn sum(products: usize, addends: usize) -> (Graph, ValueId) {
    let mut it = Draft(Graph::default());
    let x = it.input(&[8, 64]);
    let product = |it: &mut Draft| {
        let weight = it.weight(&[64, 16]);
        let made = it.contract("ak", "kn", "an", &[x, weight]);
        it.op(Op::Unary(Unary::Tanh), &[made])
    };
    let mut all: Vec<ValueId> = (0..products).map(|_| product(&mut it)).collect();
    while all.len() > 1 {
        let sum = |of: &[ValueId]| {
            let [first, others @ ..] = of else { unreachable!("nothing is summed") };
            others.iter().fold(*first, |sum, &other| it.op(Op::Binary(Binary::Add), &[sum, other]))
        };
        all = all.chunks(addends).map(sum).collect();
    }
    it.0.outputs.push(planner_ir::Output { name: "y".to_owned(), value: all[0] });
    (it.0, all[0])
}

#[test]
fn nothing_is_missing_of_a_space_in_which_what_is_alike_stands_once() {
    let (graph, y) = sum(30, 4);
    for (sizes, steps) in [(&[4][..], Steps::Offered), (&[2, 2], Steps::Offered), (&[2, 3], Steps::One)] {
        let mesh = Mesh::of_sizes(sizes);
        let offer = Offer { steps, ..Offer::default() };
        let of = |graph: &Graph, boundary: &[ValueId]| {
            saturated(graph, &mesh, boundary, offer, &mut Alike::default())
        };
        let whole = of(&graph, &[y]).expect("is sound");
        let once = Once::of(&graph, &[y]);
        assert!(once.graph.nodes.len() < 20, "{}", once.graph.nodes.len());
        let alike = of(&once.graph, &[once.values[y.0]]).expect("is sound");
        assert!(4 * alike.statistics.nodes < whole.statistics.nodes);
        let spread = once.spread(&alike);
        for (node, (one, other)) in graph.nodes.iter().zip(whole.choices.iter().zip(&spread.choices)) {
            let shown = |space: &Space, choices: &[Choice]| -> BTreeSet<String> {
                let layouts = |values: &[ValueId], numbers: &[usize]| -> Vec<String> {
                    let of = |(value, &number): (&ValueId, &usize)| {
                        space.layouts[value.0][number].display(&mesh).to_string()
                    };
                    values.iter().zip(numbers).map(of).collect()
                };
                let one = |it: &Choice| {
                    let (operands, results) =
                        (layouts(&node.operands, &it.operands), layouts(&node.results, &it.results));
                    format!("{} {operands:?} {results:?}", it.partition.display(&mesh))
                };
                choices.iter().map(one).collect()
            };
            let (one, other) = (shown(&whole, one), shown(&spread, other));
            assert!(one.is_subset(&other) && !one.is_empty(), "{}", node.op);
        }
        for (one, other) in whole.layouts.iter().zip(&spread.layouts) {
            assert!(one.iter().all(|it| other.contains(it)));
        }
        assert_eq!(whole.prepared, spread.prepared);
    }
}

#[test]
fn what_is_handed_on_or_computed_otherwise_is_like_nothing_else() {
    let mut it = Draft(Graph::default());
    let x = it.input(&[8, 64]);
    let [tanh, other, handed] = [0; 3].map(|_| it.op(Op::Unary(Unary::Tanh), &[x]));
    let exp = it.op(Op::Unary(Unary::Exp), &[x]);
    let [narrow, wide, wider] = [16, 32, 32].map(|width| it.weight(&[64, width]));
    let once = Once::of(&it.0, &[handed]);
    let stands = |value: ValueId| once.values[value.0];
    assert_eq!(stands(tanh), stands(other));
    assert_eq!(stands(wide), stands(wider));
    let apart: BTreeSet<ValueId> = [tanh, handed, exp, narrow, wide, x].map(stands).into_iter().collect();
    assert_eq!(apart.len(), 6);
}

#[test]
fn a_sum_of_very_many_products_has_a_space() {
    let (graph, y) = sum(20_000, 8);
    let made = space(&graph, &Mesh::of_sizes(&[4]), &[y], Offer::default()).expect("is sound");
    assert!(made.statistics.nodes < 10_000, "{:?}", made.statistics);
    assert!(made.choices.iter().all(|it| it.len() > 1));
}
