//! A solution written out as a plan: for every operation its partition, for every use of a value
//! the copy that is read, and the moves that make the copies.

use plan::{Assignment, Copy, Holding, Plan, Term, Transfer};
use planner_ir::{Graph, Layout, Mesh, Node, Op, Source, ValueId};
use rewrite::Space;

use crate::assemble::{Assembled, is_prepared};
use crate::prices::Prices;
use crate::section::{Repetition, Section};

/// The parts of a plan that the choices decide.
#[derive(Debug)]
pub(crate) struct Composed {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) transfers: Vec<Transfer>,
    /// For each value that is returned, the copy.
    pub(crate) returned: Vec<Option<Copy>>,
    /// For each value handed on, the copy that is handed on.
    handed: Vec<Option<Copy>>,
}

impl Composed {
    pub(crate) fn new(graph: &Graph) -> Self {
        Self {
            layouts: graph.values.iter().map(|value| Layout::replicated(value.type_.rank())).collect(),
            assignments: vec![Assignment::Prepared; graph.nodes.len()],
            transfers: Vec::new(),
            returned: vec![None; graph.values.len()],
            handed: vec![None; graph.values.len()],
        }
    }
}

/// One block in one place, being written out.
pub(crate) struct Writer<'a> {
    pub(crate) section: &'a Section,
    pub(crate) repetition: &'a Repetition,
    pub(crate) space: &'a Space,
    pub(crate) assembled: &'a Assembled,
    pub(crate) choices: &'a [usize],
    pub(crate) mesh: &'a Mesh,
    pub(crate) prices: &'a dyn Prices,
    pub(crate) composed: &'a mut Composed,
}

impl Writer<'_> {
    /// Writes the block: operations in order, each after the copies it reads.
    pub(crate) fn write(&mut self) {
        let graph = &self.section.graph;
        // For each value the copy that uses start from, and its layout's number.
        let mut start: Vec<Option<(Copy, usize)>> = vec![None; graph.values.len()];
        for value in graph.value_ids() {
            if let Some(node) = self.assembled.rest[value.0] {
                start[value.0] = Some(self.at_rest(value, node));
            }
        }
        for node in graph.node_ids() {
            if is_prepared(graph, node, &self.space.prepared) {
                continue;
            }
            let Node { operands, results, .. } = graph.node(node);
            let Some(work) = self.assembled.work[node.0] else { continue };
            let choice = &self.space.choices[node.0][self.choices[work]];
            let mut copies = Vec::new();
            for (&operand, &needed) in operands.iter().zip(&choice.operands) {
                let from = self.hold(operand, &mut start);
                copies.push(self.transfer(operand, from, needed));
            }
            let seconds = self.assembled.problem.times[work][self.choices[work]];
            let whole = self.repetition.nodes[node.0];
            self.composed.assignments[whole.0] =
                Assignment::Computed { partition: choice.partition.clone(), operands: copies, seconds };
            for (&result, &layout) in results.iter().zip(&choice.results) {
                let whole = self.repetition.values[result.0];
                self.composed.layouts[whole.0] = self.space.layouts[result.0][layout].clone();
                start[result.0] = Some((Copy::Made, layout));
            }
        }
        for value in graph.value_ids() {
            if let Some(node) = self.assembled.delivered[value.0] {
                let from = self.hold(value, &mut start);
                let needed = self.assembled.layouts[node][self.choices[node]];
                let copy = self.transfer(value, from, needed);
                let whole = self.repetition.values[value.0];
                self.composed.handed[whole.0] = Some(copy);
                if self.section.returned.contains(&value) {
                    self.composed.returned[whole.0] = Some(copy);
                }
            }
        }
    }

    /// What is at rest has the layout chosen; what comes from outside is the copy handed on.
    fn at_rest(&mut self, value: ValueId, node: usize) -> (Copy, usize) {
        let layout = self.assembled.layouts[node][self.choices[node]];
        let whole = self.repetition.values[value.0];
        if let Some(copy) = self.composed.handed[whole.0].filter(|_| self.section.is_outside(value)) {
            return (copy, layout);
        }
        self.composed.layouts[whole.0] = self.space.layouts[value.0][layout].clone();
        (Copy::Made, layout)
    }

    /// The copy that uses of a value start from: the one that is held, made when first needed.
    fn hold(&mut self, value: ValueId, start: &mut [Option<(Copy, usize)>]) -> (Copy, usize) {
        let Some(made) = start[value.0] else { unreachable!("a value is made before it is used") };
        let Some(node) = self.assembled.held[value.0] else { return made };
        let layout = self.assembled.layouts[node][self.choices[node]];
        let copy = self.transfer(value, made, layout);
        start[value.0] = Some((copy, layout));
        (copy, layout)
    }

    /// The copy in the layout that is needed; a new one unless it is the same layout.
    fn transfer(&mut self, value: ValueId, (from, before): (Copy, usize), needed: usize) -> Copy {
        if before == needed {
            return from;
        }
        let (type_, layouts) = (self.section.graph.type_of(value), &self.space.layouts[value.0]);
        let ways = &self.assembled.found[self.assembled.ways[value.0]];
        let edges = &self.space.moves[value.0];
        let steps: Vec<&rewrite::Edge> =
            ways.moves(edges, before, needed).into_iter().map(|it| &edges[it]).collect();
        let bytes =
            |edge: &&rewrite::Edge| edge.step.bytes(self.mesh, type_, &layouts[edge.from], &layouts[edge.to]);
        let time = |edge: &&rewrite::Edge| {
            self.prices.step(type_, &edge.step, &layouts[edge.from], &layouts[edge.to])
        };
        self.composed.transfers.push(Transfer {
            value: self.repetition.values[value.0],
            from,
            bytes: steps.iter().map(bytes).collect(),
            seconds: steps.iter().map(time).sum(),
            moves: steps.iter().map(|edge| edge.step.clone()).collect(),
            layout: layouts[needed].clone(),
        });
        Copy::Transferred(self.composed.transfers.len() - 1)
    }
}

