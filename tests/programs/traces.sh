#!/bin/sh
# traces.sh: --trace of dlrm and gpt, read as JSON: the spans of a rank nest, and those in none add
# up to the time of its steps; their bytes are those that the counters say; what has no room is
# counted, and said; the weights are those of a run without. --chakra: the same spans as messages of
# Chakra's schema, read by a small decoder, and where they are installed by google.protobuf and by
# MLCommons' chakra (github.com/mlcommons/chakra).

B=${B:-build}
. tests/harness.sh
W=$B/tmp/traces
PYTHON=${PYTHON:-python3}
rm -rf "$W"
mkdir -p "$W"
model="$(given 20000 2000) --rows 2000 --batch 500 --repro-shards 4"
plain=$(state_of "$B/dlrm" $model)
gpt="--steps 3 --width 32 --context 32 --batch 4 --layers 2 --sample 0 --repro-shards 4"
for run in "dlrm $model" "dlrm $model --ranks 2" "dlrm $model --ranks 4 --nodes 2 --plan rw" \
    "dlrm $model --ranks 4 --nodes 2 --towers 2" \
    "gpt $gpt --ranks 2 --shard full --memory" "gpt $gpt --ranks 4 --shard hybrid"; do
    part || continue
    found=7 tries=0 # 7: times that do not add up, as where something else stopped a rank: again
    while [ $found = 7 ] && [ $tries -lt 5 ]; do
        tries=$((tries + 1))
        rm -f "$W/t.json"
        got=$(state_of "$B/"$run --trace "$W/t.json")
        have python3 || break
        python3 - "$W" "$run" "$SANITIZER" <<'END'
import collections, json, re, statistics, sys
W, run, slow = sys.argv[1], sys.argv[2].split(), sys.argv[3] # slow: with a sanitizer
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
    top, around, parts = collections.Counter(), [], []
    for e in sorted(mine, key=lambda e: (e["ts"], -e["dur"])):
        while around and around[-1]["ts"] + around[-1]["dur"] <= e["ts"] + 1e-4: around.pop()
        if not around: top[e["name"]] += e["dur"]
        if not around and e["name"] == "step": parts.append([e["dur"], 0])
        if len(around) == 1 and around[0]["name"] == "step": parts[-1][1] += e["dur"]
        if around: assert e["ts"] + e["dur"] <= around[-1]["ts"] + around[-1]["dur"] + 1e-2, e
        around.append(e)
    for what in (["neo_bags_forward", "neo_shard_backward_end", "neo_reader_next"]
                 if run[0] == "dlrm" else ["neo_attention_forward", "forward", "backward"]):
        assert any(e["name"] == what for e in mine), what
    steps = [e["args"]["number"] for e in mine if e["name"] == "step"]
    assert steps == list(range(40 if run[0] == "dlrm" else 3)), steps
    # The median, as other processes may take what time they want between two spans. Steps of the
    # gpt are so short that what lies between calls is more of them.
    inside = sum(part for whole, part in parts)
    assert top["step"] >= inside, (inside, top)
    least = 0.5 if slow else 0.98 if run[0] == "dlrm" else 0.95
    if statistics.median(part / whole for whole, part in parts) < least: sys.exit(7)
    if run[0] == "dlrm" and rank == 0:
        took = 20000 / float(re.search(r"samples/s=(\d+)", open(W + "/out_of").read())[1]) * 1e6
        assert top["step"] + top["first batch"] < 1.01 * took, (top, took)
        if not 0.5 * took < top["step"] + top["first batch"]: sys.exit(7)
END
        found=$?
    done
    case $run in *--towers*) ;; dlrm*) same "$run --trace" "$got" "$plain" ;; esac
    if ! have python3; then
        skip "$run: no python3 that reads it"
    elif [ $found = 0 ]; then pass; else fail "$run: $found: $(cat "$W/err")"; fi
done
# Chakra's execution traces.
got=$(state_of "$B/dlrm" $model --ranks 2 --trace "$W/t.json" --chakra "$W/et")
same "dlrm --chakra" "$got" "$plain"
cat >"$W/et.py" <<'END'
import json, sys
sys.path.insert(0, "tests/programs")
sys.dont_write_bytecode = True
from protobuf import fields, varint, varints
W = sys.argv[1]
def messages(path):
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        size, at = varint(data, at)
        assert at + size <= len(data)
        yield data[at:at + size]
        at += size
