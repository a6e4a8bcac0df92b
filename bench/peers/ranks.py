"""A training step of the DLRM (Criteo Kaggle layers) on two ranks with one thread each, tables
whole on one of them: neo's example, ranks as threads, against torchrec, ranks as processes over
gloo, on the same plan."""

import ctypes
import os
import select
import subprocess
import sys
import tempfile

from common import Neo, Report, Turns, begin, integers, torch_with

RANKS = 2
args = begin(__doc__)
torch = torch_with(args)
from models import DENSE, LAYERS, TABLES  # noqa: E402: after the cores are chosen

neo, side, report = Neo("dlrm"), Neo(), Report(args, "two-rank step")
BATCHES = 8


class Peers:
    """The processes; run(n): all take n steps."""

    def __init__(self, directory):
        here = os.path.dirname(os.path.abspath(__file__))
        command = [sys.executable, os.path.join(here, "torchrec_rank.py")]
        self.processes = []
        for r in range(RANKS):
            with open(os.path.join(directory, "rank%d.log" % r), "w") as log:
                self.processes.append(subprocess.Popen(
                    command + [str(r), str(RANKS), directory], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=log, text=True))
        self.directory = directory
        self.answers()

    def answers(self):
        """A line of each. One that ends ends all: the others would wait for it."""
        lines, waiting = {}, {p.stdout: r for r, p in enumerate(self.processes)}
        while waiting:
            ready = select.select(list(waiting), [], [], 300)[0]
            for pipe in ready:
                r = waiting.pop(pipe)
                lines[r] = pipe.readline().strip()
            failed = [r for r, line in lines.items() if not line]
            if failed or not ready:
                for p in self.processes:
                    p.kill()
                name = "rank%d.log" % (failed + [0])[0]
                with open(os.path.join(self.directory, name)) as log:
                    said = log.read().strip().splitlines() or ["a rank is gone, or slow"]
                    raise RuntimeError("torchrec: %s" % said[-1][:150])
        return lines.values()

    def run(self, steps):
        for p in self.processes:
            p.stdin.write("%d\n" % steps)
            p.stdin.flush()
        return sum(float(line) for line in self.answers()) / RANKS

    def stop(self):
        for p in self.processes:
            if p.poll() is None:
                p.stdin.close()
        for p in self.processes:
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()


def floats(address, shape):
    n = 1
    for s in shape:
        n *= s
    memory = (ctypes.c_float * n).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32).view(*shape).clone()


def measure(batch, directory):
    bottom, top, rows = LAYERS["kaggle"]
    rows = rows // 10 if args.quick else rows
    what = "kaggle B=%d" % batch
    dense, label = torch.rand(BATCHES, batch, DENSE), (torch.rand(BATCHES, batch) < 0.25).float()
    ids = (torch.rand(BATCHES, TABLES, batch) ** 4 * rows).long()
    widths = ("-".join(map(str, [DENSE] + bottom)).encode(), "-".join(map(str, top)).encode())
    neo.start(RANKS, bottom[-1], batch, rows, *widths, dense.data_ptr(), label.data_ptr(),
              ids.data_ptr(), BATCHES)
    place = [neo.place(t) for t in range(TABLES)]
    if min(place) < 0 or len(set(place)) != RANKS:
        raise AssertionError("tables are not whole on both ranks: %s" % place)
    # initial values depend on names and seed alone: those of one rank
    one = side.dlrm(1, 0, batch, rows, integers(bottom), len(bottom), integers(top), len(top), 0, 0)
    shapes, n_in = [], DENSE
    for widths in (bottom, top):
        for n_out in widths:
            shapes += [(n_out, n_in), (n_out,)]
            n_in = n_out
        n_in = bottom[-1] + TABLES * (TABLES + 1) // 2
    job = dict(bottom=bottom, top=top, rows=rows, place=place, dense=dense, label=label, ids=ids,
               layers=[floats(side.dlrm_param(one, i), s) for i, s in enumerate(shapes)],
               tables=[floats(side.dlrm_table(one, t), (rows, bottom[-1])) for t in range(TABLES)])
    side.dlrm_free(one)
    torch.save(job, os.path.join(directory, "job.pt"))
    peers, loss = Peers(directory), ctypes.c_double()
    try:
        for i in range(6):
            neo.run(1, ctypes.byref(loss))
            theirs = peers.run(1)
            if not abs(loss.value - theirs) <= 1e-3 * abs(theirs):
                text = "%s: the loss of step %d is %g, torchrec's %g"
                raise AssertionError(text % (what, i, loss.value, theirs))
        steps = 4
        subjects = {"neo": lambda i: neo.run(steps, None), "torchrec": lambda i: peers.run(steps)}
        turns = Turns(args, subjects, turns=15, calls=1, pause=0.05)
        turns.clock = 1  # the wall clock: the CPU time of the peer is that of other processes
        turns.run()
        turns.clocks = None
        for name in turns.ns:
            turns.ns[name] = [t / steps for t in turns.ns[name]]
        report.turns(what, turns, "torchrec", 3.0, label="torchrec, gloo")
    finally:
        peers.stop()
        neo.stop()


for batch in (128, 2048):
    with tempfile.TemporaryDirectory() as directory:
        try:
            measure(batch, directory)
        except RuntimeError as error:
            report.skip("kaggle B=%d" % batch, "torchrec, gloo", str(error), 3.0)
