//! Random programs of repeated layers: stacks of equal ones that hand values on, and read what others
//! made: the first values, the results of other stacks, of single layers; with weights of their own or tied.

use std::collections::BTreeMap;

use driver::pipeline::{self, Prepared};
use kernels::Array;
use planner_ir::{Binary, Contract, DType, Graph, Label, Op, Output, Source, Type, Unary, ValueId};

/// Numbers that a seed decides: the generator splitmix64.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.draw() % u64::try_from(count).unwrap()).unwrap()
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A program with what it is given.
pub(super) struct Program {
    pub(super) graph: Graph,
    pub(super) inputs: BTreeMap<String, Array>,
    pub(super) weights: BTreeMap<String, Array>,
}

impl Program {
    pub(super) fn random(dice: &mut Dice) -> Self {
        Self::random_and_half(dice).0
    }

    /// A program, and the same of half as many examples.
    pub(super) fn random_and_half(dice: &mut Dice) -> (Self, Self) {
        let batch = dice.of(&[12, 12, 24, 1, 9, 11, 35, 70]);
        let (sequence, hidden) = (dice.of(&[6, 12, 10]), dice.of(&[4, 8, 12, 7]));
        let seed = dice.draw();
        let of = |batch: u64| {
            let mut draft = Draft { graph: Graph::default(), shape: [batch, sequence, hidden], layers: 0 };
            draft.fill(&mut Dice::new(seed));
            draft.done()
        };
        (of(2 * batch), of(batch))
    }

    /// Cut into blocks.
    pub(super) fn prepared(&self) -> Prepared {
        pipeline::cut(&self.graph)
    }
}

struct Draft {
    graph: Graph,
    shape: [u64; 3],
    layers: usize,
}

impl Draft {
    fn fill(&mut self, dice: &mut Dice) {
        let type_ = Type::new(DType::F32, self.shape);
        let first = self.graph.push_value(type_.clone(), Source::Input("x".to_owned()));
        let second = self.graph.push_value(type_, Source::Input("y".to_owned()));
        let tied = self.weight(&[self.shape[2], self.shape[2]]);
        let mut made = vec![first, second];
        if dice.below(2) == 0 {
            made.push(self.product(first, tied));
        }
        let mut last = made[dice.below(made.len())];
        for _ in 0..1 + dice.below(2) {
            // What every layer of a stack reads besides, and whether weights are tied to others.
            let others: Vec<ValueId> = (0..dice.below(3)).map(|_| made[dice.below(made.len())]).collect();
            let weight = (dice.below(3) == 0).then_some(tied);
            let begins = if dice.below(3) == 0 { made[dice.below(made.len())] } else { last };
            last = begins;
            for _ in 0..1 + dice.below(4) {
                last = self.layer(last, &others, weight);
                if dice.below(6) == 0 {
                    made.push(last);
                }
            }
            made.push(last);
            if dice.below(2) == 0 {
                last = self.op(Op::Unary(Unary::Tanh), &[last]);
            }
        }
        let head = self.weight(&[self.shape[2], 6]);
        let result = self.product(last, head);
        self.output("result", result);
        for (number, value) in made.into_iter().enumerate().skip(2) {
            if dice.below(5) == 0 {
                self.output(&format!("made {number}"), value);
            }
        }
    }

    /// A layer: a product and its function, with what is read besides added, another product, and the sum
    /// with what came in.
    fn layer(&mut self, x: ValueId, others: &[ValueId], tied: Option<ValueId>) -> ValueId {
        self.layers += 1;
        let hidden = self.shape[2];
        let up = self.weight(&[hidden, 2 * hidden]);
        let mut inner = self.product(x, up);
        for &other in others {
            let weight = self.weight(&[hidden, 2 * hidden]);
            let read = self.product(other, weight);
            inner = self.op(Op::Binary(Binary::Add), &[inner, read]);
        }
        inner = self.op(Op::Unary(Unary::Tanh), &[inner]);
        let down = self.weight(&[2 * hidden, hidden]);
        let mut out = self.product(inner, down);
        if let Some(tied) = tied {
            out = self.product(out, tied);
        }
        self.op(Op::Binary(Binary::Add), &[x, out])
    }

    fn weight(&mut self, shape: &[u64]) -> ValueId {
        let name = format!("w{}", self.graph.values.len());
        self.graph.push_value(Type::new(DType::F32, shape), Source::Weight(name))
    }

    fn product(&mut self, x: ValueId, weight: ValueId) -> ValueId {
        let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
        let op = Contract { left: labels("abc"), right: labels("cd"), result: labels("abd") };
        self.op(Op::Contract(op), &[x, weight])
    }

    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = op.infer(&self.graph.types_of(operands)).unwrap();
        let origin = format!("layer{}/{}", self.layers, self.graph.nodes.len());
        self.graph.push_node(op, operands.to_vec(), types, origin)[0]
    }

    fn output(&mut self, name: &str, value: ValueId) {
        self.graph.outputs.push(Output { name: name.to_owned(), value });
    }

    /// The program with numbers for what it is given.
    fn done(self) -> Program {
        let (mut inputs, mut weights) = (BTreeMap::new(), BTreeMap::new());
        let mut dice = Dice::new(7);
        for value in &self.graph.values {
            let (all, name) = match &value.source {
                Source::Input(name) => (&mut inputs, name),
                Source::Weight(name) => (&mut weights, name),
                _ => continue,
            };
            let number = |_| (f32::from(u16::try_from(dice.below(2001)).unwrap()) - 1000.0) / 2500.0;
            let numbers: Vec<f32> = (0..value.type_.elements()).map(number).collect();
            all.insert(name.clone(), Array::of(value.type_.shape.clone(), &numbers).unwrap());
        }
        Program { graph: self.graph, inputs, weights }
    }
}
