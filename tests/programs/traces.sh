#!/bin/sh
# traces.sh: --trace of dlrm and gpt, read as JSON: the spans of a rank nest, and those in none add
# up to the time of its steps; their bytes are those that the counters say; what has no room is
# counted, and said; the weights are those of a run without.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/traces
rm -rf "$W"
mkdir -p "$W"
model="--synthetic 20000 --rows 2000 --batch 500 --repro-shards 4"
plain=$(state_of "$B/dlrm" $model)
gpt="--steps 3 --width 32 --context 32 --batch 4 --layers 2 --sample 0 --repro-shards 4"
for run in "dlrm $model" "dlrm $model --ranks 2" "dlrm $model --ranks 4 --nodes 2 --plan rw" \
    "gpt $gpt --ranks 2 --shard full" "gpt $gpt --ranks 4 --shard hybrid"; do
    part || continue
    rm -f "$W/t.json"
    got=$(state_of "$B/"$run --trace "$W/t.json")
    case $run in dlrm*) same "$run --trace" "$got" "$plain" ;; esac
    if ! have python3; then
        skip "$run: no python3 that reads it"
    elif python3 - "$W" "$run" <<'END'; then pass; else fail "$run: $(cat "$W/err")"; fi
import collections, json, re, sys
W, run = sys.argv[1], sys.argv[2].split()
trace = json.load(open(W + "/t.json"))
ranks = int(run[run.index("--ranks") + 1]) if "--ranks" in run else 1
said = re.search(r": (\d+) spans with (\d+) bytes sent; by the counters (\d+)",
                 open(W + "/err").read())
spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
assert trace["otherData"] == {"ranks": ranks, "spans": len(spans), "dropped": 0}
assert len(spans) == int(said[1])
sent = sum(e["args"]["local_bytes"] + e["args"]["cross_bytes"] for e in spans
           if e["cat"] == "communication")
assert sent == int(said[2]) == int(said[3]) and (sent > 0) == (ranks > 1), (sent, said[0])
names = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
assert {(e["pid"], e["tid"]) for e in spans} <= names
assert {e["pid"] for e in spans} == set(range(ranks))
for rank in range(ranks):
    mine = [e for e in spans if e["pid"] == rank and e["tid"] == 0]
    top, inside, around = collections.Counter(), 0, []
    for e in sorted(mine, key=lambda e: (e["ts"], -e["dur"])):
        while around and around[-1]["ts"] + around[-1]["dur"] <= e["ts"] + 1e-4: around.pop()
        if not around: top[e["name"]] += e["dur"]
        elif len(around) == 1 and around[0]["name"] == "step": inside += e["dur"]
        if around: assert e["ts"] + e["dur"] <= around[-1]["ts"] + around[-1]["dur"] + 1e-2, e
        around.append(e)
    for what in (["neo_bags_forward", "neo_shard_backward_end", "neo_reader_next"]
                 if run[0] == "dlrm" else ["neo_attention_forward", "forward", "backward"]):
        assert any(e["name"] == what for e in mine), what
    steps = [e["args"]["number"] for e in mine if e["name"] == "step"]
    assert steps == list(range(40 if run[0] == "dlrm" else 3)), steps
    assert inside > 0.98 * top["step"], (inside, top)
    if run[0] == "dlrm" and rank == 0:
        took = 20000 / float(re.search(r"samples/s=(\d+)", open(W + "/out_of").read())[1]) * 1e6
        assert abs(top["step"] + top["first batch"] - took) < 0.01 * took, (top, took)
END
done
# Fewer places than spans; a file that cannot be written; the same file twice.
"$B/dlrm" $model --ranks 2 --trace "$W/few.json" --trace-spans 100 >"$W/out" 2>"$W/err"
if grep -q "200 spans with" "$W/err" &&
    grep -q "later spans are not in it: raise --trace-spans" "$W/err"; then
    pass
else
    fail "--trace-spans 100: $(cat "$W/err")"
fi
if "$B/gpt" $gpt --trace "$W/none/t.json" 2>"$W/err"; then
    fail "a folder that is not there was accepted"
elif grep -q "trace: $W/none/t.json" "$W/err"; then
    pass
else
    fail "a folder that is not there: $(cat "$W/err")"
fi
if "$B/dlrm" $model --trace "$W/x" --report "$W/x" 2>"$W/err"; then
    fail "one file for two was accepted"
else
    pass
fi
finish programs/traces
