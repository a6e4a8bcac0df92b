#!/bin/sh
# peers.sh: the scripts of `make peers` without the packages that they compare with: they compile,
# call neo's functions as these are, which compute what they say (by the neo of the tests), and
# write the table that the figures say. What needs the packages is run by `make peers` alone, which
# verifies each side before it times it.

B=${B:-build}
CC=${CC:-cc}
PYTHON=${PYTHON:-python3}
. tests/harness.sh
W=$B/tmp/peers
rm -rf "$W"
mkdir -p "$W"
needs_python programs/peers 'import sys; sys.exit(sys.version_info < (3, 8))' \
    "the scripts of make peers: no Python 3.8"
compile="$CC -std=c11 -Wall -Wextra -Werror -Wno-unused-function -O0 -fPIC -I."
if [ -f "$B/tests/neo.a" ]; then
    pass
else
    fail "$B/tests/neo.a is not built"
fi
for name in side dlrm gpt; do
    if $compile -shared "bench/peers/neo_$name.c" "$B/tests/neo.a" -o "$W/libneo_$name.so" \
        -lm -lpthread 2>"$W/err"; then
        pass
    else
        fail "neo_$name.c: $(head -3 "$W/err")"
    fi
done
if NEO_PEERS_BUILD=$W NEO_DLRM=$B/dlrm PYTHONDONTWRITEBYTECODE=1 $PYTHON \
    bench/peers/self_test.py --side >"$W/out" 2>&1; then
    pass
else
    fail "self_test.py: $(tail -3 "$W/out")"
fi
finish programs/peers
