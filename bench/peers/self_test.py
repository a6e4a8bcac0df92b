"""Checks the scripts without the packages of the peers: that they compile, that they call neo's
functions as these are defined, that these compute what they say, and that the table says what the
lines say. tests/programs/peers.sh runs it."""

import array
import ctypes
import json
import os
import re
import sys
import tempfile

import common
import ctr
import run

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {"int": ctypes.c_int, "int64_t": ctypes.c_int64, "float": ctypes.c_float,
         "double": ctypes.c_double}


def kind_of(text):
    """The ctypes type of a C parameter."""
    if "char *" in text:
        return ctypes.c_char_p
    return ctypes.c_void_p if "*" in text else KINDS[text.strip().rsplit(" ", 1)[0]]


def check_prototypes():
    for library, functions in common.PROTOTYPES.items():
        with open(os.path.join(HERE, "neo_%s.c" % library)) as f:
            source = f.read()
        pattern = r"^SIDE [\w \*]*?\bneo_%s_(\w+)\(([^)]*)\)" % library
        found = dict(re.findall(pattern, source, re.M))
        other = sorted(set(found) ^ set(functions))
        assert not other, "%s: %s" % (library, other)
        for name, parameters in found.items():
            wanted = []
            if parameters != "void":
                wanted = [kind_of(p) for p in parameters.replace("\n", " ").split(",")]
            assert list(functions[name][1]) == wanted, "%s.%s: %s" % (library, name, parameters)


def floats(values):
    a = array.array("f", values)
    return a, a.buffer_info()[0]


def check_side():
    neo = common.Neo()
    ctx = neo.ctx(1)
    a, pa = floats([1, 2, 3, 4, 5, 6])
    b, pb = floats([1, 0, 2, -1, 1, 1])
    c, pc = floats([0] * 4)
    neo.gemm(ctx, 0, 0, 0, 2, 2, 3, pa, pb, pc, 1)
    assert list(c) == [1 + 4 + 3, -2 + 3, 4 + 10 + 6, -5 + 6], list(c)
    bias, pbias = floats([10, 20])
    neo.linear(ctx, 0, 2, 3, 2, pa, pb, pbias, pc, 1)  # b is [2][3] here
    assert list(c) == [1 + 6 + 10, -1 + 2 + 3 + 20, 4 + 12 + 10, -4 + 5 + 6 + 20], list(c)
    one, pone = floats([1, 0, 0, 1])
    dx, pdx = floats([0] * 6)
    dw, pdw = floats([0] * 6)
    neo.linear_back(ctx, 0, 2, 3, 2, pa, pb, pone, pdx, pdw, 1)
    assert (dx, dw) == (b, a), (list(dx), list(dw))
    # Small integers are bf16, too.
    half = array.array("H", [x >> 16 for x in array.array("I", a.tobytes() + b.tobytes())])
    ph = half.buffer_info()[0]
    neo.gemm(ctx, 1, 0, 0, 2, 2, 3, ph, ph + 12, pc, 1)
    wide = array.array("I", [x << 16 for x in array.array("H", c.tobytes())[:4]])
    assert list(array.array("f", wide.tobytes())) == [8, 1, 20, 1], list(c)
    rows, prows = floats(range(32))
    tables = (ctypes.c_void_p * 1)(prows)
    bags = neo.bags(ctx, 1, 2, 16, 0, 0, 1, 2, 4, tables)
    ids, offsets = array.array("q", [0, 1, 1]), array.array("q", [0, 2, 3])
    pids, poffsets = ids.buffer_info()[0], offsets.buffer_info()[0]
    out, pout = floats([0] * 32)
    neo.bags_forward(bags, 1, 2, poffsets, pids, pout)
    assert list(out) == [i + i + 16 for i in range(16)] + [i + 16 for i in range(16)], list(out)
    neo.bags_backward(bags, 1, 2, poffsets, pids, pout, 0.5)
    assert rows[0] < 0 and rows[31] < 31, "no row has moved"
    neo.bags_free(bags)
    # 2^24 + 1 + 1: buckets of one row add the ones first, which then are not lost.
    rows, prows = floats([1] * 16 + [2.0 ** 24] * 16)
    tables = (ctypes.c_void_p * 1)(prows)
    ids, offsets, sums = array.array("q", [1, 0, 0]), array.array("q", [0, 3]), []
    pids, poffsets = ids.buffer_info()[0], offsets.buffer_info()[0]
    for buckets in (1, 2):
        bags = neo.bags(ctx, 1, 2, 16, 0, 0, buckets, 1, 3, tables)
        neo.bags_forward(bags, 1, 1, poffsets, pids, pout)
        sums.append(out[0])
        neo.bags_free(bags)
    assert sums == [2.0 ** 24, 2.0 ** 24 + 2], sums
    try:
        neo.gemm(ctx, 0, 0, 0, -1, 2, 3, pa, pb, pc, 1)
        raise AssertionError("a bad shape is no error")
    except RuntimeError as error:
        assert str(error).startswith("gemm: "), error
    widths, top = common.integers([8, 16]), common.integers([8, 1])
    for bf16 in (0, 1):
        check_dlrm(neo, bf16, widths, top)
    neo.ctx_free(ctx)


