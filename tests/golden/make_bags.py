"""bags.safetensors: embedding bags, forward, backward, and 20 steps of every table optimizer."""
import numpy as np
import torch
import torch.nn.functional as F

from common import F64, Random, h, jagged, row_optim, row_state, row_step, save

# ---- forward and backward ----

BATCH = 17
TABLES = [(5, 1), (13, 3), (31, 20), (9, 8)]  # rows, dim
FEATURES = [0, 1, 2, 1, 3]                    # features 1 and 3 share a table
MODES = {  # pooling of each table, weighted
    "sum": (["sum"] * 4, False),
    "mean": (["mean"] * 4, False),
    "sum_weighted": (["sum"] * 4, True),
    "mean_weighted": (["mean"] * 4, True),
    "mixed": (["sum", "mean", "mean", "sum"], False),
}


def pool(weight, ids, offsets, mode, per_id):
    """EmbeddingBag; it has no weighted mean, so that is the weighted sum over the length."""
    if mode == "mean" and per_id is not None:
        length = (offsets[1:] - offsets[:-1]).clamp(min=1).to(F64)
        return F.embedding_bag(ids, weight, offsets, mode="sum", per_sample_weights=per_id,
                               include_last_offset=True) / length[:, None]
    return F.embedding_bag(ids, weight, offsets, mode=mode, per_sample_weights=per_id,
                           include_last_offset=True)


def forward(weights, features, pooling, ids, offsets, batch, per_id):
    """All features: [batch][sum of dims]."""
    out = []
    for f, table in enumerate(features):
        o = offsets[f * batch:(f + 1) * batch + 1]
        begin, end = int(o[0]), int(o[-1])
        out.append(pool(weights[table], ids[begin:end], o - begin, pooling[table],
                        None if per_id is None else per_id[begin:end]))
    return torch.cat(out, dim=1)


def offsets_of(lengths):
    return torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def modes(out, random):
    lengths, ids = jagged(random, BATCH, [TABLES[t][0] for t in FEATURES], 6)
    lengths_none, ids_none = jagged(random, BATCH, [TABLES[2][0], 7], 4)
    offsets, ids = offsets_of(lengths), torch.from_numpy(ids)
    weights = [random.normal(*shape) for shape in TABLES]
    per_id = random.normal(len(ids))
    width = sum(TABLES[t][1] for t in FEATURES)
    dout = random.normal(BATCH, width)
    out.update({"fb.offsets": offsets, "fb.ids": ids, "fb.weights": per_id, "fb.dout": dout})
    out.update({f"fb.w.{i}": w for i, w in enumerate(weights)})
    for name, (pooling, weighted) in MODES.items():
        w = [x.clone().requires_grad_() for x in weights]
        c = per_id.clone().requires_grad_() if weighted else None
        y = forward(w, FEATURES, pooling, ids, offsets, BATCH, c)
        y.backward(dout)
        out[f"fb.{name}.out"] = y
        out.update({f"fb.{name}.dw.{i}": x.grad for i, x in enumerate(w)})
        if weighted:
            out[f"fb.{name}.dweights"] = c.grad
    # no pooling: one row per id
    offsets, ids = offsets_of(lengths_none), torch.from_numpy(ids_none)
    w = [random.normal(31, 20).requires_grad_(), random.normal(7, 20).requires_grad_()]
    split = int(offsets[BATCH])
    y = torch.cat([F.embedding(ids[:split], w[0]), F.embedding(ids[split:], w[1])])
    dout = random.normal(*y.shape)
    y.backward(dout)
    out.update({"none.offsets": offsets, "none.ids": ids.to(torch.int32), "none.dout": dout,
                "none.out": y})
    for i in range(2):
        out[f"none.w.{i}"], out[f"none.dw.{i}"] = w[i], w[i].grad


# ---- optimizers ----

STEPS, OPT_BATCH = 20, 8
OPT_TABLES = [(6, 4), (11, 5), (19, 8)]
OPT_FEATURES = [0, 1, 2, 1]
OPT_POOLING = ["sum", "mean", "sum"]
CASES = {  # name: (lr, configuration)
    "sgd": (0.1, row_optim("sgd")),
    "sgd_l2": (0.1, row_optim("sgd", decay="l2", weight_decay=0.05)),
    "sgd_decoupled": (0.1, row_optim("sgd", decay="decoupled", weight_decay=0.05)),
    "sgd_clip": (0.1, row_optim("sgd", clip_gradient=0.5)),
    "sgd_max_norm": (0.1, row_optim("sgd", max_norm=1.5)),
    "sgd_lr_scale": (0.1, row_optim("sgd", lr_scale=0.25)),
    "adagrad": (0.1, row_optim("adagrad", initial_accumulator=0.1)),
    "adagrad_l2": (0.1, row_optim("adagrad", decay="l2", weight_decay=0.05, eps=1e-3)),
    "adagrad_decoupled": (0.1, row_optim("adagrad", decay="decoupled", weight_decay=0.05)),
    "rowwise_adagrad": (0.1, row_optim("rowwise_adagrad")),
    "rowwise_adagrad_l2": (0.1, row_optim("rowwise_adagrad", decay="l2", weight_decay=0.05,
                                          initial_accumulator=0.2, eps=1e-2)),
    "rowwise_adagrad_decoupled": (0.1, row_optim("rowwise_adagrad", decay="decoupled",
                                                 weight_decay=0.05)),
    "adam": (0.02, row_optim("adam")),
    "adam_l2": (0.02, row_optim("adam", decay="l2", weight_decay=0.05, beta1=0.8, beta2=0.95,
                                eps=1e-3)),
    "adamw": (0.02, row_optim("adam", decay="decoupled", weight_decay=0.1)),
    "partial_adam": (0.02, row_optim("partial_adam")),
    "partial_adam_l2": (0.02, row_optim("partial_adam", decay="l2", weight_decay=0.05, eps=1e-3)),
    "partial_adam_decoupled": (0.02, row_optim("partial_adam", decay="decoupled",
                                               weight_decay=0.1)),
    "lamb": (0.02, row_optim("lamb")),
    "lamb_decay": (0.02, row_optim("lamb", weight_decay=0.05, eps=1e-6)),
    "partial_lamb": (0.02, row_optim("partial_lamb")),
    "partial_lamb_decay": (0.02, row_optim("partial_lamb", weight_decay=0.05, eps=1e-6)),
    "lars_sgd": (0.1, row_optim("lars_sgd", momentum=0.9, weight_decay=0.01, eta=0.1)),
    "lars_sgd_plain": (0.1, row_optim("lars_sgd", eta=0.5)),
    "ftrl": (0.1, row_optim("ftrl", eps=1.0)),
    "ftrl_l1": (0.2, row_optim("ftrl", eps=0.5, l1=1.0, weight_decay=0.1,
                               initial_accumulator=0.1)),
}


