#!/bin/sh
# serve.sh: build/serve as its users and its enemies meet it. Answers are those of dlrm --predict,
# to the bit, while models change under load: none is lost, none is of another model than it says.
# Statuses of all that is wrong; slow clients, garbage, 10,000 connections, a full memory; the end
# by a signal. With NEO_FULL the load is of 10^6 requests.

B=${B:-build}
CC=${CC:-cc}
. tests/harness.sh
W=$B/tmp/serve
rm -rf "$W"
mkdir -p "$W/served" "$W/a" "$W/b"
client=$B/tests/programs/http_client
[ -x "$client" ] || { fail "$client is not built"; finish programs/serve; exit 1; }
adult=examples/data/adult/adult
model="--format adult --dim 8 --bottom 5-16-8 --top 16-1 --batch 256 --optimizer adagrad"
[ -z "$SANITIZER" ] || wrap="setarch -R"
setarch -R true 2>/dev/null || wrap=
# Where races are looked for, they are those of the server.
T=$B
[ "$SANITIZER" != thread ] || T=${PLAIN:-$B}

# ---- two models, and what they say of the first samples ----

head -1000 $adult.test >"$W/test"
"$T/dlrm" $model --data $adult.data --epochs 1 --checkpoint "$W/ckpt" --every 100 >"$W/log" \
    2>"$W/err" || fail "dlrm: $(tail -1 "$W/err")"
first=$(ls "$W/ckpt" | sed -n 1p) second=$(ls "$W/ckpt" | sed -n 2p)
cp -r "$W/ckpt/$first" "$W/a/" && cp -r "$W/ckpt/$second" "$W/b/"
cp -r "$W/ckpt/$first" "$W/served/"
for m in a b; do
    "$T/dlrm" $model --data $adult.data --test "$W/test" --checkpoint "$W/$m" --eval --predict \
        "$W/$m.out" >"$W/log" 2>"$W/err" || fail "--predict: $(tail -1 "$W/err")"
    "$B/serve" --model "$W/$m" --lines --batch 7 <"$W/test" >"$W/lines" 2>"$W/err" || fail \
        "--lines: $(tail -1 "$W/err")"
    if [ -s "$W/lines" ] && cmp -s "$W/lines" "$W/$m.out"; then
        pass
    else
        fail "--lines: $(diff "$W/lines" "$W/$m.out" | head -4)"
    fi
done
# Of two labels: a probability each.
sed 's/^sex .*/sex label positive=Male weight=0.5/' $adult.columns >"$W/two.columns"
two="--format delimited --columns $W/two.columns --data $W/test --test $W/test --dim 8 --batch 100"
for more in "" "--eval --predict $W/two.out"; do
    "$T/dlrm" $two --bottom 5-16-8 --top 16-2 --checkpoint "$W/two" $more >"$W/log" 2>"$W/err" ||
        fail "two labels: $(tail -1 "$W/err")"
done
"$B/serve" --model "$W/two" --lines <"$W/test" >"$W/lines" 2>"$W/err"
same "--lines, two labels" "$(cksum <"$W/lines")" "$(cksum <"$W/two.out")"
(echo "38, Private"; sed -n 2p "$W/test") | "$B/serve" --model "$W/a" --lines >"$W/lines" 2>"$W/err"
same "--lines: the exit status after a bad line" $? 1
same "--lines: an empty line for a bad one" "$(tr '\n' '|' <"$W/lines")" "|$(sed -n 2p "$W/a.out")|"
if grep -q '^serve: line 1: .* (if it names the columns: leave it out)' "$W/err"; then pass; else
    fail "--lines: $(cat "$W/err")"
fi
(printf '\357\273\277'; sed -n 2p "$W/test") | "$B/serve" --model "$W/a" --lines >"$W/lines" 2>&1
same "--lines: behind a mark of UTF-8" "$(cat "$W/lines")" "$(sed -n 2p "$W/a.out")"
same "--lines: a line without an end" "$(head -c 70000 /dev/zero | tr '\0' x |
    "$B/serve" --model "$W/a" --lines 2>&1)" "serve: line 1: over 65536 bytes"

# Lists of any length that a line has, in batches of few samples.
awk 'BEGIN { for (i = 0; i < 200; i++) { printf "%d", i % 2
    for (k = 0; k < (i == 9 ? 9000 : 150); k++) printf " %d:1", (i * k) % 50; print "" } }' \
    >"$W/long.svm"
"$T/dlrm" --model lr --format libsvm --data "$W/long.svm" --checkpoint "$W/long" >"$W/log" \
    2>"$W/err" || fail "dlrm: $(tail -1 "$W/err")"
