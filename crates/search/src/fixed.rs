//! Operations whose partition a user has fixed: only choices that agree are left.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use plan::{Pin, is_called, partition_in_words};
use planner_ir::{Graph, Mesh, Node, NodeId, Partition, parse_partition};
use rewrite::Space;

use crate::section::{Cut, Repetition, Section};

/// A partition that a user has fixed, in texts: what they mean depends on the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// What operations are called in the model file; `*` stands for any text.
    pub operations: String,
    /// Their partition, as plans print it.
    pub partition: String,
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.operations, self.partition)
    }
}

impl Fixed {
    /// What a user says to fix this.
    pub fn of(pin: &Pin, mesh: &Mesh) -> Self {
        Self { operations: pin.operations.clone(), partition: pin.partition.display(mesh).to_string() }
    }

    /// Whether it may be of some operation, however many loops that has: a forward one of the name that is
    /// computed at every step.
    pub fn names(&self, graph: &Graph) -> bool {
        named(graph, &self.operations).next().is_some()
    }

    /// How many loops the operations of the name have.
    pub fn counts(&self, graph: &Graph) -> BTreeSet<usize> {
        named(graph, &self.operations).map(|node| loops(graph, node)).collect()
    }

    /// How many loops the partition is of, whatever the mesh; nothing if the text is no partition.
    pub fn loops(&self) -> Option<usize> {
        let (inside, _) = self.partition.split_once('[')?.1.split_once(']')?;
        // Commas between brackets part the axes of one loop.
        let mut depth = 0_usize;
        let between = |&it: &char| {
            match it {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            it == ',' && depth == 0
        };
        let commas = inside.chars().filter(between).count();
        Some(if inside.trim().is_empty() { 0 } else { commas + 1 })
    }

    /// Whether the text is a partition along axes that a mesh has more than one place on.
    pub fn is_of_mesh(&self, mesh: &Mesh) -> bool {
        let axes = mesh.axes.iter().filter(|axis| axis.size > 1).cloned().collect();
        parse_partition(&Mesh { axes }, &self.partition).is_ok()
    }

    /// Whether it may be of an operation, by its name.
    pub fn is_of(&self, node: &Node) -> bool {
        is_called(node, &self.operations)
    }

    /// Whether it is of some operation: one of the name and of as many loops as the partition.
    fn is_in(&self, graph: &Graph) -> bool {
        match self.loops() {
            Some(own) => self.counts(graph).contains(&own),
            None => self.names(graph),
        }
    }
}

/// What every forward operation is called that is computed at every step, each name once.
pub fn names(graph: &Graph) -> BTreeSet<&str> {
    named(graph, "*").map(|node| graph.node(node).origin.as_str()).collect()
}

fn named<'a>(graph: &'a Graph, pattern: &'a str) -> impl Iterator<Item = NodeId> + 'a {
    let prepared = graph.prepared();
    graph.node_ids().filter(move |&id| {
        let node = graph.node(id);
        is_called(node, pattern) && !node.results.iter().all(|result| prepared[result.0])
    })
}

/// Why what is fixed cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FixedError {
    /// A text that is no partition on the mesh, for that reason.
    Text(Fixed, String),
    /// How blocks are exchanged is said besides: that is not fixed.
    Exchange(Fixed),
    /// An operation that cannot be computed so, and how it can be.
    Choices(Fixed, String, Vec<String>),
    /// Two partitions of one operation.
    Twice(Fixed, Fixed, String),
    /// No form of a block has operations of all of them.
    Apart(Vec<Fixed>),
}

impl FixedError {
    /// What is fixed of which it says that it cannot be.
    pub fn pins(&self) -> Vec<&Fixed> {
        match self {
            Self::Text(pin, _) | Self::Exchange(pin) | Self::Choices(pin, ..) => vec![pin],
            Self::Twice(one, other, _) => vec![one, other],
            Self::Apart(all) => all.iter().collect(),
        }
    }

    /// The one operation that it says cannot be so, if there is one.
    fn operation(&self) -> Option<&str> {
        match self {
            Self::Choices(_, operation, _) | Self::Twice(.., operation) => Some(operation),
            Self::Text(..) | Self::Exchange(_) | Self::Apart(_) => None,
        }
    }

