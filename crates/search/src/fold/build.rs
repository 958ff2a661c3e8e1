//! A run of equal segments as a section, and its joints with the neighbours.

use std::collections::BTreeMap;

use planner_ir::{Carried, Graph, NodeId, Source, Training, ValueId};

use super::Step;
use super::form::{Form, Link, Place, Reference, value_at};
use crate::section::{Repetition, Section, SharedValue};

/// A section that is being built.
pub(super) struct Builder<'a> {
    step: &'a Step<'a>,
    /// The segments, and the number of the first.
    forms: &'a [Form],
    first: usize,
    section: Section,
    /// What stands for which value of the body.
    known: BTreeMap<Reference, ValueId>,
}

/// What two neighbours have in common: pairs of a value of the one and of the other.
#[derive(Default)]
struct Joint {
    forward: Vec<(ValueId, ValueId)>,
    back: Vec<(ValueId, ValueId)>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(step: &'a Step<'a>, forms: &'a [Form], first: usize) -> Self {
        let name = format!("{}.{first}", step.graph.name);
        let nodes = |segment: usize| step.segments[segment].clone();
        let one = |at: usize| Repetition { values: vec![], nodes: nodes(first + at) };
        let section = Section {
            repetitions: (0..forms.len()).map(one).collect(),
            ..Section::whole(&Graph { name, ..Graph::default() })
        };
        let mut builder = Self { step, forms, first, section, known: BTreeMap::new() };
        builder.fill();
        builder
    }

    /// The values from outside, then the operations.
    fn fill(&mut self) {
        let form = &self.forms[0];
        let own = (0..form.own.len()).map(Reference::Own);
        let before = (0..form.before.len()).map(Reference::Before);
        let after = (0..form.after.len()).map(Reference::After);
        for reference in before.chain(after).chain(own) {
            self.take(reference);
        }
        for &value in &form.shared {
            if self.step.maker(value) != Some(self.first) {
                self.take(Reference::Shared(value));
            }
        }
        for (place, (node, &whole)) in form.nodes.iter().zip(&self.step.segments[self.first]).enumerate() {
            let operation = self.step.graph.node(whole);
            let operands = node.operands.iter().map(|operand| self.known[operand]).collect();
            let types = self.step.graph.types_of(&operation.results);
            let (op, origin) = (operation.op.clone(), operation.origin.clone());
            let results = self.section.graph.push_node_in(operation.phase, op, operands, types, origin);
            for (index, result) in results.into_iter().enumerate() {
                self.stands_for(Reference::Made((place, index)), result);
                let whole = operation.results[index];
                if self.step.graph.outputs.iter().any(|output| output.value == whole) {
                    self.section.returned.push(result);
                }
            }
            self.section.forward.push(node.forward.map(NodeId));
        }
        let becomes = |(state, next)| Carried { state: self.known[state], next: self.known[next] };
        let mut carried: Vec<Carried> =
            form.carried.iter().map(|(state, next)| becomes((state, next))).collect();
        carried.sort_by_key(|it| it.state);
        let micro_batches = self.step.graph.training.as_ref().map_or(1, |training| training.micro_batches);
        self.section.graph.training = Some(Training { micro_batches, carried });
        for &value in &form.shared {
            let reference = match self.step.maker(value) {
                Some(maker) if maker == self.first => self.made(value),
                _ => Some(Reference::Shared(value)),
            };
            let Some(place) = reference.map(|it| self.known[&it]) else { continue };
            let (number, sharing) = self.step.shared[&value];
            self.section.shared.push(SharedValue { value: place, number, sharing });
        }
    }

    fn made(&self, value: ValueId) -> Option<Reference> {
        match self.step.graph.value(value).source {
            Source::Result { node, index } => Some(Reference::Made((self.step.places[node.0].1, index))),
            _ => None,
        }
    }

    /// Adds a value from outside.
    fn take(&mut self, reference: Reference) {
        let value = self.whole(reference, 0);
        let name = self.section.graph.values.len().to_string();
        let source = match &self.step.graph.value(value).source {
            // A sum that goes on is at rest where it began.
            _ if self.step.accumulated.contains_key(&value) => {
                self.step.graph.value(self.step.accumulated[&value]).source.clone()
            }
            Source::Result { .. } if self.step.prepared[value.0] => Source::Weight(name),
            Source::Result { .. } => Source::Input(name),
            source => source.clone(),
        };
        let place = self.section.graph.push_value(self.step.graph.type_of(value).clone(), source);
        if let Reference::After(_) = reference {
            self.section.from_after.push(place);
        }
        self.stands_for(reference, place);
    }

    fn stands_for(&mut self, reference: Reference, place: ValueId) {
        self.known.insert(reference, place);
        for at in 0..self.forms.len() {
            let value = self.whole(reference, at);
            self.section.repetitions[at].values.push(value);
        }
    }

    /// The value of the program in a repetition.
    fn whole(&self, reference: Reference, at: usize) -> ValueId {
        let form = &self.forms[at];
        match reference {
            Reference::Made(place) => value_at(self.step, self.first + at, place),
            Reference::Before(number) => form.before[number],
            Reference::After(number) => form.after[number],
            Reference::Own(number) => form.own[number],
            Reference::Shared(value) => value,
        }
    }