for batch in 1 4 256; do
    "$B/serve" --model "$W/long" --lines --batch $batch <"$W/long.svm" >"$W/lines.$batch" 2>"$W/err"
    same "--lines of long lists, --batch $batch: $(head -1 "$W/err")" "$?" 0
done
if cmp -s "$W/lines.1" "$W/lines.4" && cmp -s "$W/lines.1" "$W/lines.256" &&
    [ "$(grep -c . "$W/lines.1")" = 200 ]; then pass; else fail "--lines of long lists"; fi

# Bodies, and the answers that are right: of step $first or of $second.
steps="$(echo "$first" | sed 's/step-0*//') $(echo "$second" | sed 's/step-0*//')"
awk -F', *' '{ printf "{\"age\":%s", $1
    split("workclass - education education-num marital-status occupation relationship race sex " \
        "capital-gain capital-loss hours-per-week native-country", name, " ")
    for (i = 2; i <= 14; i++)
        if (i != 3) printf ",\"%s\":%s", name[i - 1], $i ~ /^[0-9]+$/ ? $i : "\"" $i "\""
    print "}" }' "$W/test" >"$W/json"
paste "$W/json" "$W/a.out" "$W/b.out" | awk -F'\t' -v steps="$steps" '{ split(steps, s, " ")
    printf "%s\t{\"prediction\":%s,\"step\":%s}\t{\"prediction\":%s,\"step\":%s}\n", \
        $1, $2, s[1], $3, s[2] }' >"$W/rows"

# A cheap model scores all, a dear one what is kept.
paste -d' ' "$W/a.out" "$W/b.out" | awk '{ print NR, $1, $2 }' | sort -k2,2gr -k1,1n |
    head -70 | sort -k3,3gr -k1,1n | head -30 | cut -d' ' -f1,3 >"$W/expected"
"$B/stages" "$W/a" "$W/b" 70 30 <"$W/test" >"$W/staged" 2>"$W/err"
same "stages" "$(head -30 "$W/staged" | cksum)" "$(cksum <"$W/expected")"
same "stages: how many" "$(tail -1 "$W/staged")" "scored: 1000 by dlrm, 70 by dlrm"

# ---- helpers ----

program=$B/serve
served=$W/served
# start OPTIONS...: a server of $served; sets pid, port, url. Clients may be late, but where that
# is the subject.
start() {
    case $* in *--timeout*) ;; *) set -- --timeout 86400 "$@" ;; esac
    : >"$W/started"
    $wrap "$program" --model "$served" --port 0 "$@" >"$W/started" 2>"$W/server" &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! [ -s "$W/started" ]; do sleep 0.05; done
    url=$(sed -n 's|^serve: \(http://[^,]*\),.*|\1|p' "$W/started") port=${url##*:}
    [ -n "$port" ] || fail "serve $*: $(cat "$W/server")"
}
# stop LABEL [SIGNAL]: it ends well, and said nothing.
stop() { # a model that vanished while it was read may have been reported late
    kill -"${2:-TERM}" $pid
    wait $pid
    same "$1: exit status at the end" $? 0
    if grep -qv "/served/${second:-none}/.*: cannot open" "$W/server"; then
        fail "$1: $(head -3 "$W/server")"
    fi
}
get() { printf 'GET %s HTTP/1.0\r\n\r\n' "$1" | "$client" "$port" send; }
metric() { get /metrics | tr -d '\r' | sed -n "s/^$1 //p"; }
# body JSON: its answer.
post() {
    printf 'POST /predict HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s' \
        "$(printf %s "$1" | wc -c)" "$1" | "$client" "$port" send
}
answers() { tr -d '\r' | sed '1,/^$/d'; }
# says STATUS TEXT: the answer of standard input begins with the status and has the text. It is the
# end of a pipe, whose counts are lost: verdicts has a line for each.
says() {
    if "$client" "$port" send half >"$W/answer" 2>&1; then
        case $(head -1 "$W/answer") in "HTTP/1.1 $1 "*) ok=1 ;; *) ok=0 ;; esac
        grep -q -- "$2" "$W/answer" || ok=0
    else
        ok=0
    fi
    if [ $ok = 0 ]; then fail "not $1 with '$2': $(head -c 300 "$W/answer")"; fi
    echo $ok >>"$W/verdicts"
}
# of FIELD: a number of the last line of http_client load.
of() { sed -n "s/.*$1 \([0-9]*\).*/\1/p" "$W/load"; }