    /// Whether an operation is one of those that cannot be so.
    pub fn is_of(&self, node: &Node) -> bool {
        let of_name = |name: &str| name == node.origin;
        self.operation().is_none_or(of_name) && self.pins().iter().any(|pin| pin.is_of(node))
    }

    /// What is fixed but for what cannot be: of an operation that cannot be so, all others of a pin are
    /// still fixed, by their names.
    pub fn without(&self, fixed: &[Fixed], graph: &Graph) -> Vec<Fixed> {
        let refused = self.pins();
        let left = |it: &Fixed| match (refused.iter().any(|pin| pin.operations == it.operations), self) {
            (false, _) => vec![it.clone()],
            (true, Self::Text(..) | Self::Exchange(_) | Self::Apart(_)) => vec![],
            (true, Self::Choices(..) | Self::Twice(..)) => {
                let nodes = named(graph, &it.operations).map(|node| graph.node(node));
                let others: BTreeSet<&str> =
                    nodes.filter(|node| !self.is_of(node)).map(|node| node.origin.as_str()).collect();
                let one = |name: &str| Fixed { operations: name.to_owned(), ..it.clone() };
                others.into_iter().map(one).collect()
            }
        };
        fixed.iter().flat_map(left).collect()
    }
}

impl fmt::Display for FixedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(pin, error) => write!(f, "`--pin {pin}` has no partition: {error}"),
            Self::Exchange(pin) => write!(
                f,
                "`--pin {pin}` says how blocks are exchanged, which is always chosen: leave `both ways`, `in place` \
                 and `by` out"
            ),
            Self::Choices(pin, operation, choices) => {
                write!(f, "`--pin {pin}`: `{operation}` cannot be computed so, expected one of")?;
                choices.iter().try_for_each(|choice| write!(f, "\n  {choice}"))
            }
            Self::Twice(one, other, operation) => {
                write!(f, "`--pin {one}` and `--pin {other}` are both of `{operation}`: leave one out")
            }
            Self::Apart(pins) => {
                let pins: Vec<String> = pins.iter().map(|pin| format!("`--pin {pin}`")).collect();
                write!(
                    f,
                    "{} are of operations that are never there together, since some are products that others \
                     are parts of: leave some out",
                    pins.join(" and ")
                )
            }
        }
    }
}

impl std::error::Error for FixedError {}

/// What is fixed of a program on a mesh, given in all its variants: of texts, those that are of operations.
pub(crate) fn pins(fixed: &[Fixed], graphs: &[&Graph], mesh: &Mesh) -> Result<Vec<Pin>, FixedError> {
    let mut pins: Vec<Pin> = Vec::new();
    for it in fixed.iter().filter(|it| graphs.iter().any(|graph| it.is_in(graph))) {
        let partition = parse_partition(mesh, &it.partition);
        let partition = partition.map_err(|error| FixedError::Text(it.clone(), error.to_string()))?;
        if partition != partition.exchanged_plainly() {
            return Err(FixedError::Exchange(it.clone()));
        }
        let pin = Pin { operations: it.operations.clone(), partition };
        if !pins.contains(&pin) {
            pins.push(pin);
        }
    }
    if pins.is_empty() {
        return Ok(pins);
    }
    let nodes = graphs.iter().flat_map(|&graph| named(graph, "*").map(move |node| (graph, node)));
    for (graph, node) in nodes {
        let of = pinned(graph, node, &pins);
        let differs = |it: &&usize| !pins[of[0]].is_kept(&pins[**it].partition);
        if let Some(&other) = of.iter().find(differs) {
            let [one, other] = [of[0], other].map(|it| Fixed::of(&pins[it], mesh));
            return Err(FixedError::Twice(one, other, graph.node(node).origin.clone()));
        }
    }
    Ok(pins)
}

fn loops(graph: &Graph, node: NodeId) -> usize {
    let node = graph.node(node);
    node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results)).ids().count()
}

