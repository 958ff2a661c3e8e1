//! What plans move of parameters and their gradients, and what the textbook says that they move.
//!
//! Parameters are taken in families: those that are put together before they are used (experts) are
//! one. A family is not held to the textbook if what is made of it, or its gradient on the way back,
//! is handed from block to block: such values owe no sums, and of what several blocks have in common
//! every device has the whole ([`search::Sharing`]), so that it is moved where it is made.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Plan, ValueKind, traffic};
use planner_ir::{Binary, Graph, Node, Op, Phase, Source, State, StateKind, Type, ValueId};
use search::Section;

/// Bytes by kind of value and of move.
type Moved = BTreeMap<(ValueKind, &'static str), u64>;

/// The parameters of a step in families, and what belongs to each.
pub(super) struct Families<'a> {
    graph: &'a Graph,
    /// For each value, a parameter that it is computed from, if it is from parameters and constants
    /// alone.
    stems: Vec<Option<ValueId>>,
    /// For each value, whether it is computed from weights and constants alone.
    constant: Vec<bool>,
    /// For each value, a parameter of whose gradient it is all or a part, before or after it is
    /// summed.
    gradients: Vec<Option<ValueId>>,
    /// For each value that is a gradient at rest, or one with something added, that gradient.
    sums: Vec<Option<ValueId>>,
    /// For each value, one that stands for the same family.
    above: Vec<ValueId>,
    /// The families of which a value is handed from block to block.
    shared: BTreeSet<ValueId>,
}

impl<'a> Families<'a> {
    /// The families of a planned step, made of this one, which falls into these blocks.
    pub(super) fn new(graph: &'a Graph, step: &Graph, sections: &[Section]) -> Self {
        let mut numbers = vec![None; step.values.len()];
        for (number, value) in graph.value_ids().zip(rewrite::joined_as(step, graph).values) {
            numbers[value.0] = Some(number);
        }
        let none = vec![None; graph.values.len()];
        let above = graph.value_ids().collect();
        let constant = graph.values.iter().map(|it| matches!(it.source, Source::Weight(_))).collect();
        let (stems, shared) = (none.clone(), BTreeSet::new());
        let sums = graph.sums();
        let mut it = Self { graph, stems, constant, gradients: none, sums, above, shared };
        it.find_stems();
        it.find_gradients();
        for section in sections {
            let handed = [&section.entry, &section.exit, &section.from_after].into_iter().flatten().copied();
            let shared = section.shared.iter().map(|it| it.value);
            for (place, repetition) in
                handed.chain(shared).flat_map(|it| section.repetitions.iter().map(move |r| (it, r)))
            {
                // What is added where it is made is handed to nobody.
                let Some(value) = numbers[repetition.values[place.0].0] else { continue };
                if it.is_made(value) {
                    it.shared.extend([it.stems[value.0], it.gradients[value.0]].into_iter().flatten());
                }
            }
        }
        it.shared = it.shared.iter().map(|&value| it.root(value)).collect();
        it
    }

    /// Whether a value is neither at rest nor a sum that rests between micro-batches.
    fn is_made(&self, value: ValueId) -> bool {
        matches!(self.graph.value(value).source, Source::Result { .. }) && self.sums[value.0].is_none()
    }

    /// The names of the parameters that are not held to the textbook.
    pub(super) fn apart(&self) -> Vec<String> {
        let apart = self.parameters().filter(|(value, _)| self.shared.contains(&self.root(*value)));
        apart.map(|(_, name)| name.to_owned()).collect()
    }

    fn parameters(&self) -> impl Iterator<Item = (ValueId, &str)> {
        self.graph
            .value_ids()
            .filter_map(|value| Some((value, state(self.graph, value, StateKind::Parameter)?)))
    }

    fn root(&self, mut value: ValueId) -> ValueId {
        while self.above[value.0] != value {
            value = self.above[value.0];
        }
        value
    }

    fn unite(&mut self, a: ValueId, b: ValueId) {
        let (a, b) = (self.root(a), self.root(b));
        self.above[a.0.max(b.0)] = ValueId(a.0.min(b.0));
    }

    fn find_stems(&mut self) {
        let graph = self.graph;
        let parameters: Vec<ValueId> = self.parameters().map(|it| it.0).collect();
        for value in parameters {
            self.stems[value.0] = Some(value);
        }
        for node in graph.nodes.iter().filter(|node| node.phase != Phase::Update) {
            if !node.operands.iter().all(|it| self.constant[it.0] || self.stems[it.0].is_some()) {
                continue;
            }
            let from: Vec<ValueId> = node.operands.iter().filter_map(|it| self.stems[it.0]).collect();
            from.windows(2).for_each(|pair| self.unite(pair[0], pair[1]));
            for result in &node.results {
                self.stems[result.0] = from.first().copied();
                self.constant[result.0] = from.is_empty();
            }
        }
    }