# ---- one client ----

start --wait 5
case $url in http://127.0.0.1:*) pass ;; *) fail "it listens at $url" ;; esac
one=$(sed -n '1s/[^\t]*\t\([^\t]*\).*/\1/p' "$W/rows")
same "one sample" "$(post "$(head -1 "$W/json")" | answers)" "$one"
if have curl; then
    curl() { command curl --max-time 600 "$@"; } # one that hangs fails
    same "curl" "$(head -1 "$W/json" | curl -sS -d @- "$url/predict")" "$one"
    same "curl, 20 lines" "$(head -20 "$W/json" | curl -sS --data-binary @- "$url/predict")" \
        "$(head -20 "$W/rows" | cut -f2)"
    same "curl, 2000 lines in chunks" "$(head -1000 "$W/json" | cat - "$W/json" | head -2000 |
        curl -sS -H 'Transfer-Encoding: chunked' -T - -X POST "$url/predict" | cksum)" \
        "$(head -1000 "$W/rows" | cat - "$W/rows" | head -2000 | cut -f2 | cksum)"
    code=$(curl -sS -o "$W/answer" -w '%{http_code}' -d '{"age":39,"workclass":"State-gov"}' \
        "$url/predict")
    same "curl, two columns" "$code" 200
    code=$(curl -sS -o "$W/answer" -w '%{http_code}' -d '{"age":39,"workc' "$url/predict")
    same "curl, half a text" "$code" 400
    # It waits for 100 Continue before a body of almost a MiB.
    code=$(yes "$(head -1 "$W/json")" | head -3000 | curl -sS -o "$W/answer" -w '%{http_code}' \
        -H 'Expect: 100-continue' --data-binary @- "$url/predict")
    same "curl, 3000 samples" "$code $(sort -u "$W/answer")" "200 $one"
else
    skip "curl is not installed"
fi
H='HTTP/1.1\r\nHost: a\r\n'
printf "POST /predict ${H}Content-Length: 5\r\n\r\n{\"age" | says 400 'closing quote'
printf "POST /predict ${H}Content-Length: 9\r\n\r\n{\"agee\":1}" |
    says 400 'agee.*which has age, .*, [.][.][.]'
printf "POST /predict ${H}Content-Length: 5\r\n\r\n{}\n[]" |
    says 400 'line 2: expected a JSON object on each line, as {.*column.*: value, ...}'
printf "POST /predict ${H}Content-Length: 2\r\n\r\n\r\n" | says 400 'no sample'
printf "POST /predict ${H}Content-Length: 20\r\n\r\n{}" | says 400 'Connection: close'
printf "POST /predi" | says 400 'Connection: close'
printf "\026\003\001\002\000\001\000\001" | says 400 'Connection: close'
printf "GET /predicted ${H}\r\n" | says 404 'POST /predict'
printf "GET /predict ${H}\r\n" | says 405 'Allow: POST'
printf "POST /metrics ${H}Content-Length: 0\r\n\r\n" | says 405 'Allow: GET'
printf "POST /predict ${H}\r\n" | says 411 ''
printf "POST /predict ${H}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" |
    says 200 '"prediction"'
chunks="POST /predict ${H}Transfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\n{}\r\n0\r\n"
printf "${chunks}Sum: 7\r\nContent-Length: 3\r\n\r\nGET /no ${H}\r\n" | says 200 'HTTP/1.1 404'
printf "${chunks}Sum 7\r\n\r\n" | says 400 'Connection: close'
printf "POST /predict ${H}Transfer-Encoding: chunked\r\n\r\nx\r\n" | says 400 'Connection: close'
printf "POST /predict ${H}Content-Length: 9999999\r\n\r\n" | says 413 ''
(printf "POST /predict ${H}Content-Length: 12291\r\n\r\n"; yes '{}' | head -4097) | says 413 4096
printf "GET /%09999d ${H}\r\n" 0 | says 414 ''
printf "POST /predict ${H}Expect: all\r\nContent-Length: 0\r\n\r\n" | says 417 ''
printf "GET / ${H}X: %09999d\r\n\r\n" 0 | says 431 ''
printf "POST /predict ${H}Transfer-Encoding: gzip\r\n\r\n" | says 501 ''
printf "GET / HTTP/2.0\r\n\r\n" | says 505 ''
printf "HEAD /metrics ${H}\r\n" | says 405 ''
same "HEAD has no body" "$(answers <"$W/answer" | wc -c)" 0
# Answers leave in the order of the requests, errors among them.
(for i in 1 2 3; do printf "GET /no ${H}\r\nPOST /predict ${H}Content-Length: 2\r\n\r\n{}"; done
    printf 'bad\r\n') | "$client" "$port" send half | tr -d '\r' | sed -n 's|^HTTP/1.1 ||p' |
    cut -c 1-3 | tr '\n' ' ' >"$W/order"