def check_dlrm(neo, bf16, widths, top):
    model = neo.dlrm(1, bf16, 4, 10, widths, 2, top, 2, 0.1, 0)
    dense, pdense = floats([i % 7 / 7 for i in range(4 * 13)])
    label, plabel = floats([0, 1, 0, 1])
    ids, offsets = array.array("q", [i % 10 for i in range(104)]), array.array("q", range(105))
    pids, poffsets = ids.buffer_info()[0], offsets.buffer_info()[0]
    loss, losses = ctypes.c_double(), []
    for _ in range(8):
        neo.dlrm_step(model, pdense, plabel, poffsets, pids, 0.05, ctypes.byref(loss))
        losses.append(loss.value)
    assert losses[-1] < losses[0], losses
    neo.dlrm_free(model)


def check_examples():
    """Two ranks of the DLRM, and the GPT, take steps."""
    dlrm, loss, losses = common.Neo("dlrm"), ctypes.c_double(), []
    dense, pdense = floats([i % 7 / 7 for i in range(2 * 8 * 13)])
    label, plabel = floats([0, 1] * 8)
    ids = array.array("q", [i % 10 for i in range(2 * 26 * 8)])
    dlrm.start(2, 16, 8, 10, b"13-32-16", b"32-1", pdense, plabel, ids.buffer_info()[0], 2)
    assert {dlrm.place(t) for t in range(26)} == {0, 1}, "tables are not whole on both ranks"
    for _ in range(8):
        dlrm.run(1, ctypes.byref(loss))
        losses.append(loss.value)
    dlrm.stop()
    assert 0 < losses[-1] < losses[0], losses
    gpt = common.Neo("gpt")
    with tempfile.NamedTemporaryFile() as f:
        f.write(b"abcdefgh " * 200)
        f.flush()
        gpt.start(1, 1, 2, 16, 8, 2, f.name.encode())
        assert gpt.vocabulary() == 9, gpt.vocabulary()
        losses = []
        for _ in range(8):
            gpt.run(1, ctypes.byref(loss))
            losses.append(loss.value)
        gpt.stop()
    assert 0 < losses[-1] < losses[0], losses


def check_ladder():
    """neo's programs of the ladder, on few lines; figures() on few numbers."""
    assert ctr.figures([0, 1, 0, 1], [0.1, 0.9, 0.5, 0.5])[0] == 0.875
    with tempfile.TemporaryDirectory() as folder:
        for task in (ctr.criteo(folder, 300), ctr.movies(folder, 300)):
            assert task.lines == {"train": 300, "test": 30}, task.lines
            assert 0.5 < task.best[0] < 1, task.best
            for kind in (".vw", ".ids"):
                with open(task.path["train"] + kind) as f:
                    assert len(f.readlines()) == 300
            with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
                class Args:
                    threads, quick = 1, True

                Args.out = out.name
                ctr.run_task(Args, task, 9, (), 1)
                lines = out.readlines()
            assert len(lines) == len(ctr.NEO[task.name]) and '"auc"' in lines[0], lines


def check_turns():
    class Args:
        threads, quick = 1, True

    order = []
    subjects = {"neo": lambda i: order.append("n"), "peer": lambda i: order.append("p")}
    turns = common.Turns(Args, subjects, turns=15, calls=2).run()
    assert len(turns.ratio("peer")) == 5, turns.ratio("peer")
    assert "".join(order[4:]).startswith("nnn" + "ppp" + "ppp" + "nnn" + "nnn"), order
    assert common.median([3, 1, 2]) == 2 and common.median([4, 1, 2, 3]) == 2.5
    assert abs(common.spread([1, 2, 3, 4, 5]) - 200 / 3) < 1e-9

    def back(out):
        order.append(out)
    subjects = {"neo": subjects["neo"], "autograd": back, "other": back}
    turns = common.BackwardTurns(Args, subjects, {"autograd": str, "other": str}, calls=1)
    del order[:]
    turns.run()
    assert order.count("n") * 2 == sum(out.isdigit() for out in order), order
    turns.add_best()
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        Args.out = out.name
        common.Report(Args, "bags backward").turns("uniform", turns, "best", 2.0)
        turns.clocks = None
        common.Report(Args, "bags backward").turns("uniform", turns, "best", 2.0)
        lines = [json.loads(line) for line in out]
    assert ["cpu_ratio" in line for line in lines] == [True, False], lines


