"""Steps of training by PyTorch: the model in modules, as people write it.

Arguments: the device, the kind of model, `eager` or `compiled`, steps before those that count and that count,
the batch, the length of a sequence, and the sizes of the model as `name=size`. The first line that it prints is
what it ran on and how many parameters the model has; each other one is what a step took (seconds) and its loss.
"""

import json, sys, time
import torch
from torch import nn
from torch.nn import functional as F

device, kind, manner = sys.argv[1:4]
before, count, batch, sequence = map(int, sys.argv[4:8])
sizes = {name: int(size) for name, size in (it.split("=") for it in sys.argv[8:])}
layers, hidden, heads, vocabulary = (sizes[it] for it in ("layers", "hidden", "heads", "vocabulary"))
if device == "cuda" and not torch.cuda.is_available():
    sys.exit("torch is there, and sees no GPU")


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.taken, self.given = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x, angles):
        b, s, _ = x.shape
        q, k, v = (it.view(b, s, heads, -1).transpose(1, 2) for it in self.taken(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.given(y.transpose(1, 2).reshape(b, s, hidden))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x)), approximate="tanh"))


def turned(x, angles):
    cos, sin = angles
    low, high = x.chunk(2, -1)
    return (x * cos + torch.cat((-high, low), -1) * sin).to(x.dtype)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.groups, units = sizes["groups"], sizes["units"]
        size = hidden // heads
        self.norms = nn.ModuleList([nn.RMSNorm(hidden, 1e-5), nn.RMSNorm(hidden, 1e-5)])
        self.q, self.given = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(hidden, self.groups * size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(hidden, units, bias=False) for _ in range(2))
        self.down = nn.Linear(units, hidden, bias=False)

    def forward(self, x, angles):
        b, s, _ = x.shape
        h = self.norms[0](x)
        q, k, v = (
            it(h).view(b, s, count, -1).transpose(1, 2)
            for it, count in ((self.q, heads), (self.k, self.groups), (self.v, self.groups))
        )
        q, k = turned(q, angles), turned(k, angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.given(y.transpose(1, 2).reshape(b, s, hidden))
        h = self.norms[1](x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        llama = kind == "llama"
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.places = None if llama else nn.Embedding(sizes["positions"], hidden)
        self.blocks = nn.ModuleList((Llama if llama else Gpt2)() for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, 1e-5) if llama else nn.LayerNorm(hidden)
        half = hidden // heads // 2
        turns = 500000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(sequence, dtype=torch.float64)[:, None] * turns
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        for it in self.modules():
            if isinstance(it, (nn.Linear, nn.Embedding)):
                nn.init.normal_(it.weight, std=0.02)

    def forward(self, ids, labels):
        x = self.tokens(ids)
        if self.places is not None:
            x = x + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, vocabulary), labels.view(-1))


def settled():
    if device == "cuda":
        torch.cuda.synchronize()


torch.manual_seed(0)
model = Model().to(device)
parameters = list(model.parameters())
# Vectors do not decay, as in our recipe.
groups = [
    {"params": [it for it in parameters if it.dim() > 1], "weight_decay": 0.1},
    {"params": [it for it in parameters if it.dim() <= 1], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
run = torch.compile(model) if manner == "compiled" else model
ids = torch.randint(vocabulary, (batch, sequence), device=device)
labels = torch.randint(vocabulary, (batch, sequence), device=device)
name = torch.cuda.get_device_name() if device == "cuda" else device
elements = sum(it.numel() for it in parameters)
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "on": name, "parameters": elements}))
for step in range(before + count):
    settled()
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = run(ids, labels)
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    settled()
    seconds = time.perf_counter() - start
    if step >= before:
        print(json.dumps({"seconds": seconds, "loss": loss.item()}))