same "pipelined requests" "$(cat "$W/order")" "404 200 404 200 404 200 400 "
for i in 1 2 3; do head -c 100000 /dev/urandom | "$client" "$port" send half >"$W/answer" 2>&1; done
same "garbage leaves no buffer" "$(metric neo_buffer_bytes | sed 's/^[0-9]\{1,4\}$/few/')" few
stop "one client" INT

served=$W/two
start
same "two labels" "$(post "$(head -1 "$W/json" | sed 's/"sex":"[A-Za-z]*",//')" | answers |
    sed 's/,"step.*//')" \
    "{\"prediction\":[$(head -1 "$W/two.out")]"
stop "two labels"
served=$W/served

# A differential checkpoint takes over from the one whose rows it changes.
cp $adult.columns "$W"
"$T/dlrm" $model --data "$W/test" --checkpoint "$W/chain" --every 2 --checkpoint-delta 9 \
    >"$W/log" 2>"$W/err" &&
    "$T/dlrm" $model --data "$W/test" --test "$W/test" --checkpoint "$W/chain" --eval --predict \
        "$W/chain.out" >"$W/log" 2>"$W/err" || fail "dlrm: $(tail -1 "$W/err")"
full=$(ls "$W/chain" | sed -n 1p) delta=$(ls "$W/chain" | sed -n 2p) served=$W/growing
mkdir "$served" && cp -r "$W/chain/$full" "$served"
start --reload 0
same "a full checkpoint" "$(metric neo_model_step)" 2
cp -r "$W/chain/$delta" "$served/.new" && mv "$served/.new" "$served/$delta"
kill -HUP $pid
tries=0
while [ "$(metric neo_model_step)" != 4 ] && [ $tries -lt 4000 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
same "a differential one" "$(post "$(head -1 "$W/json")" | answers)" \
    "{\"prediction\":$(head -1 "$W/chain.out"),\"step\":4}"
stop "a differential one"
served=$W/served

# ---- a gpt: what build/gpt writes, to the byte ----

head -c 30000 examples/data/shakespeare/input.txt >"$W/text"
gpt="--data $W/text --layers 2 --heads 2 --width 32 --context 64 --seed 5"
# generates JSON: the text of the answer.
generate() {
    printf 'POST /generate HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s' \
        "$(printf %s "$1" | wc -c)" "$1" | "$client" "$port" send | answers
}
# streams VERSION JSON: the lines of a text that comes in pieces, in chunks of HTTP/1.1
streams() {
    printf 'POST /stream HTTP/1.%d\r\nHost: x\r\nConnection: close\r\nContent-Length: %d' \
        "$1" "$(printf %s "$2" | wc -c)" >"$W/ask"
    printf '\r\n\r\n%s' "$2" | cat "$W/ask" - | "$client" "$port" send | tr -d '\r' >"$W/stream"
    grep '^{' "$W/stream"
}
# joined: the text of the lines.
joined() { sed -n 's/^{"text":"\(.*\)"}$/\1/p' | tr -d '\n'; }
for more in "" "--products bf16" "--dtype bf16 --products bf16" "--dtype bf16 --ranks 2"; do
    part || continue
    rm -rf "$W/gpt"
    "$T/gpt" $gpt $more --steps 30 --batch 8 --repro-shards 2 --checkpoint "$W/gpt" --prompt 'We ' \
        --sample 50 --top-k 20 >"$W/out" 2>"$W/err" || fail "gpt: $(tail -1 "$W/err")"
    served=$W/gpt
    start
    sed -n '/^---- sample/,/^-----------/p' "$W/out" | sed '1d;$d' | tail -c +4 | tr '\n' ' ' |
        sed 's/ $//' >"$W/wrote"
    same "gpt $more" "$(generate '{"prompt":"We ","tokens":50,"seed":5,"top_k":20}' |
        sed 's/.*"text":"\(.*\)","tokens":50,"finish":"length","step":30}/\1/; s/\\u000a/ /g')" \
        "$(cat "$W/wrote")"
    one=$(generate '{"prompt":[0,1,2],"temperature":0,"tokens":5}')
    same "the same again" "$(generate '{"temperature":0.0,"prompt":[0,1,2],"tokens":5}')" "$one"
    generate '{"prompt":"We "}' >"$W/answer"
    same "up to the context" "$(sed 's/.*,"tokens"/"tokens"/' "$W/answer")" \
        '"tokens":62,"finish":"context","step":30}'
    generate '{"prompt":"We \u00e9"}' >"$W/answer"
    if grep -q 'is not in the vocabulary' "$W/answer"; then pass; else fail "$(cat "$W/answer")"; fi
    printf "POST /predict ${H}Content-Length: 2\r\n\r\n{}" | says 404 'POST /generate'
    printf "GET /generate ${H}\r\n" | says 405 'Allow: POST'
    printf "POST /generate ${H}Content-Length: 5\r\n\r\n{\"pro" | says 400 'closing quote'
    printf "POST /generate ${H}Content-Length: 9\r\n\r\n{\"tok\":1}" | says 400 'is not prompt'
    printf "POST /generate ${H}Content-Length: 4\r\n\r\n [1]" |
        says 400 'expected a JSON object, as {.*prompt.*: .*To be.*}'
    (printf "POST /generate ${H}Content-Length: 113\r\n\r\n{\"prompt\":\""; printf '%0100d"}' 0) |
        says 413 'context is 64'
    same "tokens are counted" "$(metric neo_samples_total)" 122
    ask='{"prompt":"We ","tokens":50,"seed":5,"top_k":20}'
    wrote=$(generate "$ask" | sed 's/{"text":"\(.*\)","tokens".*/\1/')
    for http in 0 1; do
        same "streamed, 1.$http" "$(streams $http "$ask" | joined)" "$wrote"
        same "lines, and the last, 1.$http" \
            "$(grep -c '^{' "$W/stream") $(grep '^{"tok' "$W/stream")" \
            '51 {"tokens":50,"finish":"length","step":30}'
        same "in chunks, 1.$http" "$(grep -c '^Transfer-Encoding: chunked$' "$W/stream")" $http
    done
    streams 1 '{"prompt":"We "}' >/dev/null
    same "streamed up to the context" "$(grep '^{' "$W/stream" | tail -1)" \
        '{"tokens":62,"finish":"context","step":30}'
    ask="POST /stream ${H}Content-Length: 30\r\n\r\n{\"temperature\":0,\"tokens\":2  }"
    printf "$ask$ask$ask" | "$client" "$port" send half | tr -d '\r' >"$W/stream"
    same "streamed one behind the other" "$(grep -c '^Content-Length' "$W/stream" |
        tr '\n' ' '; grep -c '"tokens":2,' "$W/stream")" "2 3"
    printf "POST /stream ${H}Content-Length: 9\r\n\r\n{\"tok\":1}" | says 400 'is not prompt'
    printf "GET /stream ${H}\r\n" | says 405 'Allow: POST'
    stop "gpt $more"
