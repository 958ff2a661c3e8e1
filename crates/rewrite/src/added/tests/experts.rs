//! Gradients of weights of experts add to sums, each or not.

use planner_ir::parse_graph;

use super::*;

/// A step of gated experts with biases whose gradients of weights, and of biases, are added to sums.
fn step(dtype: &str) -> Graph {
    let text = format!(
        r#"graph "experts" {{
  %0 = input "x" : {dtype}[8,4]
  %1 = input "gates" : {dtype}[8,2]
  %2 = input "up" : {dtype}[2,6,4]
  %3 = input "gate" : {dtype}[2,6,4]
  %4 = input "down" : {dtype}[2,4,6]
  %5 = input "first" : {dtype}[2,6]
  %6 = input "second" : {dtype}[2,6]
  %7 = input "dy" : {dtype}[8,4]
  return "x" %0
}}
"#
    );
    let mut graph = parse_graph(&text).unwrap();
    let states = ["up", "gate", "down", "first"].map(|name| {
        let value =
            graph.value_ids().find(|it| matches!(&graph.value(*it).source, Source::Input(it) if it == name));
        let shape = graph.type_of(value.unwrap()).shape.clone();
        let state = State { kind: StateKind::Gradient, name: name.to_owned() };
        graph.push_value(Type::new(DType::F32, shape), Source::State(state))
    });
    let push = |graph: &mut Graph, op: Op, operands: &[ValueId]| {
        let types = op.infer(&graph.types_of(operands)).unwrap();
        graph.push_node_in(Phase::Backward, op, operands.to_vec(), types, "layer".to_owned())
    };
    let (activation, limit) = (Unary::Silu, None);
    let op = Op::ExpertsGradient { activation, limit, active: 2, adds: vec![] };
    let given: Vec<ValueId> = (0..8).map(ValueId).collect();
    let made = push(&mut graph, op, &given);
    let mut carried = Vec::new();
    for (place, state) in states.into_iter().enumerate() {
        let mut more = made[place + 2];
        if graph.type_of(more).dtype != DType::F32 {
            more = push(&mut graph, Op::Cast(DType::F32), &[more])[0];
        }
        let operands = if place == 1 { [more, state] } else { [state, more] };
        carried.push(Carried { state, next: push(&mut graph, Op::Binary(Binary::Add), &operands)[0] });
    }
    graph.training = Some(Training { micro_batches: 2, carried });
    verify(&graph).unwrap();
    graph
}

fn given(graph: &Graph) -> Vec<Array> {
    let types = graph.values.iter().filter(|it| !matches!(it.source, Source::Result { .. }));
    types
        .enumerate()
        .map(|(it, value)| numbers(value.type_.dtype, &value.type_.shape, 3 + u64::try_from(it).unwrap()))
        .collect()
}

/// Whatever of the products add, the step is the same: to the bit in f32, and without rounding in between else.
#[test]
fn some_of_the_products_of_one_operation_may_add() {
    for dtype in ["f32", "bf16"] {
        let graph = step(dtype);
        let found = added(&graph);
        // Weights have rows and columns, and biases none.
        let results: Vec<usize> = found.iter().map(|it| it.result).collect();
        assert_eq!(results, [2, 3, 4]);
        assert_eq!(found.iter().map(|it| it.before).collect::<Vec<_>>(), [0, 1, 0]);
        let given = given(&graph);
        let given: Vec<&Array> = given.iter().collect();
        let apart = run(&graph, &given);
        let exact = {
            let wide = step("f32");
            let given: Vec<Array> =
                given.iter().map(|it| evaluate(&Op::Cast(DType::F32), &[it]).unwrap().remove(0)).collect();
            run(&wide, &given.iter().collect::<Vec<_>>())
        };
        for set in 0..8_u32 {
            let some: Vec<Added> =
                (0..).zip(&found).filter(|(bit, _)| set >> bit & 1 == 1).map(|it| it.1.clone()).collect();
            let Joined { graph: made, nodes, values } = joined(&graph, &some);
            verify(&made).unwrap();
            let gone = some.iter().map(|it| 1 + usize::from(it.widened.is_some())).sum::<usize>();
            assert_eq!((made.nodes.len(), nodes.len()), (graph.nodes.len() - gone, made.nodes.len()));
            assert_eq!(values.len(), graph.values.len() - gone);
            let node = &made.nodes[0];
            let adds: Vec<usize> = node.op.addends(node.operands.len()).into_iter().map(|it| it.1).collect();
            assert_eq!(adds, some.iter().map(|it| it.result).collect::<Vec<_>>());
            // Each sum is one of what its state comes to.
            for it in &made.training.as_ref().unwrap().carried {
                assert_eq!(made.sums()[it.next.0], Some(it.state));
            }
            assert_eq!(joined_as(&graph, &made).graph, made);
            assert_eq!(joined_as(&made, &made).graph, made);
            let together = run(&made, &given);
            for (place, ((found, apart), exact)) in together.iter().zip(&apart).zip(&exact).enumerate() {
                let expected = if adds.contains(&(place + 2)) { exact } else { apart };
                assert_eq!(found.bytes(), expected.bytes(), "{adds:?} of {dtype}: sum {place}");
            }
        }
    }
}

