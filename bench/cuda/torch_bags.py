"""The bags of bench/cuda/ops.c by torch.nn.EmbeddingBag, and by FBGEMM, where that is, on a GPU.

    python3 bench/cuda/torch_bags.py [JSON] [--only torch|fbgemm]

JSON: what build/bench/cuda --json wrote, for the ratios.

32 tables of 10^6 rows, 4096 samples, 20 ids per bag, f32 (and f16, forward), four batches in turn,
on the GPU before the clock starts. The forward is a loop over the tables: torch has no call for
many. The backward, with sparse=True, is .backward() from a given gradient and one step of
torch.optim.SparseAdam; SparseAdam keeps two numbers for each weight, so it moves more than the
row-wise Adagrad of bench/cuda/ops.c, which torch has not: torch.optim.Adagrad with sparse gradients
is measured beside it. FBGEMM has one call for all tables, whose backward steps them by row-wise
Adagrad, as bench/cuda/ops.c does; its rows of f16 are rounded randomly, as neo's. Values count the
bytes of bench/cuda/ops.c for the same batch. A line is
    bench <name> value=<x> unit=GB/s ceiling=none [peer=neo ratio=<x>] [spread=<percent>]
ratio: torch's rate over neo's; below 1, neo is faster."""
import json
import sys
import time

try:
    import torch
except ImportError:
    print("# skipped torch: it is not installed")
    sys.exit(0)
if not torch.cuda.is_available():
    print("# skipped torch: it finds no GPU (torch %s)" % torch.__version__)
    sys.exit(0)
try:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)
    fbgemm = ""
except Exception as error:
    fbgemm = str(error).splitlines()[0]

TABLES, ROWS, SAMPLES, LENGTH, BATCHES, ROUNDS = 32, 1000000, 4096, 20, 4, 21


def neo_figures(path):
    figures = {}
    if path:
        with open(path) as f:
            for line in f:
                figure = json.loads(line)
                figures[figure["bench"]] = figure["value"]
    return figures


def batches(zipf):
    """BATCHES x TABLES tensors of ids; Zipf 1.15, the popular rows spread over the table."""
    random = torch.Generator(device="cuda").manual_seed(1)
    count = SAMPLES * LENGTH
    if zipf:
        cdf = torch.arange(1, ROWS + 1, device="cuda", dtype=torch.float64).pow(-1.15).cumsum(0)
        cdf /= cdf[-1].clone()

    def ids():
        if not zipf:
            return torch.randint(ROWS, (count,), generator=random, device="cuda")
        u = torch.rand(count, generator=random, device="cuda", dtype=torch.float64)
        return torch.searchsorted(cdf, u).clamp_(max=ROWS - 1) * 7919 % ROWS

    return [[ids() for _ in range(TABLES)] for _ in range(BATCHES)]


