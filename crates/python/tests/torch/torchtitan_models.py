"""The decoders that torchtitan has, as a table: `python torchtitan_models.py` prints what `crates/export/src/torchtitan/models.txt`
has to be."""

import importlib
from typing import Any

from torchtitan.models.common.feed_forward import SigmoidGatedFeedForward
from torchtitan.models.deepseek_v3.mtp import MTPDecoder
from torchtitan.models.gpt_oss.moe import GptOssGroupedExperts

# Those whose layers are of kinds that decoders of `shardloom model` have. The others see pictures, or have layers of
# their own.
REGISTRIES = ("llama3", "qwen3", "gpt_oss", "deepseek_v3")
HEAD = """\
# The decoders of torchtitan 0.3.0: crates/python/tests/torch/torchtitan_models.py makes this table of the package.
# registry, flavor, layers, hidden size, heads, heads of keys, hidden units, vocabulary, what they have
"""


def traits(model: Any) -> list[str]:
    """What a model has that not every decoder has, by the names of `model/traits.rs`."""
    layers, attention = model.layers, model.first_attention
    moe = next((layer.moe for layer in layers if layer.moe is not None), None)
    projections = getattr(attention, "qkv_linear", None)
    joined = getattr(projections, "wqkv", None) or getattr(projections, "wq", None)
    found = {
        "query-norms": getattr(attention, "qk_norm", None) is not None,
        "biases": bool(attention.wo.bias),
        "query-biases": bool(joined and joined.bias) and not attention.wo.bias,
        "latent": hasattr(attention, "kv_lora_rank"),
        "windows": any(getattr(layer.attention, "sliding_window_size", None) for layer in layers),
        "sinks": "sinks" in (attention.param_init or {}),
        "experts": moe is not None,
        "dense": moe is not None and any(layer.moe is None for layer in layers),
        "tied": model.enable_weight_tying,
        "further": isinstance(model, MTPDecoder.Config),
    }
    if moe is not None:
        shared = getattr(moe, "shared_experts", None)
        found["shared"] = shared is not None
        found["shared-gate"] = isinstance(shared, SigmoidGatedFeedForward.Config)
        found["router-bias"] = moe.router.score_func == "sigmoid"
        found["bounded-experts"] = isinstance(moe.routed_experts.inner_experts, GptOssGroupedExperts.Config)
    return sorted(name for name, has in found.items() if has)


def row(registry: str, flavor: str, model: Any) -> str:
    attention, first = model.first_attention, model.layers[0]
    moe = next((layer.moe for layer in model.layers if layer.moe is not None), None)
    units = first.feed_forward.w1.out_features if first.feed_forward else moe.routed_experts.inner_experts.hidden_dim
    sizes = [
        len(model.layers), model.dim, attention.n_heads, getattr(attention, "n_kv_heads", None) or attention.n_heads,
        units, model.vocab_size,
    ]
    return " ".join([registry, flavor, *map(str, sizes), ",".join(traits(model)) or "-"])


def table() -> str:
    """A row for each flavor of each registry."""
    rows = []
    for registry in REGISTRIES:
        module = importlib.import_module(f"torchtitan.models.{registry}")
        (flavors,) = (value for name, value in vars(module).items() if name.endswith("_configs") and isinstance(value, dict))
        rows.extend(row(registry, flavor, module.model_registry(flavor).model) for flavor in flavors)
    return HEAD + "".join(f"{it}\n" for it in rows)


if __name__ == "__main__":
    print(table(), end="")
