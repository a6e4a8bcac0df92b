"""dense.safetensors: activations, linear layers, MLPs, cross networks, interactions, losses, dense
optimizers, schedules; numbers.safetensors: conversions to and from narrow floats."""
import numpy as np
import torch
import torch.nn.functional as F

from common import F64, Ftrl, Lamb, Random, check_ftrl, h, save

ACTS = {
    "none": lambda z: z,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": F.gelu,  # the exact one, by erf
    "hardswish": F.hardswish,
    "silu": F.silu,
    "leaky_relu": lambda z: F.leaky_relu(z, 0.01),
}
MODULES = {"relu": torch.nn.ReLU, "sigmoid": torch.nn.Sigmoid, "tanh": torch.nn.Tanh,
           "gelu": torch.nn.GELU, "hardswish": torch.nn.Hardswish,
           "silu": torch.nn.SiLU, "leaky_relu": torch.nn.LeakyReLU}


def activations(out, random):
    """Elementwise: a grid, random numbers, saturation, and both sides of every kink."""
    special = [0.0, -0.0, 1e-30, -1e-30, 1e-8, -1e-8, 1e-4, -1e-4, 3.0, -3.0, 2.9999998,
               -2.9999998, 3.0000002, -3.0000002, 20.0, -20.0, 88.0, -88.0, 104.0, -104.0, 1000.0,
               -1000.0]
    z = torch.cat([torch.tensor([h(x) for x in special], dtype=F64),
                   torch.linspace(-12, 12, 193, dtype=F64), random.normal(64, scale=2.0)])
    dy = random.normal(len(z))
    out["act.z"], out["act.dy"] = z, dy
    for name, act in ACTS.items():
        x = z.clone().requires_grad_()
        y = act(x)
        y.backward(dy)
        out[f"act.{name}.y"], out[f"act.{name}.dz"] = y, x.grad


def linears(out, random):
    """One layer per activation, forward and backward."""
    x0, w0, b0 = random.normal(9, 7), random.normal(5, 7, scale=0.5), random.normal(5)
    dy = random.normal(9, 5)
    out.update({"linear.x": x0, "linear.w": w0, "linear.b": b0, "linear.dy": dy})
    for name, act in ACTS.items():
        x, w, b = (t.clone().requires_grad_() for t in (x0, w0, b0))
        y = act(F.linear(x, w, b))
        y.backward(dy)
        out.update({f"linear.{name}.y": y, f"linear.{name}.dx": x.grad,
                    f"linear.{name}.dw": w.grad, f"linear.{name}.db": b.grad})


MLPS = {  # widths, activation, last activation, batch
    "relu": ([6, 11, 8, 3], "relu", "none", 10),
    "sigmoid": ([6, 11, 8, 3], "sigmoid", "sigmoid", 10),
    "tanh": ([6, 11, 8, 3], "tanh", "relu", 10),
    "gelu": ([6, 11, 8, 3], "gelu", "tanh", 10),
    "hardswish": ([6, 11, 8, 3], "hardswish", "gelu", 10),
    "wide": ([33, 70, 17], "relu", "hardswish", 50),
    "one": ([1, 1], "relu", "none", 1),
    "silu": ([6, 11, 8, 3], "silu", "leaky_relu", 10),
}


def mlps(out, random):
    for name, (widths, act, last, batch) in MLPS.items():
        layers = []
        for i in range(len(widths) - 1):
            linear = torch.nn.Linear(widths[i], widths[i + 1], dtype=F64)
            with torch.no_grad():
                linear.weight.copy_(random.normal(widths[i + 1], widths[i],
                                                  scale=(2 / (widths[i] + widths[i + 1])) ** 0.5))
                linear.bias.copy_(random.normal(widths[i + 1], scale=0.3))
            layers.append(linear)
            kind = act if i + 2 < len(widths) else last
            if kind != "none":
                layers.append(MODULES[kind]())
        net = torch.nn.Sequential(*layers)
        x = random.normal(batch, widths[0]).requires_grad_()
        dy = random.normal(batch, widths[-1])
        y = net(x)
        y.backward(dy)
        out.update({f"mlp.{name}.x": x, f"mlp.{name}.dy": dy, f"mlp.{name}.y": y,
                    f"mlp.{name}.dx": x.grad})
        for key, p in net.named_parameters():
            out[f"mlp.{name}.{key}"], out[f"mlp.{name}.grad.{key}"] = p, p.grad


