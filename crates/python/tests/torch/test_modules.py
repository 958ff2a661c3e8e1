"""Modules of PyTorch are planned: their graphs have the names of parameters and none of their numbers."""

import re
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import torch
from torch import nn

import shardloom


class Layer(nn.Module):
    """Attention and a gated unit, as decoders have them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.qkv = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both, with what they are given added."""
        if self.training:
            raise RuntimeError("dropout would be exported")
        batch, length, _ = x.shape
        q, k, v = (it.view(batch, length, 4, 16).transpose(1, 2) for it in self.qkv(self.norm(x)).split(64, dim=-1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(batch, length, 64)))
        return x + self.down(nn.functional.gelu(self.up(x)))


class Decoder(nn.Module):
    """Tokens to logits; the embedding is used again for these."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.register_buffer("scale", torch.full((64,), 0.5))

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        """Logits."""
        x = self.embed(tokens) * self.scale
        for layer in self.layers:
            x = layer(x)
        return {"logits": x @ self.embed.weight.T}


def on_meta() -> Decoder:
    with torch.device("meta"):
        return Decoder()


class Modules(unittest.TestCase):
    def planned(self, module: nn.Module, **others: object) -> shardloom.Plan:
        asked = {"machine": "h100-80g-2x", "mesh": 2, "dims": {"batch": 4, "sequence": 32}, **others}
        return shardloom.plan(module, inputs={"tokens": ("batch", "sequence")}, **asked)

    def weights(self, plan: shardloom.Plan) -> set[str]:
        text = str(plan.json()["plan"]["graph"])
        return {name for name, _ in on_meta().named_parameters() if name in text}

    def test_a_module_is_planned_with_and_without_numbers(self) -> None:
        module = Decoder()
        module.train()
        plan, other = self.planned(module), self.planned(on_meta())
        self.assertTrue(module.training and module.layers[0].dropout.training)
        self.assertEqual(plan.time_ms, other.time_ms)
        self.assertEqual(len(self.weights(plan)), len(list(module.parameters())))
        self.assertIn("attention", str(plan.explain()))
        self.assertTrue(plan.check()["accepted"])

    def test_a_module_is_trained_and_saved(self) -> None:
        plan = self.planned(on_meta(), mode="train", loss="cross-entropy:logits,labels")
        with tempfile.TemporaryDirectory() as folder:
            plan.save(Path(folder, "decoder.json"))
            del plan
            plan = shardloom.load(Path(folder, "decoder.json"))
            self.assertTrue(Path(folder, "decoder.Decoder.onnx").exists())
            said = str(plan.check())
            self.assertIn("its program is the training step of its recipe", said)
            tensors = {name for name, _ in on_meta().named_parameters()}
            self.assertEqual({it["name"] for it in plan.explain()["parameters"]["trained"]}, tensors)

    def test_what_is_one_tensor_is_trained_as_one(self) -> None:
        class Tied(nn.Module):
            """The embedding is the head, too, under another name."""

            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Embedding(100, 16)
                self.head = nn.Linear(16, 100, bias=False)
                self.head.weight = self.embed.weight

            def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
                return {"logits": self.head(self.embed(tokens))}

        with torch.device("meta"):
            on_meta = Tied()
        for module in (Tied(), on_meta):
            plan = self.planned(module, mode="train", loss="cross-entropy:logits,labels")
            self.assertEqual(len(plan.explain()["parameters"]["trained"]), 1)

    def test_sizes_may_be_those_of_tensors(self) -> None:
        tokens = torch.zeros((4, 32), dtype=torch.int64)
        plan = shardloom.plan(Decoder(), inputs={"tokens": tokens}, machine="h100-80g-2x", mesh=2)
        self.assertEqual(plan.time_ms, self.planned(Decoder()).time_ms)
        plan = shardloom.plan(
            nn.Linear(8, 4), inputs={"input": "f32[batch,8]"}, dims={"batch": 2}, machine="cpu-2x"
        )
        self.assertIn("[2,4]", str(plan.json()["plan"]["graph"]))

    def test_the_page_on_models_is_run(self) -> None:
        """Its recipe, with a small module where transformers would make one."""

        class Causal(Decoder):
            def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
                return super().forward(input_ids)

        def made(config: str, dtype: torch.dtype) -> nn.Module:
            self.assertEqual(config, "the configuration of a folder")
            return Causal().to(dtype)

        stand_in = types.ModuleType("transformers")
        stand_in.AutoConfig = types.SimpleNamespace(from_pretrained=lambda it: f"the configuration of {it}")
        stand_in.AutoModelForCausalLM = types.SimpleNamespace(from_config=made)
        page = Path(__file__).resolve().parents[4] / "docs" / "models.md"
        (block,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules, transformers=stand_in):
            block = block.replace('"plan.json"', repr(str(Path(folder, "plan.json"))))
            names: dict[str, object] = {"folder": "a folder"}
            exec(block, names)
            self.assertTrue(all(it.is_meta for it in names["model"].parameters()))
            self.assertEqual(shardloom.load(Path(folder, "plan.json")).time_ms, names["plan"].time_ms)
            self.assertEqual(len(self.weights(names["plan"])), len(list(on_meta().named_parameters())))

    def test_what_cannot_be_exported_is_said(self) -> None:
        class Branches(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x if x.sum() > 0 else -x

        for inputs in (None, {"tokens": 3}, {"tokens": "f31[3]"}):
            with self.assertRaisesRegex(shardloom.Error, "expected for each argument of `forward` its dimensions"):
                shardloom.plan(on_meta(), inputs=inputs, machine="cpu-2x")
        with self.assertRaisesRegex(shardloom.Error, "PyTorch cannot export the module `Branches`") as caught:
            shardloom.plan(Branches(), inputs={"x": "f32[4]"}, machine="cpu-2x")
        self.assertEqual(caught.exception.kind, "input")


if __name__ == "__main__":
    unittest.main()
