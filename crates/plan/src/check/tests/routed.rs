//! Plans whose rows are routed, right and made wrong in one place.

use planner_ir::{AxisId, Mesh, ValueId, parse_graph, parse_layout, parse_partition};

use super::super::check;
use crate::{Assignment, Copy, Exchanged, Plan, samples};

/// Experts over two groups of so many devices that share experts, their gradients, and those of weights added to
/// them.
fn routed(group: u64, [tokens, experts]: [u64; 2], routes: &str) -> Plan {
    let text = r#"graph "experts" {
  %0 = input "x" : f32[T,8]
  %1 = input "gates" : f32[T,E]
  %2 = weight "up" : f32[E,4,8]
  %3 = weight "down" : f32[E,8,4]
  %4 = input "dy" : f32[T,8]
  %5 = experts activation=silu active=2 %0 %1 %2 %3 : f32[T,8] # origin "experts"
  %6, %7, %8, %9 = experts_gradient activation=silu active=2 %0 %1 %2 %3 %4 : f32[T,8], f32[T,E], f32[E,4,8], f32[E,8,4] # origin "gradient"
  %10, %11, %12, %13 = experts_gradient activation=silu active=2 adds=[2,3] %0 %1 %2 %3 %4 %8 %9 : f32[T,8], f32[T,E], f32[E,4,8], f32[E,8,4] # origin "sums"
  return "y" %5
}
"#;
    let text = text.replace("[T,", &format!("[{tokens},")).replace(",E]", &format!(",{experts}]"));
    let graph = parse_graph(&text.replace("[E,", &format!("[{experts},"))).unwrap();
    let mesh = Mesh::of_sizes(&[2, group]);
    // Of tokens, experts, units, the hidden size and again that.
    let forward = parse_partition(&mesh, &format!("[a,b,-,-,-] {routes}")).unwrap();
    let gradient = parse_partition(&mesh, &format!("[a,b,-,-] {routes}")).unwrap();
    let mut plan = Plan { graph, mesh: mesh.clone(), ..samples::example() };
    plan.machine.devices = mesh.devices();
    plan.transfers.clear();
    plan.outputs = vec![Copy::Made];
    plan.estimate.clear();
    let texts = [
        "[a.*3.b,-]",
        "[a.*3.b,-]",
        "[b,-,-]",
        "[b,-,-]",
        "[a.*3.b,-]",
        "[a.*3.b,-]",
        "[a.*3.b,-]",
        "[a.*3.b,-]",
        "[b,-,-] owes a",
        "[b,-,-] owes a",
        "[a.*3.b,-]",
        "[a.*3.b,-]",
        "[b,-,-] owes a",
        "[b,-,-] owes a",
    ];
    plan.layouts = texts.iter().map(|text| parse_layout(&mesh, text).unwrap()).collect();
    let assignments = [(forward, 4), (gradient.clone(), 5), (gradient, 7)].into_iter().enumerate().map(
        |(node, (partition, count))| {
            let it = &plan.graph.nodes[node];
            let types = [&it.operands, &it.results].map(|values| plan.graph.types_of(values));
            let loops = it.op.loops(&types[0], &types[1]);
            let bytes = crate::bytes_of_steps(&mesh, &loops, (&types[0], &types[1]), &partition);
            let operands = vec![Copy::Made; count];
            Assignment::Computed { partition, operands, bytes, seconds: 0.0, exchanged: Exchanged::default() }
        },
    );
    plan.assignments = assignments.collect();
    samples::with_memory(plan)
}

