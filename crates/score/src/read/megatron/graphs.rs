//! What runs as graphs of kernels (CUDA graphs).
//!
//! Source: Megatron-LM, `megatron/training/arguments.py` and `megatron/core/transformer/transformer_config.py`,
//! `cuda_graph_impl` and `cuda_graph_scope`, which later is `cuda_graph_modules`.

use super::super::given::{Given, wrong};
use super::super::{Read, ReadError};

/// Sets what runs as graphs, in a model with experts or without.
pub(super) fn read(read: &mut Read, given: &mut Given, experts: bool) -> Result<(), ReadError> {
    const NAME: &str = "--cuda-graph-impl";
    let stated = given.word("cuda_graph_impl")?;
    let old = [
        (given.flag("enable_cuda_graph")?, "local"),
        (given.flag("external_cuda_graph")?, "transformer_engine"),
    ];
    let old = old.iter().find(|it| it.0 == Some(true)).map(|it| it.1);
    let mut scope = given.words("cuda_graph_scope");
    scope.extend(given.words("cuda_graph_modules"));
    // Of an enumeration in Python, as a configuration that was printed has it.
    let words: Vec<&str> = scope.iter().map(|it| it.rsplit('.').next().unwrap_or(it)).collect();
    let whole = || vec!["attn", if experts { "moe" } else { "mlp" }];
    let graphs = match stated.as_deref().or(old) {
        None | Some("none") => Vec::new(),
        Some("full_iteration") => vec!["full_iteration"],
        Some("local") if words.contains(&"full_iteration") => vec!["full_iteration"],
        // Without a scope it is that of whole layers.
        Some("local" | "transformer_engine") if words.is_empty() || words.contains(&"full") => whole(),
        Some("local" | "transformer_engine") => scoped(&words, experts)?,
        Some(other) => {
            return Err(wrong(NAME, other, "none, local, transformer_engine or full_iteration"));
        }
    };
    if graphs.is_empty() {
        return Ok(());
    }
    read.set("cuda_graph_scope", graphs)
}

/// The words of a scope that mean something to such a model.
fn scoped<'a>(words: &[&'a str], experts: bool) -> Result<Vec<&'a str>, ReadError> {
    const OF_EXPERTS: [&str; 3] = ["moe", "moe_router", "moe_preprocess"];
    let known = |it: &&&str| ["attn", "mlp", "mamba"].contains(it) || OF_EXPERTS.contains(it);
    if let Some(other) = words.iter().find(|it| !known(it)) {
        let expected = "attn, mlp, moe, moe_router, moe_preprocess, mamba or, where the implementation is local, \
                        full_iteration";
        return Err(wrong("--cuda-graph-scope", other, expected));
    }
    let means = |it: &&str| *it != "mamba" && (experts || !OF_EXPERTS.contains(it));
    Ok(words.iter().copied().filter(means).collect())
}
