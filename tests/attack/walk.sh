#!/bin/sh
# walk.sh: kills and faults at the calls of training jobs: walk.py, for 70 seconds, or, where
# ATTACK is set, until every case has been tried.

B=${B:-build}
. tests/harness.sh
if ! have python3; then
    skip "kills and faults: no python3"
elif [ ! -f "$B/tests/attack/faults.so" ]; then
    skip "kills and faults: tests/attack/faults.c wants Linux and glibc"
else
    if [ -n "$ATTACK" ]; then seconds=0; else seconds=70; fi
    exec python3 tests/attack/walk.py "$B" $seconds
fi
finish attack/walk
