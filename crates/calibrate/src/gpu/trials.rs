//! What is timed on a GPU, and what it is priced by.

use cost_models::compute::{self, Heat, MatrixProduct, Role, Seen};
use cost_models::machine::{Machine, Precision};
use cost_models::units::{Bytes, Flops};
use device::{Issued, Trial};
use planner_ir::{Attention, Binary, Blind, Contract, DType, Label, Op, Real, Type};

/// Something that is timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Its name in notes and tables.
    pub name: String,
    /// What is done.
    pub trial: Trial,
    /// In what state the device is.
    pub when: When,
    /// What it is priced by.
    pub price: Price,
}

/// In what state the device is when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It has had nothing to do.
    Rested,
    /// It has been doing the same for long.
    Heated,
}

/// What something is priced by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Price {
    /// The launch of a kernel of a step, which is captured.
    Launch,
    /// As a product.
    Product(MatrixProduct),
    /// Bytes that are moved, and a launch: the large sum that the rate of memory is taken from.
    Sum(Bytes),
    /// The same, by others.
    Bytes(Bytes),
    /// As attention in one kernel.
    Attention(compute::Attention),
    /// As its gradient.
    AttentionGradient(compute::Attention),
    /// Not at all: it is shown beside the others.
    Nothing,
}

/// How large what is timed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of the products that numbers are fitted to.
    rows: &'static [u64],
    /// Their columns and the lengths of their sums: layers of models of some and of many parameters.
    layers: &'static [[u64; 2]],
    /// Products whose rate is that of a device that is hot.
    large: &'static [[u64; 3]],
    /// Products of other types and of gradients.
    few: &'static [[u64; 3]],
    /// Bytes that are copied.
    copied: &'static [u64],
    /// Elements of the sum that the rate of memory is taken from: none of it stays in a cache.
    summed: u64,
    /// Rows of normalisations, and their length.
    normalised: [u64; 2],
    /// Heads, and queries of each, of attention.
    attention: &'static [[u64; 2]],
}

impl Sizes {
    /// Those of models.
    pub const FULL: Self = Self {
        rows: &[16, 64, 256, 1024, 4096, 8192],
        layers: &[[1536, 1536], [4096, 4096], [11008, 4096], [4096, 11008]],
        large: &[[8192, 4096, 4096], [4096, 11008, 4096], [8192, 8192, 8192]],
        few: &[[4096, 4096, 4096], [8192, 1536, 1536], [4096, 4096, 11008]],
        copied: &[1 << 16, 1 << 20, 1 << 24, 1 << 28],
        summed: 1 << 28,
        normalised: [16384, 4096],
        attention: &[[64, 1024], [32, 4096], [128, 4096]],
    };

    /// So little that the way through it is soon gone; what is measured means nothing.
    pub const LITTLE: Self = Self {
        rows: &[16],
        layers: &[[64, 32]],
        large: &[[32, 32, 32]],
        few: &[[32, 16, 32]],
        copied: &[1 << 12],
        summed: 1 << 12,
        normalised: [8, 64],
        attention: &[[2, 64]],
    };

    /// The rows of normalisations, and their length.
    pub fn normalised(&self) -> [u64; 2] {
        self.normalised
    }

    /// The elements of a value that stays in no cache.
    pub fn summed(&self) -> u64 {
        self.summed
    }
}

/// The length of a query, a key and a value.
const HEAD: u64 = 128;

/// Everything that is timed.
pub fn all(sizes: &Sizes) -> Vec<Timed> {
    let mut all = vec![
        launched("launch, of many captured together", Issued::Captured, Price::Launch),
        launched("launch, of many one by one", Issued::Alone, Price::Nothing),
    ];
    all.extend(sizes.copied.iter().map(|&bytes| Timed {
        name: format!("copy of {} KiB", bytes >> 10),
        trial: Trial::Copy(bytes),
        when: When::Rested,
        price: Price::Nothing,
    }));
    all.push(sum(sizes.summed));
    all.extend(norms(sizes.normalised));
    let forward = |shape: &[u64; 3], dtype: DType, when: When| product(*shape, dtype, Role::Forward, when);
    for [n, k] in sizes.layers {
        all.extend(sizes.rows.iter().map(|m| forward(&[*m, *n, *k], DType::BF16, When::Rested)));
    }
    all.extend(sizes.large.iter().map(|shape| forward(shape, DType::BF16, When::Heated)));
    for role in [Role::InputGradient, Role::WeightGradient] {
        all.extend(sizes.few.iter().map(|shape| product(*shape, DType::BF16, role, When::Rested)));
    }
    for dtype in [DType::F16, DType::F32, DType::F64] {
        all.extend(sizes.few.iter().map(|shape| forward(shape, dtype, When::Rested)));
    }
    all.extend(sizes.attention.iter().flat_map(|shape| attention(*shape)));
    all
}

impl Timed {
    /// The memory that it takes (bytes).
    pub fn bytes(&self) -> u64 {
        match &self.trial {
            Trial::Copy(bytes) => 2 * bytes,
            Trial::Launch(_) => 0,
            Trial::Operation { operands, results, .. } | Trial::Kernels { operands, results, .. } => {
                operands.iter().chain(results).map(Type::bytes).sum()
            }
        }
    }

