//! Operations whose rows go to where what they use is: see [`planner_ir::Route`].
//!
//! Gates are exchanged first, each rank's for the parts of each other one: with them both sides know which rows
//! go. Then rows are dispatched, the operation is computed with all rows that came, and what it makes of them
//! comes back and is added up. Buffers have places for all rows, for any of them may come.

use plan::Copy;
use planner_ir::{Layout, Move, NodeId, Route, Type, ValueId};

use crate::action::{Action, CollectiveKind, Compute, Moving, Origin, Rows};
use crate::build::Build;
use crate::error::LowerError;
use crate::exchange::{Between, How, exchange};
use crate::facts::{Computed, copies_of};
use crate::program::Stream;
use crate::routing::Routed;
use crate::storage::{BufferId, Kind};
use crate::strided::Strided;

impl Build<'_> {
    /// Computes an operation from operands at rest, whose rows are routed.
    pub(crate) fn compute_routed(
        &mut self,
        id: NodeId,
        computed: &Computed,
        routed: &Routed,
        at_rest: &[BufferId],
    ) -> Result<(), LowerError> {
        let Computed { op, name, positional: [of_operands, of_results], .. } = computed;
        let Routed { met, loops, .. } = routed;
        let (plan, node) = (self.plan, self.plan.graph.node(id));
        let copies = copies_of(&plan.assignments[id.0]);
        let origin = |moving| Origin::Motion { node: id, moving, time: 0 };
        let refused = || LowerError::Routed(node.origin.clone());
        let gates = loops.operands.iter().position(|dims| routed.route(dims) == Route::Gates);
        let gates = gates.ok_or_else(refused)?;
        let (value, dims) = (node.operands[gates], &loops.operands[gates]);
        let (type_, layout) = (plan.graph.type_of(value), plan.layout(value, copies[gates]));
        let after = met.operand(loops, gates).local_type(type_);
        let dealt = routed.dealt(dims, type_, layout, false);
        let [own, others, gates_met] =
            self.deal(routed, at_rest[gates], dealt, after, origin(Moving::Operand(gates)));
        let rows = routed.which(type_, layout, [own, others]);
        let mut operands = Vec::new();
        for (index, &value) in node.operands.iter().enumerate() {
            let dims = &loops.operands[index];
            let buffer = match routed.route(dims) {
                Route::Stays => at_rest[index],
                Route::Gates => gates_met,
                Route::Rows => {
                    let step =
                        Move::AllGather { dim: routed.rows(dims), digits: routed.partition.routed.len() };
                    let from = (plan.layout(value, copies[index]), at_rest[index]);
                    self.route(value, from, (&step, rows), origin(Moving::Operand(index)))
                        .ok_or_else(refused)?
                }
            };
            operands.push(self.block(value, &met.operand(loops, index), buffer, &of_operands[index]));
        }
        let mut results = Vec::new();
        for (index, &value) in node.results.iter().enumerate() {
            let layout = met.result(loops, index);
            let buffer = self.buffer(Kind::Activation, layout.local_type(plan.graph.type_of(value)));
            results.push(self.block(value, &layout, buffer, &of_results[index]));
        }
        let made: Vec<BufferId> = results.iter().map(|it| it.buffer).collect();
        let action = Compute { op: op.clone(), name: name.clone(), operands, results };
        self.push(Stream::Compute, Action::Compute(action), Origin::Node(id));
        for (index, (&value, made)) in node.results.iter().zip(made).enumerate() {
            let (dims, origin) = (&loops.results[index], origin(Moving::Result(index)));
            let buffer = match routed.route(dims) {
                Route::Stays => made,
                Route::Gates => {
                    let (type_, layout) = (plan.graph.type_of(value), &plan.layouts[value.0]);
                    let dealt = routed.dealt(dims, type_, layout, true);
                    self.deal(routed, made, dealt, layout.local_type(type_), origin)[2]
                }
                Route::Rows => {
                    let digits = routed.partition.routed.clone();
                    let step = Move::ReduceScatter { dim: routed.rows(dims), digits };
                    let from = (&met.result(loops, index), made);
                    self.route(value, from, (&step, rows), origin).ok_or_else(refused)?
                }
            };
            self.copies.insert((value, Copy::Made), buffer);
        }
        Ok(())
    }

    /// An exchange of blocks: what is given, what is gotten, and what is held then.
    fn deal(
        &mut self,
        routed: &Routed,
        held: BufferId,
        [pack, unpack]: [Strided; 2],
        after: Type,
        origin: Origin,
    ) -> [BufferId; 3] {
        let stream = Stream::Communication;
        let flat = Type::new(after.dtype, [pack.elements()]);
        let elements = pack.elements() / routed.partition.routed_group();
        let own = self.buffer(Kind::Communication, flat.clone());
        self.copy_elements(stream, held, own, pack, origin);
        let others = self.buffer(Kind::Communication, flat);
        let how = How::Collective(CollectiveKind::AllToAll, elements);
        let between = Between { axes: routed.partition.routed_axes(), how, rows: None };
        self.between_on(stream, between, own, others, origin);
        let to = self.buffer(Kind::Activation, after);
        self.copy_elements(stream, others, to, unpack, origin);
        [own, others, to]
    }

    /// Rows to where the parts are, or what is made of them back: the buffer that holds them then.
    fn route(
        &mut self,
        value: ValueId,
        (layout, held): (&Layout, BufferId),
        (step, rows): (&Move, Rows),
        origin: Origin,
    ) -> Option<BufferId> {
        let (mesh, type_) = (&self.plan.mesh, self.plan.graph.type_of(value));
        let mut exchange = exchange(step, mesh, self.program.rank, type_, layout).ok()?;
        let back = matches!(step, Move::ReduceScatter { .. });
        if let Some(Between { how: How::Collective(kind, _), rows: which, .. }) = &mut exchange.between {
            *kind = if back { CollectiveKind::Combine } else { CollectiveKind::Dispatch };
            *which = Some(rows);
        }
        let after = exchange.after.local_type(type_);
        Some(self.exchange(held, exchange, after, (Stream::Communication, origin)))
    }
}
