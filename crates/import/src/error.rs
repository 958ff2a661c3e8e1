//! Why a model cannot be imported.

use std::fmt;

/// Why a model cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The bytes are not an ONNX model, or end early.
    Encoding(String),
    /// The model breaks a rule of ONNX.
    Malformed(String),
    /// An operator set that is newer than what is known, or of an unknown domain.
    Opset {
        /// The domain; empty for the standard operators.
        domain: String,
        /// The version that the model asks for.
        found: i64,
        /// The newest that is known; 0 for an unknown domain.
        known: i64,
    },
    /// An operator, or a form of it, that has no translation.
    Unsupported {
        /// Which node.
        place: Place,
        /// The version of its operator set.
        opset: i64,
        /// What would be needed.
        needed: String,
    },
    /// Operands or attributes that do not fit their operator.
    Node {
        /// Which node.
        place: Place,
        /// What does not fit.
        message: String,
    },
    /// A shape, or which branch is taken, depends on data where that is not possible.
    DependsOnData {
        /// Which node.
        place: Place,
        /// What is not known.
        what: String,
    },
    /// Dimensions that no binding gives a size to.
    Unbound(Vec<Unbound>),
    /// Bindings that do not fit the model or each other.
    Binding(String),
    /// A weight whose data do not fit its declaration.
    Weight {
        /// The weight.
        name: String,
        /// What does not fit.
        message: String,
    },
}

/// A node of the model file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Place {
    /// Its name, or that of its first output.
    pub node: String,
    /// The operator, with its domain unless that is the standard one.
    pub op: String,
}

/// A dimension without a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbound {
    /// The symbol.
    pub symbol: String,
    /// Where it occurs: `input_ids[0]`.
    pub places: Vec<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node `{}` ({})", self.node, self.op)
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding(message) => write!(f, "not an ONNX model: {message}"),
            Self::Malformed(message) => write!(f, "malformed model: {message}"),
            Self::Opset { domain, found, known: 0 } => {
                write!(f, "operator set `{domain}` version {found} is of an unknown domain")
            }
            Self::Opset { domain, found, known } => {
                let domain = if domain.is_empty() { "ai.onnx" } else { domain };
                write!(f, "operator set `{domain}` has version {found}, the newest known is {known}")
            }
            Self::Unsupported { place, opset, needed } => {
                write!(f, "{place} of opset {opset} is not supported: {needed}")
            }
            Self::Node { place, message } => write!(f, "{place}: {message}"),
            Self::DependsOnData { place, what } => {
                write!(f, "{place}: {what} depends on data; if inputs decide it, give their values")
            }
            Self::Unbound(symbols) => {
                f.write_str("dimensions without a size:")?;
                for (index, unbound) in symbols.iter().enumerate() {
                    let separator = if index == 0 { " " } else { "; " };
                    write!(f, "{separator}`{}` in {}", unbound.symbol, unbound.places.join(", "))?;
                }
                f.write_str(" (bind each symbol to a number, or give the shapes of these inputs)")
            }
            Self::Binding(message) => f.write_str(message),
            Self::Weight { name, message } => write!(f, "weight `{name}`: {message}"),
        }
    }
}

impl std::error::Error for ImportError {}
