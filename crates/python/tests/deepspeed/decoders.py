"""Small decoders that are trained, their configurations, their data and their loss."""

import sys
import types
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))
from test_dtensor import linear  # noqa: E402

HIDDEN, UNITS, LAYERS, HEADS, KEYS, VOCABULARY, SIZE, EXPERTS, CHOSEN = 16, 24, 2, 4, 2, 32, 4, 4, 2
EXAMPLES, SEQUENCE = 16, 8
LLAMA = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": UNITS, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "vocab_size": VOCABULARY, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 1e4, "mlp_bias": True, "tie_word_embeddings": False,
    "max_position_embeddings": SEQUENCE,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": EXPERTS, "num_experts_per_tok": CHOSEN}
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": SIZE}
PHI3 = {**LLAMA, "model_type": "phi3", "original_max_position_embeddings": SEQUENCE}
# Keys of a part that each head has, from what all share, and of a rotated part that all share.
RANK, APART = 6, 2
DEEPSEEK = {
    **LLAMA, "model_type": "deepseek_v2", "num_key_value_heads": HEADS, "q_lora_rank": None, "kv_lora_rank": RANK,
    "qk_nope_head_dim": APART, "qk_rope_head_dim": SIZE, "v_head_dim": SIZE, "first_k_dense_replace": LAYERS,
    "n_routed_experts": EXPERTS, "num_experts_per_tok": CHOSEN, "moe_intermediate_size": UNITS,
    "routed_scaling_factor": 1.0,
}  # fmt: skip
for _config in (MIXTRAL, QWEN3, PHI3, DEEPSEEK):
    del _config["mlp_bias"]


class Norm(nn.Module):
    """A norm of the root mean square."""

    def __init__(self, size: int = HIDDEN) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of `[batch, sequence, heads, size]`."""
    k, v = (it.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for it in (k, v))
    seen = functional.scaled_dot_product_attention(*(it.transpose(1, 2) for it in (q, k, v)), is_causal=True)
    return seen.transpose(1, 2)


def rotated(x: torch.Tensor, first: int, *, pairs: bool = False) -> torch.Tensor:
    """What is at positions from the first on, each half of a head turned with the other, or neighbours."""
    angles = torch.arange(first, first + x.shape[1])[:, None] * 1e4 ** (-torch.arange(0, SIZE, 2) / SIZE)
    cos, sin = (it[:, None].to(x.dtype) for it in (angles.cos(), angles.sin()))
    a, b = (x[..., 0::2], x[..., 1::2]) if pairs else x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    """Attention of the heads that are there, from a position on."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.o_proj = linear(HEADS * SIZE, HIDDEN)
        if kind == "phi3":
            self.qkv_proj = linear(HIDDEN, (HEADS + 2 * KEYS) * SIZE)
        else:
            self.q_proj = linear(HIDDEN, HEADS * SIZE)
            self.k_proj, self.v_proj = linear(HIDDEN, KEYS * SIZE), linear(HIDDEN, KEYS * SIZE)
        if kind == "qwen3":
            self.q_norm, self.k_norm = Norm(SIZE), Norm(SIZE)
        self.attend, self.first, self.kind = attend, 0, kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "phi3":
            made = self.qkv_proj(x).split([HEADS * SIZE, KEYS * SIZE, KEYS * SIZE], dim=-1)
        else:
            made = [it(x) for it in (self.q_proj, self.k_proj, self.v_proj)]
        q, k, v = (it.unflatten(-1, (-1, SIZE)) for it in made)
        if self.kind == "qwen3":
            q, k = self.q_norm(q), self.k_norm(k)
        return self.o_proj(self.attend(rotated(q, self.first), rotated(k, self.first), v).flatten(2))


