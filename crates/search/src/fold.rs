//! A training step as sections in sequence, its gradients and updates folded onto the forward part.
//!
//! ```text
//! F1 → F2 → F3             ┌────┐ h ┌────┐ h ┌────┐
//!           ↓       as     │F1 ─┼───┼F2 ─┼───┼F3  │
//! B1 ← B2 ← B3             │B1 ─┼───┼B2 ─┼───┼B3  │
//! U1   U2   U3             │U1  │ dh│U2  │ dh│U3  │
//!                          └────┘   └────┘   └────┘
//! ```
//!
//! What belongs to one segment of the model is one segment of the step: its forward operations, their
//! gradients, the updates of its parameters. Neighbours have in common what flows forward and what
//! flows back. A gradient crosses in the layout of a value of its shape that crosses the other way.
//! Segments that are equal are one section with repetitions. What crosses further is shared.

mod build; // a run of segments as a section
mod form; // what segments have to have in common to be equal

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Graph, NodeId, Source, ValueId};

use crate::section::{Section, Sharing};
use build::Builder;
use form::{Form, Link};

/// The most values that sections may share in any layout: these are searched together.
const MOST_SHARED: usize = 8;

/// The sections of a training step.
///
/// `homes` has for each operation the number of the segment it belongs to, along the chain;
/// `forward` for each operation of a gradient, or that is done again for one, the forward operation
/// that it belongs to. Where the segments cannot be joined the step is one section.
pub fn fold(graph: &Graph, homes: &[usize], forward: &[Option<NodeId>]) -> Vec<Section> {
    let step = Step::new(graph, homes, forward);
    step.sections().unwrap_or_else(|| vec![Section { forward: forward.to_vec(), ..Section::whole(graph) }])
}

/// The same of a program that has no variants: segments that stand alone are one with what lies between them where
/// they use the same parameters. What a segment shares is enumerated, what it has to itself is not.
pub fn fold_alone(graph: &Graph, homes: &[usize], forward: &[Option<NodeId>]) -> Vec<Section> {
    let step = Step::new(graph, homes, forward);
    let united = step.united();
    if united.iter().enumerate().all(|(at, &with)| at == with) {
        return fold(graph, homes, forward);
    }
    let homes: Vec<usize> = step.places.iter().map(|(segment, _)| united[*segment]).collect();
    fold(graph, &homes, forward)
}

/// A training step cut into segments.
struct Step<'a> {
    graph: &'a Graph,
    forward: &'a [Option<NodeId>],
    /// For each segment, its operations in order.
    segments: Vec<Vec<NodeId>>,
    /// For each operation, its segment and its place there.
    places: Vec<(usize, usize)>,
    prepared: Vec<bool>,
    /// The values that sections share: their numbers, and how.
    shared: BTreeMap<ValueId, (usize, Sharing)>,
    /// For each value that is added to a state that several segments share, that state.
    accumulated: BTreeMap<ValueId, ValueId>,
}

/// Equal segments in sequence: the first, and the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: usize,
    end: usize,
}

impl<'a> Step<'a> {
    fn new(graph: &'a Graph, homes: &[usize], forward: &'a [Option<NodeId>]) -> Self {
        let known: BTreeSet<usize> = homes.iter().copied().collect();
        let number: BTreeMap<usize, usize> = known.iter().enumerate().map(|(at, &home)| (home, at)).collect();
        let mut segments = vec![Vec::new(); known.len()];
        let mut places = Vec::new();
        for (node, home) in graph.node_ids().zip(homes) {
            let segment = number[home];
            places.push((segment, segments[segment].len()));
            segments[segment].push(node);
        }
        let prepared = graph.prepared();
        let (shared, accumulated) = (BTreeMap::new(), BTreeMap::new());
        let mut step = Self { graph, forward, segments, places, prepared, shared, accumulated };
        step.share();
        step
    }

    /// The segment that makes a value.
    fn maker(&self, value: ValueId) -> Option<usize> {
        match self.graph.value(value).source {
            Source::Result { node, .. } => Some(self.places[node.0].0),
            _ => None,
        }
    }

