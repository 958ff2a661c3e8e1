//! A plan of a program, by random choices: any partition whose operands can be had, any moves.

use std::collections::BTreeMap;

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{
    AxisId, Digit, Graph, Layout, Loops, Mesh, Move, Node, Op, Partition, Phase, Role, Source, Type, ValueId,
};

use super::temporal;
use crate::shared;
use crate::{
    Assignment, Copy, Exchanged, Hidden, MachineName, ModelFile, Part, Plan, Proof, SpaceSize, Term,
    Transfer, bytes_of_steps,
};

/// How many moves a transfer has at most.
const MAX_MOVES: usize = 4;

/// In how many steps operations are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Steps {
    /// In one.
    One,
    /// Some in several.
    Any,
}

/// A plan of the program on the mesh, right but for its memory.
pub(super) fn plan(graph: Graph, mesh: Mesh, steps: Steps, u: &mut Unstructured<'_>) -> Result<Plan> {
    let prepared = graph.prepared();
    let mut plan = empty(graph, mesh);
    for value in plan.graph.value_ids() {
        let at_rest = !matches!(plan.graph.value(value).source, Source::Result { .. });
        if at_rest || prepared[value.0] {
            plan.layouts[value.0] = rest(&plan.mesh, plan.graph.type_of(value), u)?;
        }
    }
    for index in 0..plan.graph.nodes.len() {
        let node = plan.graph.nodes[index].clone();
        if !node.results.iter().all(|result| prepared[result.0]) {
            plan.assignments[index] = computed(&mut plan, &node, steps, u)?;
        }
    }
    for output in plan.graph.outputs.clone() {
        let whole = rest(&plan.mesh, plan.graph.type_of(output.value), u)?;
        let part = match plan.graph.value(output.value).source {
            Source::Result { node, .. } => part(plan.graph.node(node)),
            _ => Part::MicroBatch,
        };
        let copy = copy(&mut plan, output.value, &whole, part, u)?;
        // What owes a sum can always be added up.
        plan.outputs.push(copy.unwrap_or(Copy::Made));
    }
    plan.estimate = estimate(&plan);
    if u.arbitrary()? {
        plan.proof = Proof::Gap { lower_bound: plan.seconds() / 2.0 };
    }
    Ok(plan)
}

/// A plan in which everything is prepared and replicated, and states are kept as they are made.
pub(crate) fn empty(graph: Graph, mesh: Mesh) -> Plan {
    let states = graph.training.as_ref().map_or(0, |training| training.carried.len());
    Plan {
        model: ModelFile {
            path: "model.onnx".to_owned(),
            sha256: "0123456789abcdef".repeat(4),
            dims: vec![("batch".to_owned(), 4), ("sequence".to_owned(), 128)],
        },
        machine: MachineName { name: "cpu".to_owned(), devices: mesh.devices(), sha256: None },
        layouts: graph.values.iter().map(|value| Layout::replicated(value.type_.rank())).collect(),
        assignments: vec![Assignment::Prepared; graph.nodes.len()],
        mesh,
        graph,
        transfers: vec![],
        outputs: vec![],
        carried: vec![Copy::Made; states],
        recipe: None,
        pins: Vec::new(),
        controls: Vec::new(),
        estimate: vec![],
        hidden: Hidden::default(),
        memory: vec![],
        capacity: 0,
        proof: Proof::Optimal,
        space: SpaceSize {
            unique_blocks: 1,
            blocks: 2,
            nodes: 99,
            classes: 9,
            saturated: true,
            left_out: vec![],
            choices: 40,
        },
    }
}

/// A plain layout in which nothing is owed.
fn rest(mesh: &Mesh, type_: &Type, u: &mut Unstructured<'_>) -> Result<Layout> {
    let mut layout = Layout::replicated(type_.rank());
    for axis in mesh.axis_ids() {
        let mut split = layout.clone();
        if type_.rank() > 0 && u.arbitrary()? {
            split.dims[u.choose_index(type_.rank())?].push(Digit::axis(mesh, axis));
        }
        let split = split.canonical();
        if split.check(mesh, type_).is_ok() {
            layout = split;
        }
    }
    Ok(layout)
}

