"""transformer.safetensors: layer norm, RMS norm, attention and embedding, forward and backward;
jagged.safetensors: attention of sequences of different lengths, softmax and SiLU;
gpt.safetensors: a GPT of two layers, trained 10 steps with AdamW."""
import torch
import torch.nn.functional as F

from common import F64, Random, h, save

NORMS = {"small": (6, 5), "wide": (4, 300), "one": (3, 1)}
EPS = h(1e-5)


def norms(out, random):
    for name, (rows, n) in NORMS.items():
        x0, dy = random.normal(rows, n, scale=2.0) + 0.5, random.normal(rows, n)
        w0, b0 = random.normal(n), random.normal(n)
        x0 = x0.to(torch.float32).to(F64)
        out.update({f"norm.{name}.x": x0, f"norm.{name}.dy": dy, f"norm.{name}.w": w0,
                    f"norm.{name}.b": b0})
        for kind in ("layer", "rms"):
            x, w, b = (t.clone().requires_grad_() for t in (x0, w0, b0))
            y = F.layer_norm(x, (n,), w, b, EPS) if kind == "layer" else F.rms_norm(x, (n,), w, EPS)
            y.backward(dy)
            key = f"norm.{name}.{kind}"
            out.update({f"{key}.y": y, f"{key}.dx": x.grad, f"{key}.dw": w.grad})
            if kind == "layer":
                out[f"{key}.db"] = b.grad


ATTENTION = {  # sequences, length, heads, columns of a head, causal, scale
    "causal": (2, 12, 3, 8, True, None),
    "full": (2, 12, 3, 8, False, None),
    "long": (1, 150, 1, 5, True, None),
    "long_full": (1, 70, 2, 3, False, h(0.3)),
    "one": (3, 1, 2, 4, True, None),
}


def attention(out, random):
    """Matrices are [sequences length][heads columns], as neo's."""
    for name, (batch, length, heads, dim, causal, scale) in ATTENTION.items():
        def split(t):
            return t.reshape(batch, length, heads, dim).transpose(1, 2)

        q, k, v, dy = (random.normal(batch * length, heads * dim, scale=1.5) for _ in range(4))
        key = f"attention.{name}"
        out.update({f"{key}.q": q, f"{key}.k": k, f"{key}.v": v, f"{key}.dy": dy})
        q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
        y = F.scaled_dot_product_attention(split(q), split(k), split(v), is_causal=causal,
                                           scale=scale)
        y = y.transpose(1, 2).reshape(batch * length, heads * dim)
        y.backward(dy)
        out.update({f"{key}.y": y, f"{key}.dq": q.grad, f"{key}.dk": k.grad, f"{key}.dv": v.grad})


JAGGED = {  # lengths, heads, columns of a head, causal, scale, n of SiLU (None: softmax)
    "silu": ([0, 1, 70, 0, 6, 3], 2, 6, True, None, 70.0),
    "silu_full": ([5, 66, 1], 1, 8, False, h(-0.7), 12.0),
    "softmax": ([3, 0, 1, 68], 2, 5, True, None, None),
    "softmax_full": ([7, 65], 1, 4, False, h(0.4), None),
}


def jagged_attention(out, random):
    """Sequences one by one; matrices are [all rows][heads columns]. By SiLU: the pointwise
    attention of HSTU (arXiv 2402.17152)."""
    for name, (lengths, heads, dim, causal, scale, n) in JAGGED.items():
        def split(t):
            return t.reshape(-1, heads, dim).transpose(0, 1)

        rows = sum(lengths)
        q, k, v, dy = (random.normal(rows, heads * dim, scale=1.5) for _ in range(4))
        key = f"jagged.{name}"
        out.update({f"{key}.q": q, f"{key}.k": k, f"{key}.v": v, f"{key}.dy": dy,
                    f"{key}.offsets": torch.tensor([sum(lengths[:i])
                                                    for i in range(len(lengths) + 1)])})
        q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
        parts = []
        for one in zip(*(t.split(lengths) for t in (q, k, v))):
            a, b, c = (split(t) for t in one)
            if n is None:
                y = F.scaled_dot_product_attention(a, b, c, is_causal=causal, scale=scale)
            else:
                p = F.silu(a @ b.transpose(1, 2) * (scale or dim ** -0.5)) / n
                y = (p.tril() if causal else p) @ c
            parts.append(y.transpose(0, 1).reshape(-1, heads * dim))
        y = torch.cat(parts)
        y.backward(dy)
        out.update({f"{key}.y": y, f"{key}.dq": q.grad, f"{key}.dk": k.grad, f"{key}.dv": v.grad})


