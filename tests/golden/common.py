"""Shared by the makers of the golden files: numbers, saving, and optimizers on touched rows.

Everything is computed by PyTorch in float64 from inputs that are exact in float32, and rounded to
float32 once at the end. So a file is the same on every machine, and what neo may differ by is its
own rounding. Hyperparameters that neo holds as floats are rounded to float32 first.
"""
import os

import numpy as np
import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
F64 = torch.float64


def h(x):
    """A hyperparameter, as neo's float fields hold it."""
    return float(np.float32(x))


class Random:
    """Numbers of one file, exact in float32, held in float64."""

    def __init__(self, seed):
        self.rng = np.random.Generator(np.random.PCG64(seed))

    def normal(self, *shape, scale=1.0):
        x = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        return torch.from_numpy(np.asarray(x)).to(F64)

    def uniform(self, *shape, low=0.0, high=1.0):
        x = self.rng.uniform(low, high, shape).astype(np.float32)
        return torch.from_numpy(np.asarray(x)).to(F64)

    def integers(self, low, high, shape):
        return self.rng.integers(low, high, shape, dtype=np.int64)


def jagged(random, batch, rows, max_length, empty=0.25, feature_rows=None):
    """Lengths and ids of a batch, feature-major. rows: ids are below rows[feature]."""
    lengths, ids = [], []
    for limit in rows:
        for _ in range(batch):
            n = int(random.integers(1, max_length + 1, ()))
            if random.rng.random() < empty:
                n = 0
            lengths.append(n)
            # squares of uniforms: small ids often, so that rows repeat within a batch and a bag
            ids.extend(int(limit * u * u) for u in random.rng.random(n))
    return np.array(lengths, dtype=np.int64), np.array(ids, dtype=np.int64)


def save(name, tensors):
    """float64 becomes float32; the rest keeps its type."""
    out = {}
    for key, t in tensors.items():
        t = torch.as_tensor(t).detach()
        out[key] = (t.to(torch.float32) if t.dtype == F64 else t).contiguous().clone()
    path = os.path.join(HERE, name)
    save_file(out, path, metadata={"torch": torch.__version__.split("+")[0]})
    os.chmod(path, 0o644)
    print(f"{name}: {len(out)} tensors, {os.path.getsize(path)} bytes")


# ---- optimizers of embedding tables: one step on the touched rows of one table ----
#
# w [rows][dim], grad [rows][dim] (dense, merged), touched: row numbers. state: momentum1, 2.
# t counts the steps of the whole object from 1, whether or not this table was touched.


def _torch_step(w, grad, touched, make, state_in, state_out):
    """A torch.optim optimizer on the touched rows gathered as one parameter."""
    p = torch.nn.Parameter(w[touched].clone())
    p.grad = grad[touched].clone()
    optim = make([p])
    if state_in:
        optim.state[p].update(state_in)
    optim.step()
    w[touched] = p.detach()
    for key, tensor in state_out.items():
        tensor[touched] = optim.state[p][key].to(tensor.dtype)


def sgd(c, w, grad, touched, state, t, lr):
    if c["decay"] == "decoupled":
        w[touched] *= 1 - lr * c["weight_decay"]
    decay = c["weight_decay"] if c["decay"] == "l2" else 0.0
    _torch_step(w, grad, touched, lambda p: torch.optim.SGD(p, lr=lr, weight_decay=decay), {}, {})


def adagrad(c, w, grad, touched, state, t, lr):
    if c["decay"] == "decoupled":
        w[touched] *= 1 - lr * c["weight_decay"]
    decay = c["weight_decay"] if c["decay"] == "l2" else 0.0
    m = state["momentum1"]
    _torch_step(w, grad, touched,
                lambda p: torch.optim.Adagrad(p, lr=lr, eps=c["eps"], weight_decay=decay),
                {"sum": m[touched].clone()}, {"sum": m})


def adam(c, w, grad, touched, state, t, lr):
    kind = torch.optim.AdamW if c["decay"] == "decoupled" else torch.optim.Adam
    m, v = state["momentum1"], state["momentum2"]
    _torch_step(w, grad, touched,
                lambda p: kind(p, lr=lr, betas=(c["beta1"], c["beta2"]), eps=c["eps"],
                               weight_decay=c["weight_decay"]),
                {"step": torch.tensor(float(t - 1)), "exp_avg": m[touched].clone(),
                 "exp_avg_sq": v[touched].clone()},
                {"exp_avg": m, "exp_avg_sq": v})


