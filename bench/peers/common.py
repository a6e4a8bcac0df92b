"""What the comparisons share: neo's C functions, turns, checks, and the lines that run.py makes
tables of.

A comparison is a script that takes --threads N --out FILE [--quick] and appends one JSON line per
figure. Every script says first that both sides compute the same thing (`same`), then measures
(`Turns`).
"""

import argparse
import ctypes
import glob
import json
import math
import os
import sys
import time

BUILD = os.environ.get("NEO_PEERS_BUILD", "build/peers")

P, I, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
F, D, S = ctypes.c_float, ctypes.c_double, ctypes.c_char_p
# name: (result, arguments) of the functions in neo_side.c, neo_dlrm.c and neo_gpt.c
PROTOTYPES = {
    "side": {
        "error": (S, ()), "isa": (S, ()), "bf16_isa": (S, ()), "ctx": (P, (I,)),
        "ctx_free": (None, (P,)), "fma": (D, ()), "bf16": (D, ()), "read": (D, (P, L)),
        "gemm": (I, (P, I, I, I, L, L, L, P, P, P, I)),
        "blas": (I, (P, I, I, L, L, L, P, P, P, I)),
        "linear": (I, (P, I, L, L, L, P, P, P, P, I)),
        "bare": (I, (P, I, L, L, L, P, P, P, P, P, I)),
        "linear_back": (I, (P, I, L, L, L, P, P, P, P, P, I)),
        "bags": (P, (P, I, L, L, I, I, I, L, L, P)), "bags_free": (None, (P,)),
        "bags_forward": (I, (P, I, L, P, P, P)), "bags_backward": (I, (P, I, L, P, P, P, F)),
        "bags_data": (P, (P, I, I)), "probe": (P, (P, I, P, P, I, L, L, L, I, P, P)),
        "probe_run": (I, (P, I, I, P)), "probe_free": (None, (P,)),
        "dlrm": (P, (I, I, L, L, P, I, P, I, F, I)), "dlrm_free": (None, (P,)),
        "dlrm_param": (P, (P, I)), "dlrm_table": (P, (P, I)),
        "dlrm_step": (I, (P, P, P, P, P, F, P)), "write_tsv": (I, (S, L, L, L, P)),
        "read_tsv": (I, (S, I, L, L, P, P)),
    },
    "dlrm": {
        "error": (S, ()), "start": (I, (I, L, L, L, S, S, P, P, P, I)), "run": (I, (I, P)),
        "stop": (I, ()), "place": (I, (I,)),
    },
    "gpt": {
        "error": (S, ()), "start": (I, (I, I, I, I, I, I, S)), "run": (I, (I, P)),
        "stop": (I, ()), "write": (I, (S,)), "batch": (I, (L, P, P)), "vocabulary": (I, ()),
    },
}


class Neo:
    """neo_<library>_<function> as a method; a status that is not 0, or NULL where an object is
    asked for, raises."""

    def __init__(self, library="side"):
        path = os.path.join(BUILD, "libneo_%s.so" % library)
        loaded = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        error = getattr(loaded, "neo_%s_error" % library)
        error.restype = S
        for name, (result, arguments) in PROTOTYPES[library].items():
            f = getattr(loaded, "neo_%s_%s" % (library, name))
            f.restype, f.argtypes = result, arguments
            values = ("vocabulary", "place", "dlrm_param", "probe")
            plain = name in values or result not in (I, P)
            setattr(self, name, f if plain else self.checked(f, error, name, result))

    @staticmethod
    def checked(f, error, name, result):
        def call(*arguments):
            value = f(*arguments)
            if (value != 0) if result is I else not value:
                raise RuntimeError("%s: %s" % (name, (error() or b"").decode()))
            return value

        return call


def integers(values):
    return (ctypes.c_int64 * len(values))(*values)


# ---- arguments and threads ----


def begin(description):
    """The arguments. Before anything that makes threads is imported: the process gets its cores."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", required=True)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if args.threads > len(cores):
        raise SystemExit("%d threads asked for, %d cores" % (args.threads, len(cores)))
    os.sched_setaffinity(0, cores[: args.threads])
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    # It takes a processor younger than itself for a much older one: name the kernels that this
    # one runs.
    core = {"avx512": "SkylakeX", "avx2": "Haswell"}.get(Neo().isa().decode())
    if core:
        os.environ["OPENBLAS_CORETYPE"] = core
    os.environ.pop("OPENBLAS_L2_SIZE", None)
    return args


def openblas(threads):
    """The cblas_sgemm with 64-bit sizes in numpy's wheel; None where numpy has another BLAS."""
    import numpy

    libs = os.path.join(os.path.dirname(numpy.__file__), "..", "numpy.libs")
    found = glob.glob(os.path.join(libs, "libscipy_openblas64*"))
    if not found:
        return None
    lib = ctypes.CDLL(found[0])
    lib.scipy_openblas_set_num_threads64_(ctypes.c_int(threads))
    lib.scipy_openblas_get_corename64_.restype = S
    print("# OpenBLAS for", lib.scipy_openblas_get_corename64_().decode())
    return ctypes.cast(lib.scipy_cblas_sgemm64_, P).value


