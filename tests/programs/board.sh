#!/bin/sh
# board.sh: --tensorboard and --histograms of dlrm and gpt. The files are read by a small decoder of
# records and protobuf, which knows their checksums, and by TensorBoard's own reader where it is
# installed: the curves are those of --log, histograms count every weight of the checkpoint, and are
# the same on any ranks; the weights are those of a run without.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/board
PYTHON=${PYTHON:-python3}
rm -rf "$W"
mkdir -p "$W"
model="--synthetic 4000 --rows 300 --batch 200 --repro-shards 4 --log-every 5"
plain=$(state_of "$B/dlrm" $model)
got=$(state_of "$B/dlrm" $model --tensorboard "$W/new/one" --histograms 20 --log "$W/log.jsonl" \
    --checkpoint "$W/ckpt" --window 1000)
same "dlrm --tensorboard" "$got" "$plain"
got=$(state_of "$B/dlrm" $model --tensorboard "$W/two" --histograms 20 --ranks 2 \
    --dense-shard full)
same "dlrm --tensorboard, 2 ranks" "$got" "$plain"
"$B/merge" "$W/ckpt" "$W/all.safetensors" >"$W/out" 2>&1 || fail "merge: $(cat "$W/out")"
gpt="--steps 4 --width 32 --context 32 --batch 4 --layers 2 --sample 0 --repro-shards 4"
plain=$(state_of "$B/gpt" $gpt)
same "gpt --tensorboard" "$(state_of "$B/gpt" $gpt --tensorboard "$W/gpt" --histograms 2 \
    --ranks 2 --eval-every 2)" "$plain"

cat >"$W/read.py" <<'END'
import glob, json, math, struct, sys
sys.path.insert(0, "tests/programs")
sys.dont_write_bytecode = True
import protobuf
W = sys.argv[1]
table = []
for n in range(256):
    for _ in range(8): n = n >> 1 ^ 0x82F63B78 * (n & 1)
    table.append(n)
def masked(data):
    crc = 0xFFFFFFFF
    for byte in data: crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
