//! What segments have to have in common to be equal, and how neighbours hang together.

use planner_ir::{Graph, Node, NodeId, Op, Phase, Source, StateKind, Type, ValueId};

use super::Step;

/// A result in a segment: of which of its operations, and which.
pub(super) type Place = (usize, usize);

/// A value as a segment sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reference {
    /// Made here.
    Made(Place),
    /// The n-th value that the segment before makes.
    Before(usize),
    /// The n-th value that the segment after makes.
    After(usize),
    /// The n-th value that only this segment uses and that nothing makes.
    Own(usize),
    /// A shared value.
    Shared(ValueId),
}

/// A segment without the names of its values.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) nodes: Vec<FormNode>,
    /// What states become.
    pub(super) carried: Vec<(Reference, Reference)>,
    /// The values that references number.
    pub(super) before: Vec<ValueId>,
    pub(super) after: Vec<ValueId>,
    pub(super) own: Vec<ValueId>,
    /// The shared values it uses or makes.
    pub(super) shared: Vec<ValueId>,
    /// The types of all these, and what is at rest.
    types: Vec<(Type, Rest)>,
    makes_shared: bool,
}

/// An operation of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormNode {
    op: Op,
    phase: Phase,
    pub(super) operands: Vec<Reference>,
    types: Vec<Type>,
    returned: Vec<bool>,
    pub(super) forward: Option<usize>,
}

/// What kind of thing a value that nothing here makes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Handed,
    Input,
    Weight,
    State(StateKind),
}

/// How a segment and the one after it hang together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// For each value that the second takes from before, where the first makes it.
    pub(super) before: Vec<Place>,
    /// For each value that the first takes from after, where the second makes it.
    pub(super) after: Vec<Place>,
}

impl Form {
    pub(super) fn of(step: &Step<'_>, segment: usize) -> Self {
        let mut form = Self {
            nodes: Vec::new(),
            carried: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            own: Vec::new(),
            shared: Vec::new(),
            types: Vec::new(),
            makes_shared: false,
        };
        for &node in &step.segments[segment] {
            let Node { op, operands, results, phase, .. } = step.graph.node(node);
            let operands = operands.iter().map(|&operand| form.reference(step, segment, operand)).collect();
            let is_shared = |value: &&ValueId| step.shared.contains_key(value);
            for &result in results.iter().filter(is_shared) {
                form.shared.push(result);
                form.makes_shared = true;
            }
            let returned = |result: &ValueId| step.graph.outputs.iter().any(|output| output.value == *result);
            let forward = step.forward[node.0].map(|it| step.places[it.0]);
            form.nodes.push(FormNode {
                op: op.clone(),
                phase: *phase,
                operands,
                types: step.graph.types_of(results),
                returned: results.iter().map(returned).collect(),
                forward: forward.filter(|(home, _)| *home == segment).map(|(_, place)| place),
            });
        }
        for it in step.graph.training.iter().flat_map(|training| &training.carried) {
            if step.maker(it.next) == Some(segment) {
                let state = form.reference(step, segment, it.state);
                let next = form.reference(step, segment, it.next);
                form.carried.push((state, next));
            }
        }
        form.types = [&form.before, &form.after, &form.own]
            .into_iter()
            .flatten()
            .map(|&value| {
                (step.graph.type_of(value).clone(), rest(step.graph, value, step.prepared[value.0]))
            })
            .collect();
        form
    }

    fn reference(&mut self, step: &Step<'_>, segment: usize, value: ValueId) -> Reference {
        if let Source::Result { node, index } = step.graph.value(value).source {
            let (home, place) = step.places[node.0];
            if home == segment {
                return Reference::Made((place, index));
            }
        }
        if step.shared.contains_key(&value) {
            if !self.shared.contains(&value) {
                self.shared.push(value);
            }
            return Reference::Shared(value);
        }
        let number = |list: &mut Vec<ValueId>| match list.iter().position(|&it| it == value) {
            Some(known) => known,
            None => {
                list.push(value);
                list.len() - 1
            }
        };
        match step.maker(value) {
            Some(home) if home < segment => Reference::Before(number(&mut self.before)),
            Some(_) => Reference::After(number(&mut self.after)),
            None => Reference::Own(number(&mut self.own)),
        }
    }

    /// Whether it may stand more than once: what it makes is its own or its neighbours'.
    pub(super) fn repeats(&self) -> bool {
        !self.makes_shared
    }

    pub(super) fn equals(&self, other: &Self) -> bool {
        self.nodes == other.nodes
            && self.carried == other.carried
            && self.types == other.types
            && [self.before.len(), self.after.len()] == [other.before.len(), other.after.len()]
            && self.shared == other.shared
    }
}

impl Link {
    pub(super) fn of(step: &Step<'_>, first: &Form, second: &Form) -> Self {
        let places = |values: &[ValueId]| values.iter().filter_map(|&value| place(step, value)).collect();
        Self { before: places(&second.before), after: places(&first.after) }
    }
}

/// Where in its segment a value is made.
fn place(step: &Step<'_>, value: ValueId) -> Option<Place> {
    match step.graph.value(value).source {
        Source::Result { node, index } => Some((step.places[node.0].1, index)),
        _ => None,
    }
}

fn rest(graph: &Graph, value: ValueId, prepared: bool) -> Rest {
    match &graph.value(value).source {
        Source::Input(_) => Rest::Input,
        Source::Weight(_) => Rest::Weight,
        Source::State(state) => Rest::State(state.kind),
        Source::Result { .. } if prepared => Rest::Weight,
        Source::Result { .. } => Rest::Handed,
    }
}

/// The value at a place of a segment.
pub(super) fn value_at(step: &Step<'_>, segment: usize, (node, index): Place) -> ValueId {
    let node: NodeId = step.segments[segment][node];
    step.graph.node(node).results[index]
}
