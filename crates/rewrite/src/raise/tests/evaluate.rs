//! Graphs computed operation by operation, and values to compute them on.

use kernels::Array;
use planner_ir::{DType, Graph, Source, Type};

/// Numbers that look random and are the same every time.
pub(crate) struct Dice {
    pub(crate) state: u64,
    /// Whole numbers are below this.
    pub(crate) below: u64,
}

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut it = self.state;
        it = (it ^ (it >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        it ^ (it >> 31)
    }

    /// A number in [-1, 1).
    pub(crate) fn number(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap()) / 2147483648.0 - 1.0
    }

    /// An array of numbers in [-1, 1), small whole numbers, or truth values.
    pub(crate) fn array(&mut self, type_: &Type) -> Array {
        let count = usize::try_from(type_.elements()).unwrap();
        let mut bytes = Vec::new();
        for _ in 0..count {
            bytes.extend(match type_.dtype {
                DType::F64 => self.number().to_le_bytes().to_vec(),
                #[expect(clippy::cast_possible_truncation, reason = "rounded on purpose")]
                DType::F32 => (self.number() as f32).to_le_bytes().to_vec(),
                #[expect(clippy::cast_possible_truncation, reason = "rounded on purpose")]
                DType::BF16 => {
                    let bits = (self.number() as f32).to_bits() >> 16;
                    u16::try_from(bits).unwrap().to_le_bytes().to_vec()
                }
                DType::F16 => {
                    let sign = u16::try_from(self.next() & 1).unwrap() << 15;
                    let rest = u16::try_from(self.next() % (15 << 10)).unwrap();
                    (sign | rest).to_le_bytes().to_vec()
                }
                DType::I64 | DType::U64 => (self.next() % self.below).to_le_bytes().to_vec(),
                DType::I32 | DType::U32 => u32::try_from(self.next() % 2).unwrap().to_le_bytes().to_vec(),
                DType::I16 | DType::U16 => u16::try_from(self.next() % 2).unwrap().to_le_bytes().to_vec(),
                DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => {
                    vec![u8::try_from(self.next() % 48).unwrap()]
                }
                DType::I8 | DType::U8 | DType::Bool => vec![u8::try_from(self.next() % 2).unwrap()],
            });
        }
        Array::from_bytes(type_.clone(), &bytes).unwrap()
    }
}

/// The outputs of a graph, given its values from outside in order.
pub(crate) fn evaluate(graph: &Graph, outside: &[Array]) -> Result<Vec<Array>, String> {
    let mut values: Vec<Option<Array>> = vec![None; graph.values.len()];
    let mut next = outside.iter();
    for (value, slot) in graph.values.iter().zip(&mut values) {
        if !matches!(value.source, Source::Result { .. }) {
            *slot = next.next().cloned();
        }
    }
    for node in &graph.nodes {
        let operands: Vec<&Array> = node.operands.iter().map(|it| values[it.0].as_ref().unwrap()).collect();
        let results = kernels::evaluate(&node.op, &operands)
            .map_err(|error| format!("{:.80} at `{}`: {error}", format!("{:?}", node.op), node.origin))?;
        for (result, array) in node.results.iter().zip(results) {
            if array.type_() != graph.type_of(*result) {
                return Err(format!("{} at `{}`", array.type_(), node.origin));
            }
            values[result.0] = Some(array);
        }
    }
    Ok(graph.outputs.iter().map(|output| values[output.value.0].clone().unwrap()).collect())
}

/// The largest difference relative to the largest element; infinite if one is not a number where
/// the other is.
pub(crate) fn difference(found: &Array, expected: &Array) -> f64 {
    let (found, expected) = (found.to_floats().unwrap(), expected.to_floats().unwrap());
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let largest =
        expected.iter().filter(|it| it.is_finite()).fold(1e-30f64, |largest, it| largest.max(it.abs()));
    found.iter().zip(&expected).fold(0.0f64, |worst, (a, b)| {
        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        let apart = if same { 0.0 } else { (a - b).abs() / largest };
        if apart.is_nan() { f64::INFINITY } else { worst.max(apart) }
    })
}

/// How far apart results of these elements may be.
pub(crate) fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 6e-2,
        DType::F16 => 1e-2,
        _ => 2e-4,
    }
}
