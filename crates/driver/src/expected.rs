//! Outputs beside those that the file of the inputs has.

use std::collections::BTreeMap;
use std::fmt;

use files::Failure;
use files::given::Given;
use kernels::Array;
use planner_ir::{DType, Graph, Op, Type};

/// An output beside what was expected.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// How far it is off; nothing if there is no such output, or it has another shape.
    pub found: Option<Distance>,
    /// How far it may be off, as a part of the largest number expected.
    allowed: f64,
}

/// How far an output is from what was expected.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// The largest difference.
    pub apart: f64,
    /// The largest number expected.
    largest: f64,
}

/// What is expected of an output.
#[derive(Clone, Debug)]
pub struct Expected {
    name: String,
    /// The elements; nothing if the program has no such output, or one of another shape.
    array: Option<Array>,
}

/// What is expected of outputs, read where a program has them.
pub fn read(graph: &Graph, given: Option<&Given>) -> Result<Vec<Expected>, Failure> {
    let has = |name: &str, type_: &Type| {
        let found = graph.outputs.iter().find(|output| output.name == name);
        found.is_some_and(|output| graph.value(output.value).type_.shape == type_.shape)
    };
    let Some(given) = given else { return Ok(Vec::new()) };
    let expected = |(name, type_): (&String, &Type)| {
        let array = has(name, type_).then(|| given.output(name)).transpose()?;
        Ok(Expected { name: name.clone(), array })
    };
    given.outputs.iter().map(expected).collect()
}

/// Each output of which something is expected.
pub fn compared(graph: &Graph, expected: &[Expected], outputs: &BTreeMap<String, Array>) -> Vec<Compared> {
    let allowed = allowed(graph);
    let compared = |Expected { name, array }: &Expected| Compared {
        name: name.clone(),
        found: outputs.get(name).zip(array.as_ref()).and_then(|(found, array)| distance(found, array)),
        allowed,
    };
    expected.iter().map(compared).collect()
}

/// How far outputs may be off that are rounded otherwise, as a part of the largest number: what
/// rounding does in some layers of the narrowest type that there is.
pub fn allowed(graph: &Graph) -> f64 {
    let has = |dtype: DType| graph.values.iter().any(|value| value.type_.dtype == dtype);
    match () {
        // Others round activations to 8 bits before products with quantised weights.
        () if graph.nodes.iter().any(|node| matches!(node.op, Op::Dequantize { .. })) => 5e-2,
        () if has(DType::BF16) => 3e-2,
        () if has(DType::F16) => 1e-2,
        () => 1e-4,
    }
}

fn distance(found: &Array, expected: &Array) -> Option<Distance> {
    if found.shape() != expected.shape() {
        return None;
    }
    let (found, expected) = (found.to_floats().ok()?, expected.to_floats().ok()?);
    // Numbers that are no numbers on one side only are as far apart as can be.
    let apart = |(a, b): (&f64, &f64)| match (a - b).abs() {
        _ if a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan() => 0.0,
        apart if apart.is_nan() => f64::INFINITY,
        apart => apart,
    };
    let most = |numbers: &mut dyn Iterator<Item = f64>| numbers.fold(0.0, f64::max);
    Some(Distance {
        apart: most(&mut found.iter().zip(&expected).map(apart)),
        largest: most(&mut expected.iter().map(|it| it.abs()).filter(|it| it.is_finite())),
    })
}

impl Compared {
    /// What is wrong with it, if anything is.
    pub fn complaint(&self) -> Option<String> {
        let Some(Distance { apart, largest }) = self.found else {
            return Some(format!("expects {self}"));
        };
        let allowed = self.allowed * largest;
        (apart > allowed).then(|| {
            format!(
                "expects other numbers of `{}`: {apart:.3e} apart at most, expected up to {allowed:.1e}; it \
                 may be of other weights or inputs, `shardloom check` says whether the plan is at fault",
                self.name
            )
        })
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.found {
            Some(Distance { apart, largest }) => {
                write!(f, "`{name}` differs by {apart:.3e} at most, its largest number is {largest:.3e}")
            }
            None => write!(f, "`{name}` cannot be compared: no such output, or of another shape"),
        }
    }
}
