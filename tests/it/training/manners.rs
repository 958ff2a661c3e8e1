//! Prices that make the search take the plans that people make by hand.

use planner_ir::{Digit, Graph, Layout, Move, Op, Partition, Phase, State, StateKind, Type, Ways};
use search::{MachinePrices, Prices, Section, Work};

use super::forms::{Form, Site};
use super::roles::{Factors, Role, is_product, roles, stems};

/// How people split programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The batch, and states from this stage of ZeRO on; 0 is none.
    Data(u8),
    /// Parameters of products.
    Tensor,
    /// The same, and between products the sequence.
    Sequence,
    /// Products of gradients, and nothing forward.
    Backward,
    /// The sequence, everywhere: no rank ever has the keys or values of another's tokens for more
    /// than a step.
    Context,
    /// The same, half of each block by one neighbour and half by the other.
    BothWays,
    /// As one way, and where positions count every so many tokens of it.
    Striped,
    /// The sequence, and in attention heads of all tokens: Ulysses.
    Heads,
    /// Products by parameters, in time steps of this form.
    InTime(Form),
}

/// Prices by which another manner is dear.
pub(crate) struct Preferring<'a> {
    manner: Manner,
    machine: MachinePrices<'a>,
    /// For each number of an operation in its section, the operations of that number.
    known: Vec<Vec<Known<'a>>>,
}

/// What there is to know of an operation.
struct Known<'a> {
    op: &'a Op,
    operands: Vec<Type>,
    /// Whether they are of parameters and constants alone.
    stems: Vec<bool>,
    phase: Phase,
    /// For each loop, what it runs over.
    loops: Vec<Factors>,
    /// Whether it multiplies by parameters, looks up in them, or attends.
    is_product: bool,
}

/// What a step costs that the manner would not take.
const WRONG: f64 = 1000.0;
/// How many dimensions queries, keys and values have: examples, heads, tokens, elements.
const HEADS: usize = 4;
/// What it costs to leave something whole that the manner splits.
const WHOLE: f64 = 1.0;

impl<'a> Preferring<'a> {
    /// The prices of a manner, for a program and its sections.
    pub(crate) fn new(
        manner: Manner,
        machine: MachinePrices<'a>,
        graph: &Graph,
        sections: &'a [Section],
    ) -> Self {
        let (roles, stems) = (roles(graph), stems(graph));
        let mut known: Vec<Vec<Known<'a>>> = Vec::new();
        for section in sections {
            for (number, node) in section.graph.nodes.iter().enumerate() {
                let original = section.repetitions[0].nodes[number];
                let multiplies = |op: &Op| is_product(op) || matches!(op, Op::Attention(_));
                // Gradients of scales are sums of products, of elements.
                let is_product = match &node.op {
                    Op::Contract(contract) if node.phase != Phase::Forward => contract.result.len() > 1,
                    Op::AttentionGradient { .. } | Op::ExpertsGradient { .. } => true,
                    op => multiplies(op) && !graph.node(original).operands.iter().all(|it| stems[it.0]),
                };
                if known.len() <= number {
                    known.resize_with(number + 1, Vec::new);
                }
                known[number].push(Known {
                    op: &node.op,
                    operands: section.graph.types_of(&node.operands),
                    stems: graph.node(original).operands.iter().map(|it| stems[it.0]).collect(),
                    phase: node.phase,
                    loops: roles[original.0].clone(),
                    is_product,
                });
            }
        }
        Self { manner, machine, known }
    }

