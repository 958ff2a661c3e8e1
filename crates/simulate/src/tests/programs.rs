//! What programs take.

use cost_models::collective;
use cost_models::machine::Machine;
use cost_models::topology::Topology;
use cost_models::units::Bytes;
use cost_models::work;
use kernels::Span;
use lower::{Action, Block, CollectiveKind, Repeated};
use planner_ir::{DType, Type, parse_op};

use super::same;
use super::script::{Script, machine, wait};
use crate::{Order, SimulateError, Timeline, simulate};

const ELEMENTS: u64 = 1 << 20;

fn seconds(script: &Script, machine: &Machine, order: Order) -> f64 {
    simulate(&script.alike, machine, order).unwrap().seconds
}

/// What a computation of the script takes.
fn computing(machine: &Machine, elements: u64) -> f64 {
    work::copy(&machine.device, Bytes(4 * elements)).0
}

#[test]
fn a_collective_takes_its_price() {
    let machine = machine("h100-80g-16x");
    let topology = Topology::of(&machine);
    let all: Vec<u64> = (0..16).collect();
    let group = topology.alone(&all).unwrap();
    let size = Bytes(16 * 4 * ELEMENTS);
    let prices = [
        (CollectiveKind::AllGather, collective::ring_all_gather(&machine, &group, size)),
        (CollectiveKind::ReduceScatter, collective::reduce_scatter(&machine, &group, size)),
        (CollectiveKind::AllToAll, collective::all_to_all(&machine, &group, size)),
        (CollectiveKind::AllReduce, collective::all_reduce(&machine, &group, Bytes(4 * ELEMENTS))),
        (CollectiveKind::Broadcast(3), collective::broadcast(&machine, &group, Bytes(4 * ELEMENTS))),
    ];
    for (kind, price) in prices {
        let mut script = Script::new(&[16], &[&[0]]);
        let buffers = [script.buffer(16 * ELEMENTS), script.buffer(16 * ELEMENTS)];
        script.collective(kind, 0, buffers, ELEMENTS);
        let found = seconds(&script, &machine, Order::Streams);
        assert!(same(found, price.0), "{kind:?}: {found} {}", price.0);
    }
}

/// Causal attention of the last half of the queries sees three quarters of the keys, of stripes half, and
/// the first half of the keys wholly: the price of one is not that of another.
#[test]
fn what_lies_elsewhere_has_a_price_of_its_own() {
    let machine = machine("h100-80g-8x");
    let mut script = Script::new(&[8], &[&[0]]);
    let op = parse_op("attention scale=1.0 causal=true softcap=0.0 window=none").unwrap();
    let (length, part) = (8192, 4096);
    let [queries, keys, halves, to] = [part, length, part, part].map(|rows| {
        let buffer = script.buffer(8 * rows * 64);
        script.alike.program.buffers[buffer.0].type_ = Type::new(DType::F32, [1, 8, rows, 64]);
        buffer
    });
    let whole = |extent| Span::contiguous(extent, 0);
    let at = |buffer, rows| Block { buffer, spans: vec![whole(1), whole(8), rows, whole(64)] };
    let stripes = Span { extent: length, start: 0, run: 1, stride: 2 };
    let last = Span::contiguous(length, part);
    let forms = [(stripes, keys, whole(length)), (last, keys, whole(length)), (last, halves, whole(length))];
    let once = |script: &mut Script, (rows, of, seen): (Span, _, Span)| {
        script.compute(queries, to);
        let Some(instruction) = script.alike.program.instructions.last_mut() else { unreachable!() };
        let Action::Compute(compute) = &mut instruction.action else { unreachable!() };
        compute.op = op.clone().into();
        compute.operands = vec![at(queries, rows), at(of, seen), at(of, seen)];
        compute.results = vec![at(to, rows)];
    };
    let alone = forms.map(|form| {
        script.alike.program.instructions.clear();
        once(&mut script, form);
        crate::alone(&script.alike.program, &machine)[0].unwrap()
    });
    let [stripes, halves] = [alone[0], alone[2]].map(|it| it / alone[1]);
    assert!((0.6..0.8).contains(&stripes) && (0.6..0.7).contains(&halves), "{alone:?}");
    script.alike.program.instructions.clear();
    forms.into_iter().chain(forms).for_each(|form| once(&mut script, form));
    let found: Vec<f64> = crate::alone(&script.alike.program, &machine).into_iter().flatten().collect();
    assert_eq!(found, [alone, alone].concat());
}

#[test]
fn streams_run_beside_each_other_until_one_waits() {
    let machine = machine("h100-80g-8x");
    let mut script = Script::new(&[8], &[&[0]]);
    let [a, b, c] = [0; 3].map(|_| script.buffer(8 * ELEMENTS));
    script.compute(a, b);
    script.collective(CollectiveKind::AllReduce, 0, [a, c], 8 * ELEMENTS);
    script.compute(b, a);
    let one = computing(&machine, 8 * ELEMENTS);
    let group = Topology::of(&machine).alone(&(0..8).collect::<Vec<u64>>()).unwrap();
    let exchange = collective::all_reduce(&machine, &group, Bytes(32 * ELEMENTS)).0;
    let beside = simulate(&script.alike, &machine, Order::Streams).unwrap();
    assert!(same(beside.seconds, exchange.max(2.0 * one)));
    let class = &beside.classes[0];
    assert!(same(class.computing, 2.0 * one) && same(class.communicating, exchange));
    assert!(same(class.exposed, (exchange - 2.0 * one).max(0.0)));
    assert!(same(seconds(&script, &machine, Order::OneByOne), exchange + 2.0 * one));
    wait(&mut script, 2, 1);
    assert!(same(seconds(&script, &machine, Order::Streams), one.max(exchange) + one));
}

