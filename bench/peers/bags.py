"""Embedding bags: 32 tables, 512 samples, 20 ids per bag, rows of f32 and f16. Forward, and
backward with the optimizer's step, against FBGEMM's table-batched embeddings on the CPU (`TBE`, for
training; `nbit TBE`, for inference) and torch.nn.EmbeddingBag (one module per table; backward with
sparse gradients and torch.optim.Adagrad). And forward of neo over 8 buckets of rows, as it is on
any number of ranks up to 8, beside neo over one and the same peers: rows of f32, uniform ids, 1 to
100 in a bag.

The rows of neo are in memory that neo allocates (and asks huge pages for), those of all peers in
one that PyTorch allocates; where there is too little for both, all share the latter, and the name
ends in "shared"; where there is too little for that, a shape is not measured, which a line says.
Four batches take turns: one that is repeated would stay in the cache. Before it is timed, each
forward is compared with neo's, and each backward's rows, from the same rows and an empty state.
"""

import ctypes
import time
import warnings

from common import (BackwardTurns, Neo, Report, Turns, available_bytes, begin, median, same,
                    torch_with)

args = begin(__doc__)
torch = torch_with(args)
import numpy  # noqa: E402: after the cores are chosen

warnings.filterwarnings("ignore", message="Sparse invariant checks")
try:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_inference import (
        IntNBitTableBatchedEmbeddingBagsCodegen)
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)

    fbgemm = ""
except Exception as error:  # it is a binary that may not fit this torch
    fbgemm = "fbgemm_gpu does not load: %s" % error

neo = Neo()
ctx = neo.ctx(args.threads)
forward_report, backward_report = Report(args, "bags forward"), Report(args, "bags backward")
bucket_report = Report(args, "bags buckets")
TABLES, SAMPLES, LENGTH, BATCHES, LR = 32, 512, 20, 4, 0.01
LENGTHS = 1, 2, 5, 20, 100  # with buckets
IDS = TABLES * SAMPLES * LENGTH


def draw(random, rows, zipf, count):
    if not zipf:
        return random.integers(0, rows, count)
    cdf = numpy.cumsum(numpy.arange(1, rows + 1) ** -1.15)
    at = numpy.searchsorted(cdf, random.random(count) * cdf[-1])
    return at * 7919 % rows  # the popular ones spread over the table


def view(address, dtype, rows, dim):
    """A tensor over memory of neo's."""
    size = rows * dim * (2 if dtype is torch.float16 else 4)
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(rows, dim)


def fill(weights):
    """Some random numbers, again and again: much quicker than as many."""
    block = weights[: 1 << 22]
    block.uniform_(-0.05, 0.05)
    for first in range(1 << 22, weights.numel(), 1 << 22):
        part = weights[first:first + (1 << 22)]
        part.copy_(block[: part.numel()])