def torch_with(args, huge_pages=False):
    """huge_pages: of its large tensors, where the system gives them on request, as of neo's."""
    if huge_pages:
        os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    return torch


def available_bytes():
    """Of memory, by the system or, if that is less, of the NEO_PEERS_MEMORY (GB) that this process
    may have."""
    with open("/proc/meminfo") as f:
        free = 1024 * int(next(line.split()[1] for line in f if line.startswith("MemAvailable")))
    most = os.environ.get("NEO_PEERS_MEMORY")
    if not most:
        return free
    with open("/proc/self/statm") as f:
        taken = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return min(free, int(float(most) * 1e9) - taken)


# ---- figures ----


def median(values):
    v = sorted(values)
    n = len(v)
    return v[n // 2] if n % 2 else (v[n // 2 - 1] + v[n // 2]) / 2


def quantile(values, q):
    v = sorted(values)
    at = q * (len(v) - 1)
    i = int(at)
    return v[i] + (at - i) * (v[min(i + 1, len(v) - 1)] - v[i])


def spread(values):
    """The distance of the quartiles, in percent of the median."""
    m = median(values)
    return 100 * (quantile(values, 0.75) - quantile(values, 0.25)) / m if m else math.inf


def clocks():
    """ns: the CPU time of the process, and the wall clock."""
    return time.process_time_ns(), time.perf_counter_ns()


def since(start):
    """ns by each clock since clocks() gave `start`."""
    return [now - then for now, then in zip(clocks(), start)]


class Turns:
    """Takes turns among neo and peers: neo p q, q p neo, neo p q ... so that what disturbs the
    machine hits all alike.

    A turn of a subject is `calls` of it, after a pause in which the threads of another one before
    go to sleep, and a call that wakes its own, where it is short. With one thread the clock is the
    CPU time of the process, which others on the machine do not stop; with several it is the wall
    clock; `clocks` keeps both. A subject is a function of the number of the call, by which it can
    take its batches in turn; inner: how many times it does its work in a call, where that is not
    once (so that short calls of C are not timed with the interpreter's). calls: of a turn; but one
    of a subject that takes more than 50 ms.
    """

    def __init__(self, args, subjects, turns=15, milliseconds=4.0, calls=None, pause=None,
                 inner=None):
        def pause_after(before):
            if pause is not None:
                return pause
            if args.threads == 1:
                return 0
            return 0.03 if before == "openblas" else 0.01

        self.names = list(subjects)
        self.inner = inner or {}
        self.subjects = subjects
        self.clock = 0 if args.threads == 1 else 1
        self.pause = pause_after
        self.before = None
        self.turns = max(5, turns // 3) if args.quick else turns
        self.calls, self.slow, self.counter = {}, {}, 0
        for name in self.names:
            self.time(name, 1)
            once = self.time(name, 1) * self.inner.get(name, 1)
            self.slow[name] = once > 5e7
            if not calls and not self.slow[name]:
                once = min(once, self.time(name, 1) * self.inner.get(name, 1))
            self.calls[name] = calls or max(1, min(5000, int(milliseconds * 1e6 / max(once, 100))))
            if self.slow[name]:
                self.calls[name] = 1
        self.ns = {name: [] for name in self.names}
        self.clocks = [{name: [] for name in self.names} for _ in range(2)]

    def time(self, name, calls):
        """ns of a call, the mean of `calls`; self.both: in CPU time and by the wall clock."""
        run, first = self.subjects[name], self.counter
        self.counter += calls
        start = clocks()
        for i in range(first, first + calls):
            run(i)
        self.both = [ns / (calls * self.inner.get(name, 1)) for ns in since(start)]
        return self.both[self.clock]

    def turn(self, name):
        if self.pause(self.before) and self.before != name:
            time.sleep(self.pause(self.before))
        self.before = name
        if not self.slow[name]:
            self.time(name, 1)
        t = self.time(name, self.calls[name])
        for clock in range(2):
            self.clocks[clock][name].append(self.both[clock])
        return t

    def run(self, between=None):
        for i in range(self.turns):
            once, again = {}, {}
            for name in self.names:
                once[name] = self.turn(name)
            if between:
                between()
            for name in reversed(self.names):
                again[name] = self.turn(name)
            for name in self.names:
                self.ns[name].append((once[name] + again[name]) / 2)
        return self

    def add_best(self):
        """A subject "best": the better of the peers, turn by turn."""
        for series in (self.ns, *self.clocks):
            series["best"] = [min(v) for v in zip(*(series[name] for name in self.names[1:]))]

    def ratio(self, peer, neo="neo"):
        """Of time: above 1, neo is faster. The list over turns."""
        return [p / n for p, n in zip(self.ns[peer], self.ns[neo])]


class BackwardTurns(Turns):
    """The backward of autograd needs a forward, which is not timed. forwards: of the subjects that
    do, by name; such a subject is a function of what its forward gave."""

    def __init__(self, args, subjects, forwards, **options):
        self.forwards = forwards
        super().__init__(args, subjects, **options)

    def time(self, name, calls):
        if name not in self.forwards:
            return super().time(name, calls)
        run, forward, total = self.subjects[name], self.forwards[name], [0, 0]
        for i in range(self.counter, self.counter + calls):
            out = forward(i)
            start = clocks()
            run(out)
            total = [ns + more for ns, more in zip(total, since(start))]
        self.counter += calls
        self.both = [ns / calls for ns in total]
        return self.both[self.clock]


def same(what, ours, theirs, tolerance, off=0.0):
    """Raises unless all elements, but a share `off` of them, are within `tolerance` of the largest
    one of theirs. Arrays of numpy or torch. Where an optimizer divides gradients by their size, a
    few that are rounding errors alone may differ."""
    import numpy

    a, b = (numpy.asarray(x.detach() if hasattr(x, "detach") else x, dtype=numpy.float64)
            for x in (ours, theirs))
    if a.shape != b.shape:
        raise AssertionError("%s: shapes %s and %s" % (what, a.shape, b.shape))
    scale = float(numpy.abs(b).max()) if b.size else 0.0
    worst = float(numpy.abs(a - b).max()) if b.size else 0.0
    bad = float((~(numpy.abs(a - b) <= tolerance * scale)).mean()) if b.size else 0.0
    if not (math.isfinite(scale) and math.isfinite(worst) and bad <= off):
        text = "%s: they differ by %g where the largest is %g, %g of them by too much"
        raise AssertionError(text % (what, worst, scale, bad))
    if b.size and scale == 0.0:
        raise AssertionError("%s: all zeros" % what)


def instruction_sets():
    """What neo's kernels use, and those of the peers that this process has loaded."""
    sets = ["neo " + Neo().isa().decode()]
    torch = sys.modules.get("torch")
    if torch:
        sets.append("PyTorch " + torch.backends.cpu.get_cpu_capability())
    if "numpy" in sys.modules and "OPENBLAS_CORETYPE" in os.environ:
        sets.append("OpenBLAS " + os.environ["OPENBLAS_CORETYPE"])
    return ", ".join(sets)


class Report:
    def __init__(self, args, family):
        self.args, self.family = args, family

    def line(self, **fields):
        fields = dict(family=self.family, threads=self.args.threads, quick=self.args.quick,
                      load=os.getloadavg()[0], isa=instruction_sets(), **fields)
        with open(self.args.out, "a") as f:
            f.write(json.dumps(fields) + "\n")
        shown = {k: ("%.4g" % v if isinstance(v, float) else v) for k, v in fields.items()
                 if k not in ("family", "quick")}
        print(self.family, " ".join("%s=%s" % i for i in shown.items()), flush=True)

    def turns(self, what, turns, peer, target, work=None, unit="us", neo="neo", label=None,
              **more):
        """One figure: neo against `peer` (a key of turns; label: its name in the table). target:
        the least ratio; None: reported only. work: what a call does, in units of `unit` per ns
        (GFLOP/s: flops); None: times in us."""
        ratios = turns.ratio(peer, neo)
        a, b = median(turns.ns[neo]), median(turns.ns[peer])
        if turns.clocks:
            more["cpu_ratio"], more["wall_ratio"] = (
                median(ns[peer]) / max(median(ns[neo]), 1) for ns in turns.clocks)
        self.line(what=what, peer=label or peer, unit=unit, neo=work / a if work else a / 1e3,
                  theirs=work / b if work else b / 1e3, ratio=median(ratios),
                  spread=spread(ratios), target=target, turns=len(ratios), **more)

    def skip(self, what, peer, reason, target=None):
        self.line(what=what, peer=peer, skipped=reason, target=target)
