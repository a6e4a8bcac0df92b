#!/bin/sh
# safetensors_python.sh: a file that neo writes - every dtype, odd shapes and names - opens in
# Python's safetensors package with the same dtypes, shapes, values and metadata. (Files that Python
# wrote are what tests/golden is made of.) A chain of differential checkpoints of three ranks, put
# together in Python from what neo_state.h says of its files, is what build/merge makes of it.
# PYTHON names another interpreter.

B=${B:-build}
CC=${CC:-cc}
PYTHON=${PYTHON:-python3}
. tests/harness.sh
W=$B/tmp/safetensors_py
rm -rf "$W"
mkdir -p "$W"
needs_python files/safetensors_python 'import numpy, safetensors' \
    "safetensors: no Python with the numpy and safetensors packages"
if $CC -std=c11 -I. -o "$W/write" tests/files/write_safetensors.c "$B/neo.a" \
    -lm -pthread >"$W/cc" 2>&1; then
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
cat >"$W/chain.py" <<'END'
import json
import re
import sys
from pathlib import Path
import numpy as np
from safetensors import safe_open

steps = []
step = max(Path(sys.argv[1]).glob("step-*"))
while step:
    steps.insert(0, step)
    base = json.loads((step / "manifest.json").read_text()).get("base_step")
    step = step.with_name(f"step-{base:012d}") if base is not None else None
whole = {}
for step in steps:
    for path in step.glob("*-of-*.safetensors"):
        with safe_open(path, "np") as f:
            meta = f.metadata()
            for key in f.keys():
                place = re.fullmatch(r"\[(\d+)(?:,(\d+))?\] of \[(\d+)(?:,(\d+))?\] (.*)",
                                     meta.get(key, ""))
                if key.endswith("].rows"):
                    continue
                t = f.get_tensor(key)
                if not place:
                    whole[key] = t
                    continue
                row, col, rows, cols = (int(x or 0) for x in place.groups()[:4])
                name = place[5]
                to = whole.setdefault(name, np.zeros((rows, cols) if cols else rows, t.dtype))
                numbers = np.arange(row, row + len(t))
                if key + ".rows" in meta:
                    numbers = f.get_tensor(meta[key + ".rows"].split(" ", 1)[1])
                if cols:
                    to[numbers, col:col + t.shape[1]] = t
                else:
                    to[numbers] = t
with safe_open(sys.argv[2], "np") as f:
    for name in f.keys():
        assert (f.get_tensor(name).view("u1") == whole[name].view("u1")).all(), name
    print(len(steps), len(f.keys()))
END
if [ -x "$B/dlrm" ] && [ -x "$B/merge" ]; then
    if "$B/dlrm" --synthetic 2000 --batch 100 --dim 8 --bottom 13-24-8 --top 24-1 --rows 400 \
        --ranks 3 --plan rw --checkpoint "$W/ckpt" --every 4 --checkpoint-delta 9 >"$W/log" 2>&1 &&
        "$B/merge" "$W/ckpt" "$W/merged.safetensors" >>"$W/log" 2>&1 &&
        [ "$($PYTHON "$W/chain.py" "$W/ckpt" "$W/merged.safetensors" 2>>"$W/log")" = "5 34" ]; then
        pass
    else
        fail "a chain: $(tail -1 "$W/log")"
    fi
else
    skip "a chain of checkpoints: build/dlrm or build/merge is not built"
fi
finish files/safetensors_python