    fn penalty(&self, work: &Work<'_>) -> f64 {
        // A product that is added to a sum is that product.
        let alone = work.op.alone();
        let same = |it: &&Known<'_>| *it.op == *alone && work.whole.starts_with(&it.operands);
        let known = self.known[work.node.0].iter().find(same).expect("operations are those of sections");
        let split = known.touched(work.partition);
        match self.manner {
            Manner::Data(stage) => known.of_data(stage, &split),
            Manner::Tensor => known.of_tensor(&split),
            // What passes addends on leaves the split to the sum that is made of them.
            Manner::Sequence if !work.partition.passed.is_empty() => 0.0,
            Manner::Sequence => known.of_sequence(&split),
            Manner::Backward => known.of_backward(&split),
            Manner::BothWays if goes_one_way(work) => WRONG,
            Manner::Context | Manner::BothWays => known.of_context(&split),
            Manner::Striped if takes_stripes(work) && !is_striped(work.partition) => WRONG,
            Manner::Striped => known.of_context(&split),
            Manner::Heads => known.of_heads(&split),
            Manner::InTime(form) => known.in_time(form, work),
        }
    }
}

impl Known<'_> {
    /// What the devices split.
    fn touched(&self, partition: &Partition) -> Vec<Role> {
        let mut split: Vec<Role> = self
            .loops
            .iter()
            .zip(&partition.loops)
            .flat_map(|(it, digits)| overlapping(it, digits))
            .collect();
        split.sort_unstable();
        split.dedup();
        split
    }

    fn runs_over(&self, role: Role) -> bool {
        self.loops.iter().flatten().any(|it| it.1 == role)
    }

    fn of_data(&self, stage: u8, split: &[Role]) -> f64 {
        match (self.phase, split) {
            (Phase::Update, []) if stage > 0 => WRONG,
            (Phase::Update, [_, ..]) if stage == 0 => WRONG,
            (Phase::Update, _) => 0.0,
            // What is of parameters alone goes with their layouts at rest.
            _ if !self.runs_over(Role::Batch) => 0.0,
            (_, []) => WHOLE,
            (_, [Role::Batch]) => 0.0,
            _ => WRONG,
        }
    }

    /// Products are split inside; between layers nothing is.
    fn of_tensor(&self, split: &[Role]) -> f64 {
        let of_model = self.runs_over(Role::Batch) || self.runs_over(Role::Token);
        match split {
            _ if self.phase == Phase::Update || !of_model => 0.0,
            [] if self.is_product => WHOLE,
            some if some.iter().any(|it| matches!(it, Role::Batch | Role::Token | Role::Stream)) => WRONG,
            _ => 0.0,
        }
    }

    /// As that, but what is between products is split along the sequence.
    fn of_sequence(&self, split: &[Role]) -> f64 {
        let between = !self.is_product && !self.runs_over(Role::Inner) && self.runs_over(Role::Token);
        match split {
            _ if !between || self.phase == Phase::Update => self.of_tensor(split),
            [] => WHOLE,
            [Role::Token] => 0.0,
            _ => WRONG,
        }
    }
}

impl Known<'_> {
    fn of_backward(&self, split: &[Role]) -> f64 {
        match (self.phase, split) {
            (Phase::Forward, [_, ..]) => WRONG,
            (Phase::Backward | Phase::Gradient, []) if self.is_product => WHOLE,
            _ => 0.0,
        }
    }

    /// Tokens are split wherever there are any, and nothing else is; masks, which have no elements
    /// of their own, may be whole.
    fn of_context(&self, split: &[Role]) -> f64 {
        let features = self.runs_over(Role::Stream) || self.runs_over(Role::Inner);
        match split {
            _ if self.phase == Phase::Update || !features || !self.runs_over(Role::Token) => 0.0,
            [] => WHOLE,
            [Role::Token] => 0.0,
            _ => WRONG,
        }
    }

    /// Attention is split by what is neither an example nor a token, everything else by tokens.
    fn of_heads(&self, split: &[Role]) -> f64 {
        let attends = matches!(self.op, Op::Attention(_) | Op::AttentionGradient { .. });
        match split {
            _ if !attends => self.of_context(split),
            [] => WHOLE,
            some if some.iter().any(|it| matches!(it, Role::Batch | Role::Token | Role::Stream)) => WRONG,
            _ => 0.0,
        }
    }

    /// What the form takes is in steps of it, nothing else is, and sums are made where they are owed.
    /// What is infinite is left out before the search, which is too wide otherwise.
    fn in_time(&self, form: Form, work: &Work<'_>) -> f64 {
        let site = Site { op: work.op, loops: work.loops, of_parameters: &self.stems, phase: self.phase };
        let at_once = work.partition.steps == 1 && work.partition.passed.is_empty();
        let as_wanted = if form.takes(&site) { form.is_of(work.partition, &site) } else { at_once };
        if as_wanted { 0.0 } else { f64::INFINITY }
    }
}