done
# Characters of several bytes, good and bad: pieces end between them.
for i in $(seq 300); do printf 'd\303\250j\303\240 \342\202\254 \360\237\230\200 '; done >"$W/wide"
rm -rf "$W/gpt"
"$T/gpt" $gpt --data "$W/wide" --steps 20 --batch 4 --checkpoint "$W/gpt" --sample 0 >"$W/out" \
    2>"$W/err" || fail "gpt of wide characters: $(tail -1 "$W/err")"
served=$W/gpt
start
for seed in 1 2 3; do
    ask="{\"prompt\":\"d\",\"seed\":$seed,\"temperature\":1.5}"
    same "wide characters" "$(streams 1 "$ask" | sed 's/","tokens.*/"}/' | joined)" \
        "$(generate "$ask" | sed 's/{"text":"\(.*\)","tokens".*/\1/')"
done
stop "gpt of wide characters"
# Whoever leaves is not written for to the end: the second piece, or the third, finds nobody.
# One that is stopped before it leaves is tried again.
wrote=62 tries=0
while [ "$wrote" -ge 20 ] && [ $tries -lt 5 ]; do
    tries=$((tries + 1)) wrote=0
    start --wait 300
    printf "POST /stream ${H}Content-Length: 14\r\n\r\n{\"prompt\":\"d\"}" |
        "$client" "$port" send gone
    waits=0
    while [ "$wrote" = 0 ] && [ $waits -lt 4000 ]; do
        waits=$((waits + 1))
        sleep 0.05
        wrote=$(metric neo_samples_total)
    done
    stop "a client that is gone"
done
if [ "$wrote" -lt 20 ]; then pass; else fail "of a client that is gone: $wrote tokens"; fi
# Answers that take longer than a client may: what others wrote meanwhile was in time. With
# ThreadSanitizer one of them does.
answers=14
[ "$SANITIZER" != thread ] || answers=2
for i in $(seq 7); do cat "$W/wide"; done >"$W/long.txt"
rm -rf "$W/gpt"
"$T/gpt" --data "$W/long.txt" --heads 2 --context 512 --steps 1 --batch 1 --checkpoint "$W/gpt" \
    --sample 0 >"$W/out" 2>"$W/err" || fail "gpt of long answers: $(tail -1 "$W/err")"
start --timeout 1 --wait 50
status="HTTP/1.1 408 Request Timeout" tries=0
while [ "${status#* 408}" != "$status" ] && [ $tries -lt 5 ]; do # a client may be late itself
    tries=$((tries + 1))
    (
        printf "POST /generate ${H}Content-"
        sleep 0.6
        printf 'Length: 25\r\n\r\n{"prompt":"d","tokens":1}'
    ) | "$client" "$port" send half >"$W/late" 2>&1 &
    late=$!
    sleep 0.2
    for i in $(seq $answers); do
        printf "POST /generate ${H}Content-Length: 14\r\n\r\n{\"prompt\":\"d\"}"
    done | "$client" "$port" send half >"$W/answer"
    wait $late
    status=$(head -1 "$W/late" | tr -d '\r')
done
same "half a request while others are answered" "$status" "HTTP/1.1 200 OK"
stop "long answers"
# Tokens, which stand for no bytes.
if have python3; then
    letters=$(python3 tests/programs/tokens.py "$W/text" "$W/tokens" "$W/tokenizer")
    rm -rf "$W/gpt"
    "$T/gpt" $gpt --data "$W/tokens" --vocabulary $letters --steps 30 --batch 8 --repro-shards 2 \
        --checkpoint "$W/gpt" --prompt "4 0 2" --sample 5 --temperature 0 >"$W/out" 2>"$W/err" ||
        fail "gpt of tokens: $(tail -1 "$W/err")"
    served=$W/gpt
    start
    same "tokens" "$(generate '{"prompt":[4,0,2],"temperature":0,"tokens":5}' |
        sed 's/],"tokens":5,"finish":"length","step":30}//; s/{"ids":\[//; s/,/ /g')" \
        "$(sed -n 's/ $//; s/^4 0 2 //p' "$W/out")"
    same "no tokens" "$(generate '{"temperature":0,"tokens":3}')" \
        "$(generate "{\"prompt\":[$((letters - 1))],\"temperature\":0,\"tokens\":3}")"
    generate '{"prompt":"We "}' >"$W/answer"
    if grep -q 'give an array of them' "$W/answer"; then pass; else fail "$(cat "$W/answer")"; fi
    stop "gpt of tokens"
    # GPT-2's vocabulary, rounded up: its last token, and not one that there never is, is first.
    rm -rf "$W/gpt"
    "$T/gpt" $gpt --width 8 --data "$W/tokens" --vocabulary 50304 --steps 1 --batch 1 \
        --checkpoint "$W/gpt" --sample 3 --temperature 0 >"$W/out" 2>"$W/err" ||
        fail "gpt of a rounded vocabulary: $(tail -1 "$W/err")"
    start
    same "no tokens of a rounded vocabulary" "$(generate '{"temperature":0,"tokens":3}')" \
        "$(generate '{"prompt":[50256],"temperature":0,"tokens":3}')"
    same "as gpt begins" "$(generate '{"temperature":0,"tokens":3}' |
        sed 's/],"tok.*//; s/{"ids":\[//; s/,/ /g')" "$(sed -n '/^----/{n;s/ $//p;q;}' "$W/out")"
    stop "gpt of a rounded vocabulary"