/// The sections of a program, such that what is fixed is the same in all places where one stands.
pub(crate) fn apart<'a>(cut: &Cut<'a>, pins: &[Pin]) -> Cow<'a, [Section]> {
    if pins.is_empty() {
        return Cow::Borrowed(cut.sections);
    }
    let of = |it: &Repetition| {
        let nodes = it.nodes.iter().map(|&node| pinned(cut.graph, node, pins));
        nodes.collect::<Vec<_>>()
    };
    let parts = |section: &Section| {
        let runs = section.repetitions.chunk_by(|a, b| of(a) == of(b));
        let one = |run: &[Repetition]| Section { repetitions: run.to_vec(), ..section.clone() };
        runs.map(one).collect::<Vec<_>>()
    };
    cut.sections.iter().flat_map(parts).collect()
}

/// The numbers of the pins of an operation.
fn pinned(graph: &Graph, node: NodeId, pins: &[Pin]) -> Vec<usize> {
    let of = |pin: &Pin| pin.is_of(graph.node(node), loops(graph, node));
    (0..pins.len()).filter(|&number| of(&pins[number])).collect()
}

/// What is fixed of a section in one form of it.
pub(crate) struct Kept {
    /// The numbers of the pins that are of some of its operations.
    of: BTreeSet<usize>,
    /// Why its operations cannot be computed so.
    refused: Option<FixedError>,
}

/// Leaves the choices of a section's operations that agree with what is fixed.
pub(crate) fn keep(
    (graph, section): (&Graph, &Section),
    space: &mut Arc<Space>,
    mesh: &Mesh,
    pins: &[Pin],
) -> Kept {
    let mut kept = Kept { of: BTreeSet::new(), refused: None };
    let Some(repetition) = section.repetitions.first() else { return kept };
    if pins.is_empty() {
        return kept;
    }
    let space = Arc::make_mut(space);
    for (choices, &node) in space.choices.iter_mut().zip(&repetition.nodes) {
        if choices.is_empty() {
            continue;
        }
        for number in pinned(graph, node, pins) {
            let pin = &pins[number];
            kept.of.insert(number);
            if choices.iter().any(|it| pin.is_kept(&it.partition)) {
                *choices = choices.iter().filter(|it| pin.is_kept(&it.partition)).cloned().collect();
            } else if kept.refused.is_none() {
                let all = choices.iter().map(|it| in_words(graph, node, mesh, &it.partition)).collect();
                let operation = graph.node(node).origin.clone();
                kept.refused = Some(FixedError::Choices(Fixed::of(pin, mesh), operation, all));
            }
        }
    }
    kept
}

/// Which forms of a section have all that is fixed of some of them; why, if none has.
pub(crate) fn allowed(forms: &[&Kept], mesh: &Mesh, pins: &[Pin]) -> Result<Vec<bool>, FixedError> {
    let all: BTreeSet<usize> = forms.iter().flat_map(|it| &it.of).copied().collect();
    let allowed: Vec<bool> = forms.iter().map(|it| it.of == all && it.refused.is_none()).collect();
    if allowed.contains(&true) {
        return Ok(allowed);
    }
    let refused = forms.iter().find_map(|it| it.refused.clone());
    Err(refused
        .unwrap_or_else(|| FixedError::Apart(all.iter().map(|&it| Fixed::of(&pins[it], mesh)).collect())))
}

fn in_words(graph: &Graph, node: NodeId, mesh: &Mesh, partition: &Partition) -> String {
    let node = graph.node(node);
    let (operands, results) = (graph.types_of(&node.operands), graph.types_of(&node.results));
    let words = partition_in_words(mesh, &node.op, &operands, &results, partition);
    format!("{}: {words}", partition.display(mesh))
}

/// Along how many loops at once what is fixed splits an operation, as [`rewrite::Splits`] counts them.
pub(crate) fn splits(pins: &[Pin]) -> usize {
    let of = |it: &Partition| {
        it.loops.iter().filter(|digits| !digits.is_empty()).count() + usize::from(!it.passed.is_empty())
    };
    pins.iter().map(|pin| of(&pin.partition)).max().unwrap_or(0)
}

/// Whether something is fixed to be done in time steps.
pub(crate) fn takes_steps(pins: &[Pin]) -> bool {
    pins.iter().any(|pin| pin.partition.steps > 1)
}

#[cfg(test)]
mod tests;
