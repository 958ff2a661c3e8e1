//! Training steps made by hand: two layers of a linear regression under named parallelisms.

use planner_ir::{
    AxisId, Binary, Contract, DType, Digit, Label, Layout, Mesh, Move, Op, Optimizer, Partition, Phase, Real,
    Reduction, StateKind, Type, ValueId,
};

use super::sketch::Sketch;

/// How a step is parallel: the mesh has one axis, or for `DataTensor` two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parallel {
    /// Rows over devices; gradients are summed once per step.
    Data,
    /// Besides, moments split.
    Zero1,
    /// Besides, gradients split.
    Zero2,
    /// Besides, parameters split.
    Zero3,
    /// Hidden units over devices.
    Tensor,
    /// Rows over the first axis, hidden units over the second.
    DataTensor,
}

impl Parallel {
    pub(crate) const ALL: [Self; 6] =
        [Self::Data, Self::Zero1, Self::Zero2, Self::Zero3, Self::Tensor, Self::DataTensor];
}

/// How gradients are added to what micro-batches before made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    /// By an operation of its own.
    Apart,
    /// By the product that makes them.
    Added,
}

/// The optimizers by their moments.
pub(crate) const OPTIMIZERS: [Optimizer; 3] = [
    Optimizer::Sgd { decay: Real(0.25) },
    Optimizer::Momentum { momentum: Real(0.5), decay: Real(0.0) },
    Optimizer::AdamW { beta1: Real(0.5), beta2: Real(0.75), epsilon: Real(0.125), decay: Real(0.5) },
];

/// What is trained, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Regression {
    pub(crate) parallel: Parallel,
    pub(crate) devices: u64,
    pub(crate) micro_batches: u64,
    pub(crate) optimizer: Optimizer,
    /// Of parameters; with less than f32 there are masters.
    pub(crate) dtype: DType,
    /// The extents of rows, inputs, hidden units and outputs.
    pub(crate) extents: [u64; 4],
    pub(crate) sums: Sums,
}

impl Regression {
    pub(crate) fn new(parallel: Parallel, devices: u64, micro_batches: u64) -> Self {
        let extents = [8, 4, 8, 4];
        let (optimizer, dtype, sums) = (OPTIMIZERS[2], DType::F32, Sums::Apart);
        Self { parallel, devices, micro_batches, optimizer, dtype, extents, sums }
    }

    /// The bytes of both parameters.
    pub(crate) fn parameter_bytes(&self) -> [u64; 2] {
        let [_, inputs, hidden, outputs] = self.extents;
        [inputs * hidden, hidden * outputs].map(|elements| elements * self.dtype.bytes())
    }

    /// `x: [rows, inputs]`, `up: [inputs, hidden]`, `down: [hidden, outputs]`,
    /// `y: [rows, outputs]`; the loss is the mean of `(x up down - y)^2`.
    pub(crate) fn sketch(&self) -> Sketch {
        Maker::of(self).sketch()
    }
}

/// Which dimension of which operand is split over which axis.
type Split = (usize, usize, usize);

struct Maker {
    regression: Regression,
    sketch: Sketch,
    /// The axes over which rows and hidden units are split.
    data: Option<usize>,
    tensor: Option<usize>,
}

impl Maker {
    fn of(regression: &Regression) -> Self {
        let (sizes, data, tensor) = match regression.parallel {
            Parallel::Tensor => (vec![regression.devices], None, Some(0)),
            Parallel::DataTensor => (vec![2, regression.devices / 2], Some(0), Some(1)),
            _ => (vec![regression.devices], Some(0), None),
        };
        let sketch = Sketch::training(&Mesh::of_sizes(&sizes), regression.micro_batches);
        Self { regression: *regression, sketch, data, tensor }
    }

    fn type_(&self, shape: &[u64]) -> Type {
        Type::new(self.regression.dtype, shape)
    }

    fn digits(&self, axis: Option<usize>) -> Vec<Digit> {
        axis.map(|axis| self.sketch.axis(axis)).into_iter().filter(|digit| digit.size > 1).collect()
    }

    fn is_at_least(&self, parallel: Parallel) -> bool {
        let stages = [Parallel::Data, Parallel::Zero1, Parallel::Zero2, Parallel::Zero3];
        let stage = |it: Parallel| stages.iter().position(|&stage| stage == it);
        stage(self.regression.parallel).is_some_and(|it| Some(it) >= stage(parallel))
    }

