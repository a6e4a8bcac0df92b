#!/bin/sh
# safetensors_python.sh: a file that neo writes - every dtype, odd shapes and names - opens in
# Python's safetensors package with the same dtypes, shapes, values and metadata. (Files that Python
# wrote are what tests/golden is made of.) PYTHON names another interpreter.

B=${B:-build}
CC=${CC:-cc}
PYTHON=${PYTHON:-python3}
. tests/harness.sh
W=$B/tmp/safetensors_py
rm -rf "$W"
mkdir -p "$W"
if ! $PYTHON -c 'import numpy, safetensors' 2>/dev/null; then
    skip "safetensors: no Python with the numpy and safetensors packages"
    finish files/safetensors_python
    exit
fi
if $CC -std=c11 -I. -o "$W/write" tests/files/write_safetensors.c -lm -pthread >"$W/cc" 2>&1; then
    pass
else
    fail "write_safetensors.c: $(head -1 "$W/cc")"
fi
if "$W/write" "$W/all.safetensors" >"$W/log" 2>&1; then
    pass
else
    fail "writing: $(cat "$W/log")"
fi
cat >"$W/read.py" <<'END'
import sys
import numpy as np
from safetensors import safe_open

expected = {"f32": ("F32", [3, 5]), "f16": ("F16", [7]), "bf16": ("BF16", [2, 3]),
            "f8e4m3": ("F8_E4M3", [5]), "f8e5m2": ("F8_E5M2", [5]), "i8": ("I8", [9]),
            "i32": ("I32", [2, 2, 2]), "i64": ("I64", [4]), "u8": ("U8", [3]),
            "four": ("F32", [2, 3, 4, 5]), "empty": ("F32", [0, 8]), "scalar": ("F32", []),
            'bags.a "quoted" \\ name.weight': ("F32", [1]), "größe/表": ("F32", [2])}
with safe_open(sys.argv[1], "np") as f:
    assert set(f.keys()) == set(expected), set(f.keys()) ^ set(expected)
    assert f.metadata() == {"format": "pt", "note": 'a "b"\né'}, f.metadata()
    for name, (dtype, shape) in expected.items():
        s = f.get_slice(name)
        found = s.get_dtype(), s.get_shape()
        assert found == (dtype, shape), (name, found)
        if dtype not in ("BF16", "F8_E4M3", "F8_E5M2"):  # numpy has not
            n = int(np.prod(shape))
            want = np.arange(n) - (0 if dtype == "U8" else 2)
            assert (f.get_tensor(name).ravel() == want).all(), name
END
if $PYTHON "$W/read.py" "$W/all.safetensors" >"$W/log" 2>&1; then
    pass
else
    fail "reading: $(tail -1 "$W/log")"
fi
finish files/safetensors_python
