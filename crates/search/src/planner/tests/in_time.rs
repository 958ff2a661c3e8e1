//! Whether work is done in time steps, by what messages and products take.

use cost_models::known::Known;
use cost_models::machine::{Machine, Tile};
use cost_models::units::{BytesPerSecond, Ratio, Seconds};
use plan::Assignment;
use planner_ir::parse_graph;

use super::*;
use crate::Fixed;

/// Devices along one axis.
const MESH: &str = "a=4";

/// What is split by rows is multiplied, and what comes of it split by columns; or the reverse.
fn product(dtype: DType, [m, k, n]: [u64; 3]) -> Graph {
    let d = dtype.name();
    let text = format!(
        r#"graph "product" {{
  %0 = input "x" : {d}[{m},{k}]
  %1 = weight "w" : {d}[{k},{n}]
  %2 = relu %0 : {d}[{m},{k}] # origin "before"
  %3 = contract "ab,bc->ac" %2 %1 : {d}[{m},{n}] # origin "product"
  %4 = relu %3 : {d}[{m},{n}] # origin "after"
  return "y" %4
}}
"#
    );
    parse_graph(&text).unwrap()
}

/// The plan on four devices with what comes before and after a product split so.
fn planned_on(machine: &Machine, graph: &Graph, splits: [&str; 2]) -> Plan {
    let fixed = [("before", splits[0]), ("after", splits[1])]
        .map(|(name, partition)| Fixed { operations: name.to_owned(), partition: partition.to_owned() });
    let plan = asked(graph, machine, MESH, &|_| true, |request| {
        plan(&Request { capacity: 1 << 40, fixed: &fixed, ..*request }).unwrap()
    });
    plan::check(&plan).unwrap();
    plan
}

/// The machine, with messages of any kind that take so long to start (seconds).
fn starting(start: f64) -> Machine {
    let mut machine = machine();
    let transport = &mut machine.transport;
    transport.bulk.start.value = Seconds(start);
    transport.eager.start.value = Seconds(start);
    transport.packed.iter_mut().for_each(|it| it.start.value = Seconds(start));
    machine
}

fn machine() -> Machine {
    let mut machine = shipped::named("h100-80g-4x").unwrap();
    // Products of steps take longer, and what goes around is hidden by them at other sizes.
    machine.device.products.in_step.value = Ratio(1.0);
    machine
}

/// What the runs of RTP show for a message (seconds).
const SLOW: f64 = 850e-6;

/// What the plan does: the partition of the product, and the kinds of moves beside it.
fn done(machine: &Machine, graph: &Graph, splits: [&str; 2]) -> String {
    let plan = planned_on(machine, graph, splits);
    let mesh = Mesh::parse(MESH).unwrap();
    let moves = plan.transfers.iter().flat_map(|it| &it.moves).map(|it| match it {
        Move::AllGather { .. } => "gather",
        Move::ReduceScatter { .. } => "scatter",
        Move::AllReduce { .. } => "reduce",
        Move::AllToAll { .. } => "turn",
        Move::Permute { .. } => "permute",
        Move::Slice { .. } => "slice",
    });
    let Assignment::Computed { partition, .. } = &plan.assignments[1] else { panic!("prepared") };
    [partition.display(&mesh).to_string()]
        .into_iter()
        .chain(moves.map(str::to_owned))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn rows_go_around_while_they_are_multiplied_where_that_is_faster_than_to_gather_them() {
    let (large, splits) = (product(DType::BF16, [4096, 4096, 16384]), ["[a,-]", "[-,a]"]);
    let (ring, gathered) = ("4 steps [(a+@t:4),-,a]", "[-,-,a] gather");
    assert_eq!(done(&machine(), &large, splits), ring);
    assert_eq!(done(&starting(SLOW), &large, splits), gathered);
    // Links that are so slow that nothing is hidden, of which a message reaches a smaller part.
    let mut slow = machine();
    slow.node.link_bandwidth.value = BytesPerSecond(4.5e9);
    assert_eq!(done(&slow, &large, splits), gathered);
    // Products of a quarter of the rows that take as long as of all.
    let mut coarse = machine();
    let tiles = vec![Tile { m: 4096, n: 128 }];
    coarse.device.products.tiles = Known::new(tiles, "by hand").unwrap();
    assert_eq!(done(&coarse, &large, splits), gathered);
    // Blocks so small that the start of messages is most of what they take.
    let small = product(DType::BF16, [512, 1024, 4096]);
    assert_eq!(done(&machine(), &small, splits), gathered);
}

#[test]
fn sums_go_around_while_they_are_made_where_that_is_faster_than_to_scatter_them() {
    let splits = ["[-,a]", "[a,-]"];
    let (ring, scattered) = ("4 steps [(a+@t+1:4),a,-]", "[-,a,-] scatter");
    let large = product(DType::F32, [4096, 16384, 4096]);
    assert_eq!(done(&machine(), &large, splits), ring);
    assert_ne!(done(&starting(SLOW), &large, splits), ring);
    // Products of narrow numbers are too short to hide them.
    let narrow = product(DType::BF16, [4096, 16384, 4096]);
    assert_eq!(done(&machine(), &narrow, splits), scattered);
}
