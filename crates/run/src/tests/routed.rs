//! Rows that go to where their experts are, and what is made of them back: forward and all gradients.

use kernels::Array;
use lower::{Moving, Origin};
use planner_ir::{DType, Mesh, NodeId, Op, Partition, Route, Type, Unary, parse_partition};

use super::rotated::gates;
use super::sketch::Sketch;
use super::{check_given, sources};

/// Meshes, and how tokens, experts and units are split there.
const CASES: [(&[u64], &str); 13] = [
    (&[4], "[-,a,-] routes a"),
    (&[3], "[-,a,-] routes *2.a"),
    (&[2, 3], "[-,a.b,-] routes a.b"),
    (&[2, 2], "[-,b.a,-] routes b.*3.a"),
    (&[2, 3], "[a,b,-] routes b"),
    (&[2, 2], "[*2.a,b,-] routes *3.b"),
    (&[2, 2], "[-,b,a] routes b"),
    (&[2, 2, 2], "[b,c,a] routes c"),
    (&[4], "[-,a,-] routes a by 2"),
    (&[6], "[-,a,-] routes *2.a by 3"),
    (&[2, 3], "[-,a.b,-] routes a.b by 3"),
    (&[2, 2, 2], "[a,b.c,-] routes b.c by 2"),
    (&[2, 4], "[-,b,a] routes b by 2"),
];

const TOKENS: u64 = 120;
const EXPERTS: u64 = 12;
const HIDDEN: u64 = 4;
const UNITS: u64 = 2;

/// The same of so many loops.
fn partition(mesh: &Mesh, text: &str, loops: usize) -> Partition {
    let (split, routes) = text.split_once("] ").unwrap();
    parse_partition(mesh, &format!("{split}{}] {routes}", ",-".repeat(loops - 3))).unwrap()
}

/// How many bytes go from a device to another one, all devices together, of rows of that size: each row to those with an
/// expert that it uses, or to one of each other set with such devices, and on in that. Bits for each row and device of a
/// set go ahead then.
fn bytes(gates: &Array, plan: &plan::Plan, partition: &Partition, size: u64) -> u64 {
    let numbers = gates.to_floats().unwrap();
    let (mesh, axes) = (&plan.mesh, partition.routed_axes());
    let loops = plan.graph.nodes[0].op.loops(
        &plan.graph.types_of(&plan.graph.nodes[0].operands),
        &plan.graph.types_of(&plan.graph.nodes[0].results),
    );
    let held = |layout: &planner_ir::Layout, device: u64, dim: usize, extent: u64| -> Vec<u64> {
        let coordinates = mesh.coordinates(device);
        let has = |&index: &u64| {
            let mut unit = extent;
            layout.dims[dim].iter().all(|digit| {
                unit /= digit.size;
                digit.is_free() || index / unit % digit.size == digit.at(&coordinates, 0)
            })
        };
        (0..extent).filter(has).collect()
    };
    let at_rest = partition.operand(&loops, 1);
    let met = partition.met().operand(&loops, 1);
    let mut all = 0;
    for from in 0..mesh.devices() {
        let rows = held(&at_rest, from, 0, TOKENS);
        let group = mesh.group(from, &axes);
        let sets: Vec<&[u64]> = group.chunks(usize::try_from(partition.routed_by).unwrap()).collect();
        for set in &sets {
            for token in &rows {
                let uses = |to: &&u64| {
                    let mut experts = held(&met, **to, 1, EXPERTS).into_iter();
                    experts.any(|expert| numbers[usize::try_from(*token * EXPERTS + expert).unwrap()] != 0.0)
                };
                let users: Vec<u64> = set.iter().filter(uses).copied().collect();
                // Who has it in this set already, or gets it first.
                let place = group.iter().position(|it| *it == from).unwrap() % set.len();
                let first = set[place];
                let across = u64::from(first != from && !users.is_empty());
                let within = users.iter().filter(|it| **it != first).count();
                all += size * (across + u64::try_from(within).unwrap());
            }
        }
        if partition.routed_by > 1 {
            let bits = u64::try_from(rows.len()).unwrap().div_ceil(8);
            all += (u64::try_from(sets.len()).unwrap() - 1) * partition.routed_by * bits;
        }
    }
    all
}