class Case:
    """Tables of one shape. MemoryError: they do not fit."""

    def __init__(self, rows, dim, dtype):
        self.rows, self.dim, self.dtype = rows, dim, dtype
        self.shape, self.shared, self.probe = shape_name(rows, dim, dtype), "", None
        torch_dtype = torch.float16 if dtype else torch.float32
        count = TABLES * rows * dim
        size = count * (2 if dtype else 4)
        # The optimizers' states; batches, gradients and what the peers take in between.
        rest = TABLES * rows * 8 + (2 << 30)
        if size + rest > available_bytes():
            raise MemoryError("memory is short: %.1f GB needed, %.1f GB available" % (
                (size + rest) / 1e9, available_bytes() / 1e9))
        # One set of rows for all peers: the memory that TBE takes for itself, if it is here.
        self.tbe = None if fbgemm else self.make_tbe()
        if self.tbe:
            self.weights = self.tbe.weights_host.data
        else:
            self.weights = torch.empty(count, dtype=torch_dtype)
        if self.weights.numel() != count or self.weights.dtype != torch_dtype:
            raise AssertionError("TBE has %d numbers of %s" % (
                self.weights.numel(), self.weights.dtype))
        fill(self.weights)
        self.tables = [w.view(rows, dim) for w in self.weights.split(rows * dim)]
        self.out = torch.zeros(SAMPLES, TABLES * dim)
        self.dout = torch.rand(SAMPLES, TABLES * dim) - 0.5
        self.room = available_bytes() > size + rest  # for the rows once more
        if self.room:
            self.bags = neo.bags(ctx, TABLES, rows, dim, dtype, 0, 1, SAMPLES, IDS, None)
            data = [neo.bags_data(self.bags, t, 0) for t in range(TABLES)]
            self.neo_tables = [view(address, torch_dtype, rows, dim) for address in data]
        else:
            self.shared = " shared"
            self.bags, self.neo_tables = self.bags_on(self.tables), self.tables
            print("# %s: memory is short, %.1f GB available: neo and its peers share the rows" % (
                self.shape, available_bytes() / 1e9))

    def draw_ids(self, zipf, length=LENGTH):
        random, count = numpy.random.default_rng(1), TABLES * SAMPLES * length
        self.length = length
        self.offsets = torch.arange(0, count + 1, length)
        self.ids = [torch.from_numpy(draw(random, self.rows, zipf, count)) for _ in range(BATCHES)]

    def draw(self, zipf):
        """Other ids; the same rows for all, empty states."""
        self.name = ("zipf " if zipf else "uniform ") + self.shape + self.shared
        self.draw_ids(zipf)
        self.same_rows()
        for t in range(TABLES):
            ctypes.memset(neo.bags_data(self.bags, t, 1), 0, 4 * self.rows)
        self.make_probe()
        if self.tbe:
            self.tbe.momentum1_host.data.zero_()

    def same_rows(self):
        """Undoes that neo and its peers took other numbers of steps."""
        if self.neo_tables is not self.tables:
            for ours, theirs in zip(self.neo_tables, self.tables):
                ours.copy_(theirs)

    def bags_on(self, tables, optim=0, buckets=1, ids=IDS):
        """neo's bags over rows that are there."""
        addresses = (ctypes.c_void_p * TABLES)(*[t.data_ptr() for t in tables])
        return neo.bags(ctx, TABLES, self.rows, self.dim, self.dtype, optim, buckets, SAMPLES, ids,
                        addresses)

    def neo_forward(self, i, bags=None):
        neo.bags_forward(bags or self.bags, TABLES, SAMPLES, self.offsets.data_ptr(),
                         self.ids[i % BATCHES].data_ptr(), self.out.data_ptr())

    def neo_backward(self, i, bags=None):
        neo.bags_backward(bags or self.bags, TABLES, SAMPLES, self.offsets.data_ptr(),
                          self.ids[i % BATCHES].data_ptr(), self.dout.data_ptr(), LR)

    # ---- the ceiling ----

    def make_probe(self):
        """The fastest loops over neo's rows; None where there are none for such rows."""
        if self.probe:
            neo.probe_free(self.probe)
        addresses = lambda of: (ctypes.c_void_p * len(of))(*of)
        rows = addresses([t.data_ptr() for t in self.neo_tables])
        states = addresses([neo.bags_data(self.bags, t, 1) for t in range(TABLES)])
        ids = addresses([ids.data_ptr() for ids in self.ids])
        self.probe = neo.probe(ctx, TABLES, rows, states, self.dtype, self.dim, SAMPLES, LENGTH,
                               BATCHES, ids, self.out.data_ptr())

    def share(self, turns, target):
        """Turn by turn, of the probe's speed."""
        if not self.probe:
            return {}
        return dict(ceiling=100 * median(turns.ratio("probe")), ceiling_target=target)

    def probe_forward(self, i):
        neo.probe_run(self.probe, 0, i % BATCHES, self.probed.data_ptr())

    def probe_backward(self, i):
        neo.probe_run(self.probe, 1, i % BATCHES, self.dout.data_ptr())

    # ---- peers ----

    def torch_bags(self, trains=False):
        """One module per table; they take the ids and offsets of their table, cut beforehand."""
        modules = [torch.nn.EmbeddingBag(self.rows, self.dim, mode="sum", sparse=trains,
                                         _weight=t.detach()) for t in self.tables]
        per_table = [[ids.view(TABLES, -1)[t].contiguous() for t in range(TABLES)]
                     for ids in self.ids]
        offsets = torch.arange(0, SAMPLES * self.length, self.length)
        return modules, lambda i: [m(x, offsets) for m, x in zip(modules, per_table[i % BATCHES])]

    def make_tbe(self):
        precision = SparseType.FP16 if self.dtype else SparseType.FP32
        return SplitTableBatchedEmbeddingBagsCodegen(
            [(self.rows, self.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)] * TABLES,
            weights_precision=precision, output_dtype=SparseType.FP32,
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD, learning_rate=LR, eps=1e-8,
            pooling_mode=PoolingMode.SUM, stochastic_rounding=False, device=torch.device("cpu"))

    def nbit(self):
        precision = SparseType.FP16 if self.dtype else SparseType.FP32
        tables = [("t%d" % t, self.rows, self.dim, precision, EmbeddingLocation.HOST)
                  for t in range(TABLES)]
        tbe = IntNBitTableBatchedEmbeddingBagsCodegen(
            tables, device="cpu", output_dtype=SparseType.FP32, pooling_mode=PoolingMode.SUM)
        size = 2 if self.dtype else 4
        large = self.weights.numel() * size > 0.6 * available_bytes()
        if not self.room or large or self.dim * size % tbe.row_alignment:
            return None  # it fills rows of its own before it takes others
        tbe.fill_random_weights()
        if tbe.weights_host.numel() != self.weights.numel() * size:
            return None  # it pads rows
        tbe.weights_host = self.weights.view(torch.uint8)
        tbe.weights_initialized = True
        narrow = [(ids.to(torch.int32), self.offsets.to(torch.int32)) for ids in self.ids]
        return lambda i: tbe(*narrow[i % BATCHES])

    # ---- forward ----

    def forward(self):
        _, lookup = self.torch_bags()
        subjects = {"neo": self.neo_forward}
        if not fbgemm:
            subjects["TBE"] = lambda i: self.tbe(self.ids[i % BATCHES], self.offsets)
            nbit = self.nbit()
            if nbit and worth(nbit, subjects["TBE"], self.name):
                subjects["nbit TBE"] = nbit
        subjects["EmbeddingBag"] = lookup
        with torch.no_grad():
            for i in range(BATCHES):
                self.neo_forward(i)
                for name in list(subjects)[1:]:
                    got = subjects[name](i)
                    if name == "EmbeddingBag":
                        got = torch.cat(got, 1).float()
                    same("forward %s by %s" % (self.name, name), self.out, got,
                         2e-3 if self.dtype else 1e-5)  # torch rounds its sums to f16
            if self.probe:
                self.probed = torch.zeros_like(self.out)
                self.neo_forward(0)
                self.probe_forward(0)
                same("the probe of %s" % self.name, self.out, self.probed, 0)
                subjects["probe"] = self.probe_forward
            turns = Turns(args, subjects, turns=11, calls=BATCHES).run()
        more = self.share(turns, 90)
        row = self.dim * (2 if self.dtype else 4)
        moved = IDS * (row + 8) + 4.0 * self.out.numel()
        # The target of torch's modules; FBGEMM's is 1.
        of_modules = None if self.dtype else {16: 2.0, 128: 1.3}.get(self.dim)
        for name in [x for x in subjects if x not in ("neo", "probe")]:
            forward_report.turns(self.name, turns, name, 1.0 if "TBE" in name else of_modules,
                                 work=moved, unit="GB/s", **more)
        if fbgemm:
            forward_report.skip(self.name, "TBE", fbgemm, 1.0)

    def buckets(self, length):
        """8 buckets of rows, `length` uniform ids in a bag."""
        self.draw_ids(0, length)
        self.same_rows()
        name = "%s, %d ids per bag" % (self.shape + self.shared, length)
        ids = TABLES * SAMPLES * length
        eight, one = (self.bags_on(self.neo_tables, buckets=n, ids=ids) for n in (8, 1))
        _, lookup = self.torch_bags()
        subjects = {"neo": lambda i: self.neo_forward(i, eight)}
        subjects["neo, 1 bucket"] = lambda i: self.neo_forward(i, one)
        if not fbgemm:
            subjects["TBE"] = lambda i: self.tbe(self.ids[i % BATCHES], self.offsets)
        subjects["EmbeddingBag"] = lookup
        with torch.no_grad():
            for i in range(BATCHES):
                self.neo_forward(i, eight)
                ours = self.out.clone()
                for peer in list(subjects)[1:]:
                    got = subjects[peer](i)
                    got = self.out if got is None else got
                    got = torch.cat(got, 1) if peer == "EmbeddingBag" else got
                    same("buckets of %s by %s" % (name, peer), ours, got, 1e-5)
            turns = Turns(args, subjects, turns=9, calls=BATCHES).run()
        moved = ids * (4.0 * self.dim + 8) + 4.0 * self.out.numel()
        least = 1 / 1.25 if self.dim == 16 else 1 / 1.1
        for peer in list(subjects)[1:]:
            target = least if "neo" in peer else 1.0 if peer == "TBE" else None
            bucket_report.turns(name, turns, peer, target, work=moved, unit="GB/s")
        if fbgemm:
            bucket_report.skip(name, "TBE", fbgemm, 1.0)
        neo.bags_free(eight)
        neo.bags_free(one)

    # ---- backward ----

    def touched(self, run, tables=None):
        """What `run`, once with batch 0, makes of the rows that it touches in two tables; then
        puts them back."""
        tables = tables or self.tables
        chosen = (1, TABLES - 1)
        rows = [self.ids[0].view(TABLES, -1)[t].unique() for t in chosen]
        before = [tables[t][r].clone() for t, r in zip(chosen, rows)]
        run(0)
        steps = torch.cat([(tables[t][r].float() - b.float()).flatten()
                           for t, r, b in zip(chosen, rows, before)])
        for t, r, b in zip(chosen, rows, before):
            tables[t][r] = b
        return steps

    def adagrad(self):
        modules, lookup = self.torch_bags(trains=True)
        optimizer = torch.optim.Adagrad([m.weight for m in modules], lr=LR, eps=1e-8)
        grads = [g.contiguous() for g in self.dout.view(SAMPLES, TABLES, self.dim).unbind(1)]

        def back(out):
            optimizer.zero_grad()
            torch.autograd.backward(out, grads)
            optimizer.step()

        return lookup, back  # back takes what lookup gives

    def backward(self, elementwise):
        """elementwise: also torch's Adagrad, whose state is as large as the tables."""
        subjects, forwards = {"neo": self.neo_backward}, {}
        # Of the largest step; f16 rows are rounded to 2^-15.
        tolerance = 5e-2 if self.dtype else 1e-3
        ours = self.touched(self.neo_backward, self.neo_tables)
        if not fbgemm:
            grad = self.dout
            forwards["TBE"] = lambda i: self.tbe(self.ids[i % BATCHES], self.offsets)
            subjects["TBE"] = lambda out: out.backward(grad)
            theirs = self.touched(lambda i: subjects["TBE"](forwards["TBE"](i)))
            same("backward %s by TBE" % self.name, ours, theirs, tolerance)
        if elementwise:
            lookup, back = self.adagrad()
            forwards["sparse + Adagrad"], subjects["sparse + Adagrad"] = lookup, back
            bags = self.bags_on(self.tables, optim=1)
            ours = self.touched(lambda i: self.neo_backward(i, bags))
            neo.bags_free(bags)
            theirs = self.touched(lambda i: back(lookup(i)))
            same("backward %s by torch" % self.name, ours, theirs, tolerance)
        if self.probe:
            subjects["probe"] = self.probe_backward
        turns = BackwardTurns(args, subjects, forwards, turns=7, calls=BATCHES).run()
        row = self.dim * (2 if self.dtype else 4)
        unique = sum(len(ids.view(TABLES, -1)[t].unique())
                     for ids in self.ids for t in range(TABLES)) / BATCHES
        moved = unique * (2 * row + 8) + 4.0 * self.dout.numel() + 8 * IDS
        for name in [x for x in subjects if x not in ("neo", "probe")]:
            backward_report.turns(self.name, turns, name, 2.0 if name == "TBE" else 5.0,
                                  work=moved, unit="GB/s",
                                  **self.share(turns, 65 if self.dim == 16 else 85))
        if fbgemm:
            backward_report.skip(self.name, "TBE", fbgemm, 2.0)

    def close(self):
        if self.probe:
            neo.probe_free(self.probe)
        neo.bags_free(self.bags)