    /// An operation in a phase; sums over the axes passed are owed by all operands that it is
    /// linear in together.
    fn node(&mut self, op: Op, operands: &[ValueId], splits: &[Split], passed: &[usize]) -> Vec<ValueId> {
        let types = self.sketch.plan.graph.types_of(operands);
        let loops = op.loops(&types, &op.infer(&types).unwrap());
        let mut partition = Partition::replicated(&loops);
        for &(operand, dim, axis) in splits {
            let it = loops.operands[operand][dim][0];
            let digit = self.sketch.axis(axis);
            if digit.size > 1 && !partition.loops[it.0].contains(&digit) {
                partition.loops[it.0].push(digit);
            }
        }
        if !passed.is_empty() {
            partition.passed = passed.iter().copied().map(AxisId).collect();
            let all: Vec<usize> = (0..operands.len()).collect();
            partition.through = loops.linear.iter().position(|set| *set == all).unwrap();
        }
        let scatters = self.is_at_least(Parallel::Zero1);
        self.sketch.node_with(op, operands, partition, &mut |mesh, type_, layout, keep| {
            let axis = AxisId(0);
            let owes = scatters && type_.rank() == 2 && layout.owed.contains(&axis) && !keep.contains(&axis);
            owes.then(|| Move::ReduceScatter { dim: 0, digits: vec![Digit::axis(mesh, axis)] })
        })
    }

    fn sketch(mut self) -> Sketch {
        let [rows, inputs, hidden, outputs] = self.regression.extents;
        let (data, tensor) = (self.data, self.tensor);
        let rows_at_rest = || vec![self.digits(data), vec![]];
        let (of_x, of_y) = (rows_at_rest(), rows_at_rest());
        let type_ = self.type_(&[rows, inputs]);
        let x = self.sketch.input("x", type_, of_x);
        let type_ = self.type_(&[rows, outputs]);
        let y = self.sketch.input("y", type_, of_y);
        let number = || Type::new(DType::F32, []);
        let rate = self.sketch.input("rate", number(), vec![]);
        let step = self.sketch.input("step", number(), vec![]);
        let up = self.states("up", &[inputs, hidden], 1);
        let down = self.states("down", &[hidden, outputs], 0);
        let owed =
            |axis: Option<usize>| Layout { dims: vec![], owed: axis.into_iter().map(AxisId).collect() };
        let owes_data = data.filter(|_| self.regression.devices > 1);
        let total = self.sketch.state(StateKind::Total, "loss", number(), owed(owes_data));
        let count = self.sketch.state(StateKind::Total, "count", number(), owed(None));

        // Splits of rows and of hidden units: which operand and dimension they are of.
        let by = |axis: Option<usize>, operand: usize, dim: usize| -> Vec<Split> {
            axis.map(|axis| (operand, dim, axis)).into_iter().collect()
        };
        let rows_and = |more: Vec<Split>| [by(data, 0, 0), more].concat();
        let h =
            self.node(contract("mk", "kh", "mh"), &[x, up.parameter], &rows_and(by(tensor, 1, 1)), &[])[0];
        let z =
            self.node(contract("mh", "ho", "mo"), &[h, down.parameter], &rows_and(by(tensor, 1, 0)), &[])[0];
        let e = self.node(Op::Binary(Binary::Sub), &[z, y], &rows_and(vec![]), &[])[0];
        let square = self.node(Op::Binary(Binary::Mul), &[e, e], &rows_and(vec![]), &[])[0];
        let square = self.wide(square, &rows_and(vec![]));
        let sum = Op::Reduce { reduction: Reduction::Sum, dims: vec![0, 1] };
        let sum = self.node(sum, &[square], &rows_and(vec![]), &[])[0];
        let passed: Vec<usize> = owes_data.into_iter().collect();
        let sum = self.node(Op::Reshape { shape: vec![] }, &[sum], &[], &passed)[0];
        let next_total = self.node(Op::Binary(Binary::Add), &[total, sum], &[], &passed)[0];
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let elements = Real((rows * outputs) as f64);
        let elements = self.node(Op::Fill { result: number(), value: elements }, &[], &[], &[])[0];
        let next_count = self.node(Op::Binary(Binary::Add), &[count, elements], &[], &[])[0];

        self.sketch.phase = Phase::Backward;
        self.sketch.reused_from = self.sketch.plan.transfers.len();
        let de = self.node(Op::Binary(Binary::Add), &[e, e], &rows_and(vec![]), &[])[0];
        let dh = contract("mo", "ho", "mh");
        let dh = self.node(dh, &[de, down.parameter], &rows_and(by(tensor, 1, 0)), &[])[0];
        self.sketch.phase = Phase::Gradient;
        let d_down = contract("mh", "mo", "ho");
        let next_down = self.gradient((d_down, [h, de]), &rows_and(by(tensor, 0, 1)), (&down, 0));
        let d_up = contract("mk", "mh", "kh");
        let next_up = self.gradient((d_up, [x, dh]), &rows_and(by(tensor, 1, 1)), (&up, 1));

        self.sketch.phase = Phase::Update;
        let loss = self.node(Op::Binary(Binary::Div), &[next_total, next_count], &[], &[])[0];
        let one = self.node(Op::Fill { result: number(), value: Real(1.0) }, &[], &[], &[])[0];
        let scale = self.node(Op::Binary(Binary::Div), &[one, next_count], &[], &[])[0];
        for (states, gradient, dim) in [(&up, next_up, 1), (&down, next_down, 0)] {
            self.update(states, gradient, [scale, rate, step], dim);
        }
        for (state, next) in [(total, next_total), (count, next_count)] {
            self.sketch.carry(state, next, &mut |_, _, _, _| None);
        }
        self.sketch.output("loss", loss, vec![], &mut |_, _, _, _| None);
        self.sketch
    }

