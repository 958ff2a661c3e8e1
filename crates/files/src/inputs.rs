//! Inputs made from a seed.

use std::collections::BTreeMap;

use kernels::Array;
use kernels::random::SplitMix;
use planner_ir::{DType, Graph, Source, Type};

use crate::given;

/// The largest integer that is made, where the model does not say what its integers index.
const LARGEST: u64 = 100;

/// An array for every input of a program: small integers, ones for masks, and numbers in (−1, 1).
///
/// Integers that index the rows of a table are below its length.
pub fn made(graph: &Graph, seed: u64) -> BTreeMap<String, Array> {
    let mut inputs = BTreeMap::new();
    for value in graph.value_ids() {
        let Source::Input(name) = &graph.value(value).source else { continue };
        let bound = rows(graph, value);
        let mut random = Random::new(seed, name);
        inputs.insert(name.clone(), array(graph.type_of(value), bound, &mut random));
    }
    inputs
}

/// The same inputs with masks that hide the first third of a sequence, the last of the batch, as of one
/// that is padded before it begins: rows of attention may see no key then. Nothing if the program has no
/// mask: integers or truth values of two dimensions that index nothing.
pub fn padded(graph: &Graph, made: &BTreeMap<String, Array>) -> Option<BTreeMap<String, Array>> {
    let mut padded = made.clone();
    let mut found = false;
    for value in graph.value_ids() {
        let (Source::Input(name), type_) = (&graph.value(value).source, graph.type_of(value)) else {
            continue;
        };
        let (false, None, &[rows, columns]) = (type_.dtype.is_float(), rows(graph, value), &type_.shape[..])
        else {
            continue;
        };
        let size = type_.dtype.bytes();
        let first = rows.saturating_sub(1) * columns * size;
        let place = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        if let Some(array) = padded.get_mut(name)
            && let Some(hidden) =
                array.bytes_mut().get_mut(place(first)..place(first + columns.div_ceil(3) * size))
        {
            hidden.fill(0);
            found |= !hidden.is_empty();
        }
    }
    found.then_some(padded)
}

/// The least number of rows of the tables that a value indexes; 2 if it indexes none and is
/// two-dimensional, as masks are.
fn rows(graph: &Graph, value: planner_ir::ValueId) -> Option<u64> {
    let looked_up = graph.nodes.iter().filter_map(|node| match node.op {
        planner_ir::Op::Gather { dim } if node.operands[1] == value => {
            Some(graph.type_of(node.operands[0]).shape[dim])
        }
        _ => None,
    });
    looked_up.min()
}

fn array(type_: &Type, bound: Option<u64>, random: &mut Random) -> Array {
    if type_.dtype.is_f8() {
        let wide = array(&Type::new(DType::F32, type_.shape.clone()), bound, random);
        return given::converted(wide, type_)
            .unwrap_or_else(|error| unreachable!("numbers of any type: {error}"));
    }
    let count = usize::try_from(type_.elements()).unwrap_or(0);
    let whole = |random: &mut Random| match bound {
        Some(bound) => random.0.bits() % bound.clamp(1, LARGEST),
        None => 1,
    };
    let mut bytes = Vec::with_capacity(count);
    for _ in 0..count {
        let number = random.number();
        match type_.dtype {
            DType::F64 => bytes.extend(number.to_le_bytes()),
            DType::F32 => bytes.extend(single(number).to_le_bytes()),
            DType::F16 => bytes.extend(half::f16::from_f64(number).to_le_bytes()),
            DType::BF16 => bytes.extend(half::bf16::from_f64(number).to_le_bytes()),
            DType::I64 | DType::U64 => bytes.extend(whole(random).to_le_bytes()),
            other => {
                let size = usize::try_from(other.bytes()).unwrap_or(1);
                bytes.extend(&whole(random).to_le_bytes()[..size]);
            }
        }
    }
    Array::from_bytes(type_.clone(), &bytes)
        .unwrap_or_else(|error| unreachable!("bytes of the type: {error}"))
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
fn single(number: f64) -> f32 {
    number as f32
}

/// Numbers that look random.
#[derive(Clone, Debug)]
pub struct Random(SplitMix);

impl Random {
    /// Each name has its own sequence.
    pub fn new(seed: u64, name: &str) -> Self {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(SplitMix(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix)))
    }

    /// A number in (−1, 1).
    pub fn number(&mut self) -> f64 {
        let bits = u32::try_from(self.0.bits() >> 32).unwrap_or(0);
        f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0
    }
}
