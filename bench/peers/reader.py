"""A Criteo TSV file into batches: neo's reader with one parsing thread against pandas' C engine
(which leaves the words as words, and the numbers without their logarithm). The file is in the page
cache. The clock is CPU time, of all threads."""

import ctypes
import os
import tempfile

from common import Neo, Report, Turns, begin

args = begin(__doc__)
import numpy  # noqa: E402: after the cores are chosen
import pandas  # noqa: E402

neo, report = Neo(), Report(args, "reader")
ROWS, BATCH = 100_000, 2048
count = 30_000 if args.quick else 200_000
DENSE = ["d%d" % i for i in range(13)]
WORDS = ["w%d" % i for i in range(26)]
TYPES = {"label": "float32", **{c: "float32" for c in DENSE}, **{c: str for c in WORDS}}


def read_neo(path, sums=None):
    samples = ctypes.c_int64()
    neo.read_tsv(path.encode(), 1, BATCH, ROWS, ctypes.byref(samples), sums)
    return samples.value


def read_pandas(path):
    names = ["label"] + DENSE + WORDS
    return pandas.read_csv(path, sep="\t", header=None, names=names, dtype=TYPES, engine="c",
                           keep_default_na=False, na_values={c: [""] for c in names[1:]})


def check(path):
    sums = (ctypes.c_double * 3)()
    samples, frame = read_neo(path, sums), read_pandas(path)
    dense = numpy.log1p(numpy.clip(frame[DENSE].to_numpy("float64", na_value=0.0), 0, None)).sum()
    ids = 0
    for c in WORDS:
        known = frame[c].dropna()
        ids += sum(1 + int(w, 16) % (ROWS - 1) for w in known)
    wanted = (frame["label"].sum(), dense, ids)
    if samples != len(frame) or any(not abs(a - b) <= 1e-5 * b for a, b in zip(sums, wanted)):
        text = "neo reads %d samples, sums %s; pandas %d, %s"
        raise AssertionError(text % (samples, list(sums), len(frame), wanted))


with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "samples.tsv")
    neo.write_tsv(path.encode(), 0, count, ROWS, None)
    small = os.path.join(directory, "small.tsv")
    neo.write_tsv(small.encode(), 0, 2000, ROWS, None)
    check(small)
    if read_neo(path) != len(read_pandas(path)):
        raise AssertionError("they read different numbers of samples")
    args.threads = 1  # of parsing; and so the clock is CPU time
    subjects = {"neo": lambda i: read_neo(path), "pandas": lambda i: read_pandas(path)}
    turns = Turns(args, subjects, turns=9, calls=1).run()
    report.turns("Criteo TSV", turns, "pandas", 5.0, work=1e3 * os.path.getsize(path), unit="MB/s")