/// What a step takes, by the kind of operation and of move, in order of appearance.
pub(crate) fn estimate(graph: &Graph, composed: &Composed, mesh: &Mesh, prices: &dyn Prices) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    let mut add = |name: &str, seconds: f64| match terms.iter_mut().find(|term| term.name == name) {
        Some(term) => term.seconds += seconds,
        None => terms.push(Term { name: name.to_owned(), seconds }),
    };
    for (node, assignment) in graph.nodes.iter().zip(&composed.assignments) {
        if let Assignment::Computed { seconds, .. } = assignment {
            add(kind(&node.op), *seconds);
        }
    }
    for transfer in &composed.transfers {
        let type_ = graph.type_of(transfer.value);
        let mut layout = match transfer.from {
            Copy::Made => composed.layouts[transfer.value.0].clone(),
            Copy::Transferred(it) => composed.transfers[it].layout.clone(),
        };
        for step in &transfer.moves {
            let Ok(after) = step.apply(mesh, type_, &layout) else { break };
            add(step.name(), prices.step(type_, step, &layout, &after));
            layout = after;
        }
    }
    terms
}

/// The name of the term that an operation's time belongs to.
pub fn kind(op: &Op) -> &'static str {
    match op {
        Op::Contract(_) => "matrix products",
        Op::Attention(_) | Op::AttentionGradient { .. } => "attention",
        Op::Experts { .. } | Op::ExpertsGradient { .. } => "experts",
        Op::Conv(_) | Op::ConvInputGradient { .. } | Op::ConvWeightGradient { .. } => "convolutions",
        Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::InstanceNorm { .. } | Op::Softmax { .. } => "norms",
        Op::LayerNormGradient { .. } | Op::RmsNormGradient { .. } | Op::SoftmaxGradient { .. } => "norms",
        Op::Gather { .. } | Op::GatherNd { .. } | Op::GatherElements { .. } => "look-ups",
        Op::GatherGradient { .. } => "look-ups",
        Op::Update(_) => "optimizer steps",
        Op::Region(_) => "regions kept whole",
        _ => "element-wise",
    }
}