# batch, width, rank, layers
CROSS = {"full": (9, 6, 0, 3), "low": (9, 13, 4, 3), "one": (4, 7, 2, 1)}


def cross(layers, x0, p):
    """torchrec.modules.crossnet: CrossNet, or LowRankCrossNet if there are V_kernels."""
    x = x0
    for i in range(layers):
        if "V_kernels.0" in p:
            u = F.linear(F.linear(x, p[f"V_kernels.{i}"]), p[f"W_kernels.{i}"], p[f"bias.{i}"])
        else:
            u = F.linear(x, p[f"kernels.{i}"], p[f"bias.{i}"])
        x = x0 * u + x
    return x


def crosses(out, random):
    for name, (batch, width, rank, layers) in CROSS.items():
        shapes = {"V_kernels": (rank, width), "W_kernels": (width, rank)} if rank else \
            {"kernels": (width, width)}
        p = {}
        for i in range(layers):
            p.update({f"{kind}.{i}": random.normal(*shape, scale=0.4).requires_grad_()
                      for kind, shape in shapes.items()})
            p[f"bias.{i}"] = random.normal(width).requires_grad_()
        x = random.normal(batch, width).requires_grad_()
        y = cross(layers, x, p)
        dy = random.normal(batch, width)
        y.backward(dy)
        out.update({f"cross.{name}.x": x, f"cross.{name}.y": y, f"cross.{name}.dy": dy,
                    f"cross.{name}.dx": x.grad})
        for key, t in p.items():
            out[f"cross.{name}.{key}"], out[f"cross.{name}.grad.{key}"] = t, t.grad


WUKONG = {"two": (6, 5, 4, 2, 7, 2), "one": (4, 2, 3, 1, 4, 1)}  # batch, features, dim, linear, ..


def wukong(layers, linear, x, p):
    """Wukong layers (arXiv 2403.02545) of x [B][n][d]; of X X^T each product once."""
    for i in range(layers):
        r, c = torch.tril_indices(x.shape[1], x.shape[1])
        pairs = torch.bmm(x, x.transpose(1, 2))[:, r, c]
        pairs = F.layer_norm(pairs, pairs.shape[1:], p[f"{i}.pairs.weight"], p[f"{i}.pairs.bias"])
        hidden = F.relu(F.linear(pairs, p[f"{i}.machine.0.weight"], p[f"{i}.machine.0.bias"]))
        machine = F.linear(hidden, p[f"{i}.machine.2.weight"], p[f"{i}.machine.2.bias"])
        machine = machine.reshape(x.shape[0], x.shape[1] - linear, x.shape[2])
        x = torch.cat([machine, p[f"{i}.linear.weight"] @ x], dim=1) + x
        x = F.layer_norm(x, x.shape[2:], p[f"{i}.norm.weight"], p[f"{i}.norm.bias"])
    return x


def wukong_shapes(features, dim, linear, hidden, layers):
    pairs, rest = features * (features + 1) // 2, (features - linear) * dim
    return {f"{i}.{k}": s for i in range(layers) for k, s in {
        "pairs.weight": (pairs,), "pairs.bias": (pairs,), "linear.weight": (linear, features),
        "norm.weight": (dim,), "norm.bias": (dim,), "machine.0.weight": (hidden, pairs),
        "machine.0.bias": (hidden,), "machine.2.weight": (rest, hidden),
        "machine.2.bias": (rest,)}.items()}


def wukongs(out, random):
    for name, (batch, features, dim, linear, hidden, layers) in WUKONG.items():
        p = {k: random.normal(*s, scale=0.4).requires_grad_()
             for k, s in wukong_shapes(features, dim, linear, hidden, layers).items()}
        x, dy = random.normal(batch, features, dim), random.normal(batch, features, dim)
        x.requires_grad_()
        y = wukong(layers, linear, x, p)
        y.backward(dy)
        out.update({f"wukong.{name}.x": x.flatten(1), f"wukong.{name}.y": y.flatten(1),
                    f"wukong.{name}.dy": dy.flatten(1), f"wukong.{name}.dx": x.grad.flatten(1)})
        for key, t in p.items():
            out[f"wukong.{name}.{key}"], out[f"wukong.{name}.grad.{key}"] = t, t.grad