def timed(calls):
    """The median seconds of a call, and the distance of the quartiles in percent."""
    times = []
    for r in range(ROUNDS + 2):
        spent = 0.0
        for prepare, call in calls:
            if prepare:
                prepare()
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            spent += time.perf_counter() - start
        if r >= 2:
            times.append(spent / len(calls))
    times.sort()
    median = times[len(times) // 2]
    return median, 100 * (times[3 * len(times) // 4] - times[len(times) // 4]) / median


def report(name, label, bytes_moved, seconds, spread, neo):
    value = bytes_moved / seconds / 1e9
    line = "bench %s value=%.4g unit=GB/s ceiling=none" % (label, value)
    if name in neo:
        line += " peer=neo ratio=%.3f" % (value / neo[name])
    print(line + " spread=%.1f" % spread, flush=True)


def measure(dim, dtype, zipf, neo):
    tables = [torch.nn.EmbeddingBag(ROWS, dim, mode="sum", sparse=True, device="cuda", dtype=dtype)
              for _ in range(TABLES)]
    data = batches(zipf)
    offsets = torch.arange(0, SAMPLES * LENGTH, LENGTH, device="cuda")
    half = dtype == torch.float16
    tail = "%s.d%d%s" % ("zipf" if zipf else "uniform", dim, ".f16" if half else "")
    row, ids = dim * (2 if half else 4), TABLES * SAMPLES * LENGTH
    out = TABLES * SAMPLES * dim * 4
    unique = sum(t.unique().numel() for batch in data for t in batch) / BATCHES

    def forward(batch):
        return [table(i, offsets) for table, i in zip(tables, batch)]

    with torch.no_grad():
        seconds, spread = timed([(None, lambda b=b: forward(b)) for b in data])
    name = "bags.forward." + tail
    report(name, "torch." + name, ids * (row + 8) + out, seconds, spread, neo)
    if dtype != torch.float32:
        return
    dout = [torch.randn(SAMPLES, dim, device="cuda") for _ in range(TABLES)]
    weights = [table.weight for table in tables]
    name, bytes_moved = "bags.backward." + tail, unique * (2 * row + 8) + out + 8 * ids
    for label, kind in (("sparse_adam", torch.optim.SparseAdam), ("adagrad", torch.optim.Adagrad)):
        optim, held = None, []
        try:
            optim = kind(weights, lr=0.01)

            def prepare(batch):
                optim.zero_grad(set_to_none=True)
                held[:] = forward(batch)

            def backward():
                torch.autograd.backward(held, dout)
                optim.step()

            calls = [(lambda b=b: prepare(b), backward) for b in data]
            seconds, spread = timed(calls)
            report(name, "torch.%s.%s" % (name, label), bytes_moved, seconds, spread, neo)
        except RuntimeError as error:
            # Out of memory: the state is as large as the tables, or twice.
            print("# skipped torch.%s.%s: %s" % (name, label, str(error).splitlines()[0]))
        held.clear()
        for w in weights:
            w.grad = None
        del optim
        torch.cuda.empty_cache()


def measure_fbgemm(dim, dtype, zipf, neo):
    half = dtype == torch.float16
    bags = SplitTableBatchedEmbeddingBagsCodegen(
        [(ROWS, dim, EmbeddingLocation.DEVICE, ComputeDevice.CUDA)] * TABLES, learning_rate=0.01,
        weights_precision=SparseType.FP16 if half else SparseType.FP32, eps=1e-8,
        output_dtype=SparseType.FP32, optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        pooling_mode=PoolingMode.SUM, stochastic_rounding=half)
    weights = bags.split_embedding_weights()
    for w in weights:
        w.uniform_(-0.01, 0.01)
    data = [torch.cat(batch) for batch in batches(zipf)]
    offsets = torch.arange(0, TABLES * SAMPLES * LENGTH + 1, LENGTH, device="cuda")
    tail = "%s.d%d%s" % ("zipf" if zipf else "uniform", dim, ".f16" if half else "")
    row, ids = dim * (2 if half else 4), TABLES * SAMPLES * LENGTH
    out = TABLES * SAMPLES * dim * 4
    unique = sum(t.unique().numel() for b in data for t in b.view(TABLES, -1)) / BATCHES
    with torch.no_grad():
        last = data[0].view(TABLES, SAMPLES, LENGTH)[-1]
        want = torch.nn.functional.embedding_bag(last, weights[-1].float(), mode="sum")
        torch.testing.assert_close(bags(data[0], offsets)[:, -dim:], want, rtol=1e-3, atol=1e-5)
        seconds, spread = timed([(None, lambda b=b: bags(b, offsets)) for b in data])
    name = "bags.forward." + tail
    report(name, "fbgemm." + name, ids * (row + 8) + out, seconds, spread, neo)
    dout, held = torch.randn(SAMPLES, TABLES * dim, device="cuda"), []

    def prepare(batch):
        held[:] = [bags(batch, offsets)]

    calls = [(lambda b=b: prepare(b), lambda: held[0].backward(dout)) for b in data]
    seconds, spread = timed(calls)
    name, bytes_moved = "bags.backward." + tail, unique * (2 * row + 8) + out + 8 * ids
    report(name, "fbgemm." + name, bytes_moved, seconds, spread, neo)


def main():
    words = sys.argv[1:]
    only = words.pop() if "--only" in words[-2:-1] else ""
    words = [w for w in words if w != "--only"]
    neo = neo_figures(words[0] if words else None)
    gpu = torch.cuda.get_device_name(0)
    print("# torch %s, CUDA %s, %s" % (torch.__version__, torch.version.cuda, gpu))
    if fbgemm:
        print("# skipped FBGEMM: %s" % fbgemm)
    subjects = [f for f, name in ((measure, "torch"), (measure_fbgemm, "fbgemm"))
                if only in ("", name) and not (name == "fbgemm" and fbgemm)]
    for dim in (128, 64, 16):
        for dtype in (torch.float32, torch.float16):
            for zipf in (False, True):
                for f in subjects:
                    try:
                        f(dim, dtype, zipf, neo)
                    except RuntimeError as error:
                        why = str(error).splitlines()[0]
                        print("# skipped %s d%d %s: %s" % (f.__name__, dim, dtype, why))
                    torch.cuda.empty_cache()


main()
