//! Training steps of OPT layers and of their MLP as the papers have them.

use plan::{Loss, NoDecay, Recipe, Recompute};
use planner_ir::{
    Attention, Binary, Blind, Contract, DType, Graph, Label, Op, Optimizer, Output, Real, Reduction, Source,
    Type, Unary, ValueId,
};
use rewrite::Blocks;
use search::Section;

/// The sizes of a transformer's layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) layers: u64,
    pub(crate) batch: u64,
    pub(crate) sequence: u64,
    pub(crate) hidden: u64,
    pub(crate) heads: u64,
    /// The scores of a head on top, if there is one.
    pub(crate) vocabulary: Option<u64>,
    /// The elements of weights and values.
    pub(crate) dtype: DType,
    /// The function of the hidden units, of which there are four times the hidden size.
    pub(crate) activation: Unary,
}

/// A training step, cut into sections.
pub(crate) struct Step {
    pub(crate) graph: Graph,
    pub(crate) sections: Vec<Section>,
}

/// Builds graphs with inferred types.
struct Draft(Graph, DType);

impl Draft {
    fn input(&mut self, name: &str, type_: Type) -> ValueId {
        self.0.push_value(type_, Source::Input(name.to_owned()))
    }

    fn weight(&mut self, shape: &[u64]) -> ValueId {
        let name = format!("w{}", self.0.values.len());
        self.0.push_value(Type::new(self.1, shape), Source::Weight(name))
    }

    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = op.infer(&self.0.types_of(operands)).unwrap();
        self.0.push_node(op, operands.to_vec(), types, String::new())[0]
    }

    fn contract(&mut self, left: &str, right: &str, result: &str, operands: &[ValueId]) -> ValueId {
        let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
        let op = Contract { left: labels(left), right: labels(right), result: labels(result) };
        self.op(Op::Contract(op), operands)
    }

    fn add(&mut self, x: ValueId, y: ValueId) -> ValueId {
        self.op(Op::Binary(Binary::Add), &[x, y])
    }

    fn norm(&mut self, x: ValueId, hidden: u64) -> ValueId {
        let [scale, bias] = [0, 0].map(|_| self.weight(&[hidden]));
        self.op(Op::LayerNorm { dims: 1, epsilon: Real(1e-5) }, &[x, scale, bias])
    }

    /// Two products with a bias each, and a function of the units between them.
    fn mlp(&mut self, x: ValueId, sizes: &Sizes) -> ValueId {
        let (hidden, units) = (sizes.hidden, 4 * sizes.hidden);
        let [up, bias] = [&[hidden, units][..], &[units]].map(|shape| self.weight(shape));
        let h = self.contract("abk", "kn", "abn", &[x, up]);
        let h = self.add(h, bias);
        let h = self.op(Op::Unary(sizes.activation), &[h]);
        let [down, bias] = [&[units, hidden][..], &[hidden]].map(|shape| self.weight(shape));
        let y = self.contract("abk", "kn", "abn", &[h, down]);
        self.add(y, bias)
    }

    fn attention(&mut self, x: ValueId, sizes: &Sizes) -> ValueId {
        let size = sizes.hidden / sizes.heads;
        let [q, k, v] = [0, 0, 0].map(|_| {
            let [w, bias] = [&[sizes.hidden, sizes.heads, size][..], &[sizes.heads, 1, size]]
                .map(|shape| self.weight(shape));
            let it = self.contract("abk", "khd", "ahbd", &[x, w]);
            self.add(it, bias)
        });
        let attention = Attention {
            scale: Real(0.1),
            causal: true,
            softcap: Real(0.0),
            window: None,
            blind: Blind::Zero,
            sinks: false,
            statistics: false,
        };
        let a = self.op(Op::Attention(attention), &[q, k, v]);
        let [w, bias] =
            [&[sizes.heads, size, sizes.hidden][..], &[sizes.hidden]].map(|shape| self.weight(shape));
        let o = self.contract("ahbd", "hdk", "abk", &[a, w]);
        self.add(o, bias)
    }

    fn layer(&mut self, x: ValueId, sizes: &Sizes) -> ValueId {
        let h = self.norm(x, sizes.hidden);
        let a = self.attention(h, sizes);
        let x = self.add(x, a);
        let h = self.norm(x, sizes.hidden);
        let m = self.mlp(h, sizes);
        self.add(x, m)
    }

    /// The program up to the loss, the sum of all elements of a value or the cross-entropy of scores, and
    /// the recipe that makes it small.
    fn forward(mut self, y: ValueId, sizes: &Sizes, optimizer: Optimizer) -> (Blocks, Recipe) {
        let h = self.norm(y, sizes.hidden);
        let each = match sizes.vocabulary {
            None => h,
            Some(words) => {
                let head = self.weight(&[sizes.hidden, words]);
                let scores = self.contract("abk", "kn", "abn", &[h, head]);
                let labels = self.input("labels", Type::new(DType::I64, [sizes.batch, sizes.sequence]));
                self.op(Op::CrossEntropy { ignored: -100 }, &[scores, labels])
            }
        };
        let dims = (0..self.0.type_of(each).rank()).collect();
        let sum = self.op(Op::Reduce { reduction: Reduction::Sum, dims }, &[each]);
        let loss = self.op(Op::Reshape { shape: vec![] }, &[sum]);
        self.0.outputs.push(Output { name: "loss".to_owned(), value: loss });
        let recipe = Recipe {
            no_decay: NoDecay { names: vec![], vectors: true },
            ..Recipe::new(Loss::Output("loss".to_owned()), optimizer)
        };
        let blocks = rewrite::blocks(&train::forward(&self.0, &recipe).unwrap());
        let recompute = vec![Recompute::Nothing; blocks.segments.len()];
        (blocks, Recipe { recompute, ..recipe })
    }
}

/// The training step of a recipe.
pub(crate) fn step((blocks, recipe): &(Blocks, Recipe)) -> Step {
    let step = train::step(blocks, recipe).unwrap();
    let sections = search::fold(&step.graph, &step.homes, &step.forward);
    Step { graph: step.graph, sections }
}

/// A training step of transformer layers.
pub(crate) fn layers(sizes: &Sizes, optimizer: Optimizer) -> Step {
    step(&forward(sizes, optimizer))
}

/// Transformer layers up to the loss, between what stands before the first and after the last in a model, so
/// that gradients flow through all of them alike.
pub(crate) fn forward(sizes: &Sizes, optimizer: Optimizer) -> (Blocks, Recipe) {
    let mut draft = Draft(Graph::default(), sizes.dtype);
    let tokens = [sizes.batch, sizes.sequence];
    let mut x = match sizes.vocabulary {
        None => {
            let x = draft.input("x", Type::new(sizes.dtype, [&tokens[..], &[sizes.hidden]].concat()));
            let positions = draft.weight(&[sizes.sequence, sizes.hidden]);
            draft.add(x, positions)
        }
        Some(words) => {
            let ids = draft.input("ids", Type::new(DType::I64, tokens));
            let table = draft.weight(&[words, sizes.hidden]);
            draft.op(Op::Gather { dim: 0 }, &[table, ids])
        }
    };
    for _ in 0..sizes.layers {
        x = draft.layer(x, sizes);
    }
    draft.forward(x, sizes, optimizer)
}
