"""Exports of the command line, which is `SHARDLOOM`, to JAX and Shardy, executed on eight virtual devices: a Llama of
two layers with parameters and results where the plan has them computes what it does on one device, and XLA exchanges
what the plan does."""

import importlib.util
import json
import os
import re
import subprocess
import tempfile
import unittest
from collections import Counter
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib.mlir import ir  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402

COMMAND = os.environ["SHARDLOOM"]
HIDDEN, UNITS, LAYERS, HEADS, KEYS, VOCABULARY, SIZE = 64, 128, 2, 8, 4, 256, 8
BATCH, SEQUENCE, EPSILON = 4, 16, 1e-5
CONFIG = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": UNITS, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "vocab_size": VOCABULARY, "rms_norm_eps": EPSILON,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "max_position_embeddings": 128,
    "torch_dtype": "float32",
}  # fmt: skip
COLUMNS, ROWS = "[data,-,-,model]", "[data,-,model,-]"
# Products split by columns and rows, as Megatron-LM has them.
PINS = {
    "*.self_attn.q_proj": "[data,-,-,model,-]", "*.self_attn.k_proj": "[data,-,-,model,-]",
    "*.self_attn.v_proj": "[data,-,-,model,-]", "*.self_attn.o_proj": "[data,model,-,-,-]",
    "*.mlp.gate_proj": COLUMNS, "*.mlp.up_proj": COLUMNS, "*.mlp.down_proj": ROWS,
}  # fmt: skip