def node(data):
    n = {"after": [], "attr": {}}
    for number, value in fields(data):
        if number == 5: n["after"] = varints(value)
        elif number == 10:
            (_, name), (kind, attr) = fields(value)
            n["attr"][name.decode()] = (kind, attr.decode() if kind == 29 else attr)
        else: n[{1: "id", 2: "name", 3: "type", 6: "begin", 7: "took"}[number]] = value
    return n
if sys.argv[2] == "own":
    spans = [e for e in json.load(open(W + "/t.json"))["traceEvents"] if e["ph"] == "X"]
    for rank in range(2):
        first, *rest = messages(W + "/et.%d.et" % rank)
        assert fields(first) == [(1, b"1.0.0")]
        nodes = {}
        for n in map(node, rest):
            assert n["id"] not in nodes and all(d in nodes for d in n["after"]), n
            nodes[n["id"]] = n
        sends = [e for e in spans if e["pid"] == rank and e["cat"] == "communication"]
        of = [n for n in nodes.values() if n["type"] == 7]
        assert len(of) == len(sends), (len(of), len(sends))
        for n, e in zip(of, sends):
            assert n["attr"]["comm_size"][1] == e["args"]["buffer_bytes"]
            assert n["name"].decode() == e["name"] and abs(n["took"] - e["dur"]) < 1.01
        types = {"all_reduce": 0, "all_gather": 2, "gather": 3, "broadcast": 5, "all_to_all": 6}
        assert all(n["attr"]["comm_type"] == (9, types[n["name"].decode()]) for n in of)
        assert {n["attr"]["pg_name"] for n in of} == {(29, "0-1")}
        # What computes, follows or waits covers the rank's thread, up to 1 us for each node.
        mine = [e for e in spans if e["pid"] == rank and e["tid"] == 0]
        waits = sum(e["dur"] for e in mine if e["cat"] == "wait")
        whole = max(e["ts"] + e["dur"] for e in mine) - min(e["ts"] for e in mine)
        queued = {n["id"] for n, e in zip(of, sends) if e["tid"]}
        took = sum(n["took"] for n in nodes.values() if n["id"] not in queued)
        assert abs(whole - waits - took) < 0.05 * whole, (whole, waits, took)
        computes = [n for n in nodes.values() if n["type"] == 4]
        assert any(len(n["after"]) > 1 and any(d in queued for d in n["after"]) for n in computes)
        names = {n["name"] for n in computes}
        assert {b"neo_mlp_backward", b"neo_bags_forward", b"between"} <= names
elif sys.argv[2] == "chakra":
    import subprocess
    from chakra.schema.protobuf import et_def_pb2 as et
    from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd
    VALUE = {"is_cpu_op": "bool_val", "pg_name": "string_val", "comm_type": "int64_val",
             "comm_size": "int64_val"} # as its feeder of simulators reads them
    for rank in range(2):
        path, n, done, first = W + "/et.%d.et" % rank, et.Node(), {}, et.GlobalMetadata()
        file = openFileRd(path)
        assert decodeMessage(file, first) and first.version == "1.0.0"
        while decodeMessage(file, n):
            size = n.ByteSize()
            n.DiscardUnknownFields()
            assert n.ByteSize() == size and not n.ctrl_deps, n
            assert n.id not in done and all(d in done for d in n.data_deps), n
            assert all(a.WhichOneof("value") == VALUE[a.name] for a in n.attr), n
            kind, attr = et.NodeType.Name(n.type), {a.name: a for a in n.attr}
            assert kind in ("COMP_NODE", "COMM_COLL_NODE") and not attr["is_cpu_op"].bool_val
            if kind == "COMM_COLL_NODE":
                op = et.CollectiveCommType.Name(attr["comm_type"].int64_val)
                assert op.lower() == n.name and set(attr) == set(VALUE), n
            done[n.id] = n.name
        subprocess.run([sys.executable, "-m", "chakra.src.jsonizer.jsonizer", "--input_filename",
                        path, "--output_filename", W + "/et.json"], check=True)
        text, at, read = open(W + "/et.json").read(), 0, []
        while at < len(text):
            value, at = json.JSONDecoder().raw_decode(text, at)
            read.append(value)
        own = [node(data) for data in list(messages(path))[1:]]
        assert read[0] == {"version": "1.0.0"} and len(own) == len(done) == len(read) - 1
        for r, o in zip(read[1:], own):
            assert (int(r.get("id", 0)), r["name"].encode()) == (o["id"], o["name"])
            assert [int(d) for d in r.get("dataDeps", [])] == o["after"]
            assert int(r.get("durationMicros", 0)) == o["took"]
else:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")
    attr, whole = file.message_type.add(name="Attr"), file.message_type.add(name="Node")
    for name, number, kind in (("name", 1, 9), ("i32", 7, 5), ("i64", 9, 3), ("is", 27, 8),
                               ("s", 29, 9)):
        attr.field.add(name=name, number=number, type=kind, label=1)
    for name, number, kind, label in (("id", 1, 4, 1), ("name", 2, 9, 1), ("type", 3, 5, 1),
        ("ctrl", 4, 4, 3), ("after", 5, 4, 3), ("begin", 6, 4, 1), ("took", 7, 4, 1)):
        whole.field.add(name=name, number=number, type=kind, label=label)
    whole.field.add(name="attr", number=10, type=11, label=3, type_name=".et.Attr")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    Node = message_factory.GetMessageClass(pool.FindMessageTypeByName("et.Node"))
    for rank in range(2):
        for data in list(messages(W + "/et.%d.et" % rank))[1:]:
            read, own = Node.FromString(data), node(data)
            assert (read.id, read.name.encode(), read.type) == (own["id"], own["name"], own["type"])
            assert list(read.after) == own["after"] and len(read.attr) == len(own["attr"])
            sizes = [a.i64 for a in read.attr if a.name == "comm_size"]
            assert sizes == [v for k, (_, v) in own["attr"].items() if k == "comm_size"]
            assert Node.FromString(read.SerializeToString()) == read
END
if ! have python3; then skip "--chakra: no python3 that reads it"
elif python3 "$W/et.py" "$W" own 2>"$W/err"; then pass
else fail "--chakra: $(tail -3 "$W/err")"
fi
if ! "$PYTHON" -c 'from google.protobuf import message_factory' 2>/dev/null; then
    skip "--chakra by google.protobuf: not installed for $PYTHON"
elif "$PYTHON" "$W/et.py" "$W" protobuf 2>"$W/err"; then pass
else fail "--chakra by google.protobuf: $(tail -3 "$W/err")"
fi
if ! "$PYTHON" -c 'import chakra.src.jsonizer.jsonizer' 2>/dev/null; then
    skip "--chakra by MLCommons' chakra: not installed for $PYTHON"
elif "$PYTHON" "$W/et.py" "$W" chakra 2>"$W/err"; then pass
else fail "--chakra by MLCommons' chakra: $(tail -3 "$W/err")"
fi
if "$B/dlrm" $model --chakra "$W/none/et" >"$W/out" 2>"$W/err"; then
    fail "--chakra: a folder that is not there was accepted"