def interact(x, e, diagonal):
    """The dot interaction of DLRM: x [B][D], e [B][F][D]."""
    t = torch.cat([x[:, None, :], e], dim=1)
    z = torch.bmm(t, t.transpose(1, 2))
    i, j = torch.tril_indices(t.shape[1], t.shape[1], offset=0 if diagonal else -1)
    return torch.cat([x, z[:, i, j]], dim=1)


INTERACT = {"small": (6, 8, 3), "thin": (5, 1, 2), "odd": (3, 13, 1), "criteo": (4, 16, 26)}


def interactions(out, random):
    for name, (batch, dim, features) in INTERACT.items():
        x0, e0 = random.normal(batch, dim), random.normal(batch, features, dim)
        out[f"interact.{name}.x"] = x0
        out[f"interact.{name}.e"] = e0.reshape(batch, features * dim)
        for diagonal in (0, 1):
            x, e = x0.clone().requires_grad_(), e0.clone().requires_grad_()
            z = interact(x, e, diagonal)
            dz = random.normal(*z.shape)
            z.backward(dz)
            key = f"interact.{name}.{diagonal}"
            out.update({f"{key}.z": z, f"{key}.dz": dz, f"{key}.dx": x.grad,
                        f"{key}.de": e.grad.reshape(batch, features * dim)})


def machine(e, dim):
    """A factorization machine with weights: e [B][F][dim + 1], by the square trick."""
    v = e[:, :, :dim]
    return e[:, :, dim].sum(1) + 0.5 * (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1)


def machines(out, random):
    for name, (batch, dim, features) in {"small": (6, 8, 3), "odd": (3, 15, 26)}.items():
        e = random.normal(batch, features, dim + 1).requires_grad_()
        y, v = machine(e, dim), e[:, :, :dim].reshape(batch, features * dim)
        dy, dv = random.normal(batch), random.normal(*v.shape)
        torch.autograd.backward([y, v], [dy, dv])
        out.update({f"fm.{name}.e": e.flatten(1), f"fm.{name}.y": y, f"fm.{name}.v": v,
                    f"fm.{name}.dy": dy, f"fm.{name}.dv": dv, f"fm.{name}.de": e.grad.flatten(1)})


def aware_machine(e, dim):
    """A field-aware one: e [B][F][F dim + 1]; factors of a row for feature g at g dim."""
    features = e.shape[1]
    v = e[:, :, :-1].unflatten(2, (features, dim))
    pairs = sum((v[:, f, g] * v[:, g, f]).sum(1) for f in range(features) for g in range(f))
    return e[:, :, -1].sum(1) + pairs


def aware_machines(out, random):
    for name, (batch, dim, features) in {"small": (6, 4, 3), "odd": (3, 5, 9)}.items():
        e = random.normal(batch, features, features * dim + 1).requires_grad_()
        y, dy = aware_machine(e, dim), random.normal(batch)
        y.backward(dy)
        out.update({f"ffm.{name}.e": e.flatten(1), f"ffm.{name}.y": y, f"ffm.{name}.dy": dy,
                    f"ffm.{name}.de": e.grad.flatten(1)})