/// Every partition in which each axis splits one loop, is passed, or neither.
pub(crate) fn partitions(mesh: &Mesh, loops: &Loops) -> Vec<Partition> {
    let mut all = Vec::new();
    for through in 0..loops.linear.len().max(1) {
        let mut some = vec![Partition { through, ..Partition::replicated(loops) }];
        for axis in mesh.axis_ids() {
            let mut more = Vec::new();
            for partition in &some {
                let mut passing = partition.clone();
                passing.passed.push(axis);
                more.push(passing);
                for it in loops.ids().filter(|&it| loops.get(it).role != Role::Whole) {
                    let mut split: Partition = partition.clone();
                    split.loops[it.0].push(Digit::axis(mesh, axis));
                    more.push(split);
                }
            }
            some.extend(more);
        }
        some.retain(|it| through == 0 || !it.passed.is_empty());
        all.extend(some);
    }
    all.retain(|it| it.check(mesh, loops).is_ok());
    all
}

fn computed(plan: &mut Plan, node: &Node, steps: Steps, u: &mut Unstructured<'_>) -> Result<Assignment> {
    let (operands, results) = (plan.graph.types_of(&node.operands), plan.graph.types_of(&node.results));
    let loops = node.op.loops(&operands, &results);
    let mut all = partitions(&plan.mesh, &loops);
    let whole = Partition::replicated(&loops);
    let several = steps == Steps::Any && u.ratio(1, 2)?;
    let mut timed = if several { temporal::partition(&plan.mesh, &loops, u)? } else { None };
    loop {
        let partition = match timed.take() {
            Some(timed) => timed,
            None if all.is_empty() => whole.clone(),
            None => all.swap_remove(u.choose_index(all.len())?),
        };
        let suits =
            |index: usize, type_: &Type| partition.result(&loops, index).check(&plan.mesh, type_).is_ok();
        if !results.iter().enumerate().all(|(index, type_)| suits(index, type_)) {
            continue;
        }
        let before = (plan.transfers.len(), plan.layouts.clone(), plan.carried.clone());
        let mut copies = Vec::new();
        for (index, &operand) in node.operands.iter().enumerate() {
            let layout = partition.operand(&loops, index);
            if summed_state(&plan.graph, operand) && u.arbitrary()? {
                // Sums may be at rest as they are added to, and then owe what the addend owes.
                plan.layouts[operand.0] = layout.clone();
            }
            // Of digits that do not divide the operand there is no layout.
            if layout.check(&plan.mesh, &operands[index]).is_err() {
                break;
            }
            if let Some(copy) = copy(plan, operand, &layout, part(node), u)? {
                copies.push(copy);
            }
        }
        for (index, &result) in node.results.iter().enumerate() {
            plan.layouts[result.0] = partition.result(&loops, index);
        }
        if copies.len() < node.operands.len() || !carry(plan, node, u)? {
            plan.transfers.truncate(before.0);
            (plan.layouts, plan.carried) = (before.1, before.2);
            continue;
        }
        let bytes = bytes_of_steps(&plan.mesh, &loops, (&operands, &results), &partition);
        let (operands, seconds) = (copies, seconds(u)?);
        let links = if partition.moves() { seconds } else { 0.0 };
        return Ok(Assignment::Computed {
            partition,
            operands,
            bytes,
            seconds,
            exchanged: Exchanged { rows: 0.0, links },
        });
    }
}

fn part(node: &Node) -> Part {
    if node.phase == Phase::Update { Part::Update } else { Part::MicroBatch }
}

fn summed_state(graph: &Graph, value: ValueId) -> bool {
    matches!(&graph.value(value).source, Source::State(state) if state.kind.is_summed())
}

