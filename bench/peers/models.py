"""The DLRM and the GPT in PyTorch, as neo's examples define them: the same shapes, losses and
optimizers."""

import torch
import torch.nn.functional as F

DENSE, TABLES = 13, 26
LAYERS = {  # widths after the input; the bottom's last is the columns of the tables
    "kaggle": ([512, 256, 64, 16], [512, 256, 1], 100_000),
    "mlperf": ([512, 256, 128], [1024, 1024, 512, 256, 1], 250_000),
}


def mlp(width, widths, last):
    """Linear and ReLU in turn; last: a ReLU behind the last layer too."""
    layers = []
    for i, w in enumerate(widths):
        layers.append(torch.nn.Linear(width, w))
        if last or i + 1 < len(widths):
            layers.append(torch.nn.ReLU())
        width = w
    return torch.nn.Sequential(*layers)


class Dense(torch.nn.Module):
    """All of a DLRM but its tables: bottom, interaction, top, loss."""

    def __init__(self, bottom, top, tables=TABLES):
        super().__init__()
        dim = bottom[-1]
        self.bottom = mlp(DENSE, bottom, True)
        self.top = mlp(dim + tables * (tables + 1) // 2, top, False)
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("rows", pairs[0], persistent=False)
        self.register_buffer("cols", pairs[1], persistent=False)

    def forward(self, dense, pooled, label):
        """pooled: [batch][tables][dim]"""
        x = self.bottom(dense)
        t = torch.cat([x.unsqueeze(1), pooled], 1)
        z = torch.bmm(t, t.transpose(1, 2))[:, self.rows, self.cols]
        logit = self.top(torch.cat([x, z], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logit, label)


class RowwiseAdagrad:
    """s += mean(g^2) of a row, w -= lr g/(sqrt(s) + eps), on the rows that a sparse gradient
    has."""

    def __init__(self, weights, lr, eps=1e-8):
        self.weights, self.lr, self.eps = weights, lr, eps
        self.sums = [torch.zeros(w.shape[0]) for w in weights]

    @torch.no_grad()
    def step(self):
        for w, s in zip(self.weights, self.sums):
            g = w.grad.coalesce()
            rows, values = g.indices()[0], g.values()
            s.index_add_(0, rows, values.pow(2).mean(1))
            scale = s[rows].sqrt_().add_(self.eps).reciprocal_().mul_(-self.lr)
            w.data.index_add_(0, rows, values.mul_(scale.unsqueeze(1)))
            w.grad = None


class Dlrm:
    """The whole, with its optimizers. compiled: forward and backward of what is dense by
    torch.compile; the sparse gradients of the tables are beyond it. autocast: what is dense
    computes in bf16, parameters and loss are f32."""

    def __init__(self, bottom, top, rows, lr, initial, compiled=False, share=None, weights=None,
                 autocast=False):
        if share:
            self.dense, self.tables = share.dense, share.tables
            self.optim, self.table_optim = share.optim, share.table_optim
        else:
            self.dense = Dense(bottom, top)
            weights = weights or [torch.zeros(rows, bottom[-1]) for _ in range(TABLES)]
            self.tables = [torch.nn.EmbeddingBag(rows, bottom[-1], mode="sum", sparse=True,
                                                 _weight=weight) for weight in weights]
            self.optim = torch.optim.Adagrad(self.dense.parameters(), lr=lr, eps=1e-10, fused=True,
                                             initial_accumulator_value=initial)
            self.table_optim = RowwiseAdagrad([t.weight for t in self.tables], lr)
        self.run = torch.compile(self.dense, dynamic=False) if compiled else self.dense
        self.autocast = autocast

    def step(self, dense, label, ids, offsets):
        """ids: [tables][batch]"""
        pooled = torch.stack([t(i, offsets) for t, i in zip(self.tables, ids)], 1)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.run(dense, pooled, label)
        loss.backward()
        self.table_optim.step()
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)
        return loss.detach()


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attn = torch.nn.ModuleDict({"c_attn": torch.nn.Linear(width, 3 * width),
                                         "c_proj": torch.nn.Linear(width, width)})
        self.mlp = torch.nn.ModuleDict({"c_fc": torch.nn.Linear(width, 4 * width),
                                        "c_proj": torch.nn.Linear(4 * width, width)})

    def forward(self, x):
        b, t, w = x.shape
        qkv = self.attn["c_attn"](self.ln_1(x)).split(w, 2)
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(b, t, w)
        x = x + self.attn["c_proj"](y)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class Gpt(torch.nn.Module):
    """Names as GPT-2's; the head is the token table."""

    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__()
        self.wte = torch.nn.Embedding(vocabulary, width)
        self.wpe = torch.nn.Embedding(context, width)
        self.h = torch.nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f = torch.nn.LayerNorm(width)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