def worth(slow, fast, name):
    """Whether `slow` is worth the time to measure it."""
    least = []
    for run in (fast, slow):
        times = []
        for i in range(4):
            start = time.process_time_ns()
            run(i)
            times.append(time.process_time_ns() - start)
        least.append(min(times))
    if least[1] > 5 * least[0]:
        print("# %s: nbit TBE takes %.0f times as long as TBE: left out" % (
            name, least[1] / least[0]), flush=True)
    return least[1] <= 5 * least[0]


def shape_name(rows, dim, dtype):
    return "D=%d rows=1e%d %s" % (dim, len(str(rows)) - 1, "f16" if dtype else "f32")


def run(rows, dim, dtype, elementwise):
    try:
        case = Case(rows, dim, dtype)
    except (MemoryError, RuntimeError) as error:  # RuntimeError: of an allocation, by torch or neo
        reason = str(error).splitlines()[0][:150]
        for zipf in ("uniform ", "zipf "):
            forward_report.skip(zipf + shape_name(rows, dim, dtype), "TBE", reason, 1.0)
            backward_report.skip(zipf + shape_name(rows, dim, dtype), "TBE", reason, 2.0)
        return
    for zipf in (0, 1):
        case.draw(zipf)
        case.forward()
        case.backward(elementwise and not dtype)
    for length in LENGTHS if rows == 100_000 and not dtype else ():
        case.buckets(length)
    case.close()


for dim in (16, 64, 128):
    run(100_000, dim, 0, True)
    run(100_000, dim, 1, False)
if not args.quick:
    for dim in (16, 64):
        run(1_000_000, dim, 0, False)
        run(1_000_000, dim, 1, False)
neo.ctx_free(ctx)
