"""dlrm_init.safetensors: the state_dict of a small DLRM under PyTorch DLRM's names
(bot_l.0.weight, emb_l.0.weight, top_l.0.weight); dlrm.safetensors: 20 batches, and for each
optimizer the losses, the final weights and the final state of training it on them.

Of the program's other models: dlrm_<model>.safetensors, initial weights under the program's names;
dlrm_models.csv, 20 batches as it reads them; dlrm_models.losses, model and loss of each step."""
import os
import numpy as np
import torch
import torch.nn.functional as F

from common import F64, HERE, Lamb, Random, h, jagged, row_optim, row_state, row_step, save
from make_dense import STATES, aware_machine, cross, interact, machine, wukong, wukong_shapes

DENSE, DIM, BATCH, STEPS = 4, 8, 32, 20
AWARE = 3  # factors for each feature
TOWERS = [[1, 4], [0, 2, 3]]  # tables, as dlrm --towers 2 parts them
ROWS = [7, 11, 19, 33, 50]
POOLING = ["sum", "sum", "mean", "sum", "mean"]
ADAM = dict(betas=(0.9, 0.999), eps=h(1e-8))
RUNS = {  # lr; the tables' optimizer; the dense parameters' optimizer
    "sgd": (0.5, row_optim("sgd"), (torch.optim.SGD, {})),
    "adagrad": (0.05, row_optim("adagrad", eps=1e-8), (torch.optim.Adagrad, dict(eps=h(1e-8)))),
    "rowwise_adagrad": (0.05, row_optim("rowwise_adagrad"),
                        (torch.optim.Adagrad, dict(eps=h(1e-8)))),
    "adam": (0.01, row_optim("adam"), (torch.optim.Adam, ADAM)),
    "adamw": (0.01, row_optim("adam", decay="decoupled", weight_decay=0.05),
              (torch.optim.AdamW, dict(weight_decay=h(0.05), **ADAM))),
    "partial_adam": (0.01, row_optim("partial_adam"), (torch.optim.Adam, ADAM)),
    "lamb": (0.02, row_optim("lamb", weight_decay=0.01, eps=1e-6),
             (Lamb, dict(weight_decay=h(0.01), eps=h(1e-6), betas=ADAM["betas"]))),
    "partial_lamb": (0.02, row_optim("partial_lamb", weight_decay=0.01, eps=1e-6),
                     (Lamb, dict(weight_decay=h(0.01), eps=h(1e-6), betas=ADAM["betas"]))),
    "lars_sgd": (0.1, row_optim("lars_sgd", momentum=0.9, weight_decay=0.01, eta=0.1),
                 (torch.optim.SGD, dict(momentum=h(0.9)))),
}


class Dlrm(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        lin, relu = torch.nn.Linear, torch.nn.ReLU
        width = DIM + len(ROWS) * (len(ROWS) + 1) // 2
        self.bot_l = torch.nn.Sequential(lin(DENSE, 16), relu(), lin(16, DIM), relu())
        self.top_l = torch.nn.Sequential(lin(width, 16), relu(), lin(16, 1))
        self.emb_l = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(n, DIM, mode=mode, include_last_offset=True)
            for n, mode in zip(ROWS, POOLING))
        self.to(dtype)

    def forward(self, dense, offsets, ids):
        x = self.bot_l(dense)
        e = []
        for f, bag in enumerate(self.emb_l):
            o = offsets[f * BATCH:(f + 1) * BATCH + 1]
            e.append(bag(ids[o[0]:o[-1]], o - o[0]))
        return self.top_l(interact(x, torch.stack(e, dim=1), 0))[:, 0]