#[test]
fn groups_that_share_an_adapter_share_its_rate() {
    // Two devices of a node share an adapter: their groups take as long as the shared price says.
    let machine = machine("v100-32g-16x");
    let topology = Topology::of(&machine);
    let mut script = Script::new(&[2, 8], &[&[0]]);
    let buffers = [script.buffer(64 * ELEMENTS), script.buffer(64 * ELEMENTS)];
    script.collective(CollectiveKind::AllReduce, 0, buffers, 64 * ELEMENTS);
    let found = seconds(&script, &machine, Order::Streams);
    let price = |group| collective::all_reduce(&machine, &group, Bytes(4 * 64 * ELEMENTS)).0;
    let shared = price(topology.group(&[0, 8]).unwrap());
    let alone = price(topology.alone(&[0, 8]).unwrap());
    assert!((found / shared - 1.0).abs() < 0.02, "{found} {shared}");
    assert!(found > 1.5 * alone, "{found} {alone}");
}

#[test]
fn messages_make_a_rank_wait_for_its_partners_only() {
    let machine = machine("h100-80g-8x");
    let topology = Topology::of(&machine);
    let mut script = Script::new(&[4, 2], &[&[0, 1]]);
    let buffers = [script.buffer(ELEMENTS), script.buffer(ELEMENTS)];
    // Pairs swap, but for the last pair.
    script.message(0, vec![1, 0, 3, 2, 5, 4, 6, 7], buffers);
    let timeline = simulate(&script.alike, &machine, Order::Streams).unwrap();
    let swap = collective::send(&machine, &topology.alone(&[0, 1]).unwrap(), Bytes(4 * ELEMENTS)).0;
    let copy = work::copy(&machine.device, Bytes(4 * ELEMENTS)).0;
    let of = |rank: u64| timeline.classes.iter().find(|it| it.ranks.contains(&rank)).unwrap();
    assert_eq!(timeline.classes.len(), 2);
    assert!(same(of(0).seconds, swap) && same(of(7).seconds, copy));
}

#[test]
fn what_is_repeated_starts_when_all_before_it_is_over() {
    let machine = machine("h100-80g-8x");
    let mut script = Script::new(&[8], &[&[0]]);
    let [a, b] = [0; 2].map(|_| script.buffer(ELEMENTS));
    script.compute(a, b);
    script.compute(b, a);
    script.collective(CollectiveKind::AllReduce, 0, [a, b], ELEMENTS);
    script.compute(a, b);
    let once = simulate(&script.alike, &machine, Order::Streams).unwrap();
    let class = &once.classes[0];
    let each = class.communicating.max(computing(&machine, ELEMENTS));
    let one = computing(&machine, ELEMENTS);
    script.alike.program.repeated = Some(Repeated::whole(1..3, 5));
    let found = simulate(&script.alike, &machine, Order::Streams).unwrap();
    // The last one does not wait for the last exchange.
    let last = (one + one).max(class.communicating);
    assert!(same(found.seconds, one + 4.0 * each + last), "{} {each} {one}", found.seconds);
    assert_eq!(found.instructions(), 8 * (1 + 2 * 5 + 1));
    let repetitions: Vec<u32> = found.spans(&found.classes[0]).map(|it| it.repetition).collect();
    assert_eq!(repetitions, [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 0]);
}

#[test]
fn the_same_programs_have_the_same_timeline() {
    let machine = machine("v100-32g-16x");
    let mut script = Script::new(&[4, 4], &[&[0], &[1]]);
    let [a, b] = [0; 2].map(|_| script.buffer(ELEMENTS));
    for number in 0..6 {
        script.compute(a, b);
        script.collective(CollectiveKind::AllReduce, number % 2, [a, b], ELEMENTS);
    }
    let times = |timeline: &Timeline| {
        let spans = timeline.classes.iter().flat_map(|class| timeline.spans(class).collect::<Vec<_>>());
        spans.map(|it| (it.start.to_bits(), it.end.to_bits())).collect::<Vec<_>>()
    };
    let [one, other] = [0; 2].map(|_| times(&simulate(&script.alike, &machine, Order::Streams).unwrap()));
    assert_eq!(one, other);
}

#[test]
fn programs_for_another_number_of_ranks_are_refused() {
    let script = Script::new(&[4], &[]);
    let refused = simulate(&script.alike, &machine("h100-80g-8x"), Order::Streams).unwrap_err();
    assert_eq!(refused, SimulateError::Ranks { programs: 4, devices: 8 });
    assert_eq!(refused.to_string(), "programs for 4 ranks, expected 8: as many as the machine has devices");
}