/// What a device holds by kind (bytes): weights and prepared values, inputs, and the most that is
/// live at once of values and of copies, from their making to their last use.
pub(crate) fn memory(plan: &Plan) -> Vec<Holding> {
    let graph = &plan.graph;
    let prepared = graph.prepared();
    let local = |value: ValueId, layout: &Layout| layout.local_type(graph.type_of(value)).bytes();
    let uses = Lifetimes::of(plan);
    let mut weights = 0;
    let mut inputs = 0;
    for value in graph.value_ids() {
        let bytes = local(value, &plan.layouts[value.0]);
        match graph.value(value).source {
            Source::Input(_) => inputs += bytes,
            _ if prepared[value.0] && uses.made[value.0].is_some() => weights += bytes,
            _ => {}
        }
    }
    let steps = graph.nodes.len() + 1;
    let mut values = vec![0i128; steps + 1];
    let mut copies = vec![0i128; steps + 1];
    let add = |live: &mut Vec<i128>, (first, last): (usize, usize), bytes: u64| {
        live[first] += i128::from(bytes);
        live[last + 1] -= i128::from(bytes);
    };
    for (value, span) in uses.made.iter().enumerate() {
        let made = matches!(graph.values[value].source, Source::Result { .. }) && !prepared[value];
        if let (Some(span), true) = (span, made) {
            add(&mut values, *span, local(ValueId(value), &plan.layouts[value]));
        }
    }
    for (transfer, span) in plan.transfers.iter().zip(&uses.copies) {
        if let Some(span) = span {
            add(&mut copies, *span, local(transfer.value, &transfer.layout));
        }
    }
    let (mut live, mut moved, mut most) = (0, 0, (0, 0));
    for (value, copy) in values.iter().zip(&copies) {
        live += value;
        moved += copy;
        if live + moved > most.0 + most.1 {
            most = (live, moved);
        }
    }
    let holding = |kind: &str, bytes: u64| Holding { kind: kind.to_owned(), bytes };
    let size = |bytes: i128| u64::try_from(bytes).unwrap_or(0);
    vec![
        holding("weights", weights),
        holding("inputs", inputs),
        holding("activations", size(most.0)),
        holding("communication", size(most.1)),
    ]
}

/// From when to when values and copies are needed, as positions of operations; the last position
/// is after all of them.
struct Lifetimes {
    made: Vec<Option<(usize, usize)>>,
    copies: Vec<Option<(usize, usize)>>,
}

impl Lifetimes {
    fn of(plan: &Plan) -> Self {
        let graph = &plan.graph;
        let mut lifetimes =
            Self { made: vec![None; graph.values.len()], copies: vec![None; plan.transfers.len()] };
        for (position, (node, assignment)) in graph.nodes.iter().zip(&plan.assignments).enumerate() {
            if let Assignment::Computed { operands, .. } = assignment {
                for (&value, &copy) in node.operands.iter().zip(operands) {
                    lifetimes.use_at(plan, value, copy, position);
                }
                for &result in &node.results {
                    lifetimes.use_at(plan, result, Copy::Made, position);
                }
            }
        }
        for (output, &copy) in graph.outputs.iter().zip(&plan.outputs) {
            lifetimes.use_at(plan, output.value, copy, graph.nodes.len());
        }
        lifetimes
    }

    /// A use of a copy is a use of what it is made from, at the same time or before.
    fn use_at(&mut self, plan: &Plan, value: ValueId, copy: Copy, position: usize) {
        let span = match copy {
            Copy::Made => &mut self.made[value.0],
            Copy::Transferred(it) => &mut self.copies[it],
        };
        let fresh = span.is_none();
        let (first, last) = span.unwrap_or((position, position));
        *span = Some((first.min(position), last.max(position)));
        if let (Copy::Transferred(it), true) = (copy, fresh) {
            self.use_at(plan, value, plan.transfers[it].from, position);
        }
    }
}