assert masked(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
def fields(data):
    found = protobuf.fields(data, {1: 8, 5: 4})
    assert len(dict(found)) == len(found)
    return dict(found)
def double(data): return struct.unpack("<d", data)[0]
def doubles(data): return struct.unpack("<%dd" % (len(data) // 8), data)
def read(folder):
    (path,) = glob.glob(folder + "/*")
    assert "tfevents" in path
    data, at, curves, histograms = open(path, "rb").read(), 0, {}, {}
    while at < len(data):
        size, check = struct.unpack_from("<QI", data, at)
        assert check == masked(data[at:at + 8])
        event = data[at + 12:at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(event)
        event, first, at = fields(event), at == 0, at + 16 + size
        assert 1.7e9 < double(event[1]) < 1e10
        if first:
            assert event[3] == b"brain.Event:2"
            continue
        value = fields(fields(event[5])[1])
        tag, step = value[1].decode(), event[2]
        if 2 in value: curves.setdefault(tag, []).append((step, struct.unpack("<f", value[2])[0]))
        else: histograms[tag, step] = fields(value[5])
    return curves, histograms

curves, one = read(W + "/new/one")
wanted = {}
for line in map(json.loads, open(W + "/log.jsonl")):
    for key, value in line.items():
        if key not in ("step", "epoch"):
            value = math.nan if value is None else value
            (value,) = struct.unpack("f", struct.pack("f", value))
            wanted.setdefault(key, []).append((line["step"], value))
assert {"loss", "lr", "samples_per_s", "test_auc", "window_ne", "lifetime_auc",
        "lifetime_auc_error"} <= set(wanted)
assert repr(curves) == repr(wanted), (curves, wanted)
assert [step for step, _ in curves["loss"]] == [5, 10, 15, 20]

data = open(W + "/all.safetensors", "rb").read()
(size,) = struct.unpack_from("<Q", data)
header = json.loads(data[8:8 + size])
names = {n for n in header if n.startswith(("bottom", "top")) and n.endswith(("weight", "bias"))}
assert {(kind + "/" + n, 20) for n in names for kind in ("weights", "gradients")} == set(one)
for name in names:
    begin, end = header[name]["data_offsets"]
    x = struct.unpack("<%df" % ((end - begin) // 4), data[8 + size + begin:8 + size + end])
    h = one["weights/" + name, 20]
    limits, counts = doubles(h[6]), doubles(h[7])
    assert double(h[3]) == len(x) == sum(counts) and counts[0] and counts[-1]
    assert abs(double(h[4]) - math.fsum(x)) <= 1e-12 * len(x)
    assert abs(double(h[5]) - math.fsum(v * v for v in x)) <= 1e-6 * double(h[5])
    edges = (double(h[1]),) + limits
    assert list(edges) == sorted(edges) and edges[-1] == double(h[2])
    for low, high, count in zip(edges, limits, counts): # a number at an edge: in the outer bucket
        inside = [v for v in x if (low < v <= high if high < 0 else low <= v < high if low > 0
                                   else low < v < high)]
        assert len(inside) == count, (name, low, high)
    assert double(one["gradients/" + name, 20][5]) > 0
_, two = read(W + "/two")
assert one == two
curves, histograms = read(W + "/gpt")
for tag in "loss", "samples_per_s", "lr": assert [step for step, _ in curves[tag]] == [1, 2, 3, 4]
assert [step for step, _ in curves["val_loss"]] == [2, 4] and len(curves) == 4
assert {step for _, step in histograms} == {2, 4}
assert double(histograms["weights/h.1.mlp.c_fc.weight", 4][3]) == 4 * 32 * 32
if len(sys.argv) > 2:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    for folder in "/new/one", "/gpt":
        curves, histograms = read(W + folder)
        board = EventAccumulator(W + folder, size_guidance={"histograms": 0, "scalars": 0}).Reload()
        assert set(board.Tags()["scalars"]) == set(curves)
        assert set(board.Tags()["histograms"]) == {tag for tag, _ in histograms}
        for tag, points in curves.items():
            assert repr([(e.step, e.value) for e in board.Scalars(tag)]) == repr(points)
        for (tag, step), h in histograms.items():
            (value,) = [e.histogram_value for e in board.Histograms(tag) if e.step == step]
            assert tuple(value.bucket_limit) == doubles(h[6])
            assert tuple(value.bucket) == doubles(h[7])
            assert (value.num, value.sum) == (double(h[3]), double(h[4]))
END
if ! have python3; then skip "--tensorboard: no python3 that reads it"
elif python3 "$W/read.py" "$W" 2>"$W/err"; then pass
else fail "--tensorboard: $(tail -3 "$W/err")"
fi
if ! "$PYTHON" -c 'import tensorboard' 2>/dev/null; then
    skip "--tensorboard by its own reader: not installed for $PYTHON"
elif "$PYTHON" "$W/read.py" "$W" tensorboard 2>"$W/err"; then pass
else fail "--tensorboard by its own reader: $(tail -3 "$W/err")"
fi
# A second run into a folder adds a file.
"$B/dlrm" $model --tensorboard "$W/two" >"$W/out" 2>&1
same "files of two runs" "$(ls "$W/two" | wc -l | tr -d ' ')" 2
refuse() {
    what=$1
    shift
    if "$B/"$* >"$W/out" 2>"$W/err"; then fail "$* was accepted"
    elif grep -q -- "$what" "$W/err"; then pass
    else fail "$*: $(cat "$W/err")"
    fi
}
refuse "--histograms needs --tensorboard" dlrm $model --histograms 5
refuse "--histograms needs --tensorboard" gpt $gpt --histograms 5
: >"$W/file"
refuse "--tensorboard: $W/file/events" dlrm $model --tensorboard "$W/file"
finish programs/board
