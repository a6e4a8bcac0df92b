#!/bin/sh
# python.sh: other readers of our files, and our reader of theirs, with Python's numpy, safetensors
# and torch where they are installed (PYTHON names another interpreter): examples/neo.py predicts as
# dlrm does, its weights load into PyTorch by name and predict the same there; a checkpoint opens
# with the names a user expects, and weights saved under the names of facebookresearch/dlrm load.

B=${B:-build}
PYTHON=${PYTHON:-python3}
. tests/harness.sh
W=$B/tmp/python
rm -rf "$W"
mkdir -p "$W"
needs_python programs/python 'import numpy' "Python: no numpy package"

# ---- examples/neo.py: a checkpoint that three ranks saved in parts; a model of ids ----

adult=examples/data/adult/adult
head -3000 $adult.test >"$W/test"
data="--format adult --data $adult.data --test $W/test --batch 256 --repro-shards 8"
for more in "--ranks 3 --plan rw" "--predict $W/predicted"; do
    "$B/dlrm" $data --epochs 1 --checkpoint "$W/parts" $more >"$W/run" 2>"$W/err" && pass || fail \
        "dlrm $more: $(tail -1 "$W/err")"
done
"$B/merge" "$W/parts" "$W/whole.safetensors" 2>"$W/err" || fail "merge: $(cat "$W/err")"
ids="--synthetic 2000 --batch 100 --dim 8 --bottom 13-24-8 --top 24-1 --rows 300"
"$B/dlrm" $ids --checkpoint "$W/ids" >"$W/run" 2>"$W/err" && pass || fail \
    "dlrm: $(tail -1 "$W/err")"
neo_py() { # LABEL: a program that knows W, neo, np, parts and ids
    label=$1
    { echo 'import glob, neo, numpy as np, sys
W, library = sys.argv[1:]
parts = neo.Model(W + "/parts", library, max_batch=100)
ids = neo.Model(W + "/ids", library, max_batch=100)'
        cat; } >"$W/program.py"
    PYTHONPATH=examples PYTHONDONTWRITEBYTECODE=1 $PYTHON "$W/program.py" "$W" \
        "$B/libneo_serve.so" >"$W/log" 2>&1 && pass || { fail "$label"; tail -3 "$W/log"; }
}
neo_py "neo.py: predictions" <<'END'
lines = open(W + "/test").read().splitlines()
expected = np.array(open(W + "/predicted").read().split(), np.float32)
assert len(expected) == len(lines) == 3000 and 0 < expected.min() < expected.max() < 1
assert (parts.predict(lines) == expected).all()
assert "age" in parts.columns and "income" not in parts.columns
dicts = [dict(zip(parts.columns, line.split(", ")[:-1])) for line in lines]
assert (parts.predict(dicts) == expected).all()
logits = neo.Model(W + "/parts", library, logits=True).predict(lines)
assert np.abs(1 / (1 + np.exp(-logits)) - expected).max() < 1e-6
assert len(parts.predict([])) == 0
for one in dicts[0], lines[0]:
    try:
        parts.predict(one)
        assert False
    except TypeError as error:
        assert "expected a list of samples" in str(error)
END
"$B/gpt" --data examples/data/shakespeare/input.txt --layers 1 --heads 2 --width 16 --context 48 \
    --steps 3 --seed 7 --checkpoint "$W/gpt" --prompt "To be" --sample 40 >"$W/out" 2>"$W/err" &&
    pass || fail "gpt: $(tail -1 "$W/err")"
neo_py "neo.py: text" <<'END'
gpt, wrote = neo.Model(W + "/gpt", library), open(W + "/out", "rb").read()
text = gpt.generate("To be", 40, seed=7)
assert len(text) == 40 and b"---- sample ----\nTo be" + text + b"\n-----" in wrote
assert len(gpt.generate([1, 2, 3], temperature=0)) == 48 - 3 + 1
assert neo.Model(W + "/gpt", library, threads=3).generate("To be", 40, seed=7) == text
try:
    neo.Model(W + "/gpt", library, threads=-1)
    assert False
except ValueError as e:
    assert "neo_decoder_create" in str(e)
assert gpt.generate(top_k=1, tokens=9) == gpt.generate("\n", temperature=0, tokens=9)
try:
    gpt.generate("\u00e9")
    assert False
except ValueError as e:
    assert "not in the vocabulary" in str(e)
try:
    gpt.predict([{}])
    assert False
except TypeError as e:
    assert "generate" in str(e)