    /// What a segment that stands alone takes from before, whether it uses it or not.
    fn taken_from_before(&mut self, value: ValueId) -> ValueId {
        if let Some(number) = self.forms[0].before.iter().position(|&it| it == value) {
            return self.known[&Reference::Before(number)];
        }
        self.unused(value)
    }

    /// What a segment that stands alone takes from after, whether it uses it or not.
    fn taken_from_after(&mut self, value: ValueId) -> ValueId {
        if let Some(number) = self.forms[0].after.iter().position(|&it| it == value) {
            return self.known[&Reference::After(number)];
        }
        let place = self.unused(value);
        self.section.from_after.push(place);
        place
    }

    fn unused(&mut self, value: ValueId) -> ValueId {
        let name = self.section.graph.values.len().to_string();
        let type_ = self.step.graph.type_of(value).clone();
        let place = self.section.graph.push_value(type_, Source::Input(name));
        self.section.repetitions[0].values.push(value);
        place
    }

    fn made_at(&self, place: Place) -> ValueId {
        self.known[&Reference::Made(place)]
    }

    /// What a repetition has in common with the next one.
    fn inner(&self, link: &Link) -> Joint {
        let before = (0..link.before.len()).map(|number| self.known[&Reference::Before(number)]);
        let after = (0..link.after.len()).map(|number| self.known[&Reference::After(number)]);
        Joint {
            forward: link.before.iter().map(|&place| self.made_at(place)).zip(before).collect(),
            back: after.zip(link.after.iter().map(|&place| self.made_at(place))).collect(),
        }
    }

    /// The ends of a run that has no neighbour there.
    pub(super) fn join_ends(&mut self, link: &Link, is_first: bool, is_last: bool) {
        let joint = self.inner(link);
        let (left, right) = joint.sides(&self.section.graph, &self.section.graph);
        if is_first {
            right.enter(&mut self.section);
        }
        if is_last {
            left.leave(&mut self.section);
        }
    }

    pub(super) fn section(self) -> Section {
        self.section
    }
}

/// Makes what a section hands on and what the next one takes agree; each with how its own
/// repetitions hang together, if it has several.
pub(super) fn join(
    (left, inside_left): (&mut Builder<'_>, Option<&Link>),
    (right, inside_right): (&mut Builder<'_>, Option<&Link>),
    link: &Link,
) {
    let last = left.forms.len() - 1;
    let mut joint = Joint::default();
    let forward: Vec<Place> = inside_left.unwrap_or(link).before.clone();
    for &place in &forward {
        let value = left.whole(Reference::Made(place), last);
        let taken = match inside_right {
            Some(_) => right.forms[0]
                .before
                .iter()
                .position(|&it| it == value)
                .map(|number| right.known[&Reference::Before(number)]),
            None => Some(right.taken_from_before(value)),
        };
        joint.forward.extend(taken.map(|taken| (left.made_at(place), taken)));
    }
    let back: Vec<Place> = inside_right.unwrap_or(link).after.clone();
    for &place in &back {
        let value = right.whole(Reference::Made(place), 0);
        let taken = match inside_left {
            Some(_) => left.forms[last]
                .after
                .iter()
                .position(|&it| it == value)
                .map(|number| left.known[&Reference::After(number)]),
            None => Some(left.taken_from_after(value)),
        };
        joint.back.extend(taken.map(|taken| (taken, right.made_at(place))));
    }
    let (sides_left, sides_right) = joint.sides(&left.section.graph, &right.section.graph);
    sides_left.leave(&mut left.section);
    sides_right.enter(&mut right.section);
}

/// One side of a joint: what is handed on, and what goes with it.
struct Side {
    ends: Vec<ValueId>,
    tied: Vec<(ValueId, ValueId)>,
}

impl Joint {
    /// Both sides: each value that flows back is tied to one of its shape that flows forward.
    fn sides(&self, left: &Graph, right: &Graph) -> (Side, Side) {
        let mut sides = [left, right].map(|_| Side { ends: vec![], tied: vec![] });
        let mut free: Vec<(ValueId, ValueId)> = self.forward.clone();
        let both = |pair: (ValueId, ValueId)| [pair.0, pair.1];
        for &pair in &self.forward {
            for (side, value) in sides.iter_mut().zip(both(pair)) {
                side.ends.push(value);
            }
        }
        for &pair in &self.back {
            let shape = &left.type_of(pair.0).shape;
            let found = free.iter().position(|it| left.type_of(it.0).shape == *shape);
            let partner = found.map(|found| both(free.remove(found)));
            for (index, (side, value)) in sides.iter_mut().zip(both(pair)).enumerate() {
                match partner {
                    Some(partner) => side.tied.push((partner[index], value)),
                    None => side.ends.push(value),
                }
            }
        }
        sides.into()
    }
}

impl Side {
    fn enter(self, section: &mut Section) {
        section.entry = self.ends;
        section.tied.extend(self.tied);
    }

    fn leave(self, section: &mut Section) {
        section.exit = self.ends;
        section.tied.extend(self.tied);
    }
}