/// Whether positions count, but not that they follow each other.
fn takes_stripes(work: &Work<'_>) -> bool {
    !work.loops.positional.is_empty() && work.loops.contiguous.is_empty()
}

/// Whether blocks go one way that could go both, or none. Gradients of keys and values end at home,
/// so that keys and values begin one further: their halves would not be together at rest.
fn goes_one_way(work: &Work<'_>) -> bool {
    let around = work.partition.steps > 1;
    let both = matches!(work.op, Op::AttentionGradient { .. }) || work.partition.ways == Ways::Both;
    if takes_stripes(work) { !around || !both } else { around && !both }
}

/// Whether devices compute every so many iterations of some loop.
pub(crate) fn is_striped(partition: &Partition) -> bool {
    partition.loops.iter().any(|digits| digits.first().is_some_and(Digit::is_free))
}

/// What the digits of a loop split of its factors.
fn overlapping<'a>(factors: &'a Factors, digits: &'a [Digit]) -> impl Iterator<Item = Role> + 'a {
    let mut start = 1;
    let split = digits.iter().filter_map(move |digit| {
        let before = start;
        start *= digit.size;
        (!digit.is_free()).then_some((before, start))
    });
    split.flat_map(move |(from, to)| {
        let mut start = 1;
        factors.iter().filter_map(move |&(size, role)| {
            let before = start;
            start *= size;
            (before.max(from) < start.min(to)).then_some(role)
        })
    })
}

impl Prices for Preferring<'_> {
    fn ways(&self) -> Ways {
        if self.manner == Manner::BothWays { Ways::Both } else { self.machine.ways() }
    }

    fn work(&self, work: &Work<'_>) -> f64 {
        self.penalty(work) + self.machine.work(work)
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        let seconds = self.machine.step(type_, step, before, after);
        // Where one value is small, an all-reduce and a slice can be as cheap as a reduce-scatter.
        let scatters = matches!(self.manner, Manner::Data(1..) | Manner::Sequence | Manner::Backward);
        let around = matches!(self.manner, Manner::Context | Manner::BothWays | Manner::Striped);
        let heads = around && type_.rank() == HEADS;
        let by_heads = self.manner == Manner::Heads && type_.rank() == HEADS;
        match step {
            Move::AllReduce { .. } if scatters && type_.rank() > 0 => 100.0 * seconds,
            // Gathering a small value again can be as cheap as to put parts together that lie apart.
            Move::AllGather { .. } if self.manner == Manner::Data(3) && type_.rank() == 1 => 100.0 * seconds,
            // Keys and values of all tokens, or of all heads.
            Move::AllGather { .. } | Move::AllToAll { .. } if heads => WRONG + seconds,
            // All tokens of all heads. A mask is of no head.
            Move::AllGather { .. } if by_heads && type_.shape[1] > 1 => WRONG + seconds,
            _ => seconds,
        }
    }

    fn rest(&self, state: &State, layout: &Layout) -> f64 {
        let Manner::Data(stage) = self.manner else { return 0.0 };
        let from = match state.kind {
            StateKind::FirstMoment | StateKind::SecondMoment | StateKind::Master => 1,
            StateKind::Gradient => 2,
            StateKind::Parameter => 3,
            StateKind::Total | StateKind::Largest | StateKind::History => return 0.0,
        };
        let split = layout.dims.iter().flatten().any(|digit| !digit.is_free());
        let as_wanted = if stage >= from { split } else { !split && (from != 2 || !layout.owed.is_empty()) };
        if as_wanted { 0.0 } else { WRONG }
    }
}
