//! One thing that a GPU is to make as a processor makes it.

use device::Trial;
use files::Failure;
use files::inputs::Random;
use kernels::cuda::{self, Chain, Input, Piece, Step, Work, chained};
use kernels::{Array, Span, Tensor, TensorMut, compute, evaluate};
use planner_ir::{Binary, DType, Op, Type};

/// What is computed, of what, and what comes of it.
pub struct Case {
    /// What it is called.
    pub name: String,
    /// The operations that it is of; none of copies and sums for exchanges.
    pub of: Vec<String>,
    /// The kernels, or what they are made for.
    pub trial: Trial,
    /// What they read.
    pub operands: Vec<Array>,
    /// What they are to make.
    pub expected: Vec<Array>,
    /// How far results may be from it, as a part of the largest number of each.
    pub most: f64,
}

/// A block of a value, and where it lies in it; nowhere if it is the whole.
pub(super) type Placed = (Array, Vec<Span>);

/// Cases of one type of numbers, as they are made.
pub(super) struct Cases {
    pub(super) dtype: DType,
    /// How far results of this type may be from the reference.
    pub(super) most: f64,
    pub(super) all: Vec<Case>,
}

impl Cases {
    pub(super) fn new(dtype: DType, most: f64) -> Self {
        Self { dtype, most, all: Vec::new() }
    }

    /// An operation on whole values.
    pub(super) fn op(&mut self, name: &str, op: Op, operands: Vec<Array>) -> Result<(), Failure> {
        self.within(self.most, name, op, operands)
    }

    /// One that computes nothing, or the same bits wherever it runs.
    pub(super) fn exact(&mut self, name: &str, op: Op, operands: Vec<Array>) -> Result<(), Failure> {
        self.within(0.0, name, op, operands)
    }

    /// One whose results may be so far away.
    pub(super) fn within(
        &mut self,
        most: f64,
        name: &str,
        op: Op,
        operands: Vec<Array>,
    ) -> Result<(), Failure> {
        let expected = computed(&op, &operands.iter().collect::<Vec<_>>())?;
        let of = vec![device::named(&op)];
        let trial = Trial::Operation { op, operands: types(&operands), results: types(&expected) };
        self.push(most, name, of, trial, (operands, expected));
        Ok(())
    }

    /// An operation on blocks, whose results are blocks of these types.
    pub(super) fn block(
        &mut self,
        most: f64,
        name: &str,
        op: &Op,
        operands: Vec<Placed>,
        results: &[(Type, Vec<Span>)],
    ) -> Result<(), Failure> {
        let given: Vec<Tensor> = operands.iter().map(|(it, spans)| Tensor { spans, ..it.tensor() }).collect();
        let mut expected = results.iter().map(|it| zeros(&it.0)).collect::<Result<Vec<Array>, Failure>>()?;
        let targets = expected.iter_mut().zip(results);
        let mut targets: Vec<TensorMut> =
            targets.map(|(it, (_, spans))| TensorMut { spans, ..it.tensor_mut() }).collect();
        compute(op, &given, &mut targets).map_err(failed)?;
        let piece =
            |type_: &Type, spans: &[Span]| Piece { spans: spans.to_vec(), ..Piece::whole(type_.clone()) };
        let of: Vec<Piece> = operands.iter().map(|(it, spans)| piece(it.type_(), spans)).collect();
        let to: Vec<Piece> = results.iter().map(|(it, spans)| piece(it, spans)).collect();
        let work = cuda::kernels(op, &of, &to).map_err(failed)?;
        let operands = operands.into_iter().map(|it| it.0).collect();
        self.kernels(most, name, vec![device::named(op)], work, (operands, expected));
        Ok(())
    }

    /// Kernels, and what they are to make.
    pub(super) fn work(
        &mut self,
        most: f64,
        name: &str,
        work: Work,
        operands: Vec<Array>,
        expected: Vec<Array>,
    ) {
        self.kernels(most, name, vec![], work, (operands, expected));
    }

    /// One kernel that computes several operations: what they would make one by one.
    pub(super) fn chain(&mut self, most: f64, name: &str, parts: Parts) -> Result<(), Failure> {
        let expected = parts.computed()?;
        let work = chained(&parts.chain).map_err(failed)?;
        let of = parts.chain.steps.iter().map(|it| device::named(&it.op)).collect();
        self.kernels(most, name, of, work, (parts.operands, expected));
        Ok(())
    }

    fn kernels(
        &mut self,
        most: f64,
        name: &str,
        of: Vec<String>,
        work: Work,
        (operands, expected): (Vec<Array>, Vec<Array>),
    ) {
        let trial = Trial::Kernels { work, operands: types(&operands), results: types(&expected) };
        self.push(most, name, of, trial, (operands, expected));
    }

    fn push(
        &mut self,
        most: f64,
        name: &str,
        of: Vec<String>,
        trial: Trial,
        (operands, expected): (Vec<Array>, Vec<Array>),
    ) {
        let name = format!("{name} of {}", self.dtype);
        self.all.push(Case { name, of, trial, operands, expected, most });
    }

    /// Numbers between -1 and 1.
    pub(super) fn numbers(&self, shape: &[u64], seed: u64) -> Result<Array, Failure> {
        numbers(self.dtype, shape, seed)
    }
}

/// Operations that one kernel computes, as they are put together.
pub(super) struct Parts {
    chain: Chain,
    operands: Vec<Array>,
}

impl Parts {
    pub(super) fn new(shape: &[u64]) -> Self {
        Self { chain: Chain::over(shape.to_vec()), operands: Vec::new() }
    }

