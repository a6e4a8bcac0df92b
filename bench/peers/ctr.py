"""The ladder: models of clicks, from text to a model that is saved, by Vowpal Wabbit, LightGBM,
PyTorch and neo. NEO_PEERS_LINES: lines of the Criteo-like data (10^6); of more a model of each
program takes one turn, as LightGBM needs 65 s of CPU time for each 10^6. Each program is a
process on as many cores as threads; what is counted is its reading of its own kind of text
(made beforehand: VW's without a cache file; ids as numbers for LightGBM and PyTorch; for neo
the data as it comes), training, and saving. One pass over the data, but of LightGBM, whose
rounds read it again from memory. AUC and log loss are those of predictions on test data by a
second process, by one function for all; `best` is that of a model that knows the planted truth.
"""

import array
import ctypes
import json
import math
import os
import random
import subprocess
import sys
import time

import common

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = 100_000  # of each of the Criteo-like features
ADULT = "examples/data/adult/adult."
VW = "--loss_function logistic -b 24"


# ---- data: in {task}.train and .test as neo reads them, .vw (VW's text), .ids (numbers) ----


class Task:
    """dense, features: columns; rows: ids of each feature; best: (AUC, log loss) of the truth,
    or None."""

    def __init__(self, name, folder, dense, features, rows, neo, best=None):
        self.name, self.dense, self.features, self.rows, self.neo, self.best = (
            name,
            dense,
            features,
            rows,
            neo,
            best,
        )
        self.path = {
            part: os.path.join(folder, "%s.%s" % (name, part)) for part in ("train", "test")
        }
        self.lines = {}

    def write(self, part, samples):
        """samples: (label, numbers, ids), as VW and the others take them."""
        logs, self.lines[part] = {}, 0
        letters = [chr(65 + i) for i in range(self.features)]
        with open(self.path[part] + ".vw", "w") as vw, open(self.path[part] + ".ids", "w") as ids:
            for label, numbers, features in samples:
                texts = [logs.setdefault(x, "%.6g" % x) for x in numbers]
                named = " ".join("%d:%s" % (i, x) for i, x in enumerate(texts) if x != "0")
                vw.write(
                    "%d %s%s\n"
                    % (
                        2 * label - 1,
                        "|n " + named if named else "",
                        "".join(" |%s %d" % f for f in zip(letters, features)),
                    )
                )
                ids.write("%d\t%s\n" % (label, "\t".join(texts + ["%d" % i for i in features])))
                self.lines[part] += 1

    def labels(self):
        with open(self.path["test"] + ".ids") as f:
            return [line[0] == "1" for line in f]


def criteo_samples(path):
    log = {"%d" % i: math.log1p(i) for i in range(10_000)}
    log[""] = 0.0
    with open(path) as f:
        for line in f:
            c = line[:-1].split("\t")
            yield (
                int(c[0]),
                [log[x] if x in log else math.log1p(max(0, int(x))) for x in c[1:14]],
                [1 + int(x, 16) % (ROWS - 1) if x else 0 for x in c[14:]],
            )