END
letters=$(python3 tests/programs/tokens.py examples/data/shakespeare/input.txt "$W/tokens" \
    "$W/tokenizer")
"$B/gpt" --data "$W/tokens" --vocabulary $letters --layers 1 --heads 2 --width 16 --context 48 \
    --steps 3 --seed 7 --checkpoint "$W/gpt_tokens" --sample 0 >"$W/out" 2>"$W/err" &&
    pass || fail "gpt: $(tail -1 "$W/err")"
neo_py "neo.py: tokens" <<'END'
letters = sorted(set(open("examples/data/shakespeare/input.txt", "rb").read()))
gpt, of_tokens = neo.Model(W + "/gpt", library), neo.Model(W + "/gpt_tokens", library)
tokens = of_tokens.generate([letters.index(c) for c in b"To be"], 40, seed=7)
assert bytes(letters[t] for t in tokens) == gpt.generate("To be", 40, seed=7)
try:
    of_tokens.generate("To be")
    assert False
except ValueError as e:
    assert "give an array of them" in str(e)
END
neo_py "neo.py: weights" <<'END'
whole = dict(neo.read_safetensors(W + "/whole.safetensors"))
weights = neo.weights(W + "/parts", parts.step)
assert set(weights) == set(whole) and len(whole) > 10
first = glob.glob(W + "/parts/step-*/model-00001-of-00003.safetensors")[0]
assert any("[" in name for name, _ in neo.read_safetensors(first)), "nothing was cut"
assert all((weights[k] == v).all() and weights[k].shape == v.shape for k, v in whole.items())
END
neo_py "neo.py: ids" <<'END'
random = np.random.default_rng(1)
dense = random.standard_normal((100, ids.info.dense_count)).astype(np.float32)
rows = list(ids.features.values())
some = np.stack([random.integers(0, r, 100) for r in rows], 1)
out = ids.predict_ids(dense, some)
samples = [dict(zip(ids.columns, d.tolist() + i.tolist())) for d, i in zip(dense, some)]
assert out.shape == (100,) and len(set(out)) > 50 and (ids.predict(samples) == out).all()
# A feature of no, one and two ids; weights of one change nothing where the model has none.
offsets = np.cumsum(np.concatenate([[0], np.tile([0, 1, 2], len(rows))]))
bags = np.concatenate([random.integers(0, r, 3) for r in rows])
out = ids.predict_ids(dense[:3], bags, offsets)
for b, lists in enumerate(([], [0], [1, 2])):
    one = [bags[3 * f + k] for f in range(len(rows)) for k in lists]
    single = ids.predict_ids(dense[b : b + 1], one, np.arange(len(rows) + 1) * len(lists))
    assert single[0] == out[b]
# Weights lie as the ids do.
weights = random.random(some.shape)
out = ids.predict_ids(dense, some, weights=weights)
flat = ids.predict_ids(dense, some.T.ravel(), np.arange(some.size + 1), weights.T.ravel())
assert (out == flat).all() and (out != ids.predict_ids(dense, some)).any()
END
# Lists of many ids: as many samples at once as there is room for, and one of all that a line holds.
awk 'BEGIN { for (i = 0; i < 300; i++) { printf "%d", i % 2
    for (k = 0; k < 400; k++) printf " %d:%d", (i * k) % 50, k % 3; print "" } }' >"$W/long.svm"
"$B/dlrm" --model lr --format libsvm --data "$W/long.svm" --checkpoint "$W/long" >"$W/run" \
    2>"$W/err" && pass || fail "dlrm: $(tail -1 "$W/err")"
neo_py "neo.py: long lists" <<'END'
lines = open(W + "/long.svm").read().splitlines()
lines.append("1" + " 1:1" * 16000)
out = [neo.Model(W + "/long", library, max_batch=b).predict(lines) for b in (1, 300)]
assert len(set(out[0])) > 10 and (out[0] == out[1]).all()
END
# Records of integers, of which an f32 does not hold all.
$PYTHON -c 'import numpy as np, sys
random = np.random.default_rng(3)
some = random.choice([-2147483648, -5, 0, 3, 16777217, 2147483647], (300, 13))
np.hstack([np.arange(300)[:, None] % 2, some, random.integers(0, 50, (300, 26))]).astype("<i4") \
    .tofile(sys.argv[1])' "$W/ints.bin"
ints="--format binary --rows 50 --dim 4 --bottom 13-4 --top 8-1 --checkpoint $W/ints"
"$B/dlrm" $ints --data "$W/ints.bin" >"$W/run" 2>"$W/err" &&
    "$B/dlrm" $ints --test "$W/ints.bin" --eval --predict "$W/ints.out" >"$W/run" 2>"$W/err" &&
    pass || fail "dlrm --format binary: $(tail -1 "$W/err")"
