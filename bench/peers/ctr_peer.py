"""One program of the ladder, in a process of its own: ctr_peer.py vw|lightgbm|torch train|test
CONFIG, JSON as ctr.py writes it. Its last line is the CPU and wall time that had passed when
the imports were done: nobody asks how long an import takes.

LightGBM and PyTorch read ids as numbers: label, dense numbers, ids, tab-separated.
"""

import json
import sys
import time

BATCH = 512
wall = time.perf_counter()
program, action, config = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


def vw():
    from vowpalwabbit import Workspace

    yield
    more = (
        "-f %s %s" % (config["model"], config["options"])
        if action == "train"
        else "-t -i %s -p %s" % (config["model"], config["out"])
    )
    Workspace("-d %s --quiet --link logistic %s" % (config["data"], more)).finish()


def lightgbm():
    import lightgbm as lgb

    yield
    first = config["dense"]
    if action == "test":
        write(lgb.Booster(model_file=config["model"]).predict(config["data"]))
        return
    options = dict(
        objective="binary",
        verbosity=-1,
        num_threads=config["threads"],
        label_column=0,
        header=False,
        **config["options"]
    )
    rounds = options.pop("rounds")
    data = lgb.Dataset(
        config["data"],
        params=options,
        categorical_feature=list(range(first, first + config["features"])),
    )
    lgb.train(options, data, rounds).save_model(config["model"])


def write(probabilities):
    with open(config["out"], "w") as f:
        f.writelines("%.9g\n" % p for p in probabilities)


def torch():
    import pandas
    import torch

    torch.set_num_threads(config["threads"])
    torch.manual_seed(1)
    dense, features, rows, width = (
        config["dense"],
        config["features"],
        config["rows"],
        config["options"]["factors"],
    )

    class Machine(torch.nn.Module):
        """A weight of each id and dense number and, with factors, the dot products of all pairs."""

        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(max(dense, 1), 1)
            self.weight = torch.nn.EmbeddingBag(rows * features, 1, mode="sum", sparse=True)
            torch.nn.init.zeros_(self.weight.weight)
            self.factor = torch.nn.Embedding(rows * features, width, sparse=True) if width else None
            if width:
                torch.nn.init.uniform_(self.factor.weight, -0.01, 0.01)

        def forward(self, x, ids):
            z = self.linear(x) + self.weight(ids)
            if self.factor is not None:
                v = self.factor(ids)
                z = z + 0.5 * (v.sum(1) ** 2 - (v * v).sum(1)).sum(1, keepdim=True)
            return z[:, 0]

    def batches():
        names = ["y"] + ["d%d" % i for i in range(dense)] + ["c%d" % i for i in range(features)]
        types = {c: "int64" if c[0] == "c" else "float32" for c in names}
        offset = torch.arange(features) * rows
        for frame in pandas.read_csv(
            config["data"], sep="\t", header=None, names=names, dtype=types, chunksize=64 * BATCH
        ):
            y = torch.tensor(frame["y"].to_numpy())
            x = (
                torch.tensor(frame[names[1 : dense + 1]].to_numpy())
                if dense
                else torch.ones(len(y), 1)
            )
            ids = torch.tensor(frame[names[dense + 1 :]].to_numpy()) + offset
            yield from zip(y.split(BATCH), x.split(BATCH), ids.split(BATCH))

    yield
    model = Machine()
    if action == "test":
        model.load_state_dict(torch.load(config["model"]))
        with torch.no_grad():
            write([p for _, x, ids in batches() for p in torch.sigmoid(model(x, ids)).tolist()])
        return
    optimizer = torch.optim.Adagrad(model.parameters(), lr=config["options"]["lr"])
    for y, x, ids in batches():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.binary_cross_entropy_with_logits(model(x, ids), y).backward()
        optimizer.step()
    torch.save(model.state_dict(), config["model"])


work = {"vw": vw, "lightgbm": lightgbm, "torch": torch}[program]()
next(work)
started = time.process_time(), time.perf_counter() - wall
for _ in work:
    pass
print(json.dumps(started))