def criteo(folder, lines):
    best = (ctypes.c_double * 2)()
    task = Task("Criteo-like", folder, 13, 26, ROWS, ["--rows", str(ROWS)])
    for part, first, count in (("train", 0, lines), ("test", lines, lines // 10)):
        common.Neo().write_tsv(
            task.path[part].encode(), first, count, ROWS, best if part == "test" else None
        )
        task.write(part, criteo_samples(task.path[part]))
    task.best = tuple(best)
    return task


def movies(folder, lines):
    """Ratings by a factorization machine of 8 factors (user, film, genre, age, occupation);
    libffm text for neo."""
    rows, truth = [6000, 4000, 18, 7, 21], random.Random(7)
    vectors = [[[truth.gauss(0, 0.5) for _ in range(8)] for _ in range(n)] for n in rows]
    weights = [[truth.gauss(0, 0.6) for _ in range(n)] for n in rows]
    genre, of_user = [truth.randrange(18) for _ in range(4000)], [
        (truth.randrange(7), truth.randrange(21)) for _ in range(6000)
    ]
    task, known = (
        Task("MovieLens-shaped", folder, 0, 5, 6000, ["--format", "libffm", "--rows", "6000"]),
        [],
    )

    def samples(count, path):
        with open(path, "w") as f:
            for _ in range(count):
                user, film = int(6000 * truth.random() ** 2), int(4000 * truth.random() ** 3)
                ids = [user, film, genre[film], *of_user[user]]
                v = [vectors[t][i] for t, i in enumerate(ids)]
                pairs = sum(sum(column) ** 2 - sum(x * x for x in column) for column in zip(*v)) / 2
                p = 1 / (1 + math.exp(-0.3 - pairs - sum(weights[t][i] for t, i in enumerate(ids))))
                label = int(truth.random() < p)
                known.append(p)
                f.write("%d %s\n" % (label, " ".join("%d:%d:1" % x for x in enumerate(ids))))
                yield label, [], ids

    for part, count in (("train", lines), ("test", lines // 10)):
        known.clear()
        task.write(part, samples(count, task.path[part]))
    task.best = figures(task.labels(), known)
    return task


def adult(folder):
    """The numbers and words of the UCI's file, its test split."""
    numbers, words, codes = (0, 4, 10, 11, 12), (1, 3, 5, 6, 7, 8, 9, 13), {}
    scale = {0: 40.0, 4: 10.0, 10: 10_000.0, 11: 2000.0, 12: 40.0}
    task = Task("Adult", folder, len(numbers), len(words), 64, ["--format", "adult"])
    task.path = {"train": ADULT + "data", "test": ADULT + "test"}
    source = dict(task.path)

    def samples(path):
        with open(path) as f:
            for line in f:
                c = [x.strip() for x in line.rstrip(" .\n").split(",")]
                if len(c) == 15:
                    yield (
                        int(c[14] == ">50K"),
                        [float(c[i]) / scale[i] for i in numbers],
                        [
                            codes.setdefault((i, c[i]), sum(k[0] == i for k in codes) % 64)
                            for i in words
                        ],
                    )

    task.path = {part: os.path.join(folder, "Adult." + part) for part in source}
    for part, path in source.items():
        task.write(part, samples(path))
    task.source = source
    return task


# ---- programs ----


def figures(labels, probabilities):
    """(AUC, log loss); equal probabilities share their rank."""
    order = sorted(zip(probabilities, labels))
    positives, at, ranks = sum(labels), 0, 0.0
    while at < len(order):
        end = at
        while end < len(order) and order[end][0] == order[at][0]:
            end += 1
        ranks += (at + 1 + end) / 2 * sum(y for _, y in order[at:end])
        at = end
    loss = -sum(math.log(max(p if y else 1 - p, 1e-7)) for p, y in order) / len(order)
    negatives = len(order) - positives
    return (ranks - positives * (positives + 1) / 2) / max(1, positives * negatives), loss


def process(command, given=None):
    """(wall, CPU) seconds of a program, without an interpreter's imports; raises where it fails.
    given: its standard input."""
    start = time.perf_counter()
    source = open(given) if given else None
    with subprocess.Popen(
        command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as p:
        text = p.stdout.read().decode()
        _, status, use = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if source:
        source.close()
    if p.returncode:
        raise RuntimeError("%s:\n%s" % (" ".join(command), text[-2000:]))
    before = json.loads(text.splitlines()[-1]) if "ctr_peer.py" in " ".join(command) else (0, 0)
    return time.perf_counter() - start - before[1], use.ru_utime + use.ru_stime - before[0]


def neo_commands(task, threads, options, scratch):
    train, test = (getattr(task, "source", task.path)[part] for part in ("train", "test"))
    checkpoint = ["--checkpoint", scratch + ".checkpoint"]
    base = [
        os.environ.get("NEO_DLRM", os.path.join(common.BUILD, "..", "dlrm")),
        *task.neo,
        "--repro-shards",  # as the peers, with no promise about ranks
        "1",
        "--threads",
        str(threads),
        *options.split(),
    ]
    stdin = task.name == "Criteo-like"  # of a file the lines are counted first
    return (
        base + ["--data", "-" if stdin else train] + checkpoint,
        base + ["--test", test, "--predict", scratch + ".out"] + checkpoint,
    )


def peer_commands(task, threads, program, options, scratch):
    kind = ".vw" if program == "vw" else ".ids"
    config = dict(
        dense=task.dense,
        features=task.features,
        rows=task.rows,
        threads=threads,
        options=options,
        model=scratch + ".model",
        out=scratch + ".out",
    )
    return [
        [
            sys.executable,
            os.path.join(HERE, "ctr_peer.py"),
            program,
            action,
            json.dumps(dict(config, data=task.path[action] + kind)),
        ]
        for action in ("train", "test")
    ]


# (program, model, options); the first is what each peer is compared with
NEO = {
    "Criteo-like": [
        ("lr", "--model lr --optimizer ftrl --lr 0.1 --eps 0.005 --batch 256"),
        ("fm", "--model fm --lr 0.1 --batch 512"),
        ("deepfm", "--model deepfm --lr 0.03 --batch 512"),
        ("dlrm", "--model dlrm --lr 0.03 --batch 512"),
    ],
    "MovieLens-shaped": [
        ("fm", "--model fm --lr 0.1 --batch 128"),
        ("lr", "--model lr --optimizer ftrl --lr 0.1 --eps 0.01 --batch 128"),
        ("deepfm", "--model deepfm --lr 0.1 --batch 128"),
        ("dlrm", "--model dlrm --lr 0.1 --batch 128"),
    ],
    "Adult": [
        ("lr", "--model lr --optimizer ftrl --lr 0.1 --eps 0.01 --batch 128"),
        ("dlrm", "--model dlrm --lr 0.05 --batch 128"),
        ("fm", "--model fm --lr 0.05 --batch 128"),
        ("deepfm", "--model deepfm --lr 0.05 --batch 128"),
    ],
}
TREES = dict(
    rounds=100,
    num_leaves=63,
    learning_rate=0.1,
    max_bin=1023,
    max_cat_threshold=1024,
    cat_smooth=10,
    min_data_per_group=20,
)
PEERS = [
    ("vw", "VW lr --ftrl", VW + " --ftrl --ftrl_alpha 0.1 --ftrl_beta 1"),
    ("vw", "VW lr", VW),
    ("lightgbm", "LightGBM", TREES),
    ("torch", "PyTorch lr", dict(factors=0, lr=0.1)),
    ("torch", "PyTorch fm", dict(factors=15, lr=0.1)),
]


def run_program(report, task, name, commands, labels, rounds, scratch):
    """CPU seconds of the rounds of training. One line of the ladder."""
    times = []
    for _ in range(rounds):
        for old in (scratch + ".model", scratch + ".out"):
            if os.path.exists(old):
                os.remove(old)
        subprocess.run(["rm", "-rf", scratch + ".checkpoint"], check=True)
        times.append(process(commands[0], task.path["train"] if "-" in commands[0] else None))
    process(commands[1])
    with open(scratch + ".out") as f:
        auc, loss = figures(labels, [float(line) for line in f])
    wall, cpu = (common.median([t[i] for t in times]) for i in (0, 1))
    best = task.best or (math.nan, math.nan)
    report.line(
        what=task.name,
        lines=task.lines["train"],
        program=name,
        seconds=wall,
        cpu=cpu,
        rate=task.lines["train"] / cpu,
        auc=auc,
        logloss=loss,
        short=best[0] - auc if task.best else None,
    )
    return [t[1] for t in times], auc


def run_task(args, task, models, peers, rounds):
    """models: neo's; peers: () where their packages are not there."""
    ladder, ratios = common.Report(args, "ladder"), common.Report(args, "ctr")
    labels, scratch = task.labels(), task.path["train"] + ".%d" % args.threads
    ours = None
    for model, options in NEO[task.name][:models]:
        done = run_program(
            ladder,
            task,
            "neo " + model,
            neo_commands(task, args.threads, options, scratch),
            labels,
            rounds,
            scratch,
        )
        ours = ours or done
    for program, name, options in peers:
        commands = peer_commands(task, args.threads, program, options, scratch)
        cpu, auc = run_program(
            ladder, task, name, commands, labels, rounds if program == "vw" else 1, scratch
        )
        pairs = [theirs / neo for theirs, neo in zip(cpu, ours[0])]
        first = task.name == "Criteo-like" and program == "vw"
        rate = task.lines["train"] / 1e3
        ratios.line(
            what="%s, neo %s" % (task.name, NEO[task.name][0][0]),
            peer=name,
            unit="klines/s/core",
            neo=rate / common.median(ours[0]),
            theirs=rate / common.median(cpu),
            ratio=common.median(pairs),
            spread=common.spread(pairs),
            target=5.0 if first else None,
        )
        if task.name == "Criteo-like" and program in ("vw", "lightgbm") and not args.quick:
            target = 1 - 0.0005 / auc if program == "lightgbm" else 1.0
            ratios.line(
                what="%s, neo %s" % (task.name, NEO[task.name][0][0]),
                peer=name,
                unit="AUC",
                neo=ours[1],
                theirs=auc,
                ratio=ours[1] / auc,
                spread=0.0,
                target=target,
            )


def main():
    args = common.begin(__doc__)
    lines = int(os.environ.get("NEO_PEERS_LINES") or (20_000 if args.quick else 1_000_000))
    folder = os.path.join(common.BUILD, "ctr")
    os.makedirs(folder, exist_ok=True)
    large = lines > 1_000_000
    peers = list({p[0]: p for p in reversed(PEERS)}.values()) if large else PEERS
    for task in (criteo(folder, lines), movies(folder, min(lines, 1_000_000)), adult(folder)):
        run_task(args, task, 1 if large else 9, peers, 1 if args.quick or large else 3)


if __name__ == "__main__":
    main()
