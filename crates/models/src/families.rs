//! The decoder that a configuration says, by the type of its model.

mod common; // what most families have
mod plain; // Llama, Mistral, Qwen, Phi-3, GLM, Granite, OLMo 2
mod gemma; // Gemma
mod older; // GPT-2, GPT-NeoX, Phi
mod recurrent; // Mamba-2 and Qwen3-Next
mod mixture; // Mixtral, Qwen, GLM 4.5
mod deepseek; // DeepSeek V2, V3 and Kimi K2
mod gpt_oss; // gpt-oss

use planner_ir::did_you_mean;

use crate::config::{Config, ConfigError, Result};
use crate::decoder::Decoder;
use crate::onnx::Element;

/// The types that are known.
const KNOWN: [&str; 26] = [
    "deepseek_v2",
    "deepseek_v3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm",
    "glm4",
    "glm4_moe",
    "gpt2",
    "gpt_neox",
    "gpt_oss",
    "granite",
    "kimi_k2",
    "llama",
    "mamba2",
    "mistral",
    "mixtral",
    "olmo2",
    "phi",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "smollm3",
];

/// Types that are understood and not written, and why.
const NOT_WRITTEN: [(&str, &str); 2] = [
    ("mamba", "whose scan has other projections than that of `mamba2`"),
    ("gemma3", "whose images are not written: take its `text_config`, with `model_type` `gemma3_text`"),
];

/// The decoder, and in words what of the configuration is not in it.
pub(crate) fn decoder(config: &Config) -> Result<(Decoder, Vec<String>)> {
    let Some(kind) = config.text_if("model_type")? else {
        return Err(config.missing("model_type", "a type such as `llama`"));
    };
    let mut left_out = Vec::new();
    let decoder = match kind.as_str() {
        "llama" | "mistral" | "qwen2" | "qwen3" | "phi3" | "glm" | "glm4" | "granite" | "olmo2"
        | "smollm3" => plain::decoder(config, &kind)?,
        "gemma" | "gemma2" | "gemma3_text" => gemma::decoder(config, &kind)?,
        "gpt2" => older::gpt2(config)?,
        "gpt_neox" => older::neox(config)?,
        "gpt_oss" => gpt_oss::decoder(config)?,
        "phi" => older::phi(config)?,
        "mixtral" | "qwen2_moe" | "qwen3_moe" | "glm4_moe" => mixture::decoder(config, &kind)?,
        "mamba2" => recurrent::mamba2(config)?,
        "qwen3_next" => recurrent::qwen3_next(config, &kind)?,
        "deepseek_v2" | "deepseek_v3" | "kimi_k2" => deepseek::decoder(config, &kind)?,
        _ => return Err(unknown(&kind)),
    };
    if config.value("quantization_config").is_some() {
        left_out.push(
            "`quantization_config`: weights are those of the model before it was quantised, without scales"
                .to_owned(),
        );
    }
    config.done(&kind)?;
    Ok((decoder, left_out))
}

fn unknown(kind: &str) -> ConfigError {
    let why = NOT_WRITTEN.iter().find(|it| it.0 == kind).map(|it| format!(", {}", it.1)).unwrap_or_default();
    ConfigError::Wrong(
        "model_type".to_owned(),
        format!("\"{kind}\"{why}"),
        format!("one of {}{}", KNOWN.join(", "), did_you_mean(kind, KNOWN)),
    )
}

/// The numbers of weights.
pub(crate) fn element(config: &Config) -> Result<Element> {
    let older = config.text_if("torch_dtype")?;
    let (key, said) = match config.text_if("dtype")? {
        Some(said) => ("dtype", Some(said)),
        None => ("torch_dtype", older),
    };
    match said.as_deref() {
        None | Some("float32") => Ok(Element::F32),
        Some("bfloat16") => Ok(Element::Bf16),
        Some("float16") => Ok(Element::F16),
        Some(_) => Err(config.wrong(key, "float32, bfloat16 or float16")),
    }
}