    /// In f32.
    fn wide(&mut self, value: ValueId, splits: &[Split]) -> ValueId {
        if self.regression.dtype == DType::F32 {
            return value;
        }
        self.node(Op::Cast(DType::F32), &[value], splits, &[])[0]
    }

    /// The states of a parameter whose dimension `dim` is of hidden units.
    fn states(&mut self, name: &str, shape: &[u64], dim: usize) -> States {
        let type_ = self.type_(shape);
        let wide = Type::new(DType::F32, shape);
        let layout = |maker: &Self, split: bool, owed: bool| {
            let mut layout = Layout::replicated(2);
            layout.dims[dim] = maker.digits(maker.tensor);
            if split && maker.regression.devices > 1 {
                layout.dims[0] = maker.digits(maker.data);
            }
            let owed = owed && !split && maker.regression.devices > 1;
            layout.owed = maker.data.filter(|_| owed).into_iter().map(AxisId).collect();
            layout
        };
        let of_moments = layout(self, self.is_at_least(Parallel::Zero1), false);
        let of_parameter = layout(self, self.is_at_least(Parallel::Zero3), false);
        let of_gradient = layout(self, self.is_at_least(Parallel::Zero2), true);
        let sketch = &mut self.sketch;
        let parameter = sketch.state(StateKind::Parameter, name, type_.clone(), of_parameter);
        let has_master = type_ != wide;
        let master =
            has_master.then(|| sketch.state(StateKind::Master, name, wide.clone(), of_moments.clone()));
        let kinds = [StateKind::FirstMoment, StateKind::SecondMoment];
        let moments = kinds.into_iter().take(self.regression.optimizer.moments());
        let moments =
            moments.map(|kind| sketch.state(kind, name, wide.clone(), of_moments.clone())).collect();
        let gradient = sketch.state(StateKind::Gradient, name, type_, of_gradient);
        States { parameter, master, moments, gradient }
    }

    /// What a product adds to a gradient, whose dimension `dim` is of hidden units.
    fn gradient(
        &mut self,
        (product, factors): (Op, [ValueId; 2]),
        splits: &[Split],
        (states, dim): (&States, usize),
    ) -> ValueId {
        match self.regression.sums {
            Sums::Apart => {
                let addend = self.node(product, &factors, splits, &[])[0];
                self.sum(states, addend, dim)
            }
            Sums::Added => {
                let next = self.node(product, &[factors[0], factors[1], states.gradient], splits, &[])[0];
                self.sketch.carry(states.gradient, next, &mut |_, _, _, _| None);
                next
            }
        }
    }

    /// The gradient and one more addend of it.
    fn sum(&mut self, states: &States, addend: ValueId, dim: usize) -> ValueId {
        let mut splits: Vec<Split> = self.tensor.map(|axis| (0, dim, axis)).into_iter().collect();
        let layout = self.sketch.plan.layouts[states.gradient.0].clone();
        if !layout.axes().is_empty() {
            splits.extend(self.data.filter(|_| self.tensor.is_none()).map(|axis| (0, 0, axis)));
        }
        let passed: Vec<usize> = layout.owed.iter().map(|axis| axis.0).collect();
        let next = self.node(Op::Binary(Binary::Add), &[states.gradient, addend], &splits, &passed)[0];
        self.sketch.carry(states.gradient, next, &mut |_, _, _, _| None);
        next
    }

    fn update(&mut self, states: &States, gradient: ValueId, numbers: [ValueId; 3], dim: usize) {
        let optimizer = self.regression.optimizer;
        let at_first = states.master.unwrap_or(states.parameter);
        let mut splits: Vec<Split> = self.tensor.map(|axis| (0, dim, axis)).into_iter().collect();
        if self.is_at_least(Parallel::Zero1) {
            splits.extend(self.data.map(|axis| (0, 0, axis)));
        }
        let operands = [&[at_first, gradient], &states.moments[..], &numbers[..optimizer.numbers()]].concat();
        let results = self.node(Op::Update(optimizer), &operands, &splits, &[]);
        self.sketch.carry(at_first, results[0], &mut |_, _, _, _| None);
        for (&moment, &next) in states.moments.iter().zip(&results[1..]) {
            self.sketch.carry(moment, next, &mut |_, _, _, _| None);
        }
        if states.master.is_some() {
            let narrow = self.node(Op::Cast(self.regression.dtype), &[results[0]], &splits, &[])[0];
            self.sketch.carry(states.parameter, narrow, &mut |_, _, _, _| None);
        }
    }
}

/// The states of a parameter.
struct States {
    parameter: ValueId,
    master: Option<ValueId>,
    moments: Vec<ValueId>,
    gradient: ValueId,
}

fn contract(left: &str, right: &str, result: &str) -> Op {
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
    Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
}
