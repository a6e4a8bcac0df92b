"""Training steps of GPT-2 124M and of a DLRM by PyTorch on a GPU, in turns with neo's programs.

    python3 bench/cuda/torch_train.py [--only gpt|dlrm] [--gpt PROGRAM] [--dlrm PROGRAM] [--eager]
                                      [--gpt-args TEXT] [--dlrm-args TEXT] [--batch N] [--turns N]

GPT-2 124M (12 layers, 12 heads, width 768, 1024 tokens of context, random tokens): matrix products
in bf16 (autocast), SDPA's attention, fused AdamW, gradients clipped to 1, by torch.compile. Its
vocabulary is padded from 50,257 to 50,304, which makes PyTorch faster; neo's is not. neo:
`gpt_cuda --products bf16 --repro-shards 1` (a batch in one piece), whose own numbers for each step
(--tensorboard) are read.

DLRM: the layers and tables of `dlrm --preset criteo-kaggle` (26 tables of 16 columns, at most 10^6
rows, an id each, SGD), batches of 16,384 and 65,536, f32, products in TF32. PyTorch gets one table
that holds the 26, looked up by one EmbeddingBag (sum) with sparse gradients, the layers by
torch.compile; its batches lie in pinned memory, and are copied in each step. neo reads its samples
from a file while it trains; its rate is that between two points of --log.

A turn is a run of each. Both losses have to begin where a model that knows nothing stands. Without
neo's programs PyTorch's figures stand alone. --eager: no torch.compile, which takes half a minute.
A line is
    bench <name> value=<x> unit=<u>/s ceiling=none [peer=neo ratio=<x>] [spread=<percent>]
ratio: torch's rate over neo's; below 1, neo is faster."""
import argparse
import json
import math
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    import torch
except ImportError:
    print("# skipped torch: it is not installed")
    sys.exit(0)
if not torch.cuda.is_available() and "--cpu" not in sys.argv:
    print("# skipped torch: it finds no GPU (torch %s)" % torch.__version__)
    sys.exit(0)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
import models  # noqa: E402: beside bench/peers/gpt.py

KAGGLE = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27,
          14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572]
VOCABULARY, PADDED, ROWS = 50257, 50304, 1000000

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--only", choices=("gpt", "dlrm"))
parser.add_argument("--gpt", default="build/gpt_cuda")
parser.add_argument("--dlrm", default="build/dlrm_cuda")
parser.add_argument("--gpt-args", default="")
parser.add_argument("--dlrm-args", default="")
parser.add_argument("--eager", action="store_true")
parser.add_argument("--batch", type=int, default=16, help="sequences of a step")
parser.add_argument("--turns", type=int, default=2)
parser.add_argument("--cpu", action="store_true", help="tiny shapes: a test of this file")
args = parser.parse_args()
DEVICE = "cpu" if args.cpu else "cuda"
LAYERS, HEADS, WIDTH, CONTEXT = (2, 2, 64, 32) if args.cpu else (12, 12, 768, 1024)
BATCHES = (256,) if args.cpu else (16384, 65536)
if args.cpu:
    args.batch, ROWS = 4, 1000


def wait():
    if not args.cpu:
        torch.cuda.synchronize()


def rate(step, work, warm, steps):
    """Units of work a second, after `warm` steps."""
    for i in range(warm):
        step(i)
    wait()
    start = time.perf_counter()
    for i in range(steps):
        step(i)
    wait()
    return work * steps / (time.perf_counter() - start)


def median(values):
    return sorted(values)[len(values) // 2]


def report(name, unit, theirs, neo):
    line = "bench torch.%s value=%.4g unit=%s/s ceiling=none" % (name, median(theirs), unit)
    if neo:
        line += " peer=neo ratio=%.3f" % (median(theirs) / median(neo))
    print(line + " spread=%.1f" % (100 * (max(theirs) - min(theirs)) / median(theirs)), flush=True)
    if neo:
        print("bench neo.%s value=%.4g unit=%s/s ceiling=none spread=%.1f" % (
            name, median(neo), unit, 100 * (max(neo) - min(neo)) / median(neo)), flush=True)


def begins(name, loss, expected):
    if not abs(loss - expected) < 0.5:
        raise SystemExit("%s: the loss begins with %g, not about %g" % (name, loss, expected))


def neo_run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit("%s: %s" % (shlex.join(command), done.stderr[-600:]))


# ---- GPT-2 ----


def torch_gpt():
    model = models.Gpt(LAYERS, HEADS, WIDTH, CONTEXT, PADDED).to(DEVICE)
    for p in model.parameters():
        if p.dim() == 2:
            torch.nn.init.normal_(p, std=0.02)
    optim = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.99), weight_decay=0.1,
                              fused=True)
    run = model if args.eager else torch.compile(model)
    tokens = torch.randint(VOCABULARY, (8, args.batch, CONTEXT + 1), device=DEVICE)
    ids, targets = tokens[:, :, :-1].contiguous(), tokens[:, :, 1:].contiguous()
    losses = []

    def step(i):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = run(ids[i % 8], targets[i % 8])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad(set_to_none=True)
        if not losses:
            losses.append(float(loss.detach()))
            begins("torch", losses[0], math.log(VOCABULARY))

    return step


