"""Runs the comparisons and writes their table.

    python bench/peers/run.py [--quick] [--only gemm,mlp] [--threads 1,2] [--lines N] [--report] \
[--table FILE]

What a comparison gives with a number of threads is kept in build/peers/results, until the same \
has run again without error; quick
runs apart from whole ones. bench/results/cpu.md (or --table, for another machine) is then \
written from the whole runs that are there, and says when each was and
which there are none of; a quick run is in build/peers/quick.md. --lines: of the data of ctr
(1,000,000). --report: only write the tables.
"""

import argparse
import glob
import json
import math
import os
import platform
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# script, does it run with one thread, and with several
SCRIPTS = {
    "gemm": (1, 1), "mlp": (1, 1), "bags": (1, 1), "dlrm": (1, 1), "ranks": (0, 1), "gpt": (1, 1),
    "llmc": (1, 1), "reader": (1, 0), "start": (1, 0), "ctr": (1, 1), "serve": (1, 0),
}
TITLES = {  # of the families of figures
    "gemm": "Matrix products f32", "gemm bf16": "Matrix products bf16",
    "mlp": "Layers of the DLRMs", "mlp bf16": "Layers of the DLRMs, bf16",
    "bags forward": "Bags, forward",
    "bags buckets": "Bags, forward over 8 buckets of rows",
    "bags backward": "Bags, backward with the optimizer's step", "dlrm step": "DLRM, one step",
    "two-rank step": "DLRM on two ranks, one step", "gpt step": "GPT, one step",
    "llm.c step": "GPT-2, one step, against llm.c", "reader": "Reader",
    "start": "Start of a process",
    "ctr": "Models of clicks, from text", "serve": "Predictions of a trained DLRM",
}
# (title, family, peers that count, least geometric mean)
MEANS = [("Layers, geometric mean", "mlp", ("F.linear",), 1.25),
         ("Bags forward, geometric mean", "bags forward", ("TBE",), 1.3)]


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def result_path(build, name, threads, quick):
    kind = ".quick" if quick else ""
    return os.path.join(build, "results", "%s.%d%s.json" % (name, threads, kind))


def read_results(build, quick):
    """{(comparison, threads): what run_one kept}"""
    found = {}
    for path in sorted(glob.glob(os.path.join(build, "results", "*.json"))):
        name, threads = os.path.basename(path).split(".")[:2]
        if path == result_path(build, name, int(threads), quick) and name in SCRIPTS:
            with open(path) as f:
                found[name, int(threads)] = json.load(f)
    return {key: found[key] for key in in_order(found)}


def in_order(runs):
    return sorted(runs, key=lambda run: (list(SCRIPTS).index(run[0]), run[1]))


def all_runs(counts):
    return [(name, threads) for name in SCRIPTS for threads in counts if SCRIPTS[name][threads > 1]]


