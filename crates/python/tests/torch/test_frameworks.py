"""What is exported for Megatron-Bridge, taken by Megatron-Core: it makes its configuration of that and applies its
rules."""

import json
import unittest
import warnings

import torch
from exporting import PLANS, Exporting

with warnings.catch_warnings():
    # Of libraries that are for GPUs.
    warnings.simplefilter("ignore")
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig

# Of `model`, what a recipe keeps beside Megatron-Core's configuration.
BESIDE = {
    "seq_length", "vocab_size", "share_embeddings_and_output_weights", "position_embedding_type", "rotary_percent",
    "rotary_base", "rope_scaling", "rope_scaling_factor",
}  # fmt: skip


def sections(text: str) -> dict[str, dict[str, object]]:
    """The sections of YAML as it is exported: two levels, values that are JSON or words."""
    found: dict[str, dict[str, object]] = {}
    inside: dict[str, object] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(": ")
        if line.startswith("#"):
            continue
        if line.endswith(":"):
            inside = found.setdefault(line[:-1], {})
            continue
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError:
            parsed = value.strip("[]").split(", ") if value.startswith("[") else value
        (inside if line.startswith(" ") else found.setdefault("", {}))[key] = parsed
    return found


class MegatronCore(Exporting):
    def test_megatron_core_takes_what_bridge_is_told(self) -> None:
        for name in PLANS:
            with self.subTest(name):
                told = sections((self.exported(PLANS[name], "bridge") / "bridge.yaml").read_text())
                keys = {key: value for key, value in told["model"].items() if key not in BESIDE}
                keys.update(bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16)
                kind = MLATransformerConfig if keys.get("multi_latent_attention") else TransformerConfig
                made = kind(**keys)
                stages = made.pipeline_model_parallel_size * (made.virtual_pipeline_model_parallel_size or 1)
                if stages > 1:
                    layout = made.pipeline_model_parallel_layout.layout
                    parts = [part for rank in layout for part in rank]
                    self.assertEqual(len(parts), stages)
                    layers = sum(str(layer).endswith("decoder") for part in parts for layer in part)
                    self.assertEqual(layers, made.num_layers)


if __name__ == "__main__":
    unittest.main()
