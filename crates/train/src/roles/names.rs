//! Names that exporters make for what they compute.

/// The functions after whose results the exporter of `torch.export` names what it computed, such as
/// `unsqueeze_14` or `_to_copy`: those that only move elements.
const MOVING: [&str; 21] = [
    "alias",
    "as_strided",
    "clone",
    "contiguous",
    "detach",
    "expand",
    "flatten",
    "movedim",
    "permute",
    "reshape",
    "select",
    "slice",
    "split",
    "squeeze",
    "t",
    "to",
    "transpose",
    "unsafe_view",
    "unsqueeze",
    "view",
    "_to_copy",
];

/// Those that compute.
const COMPUTING: [&str; 67] = [
    "abs",
    "add",
    "arange",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bmm",
    "cat",
    "ceil",
    "clamp",
    "constant",
    "constant_pad_nd",
    "cos",
    "cumsum",
    "diagonal",
    "div",
    "embedding",
    "empty",
    "eq",
    "exp",
    "expm1",
    "eye",
    "fill",
    "floor",
    "floor_divide",
    "full",
    "full_like",
    "gather",
    "ge",
    "gt",
    "index",
    "index_select",
    "le",
    "lift_fresh_copy",
    "linspace",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "lt",
    "masked_fill",
    "matmul",
    "maximum",
    "mean",
    "minimum",
    "mm",
    "mul",
    "ne",
    "neg",
    "new_zeros",
    "ones",
    "ones_like",
    "pow",
    "reciprocal",
    "repeat",
    "rsqrt",
    "scalar_tensor",
    "scalar_tensor_default",
    "sigmoid",
    "sin",
    "softplus",
    "sqrt",
    "stack",
    "sub",
    "sum",
    "tanh",
];

/// More of these.
const MORE: [&str; 12] = [
    "tril",
    "triu",
    "where",
    "zeros",
    "zeros_like",
    "rsub",
    "repeat_interleave",
    "_tensor_constant",
    "lifted_tensor",
    "tile",
    "val",
    "unbind",
];

/// What names begin with that other tools make.
const BEGINNINGS: [&str; 8] =
    ["onnx::", "ortshared_", "const_fold_opt_", "constant_", "const_", "_tensor_constant", "/", "p2o."];

/// What the last part of a path is where a graph, and no module, has the constant: operands of operators.
const OPERANDS: [&str; 4] = ["const", "constant", "x", "y"];

/// What modules call the buffers that they keep beside their parameters.
const BUFFERS: [&str; 15] = [
    "attn_mask",
    "attention_mask",
    "causal_mask",
    "cos_cache",
    "cos_cached",
    "e_score_correction_bias",
    "eps",
    "epsilon",
    "inv_freq",
    "masked_bias",
    "original_inv_freq",
    "running_mean",
    "running_var",
    "sin_cache",
    "sin_cached",
];

/// Whether an exporter made a name, rather than a module.
pub(super) fn is_made(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let last = lower.rsplit('/').next().unwrap_or(&lower).trim_end_matches(":0");
    let last = last.trim_end_matches(|it: char| it.is_ascii_digit()).trim_end_matches('_');
    let stem = stem(name);
    // A number is all that some exporters call a value; a module's parameters have letters.
    name.chars().all(|it| it.is_ascii_digit())
        || name.ends_with("_output_0")
        || name.contains("constants/")
        || (name.contains('/') || last.starts_with("const")) && OPERANDS.contains(&last)
        || BEGINNINGS.iter().any(|beginning| lower.starts_with(beginning))
        || !name.contains('.') && [&MOVING[..], &COMPUTING, &MORE].iter().any(|it| it.contains(&stem))
}

/// Whether the last part of a name is what modules call a buffer.
pub(super) fn is_buffer(name: &str) -> bool {
    let last = name.rsplit(['.', '/']).next().unwrap_or(name);
    BUFFERS.contains(&last)
}

/// Whether a name says that elements were only moved, or does not say what was done.
pub(super) fn is_moved(name: &str) -> bool {
    name.starts_with("onnx::") || MOVING.contains(&stem(name))
}

/// Whether a name is that of a sum.
pub(super) fn is_sum(name: &str) -> bool {
    stem(name) == "add"
}

/// A name without the number at its end.
fn stem(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((stem, number)) if !number.is_empty() && number.chars().all(|it| it.is_ascii_digit()) => stem,
        _ => name,
    }
}