def losses(out, random):
    """Mean losses and gradients, plain and weighted by sample: the divisor is the sample count."""

    def put(key, fn, x0, target, weight):
        out[f"{key}.x"], out[f"{key}.target"] = x0, target
        for tag, w in (("plain", None), ("weighted", weight)):
            x = x0.clone().requires_grad_()
            loss = fn(x, target, w)
            loss.backward()
            out[f"{key}.{tag}.loss"], out[f"{key}.{tag}.dx"] = loss.reshape(1), x.grad

    n = 24
    weight = random.uniform(n, high=2.0)
    weight[3] = 0.0
    out["loss.weight"] = weight
    label = (random.uniform(n) < 0.4).to(F64)
    label[5], label[6] = 0.25, h(0.9)  # soft labels
    logit = random.normal(n, scale=2.0)
    extreme = [0.0, -0.0, 1e-30, -1e-8, 30.0, -30.0, 88.0, -88.0, 200.0, -200.0, 1e4, -1e4]
    extreme = torch.tensor([h(x) for x in extreme] * 2, dtype=F64)
    hard = torch.cat([torch.zeros(12), torch.ones(12)]).to(F64)

    def bce_logits(x, y, w):
        return F.binary_cross_entropy_with_logits(x, y, weight=w)

    put("loss.bce_logits", bce_logits, logit, label, weight)
    put("loss.bce_logits_extreme", bce_logits, extreme, hard, weight)
    put("loss.bce", lambda x, y, w: F.binary_cross_entropy(x, y, weight=w),
        random.uniform(n, low=0.02, high=0.98), label, weight)
    # At the ends: the loss is clamped at 100, the gradient's divisor p (1 - p) at 1e-12.
    ends = [0.0, 1.0, 1e-30, 1e-10, 1e-4, 1 - 2**-24, 1 - 2**-20, 0.5]
    ends = torch.tensor([h(x) for x in ends] * 3, dtype=F64)
    mixed = torch.cat([torch.zeros(8), torch.ones(8), torch.full((8,), 0.5)]).to(F64)
    put("loss.bce_ends", lambda x, y, w: F.binary_cross_entropy(x, y, weight=w), ends, mixed,
        weight)
    # torch's mse_loss divides a weighted loss by the sum of weights: the weighted one is composed.
    put("loss.mse", lambda x, y, w: F.mse_loss(x, y) if w is None else
        ((x - y) ** 2 * w[:, None]).mean(), random.normal(n, 3), random.normal(n, 3), weight)

    def cross_entropy(x, y, w):
        return F.cross_entropy(x, y) if w is None else \
            (F.cross_entropy(x, y, reduction="none") * w).mean()

    classes = torch.from_numpy(random.integers(0, 7, n))
    put("loss.ce", cross_entropy, random.normal(n, 7, scale=2.0), classes, weight)
    big = random.normal(n, 7, scale=100.0)
    big[0], big[1] = 0.0, 1e4  # all equal; equal and large
    big[2, 3] = -1e4
    put("loss.ce_extreme", cross_entropy, big, classes, weight)
    put("loss.ce_two", cross_entropy, random.normal(n, 2), classes % 2, weight)


STEPS = 20
SHAPES = {"w": (4, 5), "b": (7,), "one": (1,), "long": (300,), "zero": (6,)}
OPTIMS = {  # lr, constructor of the optimizer, (max norm, norm type) to clip by
    "sgd": (0.1, torch.optim.SGD, {}, None),
    "sgd_l2": (0.1, torch.optim.SGD, dict(weight_decay=0.05), None),
    "sgd_momentum": (0.1, torch.optim.SGD, dict(momentum=0.9, weight_decay=0.01), None),
    "sgd_dampening": (0.1, torch.optim.SGD, dict(momentum=0.8, dampening=0.3), None),
    "sgd_nesterov": (0.1, torch.optim.SGD,
                     dict(momentum=0.9, nesterov=True, weight_decay=0.01), None),
    "adagrad": (0.1, torch.optim.Adagrad, dict(eps=1e-10), None),
    "adagrad_full": (0.1, torch.optim.Adagrad,
                     dict(eps=1e-3, lr_decay=0.05, initial_accumulator_value=0.1,
                          weight_decay=0.05), None),
    "adam": (0.02, torch.optim.Adam, dict(eps=1e-8, betas=(0.9, 0.999)), None),
    "adam_l2": (0.02, torch.optim.Adam,
                dict(eps=1e-3, betas=(0.8, 0.95), weight_decay=0.05), None),
    "adamw": (0.02, torch.optim.AdamW, dict(eps=1e-8, betas=(0.9, 0.999), weight_decay=0.1), None),
    "adamw_beta0": (0.02, torch.optim.AdamW,
                    dict(eps=1e-8, betas=(0.0, 0.95), weight_decay=0.0), None),
    "lamb": (0.02, Lamb, dict(eps=1e-6, betas=(0.9, 0.999)), None),
    "lamb_decay": (0.02, Lamb, dict(eps=1e-6, betas=(0.9, 0.999), weight_decay=0.05), None),
    "rmsprop": (0.02, torch.optim.RMSprop, dict(eps=1e-4), None),
    "rmsprop_momentum": (0.02, torch.optim.RMSprop,
                         dict(eps=1e-3, alpha=0.9, momentum=0.8, weight_decay=0.05), None),
    "ftrl": (0.1, Ftrl, {}, None),
    "ftrl_l1": (0.2, Ftrl, dict(beta=0.5, l1=1.0, l2=0.1, initial_accumulator=0.1), None),
    "clip1": (0.1, torch.optim.SGD, {}, (40.0, 1.0)),
    "clip2": (0.1, torch.optim.SGD, dict(momentum=0.9), (2.0, 2.0)),
    "clipinf": (0.1, torch.optim.SGD, {}, (0.5, float("inf"))),
    "clip_off": (0.1, torch.optim.SGD, {}, (1e4, 2.0)),  # never reached
    "clip_adam": (0.02, torch.optim.Adam, dict(eps=1e-8, betas=(0.9, 0.999)), (1.0, 2.0)),
}
STATES = ("momentum_buffer", "sum", "exp_avg", "exp_avg_sq", "square_avg", "penalty")


