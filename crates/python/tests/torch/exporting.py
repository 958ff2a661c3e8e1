"""What the tests of frameworks have in common: plans of small models, exported. The command line is `SHARDLOOM`."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

CASES = Path(__file__).resolve().parents[4] / "tests" / "cases" / "models"
DEVICES = 4
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
    "weighed": ("qwen2_moe", ["--mesh", "4", "--for", "megatron"]),
}


def command(*arguments: object) -> str:
    ran = subprocess.run([os.environ["SHARDLOOM"], *map(str, arguments)], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise AssertionError(ran.stderr)
    return ran.stdout


class Exporting(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def exported(self, of: tuple[str, list[str]], target: str) -> Path:
        """The folder of an export."""
        model, more = of
        plan, to = self.folder / "plan.json", self.folder / target
        # A file of a model keeps layers that predict further tokens, whatever it is planned for.
        written = self.folder / "model.onnx"
        command("model", "--config", CASES / model / "config.json", "--for", "loss", "-o", written, "--force")
        command(
            "plan", written, "--machine", f"h100-80g-{DEVICES}x", "--dim", "batch=4", "--dim", "sequence=16",
            "--mode", "train", "--loss", "loss", "--precision", "bf16", "--microbatches", 2, "--in-time", "never",
            "-o", plan, "--force", *more,
        )
        command("export", plan, "--to", target, "-o", to, "--force")
        return to