def neo_gpt(folder, steps):
    """Tokens/s, the median over steps."""
    data = os.path.join(folder, "tokens.bin")
    if not os.path.exists(data):
        tokens = numpy.random.default_rng(1).integers(VOCABULARY, size=160 * CONTEXT)
        header = numpy.zeros(256, numpy.int32)
        header[:3] = 20240520, 1, len(tokens)
        with open(data, "wb") as f:
            f.write(header.tobytes() + tokens.astype(numpy.uint16).tobytes())
    curves = tempfile.mkdtemp(dir=folder)
    neo_run([args.gpt, "--data", data, "--layers", str(LAYERS), "--heads", str(HEADS), "--width",
             str(WIDTH), "--context", str(CONTEXT), "--batch", str(args.batch), "--steps",
             str(steps), "--products", "bf16", "--sample", "0", "--device", DEVICE,
             "--repro-shards", "1",
             "--tensorboard", curves] + shlex.split(args.gpt_args))
    with open(os.path.join(curves, os.listdir(curves)[0]), "rb") as f:
        events = f.read()

    def points(tag):  # the 4 bytes after a tag's field 2, an f32
        return [struct.unpack("<f", x)[0] for x in re.findall(tag + rb"\x15(....)", events, re.S)]

    begins("neo", points(b"loss")[0], math.log(VOCABULARY))
    return CONTEXT * median(points(b"samples_per_s")[3:])


def measure_gpt(folder):
    torch_step, theirs, neo = torch_gpt(), [], []
    for turn in range(args.turns):
        theirs.append(rate(torch_step, args.batch * CONTEXT, 3, 10))
        if not args.cpu:
            torch.cuda.empty_cache()
        if os.path.exists(args.gpt):
            neo.append(neo_gpt(folder, 9))
    report("gpt2_124M.b%d%s" % (args.batch, ".eager" if args.eager else ""), "tokens", theirs, neo)


# ---- DLRM ----


def samples(folder, count):
    """A file of MLPerf's records for neo, and its arrays."""
    random, rows = numpy.random.default_rng(1), numpy.minimum(KAGGLE, ROWS)
    data = numpy.empty((count, 40), numpy.int32)
    data[:, 0] = random.random(count, numpy.float32) < 0.25
    data[:, 1:14] = random.integers(100, size=(count, 13))
    for t in range(26):
        data[:, 14 + t] = random.random(count, numpy.float32) ** 4 * rows[t]
    path = os.path.join(folder, "samples.bin")
    data.tofile(path)
    return path, data, rows


def torch_dlrm(data, rows, batch):
    dense = models.Dense([512, 256, 64, 16], [512, 256, 1]).to(DEVICE)
    table = torch.nn.EmbeddingBag(int(rows.sum()), 16, mode="sum", sparse=True, device=DEVICE)
    base = torch.tensor(numpy.cumsum(rows) - rows, device=DEVICE)
    offsets = torch.arange(batch * 26, device=DEVICE)
    torch.nn.init.normal_(table.weight, std=0.001)
    optim = torch.optim.SGD([table.weight, *dense.parameters()], lr=0.1)
    run = dense if args.eager else torch.compile(dense)
    batches = []
    for i in range(4):
        part = torch.from_numpy(data[i * batch: (i + 1) * batch])
        batches.append([x if args.cpu else x.pin_memory() for x in (
            part[:, 1:14].float().log1p(), part[:, 14:].long(), part[:, 0].float())])
    losses = []

    def step(i):
        numbers, ids, label = (x.to(DEVICE, non_blocking=True) for x in batches[i % 4])
        pooled = table((ids + base).view(-1), offsets).view(batch, 26, 16)
        loss = run(numbers, pooled, label)
        loss.backward()
        optim.step()
        optim.zero_grad(set_to_none=True)
        if not losses:
            losses.append(float(loss.detach()))
            begins("torch", losses[0], math.log(2))

    return step


def neo_dlrm(path, folder, batch, steps):
    """Samples/s between the first point of the log, and the last."""
    log = os.path.join(tempfile.mkdtemp(dir=folder), "log")
    neo_run([args.dlrm, "--preset", "criteo-kaggle", "--rows", str(ROWS), "--data", path,
             "--format", "binary", "--epochs", "2", "--batch", str(batch), "--log", log,
             "--log-every", str(max(steps // 4, 1)), "--device", DEVICE]
            + shlex.split(args.dlrm_args))
    with open(log) as f:
        lines = [json.loads(line) for line in f]
    points = [(p["step"], p["step"] * batch / p["samples_per_s"]) for p in lines if "lr" in p]
    begins("neo", lines[0]["loss"], math.log(2))
    return (points[-1][0] - points[0][0]) * batch / (points[-1][1] - points[0][1])


def measure_dlrm(folder):
    path, data, rows = samples(folder, 10 * BATCHES[-1])
    for batch in BATCHES:
        torch_step, theirs, neo, steps = torch_dlrm(data, rows, batch), [], [], len(data) // batch
        for turn in range(args.turns):
            theirs.append(rate(torch_step, batch, 5, 50))
            if os.path.exists(args.dlrm):
                neo.append(neo_dlrm(path, folder, batch, 2 * steps))
        name = "dlrm_kaggle.b%d%s" % (batch, ".eager" if args.eager else "")
        report(name, "samples", theirs, neo)


torch.set_float32_matmul_precision("high")
print("# torch %s, CUDA %s, %s" % (torch.__version__, torch.version.cuda,
                                   "CPU" if args.cpu else torch.cuda.get_device_name(0)))
with tempfile.TemporaryDirectory() as where:
    if args.only != "dlrm":
        measure_gpt(where)
    if args.only != "gpt":
        measure_dlrm(where)