def rounded(x):
    """As neo holds it: betas (a tuple) are doubles there, the rest floats."""
    return h(x) if isinstance(x, float) else x


def optimizers(out, random):
    check_ftrl()
    initial = {k: random.normal(*s) for k, s in SHAPES.items()}
    initial["zero"][:] = 0.0
    grads = {k: random.normal(STEPS, *s) for k, s in SHAPES.items()}
    grads["b"][:, 2] = 0.0  # an element without gradient
    grads["long"][:, 7] *= h(1e-6)
    factor = [h(1 - step / 40) for step in range(STEPS)]
    out.update({f"optim.{k}": v for k, v in initial.items()})
    out.update({f"optim.grad.{k}": v for k, v in grads.items()})
    out["optim.lr_factor"] = torch.tensor(factor, dtype=F64)
    for name, (lr, kind, options, clip) in OPTIMS.items():
        params = {k: torch.nn.Parameter(v.clone()) for k, v in initial.items()}
        optim = kind(params.values(), lr=lr, **{k: v if k == "alpha" else rounded(v)
                                                     for k, v in options.items()})
        norms = []
        for step in range(STEPS):
            for k, p in params.items():
                p.grad = grads[k][step].clone()
            if clip:
                norm = torch.nn.utils.clip_grad_norm_(params.values(), rounded(clip[0]), clip[1])
                norms.append(float(norm))
            optim.param_groups[0]["lr"] = h(np.float32(lr) * np.float32(factor[step]))
            optim.step()
        for k, p in params.items():
            out[f"optim.{name}.{k}"] = p
            for key, s in optim.state[p].items():
                if key in STATES and s is not None:
                    out[f"optim.{name}.{key}.{k}"] = s
        if clip:
            out[f"optim.{name}.norm"] = torch.tensor(norms, dtype=F64)


