//! `partition`: a partition in space and time, drawn; and those of a plan.

use std::path::Path;

use ::plan::{Assignment, Plan};
use files::Failure;
use files::written;
use planner_ir::{Contract, DType, Digit, Label, Mesh, Op, Partition, Type, parse_partition};
use report::diagram::{Cell, Diagram, MAX_CELLS, Thing, diagram};
use serde_json::{Value, json};

use super::Said;
use crate::arguments::PartitionArguments;

/// Draws a partition of a product of two matrices.
pub(crate) fn partition(arguments: &PartitionArguments) -> Result<Said, Failure> {
    let PartitionArguments { partition: text, mesh, svg } = arguments;
    let usage = |error: String| Failure::Usage(format!("partition `{text}`: {error}"));
    let partition = parse_partition(mesh, text).map_err(|error| usage(error.to_string()))?;
    let op = product();
    let (operands, results) = types(&partition).ok_or_else(|| usage("its blocks are too many".to_owned()))?;
    partition.check(mesh, &op.loops(&operands, &results)).map_err(|error| usage(error.to_string()))?;
    drawn(mesh, &op, (&operands, &results), &partition, svg.as_deref())
}

/// Draws how a plan's operation of that name is computed.
pub(super) fn of_plan(plan: &Plan, name: &str, svg: Option<&Path>) -> Result<Said, Failure> {
    let found = plan.graph.nodes.iter().position(|node| node.origin == name);
    let Some((node, assignment)) = found.map(|it| (&plan.graph.nodes[it], &plan.assignments[it])) else {
        let message = format!("no operation is called `{name}`: `shardloom explain PLAN` lists them");
        return Err(Failure::Usage(message));
    };
    let Assignment::Computed { partition, .. } = assignment else {
        return Err(Failure::Usage(format!(
            "`{name}` is computed once, before the first step, on every rank"
        )));
    };
    let types = (&plan.graph.types_of(&node.operands)[..], &plan.graph.types_of(&node.results)[..]);
    drawn(&plan.mesh, &node.op, types, partition, svg)
}

fn drawn(
    mesh: &Mesh,
    op: &Op,
    types: (&[Type], &[Type]),
    partition: &Partition,
    svg: Option<&Path>,
) -> Result<Said, Failure> {
    let Some(diagram) = diagram(mesh, op, types, partition) else {
        let cells = mesh.devices().saturating_mul(partition.steps);
        let message = format!("{cells} ranks and steps are too many to draw, expected {} at most", MAX_CELLS);
        return Err(Failure::Usage(message));
    };
    let mut text = diagram.to_string();
    if let Some(path) = svg {
        written::write(path, diagram.svg().as_bytes())?;
        text += &format!("\npicture    {}\n", path.display());
    }
    Ok(Said { text, json: told(&diagram, svg) })
}

fn told(diagram: &Diagram, svg: Option<&Path>) -> Value {
    let thing = |it: &Thing| json!({ "name": it.name, "at_rest": it.at_rest, "moves": it.how, "received_bytes": it.received, "bytes": it.bytes });
    let works = |row: &Vec<Cell>| row.iter().map(|cell| cell.work.clone()).collect::<Vec<_>>();
    json!({
        "partition": diagram.title,
        "things": diagram.things.iter().map(thing).collect::<Vec<_>>(),
        "ranks": diagram.cells.iter().map(works).collect::<Vec<_>>(),
        "picture": svg.map(|path| path.display().to_string()),
    })
}

/// `Y[m,n] = X[m,k] W[k,n]`.
fn product() -> Op {
    let [m, k, n] = [0, 1, 2].map(Label);
    Op::Contract(Contract { left: vec![m, k], right: vec![k, n], result: vec![m, n] })
}

/// Small matrices that fall into the partition's blocks, so that shares are those of any.
fn types(partition: &Partition) -> Option<(Vec<Type>, Vec<Type>)> {
    // A dimension of extent 1 is no loop.
    let extent =
        |digits: &Vec<Digit>| digits.iter().try_fold(2u64, |count, digit| count.checked_mul(digit.size));
    let extents: Option<Vec<u64>> =
        partition.loops.iter().map(|it| extent(it)?.checked_mul(partition.ways.count())).collect();
    let (m, k, n) = match extents?[..] {
        [m, k, n] => (m, k, n),
        // Another number of loops is refused with the partition.
        _ => (2, 2, 2),
    };
    let of = |rows: u64, columns: u64| {
        rows.checked_mul(columns)?.checked_mul(DType::F32.bytes())?;
        Some(Type::new(DType::F32, [rows, columns]))
    };
    Some((vec![of(m, k)?, of(k, n)?], vec![of(m, n)?]))
}