def check_table():
    gemm = dict(family="gemm", threads=1, quick=False, what="NT 8^3", peer="better of both",
                unit="GFLOP/s", neo=2.0, theirs=1.0, ratio=2.0, spread=1.0, target=0.95,
                ceiling=50.0, cpu_ratio=2.0, wall_ratio=1.5, isa="neo avx2, PyTorch AVX2")
    layer = dict(family="mlp", threads=1, quick=False, peer="F.linear", unit="GFLOP/s", spread=3.0,
                 target=1.0, ceiling_target=60)
    bags = dict(family="bags forward", threads=2, quick=False, what="uniform", peer="TBE",
                skipped="no package", target=1.0)
    start = dict(family="start", threads=1, quick=False, what="start", peer="import torch",
                 unit="ms", neo=51.0, theirs=100.0, ratio=2.0, spread=1.0, target=None, most=50.0)
    lines = [gemm, dict(layer, what="dW M=1", neo=1.0, theirs=2.0, ratio=0.5, ceiling=30.0),
             dict(layer, what="dX M=1", neo=2.0, theirs=1.0, ratio=2.0, ceiling=70.0), bags, start]
    result = dict(date="2026-01-02 03:04 UTC", seconds=61.0, machine="a machine", load=[0.5, 1.25],
                  quick=False, lines=lines)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "table.md")
        run.write_table({("gemm", 1): result}, path)
        with open(path) as f:
            text = f.read()
    for want in (
        "| NT 8^3 | 1 | 2 GFLOP/s | better of both 1 | 2.00 | 2.00, 1.50 | 1 % | >= 0.95 | yes | "
        "50 % |",
        "| dW M=1 | 1 | 1 GFLOP/s | F.linear 2 | 0.50 |  | 3 % | >= 1 | no | 30 % (no, >= 60) |",
        "| dX M=1 | 1 | 2 GFLOP/s | F.linear 1 | 2.00 |  | 3 % | >= 1 | yes | 70 % (yes, >= 60) |",
        "not measured: no package",
        "| start | 1 | 51 ms | import torch 100 | 2.00 |  | 1 % | <= 50 ms | no |",
        "| Layers of the DLRMs | 1 | 1 | 1 | dW M=1, F.linear: 0.50 |",
        "| Layers of the DLRMs | F.linear | 1 | 2 | 1.00 | 0.50 | >= 1.25 | no |",
        "- machine 1: a machine",
        "| gemm | 1 | 2026-01-02 03:04 UTC | 0.5, 1.2 | 61 s | 1 | neo avx2, PyTorch AVX2 |",
        "| bags | 2 | not measured | | | | |",
    ):
        assert want in text, "the table lacks: %s\n%s" % (want, text)


SCRIPT = """import json, sys
with open(sys.argv[sys.argv.index("--out") + 1], "a") as f:
    f.write(json.dumps(dict(family="%s", threads=int(sys.argv[2]), what="some", peer="none",
                            unit="us", neo=1.0, theirs=%g, ratio=%g, spread=1.0, target=None)))
    f.write(chr(10))
sys.exit(%d)
"""


def check_runs():
    """Scripts that stand in for two comparisons: what is kept, what the tables then say."""
    def write(name, family, figure, status):
        with open(os.path.join(directory, name + ".py"), "w") as f:
            f.write(SCRIPT % (family, figure, figure, status))

    def main(*arguments):
        sys.argv = ["run.py", *arguments]
        status = run.main()
        table = "bench/results/cpu.md"
        with open(table if os.path.exists(table) else os.devnull) as f:
            return status, f.read()

    before = os.getcwd(), run.HERE, sys.argv, os.environ.get("NEO_PEERS_BUILD"), run.SCRIPTS
    with tempfile.TemporaryDirectory() as directory:
        try:
            run.HERE, run.SCRIPTS = directory, {"gemm": (1, 0), "start": (1, 0)}
            os.environ["NEO_PEERS_BUILD"] = os.path.join(directory, "b")
            os.chdir(directory)
            write("gemm", "gemm", 2, 0)
            write("start", "start", 3, 0)
            written = main("--quick", "--threads", "1")
            assert written == (0, ""), "a quick run writes no table of whole ones"
            assert os.path.exists("b/quick.md")
            status, text = main("--only", "gemm", "--threads", "1")
            assert status == 0 and "| some | 1 | 1 us | none 2 | 2.00 |" in text, text
            assert "| start | 1 | not measured | | | |" in text, text
            status, text = main("--only", "start")
            assert status == 0 and "none 2 | 2.00" in text and "none 3 | 3.00" in text, text
            assert "not measured" not in text, text
            write("gemm", "gemm", 9, 1)
            status, text = main("--only", "gemm")
            assert status == 1, text
            kept = "none 2 | 2.00" in text and "none 9" not in text
            assert kept, "a run that failed takes the place of one before"
            os.remove("bench/results/cpu.md")
            assert main("--report", "--table", "other.md") == (0, "")
            with open("other.md") as f:
                assert f.read() == text
            assert main("--report") == (0, text)
        finally:
            os.chdir(before[0])
            run.HERE, sys.argv, run.SCRIPTS = before[1], before[2], before[4]
            os.environ.pop("NEO_PEERS_BUILD")
            if before[3] is not None:
                os.environ["NEO_PEERS_BUILD"] = before[3]


def main():
    for name in sorted(os.listdir(HERE)):
        if name.endswith(".py"):
            with open(os.path.join(HERE, name)) as f:
                compile(f.read(), name, "exec")
    check_prototypes()
    check_turns()
    check_table()
    check_runs()
    if len(sys.argv) > 1 and sys.argv[1] == "--side":
        check_side()
        check_examples()
        check_ladder()
    print("ok")


if __name__ == "__main__":
    main()
