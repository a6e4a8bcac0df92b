"""One training step of the DLRM: forward, loss, backward, row-wise Adagrad on the tables, Adagrad
on the layers; neo against PyTorch, eager and with torch.compile (which gets all but the tables).
The larger one also with layers that multiply bf16, parameters f32, against PyTorch's autocast of
the dense part; judged where the processor has AMX. Beside eager its deterministic mode, which
repeats the bits of one machine with one number of threads; neo's do not depend on either."""

import ctypes

from common import Neo, Report, Turns, begin, integers, same, torch_with

args = begin(__doc__)
torch = torch_with(args)
from models import DENSE, LAYERS, TABLES, Dlrm  # noqa: E402: after the cores are chosen

neo = Neo()
LR, INITIAL, BATCHES = 0.01, 0.1, 8
TARGETS = {  # eager, compile
    ("kaggle", 128): (4, 2), ("kaggle", 2048): (2, 1.5),
    ("mlperf", 128): (3, None), ("mlperf", 2048): (1.5, None),
}


def view(address, *shape):
    """A tensor over memory of neo's."""
    count = 1
    for n in shape:
        count *= n
    memory = (ctypes.c_float * count).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32).view(*shape)


def parameters(model, shapes):
    return [view(neo.dlrm_param(model, i), *shape) for i, shape in enumerate(shapes)]


def measure(name, batch, bf16=0):
    bottom, top, rows = LAYERS[name]
    if args.quick:
        rows //= 10
    report = Report(args, "dlrm step")
    what = "%s B=%d%s" % (name, batch, " bf16" if bf16 else "")
    model = neo.dlrm(args.threads, bf16, batch, rows, integers(bottom), len(bottom), integers(top),
                     len(top), INITIAL, 0)
    weights = [view(neo.dlrm_table(model, t), rows, bottom[-1]).clone() for t in range(TABLES)]
    peer = Dlrm(bottom, top, rows, LR, INITIAL, autocast=bool(bf16), weights=weights)
    params = list(peer.dense.parameters())
    ours = parameters(model, [p.shape for p in params])
    if neo.dlrm_param(model, len(params)):
        raise AssertionError("neo has other layers")
    with torch.no_grad():
        for p, o in zip(params, ours):
            p.copy_(o)

    dense = [torch.rand(batch, DENSE) for _ in range(BATCHES)]
    label = [(torch.rand(batch) < 0.25).float() for _ in range(BATCHES)]
    # A few rows are popular.
    ids = [(torch.rand(TABLES, batch) ** 4 * rows).long() for _ in range(BATCHES)]
    offsets, all_offsets = torch.arange(batch), torch.arange(batch * TABLES + 1)
    loss = ctypes.c_double()

    def neo_step(i, want=None):
        k = i % BATCHES
        neo.dlrm_step(model, dense[k].data_ptr(), label[k].data_ptr(), all_offsets.data_ptr(),
                      ids[k].data_ptr(), LR, want)

    def step_of(m):
        return lambda i: m.step(dense[i % BATCHES], label[i % BATCHES], ids[i % BATCHES], offsets)

    def deterministic(i):
        torch.use_deterministic_algorithms(True)
        subjects["eager"](i)
        torch.use_deterministic_algorithms(False)

    subjects = {"neo": neo_step, "eager": step_of(peer)}
    for i in range(3):
        neo_step(i, ctypes.byref(loss))
        theirs = float(subjects["eager"](i))
        if not abs(loss.value - theirs) <= (1e-2 if bf16 else 1e-4) * abs(theirs):
            text = "%s: the loss of step %d is %g, PyTorch's %g"
            raise AssertionError(text % (what, i, loss.value, theirs))
    for p, o in zip(params, ours):
        same(what + " layers", o, p, 5e-2 if bf16 else 1e-2, off=1e-2 if bf16 else 0)
    t = TABLES - 1
    same(what + " table", view(neo.dlrm_table(model, t), rows, bottom[-1]), peer.tables[t].weight,
         5e-2 if bf16 else 1e-2, off=2e-2 if bf16 else 1e-3)

    if bf16:
        turns = Turns(args, subjects, turns=11, milliseconds=30).run()
        target = 1.5 if batch == 2048 and neo.bf16_isa() == b"amx" else None
        report.turns(what, turns, "eager", target, label="autocast")
        neo.dlrm_free(model)
        return
    eager, compiled = TARGETS[name, batch]
    subjects["deterministic"] = deterministic
    failed = None
    try:
        other = Dlrm(bottom, top, rows, LR, INITIAL, compiled=True, share=peer)
        run = step_of(other)
        pooled = torch.zeros(batch, TABLES, bottom[-1])
        a = float(peer.dense(dense[0], pooled, label[0]).detach())
        b = float(other.run(dense[0], pooled, label[0]).detach())
        if not abs(a - b) <= 1e-4 * abs(a):
            raise AssertionError("the compiled loss is %g, not %g" % (b, a))
        for _ in range(3):
            run(0)
        subjects["compile"] = run
    except AssertionError:
        raise
    except Exception as error:  # there is no compiler for it, for one
        failed = "torch.compile: %s" % str(error).splitlines()[0][:100]
    turns = Turns(args, subjects, turns=21 if batch == 128 else 11, milliseconds=30).run()
    report.turns(what, turns, "eager", eager)
    report.turns(what, turns, "deterministic", None)
    if "compile" in subjects:
        report.turns(what, turns, "compile", compiled)
    else:
        report.skip(what, "compile", failed, compiled)
    neo.dlrm_free(model)


for name in ("kaggle", "mlperf"):
    for batch in (128, 2048):
        measure(name, batch)
for batch in (128, 2048):
    measure("mlperf", batch, bf16=1)
