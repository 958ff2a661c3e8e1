"""Configurations that are exported, taken by the frameworks themselves: Megatron-Core makes its configuration of what
Megatron-Bridge is told and applies its rules, torchtitan and PyTorch take the module and the schedule. The command line
is `SHARDLOOM`."""

import importlib.util
import json
import os
import subprocess
import tempfile
import types
import unittest
import warnings
from pathlib import Path

import torch
from torch.distributed.pipelining.schedules import _Action, get_schedule_class

with warnings.catch_warnings():
    # Of libraries that are for GPUs.
    warnings.simplefilter("ignore")
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.parallel_dims import ParallelDims

CASES = Path(__file__).resolve().parents[4] / "tests" / "cases" / "models"
DEVICES = 4
# Of `model`, what a recipe keeps beside Megatron-Core's configuration.
BESIDE = {"seq_length", "vocab_size", "share_embeddings_and_output_weights", "position_embedding_type", "rotary_percent"}
# What each export is of, and how it is planned.
PLANS = {
    "tensor": ("llama", ["--mesh", "data=2,model=2", "--for", "megatron"]),
    "stages": ("llama", ["--stages", "2", "--mesh", "2", "--schedule", "1f1b"]),
    "own schedule": ("llama", ["--stages", "2", "--mesh", "2", "--schedule", "zb-h1"]),
    "recomputed": ("mixtral", ["--mesh", "4", "--for", "megatron", "--recompute", "selective"]),
    "latent": ("deepseek_v3", ["--mesh", "4", "--for", "megatron"]),
    "biases": ("qwen2", ["--mesh", "4", "--for", "megatron"]),
    "rotated in part": ("glm", ["--mesh", "4", "--for", "megatron"]),
    "not rotated": ("smollm3", ["--mesh", "4", "--for", "megatron"]),
    "sinks": ("gpt_oss", ["--mesh", "4", "--for", "megatron"]),
}


def command(*arguments: object) -> str:
    ran = subprocess.run([os.environ["SHARDLOOM"], *map(str, arguments)], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise AssertionError(ran.stderr)
    return ran.stdout


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


class Frameworks(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def exported(self, name: str, target: str) -> Path:
        """The folder of an export."""
        model, more = PLANS[name]
        plan, to = self.folder / "plan.json", self.folder / target
        config = CASES / model / "config.json"
        command(
            "plan", "--config", config, "--machine", f"h100-80g-{DEVICES}x", "--dim", "batch=4", "--dim", "sequence=16",
            "--mode", "train", "--loss", "loss", "--precision", "bf16", "--microbatches", 2, "--in-time", "never",
            "-o", plan, "--force", *more,
        )
        command("export", plan, "--to", target, "-o", to, "--force")
        return to

    def test_megatron_core_takes_what_bridge_is_told(self) -> None:
        for name in PLANS:
            with self.subTest(name):
                told = sections((self.exported(name, "bridge") / "bridge.yaml").read_text())
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

    def test_torchtitan_takes_its_module(self) -> None:
        for name in PLANS:
            with self.subTest(name):
                path = self.exported(name, "torchtitan") / "shardloom_torchtitan.py"
                spec = importlib.util.spec_from_file_location("shardloom_torchtitan", path)
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                config = types.SimpleNamespace(training=TrainingConfig(), parallelism=None, activation_checkpoint=None)
                config = module.configured(config)
                own = config.parallelism
                self.assertIsInstance(own, ParallelismConfig)
                dims = ParallelDims(
                    dp_replicate=own.data_parallel_replicate_degree, dp_shard=own.data_parallel_shard_degree,
                    cp=own.context_parallel_degree, tp=own.tensor_parallel_degree, pp=own.pipeline_parallel_degree,
                    ep=own.expert_parallel_degree, world_size=DEVICES,
                )
                data = dims.dp_replicate * dims.dp_shard
                training = config.training
                self.assertEqual(training.global_batch_size, 8)
                self.assertEqual(training.global_batch_size % (training.local_batch_size * data), 0)
                self.assertEqual(training.local_batch_size % own.pipeline_parallel_microbatch_size, 0)
                get_schedule_class(own.pipeline_parallel_schedule)
                if own.pipeline_parallel_degree > 1:
                    self.scheduled(own, training.local_batch_size // own.pipeline_parallel_microbatch_size)

    def scheduled(self, own: ParallelismConfig, micro_batches: int) -> None:
        """Stages have all modules, and what a schedule does is read by PyTorch: each micro-batch once in each stage."""
        parts = own.module_fqns_per_model_part
        self.assertEqual([parts[0][0], *parts[-1][-2:]], ["tok_embeddings", "norm", "lm_head"])
        if not own.pipeline_parallel_schedule_csv:
            return
        lines = Path(own.pipeline_parallel_schedule_csv).read_text().splitlines()
        self.assertEqual(len(lines), own.pipeline_parallel_degree)
        actions = [_Action.from_str(word) for line in lines for word in line.split(",")]
        forward = sorted((it.stage_index, it.microbatch_index) for it in actions if it.computation_type.name == "FORWARD")
        self.assertEqual(forward, [(stage, batch) for stage in range(len(parts)) for batch in range(micro_batches)])


if __name__ == "__main__":
    unittest.main()