/// Partitions, routed ones too, in which a sum is one operation with what it adds are those in which the verifier of
/// layouts takes the one operation; and if two are, both are.
#[test]
fn products_of_one_operation_are_added_where_layouts_are_those_of_the_sums() {
    let graph = step("f32");
    let found = added(&graph);
    let mut seen = [0; 2];
    for mesh in [&[2][..], &[2, 2]].map(Mesh::of_sizes) {
        let offer = Offer { splits: Splits::All, steps: Steps::Offered, striped: None };
        let space = space(&graph, &mesh, &[], offer).unwrap();
        let layout = |value: ValueId, number: usize| &space.layouts[value.0][number];
        let node = graph.node(found[0].product);
        for product in &*space.choices[found[0].product.0] {
            let mut equal = Vec::new();
            for it in &found {
                let made = layout(node.results[it.result], product.results[it.result]);
                let operands = &graph.node(it.sum).operands;
                for sum in &*space.choices[it.sum.0] {
                    let taken = layout(operands[1 - it.before], sum.operands[1 - it.before]);
                    let ends = [
                        layout(operands[it.before], sum.operands[it.before]),
                        layout(graph.node(it.sum).results[0], sum.results[0]),
                    ];
                    if taken != made {
                        continue;
                    }
                    let is_equal = it.is_equal(&mesh, &product.partition, ends);
                    seen[usize::from(is_equal)] += 1;
                    if is_equal {
                        assert_eq!(ends[0], made, "{:?}", product.partition);
                        assert_eq!(ends[1], made, "{:?}", product.partition);
                        equal.push(it);
                    }
                    if product.partition.moves() {
                        continue;
                    }
                    let (types, results) = it.one.types();
                    let used = node.operands.iter().zip(&product.operands);
                    let mut used: Vec<Layout> =
                        used.map(|(it, &number)| layout(*it, number).clone()).collect();
                    used.push(ends[0].clone());
                    let results_in = node.results.iter().zip(&product.results);
                    let mut all: Vec<Layout> =
                        results_in.map(|(it, &number)| layout(*it, number).clone()).collect();
                    all[it.result] = ends[1].clone();
                    let verdict = verify_layouts(&mesh, &it.one.node.op, types, results, &used, &all);
                    assert_eq!(is_equal, verdict.is_ok(), "{:?}: {verdict:?}", product.partition);
                }
            }
            equal.sort_by_key(|it| it.result);
            equal.dedup_by_key(|it| it.result);
            if let [one, .., other] = equal[..] {
                let loops = Adding::together(&graph, &[one, other]).loops().clone();
                assert_eq!(product.partition.check(&mesh, &loops), Ok(()));
                for (it, place) in [(one, 2), (other, 1)] {
                    let (last, index) = (loops.operands.len(), it.result);
                    let addend = product.partition.operand(&loops, last - place);
                    assert_eq!(addend, product.partition.result(&loops, index));
                }
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}