def optimizers(out, random):
    weights = [random.normal(*shape, scale=0.5) for shape in OPT_TABLES]
    weights[2][1] = 0.0  # a row of zeros: LAMB's trust ratio is 1, LARS does not move
    batches, offsets, ids = [], [], []
    for step in range(STEPS):
        # The last row of each table is in no batch. One batch is empty: it still counts as a step.
        rows = [OPT_TABLES[t][0] - 1 for t in OPT_FEATURES]
        lengths, i = jagged(random, OPT_BATCH, rows, 3, empty=1.0 if step == 6 else 0.3)
        if step == 9:  # a feature without ids, so a table without rows to update
            n = int(lengths[:OPT_BATCH].sum())
            lengths[:OPT_BATCH], i = 0, i[n:]
        o = offsets_of(lengths)
        batches.append((o, torch.from_numpy(i)))
        offsets.append(o + sum(len(x) for x in ids))  # absolute: all share one array
        ids.append(i)
    dout = random.normal(STEPS, OPT_BATCH, sum(OPT_TABLES[t][1] for t in OPT_FEATURES))
    lr_factor = [h(1 - step / 40) for step in range(STEPS)]
    out.update({"opt.offsets": torch.stack(offsets),
                "opt.ids": torch.from_numpy(np.concatenate(ids)), "opt.dout": dout,
                "opt.lr_factor": torch.tensor(lr_factor, dtype=F64)})
    out.update({f"opt.w.{i}": w for i, w in enumerate(weights)})
    for name, (lr, c) in CASES.items():
        w = [x.clone() for x in weights]
        state = [row_state(c, x) for x in w]
        for step, (o, i) in enumerate(batches):
            p = [x.clone().requires_grad_() for x in w]
            forward(p, OPT_FEATURES, OPT_POOLING, i, o, OPT_BATCH, None).backward(dout[step])
            step_lr = h(np.float32(lr) * np.float32(lr_factor[step]))
            for t in range(len(w)):
                touched = sorted({int(x) for f, table in enumerate(OPT_FEATURES) if table == t
                                  for x in i[o[f * OPT_BATCH]:o[(f + 1) * OPT_BATCH]]})
                row_step(c, w[t], p[t].grad, touched, state[t], step + 1, step_lr)
        for t in range(len(w)):
            out[f"opt.{name}.w.{t}"] = w[t]
            out.update({f"opt.{name}.{key}.{t}": s for key, s in state[t].items()})
    check_sparse_adam(weights, batches, dout, lr_factor, out)


def check_sparse_adam(weights, batches, dout, lr_factor, out):
    """torch.optim.SparseAdam, whose t also counts for the whole table, agrees with our "adam"."""
    lr, c = CASES["adam"]
    w = [torch.nn.Parameter(x.clone()) for x in weights]
    optim = torch.optim.SparseAdam(w, lr=lr, betas=(c["beta1"], c["beta2"]), eps=c["eps"])
    for step, (o, i) in enumerate(batches):
        p = [x.detach().clone().requires_grad_() for x in w]
        forward(p, OPT_FEATURES, OPT_POOLING, i, o, OPT_BATCH, None).backward(dout[step])
        for t, x in enumerate(w):
            g = p[t].grad
            rows = g.abs().sum(dim=1).nonzero()[:, 0]
            x.grad = torch.sparse_coo_tensor(rows[None], g[rows], g.shape, check_invariants=True)
        optim.param_groups[0]["lr"] = h(np.float32(lr) * np.float32(lr_factor[step]))
        optim.step()
    worst = max(float((w[t].detach() - out[f"opt.adam.w.{t}"]).abs().max()) for t in range(len(w)))
    assert worst < 1e-6, worst
    print(f"  adam against torch.optim.SparseAdam: {worst:.1e}")


def make():
    out = {}
    modes(out, Random(1))
    optimizers(out, Random(2))
    save("bags.safetensors", out)