def machine():
    """One line: what the figures were measured on, and with."""
    model, flags = platform.processor() or platform.machine(), ""
    try:
        with open("/proc/cpuinfo") as f:
            core = f.read().split("\n\n")[0]
        fields = dict(line.split(":", 1) for line in core.splitlines() if ":" in line)
        fields = {k.strip(): v.strip() for k, v in fields.items()}
        model = "%s (family %s, model %s)" % (
            fields.get("model name", model), fields.get("cpu family", "?"),
            fields.get("model", "?"))
        known = fields.get("flags", "").split()
        flags = " ".join(x for x in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if x in known)
    except OSError:
        pass
    versions = []
    from importlib import metadata

    for package in ("torch", "fbgemm_gpu-cpu", "torchrec", "numpy", "pandas", "vowpalwabbit",
                    "lightgbm"):
        try:
            versions.append("%s %s" % (package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            pass
    command = [os.environ.get("CC", "cc"), "--version"]
    compiler = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return "%s, %d cores, %s; %s; %s" % (model, len(os.sched_getaffinity(0)), flags,
                                         (compiler or ["?"])[0], ", ".join(versions))


def disturbed(line):
    crowded = line["threads"] > 1 and line.get("load", 0) > line["threads"] + 1.5
    return line["spread"] > 50 or crowded


def verdict(line):
    """'yes', 'no', or '' where nothing is asked. Turns that differ by half of what they take say
    neither, nor do several threads where others want the cores: then threads that spin wait for
    some that do not run."""
    if "skipped" in line:
        return "not measured"
    if disturbed(line):
        return "disturbed"
    low = line.get("target") is not None and line["ratio"] < line["target"]
    high = "most" in line and line["neo"] > line["most"]
    asked = line.get("target") is not None or "most" in line
    return "no" if low or high else "yes" if asked else ""


def has_ceiling(line):
    """A share above all, but for some noise: the ceiling was disturbed, and says nothing."""
    return "ceiling_target" in line and line["ceiling"] <= 103


def under_ceiling(line):
    return has_ceiling(line) and line["ceiling"] < line["ceiling_target"]


def figure(value):
    return "%.0f" % value if value >= 100 else "%.3g" % value


def row(line):
    if "skipped" in line:
        return "| %s | %d | | %s | | | | %s | not measured: %s | |" % (
            line["what"], line["threads"], line["peer"], line.get("target") or "", line["skipped"])
    target = ""
    if line.get("target") is not None:
        target = ">= %g" % line["target"]
    elif "most" in line:
        target = "<= %g %s" % (line["most"], line["unit"])
    ceiling = "%.0f %%" % line["ceiling"] if "ceiling" in line else ""
    if "ceiling_target" in line and not has_ceiling(line):
        ceiling += " (disturbed)"
    elif "ceiling_target" in line:
        met = "no" if under_ceiling(line) else "yes"
        ceiling += " (%s, >= %g)" % (met, line["ceiling_target"])
    clocks = "%.2f, %.2f" % (line["cpu_ratio"], line["wall_ratio"]) if "cpu_ratio" in line else ""
    return "| %s | %d | %s %s | %s %s | %.2f | %s | %.0f %% | %s | %s | %s |" % (
        line["what"], line["threads"], figure(line["neo"]), line["unit"], line["peer"],
        figure(line["theirs"]), line["ratio"], clocks, line["spread"], target, verdict(line),
        ceiling)


def means(lines):
    """The lines of MEANS, and of the peers that have no target of their own, per family and
    threads."""
    out = []
    groups = {}
    for line in lines:
        if "ratio" in line and not disturbed(line) and line.get("peer") != "better of both":
            key = line["family"], line["peer"], line["threads"]
            groups.setdefault(key, []).append(line["ratio"])
    for (family, peer, threads), ratios in groups.items():
        wanted = [m[3] for m in MEANS if m[1] == family and peer in m[2]]
        if len(ratios) > 1:
            out.append((family, peer, threads, len(ratios), geometric_mean(ratios), min(ratios),
                        wanted[0] if wanted else None))
    return out


HEADER = ("| what | threads | neo | peer | ratio | CPU, wall | spread | target | met "
          "| of the ceiling |\n|---|---|---|---|---|---|---|---|---|---|")


def when(results):
    """The table of what was measured when, on which of the machines, and of what was not."""
    machines = machines_of(results)
    text = ["| comparison | threads | measured | load average, before and after | it took "
            "| machine | instruction sets |", "|---|---|---|---|---|---|---|"]
    for name, threads in in_order({*all_runs((1, 2)), *results}):
        r = results.get((name, threads))
        if not r:
            text.append("| %s | %d | not measured | | | | |" % (name, threads))
            continue
        isa = r["lines"][0].get("isa", "") if r["lines"] else ""
        text.append("| %s | %d | %s | %.1f, %.1f | %.0f s | %d | %s |" % (
            name, threads, r["date"], *r["load"], r["seconds"], machines.index(r["machine"]) + 1,
            isa))
    return text


def machines_of(results):
    return sorted({r["machine"] for r in results.values()})


def ladder(lines):
    """Programs on the same data, the best AUC first; per data and threads."""
    if not lines:
        return []
    text = ["", "## The ladder of models of clicks", "",
            "| data | lines | threads | program | s | CPU s | klines/s/core | AUC "
            "| below the best | log loss |",
            "|---|---|---|---|---|---|---|---|---|---|"]
    tasks = list(dict.fromkeys(x["what"] for x in lines))
    for x in sorted(lines, key=lambda x: (tasks.index(x["what"]), x["threads"], -x["auc"])):
        short = "" if x["short"] is None else "%.4f" % x["short"]
        text.append("| %s | %d | %d | %s | %.1f | %.1f | %.0f | %.4f | %s | %.4f |" % (
            x["what"], x["lines"], x["threads"], x["program"], x["seconds"], x["cpu"],
            x["rate"] / 1e3, x["auc"], short, x["logloss"]))
    return text


def targets(title, threads, lines):
    """How many of a family's lines with one number of threads met their target, and the worst of
    those that did not; the same for their shares of the ceiling."""
    form = "| %s | %d | %d | %d | %s |"
    asked = [x for x in lines if verdict(x) in ("yes", "no")]
    missed = [x for x in asked if verdict(x) == "no"]
    worst = min(missed, key=lambda x: x["ratio"] / (x.get("target") or 1), default=None)
    name = "%s, %s: %.2f" % (worst["what"], worst["peer"], worst["ratio"]) if worst else ""
    text = [form % (title, threads, len(asked) - len(missed), len(missed), name)]
    shares = {x["what"]: x for x in asked if has_ceiling(x)}  # the same beside each peer
    low = [x for x in shares.values() if under_ceiling(x)]
    if shares:
        worst = min(low, key=lambda x: x["ceiling"] / x["ceiling_target"], default=None)
        name = "%s: %.0f %%" % (worst["what"], worst["ceiling"]) if worst else ""
        title += ", of the ceiling"
        text.append(form % (title, threads, len(shares) - len(low), len(low), name))
    return text


def write_table(results, path):
    lines = [line for r in results.values() for line in r["lines"]]
    machines = machines_of(results)
    text = ["# CPU: neo and its peers, side by side", "",
            "By `make peers`; bench/README.md says how each figure is measured.", ""]
    text += ["- machine %d: %s" % (i + 1, m) for i, m in enumerate(machines)]
    text.append("- ratio: the peer's time over neo's, the median over turns (above 1: neo is "
                "faster); spread: the distance of the quartiles of these ratios, in percent of it")
    text.append("- CPU, wall: that ratio of medians by either clock; the other columns are in CPU "
                "time with one thread, and by the wall clock with several")
    if any(r["quick"] for r in results.values()):
        text.append("- a quick run: fewer turns, fewer and smaller shapes")
    text.append("- targets are the project's own goals: one that is missed is work to do")
    if any("AMD" in m for m in machines):
        text.append("- on processors that are not Intel's PyTorch's MKL may use half of the vector "
                    "width: ratios against torch (layers, DLRM, GPT) contain that; those against "
                    "OpenBLAS do not")
    without_amx = any("amx_bf16" not in m for m in machines)
    if without_amx and any("bf16" in line["family"] + line["what"] for line in lines):
        text.append("- figures of bf16 have no targets where the processor has no AMX: neo then "
                    "computes what AMX would, bit for bit, by other instructions, and PyTorch "
                    "does not")
    text += ["", "## When", ""] + when(results)
    text += ["", "## Targets", "", "| what | threads | met | missed | worst of them |",
             "|---|---|---|---|---|"]
    for family, title in TITLES.items():
        own = [x for x in lines if x["family"] == family]
        for threads in sorted({x["threads"] for x in own}):
            text += targets(title, threads, [x for x in own if x["threads"] == threads])
    text += ["", "## Geometric means of the ratios", "",
             "| family | peer | threads | figures | mean | least | target | met |",
             "|---|---|---|---|---|---|---|---|"]
    for family, peer, threads, count, mean, least, target in means(lines):
        asked = ">= %g" % target if target else ""
        met = "" if not target else "yes" if mean >= target else "no"
        text.append("| %s | %s | %d | %d | %.2f | %.2f | %s | %s |" % (
            TITLES[family], peer, threads, count, mean, least, asked, met))
    for family, title in TITLES.items():
        own = [x for x in lines if x["family"] == family]
        if family in ("mlp", "gemm"):
            own = [x for x in own if x["peer"] not in ("openblas", "torch")]
        if own:
            text += ["", "## " + title, "", HEADER] + [row(x) for x in own]
    text += ladder([x for x in lines if x["family"] == "ladder"])
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as f:
        f.write("\n".join(text) + "\n")


def write_tables(build, table):
    """`table` has figures of whole runs alone; without one it stays as it is."""
    for quick, path in ((True, os.path.join(build, "quick.md")), (False, table)):
        results = read_results(build, quick)
        if results:
            write_table(results, path)
            print("the table of %s runs is in %s" % ("quick" if quick else "whole", path))


def run_one(build, name, threads, quick):
    """Whether it ran to its end; only then its figures take the place of those before."""
    path = result_path(build, name, threads, quick)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part, load, start = path + ".part", os.getloadavg()[0], time.time()
    if os.path.exists(part):
        os.remove(part)
    command = [sys.executable, os.path.join(HERE, name + ".py"), "--threads", str(threads),
               "--out", part]
    done = subprocess.run(command + (["--quick"] if quick else [])).returncode == 0
    if done:
        with open(part) as f:
            lines = [json.loads(line) for line in f]
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(start))
        result = dict(date=date, seconds=time.time() - start, machine=machine(),
                      load=[load, os.getloadavg()[0]], quick=quick, lines=lines)
        with open(path + ".new", "w") as f:
            json.dump(result, f, indent=0)
        os.replace(path + ".new", path)
        print("# %s with %d threads took %.0f s" % (name, threads, result["seconds"]), flush=True)
    if os.path.exists(part):
        os.remove(part)
    return done


def main():
    build = os.environ.get("NEO_PEERS_BUILD", "build/peers")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(SCRIPTS))
    parser.add_argument("--threads", default="")
    parser.add_argument("--lines", type=int)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--table", default="bench/results/cpu.md")
    args = parser.parse_args()
    if args.lines:
        os.environ["NEO_PEERS_LINES"] = str(args.lines)
    cores = len(os.sched_getaffinity(0))
    counts = [int(t) for t in args.threads.split(",") if t] or [1, 2][: min(cores, 2)]
    chosen = args.only.split(",")
    unknown = [name for name in chosen if name not in SCRIPTS]
    if unknown:
        raise SystemExit("no comparison %s: there are %s" % (
            ", ".join(unknown), ", ".join(SCRIPTS)))
    runs = [] if args.report else [run for run in all_runs(counts) if run[0] in chosen]
    failed = [run for run in runs if not run_one(build, *run, args.quick)]
    write_tables(build, args.table)
    for run in failed:
        print("FAILED: %s with %d threads" % run)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
