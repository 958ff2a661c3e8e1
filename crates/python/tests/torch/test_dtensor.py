"""Placements that are exported, applied by PyTorch on four processes of this host: a step has the loss and the
gradients that it has on one device, and that Shardloom's own programs of the plan have. The command line is
`SHARDLOOM`."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

HIDDEN, UNITS, LAYERS, HEADS, KEYS, VOCABULARY, SIZE, EXPERTS = 32, 48, 2, 4, 2, 64, 8, 4
BATCH, SEQUENCE, RANKS = 4, 8, 4

# Products split by columns and rows, as Megatron-LM has them.
COLUMNS, ROWS = "[data,-,-,model]", "[data,-,model,-]"
ATTENTION = {f"*.{name}_proj": "[data,-,-,model,-]" for name in "qkv"} | {"*.o_proj": "[data,model,-,-,-]"}


class Norm(nn.Module):
    """A norm of the root mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(HIDDEN) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    """Causal attention with fewer heads of keys than of queries."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.o_proj = linear(HIDDEN, HEADS * SIZE), linear(HEADS * SIZE, HIDDEN)
        self.k_proj, self.v_proj = linear(HIDDEN, KEYS * SIZE), linear(HIDDEN, KEYS * SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, HEADS, SIZE).transpose(1, 2)
        k, v = (it(x).view(batch, length, KEYS, SIZE).transpose(1, 2) for it in (self.k_proj, self.v_proj))
        k, v = (it.repeat_interleave(HEADS // KEYS, dim=1) for it in (k, v))
        # DTensor does not know the kernel of CPUs for all of it.
        scores = q @ k.transpose(2, 3) * SIZE**-0.5 + torch.full((length, length), -1e9).triu(1)
        seen = functional.softmax(scores, dim=-1) @ v
        return self.o_proj(seen.transpose(1, 2).reshape(batch, length, HEADS * SIZE))


class Gated(nn.Module):
    """A gated unit."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(HIDDEN, UNITS), linear(HIDDEN, UNITS), linear(UNITS, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Mixture(nn.Module):
    """Experts, of which a router weighs all."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = linear(HIDDEN, EXPERTS), Each(HIDDEN, UNITS), Each(UNITS, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = functional.softmax(self.gate(x), dim=-1).permute(2, 0, 1).unsqueeze(-1)
        return (self.down(functional.silu(self.up(x))) * weights).sum(0)


class Each(nn.Module):
    """A linear layer of each expert."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, 1, inputs, outputs) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Layer(nn.Module):
    def __init__(self, unit: nn.Module) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()
        self.self_attn, self.mlp = Attention(), unit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Tokens to scores."""

    def __init__(self, mixture: bool) -> None:
        super().__init__()
        self.embed_tokens, self.norm = nn.Embedding(VOCABULARY, HIDDEN), Norm()
        self.layers = nn.ModuleList(Layer(Mixture() if mixture else Gated()) for _ in range(LAYERS))
        self.lm_head = linear(HIDDEN, VOCABULARY)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def model(kind: str) -> Decoder:
    torch.manual_seed(0)
    return Decoder(kind == "mixture")


def data() -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(1)
    shape = (BATCH, SEQUENCE)
    return tuple(torch.randint(0, VOCABULARY, shape, generator=numbers) for _ in range(2))


def prepare(kind: str, pins: dict[str, str], folder: Path) -> None:
    """A plan of a model, its export, and what a step of Shardloom's programs makes of the parameters."""
    folder.mkdir()
    file, plan = folder / "model.onnx", folder / "plan.json"
    tokens, labels = data()
    # Optimised graphs have other parameters than the module: they are transposed.
    torch.onnx.export(
        model(kind).eval(), (tokens,), file, input_names=["input_ids"], output_names=["logits"], dynamo=True,
        optimize=False, verbose=False,
    )  # fmt: skip
    pinned = [word for name, partition in pins.items() for word in ("--pin", f"{name}={partition}")]
    command(
        "plan", file, "-o", plan, "--machine", "cpu-4x", "--mesh", "data=2,model=2", "--in-time", "never", "--mode",
        "train", "--loss", "cross-entropy:logits,labels", "--optimizer", "sgd", *pinned,
    )  # fmt: skip
    command("export", plan, "--to", "dtensor", "-o", folder)
    # A step of a rate of 1 takes the gradient off.
    np.savez(folder / "data.npz", input_ids=tokens.numpy(), labels=labels.numpy())
    weights = folder / "weights.safetensors"
    command("train", plan, "--data", folder / "data.npz", "--steps", 1, "--lr", 1, "--weights", weights)