    fn find_gradients(&mut self) {
        let graph = self.graph;
        let named: BTreeMap<String, ValueId> =
            self.parameters().map(|(value, name)| (name.to_owned(), value)).collect();
        for (value, sum) in self.sums.iter().enumerate() {
            if let Some(name) = sum.and_then(|it| state(graph, it, StateKind::Gradient)) {
                self.gradients[value] = Some(named[name]);
            }
        }
        // Back from the sums to where the addends are made.
        for node in graph.nodes.iter().rev().filter(|node| node.phase != Phase::Update) {
            let Some(of) = self.gradients[node.results[0].0] else { continue };
            for operand in self.handed_on(node) {
                match self.gradients[operand.0] {
                    Some(other) => self.unite(of, other),
                    None => self.gradients[operand.0] = Some(of),
                }
            }
        }
    }

    /// The family and the kind of a value, if it is of a parameter.
    fn of(&self, value: ValueId) -> Option<(ValueId, ValueKind)> {
        let carried = &self.graph.training.as_ref().expect("it is a step").carried;
        let value = carried.iter().find(|it| it.next == value).map_or(value, |it| it.state);
        let of = |it: &Vec<Option<ValueId>>| it[value.0].map(|it| self.root(it));
        of(&self.stems)
            .map(|it| (it, ValueKind::Parameter))
            .or_else(|| of(&self.gradients).map(|it| (it, ValueKind::Gradient)))
    }
}

/// Says where a step moves other bytes than the textbook says of data parallelism over all ranks,
/// from this stage of ZeRO on; or bytes that [`traffic`] counts as something else.
///
/// Source: Rajbhandari et al., "ZeRO", 2020, sections 5 and 7: of P bytes of parameters, n devices
/// together receive 2 (n - 1) P in plain data parallelism (an all-reduce of gradients) and in
/// stages 1 and 2 (a reduce-scatter of gradients, an all-gather of parameters); in stage 3
/// parameters are gathered for the forward and again for the backward pass. From stage 2 on
/// gradients are reduced for each micro-batch, in stage 3 parameters are gathered for each. Tied
/// parameters are used, and their gradients added, once more. Parameters none of whose dimensions
/// falls into n parts stay whole in every stage. Of a table of which the model says which rows are
/// used, a plan may move these alone.
pub(super) fn check(plan: &Plan, families: &Families<'_>, stage: u8, ranks: u64) -> Result<(), String> {
    let mut found = found(plan, families);
    let [whole, rows] = [Tables::Whole, Tables::Rows].map(|it| families.textbook(stage, ranks, it));
    let mut counted = Moved::new();
    for (what, bytes) in found.values().flatten() {
        *counted.entry(*what).or_default() += bytes;
    }
    let kinds = [ValueKind::Gradient, ValueKind::Parameter];
    let said = traffic(plan).into_iter().filter(|it| kinds.contains(&it.kind) && it.traffic.bytes > 0);
    let said: Moved = said.map(|it| ((it.kind, it.traffic.name), it.traffic.bytes)).collect();
    if counted != said {
        return Err(format!("{counted:?} of parameters move, of which it is said {said:?}"));
    }
    for (family, name) in families.parameters() {
        if families.root(family) != family || families.shared.contains(&family) {
            continue;
        }
        let moved = found.remove(&family).unwrap_or_default();
        let (whole, rows) = (&whole[&family], &rows[&family]);
        let as_said = |what| moved.get(what) == whole.get(what) || moved.get(what) == rows.get(what);
        if !moved.keys().chain(whole.keys()).all(as_said) {
            let by = by(plan, families, family);
            return Err(format!("moves {moved:?} of {name}, in the textbook {whole:?} or {rows:?}: {by:#?}"));
        }
    }
    Ok(())
}

/// What is moved of a table of which the model says which rows are used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    /// All of it.
    Whole,
    /// What is looked up in it.
    Rows,
}

/// What a step moves of each family.
fn found(plan: &Plan, families: &Families<'_>) -> BTreeMap<ValueId, Moved> {
    let mut found: BTreeMap<ValueId, Moved> = BTreeMap::new();
    for (transfer, runs) in plan.transfers.iter().zip(plan.runs()) {
        let Some((family, kind)) = families.of(transfer.value) else { continue };
        for (step, bytes) in transfer.moves.iter().zip(&transfer.bytes).filter(|it| *it.1 > 0) {
            *found.entry(family).or_default().entry((kind, step.name())).or_default() += bytes * runs;
        }
    }
    found
}

/// By which transfers something of a family moves: of what, made by what, and from which layout to which.
fn by(plan: &Plan, families: &Families<'_>, family: ValueId) -> Vec<String> {
    let is_of = |value: ValueId| families.of(value).is_some_and(|it| it.0 == family);
    let said = |transfer: &plan::Transfer| {
        let made = match &plan.graph.value(transfer.value).source {
            Source::Result { node, .. } => plan.graph.node(*node).op.to_string(),
            source => format!("{source:?}"),
        };
        let before = plan.layout(transfer.value, transfer.from).display(&plan.mesh);
        let (value, after) = (transfer.value.0, transfer.layout.display(&plan.mesh));
        format!("%{value} of {made}: {before} to {after}, {:?}", transfer.bytes)
    };
    plan.transfers.iter().filter(|it| is_of(it.value)).map(said).collect()
}

