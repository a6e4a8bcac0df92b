"""A trained DLRM that predicts: Criteo Kaggle layers, 26 tables of 16 columns, the same weights in
neo (examples/neo.py's library), PyTorch and ONNX Runtime; each gets its inputs prepared. One sample
at a time: the median and the 99th percentile over calls in turn; and batches of 512."""

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time

from common import BUILD, Report, Turns, begin, quantile, same, spread, torch_with

args = begin(__doc__)
torch = torch_with(args)
import numpy  # noqa: E402: after the cores are chosen
from models import DENSE, LAYERS, TABLES, Dense  # noqa: E402

ROOT = os.path.join(BUILD, "..")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))
import neo  # noqa: E402

report = Report(args, "serve")
BOTTOM, TOP, ROWS = LAYERS["kaggle"]
ROWS = ROWS // 10 if args.quick else ROWS
BATCH, SAMPLES = 512, 64


class Predictor(torch.nn.Module):
    """The layers of models.Dense, with the tables, without the loss. All tables are one, as ONNX
    knows no list of them."""

    def __init__(self, weights):
        super().__init__()
        self.dense = Dense(BOTTOM, TOP)
        tables = [weights["bags.C%d.weight" % (t + 1)] for t in range(TABLES)]
        self.table = torch.nn.Embedding.from_pretrained(torch.from_numpy(numpy.concatenate(tables)))
        self.register_buffer("first", torch.arange(TABLES) * ROWS)
        with torch.no_grad():
            for name, p in self.dense.named_parameters():
                p.copy_(torch.from_numpy(weights[name]))

    def forward(self, dense, ids):
        x = self.dense.bottom(dense)
        t = torch.cat([x.unsqueeze(1), self.table(ids + self.first)], 1)
        z = torch.bmm(t, t.transpose(1, 2))[:, self.dense.rows, self.dense.cols]
        return torch.sigmoid(self.dense.top(torch.cat([x, z], 1)).squeeze(1))


class Prepared:
    """neo_model_predict on inputs whose descriptions are made before."""

    def __init__(self, model, dense, ids):
        n = len(dense)
        self.model, self.dense, self.out = model, dense, numpy.zeros(n, numpy.float32)
        self.ids = numpy.ascontiguousarray(ids.T)
        self.offsets = numpy.arange(n * TABLES + 1)
        tensor = neo.Tensor(dense.ctypes.data, dense.shape, (DENSE, 1), 2, neo.F32)
        sparse = neo.Jagged(n, TABLES, neo.I64, self.offsets.ctypes.data, self.ids.ctypes.data)
        out = ctypes.c_void_p(self.out.ctypes.data)
        self.call = (model.model, model.scratch, tensor, ctypes.byref(sparse), out)

    def __call__(self):
        if self.model.neo.neo_model_predict(*self.call):
            raise RuntimeError(self.model.neo.neo_last_error().decode())
        return self.out


def onnx_session(peer, path):
    import onnxruntime

    example = (torch.zeros(2, DENSE), torch.zeros(2, TABLES, dtype=torch.int64))
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(peer, example, dynamo=True, verbose=False,
                                dynamic_shapes=({0: batch}, {0: batch}),
                                input_names=["dense", "ids"])
    program.save(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def subjects_of(n, count, model, peer, session):
    """Functions of the number of a call, over `count` inputs of n samples."""
    draw = numpy.random.default_rng(n)
    dense = [draw.random((n, DENSE), numpy.float32) for _ in range(count)]
    ids = [draw.integers(0, ROWS, (n, TABLES)) for _ in range(count)]
    ours = [Prepared(model, d, i) for d, i in zip(dense, ids)]
    theirs = [(torch.from_numpy(d), torch.from_numpy(i)) for d, i in zip(dense, ids)]
    feeds = [{"dense": d, "ids": i} for d, i in zip(dense, ids)]
    subjects = {"neo": lambda k: ours[k % count](), "PyTorch": lambda k: peer(*theirs[k % count])}
    if session:
        subjects["ONNX Runtime"] = lambda k: session.run(None, feeds[k % count])[0]
    for name, run in subjects.items():
        same("%s, batch %d" % (name, n), ours[0](), run(0), 1e-4)
    return subjects


def one_sample(subjects):
    """Calls in blocks of 500, in turn, by the wall clock as a request waits. A call that the system
    did not switch away from had the core to itself: others are left out, and counted."""
    switches = lambda: resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    times, left_out = {name: [] for name in subjects}, dict.fromkeys(subjects, 0)
    for block in range(2 if args.quick else 12):
        for name, run in subjects.items():
            run(block)
            for k in range(500):
                before = switches()
                start = time.perf_counter_ns()
                run(k)
                took = (time.perf_counter_ns() - start) / 1e3
                if switches() == before:
                    times[name].append(took)
                else:
                    left_out[name] += 1
    for name, took in times.items():
        p50, p99, calls = quantile(took, 0.5), quantile(took, 0.99), left_out[name] + len(took)
        print("# %s: p50 %.1f us, p99 %.1f us, %.2f times as long; %d of %d calls were interrupted"
              % (name, p50, p99, p99 / p50, left_out[name], calls))
    ours = times["neo"]
    for peer in [name for name in subjects if name != "neo"]:
        for name, q, goal in (("p50", 0.5, {"target": 2.0}),
                              ("p99", 0.99, {"target": None, "most": 2 * quantile(ours, 0.5)})):
            a, b = quantile(ours, q), quantile(times[peer], q)
            report.line(what="one sample, " + name, peer=peer, unit="us", neo=a, theirs=b,
                        ratio=b / a, spread=spread(ours), turns=len(ours), **goal)


with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
    dlrm = os.environ.get("NEO_DLRM", os.path.join(ROOT, "dlrm"))
    shape = ["--dim", BOTTOM[-1], "--bottom", "-".join(map(str, [DENSE] + BOTTOM)), "--top",
             "-".join(map(str, TOP)), "--rows", ROWS, "--synthetic", 4096, "--repro-shards", 1,
             "--checkpoint", folder]
    subprocess.run([dlrm, *map(str, shape)], check=True, capture_output=True)
    library = os.path.join(ROOT, "libneo_serve.so")
    model = neo.Model(folder, library=library, max_batch=BATCH, threads=args.threads)
    peer, session = Predictor(neo.weights(folder)).eval(), None
    try:
        session = onnx_session(peer, os.path.join(folder, "model.onnx"))
    except ImportError as error:
        report.skip("one sample, p50", "ONNX Runtime", str(error), 2.0)
    one_sample(subjects_of(1, SAMPLES, model, peer, session))
    subjects = subjects_of(BATCH, 8, model, peer, session)
    turns = Turns(args, subjects, turns=21, milliseconds=30).run()
    for name in [name for name in subjects if name != "neo"]:
        report.turns("batch of %d" % BATCH, turns, name, 1.5, work=1e6 * BATCH, unit="ksamples/s")
