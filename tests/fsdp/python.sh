#!/bin/sh
# python.sh: the file that neo_fsdp_write_safetensors writes - a model in shards, with optimizer
# state - opens in Python's safetensors package with the names, dtypes, shapes and numbers that it
# has for neo; and a file of Python's like those of GPT-2 - other names, f16, weights transposed -
# loads into a model in shards. PYTHON names another interpreter.

B=${B:-build}
PYTHON=${PYTHON:-python3}
. tests/harness.sh
W=$B/tmp/fsdp_py
rm -rf "$W"
mkdir -p "$W"
needs_python fsdp/python 'import numpy, safetensors' \
    "safetensors: no Python with the numpy and safetensors packages"
if "$B/tests/fsdp/state" "$W/full.safetensors" >"$W/list" 2>"$W/log"; then
    pass
else
    fail "writing: $(cat "$W/log")"
fi
cat >"$W/read.py" <<'END'
import sys
import numpy as np
from safetensors import safe_open

expected = {}
for line in open(sys.argv[2]):
    name, dtype, rows, cols, total = line.split()
    shape = [int(rows)] + ([int(cols)] if cols != "0" else [])
    expected[name] = (dtype.upper(), shape, float(total))
assert len(expected) == 22 + 20 + 3, len(expected)  # weights, momentum of those that train, numbers
with safe_open(sys.argv[1], "np") as f:
    assert f.metadata() == {"format": "pt"}, f.metadata()
    assert set(f.keys()) == set(expected), set(f.keys()) ^ set(expected)
    for name, (dtype, shape, total) in expected.items():
        s, t = f.get_slice(name), f.get_tensor(name)
        got = s.get_dtype(), s.get_shape()
        assert got == (dtype, shape), (name, *got)
        found, size = (float(np.sum(x, dtype=np.float64)) for x in (t, np.abs(t)))
        assert abs(found - total) <= 1e-12 * size, (name, found, total)
    assert f.get_tensor("layer.1.weight").shape == (3, 15) and f.get_tensor("optim.step")[0] == 1
    assert f.get_tensor("optim.loss_scale")[0] == 1024
    assert f.get_tensor("optim.layer.1.weight.momentum_buffer").any()
END
if $PYTHON "$W/read.py" "$W/full.safetensors" "$W/list" >"$W/log" 2>&1; then
    pass
else
    fail "reading: $(tail -1 "$W/log")"
fi
cat >"$W/foreign.py" <<'END'
import sys
import numpy as np
from safetensors.numpy import load_file, save_file

widths = [7, 15, 3, 64, 48, 1, 16, 15, 8, 16, 17, 8]  # of tests/fsdp/common.h
if len(sys.argv) == 2:
    rng = np.random.default_rng(1)
    tensors = {"transformer.wpe.weight": np.ones((2, 2), np.float32)}  # not asked for
    for i in range(len(widths) - 1):
        name = "transformer.h.%d.c_fc." % i
        weight = rng.standard_normal((widths[i], widths[i + 1]))
        tensors[name + "weight"] = weight.astype(np.float16)
        tensors[name + "bias"] = rng.standard_normal(widths[i + 1]).astype(np.float16)
    save_file(tensors, sys.argv[1])
else:
    ours, theirs = load_file(sys.argv[2]), load_file(sys.argv[1])
    for i in range(len(widths) - 1):
        for what in "weight", "bias":
            want = theirs["transformer.h.%d.c_fc.%s" % (i, what)].T.astype(np.float32)
            assert np.array_equal(ours["layer.%d.%s" % (i, what)], want), (i, what)
END
if $PYTHON "$W/foreign.py" "$W/foreign.safetensors" >"$W/log" 2>&1 &&
    "$B/tests/fsdp/state" "$W/loaded.safetensors" "$W/foreign.safetensors" >"$W/list" 2>"$W/log" &&
    $PYTHON "$W/foreign.py" "$W/foreign.safetensors" "$W/loaded.safetensors" >"$W/log" 2>&1; then
    pass
else
    fail "a file of Python's: $(tail -1 "$W/log")"
fi
finish fsdp/python