def schedules(out):
    """neo's warm-up, hold and decay, made of torch's schedulers; and DLRM's own policy."""
    sched = torch.optim.lr_scheduler
    lr, warm, hold, total = h(0.3), 5, 4, 30

    def run(decay, end):
        optim = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, dtype=F64))], lr=lr)
        parts = [sched.LinearLR(optim, start_factor=1 / warm, total_iters=warm - 1),
                 sched.ConstantLR(optim, factor=1.0, total_iters=0), decay(optim)]
        s = sched.SequentialLR(optim, parts, milestones=[warm, warm + hold])
        rates = []
        for _ in range(total + 1):  # step `total` is the first at the final rate
            rates.append(optim.param_groups[0]["lr"])
            optim.step()
            s.step()
        return torch.tensor(rates + [end, end], dtype=F64)

    length, end = total - warm - hold, h(0.01)
    out["schedule.linear"] = run(lambda o: sched.LinearLR(
        o, start_factor=1.0, end_factor=end / lr, total_iters=length), end)
    out["schedule.cosine"] = run(lambda o: sched.CosineAnnealingLR(o, length, eta_min=end), end)
    out["schedule.poly2"] = run(lambda o: sched.PolynomialLR(o, length, power=2.0), 0.0)
    out["schedule.poly3"] = run(lambda o: sched.PolynomialLR(o, length, power=3.0), 0.0)
    # DLRM counts from 1: warm-up lr step/warm, then squares of the part of the decay that is left.
    rates = []
    for count in range(1, total + 1):
        start = warm + hold + 1
        if count < warm:
            rates.append(lr * (1 - (warm - count) / warm))
        elif count >= start:
            rates.append(lr * ((length - (count - start)) / length) ** 2)
        else:
            rates.append(lr)
    rates = torch.tensor(rates, dtype=F64)
    assert torch.allclose(rates, out["schedule.poly2"][:total], rtol=1e-12)


# ---- narrow floats ----

NARROW = {"bf16": torch.bfloat16, "f16": torch.float16, "f8e4m3": torch.float8_e4m3fn,
          "f8e5m2": torch.float8_e5m2}


def narrow(random):
    """f32 -> narrow, ties to even: random bits, every f8 tie, ties of f16 and bf16, and their
    neighbours; and narrow -> f32 for all f8 and a sample of the others."""
    bits = random.integers(0, 2**32, 1024).astype(np.uint32)
    values = [bits.view(np.float32)]
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        all8 = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).numpy()
        x = np.unique(all8[np.isfinite(all8)]).astype(np.float64)
        values += [x, (x[1:] + x[:-1]) / 2]
    f16 = random.integers(0, 2**16, 400).astype(np.uint16).view(np.float16).astype(np.float64)
    f16 = f16[np.isfinite(f16)]
    up = np.nextafter(f16.astype(np.float16), np.float16(np.inf)).astype(np.float64)
    values += [f16, np.where(np.isfinite(up), (f16 + up) / 2, 65520.0)]
    b16 = random.integers(0, 2**16, 400).astype(np.uint32)
    values += [(b16 << 16).view(np.float32), ((b16 << 16) | 0x8000).view(np.float32)]
    values += [np.array([0.0, -0.0, 1.0, 65504, 65519.996, 65520, 57344, 61439.996, 61440, 448,
                         464, 2.0**-149, 2.0**-133, 2.0**-134, 2.0**-25, 2.0**-24, 2.0**-10,
                         2.0**-17])]
    x = np.concatenate([np.asarray(v).astype(np.float32).ravel() for v in values])
    x = x[~np.isnan(x)]
    below, above = np.nextafter(x, np.float32(-np.inf)), np.nextafter(x, np.float32(np.inf))
    x = np.concatenate([x, below, above, -x])
    x = x[np.isfinite(x)]
    x = torch.from_numpy(np.unique(x.view(np.uint32)).view(np.float32))
    out = {"x": x}
    for name, dtype in NARROW.items():
        # f8e4m3 saturates in neo; torch gives NaN beyond 464, so the input is clamped for it.
        out[f"to.{name}"] = (x.clamp(-448, 448) if name == "f8e4m3" else x).to(dtype)
        if name.startswith("f8"):
            bits = torch.arange(256, dtype=torch.uint8).view(dtype)
        else:
            bits = random.integers(-2**15, 2**15, 2048).astype(np.int16)
            bits = torch.from_numpy(bits).view(dtype)
        bits = bits[~torch.isnan(bits.to(torch.float32))]
        out[f"from.{name}"], out[f"from.{name}.f32"] = bits, bits.to(torch.float32)
    return out


def make():
    out = {}
    activations(out, Random(11))
    linears(out, Random(12))
    mlps(out, Random(13))
    interactions(out, Random(14))
    losses(out, Random(15))
    optimizers(out, Random(16))
    schedules(out)
    crosses(out, Random(18))
    machines(out, Random(19))
    aware_machines(out, Random(20))
    wukongs(out, Random(21))
    save("dense.safetensors", out)
    save("numbers.safetensors", narrow(Random(17)))
