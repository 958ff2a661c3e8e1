//! Plans made by hand: partitions are given, and layouts are joined by moves.

use plan::{
    Assignment, Copy, Exchanged, MachineName, ModelFile, Plan, Proof, SpaceSize, Transfer, bytes_of_steps,
};
use planner_ir::{
    AxisId, Carried, Digit, Graph, Layout, Mesh, Move, Output, Partition, Phase, Source, State, StateKind,
    Training, Type, ValueId,
};

/// Proposes the next move of a detour, of a value of that type from that layout, which must go
/// on owing these axes.
pub(crate) type Detour<'a> = &'a mut dyn FnMut(&Mesh, &Type, &Layout, &[AxisId]) -> Option<Move>;

/// A plan so far.
pub(crate) struct Sketch {
    pub(crate) plan: Plan,
    /// Which part of a training step the next operations are of.
    pub(crate) phase: Phase,
    /// The first transfer whose copy may be used again.
    pub(crate) reused_from: usize,
}

impl Sketch {
    /// No program, on that mesh.
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let plan = Plan {
            model: ModelFile { path: "none".to_owned(), sha256: String::new(), dims: Vec::new() },
            machine: MachineName { name: "none".to_owned(), devices: mesh.devices(), sha256: None },
            mesh: mesh.clone(),
            graph: Graph::default(),
            layouts: Vec::new(),
            assignments: Vec::new(),
            transfers: Vec::new(),
            outputs: Vec::new(),
            carried: Vec::new(),
            recipe: None,
            pins: Vec::new(),
            controls: Vec::new(),
            estimate: Vec::new(),
            hidden: plan::Hidden::default(),
            memory: Vec::new(),
            capacity: 0,
            proof: Proof::Optimal,
            space: SpaceSize::default(),
        };
        Self { plan, phase: Phase::Forward, reused_from: 0 }
    }

    /// No training step of so many micro-batches, on that mesh.
    pub(crate) fn training(mesh: &Mesh, micro_batches: u64) -> Self {
        let mut sketch = Self::new(mesh);
        sketch.plan.graph.training = Some(Training { micro_batches, carried: Vec::new() });
        sketch
    }

    /// A state at rest.
    pub(crate) fn state(&mut self, kind: StateKind, name: &str, type_: Type, layout: Layout) -> ValueId {
        layout.check(&self.plan.mesh, &type_).unwrap();
        self.plan.layouts.push(layout);
        self.plan.graph.push_value(type_, Source::State(State { kind, name: name.to_owned() }))
    }

    /// What a state becomes, brought to its layout.
    pub(crate) fn carry(&mut self, state: ValueId, next: ValueId, detour: Detour) {
        let copy = self.reach(next, &self.plan.layouts[state.0].clone(), detour);
        let carried = &mut self.plan.graph.training.as_mut().unwrap().carried;
        let place = carried.partition_point(|it| it.state < state);
        carried.insert(place, Carried { state, next });
        self.plan.carried.insert(place, copy);
    }

    /// The plain digit of an axis.
    pub(crate) fn axis(&self, axis: usize) -> Digit {
        Digit::axis(&self.plan.mesh, AxisId(axis))
    }

    /// A value at rest.
    pub(crate) fn source(&mut self, type_: Type, source: Source, dims: Vec<Vec<Digit>>) -> ValueId {
        let layout = Layout { dims, owed: Vec::new() };
        layout.check(&self.plan.mesh, &type_).unwrap();
        self.plan.layouts.push(layout);
        self.plan.graph.push_value(type_, source)
    }

    pub(crate) fn input(&mut self, name: &str, type_: Type, dims: Vec<Vec<Digit>>) -> ValueId {
        self.source(type_, Source::Input(name.to_owned()), dims)
    }

    pub(crate) fn weight(&mut self, name: &str, type_: Type, dims: Vec<Vec<Digit>>) -> ValueId {
        self.source(type_, Source::Weight(name.to_owned()), dims)
    }

    /// An operation computed before the first step; its results in these layouts.
    pub(crate) fn prepared(
        &mut self,
        op: planner_ir::Op,
        operands: &[ValueId],
        dims: Vec<Vec<Digit>>,
    ) -> ValueId {
        let types = op.infer(&self.plan.graph.types_of(operands)).unwrap();
        let origin = format!("node{}", self.plan.graph.nodes.len());
        self.plan.layouts.push(Layout { dims, owed: Vec::new() });
        self.plan.assignments.push(Assignment::Prepared);
        self.plan.graph.push_node(op, operands.to_vec(), types, origin)[0]
    }

    /// An operation computed at every step; operands get there by the shortest way.
    pub(crate) fn node(
        &mut self,
        op: planner_ir::Op,
        operands: &[ValueId],
        partition: Partition,
    ) -> Vec<ValueId> {
        self.node_with(op, operands, partition, &mut |_, _, _, _| None)
    }

    /// The same, by detours.
    pub(crate) fn node_with(
        &mut self,
        op: planner_ir::Op,
        operands: &[ValueId],
        partition: Partition,
        detour: Detour,
    ) -> Vec<ValueId> {
        let operand_types = self.plan.graph.types_of(operands);
        let types = op.infer(&operand_types).unwrap();
        let loops = op.loops(&operand_types, &types);
        partition.check(&self.plan.mesh, &loops).unwrap();
        let copies = operands
            .iter()
            .enumerate()
            .map(|(index, &value)| self.reach(value, &partition.operand(&loops, index), detour))
            .collect();
        for index in 0..types.len() {
            self.plan.layouts.push(partition.result(&loops, index));
        }
        let bytes = bytes_of_steps(&self.plan.mesh, &loops, (&operand_types, &types), &partition);
        let assignment = Assignment::Computed {
            partition,
            operands: copies,
            bytes,
            seconds: 0.0,
            exchanged: Exchanged::default(),
        };
        self.plan.assignments.push(assignment);
        let origin = format!("node{}", self.plan.graph.nodes.len());
        self.plan.graph.push_node_in(self.phase, op, operands.to_vec(), types, origin)
    }

    /// Returns a value, in the layout with these digits.
    pub(crate) fn output(&mut self, name: &str, value: ValueId, dims: Vec<Vec<Digit>>, detour: Detour) {
        let copy = self.reach(value, &Layout { dims, owed: Vec::new() }, detour);
        self.plan.outputs.push(copy);
        self.plan.graph.outputs.push(Output { name: name.to_owned(), value });
    }

    /// A copy of a value in a layout.
    fn reach(&mut self, value: ValueId, to: &Layout, detour: Detour) -> Copy {
        let made = &self.plan.layouts[value.0];
        if made == to {
            return Copy::Made;
        }
        let there = |transfer: &Transfer| transfer.value == value && transfer.layout == *to;
        let again = self.plan.transfers.iter().skip(self.reused_from).position(there);
        if let Some(index) = again {
            return Copy::Transferred(self.reused_from + index);
        }
        let (mesh, type_) = (self.plan.mesh.clone(), self.plan.graph.type_of(value).clone());
        let mut walk =
            Walk { mesh: &mesh, type_: &type_, layout: made.clone(), moves: vec![], bytes: vec![] };
        while let Some(next) = detour(&mesh, &type_, &walk.layout, &to.owed) {
            walk.go(next);
        }
        walk.finish(to);
        let Walk { moves, bytes, layout, .. } = walk;
        let (from, seconds) = (Copy::Made, vec![0.0; moves.len()]);
        let transfer = Transfer { value, from, moves, layout, bytes, seconds, waits: false };
        self.plan.transfers.push(transfer);
        Copy::Transferred(self.plan.transfers.len() - 1)
    }
}