else
    skip "a gpt of tokens: no python3 to write them"
fi
served=$W/served

# ---- load, while the model changes ----

count=40000
[ -z "$NEO_FULL" ] || count=1000000
load() { # the model changes until the file `end` is there
    start --threads 2 --batch 32 "$@"
    rm -f "$W/end"
    (while ! [ -e "$W/end" ] && kill -0 $pid 2>/dev/null; do
        cp -r "$W/ckpt/$second" "$W/served/.new" && mv "$W/served/.new" "$W/served/$second"
        [ -n "$NEO_FULL" ] || kill -HUP $pid
        sleep "$pause"
        mv "$W/served/$second" "$W/served/.old" && rm -rf "$W/served/.old"
        [ -n "$NEO_FULL" ] || kill -HUP $pid
        sleep "$pause"
    done) 2>/dev/null &
    changes=$!
    rounds=0 a=0 b=0
    while [ $rounds -lt 50 ] && { [ $a = 0 ] || [ $b = 0 ] || [ $rounds = 0 ]; }; do
        "$client" "$port" load $count 16 8 "$W/rows" >"$W/load" 2>"$W/err" || fail \
            "load: $(cat "$W/load" "$W/err" | head -5)"
        same "all are answered" "$(of answered)" $count
        [ "$(of answered)" = $count ] || break
        rounds=$((rounds + 1)) a=$((a + $(of right))) b=$((b + $(of 'right [0-9]*')))
    done
    touch "$W/end"
    wait $changes
    rm -rf "$W/served/$second"
    if [ $a -gt 0 ] && [ $b -gt 0 ]; then pass; else fail "answers: $a of one model, $b of two"; fi
    if [ "$(metric 'neo_model_loads_total{result="ok"}')" -ge 3 ]; then
        pass
    else
        fail "it has loaded $(metric 'neo_model_loads_total{result="ok"}') models"
    fi
    same "samples counted" "$(metric neo_samples_total)" $((rounds * count))
    same "requests counted" "$(metric 'neo_requests_total{status="200"}')" $((rounds * count + 2))
    echo "serve: $((rounds * count)) requests, $a by one model, $b by the other, loads:" \
        "$(metric 'neo_model_loads_total{result="ok"}')"
}
# a model that vanishes while it is read is reported, and the other one stays
pause=0.02
[ -z "$NEO_FULL" ] || pause=1
load --reload 1