# What torch.optim has not, written out.


def rowwise_adagrad(c, w, grad, touched, state, t, lr):
    g = grad[touched]
    if c["decay"] == "l2":
        g = g + c["weight_decay"] * w[touched]
    if c["decay"] == "decoupled":
        w[touched] *= 1 - lr * c["weight_decay"]
    s = state["momentum1"]
    s[touched] += (g * g).mean(dim=1)
    w[touched] -= lr * g / (s[touched].sqrt() + c["eps"])[:, None]


def _adam_direction(c, g, touched, state, t, partial):
    m, v = state["momentum1"], state["momentum2"]
    b1, b2 = c["beta1"], c["beta2"]
    m[touched] = b1 * m[touched] + (1 - b1) * g
    square = (g * g).mean(dim=1) if partial else g * g
    v[touched] = b2 * v[touched] + (1 - b2) * square
    root = (v[touched] / (1 - b2**t)).sqrt() + c["eps"]
    return m[touched] / (1 - b1**t) / (root[:, None] if partial else root)


def partial_adam(c, w, grad, touched, state, t, lr):
    g = grad[touched]
    if c["decay"] == "l2":
        g = g + c["weight_decay"] * w[touched]
    if c["decay"] == "decoupled":
        w[touched] *= 1 - lr * c["weight_decay"]
    w[touched] -= lr * _adam_direction(c, g, touched, state, t, True)


def _lamb(c, w, grad, touched, state, t, lr, partial):
    u = _adam_direction(c, grad[touched], touched, state, t, partial)
    u = u + c["weight_decay"] * w[touched]
    wn, un = w[touched].norm(dim=1), u.norm(dim=1)
    trust = torch.where((wn > 0) & (un > 0), wn / un, torch.ones_like(wn))
    w[touched] -= lr * trust[:, None] * u


def lamb(*a):
    _lamb(*a, partial=False)


def partial_lamb(*a):
    _lamb(*a, partial=True)


def lars_sgd(c, w, grad, touched, state, t, lr):
    g, decay = grad[touched], c["weight_decay"]
    wn, gn = w[touched].norm(dim=1), g.norm(dim=1)
    a = lr * c["eta"] * wn / (gn + decay * wn)
    m = state["momentum1"]
    m[touched] = c["momentum"] * m[touched] + a[:, None] * (g + decay * w[touched])
    w[touched] -= m[touched]


def ftrl_round(w, g, n, z, alpha, beta, l1, l2):
    """Algorithm 1 of McMahan et al. 2013, the lines after the gradient and the weights that follow:
    new w, n, z."""
    sigma = ((n + g * g).sqrt() - n.sqrt()) / alpha
    n, z = n + g * g, z + g - sigma * w
    w = -(z - z.sign() * l1) / ((beta + n.sqrt()) / alpha + l2)
    return torch.where(z.abs() <= l1, torch.zeros_like(w), w), n, z


def ftrl_step(w, g, n, v, alpha, beta, l1, l2):
    """The same by what neo keeps: v = z + w (beta + sqrt(n))/alpha, 0 at first for any w."""
    w, n, z = ftrl_round(w, g, n, v - w * (beta + n.sqrt()) / alpha, alpha, beta, l1, l2)
    v = z + w * (beta + n.sqrt()) / alpha
    return w, n, torch.where(v.abs() < 1e-12, torch.zeros_like(v), v)  # what cancels is 0


def ftrl(c, w, grad, touched, state, t, lr):
    n, v = state["momentum1"], state["momentum2"]
    w[touched], n[touched], v[touched] = ftrl_step(
        w[touched], grad[touched], n[touched], v[touched], lr, c["eps"], c["l1"],
        c["weight_decay"])


STEP = {"sgd": sgd, "adagrad": adagrad, "rowwise_adagrad": rowwise_adagrad, "adam": adam,
        "partial_adam": partial_adam, "lamb": lamb, "partial_lamb": partial_lamb,
        "lars_sgd": lars_sgd, "ftrl": ftrl}
# The shape of momentum1 and momentum2: of the table, or one number per row.
STATE = {"sgd": (), "adagrad": ("table",), "rowwise_adagrad": ("row",), "adam": ("table", "table"),
         "partial_adam": ("table", "row"), "lamb": ("table", "table"),
         "partial_lamb": ("table", "row"), "lars_sgd": ("table",),
         "ftrl": ("table", "table")}