/// Chooses copies of an operation's results for the states that become them; whether there are
/// some.
fn carry(plan: &mut Plan, node: &Node, u: &mut Unstructured<'_>) -> Result<bool> {
    let carried = plan.graph.training.iter().flat_map(|training| training.carried.clone());
    for (index, it) in carried.enumerate().collect::<Vec<_>>() {
        if node.results.contains(&it.next) {
            let rest = plan.layouts[it.state.0].clone();
            let Some(copy) = copy(plan, it.next, &rest, part(node), u)? else { return Ok(false) };
            plan.carried[index] = copy;
        }
    }
    Ok(true)
}

/// A copy of the value in that layout for that part of a step: one there is, or a new one if
/// moves lead there.
fn copy(
    plan: &mut Plan,
    value: ValueId,
    layout: &Layout,
    part: Part,
    u: &mut Unstructured<'_>,
) -> Result<Option<Copy>> {
    let carried = plan.graph.training.iter().flat_map(|training| &training.carried);
    let total = carried.into_iter().any(|it| it.next == value && summed_state(&plan.graph, it.state));
    let when = plan.graph.training.as_ref().map(|_| plan.when());
    let moved = |(index, it): (usize, &Transfer)| {
        let there = total || when.as_ref().is_none_or(|when| when[index] == part);
        (it.value == value && there).then_some(Copy::Transferred(index))
    };
    let mut from = vec![Copy::Made];
    from.extend(plan.transfers.iter().enumerate().filter_map(moved));
    while !from.is_empty() {
        let from = from.swap_remove(u.choose_index(from.len())?);
        let (type_, start) = (plan.graph.type_of(value).clone(), plan.layout(value, from).clone());
        if start == *layout {
            return Ok(Some(from));
        }
        // No move makes a sum owed, and steps are large enough not to look for one.
        if plan.graph.training.is_some() && layout.owed.iter().any(|axis| !start.owed.contains(axis)) {
            continue;
        }
        let Some(moves) = way(&plan.mesh, &type_, &start, layout, u)? else { continue };
        let seconds = seconds(u)?;
        return Ok(Some(made(plan, (value, from), moves, layout, seconds)));
    }
    Ok(None)
}

/// A new copy of the value as it is made, by the fewest moves.
pub(super) fn transfer(plan: &mut Plan, value: ValueId, layout: &Layout) -> Copy {
    let start = plan.layouts[value.0].clone();
    let mut first = Unstructured::new(&[]);
    let way = way(&plan.mesh, plan.graph.type_of(value), &start, layout, &mut first);
    let moves = way.ok().flatten().expect("moves lead there");
    made(plan, (value, Copy::Made), moves, layout, 1e-6)
}

fn made(
    plan: &mut Plan,
    (value, from): (ValueId, Copy),
    moves: Vec<Move>,
    layout: &Layout,
    seconds: f64,
) -> Copy {
    let (type_, mut before) = (plan.graph.type_of(value).clone(), plan.layout(value, from).clone());
    let mut bytes = Vec::new();
    for step in &moves {
        let after = step.apply(&plan.mesh, &type_, &before).unwrap();
        bytes.push(step.bytes(&plan.mesh, &type_, &before, &after));
        before = after;
    }
    let layout = layout.clone();
    let seconds = shared(seconds, &bytes);
    plan.transfers.push(Transfer { value, from, moves, layout, bytes, seconds, waits: false });
    Copy::Transferred(plan.transfers.len() - 1)
}

/// Few moves from one layout to another.
fn way(
    mesh: &Mesh,
    type_: &Type,
    from: &Layout,
    to: &Layout,
    u: &mut Unstructured<'_>,
) -> Result<Option<Vec<Move>>> {
    let mut reached: BTreeMap<Layout, Vec<Move>> = BTreeMap::from([(from.clone(), vec![])]);
    let mut last = vec![from.clone()];
    for _ in 0..MAX_MOVES {
        let mut next = Vec::new();
        for before in &last {
            let mut moves = moves(mesh, before, to);
            let turn = u.choose_index(moves.len().max(1))?;
            moves.rotate_left(turn);
            for step in moves {
                let Ok(after) = step.apply(mesh, type_, before) else { continue };
                if reached.contains_key(&after) {
                    continue;
                }
                let way = [&reached[before][..], &[step]].concat();
                if after == *to {
                    return Ok(Some(way));
                }
                reached.insert(after.clone(), way);
                next.push(after);
            }
        }
        last = next;
    }
    Ok(None)
}