    /// The same of a block that lies there.
    pub(super) fn at(mut self, spans: Vec<Span>) -> Self {
        self.chain.spans = spans;
        self
    }

    pub(super) fn operand(&mut self, operand: Array) -> Input {
        self.chain.operands.push(Piece::whole(operand.type_().clone()));
        self.operands.push(operand);
        Input::Operand(self.operands.len() - 1)
    }

    /// A step of one result.
    pub(super) fn step(&mut self, op: Op, inputs: &[Input], dtype: DType) -> Input {
        Input::Step(self.steps(op, inputs, &[dtype]), 0)
    }

    /// A step of several results; its number.
    pub(super) fn steps(&mut self, op: Op, inputs: &[Input], results: &[DType]) -> usize {
        self.chain.steps.push(Step { op, inputs: inputs.to_vec(), results: results.to_vec() });
        self.chain.steps.len() - 1
    }

    pub(super) fn add(&mut self, inputs: [Input; 2], dtype: DType) -> Input {
        self.step(Op::Binary(Binary::Add), &inputs, dtype)
    }

    /// With these results of steps stored.
    pub(super) fn storing(mut self, results: &[Input]) -> Self {
        let places = results.iter().filter_map(|it| match *it {
            Input::Step(step, result) => Some((step, result)),
            Input::Operand(_) => None,
        });
        self.chain.results = places.collect();
        self
    }

    /// With everything stored that steps make.
    pub(super) fn storing_all(mut self) -> Self {
        let steps = self.chain.steps.iter().enumerate();
        self.chain.results =
            steps.flat_map(|(step, it)| (0..it.results.len()).map(move |result| (step, result))).collect();
        self
    }

    /// What the steps make one by one, of what is stored.
    fn computed(&self) -> Result<Vec<Array>, Failure> {
        let chain = &self.chain;
        let placed = |array: &Array| if array.shape() == chain.shape { &chain.spans[..] } else { &[] };
        let mut made: Vec<Vec<Array>> = Vec::new();
        for step in &chain.steps {
            let arrays = step.inputs.iter().map(|input| match *input {
                Input::Operand(number) => &self.operands[number],
                Input::Step(step, result) => &made[step][result],
            });
            let operands: Vec<Tensor> =
                arrays.map(|it| Tensor { spans: placed(it), ..it.tensor() }).collect();
            let types = step.results.iter().map(|&it| Type::new(it, chain.shape.clone()));
            let mut results = types.map(|it| zeros(&it)).collect::<Result<Vec<_>, Failure>>()?;
            let targets = results.iter_mut();
            let mut targets: Vec<TensorMut> =
                targets.map(|it| TensorMut { spans: &chain.spans, ..it.tensor_mut() }).collect();
            compute(&step.op, &operands, &mut targets).map_err(failed)?;
            made.push(results);
        }
        Ok(chain.results.iter().map(|&(step, result)| made[step][result].clone()).collect())
    }
}

/// What an operation makes on a processor.
pub(super) fn computed(op: &Op, operands: &[&Array]) -> Result<Vec<Array>, Failure> {
    evaluate(op, operands).map_err(failed)
}

/// The first result of an operation.
pub(super) fn made(op: &Op, operands: &[&Array]) -> Result<Array, Failure> {
    let none = || Failure::internal("bench gpu", "an operation without results");
    computed(op, operands)?.into_iter().next().ok_or_else(none)
}

/// The same numbers in another type.
pub(super) fn cast(array: &Array, dtype: DType) -> Result<Array, Failure> {
    made(&Op::Cast(dtype), &[array])
}

/// Numbers between -1 and 1.
pub(super) fn numbers(dtype: DType, shape: &[u64], seed: u64) -> Result<Array, Failure> {
    let mut random = Random::new(seed, "bench gpu");
    let all: Vec<f64> = (0..count(shape)).map(|_| random.number()).collect();
    cast(&Array::of::<f64>(shape, &all).map_err(failed)?, dtype)
}

/// Numbers between 0.1 and 1.1.
pub(super) fn positive(dtype: DType, shape: &[u64], seed: u64) -> Result<Array, Failure> {
    let mut random = Random::new(seed, "bench gpu");
    let all: Vec<f64> = (0..count(shape)).map(|_| random.number().powi(2) + 0.1).collect();
    cast(&Array::of::<f64>(shape, &all).map_err(failed)?, dtype)
}

/// Whole numbers from `low` to below `high`.
pub(super) fn whole(dtype: DType, shape: &[u64], low: i64, high: i64, seed: u64) -> Result<Array, Failure> {
    let mut random = Random::new(seed, "bench gpu");
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let (start, width) = (low as f64, (high - low) as f64);
    let mut number = || (start + (random.number() + 1.0) / 2.0 * width).floor().min(start + width - 1.0);
    let all: Vec<f64> = (0..count(shape)).map(|_| number()).collect();
    cast(&Array::of::<f64>(shape, &all).map_err(failed)?, dtype)
}

/// A number of no dimensions.
pub(super) fn single(number: f32) -> Result<Array, Failure> {
    Array::of::<f32>([], &[number]).map_err(failed)
}

/// A counter of no dimensions.
pub(super) fn counter(number: i64) -> Result<Array, Failure> {
    Array::of::<i64>([], &[number]).map_err(failed)
}

pub(super) fn types(arrays: &[Array]) -> Vec<Type> {
    arrays.iter().map(|it| it.type_().clone()).collect()
}

pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::internal("bench gpu", error)
}

fn zeros(type_: &Type) -> Result<Array, Failure> {
    Array::zeros(type_.clone()).map_err(failed)
}

fn count(shape: &[u64]) -> usize {
    usize::try_from(shape.iter().product::<u64>()).unwrap_or(0)
}