    /// Finds what is shared.
    fn share(&mut self) {
        let mut users: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.graph.values.len()];
        for node in self.graph.node_ids() {
            for operand in &self.graph.node(node).operands {
                users[operand.0].insert(self.places[node.0].0);
            }
        }
        let carried = self.graph.training.iter().flat_map(|training| &training.carried);
        for it in carried {
            users[it.state.0].extend(self.maker(it.next));
        }
        let sums = self.graph.sums();
        for value in self.graph.value_ids() {
            let number = self.shared.len();
            let users = &users[value.0];
            let state = self.accumulated_to(value, &sums);
            let sharing = match (&self.graph.value(value).source, self.maker(value)) {
                (Source::State(_) | Source::Weight(_), _) if users.len() > 1 => Sharing::Anywhere,
                (Source::Input(_), _) if users.len() > 1 => Sharing::Whole,
                (_, Some(maker)) => {
                    let others: Vec<usize> = users.iter().copied().filter(|&it| it != maker).collect();
                    match (state, &others[..]) {
                        (_, []) => continue,
                        (Some((state, number)), _) => {
                            self.shared.insert(value, (number, Sharing::Anywhere));
                            self.accumulated.insert(value, state);
                            continue;
                        }
                        (None, &[other]) if other.abs_diff(maker) == 1 && !self.prepared[value.0] => continue,
                        _ => Sharing::Whole,
                    }
                }
                _ => continue,
            };
            self.shared.insert(value, (number, sharing));
        }
    }

    /// The shared state that a value is the running sum of, and its number.
    fn accumulated_to(&self, value: ValueId, sums: &[Option<ValueId>]) -> Option<(ValueId, usize)> {
        let state = sums[value.0].filter(|&state| state != value)?;
        let &(number, sharing) = self.shared.get(&state)?;
        (sharing == Sharing::Anywhere).then_some((state, number))
    }

    /// For each segment the first one that it is united with, of those that stand alone.
    fn united(&self) -> Vec<usize> {
        let (forms, links) = self.forms();
        let mut alone = vec![false; forms.len()];
        runs(&forms, &links).iter().filter(|run| run.stands_alone()).for_each(|run| alone[run.first] = true);
        // Whether each is one with the next.
        let mut with_next = vec![false; forms.len()];
        let anywhere = self.shared.iter().filter(|(_, (_, sharing))| *sharing == Sharing::Anywhere);
        for (value, _) in anywhere {
            let uses = |form: &Form| form.shared.contains(value);
            let (first, last) = (forms.iter().position(uses), forms.iter().rposition(uses));
            let (Some(first), Some(last)) = (first, last) else { continue };
            if alone[first..=last].iter().all(|&it| it) {
                with_next[first..last].fill(true);
            }
        }
        let mut united: Vec<usize> = Vec::new();
        for at in 0..forms.len() {
            let before = at.checked_sub(1).filter(|&before| with_next[before]);
            united.push(before.map_or(at, |before| united[before]));
        }
        united
    }

    /// What segments are, and how each hangs together with the next one.
    fn forms(&self) -> (Vec<Form>, Vec<Link>) {
        let forms: Vec<Form> = (0..self.segments.len()).map(|segment| Form::of(self, segment)).collect();
        let links = forms.windows(2).map(|pair| Link::of(self, &pair[0], &pair[1])).collect();
        (forms, links)
    }

    /// The sections; nothing if they cannot be joined.
    fn sections(&self) -> Option<Vec<Section>> {
        let anywhere = self.shared.values().filter(|(_, sharing)| *sharing == Sharing::Anywhere);
        if anywhere.map(|(number, _)| number).collect::<BTreeSet<_>>().len() > MOST_SHARED {
            return None;
        }
        let (forms, links) = self.forms();
        let runs = runs(&forms, &links);
        let mut builders: Vec<Builder<'_>> =
            runs.iter().map(|&run| Builder::new(self, &forms[run.first..run.end], run.first)).collect();
        for (index, pair) in runs.windows(2).enumerate() {
            let [left, right] = pair else { continue };
            let inner = |run: &Run| (run.end - run.first > 1).then(|| &links[run.first]);
            let (before, after) = builders.split_at_mut(index + 1);
            build::join(
                (&mut before[index], inner(left)),
                (&mut after[0], inner(right)),
                &links[right.first - 1],
            );
        }
        for (builder, run) in builders.iter_mut().zip(&runs) {
            if run.end - run.first > 1 {
                builder.join_ends(&links[run.first], run.first == 0, run.end == self.segments.len());
            }
        }
        Some(builders.into_iter().map(Builder::section).collect())
    }
}

impl Run {
    fn stands_alone(&self) -> bool {
        self.end - self.first <= 1
    }
}

/// The segments as runs of equal ones whose neighbours fit.
fn runs(forms: &[Form], links: &[Link]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut first = 0;
    while first < forms.len() {
        let mut end = first + 1;
        while end < forms.len()
            && forms[first].repeats()
            && forms[end].equals(&forms[first])
            && links[end - 1] == links[first]
        {
            end += 1;
        }
        let mut run = Run { first, end };
        // What the surroundings use of a run is what its repetitions use of each other, and two
        // runs have a section between them.
        let repeats_before = runs.last().is_some_and(|before| !before.stands_alone());
        let more_before =
            || first > 0 && !links[first - 1].after.iter().all(|it| links[first].after.contains(it));
        if !run.stands_alone() && (repeats_before || more_before()) {
            run.end = first + 1;
        }
        if !run.stands_alone() && end < forms.len() {
            let used = &links[end - 1].before;
            if !used.iter().all(|it| links[first].before.contains(it)) {
                run.end -= 1;
            }
        }
        first = run.end;
        runs.push(run);
    }
    runs
}

#[cfg(test)]
mod alone;
#[cfg(test)]
pub(crate) mod tests;
