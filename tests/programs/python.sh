#!/bin/sh
# python.sh: other readers of our files, and our reader of theirs, with Python's numpy and
# safetensors where they are installed (PYTHON names another interpreter): a checkpoint opens with
# the names a user expects, and weights saved under the names of facebookresearch/dlrm load.

B=${B:-build}
PYTHON=${PYTHON:-python3}
. tests/harness.sh
W=$B/tmp/python
rm -rf "$W"
mkdir -p "$W"
if ! $PYTHON -c 'import numpy, safetensors.numpy' 2>/dev/null; then
    skip "Python: no numpy and safetensors packages"
    finish programs/python
    exit
fi
model="--synthetic 600 --batch 100 --dim 8 --bottom 13-24-8 --top 24-1 --rows 300 --seed 5"
"$B/dlrm" $model --checkpoint "$W/ckpt" --optimizer adam >"$W/run" 2>"$W/err" && pass || fail \
    "dlrm: $(tail -1 "$W/err")"
$PYTHON - "$W" >"$W/log" 2>&1 <<'END' && pass || { fail "checkpoint in Python"; tail -3 "$W/log"; }
import glob, json, sys
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
w = sys.argv[1]
step = sorted(glob.glob(w + "/ckpt/step-*"))[-1]
index = json.load(open(step + "/model.safetensors.index.json"))
weights = {}
for name in set(index["weight_map"].values()):
    weights.update(load_file(step + "/" + name))
assert set(weights) == set(index["weight_map"]), "index and files differ"
shapes = {"bottom.0.weight": (24, 13), "bottom.0.bias": (24,), "bottom.2.weight": (8, 24),
          "top.0.weight": (24, 8 + 27 * 26 // 2), "top.2.weight": (1, 24)}
for name, shape in shapes.items():
    assert weights[name].shape == shape and weights[name].dtype == np.float32, name
tables = [k for k in weights if k.startswith("bags.")]
assert len(tables) == 26 and all(k.endswith(".weight") and weights[k].shape[1] == 8 for k in tables), tables
for v in weights.values():
    assert np.isfinite(v).all()
for path in glob.glob(step + "/state-*.safetensors"):
    with safe_open(path, "np") as f:
        assert len(list(f.keys())) > 0
manifest = json.load(open(step + "/manifest.json"))
assert manifest
# the same weights under the names of facebookresearch/dlrm's model
order = json.loads(json.dumps(sorted(tables, key=lambda k: int("".join(c for c in k if c.isdigit())))))
theirs = {("emb_l.%d.weight" % i): weights[k] for i, k in enumerate(order)}
for k, v in weights.items():
    if not k.startswith("bags."):
        theirs[k.replace("bottom.", "bot_l.").replace("top.", "top_l.")] = v
save_file(theirs, w + "/dlrm.safetensors")
save_file({k: v.astype(np.float16) for k, v in theirs.items()}, w + "/half.safetensors")
END
figures() { grep -o 'auc=.*ne=[^ ]*' "$1" | tail -1; }
if "$B/dlrm" $model --load "$W/dlrm.safetensors" --eval >"$W/loaded" 2>"$W/err"; then
    same "weights with PyTorch DLRM's names" "$(figures "$W/loaded")" "$(figures "$W/run")"
else
    fail "--load: $(tail -1 "$W/err")"
fi
"$B/dlrm" $model --load "$W/half.safetensors" --eval >"$W/half" 2>"$W/err" && pass || fail \
    "f16 weights: $(tail -1 "$W/err")"
finish programs/python
