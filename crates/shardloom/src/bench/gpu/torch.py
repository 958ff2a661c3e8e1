import sys, time
import torch
from torch import nn
from torch.nn import functional as F

manner = sys.argv[1]
layers, hidden, heads, vocabulary, positions, batch, sequence, before, count = map(int, sys.argv[2:])
if not torch.cuda.is_available():
    sys.exit("torch is there, and sees no GPU")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.taken, self.given = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (it.view(b, s, heads, -1).transpose(1, 2) for it in self.taken(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.given(y.transpose(1, 2).reshape(b, s, hidden))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, vocabulary), labels.view(-1))


torch.manual_seed(0)
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
run = torch.compile(model) if manner == "compiled" else model
ids = torch.randint(vocabulary, (batch, sequence), device="cuda")
labels = torch.randint(vocabulary, (batch, sequence), device="cuda")
for step in range(before + count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = run(ids, labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    torch.cuda.synchronize()
    if step >= before:
        print(time.perf_counter() - start)
