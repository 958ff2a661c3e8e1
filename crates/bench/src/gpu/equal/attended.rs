//! Attention and its gradients, of every kind of heads, bound and mask; rotary embedding.

use files::Failure;
use kernels::{Array, Span};
use planner_ir::{Attention, Blind, DType, Op, Pairing, Real, Type};

use super::case::{Cases, Placed, computed, whole};

/// Heads, and what they see.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Heads of queries, and of keys and values.
    heads: [u64; 2],
    /// Queries and keys.
    lengths: [u64; 2],
    /// The length of a query and of a value.
    sizes: [u64; 2],
    causal: bool,
    window: Option<u64>,
    softcap: f64,
    mask: Mask,
}

/// What is added to scores, or hides keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mask {
    None,
    /// Truth values: the same for all heads.
    Truths,
    /// Numbers, whose gradient is made too.
    Numbers,
    /// Documents of queries and keys, beside truth values of keys.
    Documents,
}

const PLAIN: Kind = Kind {
    name: "attention",
    heads: [2, 2],
    lengths: [70, 70],
    sizes: [64, 64],
    causal: false,
    window: None,
    softcap: 0.0,
    mask: Mask::None,
};

const CAUSAL: Kind = Kind { name: "causal attention", causal: true, ..PLAIN };

/// Lengths that fall into no equal tiles.
const KINDS: [Kind; 15] = [
    PLAIN,
    CAUSAL,
    // So many tiles that each place of those that are on their way is used again.
    Kind { name: "causal attention over three tiles,", heads: [1, 1], lengths: [150, 150], ..CAUSAL },
    Kind { name: "causal attention, heads in groups,", heads: [4, 2], ..CAUSAL },
    Kind { name: "causal attention, heads of 80,", sizes: [80, 80], ..CAUSAL },
    Kind { name: "causal attention, heads of 96,", sizes: [96, 96], ..CAUSAL },
    Kind { name: "causal attention, heads of 128,", sizes: [128, 128], ..CAUSAL },
    Kind { name: "causal attention, heads of 256,", sizes: [256, 256], ..CAUSAL },
    Kind { name: "attention, values of another length,", sizes: [48, 112], ..PLAIN },
    Kind { name: "attention in a window", window: Some(30), ..CAUSAL },
    Kind { name: "attention whose scores are bounded", softcap: 2.0, ..CAUSAL },
    Kind { name: "attention with a mask of truth values", mask: Mask::Truths, ..PLAIN },
    Kind { name: "causal attention within documents", mask: Mask::Documents, ..CAUSAL },
    Kind { name: "attention with a mask of numbers", lengths: [40, 70], mask: Mask::Numbers, ..PLAIN },
    Kind { name: "attention of one query, heads in groups,", heads: [4, 2], lengths: [1, 70], ..CAUSAL },
];

/// Heads of large models, as they are trained.
const LARGE: Kind =
    Kind { name: "causal attention of 16 heads of 1024,", heads: [16, 4], lengths: [1024, 1024], ..CAUSAL };

/// Cases of attention; of large heads too, if they are wanted.
pub(super) fn of(cases: &mut Cases, large: bool) -> Result<(), Failure> {
    for kind in KINDS.into_iter().chain(Some(LARGE).filter(|_| large)) {
        attention(cases, &kind)?;
    }
    stripes(cases)?;
    rotary(cases)
}

impl Kind {
    fn attributes(&self) -> Attention {
        let scale = Real(1.0 / f64::from(u32::try_from(self.sizes[0]).unwrap_or(1)).sqrt());
        let Self { causal, window, softcap, .. } = *self;
        Attention {
            scale,
            causal,
            softcap: Real(softcap),
            window,
            blind: Blind::Zero,
            sinks: false,
            statistics: true,
        }
    }

    /// Queries, keys, values, and what masks them, if something does.
    fn operands(&self, cases: &Cases) -> Result<Vec<Array>, Failure> {
        let ([heads, groups], [queries, keys], [size, value]) = (self.heads, self.lengths, self.sizes);
        let shapes = [[1, heads, queries, size], [1, groups, keys, size], [1, groups, keys, value]];
        let given = shapes.iter().zip(0..).map(|(shape, seed)| cases.numbers(shape, seed));
        let mut given = given.collect::<Result<Vec<_>, _>>()?;
        match self.mask {
            Mask::None => {}
            Mask::Truths => given.push(whole(DType::Bool, &[1, 1, queries, keys], 0, 2, 5)?),
            Mask::Numbers => given.push(cases.numbers(&[1, heads, queries, keys], 5)?),
            Mask::Documents => {
                given.push(whole(DType::Bool, &[1, 1, 1, keys], 0, 2, 5)?);
                given.push(whole(DType::I64, &[1, 1, queries, 1], 0, 3, 7)?);
                given.push(whole(DType::I64, &[1, 1, 1, keys], 0, 3, 8)?);
            }
        }
        Ok(given)
    }
}

/// Attention with its statistics and without, and its gradients by what it makes.
fn attention(cases: &mut Cases, kind: &Kind) -> Result<(), Failure> {
    let attention = kind.attributes();
    let mut operands = kind.operands(cases)?;
    let forward = Op::Attention(attention);
    if kind.name == CAUSAL.name {
        let alone = Op::Attention(Attention { statistics: false, ..attention });
        cases.op("causal attention without statistics", alone, operands.clone())?;
    }
    let made = computed(&forward, &operands.iter().collect::<Vec<_>>())?;
    let back = cases.numbers(made[0].shape(), 6)?;
    cases.op(kind.name, forward, operands.clone())?;
    let mask = operands.split_off(3);
    operands.extend(made.into_iter().chain([back]).chain(mask));
    let op = Op::AttentionGradient { attention, mask: kind.mask == Mask::Numbers };
    cases.op(&format!("gradient of {}", kind.name), op, operands)
}

/// Queries and keys that lie two apart, as ranks have them that share causal work evenly.
fn stripes(cases: &mut Cases) -> Result<(), Failure> {
    let kind = Kind { lengths: [35, 35], ..CAUSAL };
    let dtype = cases.dtype;
    let striped = |array: Array, start: u64| -> Placed {
        let mut spans: Vec<Span> = array.shape().iter().map(|&it| Span::contiguous(it, 0)).collect();
        spans[2] = Span { extent: 70, start, run: 1, stride: 2 };
        (array, spans)
    };
    let operands = kind.operands(cases)?.into_iter().zip([1, 0, 0]);
    let operands: Vec<Placed> = operands.map(|(it, start)| striped(it, start)).collect();
    let results =
        [(Type::new(dtype, [1, 2, 35, 64]), vec![]), (Type::new(DType::F32, [1, 2, 35, 2]), vec![])];
    let op = Op::Attention(kind.attributes());
    cases.block(cases.most, "causal attention in stripes", &op, operands, &results)
}

fn rotary(cases: &mut Cases) -> Result<(), Failure> {
    let dtype = cases.dtype;
    let x = cases.numbers(&[2, 4, 75, 64], 0)?;
    let factors = [1, 2].map(|seed| super::case::numbers(dtype, &[75, 64], seed));
    let [cos, sin] = factors;
    let operands = vec![x, cos?, sin?];
    for (name, pairing) in [("halves", Pairing::Halves), ("neighbours", Pairing::Neighbours)] {
        cases.op(&format!("rotation of {name}"), Op::Rotary(pairing), operands.clone())?;
        let back = Op::RotaryGradient(pairing);
        cases.op(&format!("gradient of rotation of {name}"), back, operands.clone())?;
    }
    Ok(())
}
