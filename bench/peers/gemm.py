"""Matrix products f32: neo, OpenBLAS (the one in numpy's wheel), and PyTorch's BLAS."""

from common import Neo, Report, Turns, begin, median, openblas, same, torch_with

args = begin(__doc__)
torch = torch_with(args)
neo, report = Neo(), Report(args, "gemm")
ctx = neo.ctx(args.threads)
sgemm = openblas(args.threads)


def measure(size, trans_a, trans_b):
    m = n = k = size
    a, b = torch.rand(m, k) - 0.5, torch.rand(k, n) - 0.5
    c, other = torch.zeros(m, n), torch.zeros(m, n)
    op_a, op_b = a.t() if trans_a else a, b.t() if trans_b else b
    pointers = (a.data_ptr(), b.data_ptr())
    subjects = {"neo": lambda i: neo.gemm(ctx, trans_a, trans_b, m, n, k, *pointers, c.data_ptr(), 1),
                "torch": lambda i: torch.mm(op_a, op_b, out=other)}
    if sgemm:
        subjects["openblas"] = lambda i: neo.blas(sgemm, trans_a, trans_b, m, n, k, *pointers, other.data_ptr(), 1)
    subjects["neo"](0)
    for name in list(subjects)[1:]:
        other.zero_()
        subjects[name](0)
        same("%s %d" % (name, size), c, other, 1e-5)
    turns = Turns(args, subjects, turns={1024: 21, 2048: 15}.get(size, 9), milliseconds=20)
    peaks = [neo.fma()]
    turns.run(between=lambda: peaks.append(neo.fma()))
    # the better of the two, turn by turn
    turns.ns["best"] = [min(v) for v in zip(*(turns.ns[name] for name in turns.names[1:]))]
    what = "%s %d^3" % ("TN"[not trans_a] + "TN"[not trans_b], size)
    flops = 2.0 * m * n * k
    share = 100 * flops / median(turns.ns["neo"]) / (max(peaks) * args.threads)
    for peer in turns.names[1:]:
        report.turns(what, turns, peer, None, work=flops, unit="GFLOP/s", ceiling=share)
    report.turns(what, turns, "best", 0.95, work=flops, unit="GFLOP/s", label="better of both", ceiling=share)


for size in (1024, 2048) if args.quick else (1024, 2048, 4096):
    for trans_a, trans_b in ((0, 1), (0, 0), (1, 0)):
        measure(size, trans_a, trans_b)
neo.ctx_free(ctx)