neo_py "neo.py: integers" <<'END'
ints = neo.Model(W + "/ints", library)
records = np.fromfile(W + "/ints.bin", "<i4").reshape(-1, 40)[:, 1:]
expected = np.array(open(W + "/ints.out").read().split(), np.float32)
assert len(set(expected)) > 200
assert (ints.predict([dict(zip(ints.columns, r.tolist())) for r in records]) == expected).all()
for wrong in (-1e30, 2147483648, 1.5):
    try:
        ints.predict([{"dense_0": wrong}])
    except ValueError as error:
        assert "integer of 32 bits" in str(error), error
    else:
        raise AssertionError(wrong)
END
"$B/dlrm" --model lr --format libsvm --data "$W/long.svm" --checkpoint "$W/chain" --batch 50 \
    --every 1 --checkpoint-delta 9 >"$W/run" 2>"$W/err" && pass || fail "dlrm: $(tail -1 "$W/err")"
neo_py "neo.py: errors" <<'END'
def refuses(text, call, *arguments):
    try:
        call(*arguments)
    except (ValueError, FileNotFoundError) as error:
        assert text in str(error), error
    else:
        raise AssertionError("no error: " + text)
refuses("none: ", neo.Model, W + "/none", library)
refuses("no whole checkpoint", neo.weights, W + "/none")
refuses("differential: build/merge", neo.weights, W + "/chain")
refuses("agee", parts.predict, [{"agee": 1}])
refuses("id 300", ids.predict_ids, np.zeros((1, 13)), np.full((1, 26), 300))
refuses("26 bags", ids.predict_ids, np.zeros((1, 13)), np.zeros(5, int), np.arange(6))
refuses("52 bags", ids.predict_ids, np.zeros((2, 13)), np.zeros((26, 2), int))
refuses("26 bags", ids.predict_ids, np.zeros((1, 13)), np.zeros((1, 26), int), None, np.ones(26))
refuses("13", ids.predict_ids, np.zeros((1, 12)), np.zeros((1, 26), int))
END
if $PYTHON -c 'import torch' 2>/dev/null; then
    neo_py "PyTorch with weights by name" <<'END'
import torch
from torch import nn
class DLRM(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bags = nn.ModuleDict({k: nn.EmbeddingBag(r, 8, mode="sum")
                                   for k, r in features.items()})
        self.bottom = nn.Sequential(nn.Linear(13, 24), nn.ReLU(), nn.Linear(24, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 27 * 26 // 2, 24), nn.ReLU(), nn.Linear(24, 1))
    def forward(self, dense, some):
        x = self.bottom(dense)
        e = [bag(some[:, i : i + 1]) for i, bag in enumerate(self.bags.values())]
        t = torch.stack([x] + e, 1)
        i, j = torch.tril_indices(27, 27, -1)
        z = torch.cat([x, (t @ t.transpose(1, 2))[:, i, j]], 1)
        return torch.sigmoid(self.top(z))[:, 0]
model = DLRM(ids.features)
model.load_state_dict({k: torch.from_numpy(v) for k, v in neo.weights(W + "/ids").items()})
random = np.random.default_rng(2)
dense = random.standard_normal((100, 13)).astype(np.float32)
some = np.stack([random.integers(0, r, 100) for r in ids.features.values()], 1)
theirs = model(torch.from_numpy(dense), torch.from_numpy(some)).detach().numpy()
ours = ids.predict_ids(dense, some)
assert len(set(ours)) > 50 and np.abs(ours - theirs).max() <= 1e-6, np.abs(ours - theirs).max()
END
else
    skip "PyTorch: $PYTHON has no torch package (PYTHON names another interpreter)"
fi

# ---- safetensors of others ----

needs_python programs/python 'import safetensors.numpy' "Python: no safetensors package"
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
assert len(tables) == 26, tables
assert all(k.endswith(".weight") and weights[k].shape[1] == 8 for k in tables), tables
for v in weights.values():
    assert np.isfinite(v).all()
for path in glob.glob(step + "/state-*.safetensors"):
    with safe_open(path, "np") as f:
        assert len(list(f.keys())) > 0
manifest = json.load(open(step + "/manifest.json"))
assert manifest
# the same weights under the names of facebookresearch/dlrm's model
order = sorted(tables, key=lambda k: int("".join(c for c in k if c.isdigit())))
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
