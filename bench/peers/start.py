"""From the start of a process to its first training step (Criteo Kaggle layers, batch of 128,
tables not initialised): neo's program, and for comparison a process that imports torch and
leaves."""

import os
import subprocess
import sys
import time

from common import BUILD, Report, begin, median, spread

args = begin(__doc__)
report = Report(args, "start")
program = [os.path.join(BUILD, "neo_start"), "16", "128", str(args.threads)]
peer = [sys.executable, "-c", "import torch; print('step')"]


def once(command):
    start = time.perf_counter_ns()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        line = process.stdout.readline()
        t = time.perf_counter_ns() - start
        process.stdout.read()
    if process.returncode != 0 or not line.startswith(b"step"):
        raise RuntimeError("%s: %s" % (command[0], line.decode().strip()))
    return t / 1e6


once(program), once(peer)
ours, theirs = [], []
for _ in range(5 if args.quick else 11):
    ours += [once(program), once(program)]
    theirs.append(once(peer))
report.line(what="process start to first step", peer="import torch", unit="ms", neo=median(ours),
            theirs=median(theirs), ratio=median(theirs) / median(ours), spread=spread(ours),
            target=None, most=50.0, turns=len(ours))
