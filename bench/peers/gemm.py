"""Matrix products: f32 by neo, OpenBLAS (the one in numpy's wheel) and PyTorch's BLAS; bf16,
rounded sums of f32, by neo and PyTorch. Those of bf16 are judged where the processor has AMX; on
others neo computes what AMX would, bit for bit."""

from common import Neo, Report, Turns, begin, median, openblas, same, torch_with

args = begin(__doc__)
torch = torch_with(args, huge_pages=True)
neo = Neo()
ctx = neo.ctx(args.threads)
sgemm = openblas(args.threads)


def measure(size, trans_a, trans_b, bf16=0):
    m = n = k = size
    dtype, peak = (torch.bfloat16, neo.bf16) if bf16 else (torch.float32, neo.fma)
    a, b = ((torch.rand(*shape) - 0.5).to(dtype) for shape in ((m, k), (k, n)))
    c, other = torch.zeros(m, n, dtype=dtype), torch.zeros(m, n, dtype=dtype)
    op_a, op_b = a.t() if trans_a else a, b.t() if trans_b else b
    pointers = (a.data_ptr(), b.data_ptr())
    shape = (trans_a, trans_b, m, n, k)
    subjects = {"neo": lambda i: neo.gemm(ctx, bf16, *shape, *pointers, c.data_ptr(), 1),
                "torch": lambda i: torch.mm(op_a, op_b, out=other)}
    if sgemm and not bf16:
        subjects["openblas"] = lambda i: neo.blas(sgemm, *shape, *pointers, other.data_ptr(), 1)
    subjects["neo"](0)
    for name in list(subjects)[1:]:
        other.zero_()
        subjects[name](0)
        same("%s %d" % (name, size), c.float(), other.float(), 1e-2 if bf16 else 1e-5)
    turns = Turns(args, subjects, turns=7 if bf16 else {1024: 15, 2048: 11}.get(size, 5),
                  milliseconds=20)
    peaks = [peak()]
    turns.run(between=lambda: peaks.append(peak()))
    what = "%s %d^3" % ("TN"[not trans_a] + "TN"[not trans_b], size)
    flops = 2.0 * m * n * k
    share = 100 * flops / median(turns.ns["neo"]) / (max(peaks) * args.threads)
    if bf16:
        Report(args, "gemm bf16").turns(what, turns, "torch", 0.95 if amx else None, work=flops,
                                        unit="GFLOP/s", ceiling=share)
        return
    report = Report(args, "gemm")
    turns.add_best()
    for peer in turns.names[1:]:
        report.turns(what, turns, peer, None, work=flops, unit="GFLOP/s", ceiling=share)
    report.turns(what, turns, "best", 0.95, work=flops, unit="GFLOP/s", label="better of both",
                 ceiling=share)


amx = neo.bf16_isa() == b"amx"
for size in (1024, 2048) if args.quick else (1024, 2048, 4096):
    for trans_a, trans_b in ((0, 1), (0, 0), (1, 0)):
        measure(size, trans_a, trans_b)
        if size <= 2048:
            measure(size, trans_a, trans_b, bf16=1)
neo.ctx_free(ctx)