impl Families<'_> {
    fn textbook(&self, stage: u8, ranks: u64, tables: Tables) -> BTreeMap<ValueId, Moved> {
        let times = self.graph.training.as_ref().expect("it is a step").micro_batches;
        let falls = |type_: &Type| stage > 0 && type_.shape.iter().any(|it| it.is_multiple_of(ranks));
        let mut moved: BTreeMap<ValueId, Moved> = BTreeMap::new();
        let mut add = |value: ValueId, what, bytes: u64| {
            let family = moved.entry(self.root(value)).or_default();
            *family.entry(what).or_default() += (ranks - 1) * bytes;
        };
        let [gathered, scattered] =
            [(ValueKind::Parameter, "all-gather"), (ValueKind::Gradient, "reduce-scatter")];
        for (value, _) in self.parameters() {
            let type_ = self.graph.type_of(value);
            let bytes = type_.bytes();
            if !falls(type_) {
                add(value, (ValueKind::Gradient, "all-reduce"), 2 * bytes);
                continue;
            }
            let added = if stage == 1 { bytes } else { times * self.added(value, tables) };
            add(value, scattered, added);
            add(value, gathered, if stage == 3 { times * self.used(value, tables) } else { bytes });
        }
        moved
    }

    /// The bytes that are added to a parameter's gradient in a micro-batch, or that it begins with.
    fn added(&self, parameter: ValueId, tables: Tables) -> u64 {
        let is_of =
            |value: &ValueId| self.sums[value.0].is_some() && self.gradients[value.0] == Some(parameter);
        let adds = |node: &&Node| matches!(node.phase, Phase::Backward | Phase::Gradient);
        let sums = self.graph.nodes.iter().filter(|node| adds(node) && is_of(&node.results[0]));
        let addend = |node: &Node| if is_of(&node.operands[0]) { node.operands[1] } else { node.results[0] };
        sums.map(|node| self.fewest(addend(node), tables)).sum()
    }

    /// The fewest bytes by which a gradient can be summed: its own, or those of what it is made of.
    fn fewest(&self, value: ValueId, tables: Tables) -> u64 {
        let bytes = self.graph.type_of(value).bytes();
        let Source::Result { node, .. } = self.graph.value(value).source else { return bytes };
        let node = self.graph.node(node);
        let operands = self.handed_on(node);
        let parts = operands.iter().map(|it| self.fewest(*it, tables)).sum();
        match node.op {
            Op::GatherGradient { .. } if tables == Tables::Whole => bytes,
            Op::GatherGradient { .. } if !operands.is_empty() => parts,
            _ if operands.is_empty() => bytes,
            _ => bytes.min(parts),
        }
    }

    /// The operands of which the elements of a gradient are, or sums of them: nothing if it is made
    /// of something else.
    fn handed_on(&self, node: &Node) -> Vec<ValueId> {
        match node.op {
            Op::Cast(_) | Op::Pad { .. } | Op::Reshape { .. } | Op::Transpose { .. } | Op::Slice { .. } => {
                vec![node.operands[0]]
            }
            Op::Concat { .. } | Op::Binary(Binary::Add) => node.operands.clone(),
            // Rows that the model file says.
            Op::GatherGradient { .. } if self.constant[node.operands[0].0] => vec![node.operands[1]],
            _ => vec![],
        }
    }

    /// The bytes of a parameter that a micro-batch's operations use whole: of the parameter for each
    /// use, so that it is gathered for the forward and again for the backward pass; of what is taken
    /// from it (and kept, if it is not done again) once.
    fn used(&self, parameter: ValueId, tables: Tables) -> u64 {
        let mut taken = vec![false; self.graph.values.len()];
        taken[parameter.0] = true;
        let (mut bytes, mut kept) = (0, BTreeSet::new());
        for node in self.graph.nodes.iter().filter(|node| node.phase != Phase::Update) {
            let rows = matches!(node.op, Op::Gather { .. }) && tables == Tables::Rows;
            let takes = matches!(node.op, Op::Slice { .. } | Op::Reshape { .. } | Op::Transpose { .. });
            let of_taken = node.operands.first().is_some_and(|it| taken[it.0]);
            if of_taken && (takes || rows) && self.stems[node.results[0].0].is_some() {
                taken[node.results[0].0] = true;
                continue;
            }
            for &operand in node.operands.iter().filter(|operand| taken[operand.0]) {
                if operand == parameter || kept.insert(operand) {
                    bytes += self.graph.type_of(operand).bytes();
                }
            }
        }
        bytes
    }
}

/// The name of a state of this kind.
fn state(graph: &Graph, value: ValueId, wanted: StateKind) -> Option<&str> {
    match &graph.value(value).source {
        Source::State(State { kind, name }) if *kind == wanted => Some(name),
        _ => None,
    }
}
