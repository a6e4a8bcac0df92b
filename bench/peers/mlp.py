"""The layers of the two DLRMs: forward, dX and dW; neo against what torch.nn.functional.linear and
its backward call (addmm and mm, into memory that is there already), against OpenBLAS (without the
bias), and beside the bare loop of the same product (../bare.h). Then of bf16, against PyTorch
alone, whose bias and dW are bf16 where neo's are f32; they are judged where the processor has
AMX."""

import ctypes

from common import Neo, Report, Turns, begin, median, openblas, same, torch_with

args = begin(__doc__)
torch = torch_with(args, huge_pages=True)
neo, sgemm = Neo(), openblas(args.threads)
ctx = neo.ctx(args.threads)

MODELS = {  # (in, out) of the layers
    "kaggle": ([13, 512, 256, 64, 16], [367, 512, 256, 1]),
    "mlperf": ([13, 512, 256, 128], [479, 1024, 1024, 512, 256, 1]),
}
WIDTHS = [widths for model in MODELS.values() for widths in model]
SHAPES = sorted({pair for widths in WIDTHS for pair in zip(widths, widths[1:])})
KINDS = ("forward", "dX", "dW")
BATCHES = (128, 2048) if args.quick else (128, 2048, 16384)


def roofline_ns(flops, moved, peak):
    """The least time: multiply-adds at the peak, or the bytes, each once, at the rate at which so
    many bytes are read again and again."""
    return max(flops / (peak * args.threads), moved / neo.read(ctx, int(moved)))


def measure(batch, n_in, n_out, bf16=0):
    dtype, peak = (torch.bfloat16, neo.bf16) if bf16 else (torch.float32, neo.fma)
    sizes = (batch, n_in), (n_out, n_in), (batch, n_out)
    x, w, dz = ((torch.rand(*size) - 0.5).to(dtype) for size in sizes)
    bias2 = (torch.rand(n_out) - 0.5).to(dtype)
    bias = bias2.float()
    y, dx, dw = torch.zeros_like(dz), torch.zeros_like(x), torch.zeros(n_out, n_in)
    spare = torch.zeros(max((rows + 14) * (cols + 32) for rows, cols in sizes))
    y2, dx2, dw2 = torch.zeros_like(y), torch.zeros_like(dx), torch.zeros_like(w)
    xp, wp, zp = x.data_ptr(), w.data_ptr(), dz.data_ptr()
    shape = (ctx, bf16, batch, n_in, n_out)
    wt, zt = w.t(), dz.t()
    flops = 2.0 * batch * n_in * n_out
    moved = (2.0 if bf16 else 4.0) * (batch * n_in + n_in * n_out + batch * n_out)
    inner = 16 if flops < 1e7 else 1
    kinds = {
        "forward": (lambda i: neo.linear(*shape, xp, wp, bias.data_ptr(), y.data_ptr(), inner),
                    lambda i: torch.addmm(bias2, x, wt, out=y2), y, y2,
                    (0, 1, batch, n_out, n_in, xp, wp)),
        "dX": (lambda i: neo.linear_back(*shape, xp, wp, zp, dx.data_ptr(), None, inner),
               lambda i: torch.mm(dz, w, out=dx2), dx, dx2,
               (0, 0, batch, n_in, n_out, zp, wp)),
        "dW": (lambda i: neo.linear_back(*shape, xp, wp, zp, None, dw.data_ptr(), inner),
               lambda i: torch.mm(zt, x, out=dw2), dw, dw2,
               (1, 0, n_out, n_in, batch, zp, xp)),
    }
    for kind, (ours, theirs, a, b, product) in kinds.items():
        ours(0), theirs(0)
        what = "%s %d x %d x %d" % (kind, batch, n_in, n_out)
        same(what, a.float(), b.float(), 1e-2 if bf16 else 2e-5)
        subjects = {"neo": ours, "torch": theirs}
        scale = ctypes.c_double(0)
        bare = (xp, wp, zp, spare.data_ptr())
        if not bf16:
            neo.bare(ctx, KINDS.index(kind), *sizes[0], n_out, *bare, ctypes.byref(scale), 0)
        if scale.value > 0:
            subjects["bare"] = lambda i: neo.bare(ctx, KINDS.index(kind), *sizes[0], n_out, *bare,
                                                  None, inner)
        if sgemm and not bf16:
            subjects["openblas"] = lambda i: neo.blas(sgemm, *product, b.data_ptr(), inner)
        turns = Turns(args, subjects, turns=9 if bf16 or batch > 2048 else 15,
                      milliseconds=2 if bf16 else 3,
                      inner={"neo": inner, "openblas": inner,
                             "bare": inner / scale.value if scale.value > 0 else 1})
        peaks = [peak()]
        turns.run(between=lambda: peaks.append(peak()))
        what = "%s M=%d %d->%d" % (kind, batch, n_in, n_out)
        least = 100 * roofline_ns(flops, moved, max(peaks))
        ceiling = least / median(turns.ns["neo"])
        if bf16:
            target = None if not amx else 0.8 if n_out == 1 else 1.0
            Report(args, "mlp bf16").turns(what, turns, "torch", target, work=flops,
                                           unit="GFLOP/s", label="F.linear", ceiling=ceiling)
            continue
        report = Report(args, "mlp")
        if scale.value > 0:
            report.turns(what, turns, "bare", None, work=flops, unit="GFLOP/s", label="bare loop")
        if sgemm:
            report.turns(what, turns, "openblas", None, work=flops, unit="GFLOP/s")
        report.turns(what, turns, "torch", 0.8 if n_out == 1 else 1.0, work=flops,
                     unit="GFLOP/s", label="F.linear", ceiling=ceiling, ceiling_target=60)


amx = neo.bf16_isa() == b"amx"
for batch in BATCHES:
    for n_in, n_out in SHAPES:
        measure(batch, n_in, n_out)
        if batch <= 2048:
            measure(batch, n_in, n_out, bf16=1)
neo.ctx_free(ctx)