def row_optim(kind, **given):
    """A configuration with every field of neo_bag_optim, as it holds them: betas are doubles."""
    c = {"kind": kind, "decay": "none", "weight_decay": 0.0, "eps": 1e-8,
         "initial_accumulator": 0.0, "l1": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.0,
         "eta": 0.001, "lr_scale": 1.0, "clip_gradient": 0.0, "max_norm": 0.0}
    assert not set(given) - set(c)
    c.update(given)
    return {k: (h(v) if isinstance(v, float) and "beta" not in k else v) for k, v in c.items()}


def row_state(c, w):
    """momentum1, momentum2 of a table."""
    state = {}
    for i, shape in enumerate(STATE[c["kind"]]):
        s = torch.zeros_like(w if shape == "table" else w[:, 0])
        state[f"momentum{i + 1}"] = s + (c["initial_accumulator"] if i == 0 else 0.0)
    return state


def row_step(c, w, grad, touched, state, t, lr):
    """One step on the touched rows. lr is what the trainer passes, before lr_scale."""
    if len(touched) == 0:
        return
    if c["clip_gradient"] > 0:
        grad = grad.clamp(-c["clip_gradient"], c["clip_gradient"])
    STEP[c["kind"]](c, w, grad, touched, state, t, lr * c["lr_scale"])
    if c["max_norm"] > 0:
        norm = w[touched].norm(dim=1)
        cut = torch.where(norm > c["max_norm"], c["max_norm"] / norm, torch.ones_like(norm))
        w[touched] *= cut[:, None]


# ---- dense LAMB and FTRL: what torch.optim has not ----


class Lamb(torch.optim.Optimizer):
    """arXiv 1904.00962 with bias correction; trust ratio per tensor, 1 where a norm is zero."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                s["step"] += 1
                s["exp_avg"].mul_(b1).add_((1 - b1) * p.grad)
                s["exp_avg_sq"].mul_(b2).add_((1 - b2) * p.grad * p.grad)
                m = s["exp_avg"] / (1 - b1 ** s["step"])
                v = s["exp_avg_sq"] / (1 - b2 ** s["step"])
                u = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                wn, un = float(p.norm()), float(u.norm())
                p.sub_(group["lr"] * (wn / un if wn > 0 and un > 0 else 1.0) * u)


class Ftrl(torch.optim.Optimizer):
    def __init__(self, params, lr, beta=1.0, l1=0.0, l2=0.0, initial_accumulator=0.0):
        super().__init__(params, dict(lr=lr, beta=beta, l1=l1, l2=l2, first=initial_accumulator))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(sum=torch.full_like(p, group["first"]), penalty=torch.zeros_like(p))
                rates = (group[k] for k in ("lr", "beta", "l1", "l2"))
                w, s["sum"], s["penalty"] = ftrl_step(p, p.grad, s["sum"], s["penalty"], *rates)
                p.copy_(w)


def check_ftrl():
    """At one rate and from w = 0 the weights are the paper's, whose state is n and z alone; without
    l1 and l2 the optimizer is Adagrad, whatever w is at first."""
    random, beta, alpha = Random(77), 0.5, 0.1
    grads, zero = [random.normal(200) for _ in range(50)], torch.zeros(200, dtype=F64)
    w, n, z = zero, zero, zero
    ours, sums, v = zero, zero, zero
    for g in grads:
        w, n, z = ftrl_round(w, g, n, z, alpha, beta, 3.0, 0.25)
        ours, sums, v = ftrl_step(ours, g, sums, v, alpha, beta, 3.0, 0.25)
        assert v.abs().le(3.0 + 0.25 * ours.abs() + 1e-12).all()
    assert torch.allclose(w, ours, rtol=0, atol=1e-12) and 20 < int((w == 0).sum()) < 180
    first = random.normal(200)
    pair = [torch.nn.Parameter(first.clone()) for _ in range(2)]
    optims = [Ftrl([pair[0]], lr=alpha, beta=beta),
              torch.optim.Adagrad([pair[1]], lr=alpha, eps=beta)]
    for g in grads:
        for p, optim in zip(pair, optims):
            p.grad = g.clone()
            optim.step()
    assert torch.allclose(pair[0], pair[1], rtol=0, atol=1e-12)