def command(*arguments: object) -> dict:
    """What the command line says."""
    done = subprocess.run([COMMAND, *map(str, arguments), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def shapes() -> dict:
    """The parameters of the model, as PyTorch stores them."""
    found = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    found["lm_head.weight"] = (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        of = f"model.layers.{layer}."
        for name, rows, columns in [
            ("self_attn.q_proj", HEADS * SIZE, HIDDEN), ("self_attn.k_proj", KEYS * SIZE, HIDDEN),
            ("self_attn.v_proj", KEYS * SIZE, HIDDEN), ("self_attn.o_proj", HIDDEN, HEADS * SIZE),
            ("mlp.gate_proj", UNITS, HIDDEN), ("mlp.up_proj", UNITS, HIDDEN), ("mlp.down_proj", HIDDEN, UNITS),
        ]:  # fmt: skip
            found[f"{of}{name}.weight"] = (rows, columns)
        found[f"{of}input_layernorm.weight"] = found[f"{of}post_attention_layernorm.weight"] = (HIDDEN,)
    return found


def norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPSILON) * scale


def rotated(x):
    angles = jnp.arange(SEQUENCE)[:, None] * 10000.0 ** (-jnp.arange(0, SIZE, 2) / SIZE)
    cos, sin = (jnp.concatenate([it, it], axis=-1)[None, :, None, :] for it in (jnp.cos(angles), jnp.sin(angles)))
    left, right = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate([-right, left], axis=-1) * sin


def llama(weights, tokens, lies):
    """Scores of tokens. What a module makes lies as `lies` says, by the module's name."""
    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        of = f"model.layers.{layer}."
        by = lambda name, x: lies(of + name, x @ weights[f"{of}{name}.weight"].T)  # noqa: E731, B023
        y = norm(x, weights[f"{of}input_layernorm.weight"])
        heads = lambda name, count: by(name, y).reshape(BATCH, SEQUENCE, count, SIZE)  # noqa: E731, B023
        q, k = rotated(heads("self_attn.q_proj", HEADS)), rotated(heads("self_attn.k_proj", KEYS))
        k, v = (jnp.repeat(it, HEADS // KEYS, axis=2) for it in (k, heads("self_attn.v_proj", KEYS)))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(SIZE)
        scores = jnp.where(jnp.tril(jnp.ones((SEQUENCE, SEQUENCE), bool)), scores, -jnp.inf)
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(BATCH, SEQUENCE, HEADS * SIZE)
        x = x + by("self_attn.o_proj", y)
        y = norm(x, weights[f"{of}post_attention_layernorm.weight"])
        y = jax.nn.silu(by("mlp.gate_proj", y)) * by("mlp.up_proj", y)
        x = x + by("mlp.down_proj", y)
    return lies("lm_head", norm(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T)


class Executed(unittest.TestCase):
    """A plan of inference on two data parallel groups of four tensor parallel devices."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        config, cls.plan = cls.folder / "config.json", cls.folder / "plan.json"
        config.write_text(json.dumps(CONFIG))
        pins = [word for name, partition in PINS.items() for word in ("--pin", f"{name}={partition}")]
        command(
            "plan", "--config", config, "-o", cls.plan, "--machine", "h100-80g-8x", "--in-time", "never", "--dim",
            f"batch={BATCH}", "--dim", f"sequence={SEQUENCE}", "--mesh", "data=2,model=4", *pins,
        )  # fmt: skip
        for target in ("jax", "shardy"):
            command("export", cls.plan, "--to", target, "-o", cls.folder)
        spec = importlib.util.spec_from_file_location("shardloom_jax", cls.folder / "shardloom_jax.py")
        cls.exported = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.exported)
        numbers = np.random.default_rng(0)
        cls.weights = {name: numbers.normal(0, 0.1, shape).astype("f") for name, shape in shapes().items()}
        cls.tokens = numbers.integers(0, VOCABULARY, (BATCH, SEQUENCE))

    def lies(self, mesh):
        """What says of a module's results where they lie: as what the plan's operation of the module makes."""
        values = self.exported.VALUES[0]

        def lies(module, x):
            found = [name for name in values if name.startswith(f"{module}.")]
            self.assertTrue(found, module)
            rank = [name for name in found if len(values[name]) <= x.ndim]
            # Heads are a dimension of their own in the plan, and a part of one here.
            return self.exported.constrained(x, rank[-1], mesh) if "attn" not in module else x

        return lies

    def sharded(self):
        """The program as it is compiled for all devices, and its results."""
        mesh = self.exported.mesh()
        shardings = self.exported.shardings(mesh)
        self.assertEqual(sorted(shardings), sorted(self.weights))
        tokens = NamedSharding(mesh, next(iter(self.exported.INPUTS[0].values())))
        program = jax.jit(lambda weights, tokens: llama(weights, tokens, self.lies(mesh)), in_shardings=(shardings, tokens))
        lowered = program.lower(self.weights, self.tokens)
        return lowered, np.asarray(program(self.weights, self.tokens))

    def test_devices_compute_what_one_does_and_exchange_what_the_plan_does(self) -> None:
        lowered, found = self.sharded()
        whole = np.asarray(jax.jit(lambda weights, tokens: llama(weights, tokens, lambda _, x: x))(self.weights, self.tokens))
        self.assertLess(np.abs(found - whole).max(), 1e-4 * np.abs(whole).max())
        text = lowered.compile().as_text()
        exchanged = Counter(re.findall(r" (all-reduce|all-gather|reduce-scatter|all-to-all)(?:-start)?\(", text))
        explained = command("explain", self.plan)
        planned = {it["move"]: it["count"] for it in explained["communication"]}
        self.assertEqual(exchanged, Counter(planned))

    def test_shardy_reads_its_module_and_says_what_jax_does(self) -> None:
        lowered, _ = self.sharded()
        with mlir.make_ir_context() as context:
            module = ir.Module.parse((self.folder / "shardy.mlir").read_text(), context)
            module.operation.verify()
            text = module.operation.get_asm(enable_debug_info=True, use_local_scope=True)
        form = re.compile(r"tensor<([^>]*)> \{sdy\.sharding = #sdy\.sharding<@\w+, \[([^\]]*)\]>\} loc\(\"([^\"]+)\"\)")
        parameters = text[text.index("@stage0_parameters") : text.index("@stage0_optimizer")]
        ours = {name: (type_, dims) for type_, dims, name in form.findall(parameters)}
        self.assertEqual(sorted(ours), sorted(self.weights))
        main = lowered.as_text()
        main = main[main.index("@main") : main.index("->")]
        theirs = re.findall(r"tensor<([^>]*)> \{[^{}]*sdy\.sharding = #sdy\.sharding<@\w+, \[([^\]]*)\]>", main)
        # JAX has parameters by name, and then the tokens.
        self.assertEqual([ours[name] for name in sorted(ours)], theirs[: len(ours)])


if __name__ == "__main__":
    unittest.main()