def embedding(out, random):
    ids = torch.from_numpy(random.integers(0, 9, 40))
    ids[ids == 4] = 5  # a row nobody uses
    table0, dy = random.normal(9, 7), random.normal(40, 7)
    table = table0.clone().requires_grad_()
    y = F.embedding(ids, table)
    y.backward(dy)
    out.update({"embedding.ids": ids, "embedding.table": table0, "embedding.dy": dy,
                "embedding.y": y, "embedding.dtable": table.grad})


VOCABULARY, WIDTH, HEADS, LENGTH, BATCH, LAYERS, STEPS = 65, 32, 4, 16, 6, 2, 10
ADAMW = dict(lr=h(3e-3), betas=(0.9, 0.95), eps=h(1e-8), weight_decay=h(0.1))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = torch.nn.LayerNorm(WIDTH, eps=EPS)
        self.attn = torch.nn.ModuleDict({"c_attn": torch.nn.Linear(WIDTH, 3 * WIDTH),
                                         "c_proj": torch.nn.Linear(WIDTH, WIDTH)})
        self.ln_2 = torch.nn.LayerNorm(WIDTH, eps=EPS)
        self.mlp = torch.nn.ModuleDict({"c_fc": torch.nn.Linear(WIDTH, 4 * WIDTH),
                                        "c_proj": torch.nn.Linear(4 * WIDTH, WIDTH)})

    def forward(self, x):
        def split(t):
            return t.reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)

        q, k, v = self.attn.c_attn(self.ln_1(x)).split(WIDTH, dim=2)
        y = F.scaled_dot_product_attention(split(q), split(k), split(v), is_causal=True)
        x = x + self.attn.c_proj(y.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


class Gpt(torch.nn.Module):
    """GPT-2: norms before, learned positions, GELU by erf, the output layer's weight is wte's."""

    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = torch.nn.Embedding(LENGTH, WIDTH)
        self.h = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = torch.nn.LayerNorm(WIDTH, eps=EPS)
        self.to(F64)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def gpt(out, random):
    net = Gpt()
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(random.normal(*p.shape, scale=0.2))
            if ".ln_" in f".{name}" and name.endswith("weight"):
                p.copy_((p / 2 + 1).to(torch.float32))
            out[f"init.{name}"] = p.clone()
    # Small tokens often, and a token tends to follow itself: there is something to learn.
    ids = (random.rng.random((STEPS, BATCH, LENGTH + 1)) ** 2 * VOCABULARY).astype("int64")
    for t in range(1, LENGTH + 1):
        again = random.rng.random((STEPS, BATCH)) < 0.4
        ids[:, :, t][again] = ids[:, :, t - 1][again]
    ids = torch.from_numpy(ids)
    out["ids"] = ids
    optim = torch.optim.AdamW(net.parameters(), **ADAMW)
    losses = []
    for step in range(STEPS):
        logits = net(ids[step, :, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), ids[step, :, 1:].reshape(-1))
        optim.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = logits.reshape(-1, VOCABULARY)
            for name, p in net.named_parameters():
                out[f"grad.{name}"] = p.grad.clone()
        optim.step()
        losses.append(float(loss.detach()))
    print("gpt losses", " ".join(f"{x:.4f}" for x in losses))
    out["losses"] = torch.tensor(losses, dtype=F64)
    for name, p in net.named_parameters():
        out[f"final.{name}"] = p


def make():
    out = {}
    norms(out, Random(31))
    attention(out, Random(32))
    embedding(out, Random(33))
    save("transformer.safetensors", out)
    out = {}
    jagged_attention(out, Random(35))
    save("jagged.safetensors", out)
    out = {}
    gpt(out, Random(34))
    save("gpt.safetensors", out)
