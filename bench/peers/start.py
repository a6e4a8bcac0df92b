"""From the start of a process to the end of its first training step (Criteo Kaggle layers, batch of
128, uniform ids). neo's program makes its 26 tables of 16 columns with lazy_init; for comparison a
process that imports torch and leaves, and one that also makes the tables as EmbeddingBag does."""

import os
import subprocess
import sys
import time

from common import BUILD, Report, begin, median, spread

args = begin(__doc__)
report = Report(args, "start")


def once(command):
    start = time.perf_counter_ns()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        line = process.stdout.readline()
        t = time.perf_counter_ns() - start
        process.stdout.read()
    if process.returncode != 0 or not line.startswith(b"step"):
        raise RuntimeError("%s: %s" % (command[0], line.decode().strip()))
    return t / 1e6


def compare(what, rows, peer_name, peer_code, most, turns):
    program = [os.path.join(BUILD, "neo_start"), "16", "128", str(args.threads), str(rows)]
    peer = [sys.executable, "-c", "import torch; %s print('step')" % peer_code]
    once(program), once(peer)
    ours, theirs = [], []
    for _ in range(turns):
        ours += [once(program), once(program)]
        theirs.append(once(peer))
    report.line(what=what, peer=peer_name, unit="ms", neo=median(ours), theirs=median(theirs),
                ratio=median(theirs) / median(ours), spread=spread(ours), target=None, most=most,
                turns=len(ours))


compare("process start to first step", 100000, "import torch", "", 50.0, 5 if args.quick else 11)
# The rows are 10 GB, in quick runs 1.
rows = 600000 if args.quick else 6000000
make = "torch.set_num_threads(%d); x = [torch.nn.EmbeddingBag(%d, 16) for _ in range(26)];"
compare("the same, %.0f GB of tables" % (rows * 26 * 64 / 1e9), rows, "26 torch.nn.EmbeddingBag",
        make % (args.threads, rows), 1000.0, 3)