def loss_of(decoder: Decoder) -> torch.Tensor:
    tokens, labels = data()
    scores = decoder(tokens)
    if isinstance(scores, torch.distributed.tensor.DTensor):
        scores = scores.full_tensor()
    return functional.cross_entropy(scores.view(-1, VOCABULARY), labels.view(-1))


def rank(kind: str, folder: Path) -> None:
    """What one process does."""
    sys.path.insert(0, str(folder))
    import shardloom_dtensor
    from torch.distributed.tensor.experimental import implicit_replication

    torch.set_num_threads(1)
    placements = str(folder / "placements.json")
    mesh = shardloom_dtensor.stage_mesh(placements)
    decoder = shardloom_dtensor.distribute(model(kind), mesh, placements)
    # What the model makes itself, such as its mask, all processes have.
    with implicit_replication():
        loss = loss_of(decoder)
        loss.backward()
    names = {name.replace("parametrizations.", "").replace(".original", ""): it for name, it in decoder.named_parameters()}
    split = sorted(name for name, it in names.items() if any(placement.is_shard() for placement in it.placements))
    gradients = {name: it.grad.full_tensor() for name, it in names.items()}
    if torch.distributed.get_rank() == 0:
        torch.save({"loss": loss.item(), "gradients": gradients, "split": split}, folder / "found.pt")


def read(path: Path) -> dict[str, torch.Tensor]:
    """The arrays of a file in the form of safetensors, all of f32."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    found = {}
    for name, it in header.items():
        first, last = it["data_offsets"]
        found[name] = torch.from_numpy(np.frombuffer(content[start + first : start + last], "f4").reshape(it["shape"]).copy())
    return found


def command(*arguments: object) -> None:
    done = subprocess.run([os.environ["SHARDLOOM"], *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Models, how their products are split, and the parameters of a layer that devices have parts of.
KINDS = {
    "gated": (
        {"*.gate_proj": COLUMNS, "*.up_proj": COLUMNS, "*.down_proj": ROWS},
        ["mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"],
    ),
    # The first product has its loops in another order than the second.
    "mixture": ({"*.mlp.up": "[data,-,model,-,-]", "*.mlp.down": "[model,data,-,-,-]"}, ["mlp.up.weight", "mlp.down.weight"]),
}  # fmt: skip


class Executed(unittest.TestCase):
    """What four processes find, which do the steps of all models one after another."""

    @classmethod
    def setUpClass(cls) -> None:
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        for kind, (pins, _) in KINDS.items():
            prepare(kind, {**ATTENTION, **pins}, cls.folder / kind)
        place = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29400 + os.getpid() % 1000)}
        processes = [
            subprocess.Popen([sys.executable, __file__, str(cls.folder)], env={**os.environ, **place, "RANK": str(it)})
            for it in range(RANKS)
        ]
        ended = [it.wait(300) for it in processes]
        assert ended == [0] * RANKS, ended

    def tried(self, kind: str) -> None:
        decoder, after = model(kind), read(self.folder / kind / "weights.safetensors")
        whole = loss_of(decoder)
        whole.backward()
        found = torch.load(self.folder / kind / "found.pt")
        self.assertAlmostEqual(found["loss"], whole.item(), places=5)
        parts = [*(f"self_attn.{name}_proj.weight" for name in "qkvo"), *KINDS[kind][1]]
        self.assertEqual(found["split"], sorted(f"layers.{layer}.{it}" for layer in range(LAYERS) for it in parts))
        expected = dict(decoder.named_parameters())
        self.assertEqual(sorted(found["gradients"]), sorted(expected))
        for name, parameter in expected.items():
            gradient, before = parameter.grad, parameter.detach()
            largest = gradient.abs().max()
            self.assertLess((found["gradients"][name] - gradient).abs().max(), 1e-4 * largest, name)
            self.assertLess((before - after[name] - gradient).abs().max(), 1e-3 * largest, name)

    def test_a_llama(self) -> None:
        self.tried("gated")

    def test_experts(self) -> None:
        self.tried("mixture")


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    for each in KINDS:
        rank(each, Path(sys.argv[1]) / each)
    torch.distributed.destroy_process_group()
