"""One training step of GPT-2 (124M parameters, random weights; 4 sequences of 64 tokens, llm.c's
own case) by examples/train/gpt against llm.c on the same cores, built with OpenMP as its Makefile
builds it."""

import ctypes
import json
import os
import struct
import tempfile

import numpy

from common import BUILD, Neo, Report, Turns, begin

args = begin(__doc__)
LAYERS, HEADS, WIDTH, LENGTH, BATCH = 12, 12, 768, 64, 4
PADDED, TOKENS = 50304, 1 << 20  # rows of llm.c's token table; of the data
WHAT = "GPT-2 124M, %d x %d" % (BATCH, LENGTH)
report, path = Report(args, "llm.c step"), os.path.join(BUILD, "libllmc.so")


def write_tokens(path):
    """Random tokens, in a file of the kind that both read."""
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, TOKENS, *[0] * 253))
        f.write(numpy.random.default_rng(1).integers(0, 50257, TOKENS).astype("<u2").tobytes())


def write_checkpoint(path, weights):
    """neo's safetensors as a checkpoint of llm.c: each kind of tensor of all layers in a row."""
    with open(weights, "rb") as f:
        header = json.loads(f.read(struct.unpack("<q", f.read(8))[0]))
        data = numpy.frombuffer(f.read(), dtype=numpy.uint8)
    part = {k: data[t["data_offsets"][0]: t["data_offsets"][1]].view("<f4").reshape(t["shape"])
            for k, t in header.items() if k != "__metadata__" and t["dtype"] == "F32"}
    vocabulary = part["wte.weight"].shape[0]
    with open(path, "wb") as f:
        sizes = (LENGTH, vocabulary, LAYERS, HEADS, WIDTH, PADDED)
        f.write(struct.pack("<256i", 20240326, 3, *sizes, *[0] * 248))
        f.write(part["wte.weight"].tobytes() + bytes(4 * WIDTH * (PADDED - vocabulary)))
        f.write(part["wpe.weight"].tobytes())
        for name in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
            for kind in ("weight", "bias"):
                for i in range(LAYERS):
                    f.write(part["h.%d.%s.%s" % (i, name, kind)].tobytes())
        f.write(part["ln_f.weight"].tobytes() + part["ln_f.bias"].tobytes())


def measure():
    neo, llmc, loss = Neo("gpt"), ctypes.CDLL(path), ctypes.c_double()
    llmc.llmc_step.restype = ctypes.c_float
    with tempfile.TemporaryDirectory(dir=BUILD) as directory:
        tokens, weights, checkpoint = (os.path.join(directory, name) for name in "twc")
        write_tokens(tokens)
        neo.start(args.threads, LAYERS, HEADS, WIDTH, LENGTH, BATCH, tokens.encode())
        neo.write(weights.encode())
        write_checkpoint(checkpoint, weights)
        llmc.llmc_start(checkpoint.encode())
    wide = [numpy.zeros(BATCH * LENGTH, dtype=numpy.int64) for _ in range(2)]

    def theirs(number):
        neo.batch(number, *(w.ctypes.data for w in wide))
        ids, targets = (w.astype(numpy.int32) for w in wide)
        pointers = (x.ctypes.data_as(ctypes.c_void_p) for x in (ids, targets))
        return llmc.llmc_step(*pointers, BATCH, LENGTH)

    # llm.c's GELU is by tanh, and its gradients are not clipped: the first losses agree, then less.
    for i in range(2):
        neo.run(1, ctypes.byref(loss))
        other = theirs(i)
        if not abs(loss.value - other) <= (1e-3, 2e-2)[i] * other:
            text = "%s: the loss of step %d is %g, llm.c's %g"
            raise AssertionError(text % (WHAT, i, loss.value, other))
    subjects = {"neo": lambda i: neo.run(1, None), "llm.c": theirs}
    result = Turns(args, subjects, turns=3, calls=1).run()
    report.turns(WHAT, result, "llm.c", 3.0)
    neo.stop()


if os.path.exists(path):
    measure()
else:
    report.skip(WHAT, "llm.c", "its source could not be fetched, or not be built", 3.0)