class Other(torch.nn.Module):
    """dlrm --model lr, fm, deepfm, dcnv2, ffm, wukong, dlrm; square: dcnv2 with square matrices;
    towers: dlrm with tables in towers. rows: of the tables."""

    def __init__(self, kind, rows, dtype):
        super().__init__()
        lin, relu = torch.nn.Linear, torch.nn.ReLU
        dim, self.kind = {"lr": 1, "ffm": len(rows) * AWARE + 1}.get(kind, DIM), kind
        beside, seen = (len(rows) + 1) * DIM, len(TOWERS) if kind == "towers" else len(rows)
        dots = DIM + seen * (seen + 1) // 2
        width = {"deepfm": DENSE + len(rows) * (DIM - 1), "dcnv2": beside, "square": beside,
                 "wukong": beside, "dlrm": dots, "towers": dots}
        if kind in width and kind != "deepfm":
            self.bottom = torch.nn.Sequential(lin(DENSE, 16), relu(), lin(16, DIM), relu())
        else:
            self.linear = torch.nn.Sequential(lin(DENSE, 1))
        if kind == "wukong":
            shapes = wukong_shapes(len(rows) + 1, DIM, (len(rows) + 1) // 2, 12, 2)
            self.wukong = torch.nn.ParameterDict({
                k.replace(".", "_"): torch.nn.Parameter(torch.empty(s)) for k, s in shapes.items()})
        if kind == "dcnv2":
            self.cross = torch.nn.ParameterDict()
            for i in range(2):
                self.cross[f"V_kernels_{i}"] = torch.nn.Parameter(torch.empty(5, width[kind]))
                self.cross[f"W_kernels_{i}"] = torch.nn.Parameter(torch.empty(width[kind], 5))
                self.cross[f"bias_{i}"] = torch.nn.Parameter(torch.empty(width[kind]))
        if kind == "square":
            self.cross = torch.nn.ParameterDict()
            for i in range(2):
                self.cross[f"kernels_{i}"] = torch.nn.Parameter(torch.empty(width[kind],
                                                                            width[kind]))
                self.cross[f"bias_{i}"] = torch.nn.Parameter(torch.empty(width[kind]))
        if kind == "towers":
            self.tower = torch.nn.ModuleList(
                torch.nn.Sequential(lin(len(tables) * DIM, DIM), relu()) for tables in TOWERS)
        if kind in width:
            self.top = torch.nn.Sequential(lin(width[kind], 16), relu(), lin(16, 1))
        self.emb_l = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(n, dim, mode="sum", include_last_offset=True) for n in rows)
        self.to(dtype)

    def forward(self, dense, offsets, ids):
        e = []
        for f, bag in enumerate(self.emb_l):
            o = offsets[f * BATCH:(f + 1) * BATCH + 1]
            e.append(bag(ids[o[0]:o[-1]], o - o[0]))
        if self.kind in ("dcnv2", "square"):
            kernels = {k[:-2] + "." + k[-1]: p for k, p in self.cross.items()}
            return self.top(cross(2, torch.cat([self.bottom(dense)] + e, dim=1), kernels))[:, 0]
        if self.kind == "wukong":
            p = {k.replace("_", "."): p for k, p in self.wukong.items()}
            x = torch.stack([self.bottom(dense)] + e, dim=1)
            return self.top(wukong(2, (len(e) + 1) // 2, x, p).flatten(1))[:, 0]
        if self.kind == "towers":
            e = [layer(torch.cat([e[f] for f in tables], dim=1))
                 for layer, tables in zip(self.tower, TOWERS)]
        if self.kind in ("dlrm", "towers"):
            return self.top(interact(self.bottom(dense), torch.stack(e, dim=1), 0))[:, 0]
        e = torch.stack(e, dim=1)
        if self.kind == "ffm":
            return self.linear(dense)[:, 0] + aware_machine(e, AWARE)
        logit = self.linear(dense)[:, 0] + machine(e, e.shape[2] - 1)
        if self.kind == "deepfm":
            logit = logit + self.top(torch.cat([dense, e[:, :, :-1].flatten(1)], dim=1))[:, 0]
        return logit


def initial(random, model=Dlrm):
    """DLRM's initial values, biases and all."""
    init = {}
    for key, p in model(F64).state_dict().items():
        if key.startswith("emb_l"):
            bound = p.shape[0] ** -0.5
            init[key] = random.uniform(*p.shape, low=-bound, high=bound)
        elif p.ndim == 2:
            init[key] = random.normal(*p.shape, scale=(2 / sum(p.shape)) ** 0.5)
        else:
            init[key] = random.normal(*p.shape, scale=p.shape[0] ** -0.5)
    return init


def batches(random, empty=0.15):
    """Labels follow a planted rule, so that the loss falls. Ids repeat within bags and batches."""
    taste = [random.normal(n) for n in ROWS]
    out = []
    for _ in range(STEPS):
        dense = random.normal(BATCH, DENSE)
        lengths, ids = jagged(random, BATCH, ROWS, 3, empty=empty)
        o = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
        ids = torch.from_numpy(ids)
        score = dense @ torch.tensor([1.0, -0.5, 0.25, 0.0], dtype=F64)
        for f, t in enumerate(taste):
            for b in range(BATCH):
                i = f * BATCH + b
                score[b] += t[ids[o[i]:o[i + 1]]].sum()
        label = (random.uniform(BATCH) < torch.sigmoid(score)).to(F64)
        out.append((dense, o, ids, label))
    return out


def train(init, data, lr, c, dense_kind, options, dtype, make_model=Dlrm):
    model = make_model(dtype)
    model.load_state_dict({k: v.to(dtype) for k, v in init.items()})
    tables = [bag.weight for bag in model.emb_l]
    names = [k for k, _ in model.named_parameters() if not k.startswith("emb_l")]
    params = dict(model.named_parameters())
    optim = dense_kind([params[k] for k in names], lr=h(lr), **options)
    state = [row_state(c, w.detach()) for w in tables]
    losses = []
    for step, (dense, o, ids, label) in enumerate(data):
        model.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(dense.to(dtype), o, ids), label.to(dtype))
        loss.backward()
        losses.append(loss.detach().reshape(1).to(F64))
        with torch.no_grad():
            optim.step()
        for f, w in enumerate(tables):
            touched = sorted({int(x) for x in ids[o[f * BATCH]:o[(f + 1) * BATCH]]})
            row_step(c, w.data, w.grad, touched, state[f], step + 1, h(lr))
    out = {"loss": torch.cat(losses)}
    out.update({k: p.detach() for k, p in params.items()})
    for k in names:
        for key, s in optim.state[params[k]].items():
            if key in STATES and s is not None:
                out[f"{k}.{key}"] = s
    for f in range(len(tables)):
        out.update({f"emb_l.{f}.{key}": s for key, s in state[f].items()})
    return out


def make():
    # The first steps of Adagrad and Adam divide a gradient by its own size, so one that nearly
    # cancels is known to few digits in any float32. With this seed that hardly happens: PyTorch in
    # float32 stays within 2e-6 of float64 (printed below); with others it is up to 2e-5 off.
    random = Random(27)
    init, data = initial(random), batches(random)
    save("dlrm_init.safetensors", init)
    offsets, count = [], 0
    for _, o, ids, _ in data:
        offsets.append(o + count)  # absolute: all batches share one array of ids
        count += len(ids)
    out = {"dense": torch.stack([d[0] for d in data]), "offsets": torch.stack(offsets),
           "ids": torch.cat([d[2] for d in data]), "label": torch.stack([d[3] for d in data])}
    for name, (lr, c, (kind, options)) in RUNS.items():
        exact = train(init, data, lr, c, kind, options, F64)
        single = train(init, data, lr, c, kind, options, torch.float32)
        # What float32 alone costs, for judging the tolerance of the test.
        worst = max(float((single[k].to(F64) - v).abs().max() / v.abs().max())
                    for k, v in exact.items())
        print(f"  {name}: loss {float(exact['loss'][0]):.4f} .. {float(exact['loss'][-1]):.4f}, "
              f"PyTorch in float32 is off by {worst:.1e}")
        out.update({f"{name}.{k}": v for k, v in exact.items()})
    save("dlrm.safetensors", out)
    models()


def first_seen(data):
    """The same batches with ids as a dictionary gives them: from 1, in the order of first sight."""
    seen, lists = [{} for _ in ROWS], []
    for _, o, ids, _ in data:
        for b in range(BATCH):
            for f in range(len(ROWS)):
                i = f * BATCH + b
                for x in ids[o[i]:o[i + 1]]:
                    seen[f].setdefault(int(x), len(seen[f]) + 1)
    for dense, o, ids, label in data:
        new = ids.clone()
        for f in range(len(ROWS)):
            for k in range(o[f * BATCH], o[(f + 1) * BATCH]):
                new[k] = seen[f][int(ids[k])]
        lists.append((dense, o, new, label))
    return [len(s) + 1 for s in seen], lists


def models():
    random = Random(31)
    data = batches(random, empty=0)
    rows, renamed = first_seen(data)
    with open(os.path.join(HERE, "dlrm_models.csv"), "w") as f:
        for dense, o, ids, label in data:
            for b in range(BATCH):
                bags = [ids[o[i * BATCH + b]:o[i * BATCH + b + 1]] for i in range(len(ROWS))]
                fields = [str(int(label[b]))] + [f"{np.float32(x):.9g}" for x in dense[b]]
                f.write(",".join(fields + ["|".join(f"w{int(x)}" for x in bag) for bag in bags]) +
                        "\n")
    lines = []
    for kind in ("lr", "fm", "deepfm", "dcnv2", "ffm", "wukong", "dlrm", "square", "towers"):
        def make_model(dtype):
            return Other(kind, rows, dtype)
        init = initial(random, make_model)
        lr, c, (optim, options) = RUNS["rowwise_adagrad"]
        exact, single = (train(init, renamed, lr, c, optim, options, dtype, make_model)["loss"]
                         for dtype in (F64, torch.float32))
        print(f"  {kind}: loss {float(exact[0]):.4f} .. {float(exact[-1]):.4f}, PyTorch in float32 "
              f"is off by {float(((single - exact) / exact).abs().max()):.1e}")
        lines += [f"{kind} {float(x):.9g}\n" for x in exact]
        save(f"dlrm_{kind}.safetensors", {
            k.replace("kernels_", "kernels.").replace("bias_", "bias.")
            if kind != "wukong" else k.replace("_", ".").replace("emb.l", "emb_l"): v
            for k, v in init.items()})
    with open(os.path.join(HERE, "dlrm_models.losses"), "w") as f:
        f.writelines(lines)