#[test]
fn rows_go_to_their_experts() {
    for (sizes, text) in CASES {
        // Partial sums are rounded where they are sent.
        for (dtype, tolerance) in [(DType::F32, 0.0), (DType::BF16, 0.02)] {
            for active in [1, 3] {
                let mesh = Mesh::of_sizes(sizes);
                let mut sketch = Sketch::new(&mesh);
                let forward = partition(&mesh, text, 5);
                let shapes: [(&str, &[u64]); 6] = [
                    ("x", &[TOKENS, HIDDEN]),
                    ("gates", &[TOKENS, EXPERTS]),
                    ("up", &[EXPERTS, UNITS, HIDDEN]),
                    ("gate", &[EXPERTS, UNITS, HIDDEN]),
                    ("down", &[EXPERTS, HIDDEN, UNITS]),
                    ("dy", &[TOKENS, HIDDEN]),
                ];
                let types = shapes.map(|(_, shape)| Type::new(dtype, shape));
                let op = Op::Experts { activation: Unary::Relu, limit: None, active };
                let loops = op.loops(&types[..5], &op.infer(&types[..5]).unwrap());
                let values: Vec<_> = shapes
                    .iter()
                    .zip(&types)
                    .enumerate()
                    .map(|(index, (&(name, _), type_))| {
                        let layout = forward.operand(&loops, if index == 5 { 0 } else { index });
                        sketch.input(name, type_.clone(), layout.dims)
                    })
                    .collect();
                let y = sketch.node(op, &values[..5], forward.clone());
                let op = Op::ExpertsGradient { activation: Unary::Relu, limit: None, active, adds: vec![] };
                let gradients = sketch.node(op.clone(), &values, partition(&mesh, text, 4));
                // The same once more, added to those of two weights.
                let op = op.adding(2, dtype).and_then(|op| op.adding(4, dtype)).unwrap();
                let given = [&values[..], &[gradients[2], gradients[4]]].concat();
                let sums = sketch.node(op, &given, partition(&mesh, text, 4));
                for (place, &value) in y.iter().chain(&gradients).chain(&sums).enumerate() {
                    let dims = sketch.plan.layouts[value.0].dims.clone();
                    sketch.output(&format!("result{place}"), value, dims, &mut |_, _, _, _| None);
                }
                let mut given = sources(&sketch.plan);
                given.insert("gates".to_owned(), gates(TOKENS, EXPERTS, active, dtype));
                let outcome = check_given(&sketch.plan, &given, tolerance);
                let received = |node: usize, moving: Moving| -> u64 {
                    let of = |origin: &Origin| matches!(*origin, Origin::Motion { node: it, moving: what, .. } if it == NodeId(node) && what == moving);
                    outcome.received.iter().filter(|it| of(&it.0)).map(|it| it.1).sum()
                };
                let rows = forward.routed_rows(&loops).unwrap();
                assert_eq!(rows.count * EXPERTS, forward.operand(&loops, 1).local_type(&types[1]).elements());
                let expected = bytes(&given["gates"], &sketch.plan, &forward, HIDDEN * dtype.bytes());
                let moved = [
                    (0, Moving::Operand(0)),
                    (0, Moving::Result(0)),
                    (1, Moving::Operand(0)),
                    (1, Moving::Operand(5)),
                    (1, Moving::Result(0)),
                ];
                for (node, moving) in moved {
                    assert_eq!(received(node, moving), expected, "{text}: {moving:?} of node {node}");
                }
                assert_eq!(forward.route(&loops, &loops.operands[2]), Route::Stays);
                assert_eq!(received(1, Moving::Operand(2)), 0);
            }
        }
    }
}
