"""Runs the comparisons and writes their table.

    python bench/peers/run.py [--quick] [--only gemm,mlp] [--threads 1,2] [--lines FILE] [--table FILE] [--table-only]

--lines: where the figures go as JSON lines (build/peers/lines.jsonl), anew for the comparisons that run, kept of the others.
--table-only: of what was measured before.
--table: the table of all figures there (build/peers/cpu.md; bench/results/cpu.md when everything runs, with 1 and 2 threads).
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# script, does it run with one thread, and with several
SCRIPTS = {"gemm": (1, 1), "mlp": (1, 1), "bags": (1, 1), "dlrm": (1, 1), "ranks": (0, 1), "gpt": (1, 1), "reader": (1, 0),
           "start": (1, 0)}
TITLES = {
    "gemm": "Matrix products f32", "mlp": "Layers of the DLRMs", "bags forward": "Bags, forward",
    "bags backward": "Bags, backward with the optimizer's step", "dlrm step": "DLRM, one step",
    "two-rank step": "DLRM on two ranks, one step", "gpt step": "GPT, one step", "reader": "Reader", "start": "Start of a process",
}
# (title, family, peers that count, least geometric mean)
MEANS = [("Layers, geometric mean", "mlp", ("F.linear",), 1.25),
         ("Bags forward, geometric mean", "bags forward", ("TBE",), 1.3)]


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def read_lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f if line.strip()]


def machine():
    """One line: what the figures were measured on, and with."""
    model, flags = platform.processor() or platform.machine(), ""
    try:
        with open("/proc/cpuinfo") as f:
            fields = dict(line.split(":", 1) for line in f.read().split("\n\n")[0].splitlines() if ":" in line)
        fields = {k.strip(): v.strip() for k, v in fields.items()}
        model = "%s (family %s, model %s)" % (fields.get("model name", model), fields.get("cpu family", "?"), fields.get("model", "?"))
        flags = " ".join(x for x in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if x in fields.get("flags", "").split())
    except OSError:
        pass
    versions = []
    from importlib import metadata

    for package in ("torch", "fbgemm_gpu-cpu", "torchrec", "numpy", "pandas"):
        try:
            versions.append("%s %s" % (package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            pass
    compiler = subprocess.run([os.environ.get("CC", "cc"), "--version"], capture_output=True, text=True).stdout.splitlines()
    return "%s, %d cores, %s; %s; %s; load average %.1f" % (model, len(os.sched_getaffinity(0)), flags, (compiler or ["?"])[0],
                                                             ", ".join(versions), os.getloadavg()[0])


def disturbed(line):
    return line["spread"] > 50 or (line["threads"] > 1 and line.get("load", 0) > line["threads"] + 1.5)


def verdict(line):
    """'yes', 'no', or '' where nothing is asked. Turns that differ by half of what they take say neither, nor do several
    threads where others want the cores: then threads that spin wait for some that do not run."""
    if "skipped" in line:
        return "not measured"
    if disturbed(line):
        return "disturbed"
    bad = (line.get("target") is not None and line["ratio"] < line["target"]) or ("most" in line and line["neo"] > line["most"])
    asked = line.get("target") is not None or "most" in line
    return "no" if bad else "yes" if asked else ""


def has_ceiling(line):
    """A share above all, but for some noise: the ceiling was disturbed, and says nothing."""
    return "ceiling_target" in line and line["ceiling"] <= 103


def under_ceiling(line):
    return has_ceiling(line) and line["ceiling"] < line["ceiling_target"]


def figure(value):
    return "%.0f" % value if value >= 100 else "%.3g" % value


def row(line):
    if "skipped" in line:
        return "| %s | %d | | %s | | | %s | not measured: %s | |" % (line["what"], line["threads"], line["peer"],
                                                                    line.get("target") or "", line["skipped"])
    target = ">= %g" % line["target"] if line.get("target") is not None else "<= %g %s" % (line["most"], line["unit"]) \
        if "most" in line else ""
    ceiling = "%.0f %%" % line["ceiling"] if "ceiling" in line else ""
    if "ceiling_target" in line and not has_ceiling(line):
        ceiling += " (disturbed)"
    elif "ceiling_target" in line:
        ceiling += " (%s >= %g)" % ("no," if under_ceiling(line) else "yes,", line["ceiling_target"])
    return "| %s | %d | %s %s | %s %s | %.2f | %.0f %% | %s | %s | %s |" % (
        line["what"], line["threads"], figure(line["neo"]), line["unit"], line["peer"], figure(line["theirs"]), line["ratio"],
        line["spread"], target, verdict(line), ceiling)


def means(lines):
    """The lines of MEANS, and of the peers that have no target of their own, per family and threads."""
    out = []
    groups = {}
    for line in lines:
        if "ratio" in line and not disturbed(line) and line.get("peer") != "better of both":
            groups.setdefault((line["family"], line["peer"], line["threads"]), []).append(line["ratio"])
    for (family, peer, threads), ratios in groups.items():
        wanted = [m for m in MEANS if m[1] == family and peer in m[2]]
        if len(ratios) > 1:
            out.append((family, peer, threads, len(ratios), geometric_mean(ratios), min(ratios), wanted[0][3] if wanted else None))
    return out


HEADER = "| what | threads | neo | peer | ratio | spread | target | met | of the ceiling |\n|---|---|---|---|---|---|---|---|---|"


def write_table(lines, path, about):
    text = ["# CPU: neo and its peers, side by side", "", "By `make peers`; bench/README.md says how each figure is measured.", "",
            "- machine: " + about,
            "- ratio: the peer's time over neo's, the median over turns (above 1: neo is faster); spread: the distance of the quartiles of "
            "these ratios, in percent of it"]
    if any(line.get("quick") for line in lines):
        text.append("- a quick run: fewer turns, fewer and smaller shapes")
    text.append("- targets are the project's own goals: one that is missed is work to do")
    if "AMD" in about:
        text.append("- on processors that are not Intel's PyTorch's MKL may use half of the vector width: ratios against torch (layers, "
                    "DLRM, GPT) contain that; those against OpenBLAS do not")
    text += ["", "## Targets", "", "| what | threads | met | missed | worst of them |", "|---|---|---|---|---|"]
    for family, title in TITLES.items():
        for threads in sorted({x["threads"] for x in lines if x["family"] == family}):
            asked = [x for x in lines if x["family"] == family and x["threads"] == threads and verdict(x) in ("yes", "no")]
            missed = [x for x in asked if verdict(x) == "no"]
            worst = min(missed, key=lambda x: x["ratio"] / (x.get("target") or 1), default=None)
            text.append("| %s | %d | %d | %d | %s |" % (title, threads, len(asked) - len(missed), len(missed), "" if not worst else
                                                       "%s, %s: %.2f" % (worst["what"], worst["peer"], worst["ratio"])))
            low = [x for x in asked if under_ceiling(x)]
            if any(has_ceiling(x) for x in asked):
                count = sum(has_ceiling(x) for x in asked)
                worst = min(low, key=lambda x: x["ceiling"] / x["ceiling_target"], default=None)
                text.append("| %s, of the ceiling | %d | %d | %d | %s |" % (title, threads, count - len(low), len(low), "" if not worst else
                                                                         "%s: %.0f %%" % (worst["what"], worst["ceiling"])))
    text += ["", "## Geometric means of the ratios", "", "| family | peer | threads | figures | mean | least | target | met |",
             "|---|---|---|---|---|---|---|---|"]
    for family, peer, threads, count, mean, least, target in means(lines):
        text.append("| %s | %s | %d | %d | %.2f | %.2f | %s | %s |" % (TITLES[family], peer, threads, count, mean, least,
                                                                      ">= %g" % target if target else "",
                                                                      "" if not target else "yes" if mean >= target else "no"))
    for family, title in TITLES.items():
        own = [x for x in lines if x["family"] == family and not (family in ("mlp", "gemm") and x["peer"] in ("openblas", "torch"))]
        if own:
            text += ["", "## " + title, "", HEADER] + [row(x) for x in own]
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as f:
        f.write("\n".join(text) + "\n")


def table_path(args, failed, build):
    """bench/results has figures of whole runs alone."""
    whole = set(args.only.split(",")) == set(SCRIPTS) and not (args.quick or args.threads or args.table_only or failed)
    return args.table or ("bench/results/cpu.md" if whole else os.path.join(build, "cpu.md"))


def main():
    build = os.environ.get("NEO_PEERS_BUILD", "build/peers")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(SCRIPTS))
    parser.add_argument("--threads", default="")
    parser.add_argument("--lines", default=os.path.join(build, "lines.jsonl"))
    parser.add_argument("--table")
    parser.add_argument("--table-only", action="store_true")
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    counts = [int(t) for t in args.threads.split(",") if t] or [1, 2][: min(cores, 2)]
    chosen = args.only.split(",")
    unknown = [name for name in chosen if name not in SCRIPTS]
    if unknown:
        raise SystemExit("no comparison %s: there are %s" % (", ".join(unknown), ", ".join(SCRIPTS)))
    failed, about = [], machine()
    for name in [] if args.table_only else SCRIPTS:
        for threads in counts:
            if name not in chosen or not SCRIPTS[name][threads > 1]:
                continue
            part = "%s.%s.%d" % (args.lines, name, threads)
            if os.path.exists(part):
                os.remove(part)
            command = [sys.executable, os.path.join(HERE, name + ".py"), "--threads", str(threads), "--out", part]
            if subprocess.run(command + (["--quick"] if args.quick else [])).returncode != 0:
                failed.append("%s with %d threads" % (name, threads))
    parts = ["%s.%s.%d" % (args.lines, name, threads) for name in SCRIPTS for threads in sorted({1, 2, *counts})]
    lines = [line for part in parts for line in read_lines(part)]
    with open(args.lines, "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    table = table_path(args, failed, build)
    write_table(lines, table, about)
    print("the table is in", table)
    for name in failed:
        print("FAILED:", name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