class Latent(nn.Module):
    """Attention whose keys and values come from a few numbers, and whose rotated keys all heads share."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.o_proj = linear(HIDDEN, HEADS * (APART + SIZE)), linear(HEADS * SIZE, HIDDEN)
        self.kv_a_proj_with_mqa, self.kv_a_layernorm = linear(HIDDEN, RANK + SIZE), Norm(RANK)
        self.kv_b_proj = linear(RANK, HEADS * (APART + SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        apart, turned = self.q_proj(x).unflatten(-1, (-1, APART + SIZE)).split([APART, SIZE], dim=-1)
        few, key = self.kv_a_proj_with_mqa(x).split([RANK, SIZE], dim=-1)
        made = self.kv_b_proj(self.kv_a_layernorm(few)).unflatten(-1, (-1, APART + SIZE))
        shared = rotated(key.unsqueeze(2), 0, pairs=True).expand(-1, -1, made.shape[2], -1)
        q = torch.cat([apart, rotated(turned, 0, pairs=True)], dim=-1)
        k = torch.cat([made[..., :APART], shared], dim=-1)
        return self.o_proj(attend(q, k, made[..., APART:]).flatten(2))


class Gated(nn.Module):
    """A gated unit; the gate and the way up may be one product."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        biases = config.get("mlp_bias", False)
        self.is_packed = config["model_type"] == "phi3"
        if self.is_packed:
            self.gate_up_proj = nn.Linear(HIDDEN, 2 * UNITS, bias=biases)
        else:
            self.gate_proj = nn.Linear(HIDDEN, UNITS, bias=biases)
            self.up_proj = nn.Linear(HIDDEN, UNITS, bias=biases)
        self.down_proj = nn.Linear(UNITS, HIDDEN, bias=biases)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1) if self.is_packed else (self.gate_proj(x), self.up_proj(x))
        return self.down_proj(functional.silu(gate) * up)


class Experts(nn.Module):
    """Gated units, all in one tensor of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(EXPERTS, 2 * UNITS, HIDDEN) * 0.2)
        self.down_proj = nn.Parameter(torch.randn(EXPERTS, HIDDEN, UNITS) * 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = (x @ self.gate_up_proj.transpose(1, 2)).chunk(2, dim=-1)
        return (functional.silu(gate) * up) @ self.down_proj.transpose(1, 2)


class Mixture(nn.Module):
    """Experts, of which each token has some."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = linear(HIDDEN, EXPERTS), Experts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        scores, chosen = functional.softmax(self.gate(tokens), dim=-1).topk(CHOSEN)
        weights = torch.zeros(len(tokens), EXPERTS).scatter(1, chosen, scores / scores.sum(-1, keepdim=True))
        return (self.experts(tokens) * weights.T[..., None]).sum(0).view_as(x)


class Layer(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()
        self.self_attn = Latent() if config is DEEPSEEK else Attention(config["model_type"])
        self.mlp = Mixture() if config is MIXTRAL else Gated(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Tokens to logits, under the names of checkpoints."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = types.SimpleNamespace(**config)
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(VOCABULARY, HIDDEN),
            "layers": nn.ModuleList(Layer(config) for _ in range(LAYERS)),
            "norm": Norm(),
        })  # fmt: skip
        self.lm_head = linear(HIDDEN, VOCABULARY)

    def in_turn(self) -> dict[str, nn.Module]:
        """What is done one after another, by name."""
        layers = {f"model.layers.{at}": it for at, it in enumerate(self.model["layers"])}
        first, norm = self.model["embed_tokens"], self.model["norm"]
        return {"model.embed_tokens": first, **layers, "model.norm": norm, "lm_head": self.lm_head}

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = tokens
        for it in self.in_turn().values():
            x = it(x)
        return x


def tokens() -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (EXAMPLES, SEQUENCE), generator=torch.Generator().manual_seed(1))


def after(tokens: torch.Tensor) -> torch.Tensor:
    """Each token's label, the token after; the last has none."""
    return functional.pad(tokens[:, 1:], (0, 1), value=-100)


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over the tokens of whole sequences, of which these may be a part."""
    of_each = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    return of_each / (len(labels) * (SEQUENCE - 1))