/// A way from a layout.
struct Walk<'a> {
    mesh: &'a Mesh,
    type_: &'a Type,
    layout: Layout,
    moves: Vec<Move>,
    bytes: Vec<u64>,
}

impl Walk<'_> {
    fn go(&mut self, next: Move) {
        let after = next.apply(self.mesh, self.type_, &self.layout).unwrap();
        self.bytes.push(next.bytes(self.mesh, self.type_, &self.layout, &after));
        self.moves.push(next);
        self.layout = after;
    }

    /// Pays what is owed, gathers what differs, cuts.
    fn finish(&mut self, to: &Layout) {
        let owed = |axis: &&AxisId| !to.owed.contains(axis);
        let axes: Vec<AxisId> = self.layout.owed.iter().filter(owed).copied().collect();
        if !axes.is_empty() {
            self.go(Move::AllReduce { axes });
        }
        for dim in 0..self.type_.rank() {
            let common = |layout: &Layout| {
                layout.dims[dim].iter().zip(&to.dims[dim]).take_while(|(ours, theirs)| ours == theirs).count()
            };
            let digits = self.layout.dims[dim].len() - common(&self.layout);
            if digits > 0 {
                self.go(Move::AllGather { dim, digits });
            }
        }
        for dim in 0..self.type_.rank() {
            let digits = to.dims[dim][self.layout.dims[dim].len()..].to_vec();
            if !digits.is_empty() {
                self.go(Move::Slice { dim, digits });
            }
        }
        assert_eq!(self.layout, *to);
    }
}