# ---- the end: clients that go on asking get all answers ----

"$client" "$port" load 100000000 16 1 "$W/rows" >"$W/load" 2>"$W/err" &
asks=$!
before=$(metric neo_samples_total)
while kill -0 $asks 2>/dev/null && [ "$(metric neo_samples_total)" = "$before" ]; do :; done
kill $pid
wait $pid
same "under load: exit status at the end" $? 0
grep -v "^serve: $W/served[/:]" "$W/server" >"$W/wrong" # the last look may be late
if [ -s "$W/wrong" ]; then fail "under load: $(head -3 "$W/wrong")"; else pass; fi
if wait $asks; then pass; else fail "SIGTERM: $(cat "$W/load" "$W/err" | head -5)"; fi
same "SIGTERM: nothing is left unread" "$(of unread)" 0

# ---- enemies ----

start --timeout 1
# An input without an end, and nothing in it: the server closes.
endless() {
    rm -f "$W/open"
    mkfifo "$W/open" && exec 9<>"$W/open"
}
: >"$W/answer"
tries=0
while ! [ -s "$W/answer" ] && [ $tries -lt 5 ]; do # a client may be late itself
    tries=$((tries + 1))
    endless
    printf "POST /predict ${H}Content-" >&9
    "$client" "$port" send <"$W/open" >"$W/answer"
done
same "half a request that stays one" "$(head -c 12 "$W/answer")" "HTTP/1.1 408"
endless
same "a connection without a request" "$("$client" "$port" send <"$W/open" && echo closed)" closed
exec 9>&-
stop "half a request"
start --reload 0 --connections 800 --body 1
printf "POST /predict ${H}Content-Length: 1025\r\n\r\n" | says 413 ''
same "800 connections and 80 more" "$(echo | "$client" "$port" hold 880 60 80 | tr '\n' ' ')" \
    "200: 800 503: 80 "
cp -r "$W/ckpt/$second" "$W/served/"
kill -HUP $pid
tries=0
while [ $tries -lt 4000 ] && ! post '{}' | grep -q "\"step\":${steps#* }"; do
    tries=$((tries + 1))
    sleep 0.05