/// Single moves that may lead from one layout towards another.
fn moves(mesh: &Mesh, from: &Layout, to: &Layout) -> Vec<Move> {
    let mut moves = Vec::new();
    if !from.owed.is_empty() {
        moves.push(Move::AllReduce { axes: from.owed.clone() });
        moves.extend(from.owed.iter().map(|&axis| Move::AllReduce { axes: vec![axis] }));
    }
    // Other moves act on digits that are coordinates alone.
    let skewed = |layout: &Layout| {
        layout.dims.iter().flatten().any(|digit| !digit.is_free() && digit.plain().is_none())
    };
    if skewed(from) || skewed(to) {
        let dims = [Some(to.dims.clone()), plain(mesh, from)];
        moves.extend(dims.into_iter().flatten().map(|dims| Move::Permute { dims }));
    }
    for (dim, held) in from.dims.iter().enumerate() {
        moves.extend((1..=held.len()).map(|digits| Move::AllGather { dim, digits }));
        for axis in mesh.axis_ids() {
            let digits = vec![Digit::axis(mesh, axis)];
            moves.push(Move::Slice { dim, digits: digits.clone() });
            moves.push(Move::ReduceScatter { dim, digits: digits.clone() });
            let others = (0..from.dims.len()).filter(|&other| other != dim);
            moves.extend(others.map(|from| Move::AllToAll { from, to: dim, digits: digits.clone() }));
        }
        // What a dimension finally gains at once, free digits included.
        let gained = to.dims.get(dim).filter(|to| to.starts_with(held)).map(|to| to[held.len()..].to_vec());
        moves.extend(gained.filter(|it| !it.is_empty()).map(|digits| Move::Slice { dim, digits }));
    }
    moves
}

/// The layout's blocks, numbered by coordinates: each digit by an axis of its own that it names.
fn plain(mesh: &Mesh, layout: &Layout) -> Option<Vec<Vec<Digit>>> {
    fn chosen(digits: &[&Digit], before: &[AxisId]) -> Option<Vec<AxisId>> {
        let Some((first, rest)) = digits.split_first() else { return Some(before.to_vec()) };
        let free = first.terms.iter().map(|term| term.0).filter(|axis| !before.contains(axis));
        free.map(|axis| chosen(rest, &[before, &[axis]].concat())).find_map(|it| it)
    }
    let digits: Vec<&Digit> = layout.dims.iter().flatten().filter(|digit| !digit.is_free()).collect();
    let mut axes = chosen(&digits, &[])?.into_iter();
    let mut own = |digit: &Digit| match digit.is_free() {
        true => Some(digit.clone()),
        false => axes.next().map(|axis| Digit::axis(mesh, axis)),
    };
    layout.dims.iter().map(|dim| dim.iter().map(&mut own).collect()).collect()
}

fn seconds(u: &mut Unstructured<'_>) -> Result<f64> {
    Ok(f64::from(u.int_in_range(1..=1_000_000u32)?) / 3e9)
}

pub(super) fn estimate(plan: &Plan) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    let mut add = |name: &str, seconds: f64| match terms.iter_mut().find(|term| term.name == name) {
        Some(term) => term.seconds += seconds,
        None => terms.push(Term { name: name.to_owned(), seconds }),
    };
    for node in plan.graph.node_ids() {
        if let Assignment::Computed { seconds, .. } = &plan.assignments[node.0] {
            let product = matches!(plan.graph.node(node).op, Op::Contract(_));
            let name = if product { "matrix products" } else { "element-wise" };
            add(name, *seconds * runs(plan.graph.runs(node)));
        }
    }
    for (transfer, often) in plan.transfers.iter().zip(plan.runs()) {
        add(transfer.moves[0].name(), transfer.takes() * runs(often));
    }
    terms
}

fn runs(often: u64) -> f64 {
    f64::from(u32::try_from(often).expect("samples have few micro-batches"))
}