#[test]
fn rows_that_are_routed_are_checked() {
    let plan = routed(2, [24, 6], "routes *3.b");
    assert_eq!(check(&plan), Ok(()));
    // 6 rows at rest, of 8 numbers, of which a share of 1 - (3/6) (2/5) uses experts of the other device.
    let Assignment::Computed { bytes, .. } = &plan.assignments[0] else { unreachable!() };
    assert_eq!(bytes[..2], [4 * (6 * 8 * 4 * 4 / 5 + 1), 4 * 6 * 3 * 4]);
    type Change = fn(&mut Plan);
    let changes: [(&str, Change); 12] = [
        ("operand-layout", |plan| plan.layouts[0] = parse_layout(&plan.mesh, "[a.b,-]").unwrap()),
        ("operand-layout", |plan| plan.layouts[1] = parse_layout(&plan.mesh, "[a,b]").unwrap()),
        ("result-layout", |plan| plan.layouts[5] = parse_layout(&plan.mesh, "[a,-]").unwrap()),
        ("result-owed", |plan| plan.layouts[6].owed.push(AxisId(1))),
        ("result-owed", |plan| plan.layouts[12].owed.clear()),
        // Weights, which owe nothing, would be added once for each group.
        ("operand-owed", |plan| plan.graph.nodes[2].operands[5] = ValueId(2)),
        ("operand-layout", |plan| plan.layouts[9] = parse_layout(&plan.mesh, "[-,-,b] owes a").unwrap()),
        ("bytes", |plan| {
            let Assignment::Computed { bytes, .. } = &mut plan.assignments[1] else { unreachable!() };
            bytes[0] *= 2;
        }),
        ("partition", |plan| {
            let Assignment::Computed { partition, .. } = &mut plan.assignments[1] else { unreachable!() };
            partition.routed[1].terms[0].0 = AxisId(0);
        }),
        ("seconds", |plan| {
            let Assignment::Computed { exchanged, .. } = &mut plan.assignments[0] else { unreachable!() };
            exchanged.rows = 1.0;
        }),
        ("seconds", |plan| {
            let Assignment::Computed { seconds, exchanged, .. } = &mut plan.assignments[0] else {
                unreachable!()
            };
            (*seconds, exchanged.rows, exchanged.links) = (2.0, 1.0, 1.5);
            plan.estimate = vec![crate::Term { name: "experts".to_owned(), seconds: 2.0 }];
        }),
        // Nothing is computed while rows are exchanged: all that there is comes of it, or leads to it.
        ("estimate", |plan| {
            let Assignment::Computed { seconds, exchanged, .. } = &mut plan.assignments[0] else {
                unreachable!()
            };
            (*seconds, exchanged.rows) = (2.0, 1.0);
            plan.estimate = vec![crate::Term { name: "experts".to_owned(), seconds: 2.0 }];
            plan.hidden.forward = 0.5;
        }),
    ];
    for (rule, change) in changes {
        let mut wrong = plan.clone();
        change(&mut wrong);
        let found = check(&wrong).unwrap_err();
        assert!(found.0.iter().any(|it| it.rule == rule), "{rule} is not among {found}");
    }
}

/// Of four devices two pass rows on for two each.
#[test]
fn rows_that_are_passed_on_are_checked() {
    let plan = routed(4, [120, 8], "routes *3.b by 2");
    assert_eq!(check(&plan), Ok(()));
    // 15 rows at rest, of 8 numbers: to the other set a share of 1 - (4/8) (3/7), and of what the other device of a set
    // has then, from two devices each, a share of 1 - (6/8) (5/7). For each row two bits go ahead.
    let Assignment::Computed { bytes, .. } = &plan.assignments[0] else { unreachable!() };
    assert_eq!(bytes[0], 8 * (378 + 446 + 2 * 2));
    for (rule, by) in [("bytes", 1), ("partition", 0), ("partition", 3), ("partition", 4)] {
        let mut wrong = plan.clone();
        let Assignment::Computed { partition, .. } = &mut wrong.assignments[0] else { unreachable!() };
        partition.routed_by = by;
        let found = check(&wrong).unwrap_err();
        assert!(found.0.iter().any(|it| it.rule == rule), "{rule} is not among {found}");
    }
    let mut wrong = plan.clone();
    let Assignment::Computed { bytes, .. } = &mut wrong.assignments[0] else { unreachable!() };
    bytes[0] += bytes[0] / 2;
    assert!(check(&wrong).unwrap_err().0.iter().any(|it| it.rule == "bytes"));
}