done
if [ $tries -lt 4000 ]; then pass; else fail "SIGHUP loads no model"; fi
: >"$W/served/$second/model.json"
kill -HUP $pid
while [ $tries -lt 8000 ] && [ "$(metric 'neo_model_loads_total{result="failed"}')" != 1 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
if grep -q 'model.json' "$W/server"; then pass; else fail "a bad model: $(cat "$W/server")"; fi
: >"$W/server"
if post '{}' | grep -q "\"step\":${steps#* }"; then pass; else fail "a bad model is served"; fi
rm -rf "$W/served/$second"
stop "enemies"

# All of it at random, in little memory; then nothing is left of it.
chaos=20000
[ -z "$NEO_FULL" ] || chaos=1000000
for more in "--wait 1 --batch 3" "--threads 2 --memory 1 --connections 20"; do
    start --timeout 2 $more
    if "$client" "$port" chaos $chaos 2>"$W/err"; then pass; else fail "chaos: $(cat "$W/err")"; fi
    tries=0
    while [ $tries -lt 4000 ] && [ "$(metric neo_connections)" != 1 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    same "chaos, $more: connections left" "$(metric neo_connections)" 1
    same "chaos, $more: bytes left" "$(metric neo_buffer_bytes)" 1024
    stop "chaos, $more"
done

start --memory 1
# 7/8 of 1 MiB are 896 buffers of 1 KiB
same "a full memory" "$(echo | "$client" "$port" hold 1200 60 304 | tr '\n' ' ')" \
    "200: 896 503: 304 "
stop "a full memory"

# 10,000 connections want as many descriptors of the server, and of the client.
many=10000
[ -z "$SANITIZER" ] || many=1000
if [ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 11500 ]; then
    start --connections 10100
    open() {
        tries=0
        while [ $tries -lt 4000 ] && [ "$(metric neo_connections)" -le $many ]; do
            tries=$((tries + 1))
            sleep 0.1
        done
    }
    same "$many connections" "$( (open; echo) | "$client" "$port" hold $many 60 0 |
        tr '\n' ' ')" "200: $many "
    peak=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status" 2>/dev/null)
    [ -n "$SANITIZER" ] || [ -z "$peak" ] || if [ "$peak" -le 65536 ]; then pass; else fail \
        "$many connections took $peak KiB"; fi
    echo "serve: $many connections: at most ${peak:-?} KiB of memory"
    stop "$many connections"
else
    skip "10,000 connections: ulimit -Hn is $(ulimit -Hn)"
fi

# ---- poll instead of epoll ----

inference="-DNEO_INFERENCE -DNEO_SHARED $B/neo_serve.o"
[ -z "$SANITIZER" ] || inference="$SANITIZE $B/tests/neo.a"
if $CC -std=c11 -Wall -Wextra -Werror -O1 -I. -DHTTP_POLL -o "$W/poll" examples/serve.c \
    $inference -lm -pthread >"$W/log" 2>&1; then
    program=$W/poll
    count=20000
    load
    : >"$W/server"
    same "poll: 500 connections" "$(echo | "$client" "$port" hold 500 60 0 | tr '\n' ' ')" \
        "200: 500 "
    stop "poll"
    program=$B/serve
else
    fail "-DHTTP_POLL: $(grep error "$W/log" | head -3)"
fi

# ---- options ----

refuses() { # TEXT OPTIONS...
    text=$1
    shift
    "$B/serve" "$@" >"$W/log" 2>"$W/err" </dev/null
    status=$?
    if [ $status != 0 ] && grep -q -- "$text" "$W/err"; then pass; else fail \
        "serve $*: $status, '$(cat "$W/err")', not '$text'"; fi
}
refuses "--model is needed"
refuses "no such option" --modell x
refuses "--model needs a value" --model
refuses "^serve: $W/none: cannot list the directory" --model "$W/none"
mkdir "$W/run" && cp -r "$W/a" "$W/run/checkpoint"
refuses "^serve: $W/run: .*; there is one in $W/run/checkpoint" --model "$W/run"
refuses "$W: no whole checkpoint" --model "$W"
refuses "--lines: a gpt has none" --model "$W/gpt" --lines
refuses "--port 65536: not a whole number from 0 to 65535" --model "$W/a" --port 65536
refuses "--threads 0: " --threads 0
refuses "--batch x: " --batch x
refuses "--wait -1: " --wait -1
refuses "--timeout 0: " --timeout 0
refuses "--connections 0: " --connections 0
refuses "--body 0: " --body 0
refuses "--memory 1.5: " --memory 1.5
refuses "--reload '': \|--reload : " --reload ""
refuses "cannot listen at 256.1.1.1" --model "$W/a" --host 256.1.1.1
start --host 0.0.0.0
case $url in http://0.0.0.0:*) pass ;; *) fail "--host 0.0.0.0 listens at $url" ;; esac
refuses "cannot listen at 127.0.0.1, port $port: " --model "$W/a" --port "$port"
stop "--host"
for option in $("$B/serve" --help | sed -n 's/^  \(--[a-z]*\) .*/\1/p'); do
    if grep -q -- "$option " tests/programs/serve.sh; then pass; else fail "$option: no test"; fi
done
passed=$((passed + $(grep -c 1 "$W/verdicts"))) failed=$((failed + $(grep -c 0 "$W/verdicts")))
finish programs/serve