elif grep -q "chakra: $W/none/et" "$W/err" && [ ! -s "$W/out" ]; then pass # before it trains
else fail "--chakra: a folder that is not there: $(cat "$W/err")"
fi
# The report's table: what is measured adds up to the step, and each operation has a prediction.
"$B/dlrm" $model --ranks 2 --trace "$W/t.json" --report "$W/r.html" >"$W/out" 2>&1
if ! have python3; then skip "--report with --trace: no python3 that reads it"
elif python3 - "$W" 2>"$W/err" <<'END'
import re, sys
page = open(sys.argv[1] + "/r.html").read()
table = page[page.index("A step of rank 0, predicted and measured"):]
table = table[:table.index("</table>")]
rows = [[re.sub("<[^>]*>", "", cell) for cell in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in table.split("<tr>")[1:]]
assert rows[0] == ["operation", "predicted, ms", "measured, ms", "error"], rows
rows = {row[0]: row[1:] for row in rows[1:]}
assert {"bottom forward", "lookup", "pairs forward", "top forward", "top backward",
        "pairs backward", "bottom backward", "update", "optimizer", "communication, waited for",
        "reading", "all else", "step"} == set(rows), rows
whole = float(rows["step"][1])
assert abs(sum(float(r[1]) for r in rows.values()) - 2 * whole) < 0.01 * whole
for name, (predicted, measured, error) in rows.items():
    assert (predicted == "") == (name in ("reading", "all else", "optimizer")) == (error == "")
    if predicted and float(measured) > 0.01:
        assert abs(100 * (float(predicted) / float(measured) - 1) - float(error[:-2])) < 2, rows
lies = page[page.index("Where tables lie"):page.index("Memory of ranks, predicted, MiB")]
assert lies.count("<tr>") == 27 and "<td class=\"n\">1</td></tr>" in lies, lies
memory = page[page.index("Memory of ranks, predicted, MiB"):page.index("Tensors of rank 0")]
for row in memory.split("<tr>")[2:]:
    _, *parts, whole = (float(re.sub("<[^>]*>", "", x)) for x in re.findall("<td.*?</td>", row))
    assert abs(sum(parts) - whole) < 0.02, row
assert "Waits for links, predicted" in page and "<h2>A step as predicted" in page
END
then pass
else fail "--report with --trace: $(tail -3 "$W/err")"
fi
# --cluster: predictions follow the file, of the optimizer, too, and the report says where they are
# off most; other lines than those of a rank's speed are only checked.
printf '\357\273\277ranks 4 2 # none\r\n\nflops 1e3\nstep 7\n' >"$W/slow.cluster"
printf 'memory_bandwidth 1e6\nlayer dots 2e-3 0 0 0 0\n' >>"$W/slow.cluster"
"$B/dlrm" $model --cluster "$W/slow.cluster" --trace "$W/t.json" --report "$W/r.html" \
    >"$W/out" 2>"$W/err"
tr -d '\n' <"$W/r.html" | sed 's/<[^>]*>/ /g' >"$W/text"
if grep -qE 'Operation predicted worst +(bottom|top|pairs) [a-z]+, by [0-9]{5,}\.' "$W/text" &&
    grep -qE ' pairs forward +[0-9]{4,}\.' "$W/text" &&
    grep -qE ' optimizer +[0-9]+\.[0-9]+ +[0-9]+\.[0-9]+ +[+-][0-9]+ %' "$W/text"; then pass
else fail "--cluster: $(grep -o 'A step of rank 0.*' "$W/text" | head -c 900; cat "$W/err")"
fi
# With units, as plan reads it.
for flops in 2M 2e6; do
    printf 'memory_bandwidth 1MiB\nflops %s\n' "$flops" >"$W/slow.cluster"
    "$B/dlrm" $model --ranks 2 --show-plan --cluster "$W/slow.cluster" 2>"$W/err" |
        grep '^plan:' >"$W/plan.$flops"
done
if grep -q 'predicted to take [0-9]' "$W/plan.2M" && cmp -s "$W/plan.2M" "$W/plan.2e6"; then pass
else fail "--cluster with units: $(cat "$W/plan.2M" "$W/plan.2e6" "$W/err")"
fi
# Each line that a cluster file may have, by read.h; `device` is of a run on one.
sed -n '/A cluster file, /,/A what-if/s/^     \([a-z][^ ]*\( [^ ][^ ]*\)*\)\(  .*\)*$/\1/p' \
    examples/plan/read.h | grep -v '^device' >"$W/all.cluster"
if [ "$(wc -l <"$W/all.cluster")" -ge 17 ] &&
    "$B/dlrm" $model --cluster "$W/all.cluster" >"$W/out" 2>"$W/err"; then pass
else fail "--cluster with all lines: $(cat "$W/all.cluster" "$W/err")"
fi
# A pipe is read once, for both ranks.
cat "$W/slow.cluster" | "$B/dlrm" $model --ranks 2 --show-plan --cluster /dev/stdin 2>"$W/err" |
    grep '^plan:' >"$W/plan.pipe"
same "--cluster from a pipe" "$(cat "$W/plan.pipe")" "$(cat "$W/plan.2e6")"
printf 'flops 1e9\nlayer forward 1e-9 0 x\n' >"$W/bad.cluster"
printf 'flops 1e9\nlayer forward 1e-9 0\n' >"$W/few.cluster"
printf 'flops 20G 7\n' >"$W/more.cluster"
printf 'local 2e9 5\n' >"$W/no.cluster"
printf 'flops 2e9\n# a typo:\nlokup 1.2\n' >"$W/typo.cluster"
printf 'flops 2e9\nrows adam2 1 2 3 4 5 6\n' >"$W/curve.cluster"
printf 'rows adam 1 2 3 4 5 6\nrows lookup 1 2 3 4 5 6\nrows lookup 6 5 4 3 2 1\n' \
    >"$W/twice.cluster"
n=0
for line in 'ranks 4 2.5' 'memory 32GB' 'local 2e9' 'cross 1e9 5 3' 'tier dram 1GiB age' pipeline \
    'tier ssd 1G' 'jitter 0.1 0.1 2 3'; do
    printf 'flops 2e9\n%s\n' "$line" >"$W/$n.other"
    n=$((n + 1))
done
for case in "$W/typo.cluster|typo.cluster:3: nothing that a cluster has: 'lokup 1.2'" \
    "$W/curve.cluster|curve.cluster:2: nothing that a cluster has: 'rows adam2'" \
    "$W/bad.cluster|bad.cluster:2: layer forward: 'x' is no number from 0 to 1" \
    "$W/few.cluster|few.cluster:2: layer forward: 3 more numbers are wanted" \
    "$W/more.cluster|more.cluster:1: flops: more than belongs on the line: '7'" \
    "$W/no.cluster|no line says how fast a rank computes" "$W|Is a directory" \
    "$W/0.other|0.other:2: ranks: '2.5' is no whole number from 1 to 4096" \
    "$W/1.other|1.other:2: memory: '32GB' is no number from 1 to 1e+18" \
    "$W/2.other|2.other:2: local: 1 more number is wanted" \
    "$W/3.other|3.other:2: cross: more than belongs on the line: '3'" \
    "$W/4.other|4.other:2: tier dram: 'age' is neither lru nor lfu" \
    "$W/5.other|5.other:2: pipeline: '' is neither off nor on" \
    "$W/6.other|6.other:2: nothing that a cluster has: 'tier ssd'" \
    "$W/7.other|7.other:2: jitter: '2' is no number from 0 to 1" \
    "$W/twice.cluster|twice.cluster:3: a second line, after line 2: 'rows lookup'" \
    "$W/nowhere|--cluster $W/nowhere: No such file"; do
    if "$B/dlrm" $model --cluster "${case%%|*}" >"$W/out" 2>"$W/err"; then
        fail "--cluster ${case%%|*}: accepted"
    elif grep -qF -e "${case#*|}" "$W/err"; then pass
    else fail "--cluster ${case%%|*}: $(cat "$W/err")"
    fi
done
# gpt prints its table: by flops where a file has none of an operation's figures.
printf 'flops 1e6\nmemory_bandwidth 1e6\nstep 7\nlayer rest 1e-3 0 0 0 0\n' >"$W/slow.cluster"
if "$B/gpt" $gpt --cluster "$W/slow.cluster" --trace "$W/t.json" >"$W/out" 2>"$W/err" &&
    grep -qE '^norms, GELU, sums +[0-9]{4,}\.[0-9]+ +[0-9.]+ +\+[0-9]+ %$' "$W/out" &&
    [ "$(grep -cE '^(layers|attention|norms|optimizer).* %$' "$W/out")" = 6 ] &&
    grep -qE '^predicted worst: layers backward, by [0-9]{5,}\.' "$W/out"; then pass
else fail "gpt --cluster: $(cat "$W/out" "$W/err")"
fi
if cat "$W/slow.cluster" | "$B/gpt" $gpt --ranks 2 --cluster /dev/stdin --trace "$W/t.json" \
    >"$W/out" 2>"$W/err" && grep -q '^predicted worst: ' "$W/out"; then pass
else fail "gpt --cluster from a pipe, 2 ranks: $(cat "$W/out" "$W/err")"
fi
if "$B/gpt" $gpt --cluster "$W/slow.cluster" >"$W/out" 2>"$W/err"; then
    fail "gpt --cluster without --trace is accepted"
elif grep -q -e "--cluster needs --trace" "$W/err"; then pass
else fail "gpt --cluster without --trace: $(cat "$W/err")"
fi
# A run that trains nothing.
for program in "dlrm --synthetic 100" gpt; do
    "$B/"$program --summary --trace "$W/s.json" >"$W/out" 2>"$W/err" && [ -s "$W/s.json" ] &&
        pass || fail "$program --summary --trace: $(cat "$W/err")"
done
# Fewer places than spans; a file that cannot be written; the same file twice.
"$B/dlrm" $model --ranks 2 --trace "$W/few.json" --trace-spans 100 >"$W/out" 2>"$W/err"
if grep -q "200 spans with" "$W/err" &&
    grep -q "later spans are not in it: raise --trace-spans" "$W/err"; then
    pass
else
    fail "--trace-spans 100: $(cat "$W/err")"
fi
if "$B/dlrm" $model --trace-spans 100 >"$W/out" 2>"$W/err"; then
    fail "--trace-spans alone: accepted"
elif grep -q -e "--trace-spans needs --trace or --chakra" "$W/err"; then pass
else fail "--trace-spans alone: $(cat "$W/err")"
fi
if "$B/gpt" $gpt --trace "$W/none/t.json" >"$W/out" 2>"$W/err"; then
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