    /// What it takes by the numbers of a machine (seconds); nothing if it has no price.
    pub fn priced(&self, machine: &Machine) -> Option<f64> {
        let device = &machine.device;
        let heat = if self.when == When::Heated { Heat::Warm } else { Heat::Cold };
        let seconds = match &self.price {
            Price::Nothing => return None,
            Price::Launch => device.launch.value,
            Price::Product(product) => compute::matrix_product_at(device, product, heat),
            Price::Sum(bytes) | Price::Bytes(bytes) => compute::element_wise(device, *bytes, Flops(0.0)),
            Price::Attention(attention) => compute::attention(device, attention),
            Price::AttentionGradient(attention) => compute::attention_gradient(device, attention),
        };
        Some(seconds.0)
    }
}

fn launched(name: &str, issued: Issued, price: Price) -> Timed {
    Timed { name: name.to_owned(), trial: Trial::Launch(issued), when: When::Rested, price }
}

fn operation(name: String, op: Op, operands: Vec<Type>, results: Vec<Type>, price: Price) -> Timed {
    Timed { name, trial: Trial::Operation { op, operands, results }, when: When::Rested, price }
}

fn moved(types: &[&[Type]]) -> Bytes {
    Bytes(types.iter().flat_map(|it| it.iter()).map(Type::bytes).sum())
}

fn sum(elements: u64) -> Timed {
    let type_ = Type::new(DType::BF16, [elements]);
    let (operands, results) = (vec![type_.clone(), type_.clone()], vec![type_]);
    let price = Price::Sum(moved(&[&operands, &results]));
    operation(format!("sum of {elements} bf16"), Op::Binary(Binary::Add), operands, results, price)
}

fn norms([rows, row]: [u64; 2]) -> [Timed; 3] {
    let x = Type::new(DType::BF16, [rows, row]);
    let factors = Type::new(DType::BF16, [row]);
    let epsilon = Real(1e-5);
    [
        ("layer norm", Op::LayerNorm { dims: 1, epsilon }, 2),
        ("rms norm", Op::RmsNorm { dims: 1, epsilon }, 1),
        ("softmax", Op::Softmax { dim: 1 }, 0),
    ]
    .map(|(name, op, count)| {
        let operands: Vec<Type> = std::iter::once(x.clone()).chain(vec![factors.clone(); count]).collect();
        let results = vec![x.clone()];
        let price = Price::Bytes(moved(&[&operands, &results]));
        operation(format!("{name} of {rows} x {row} bf16"), op, operands, results, price)
    })
}

/// A product `[m, k]` by `[k, n]`, whose operands lie as training has them: a weight is stored by columns
/// forward, by rows for the gradient of what it is multiplied by; for its own gradient what is multiplied by
/// it is by columns.
fn product([m, n, k]: [u64; 3], dtype: DType, role: Role, when: When) -> Timed {
    let [row, column, inner] = [0, 1, 2].map(Label);
    let (left, right) = match role {
        Role::Forward => ([row, inner], [column, inner]),
        Role::InputGradient => ([row, inner], [inner, column]),
        Role::WeightGradient => ([inner, row], [inner, column]),
    };
    let extent = |label: Label| [m, n, k][usize::from(label.0)];
    let type_ = |labels: [Label; 2]| Type::new(dtype, labels.map(extent));
    let op = Op::Contract(Contract { left: left.to_vec(), right: right.to_vec(), result: vec![row, column] });
    let priced = MatrixProduct { role, ..MatrixProduct::forward(1, [m, n, k], Precision::of(dtype)) };
    let what = match role {
        Role::Forward => "",
        Role::InputGradient => ", of an input's gradient",
        Role::WeightGradient => ", of a weight's gradient",
    };
    let hot = if when == When::Heated { ", for long" } else { "" };
    let name = format!("product of {dtype} {m} x {n} x {k}{what}{hot}");
    let (operands, results) = (vec![type_(left), type_(right)], vec![Type::new(dtype, [m, n])]);
    Timed { when, ..operation(name, op, operands, results, Price::Product(priced)) }
}

/// Causal attention and its gradient.
fn attention([heads, length]: [u64; 2]) -> [Timed; 2] {
    let x = Type::new(DType::BF16, [1, heads, length, HEAD]);
    let statistics = Type::new(DType::F32, [1, heads, length, 2]);
    let attributes = |statistics: bool| Attention {
        scale: Real(1.0 / 128_f64.sqrt()),
        causal: true,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics,
    };
    let price = compute::Attention {
        heads,
        queries: length,
        keys: length,
        seen: Seen::half(length),
        key_size: HEAD,
        value_size: HEAD,
        precision: Precision::Bf16,
    };
    let name = |what: &str| format!("{what}, {heads} heads of {length} x {HEAD} bf16");
    let forward = operation(
        name("causal attention"),
        Op::Attention(attributes(false)),
        vec![x.clone(); 3],
        vec![x.clone()],
        Price::Attention(price),
    );
    let [q, k, v, y, dy] = [0; 5].map(|_| x.clone());
    let backward = operation(
        name("gradient of causal attention"),
        Op::AttentionGradient { attention: attributes(true), mask: false },
        vec![q, k, v, y, statistics, dy],
        vec![x; 3],
        Price::AttentionGradient(price),
    );
    [forward, backward]
}
