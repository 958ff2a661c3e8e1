//! Branches: one of them where the condition is known, else both.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Dynamic, Op, Region, RegionNode, Type, ValueId};

use super::{Bound, Importer, Scope};
use crate::builder::Step;
use crate::error::ImportError;
use crate::model;
use crate::node::OnnxNode;
use crate::outline::Outline;
use crate::proto::{GraphProto, NodeProto};

/// The results of an `If`.
pub(crate) fn lower(
    importer: &mut Importer,
    proto: &NodeProto,
    node: &OnnxNode,
    scope: &Scope,
) -> Result<Vec<Bound>, ImportError> {
    let condition = node.input(0)?;
    let known = importer.builder.known(condition).and_then(|array| array.to_truths().ok());
    if let Some([condition]) = known.as_deref() {
        let attribute = if *condition { "then_branch" } else { "else_branch" };
        return results(importer, proto, node, attribute, scope);
    }
    let (yes, yes_captured, yes_types) = region(importer, proto, node, "then_branch", scope)?;
    let (no, no_captured, no_types) = region(importer, proto, node, "else_branch", scope)?;
    importer.builder.set_place(node.place(), node.path);
    let types = joined(node, yes_types, &no_types)?;
    let operands: Vec<ValueId> = [vec![condition], yes_captured, no_captured].concat();
    let op = Op::Dynamic(Dynamic::If { yes: Box::new(yes), no: Box::new(no) });
    let values = importer.builder.emit_open(op, &operands, types)?;
    Ok(values.into_iter().map(Bound::Value).collect())
}

fn results(
    importer: &mut Importer,
    proto: &NodeProto,
    node: &OnnxNode,
    attribute: &str,
    scope: &Scope,
) -> Result<Vec<Bound>, ImportError> {
    let graph = graph(proto, node, attribute)?;
    let mut inside = Scope::inside(scope, &model::branch_path(&scope.path, proto, attribute));
    importer.inner(graph, &mut inside)
}

fn graph<'a>(proto: &'a NodeProto, node: &OnnxNode, attribute: &str) -> Result<&'a GraphProto, ImportError> {
    let found = proto.attribute.iter().find(|it| it.name == attribute);
    let graph = found.and_then(|it| it.g.as_ref());
    graph.ok_or_else(|| node.wrong(format!("attribute `{attribute}` is missing")))
}

/// A branch as a region, the values around it that it uses, and the types of its results.
fn region(
    importer: &mut Importer,
    proto: &NodeProto,
    node: &OnnxNode,
    attribute: &str,
    scope: &Scope,
) -> Result<(Region, Vec<ValueId>, Vec<Outline>), ImportError> {
    let first = importer.builder.steps.len();
    let results = results(importer, proto, node, attribute, scope)?;
    let steps = importer.builder.steps.split_off(first);
    let values = results.iter().map(|bound| match bound {
        Bound::Value(value) => Ok(*value),
        _ => Err(node.unsupported("branches that return lists of values")),
    });
    let values: Vec<ValueId> = values.collect::<Result<_, _>>()?;
    let types = values.iter().map(|&value| importer.builder.outline(value)).collect();
    let shapes = values.iter().map(|&value| importer.builder.type_of(value).clone()).collect();
    let (region, captured) = enclose(&[], &steps.iter().collect::<Vec<_>>(), &values, shapes);
    Ok((region, captured, types))
}

/// Steps as a region with these results, and the values around it that are its operands, after the
/// leading ones.
pub(crate) fn enclose(
    leading: &[ValueId],
    steps: &[&Step],
    results: &[ValueId],
    types: Vec<Type>,
) -> (Region, Vec<ValueId>) {
    let steps = needed(steps, results);
    let made: Vec<ValueId> = steps.iter().flat_map(|step| step.results.iter().copied()).collect();
    let mut numbers: BTreeMap<ValueId, usize> = leading.iter().copied().zip(0..).collect();
    let mut captured = Vec::new();
    let inside: BTreeSet<ValueId> = made.iter().copied().collect();
    let used = steps.iter().flat_map(|step| &step.operands).chain(results);
    for &value in used {
        if !inside.contains(&value) && !numbers.contains_key(&value) {
            numbers.insert(value, numbers.len());
            captured.push(value);
        }
    }
    for value in made {
        numbers.insert(value, numbers.len());
    }
    let nodes = steps.iter().map(|step| RegionNode {
        op: step.op.clone(),
        operands: step.operands.iter().map(|operand| numbers[operand]).collect(),
        results: step.results.len(),
    });
    let region = Region {
        operands: leading.len() + captured.len(),
        nodes: nodes.collect(),
        results: results.iter().map(|result| numbers[result]).collect(),
        types,
    };
    (region, captured)
}

/// The steps that these results need.
fn needed<'a>(steps: &[&'a Step], results: &[ValueId]) -> Vec<&'a Step> {
    let mut wanted: BTreeSet<ValueId> = results.iter().copied().collect();
    let mut kept: Vec<&Step> = Vec::new();
    for &step in steps.iter().rev() {
        if step.results.iter().any(|result| wanted.contains(result)) {
            wanted.extend(&step.operands);
            kept.push(step);
        }
    }
    kept.reverse();
    kept
}

/// What is known of the types of results that come from either branch.
pub(crate) fn joined(
    node: &OnnxNode,
    yes: Vec<Outline>,
    no: &[Outline],
) -> Result<Vec<Outline>, ImportError> {
    if yes.len() != no.len() {
        return Err(node.wrong(format!("branches return {} and {} values", yes.len(), no.len())));
    }
    let pairs = yes.into_iter().zip(no);
    pairs
        .map(|(a, b)| {
            if a.dtype != b.dtype || a.rank() != b.rank() {
                return Err(node.unsupported("branches whose results differ in elements or rank"));
            }
            let extents = a.extents.iter().zip(&b.extents).map(|(a, b)| if a == b { *a } else { None });
            Ok(Outline::new(a.dtype, extents.collect()))
        })
        .collect()
}
