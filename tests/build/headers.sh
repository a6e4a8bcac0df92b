#!/bin/sh
# headers.sh: neo.h and the headers beside it in every way a user may include them, warnings as
# errors.
#
# The compile matrix (compilers x language standards x macro sets), order of includes, layout of
# public structs over configurations, flags that must be refused or must not change results, and the
# time one translation unit takes. Needs no libraries; compilers that are absent are skipped with a
# message.

B=${B:-build}
CC=${CC:-cc}
JOBS=${JOBS:-2}
W=$B/headers
. tests/harness.sh
rm -rf "$W"
mkdir -p "$W/jobs" "$W/out"

# ---- jobs: files of shell commands, run in parallel; each must succeed, or fail with a given text
# ----

count=0
# job LABEL COMMAND...: must succeed.
job() {
    count=$((count + 1))
    label=$1
    shift
    printf '%s\n' "$label" >"$W/jobs/$count.label"
    printf '%s\n' "$*" >"$W/jobs/$count.sh"
}
# refuse LABEL TEXT COMMAND...: must fail, and say TEXT.
refuse() {
    text=$2
    label=$1
    shift 2
    job "$label" "$@"
    printf '%s\n' "$text" >"$W/jobs/$count.text"
}
run_jobs() {
    ls "$W/jobs" | sed -n 's/\.sh$//p' | sort -n | xargs -P "$JOBS" -n 1 sh -c '
        sh "$0/jobs/$1.sh" >"$0/jobs/$1.log" 2>&1
        echo $? >"$0/jobs/$1.rc"' "$W"
    i=0
    while [ $i -lt $count ]; do
        i=$((i + 1))
        j=$W/jobs/$i
        label=$(cat "$j.label")
        if [ -f "$j.text" ]; then
            if [ "$(cat "$j.rc")" != 0 ] && grep -qF -- "$(cat "$j.text")" "$j.log"; then
                pass
            else
                fail "$label: should be refused with '$(cat "$j.text")'"
                head -5 "$j.log"
            fi
        elif [ "$(cat "$j.rc")" = 0 ]; then
            pass
        else
            fail "$label"
            { grep -E 'error' "$j.log" || cat "$j.log"; } | head -4 | cut -c1-160 | sed 's/^/    /'
        fi
    done
    rm -rf "$W/jobs"
    mkdir "$W/jobs"
    count=0
}

# ---- sources: each is valid as C and as C++ ----

cat >"$W/declare.c" <<'END'
#include "neo.h"
#include "neo.h"
neo_status use(neo_ctx **ctx);
neo_status use(neo_ctx **ctx) { return neo_ctx_create(NULL, ctx); }
END
cat >"$W/implement.c" <<'END'
#define NEO_IMPLEMENTATION
#include "neo.h"
#include "neo.h"
int main(void) {
    neo_ctx *ctx = NULL;
    if (neo_ctx_create(NULL, &ctx) != NEO_OK) return 1;
    neo_ctx_destroy(ctx);
    return 0;
}
END
# The declarations first, as when another header of the program has included them already.
cat >"$W/late.c" <<'END'
#include "neo.h"
#define NEO_IMPLEMENTATION
#include "neo.h"
int late(void);
int late(void) { return neo_version()[0]; }
END
cat >"$W/before_system.c" <<'END'
#ifdef IMPLEMENT
#define NEO_IMPLEMENTATION
#endif
#include "neo.h"
#include "neo.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
int use(void);
int use(void) { return printf("%s", neo_version()); }
END
{
    grep '^#include <' "$W/before_system.c"
    grep -v '^#include <' "$W/before_system.c"
} >"$W/after_system.c"
# Two files of one program: one implements, the other (implement.c without its first line) only
# uses.
sed -e 1d "$W/implement.c" >"$W/program.c"
printf '#define NEO_IMPLEMENTATION\n#include "neo.h"\n' >"$W/library.c"
# neo_serve.h: the same three. It is implemented where neo.h is, neo_state.h and neo_data.h with it.
for f in declare implement late; do
    sed -e 's/"neo\.h"/"neo_serve.h"/' "$W/$f.c" >"$W/serve_$f.c"
done
# neo_comm.h: the same three, and its implementation alone, linked with a neo.h implemented
# elsewhere (library.c).
for f in declare implement late; do
    sed -e 's/"neo\.h"/"neo_comm.h"/' "$W/$f.c" >"$W/comm_$f.c"
done
# neo_run.h and neo_store.h: the same three. They are implemented where neo.h is.
for f in declare implement late; do
    for h in run store; do sed -e 's/"neo\.h"/"neo_'$h'.h"/' "$W/$f.c" >"$W/${h}_$f.c"; done
done
# neo_plan.h and neo_fsdp.h: likewise, the latter over neo.h, neo_state.h and neo_comm.h in one file
# (comm_library.c).
for f in declare implement late; do
    for h in plan fsdp; do sed -e 's/"neo\.h"/"neo_'$h'.h"/' "$W/$f.c" >"$W/${h}_$f.c"; done
done
printf '#define NEO_IMPLEMENTATION\n#include "neo_state.h"\n#include "neo_comm.h"\n' \
    >"$W/comm_library.c"
# What both programs below do: a plan of one table.
cat >"$W/plan.h" <<'END'
#include <string.h>
static neo_status make_plan(neo_ctx *ctx, int ranks, neo_plan **plan) {
    neo_table_desc table;
    neo_bags_desc bags;
    neo_plan_desc desc;
    memset(&table, 0, sizeof table);
    memset(&bags, 0, sizeof bags);
    memset(&desc, 0, sizeof desc);
    table.name = "t";
    table.rows = 8;
    table.dim = 32;
    bags.tables = &table;
    bags.table_count = 1;
    bags.max_batch = bags.max_ids = 4;
    desc.bags = &bags;
    desc.cluster.ranks = ranks;
    return neo_plan_create(ctx, &desc, plan);
}
END
cat >"$W/plan_alone.c" <<'END'
#define NEO_IMPLEMENTATION
#include "neo_plan.h"
#include "plan.h"
int main(void) {
    neo_ctx *ctx = NULL;
    neo_plan *plan = NULL;
    neo_status status = neo_ctx_create(NULL, &ctx);
    if (status == NEO_OK) status = make_plan(ctx, 2, &plan);
    neo_plan_destroy(plan);
    neo_ctx_destroy(ctx);
    return status != NEO_OK;
}
END
cat >"$W/fsdp_alone.c" <<'END'
#define NEO_FSDP_IMPLEMENTATION
#include "neo_fsdp.h"
#include "plan.h"
static neo_status rank(neo_comm *comm, void *user) {
    neo_plan *plan = NULL;
    neo_shard *shard = NULL;
    (void)user;
    neo_status status = make_plan(neo_comm_ctx(comm), neo_comm_size(comm), &plan);
    if (status == NEO_OK) status = neo_shard_create(comm, plan, &shard);
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    return status;
}
int main(void) {
    neo_comm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ranks = 2;
    return neo_comm_init_env(&desc, rank, NULL) != NEO_OK;
}
END
cat >"$W/comm_alone.c" <<'END'
#define NEO_COMM_IMPLEMENTATION
#include "neo_comm.h"
#include <stdio.h>
static neo_status rank(neo_comm *comm, void *user) {
    float x = (float)(neo_comm_rank(comm) + 1);
    neo_status status = neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &x, &x, 1, NEO_F32, NULL);
    if (x != 6) *(int *)user = 1;
    return status;
}
int main(void) {
    neo_comm_desc desc;
    int wrong = 0;
    memset(&desc, 0, sizeof desc);
    desc.ranks = 3;
    neo_status status = neo_comm_init_env(&desc, rank, &wrong);
    if (status != NEO_OK) printf("%s\n", neo_last_error());
    return status != NEO_OK || wrong;
}
END
# In GNU modes neo.h first must not hide what the rest of the file uses.
cat >"$W/gnu.c" <<'END'
#define NEO_IMPLEMENTATION
#include "neo.h"
#include <math.h>
#include <unistd.h>
#include <sys/mman.h>
double use(void);
double use(void) { return M_PI + (double)usleep(1) + (double)MAP_ANONYMOUS; }
END

compilers=
for c in gcc clang; do
    if have $c; then compilers="$compilers $c"; else skip "$c: not installed"; fi
done
[ -n "$compilers" ] || compilers=$CC
first=${compilers# }
first=${first%% *} last=${compilers##* }

# ---- public structs have one layout, whatever macros a file sees ----

{
    echo '#ifdef __cplusplus'
    echo '#define ALIGNOF alignof'
    echo '#else'
    echo '#define ALIGNOF _Alignof'
    echo '#endif'
    echo '#include "neo_serve.h"'
    echo '#include "neo_store.h"'
    echo '#include "neo_fsdp.h"'
    echo '#include <stdio.h>'
    echo 'int main(void) {'
    for header in neo.h neo_run.h neo_state.h neo_data.h neo_store.h neo_serve.h neo_comm.h \
        neo_plan.h neo_fsdp.h; do
        sed '/Stop here if you only want the API/q' $header
    done | sed -n \
        -e 's/^} \(neo_[a-z0-9_]*\);.*/\1/p' \
        -e 's/^typedef \(struct\|enum\) neo_[a-z0-9_]* {.*} \(neo_[a-z0-9_]*\);.*/\2/p' | sort -u |
        while read -r name; do
            printf '    printf("%%s %%u %%u\\n", "%s",' "$name"
            printf ' (unsigned)sizeof(%s), (unsigned)ALIGNOF(%s));\n' "$name" "$name"
        done
    echo '    return 0;'
    echo '}'
} >"$W/sizes.c"
structs=$(grep -c "printf(" "$W/sizes.c")
# The sizes that one compiler finds: every other way to compile all headers below must agree.
if $first -I. -o "$W/sizes" "$W/sizes.c" 2>"$W/sizes.log" && "$W/sizes" >"$W/sizes.txt"; then
    pass
else
    fail "sizes of structs: $(head -3 "$W/sizes.log")"
fi
{
    echo '#ifndef _WIN32'
    sed '/include/,$d' "$W/sizes.c"
    while read -r name size align; do
        echo "NEO__STATIC_ASSERT(sizeof($name) == $size && ALIGNOF($name) == $align, \"$name\");"
    done <"$W/sizes.txt"
    echo '#endif'
} >"$W/layout.h"
printf '#include "neo_%s.h"\n' store serve fsdp | cat - "$W/layout.h" >"$W/all_declare.c"
{ echo '#define NEO_IMPLEMENTATION' && cat "$W/all_declare.c"; } >"$W/all_implement.c"

# ---- flags that define no macro: the same bits, or neo_ctx_create refuses ----

# tests/build/flags.c trains a small model and prints a digest, or "refused: <why>". With all
# warnings where the most is found; the object of -O0 is linked with -ffast-math, too.
for c in $compilers; do
    for flags in -O0 "-O3 -std=gnu17 -march=native" "-O2 -ffp-contract=fast -march=native" \
        "-O2 -funsafe-math-optimizations" \
            "-O1 -fno-signed-zeros -fno-trapping-math -fassociative-math" \
        "-O1 -ffinite-math-only" "-O1 -fno-signed-zeros" "-O1 -freciprocal-math" \
        "-O2 -DNEO_NO_SIMD -march=native"; do
        case $c$flags in gcc*-ffp-contract=fast*) continue ;; esac # what gcc's gnu17 has anyway
        sets=-DNEO_STATIC
        # What is refused is so where a context is all that is made; if not, the model is trained.
        case $c$flags in
        *-funsafe* | *-fno-* | *-ffinite* | *-freciprocal* | clang*-ffp-contract*)
            sets="-DCONTEXT_ALONE $sets" ;;
        esac
        id=$(echo "$c $flags" | tr -c 'a-zA-Z0-9\n' _)
        out=$W/out/$id more= with=$flags
        case $flags in
        -O0) more="$c -ffast-math -o $out $out.o -pthread -lm && $out >${out}_LINK_FAST.txt" ;;
        -O3*) with="$flags $warnings" ;;
        esac
        job "$c $flags" \
            "for set in $sets; do
                 $c $with \$set -DNEO_STATIC -I. -Itests -c -o $out.o tests/build/flags.c \
                     2>$out.err || {
                     cat $out.err
                     grep -q same-bits $out.err && echo 'refused: by the compiler' >$out.txt
                     exit
                 }
                 times >$out.times
                 $c -o $out $out.o -pthread -lm && $out >$out.txt
                 ! grep -q ^refused $out.txt || break
             done
             cat $out.txt
             test -s $out.txt && ${more:-true}"
    done
done

# ---- the matrix ----

for c in $compilers; do
    for std in c11 gnu17 c++17; do
        case $c-$std in
        gcc-c++*) driver="g++" ;;
        clang-c++*) driver="clang++" ;;
        *) driver=$c ;;
        esac
        language="-x c"
        if [ "$std" = c++17 ]; then
            language="-x c++"
            if ! have $driver || ! echo '#include <cstddef>' | $driver -x c++ -fsyntax-only - \
                2>/dev/null; then
                skip "$c c++17: no C++ compiler"
                continue
            fi
        fi
        base="$driver -std=$std $warnings -I."
        # Full compiles where they can find more than the front end does: what follows from the flow
        # of values, with -O1 as C and all headers in one file (the others are then the same code),
        # and functions that gcc sees unused. Clang's warnings come from its front end.
        case $c-$std in
        gcc-c11) job "$c $std all headers, implementation" \
            "$base -O1 $language -c -o /dev/null $W/all_implement.c" ;;
        gcc-c++17) job "$c $std all headers, implementation" \
            "$base -O0 $language -c -o /dev/null $W/all_implement.c" ;;
        *) job "$c $std all headers, implementation" \
            "$base -fsyntax-only $language $W/all_implement.c" ;;
        esac
        case $std in # macros mean the same in every dialect of C
        c11 | c++17) sets="-DNEO_STATIC -DNEO_SHARED -DNEO_NO_SIMD" ;;
        *) sets= ;;
        esac
        for set in "" $sets ${sets:+-DNDEBUG}; do
            level="-fsyntax-only"
            case $c-$std-$set in
            gcc-c11--DNEO_STATIC | gcc-c11-*SIMD | gcc-c++17--DNEO_STATIC | gcc-c++17-*SIMD) \
                level="-O0 -c -o /dev/null" ;;
            esac
            job "$c $std declarations $set" "$base -O1 $set -fsyntax-only $language $W/declare.c"
            # Without macros it is read below, before system headers.
            [ -z "$set" ] || job "$c $std implementation $set" \
                "$base $level $set $language $W/implement.c"
        done
        all="-DNEO_SHARED -DNEO_NO_SIMD -DNDEBUG '-DNEO_ASSERT(x)=((void)(x))'"
        [ -z "$sets" ] || job "$c $std all macros at once" \
            "$base -O0 $all -fsyntax-only $language $W/implement.c"
        job "$c $std declarations, then the implementation" \
            "$base -fsyntax-only $language $W/late.c"
        # -O2 for neo_comm.h alone: more warnings see the flow of values.
        [ -z "$sets" ] || job "$c $std two files linked; neo_comm.h alone, linked with neo.h" \
            "$base -O0 -DNEO_NO_SIMD $language -c -o $W/library-$c-$std.o $W/library.c &&
             $base -O0 $language -c -o $W/program-$c-$std.o $W/program.c &&
             $driver -o $W/program-$c-$std $W/program-$c-$std.o $W/library-$c-$std.o -pthread \
                 -lm &&
             $W/program-$c-$std &&
             $base -O2 $language -c -o $W/comm-$c-$std.o $W/comm_alone.c &&
             $driver -o $W/comm-$c-$std $W/comm-$c-$std.o $W/library-$c-$std.o -pthread -lm &&
             timeout 900 $W/comm-$c-$std"
        # Each header alone, as C by the first compiler and as C++ by the last; the other two front
        # ends read the same text in one file.
        case $c-$std in
        "$first-c11" | "$last-c++17") alone=yes ;;
        *) alone= ;;
        esac
        [ -n "$alone" ] || [ $std = gnu17 ] || job "$c $std all headers, NEO_STATIC" \
            "$base -DNEO_STATIC -fsyntax-only $language $W/all_declare.c"
        case $alone in yes)
            job "$c $std neo_serve.h declarations" \
                "$base -O1 -fsyntax-only $language $W/serve_declare.c"
            for set in "" $sets -DNEO_INFERENCE "-DNEO_INFERENCE -DNEO_STATIC"; do
                job "$c $std neo_serve.h implementation $set" \
                    "$base -fsyntax-only $set $language $W/serve_implement.c"
            done
            job "$c $std neo_serve.h declarations, then the implementation" \
                "$base -fsyntax-only $language $W/serve_late.c"
            job "$c $std neo_comm.h declarations" \
                "$base -O1 -fsyntax-only $language $W/comm_declare.c"
            for set in "" $sets; do
                job "$c $std neo_comm.h implementation $set" \
                    "$base -fsyntax-only $set $language $W/comm_implement.c"
            done
            job "$c $std neo_comm.h declarations, then the implementation" \
                "$base -fsyntax-only $language $W/comm_late.c"
            for h in run store; do
                job "$c $std neo_$h.h declarations" \
                    "$base -O1 -fsyntax-only $language $W/${h}_declare.c"
                for set in "" -DNEO_STATIC "-DNEO_INFERENCE -DNEO_STATIC"; do
                    # Alone: functions that only headers above it call are unused, gcc sees.
                    level="-fsyntax-only"
                    case $c-$std-$set in
                    gcc-c11--DNEO_STATIC) level="-O0 -DNEO_NO_SIMD -c -o /dev/null" ;;
                    esac
                    job "$c $std neo_$h.h implementation $set" \
                        "$base $level $set $language $W/${h}_implement.c"
                done
                job "$c $std neo_$h.h declarations, then the implementation" \
                    "$base -fsyntax-only $language $W/${h}_late.c"
            done
            for h in plan fsdp; do
                job "$c $std neo_$h.h declarations" \
                    "$base -O1 -fsyntax-only $language $W/${h}_declare.c"
                for set in "" -DNEO_STATIC; do
                    job "$c $std neo_$h.h implementation $set" \
                        "$base -fsyntax-only $set $language $W/${h}_implement.c"
                done
                job "$c $std neo_$h.h declarations, then the implementation" \
                    "$base -fsyntax-only $language $W/${h}_late.c"
            done
            job "$c $std neo_plan.h, linked" \
                "$base -O0 $language -o $W/plan-$c-$std $W/plan_alone.c -pthread -lm &&
                 $W/plan-$c-$std"
            job "$c $std neo_fsdp.h alone, linked with the others" \
                "$base -O1 $language -c -o $W/fsdp-$c-$std.o $W/fsdp_alone.c &&
                 $base -O0 -DNEO_NO_SIMD $language -c -o $W/fsdp-library-$c-$std.o \
                     $W/comm_library.c &&
                 $driver -o $W/fsdp-$c-$std $W/fsdp-$c-$std.o $W/fsdp-library-$c-$std.o \
                     -pthread -lm &&
                 timeout 900 $W/fsdp-$c-$std" ;;
        esac
        job "$c $std before system headers" "$base -fsyntax-only $language $W/before_system.c"
        job "$c $std after system headers" "$base -fsyntax-only $language $W/after_system.c"
        job "$c $std before system headers, implementation" \
            "$base -DIMPLEMENT -fsyntax-only $language $W/before_system.c"
        case $std in
        c11) # strict modes hide POSIX once a system header has been read
            refuse "$c $std after system headers, implementation" \
                "include neo.h before any system header" \
                "$base -DIMPLEMENT -fsyntax-only $language $W/after_system.c"
            refuse "$c $std after system headers, NEO_STATIC" \
                "include neo.h before any system header" \
                "$base -DNEO_STATIC -fsyntax-only $language $W/after_system.c"
            job "$c $std after system headers, _POSIX_C_SOURCE, implementation" \
                "$base -D_POSIX_C_SOURCE=200809L -DIMPLEMENT -fsyntax-only $language \
                    $W/after_system.c"
            ;;
        *) job "$c $std after system headers, implementation" \
            "$base -DIMPLEMENT -fsyntax-only $language $W/after_system.c" ;;
        esac
    done
    # The newest standards: C23, and C++20, which has no arithmetic between two enums.
    for std in c2x c++20; do
        language="-x c"
        [ $std = c2x ] || language="-x c++"
        echo '#include <stddef.h>' >"$W/probe.c"
        if ! $c -std=$std $language -fsyntax-only "$W/probe.c" 2>/dev/null; then
            skip "$c -std=$std: unknown to it"
            continue
        fi
        base="$c -std=$std $warnings -I. -fsyntax-only $language"
        job "$c $std declarations" "$base $W/all_declare.c"
        job "$c $std implementation" "$base -O1 $W/all_implement.c"
    done
    base="$c -std=c11 $warnings -I."
    job "$c gnu17, neo.h hides nothing" "$c -std=gnu17 $warnings -I. -fsyntax-only $W/gnu.c"
    job "$c c11 -D_GNU_SOURCE" "$base -D_GNU_SOURCE -fsyntax-only $W/implement.c"
    job "$c c11 -march=native" "$base -march=native -fsyntax-only $W/implement.c"
    for source in examples/*.c examples/plan/*.c examples/train/*/main.c; do
        job "$c c11 -Wshadow $source" \
            "$c -std=c11 -Wall -Wextra -Wshadow -Werror -I. -fsyntax-only $source"
    done
    # The header may be renamed and sit anywhere.
    mkdir -p "$W/vendor/deep"
    cp neo.h neo_kernels.h "$W/vendor/deep"
    sed 's/"neo.h"/"vendor\/deep\/neo.h"/' "$W/implement.c" >"$W/elsewhere.c"
    job "$c c11 from another folder" "$c -std=c11 $warnings -fsyntax-only $W/elsewhere.c"
    cp neo.h "$W/my_neo.h" && cp neo_kernels.h "$W"
    sed 's/"neo.h"/"my_neo.h"/' "$W/implement.c" >"$W/renamed.c"
    job "$c c11 renamed" "$c -std=c11 $warnings -fsyntax-only $W/renamed.c"

    # Flags that define a macro are refused by the compiler, where neo is implemented: its
    # declarations go into any file.
    fast="$c -std=c11 -I. -ffast-math -fsyntax-only"
    job "$c -ffast-math, declarations" "$fast $warnings $W/all_declare.c"
    refuse "$c -ffast-math" "same-bits" "$fast $W/implement.c"
    refuse "$c -ffast-math NEO_STATIC" "same-bits" "$fast -DNEO_STATIC $W/declare.c"
    refuse "$c -ffast-math, declarations first" "same-bits" "$fast $W/late.c"
    refuse "$c -ffast-math neo_comm.h" "same-bits" "$fast $W/comm_alone.c"
    refuse "$c -ffast-math neo_fsdp.h" "same-bits" "$fast $W/fsdp_alone.c"
    refuse "$c -Ofast" "same-bits" "$c -std=c11 -I. -Ofast -fsyntax-only $W/implement.c"
    if [ "$(uname -m)" = x86_64 ] && [ "$c" = gcc ]; then
        refuse "$c -mfpmath=387" "FLT_EVAL_METHOD" \
            "$c -std=c11 -I. -mfpmath=387 -fsyntax-only $W/implement.c"
    fi
done
mpi=
for kind in .openmpi .mpich ''; do
    [ -n "$mpi" ] && [ -z "$kind" ] && continue # the plain name is one of those
    have mpicc$kind || continue
    mpi=yes
    job "mpicc$kind c11 neo_comm.h" \
        "mpicc$kind -std=c11 $warnings -I. -DNEO_COMM_MPI -O1 -c -o /dev/null $W/comm_alone.c"
    job "mpicc$kind c11 neo_comm.h NEO_STATIC" \
        "mpicc$kind -std=c11 $warnings -I. -DNEO_COMM_MPI -DNEO_STATIC -fsyntax-only \
            $W/comm_implement.c"
    if have mpicxx$kind; then
        skip_cxx="-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX" # MPI's own C++, which has warnings
        job "mpicxx$kind c++17 neo_comm.h" \
            "mpicxx$kind -std=c++17 $warnings -I. $skip_cxx -DNEO_COMM_MPI -O1 -x c++ -c \
                -o /dev/null $W/comm_alone.c"
        job "mpicxx$kind c++17 neo_comm.h, MPI's C++ too" \
            "mpicxx$kind -std=c++17 -I. -DNEO_COMM_MPI -fsyntax-only -x c++ $W/comm_alone.c"
    else
        skip "mpicxx$kind: not installed"
    fi
done
[ -n "$mpi" ] || skip "mpicc: not installed (Debian: libopenmpi-dev, libmpich-dev)"
# neo_nccl.h is read within neo_comm.h alone.
echo '#include "neo_nccl.h"' >"$W/nccl_alone.c"
refuse "neo_nccl.h by itself" "include neo_comm.h" "$first -I. -fsyntax-only $W/nccl_alone.c"
cuda=${CUDA:-/usr/local/cuda}/include
if [ -f "$cuda/nccl.h" ]; then
    nccl="$warnings -I. -isystem $cuda -DNEO_COMM_NCCL"
    for c in $compilers; do
        job "$c c11 NEO_COMM_NCCL" "$c -std=c11 $nccl -O1 -c -o /dev/null $W/comm_alone.c"
        ! have g++ || job "$c c++17 NEO_COMM_NCCL" \
            "$c -std=c++17 $nccl -fsyntax-only -x c++ $W/comm_alone.c"
    done
else
    skip "nccl.h: not installed"
fi
# As clang-cl reads them; what that shows is at the top of sdk/windows.h.
cl="clang --target=x86_64-pc-windows-msvc -isystem $W/windows $warnings -I."
if have clang; then
    mkdir "$W/windows"
    for h in direct errno inttypes io malloc math stdio stdlib string time windows; do
        cp tests/build/sdk/windows.h "$W/windows/$h.h"
    done
    job "clang-cl c11" "$cl -std=c11 -O1 -c -o $W/windows/neo.o $W/all_implement.c"
    job "clang-cl c11 NEO_SHARED" "$cl -std=c11 -DNEO_SHARED -fsyntax-only $W/all_implement.c"
    job "clang-cl c++17" "$cl -std=c++17 -fsyntax-only -x c++ $W/all_implement.c"
fi
if have nvcc; then
    sed 's/^int main/int host_main/' "$W/implement.c" >"$W/host.cu"
    job "nvcc, the host side" "nvcc -std=c++17 -I. -c -o /dev/null $W/host.cu"
else
    skip "nvcc: not installed"
fi
# The layout in other ways than the matrix has.
for c in $compilers; do
    for flags in "-x c" "-x c -DNDEBUG" "-x c -DNEO_STATIC" "-x c -DNEO_SHARED" \
        "-x c -D_GNU_SOURCE" \
        "-x c -DNEO_NO_SIMD '-DNEO_ASSERT(x)=(void)(x)' -DNEO_IMPLEMENTATION"; do
        job "sizes of structs: $c $flags" "$c -I. $flags -fsyntax-only $W/all_declare.c"
    done
    ! have g++ || job "sizes of structs: $c C++" \
        "$c -I. -x c++ -std=c++17 -fsyntax-only $W/all_declare.c"
done
run_jobs
echo "headers: layout of $structs public types compared"
[ "$structs" -gt 30 ] || fail "only $structs public types were found"

expected=
for f in "$W"/out/*.txt; do
    case $f in *_O0.txt) expected=$(cat "$f"); break ;; esac
done
case $expected in *digest*) pass ;; *) fail "flags: no digest at -O0" ;; esac
for f in "$W"/out/*.txt; do
    id=$(basename "$f" .txt)
    case $(cat "$f") in
    refused*) pass; echo "headers: $id: $(cat "$f")" ;;
    *) same "flags $id" "$(cat "$f")" "$expected" ;;
    esac
done

# ---- NEO_EXACT_BEGIN: a b + c is rounded twice; behind NEO_EXACT_END it is one fma again ----

cat >"$W/exact.c" <<'END'
#include "neo.h"
#include <stdio.h>
#ifdef EXACT
NEO_EXACT_BEGIN
#endif
float between(float a, float b, float c);
float between(float a, float b, float c) { return a * b + c; }
#ifdef EXACT
NEO_EXACT_END
#endif
float behind(float a, float b, float c);
float behind(float a, float b, float c) { return a * b + c; }
int main(void) {
    volatile float a = 1.0f + 1.0f / 4096, c = -1.0f - 1.0f / 2048;
    return printf("%d %d\n", between(a, a, c) != 0, behind(a, a, c) != 0) < 0;
}
END
# exact RUNNER COMPILER...: both have an fma by default, or none has (a machine without it).
exact() {
    runner=$1
    shift
    for set in "" -DEXACT; do
        "$@" -O3 $warnings -I. $set -o "$W/exact$set" "$W/exact.c" 2>"$W/err" || head -4 "$W/err"
    done
    case $($runner "$W/exact") in
    "0 0") skip "$*: no fma here" ;;
    *) same "$*: fma in the first, in the second function" \
        "$($runner "$W/exact") $($runner "$W/exact-DEXACT")" "1 1 0 1" ;;
    esac
}
for c in gcc "g++ -x c++"; do
    have ${c%% *} && exact "" $c -march=native -ffp-contract=fast
done
for c in clang "clang++ -x c++"; do
    have ${c%% *} && exact "" $c -march=native -ffp-contract=on
done
if have aarch64-linux-gnu-gcc && have qemu-aarch64; then
    exact qemu-aarch64 aarch64-linux-gnu-gcc -static
else
    skip "NEO_EXACT_BEGIN on AArch64: no aarch64-linux-gnu-gcc, or no qemu-aarch64"
fi

# ---- one translation unit must compile in a few seconds ----

# Processor time, not the clock: the machine may be busy. `times` prints the children's as 0m1.234s.
# What it takes is about 24 s of one core of today; the limit finds a runaway, on any machine.
seconds=$(sed -n '2s/ .*//p' "$W/out/${first}__O3__std_gnu17__march_native.times")
ms=$(echo "${seconds:-0m99s}" | awk -F '[ms]' '{ printf "%d", ($1 * 60 + $2) * 1000 }')
echo "headers: flags.c, with neo_state.h, compiles in $ms ms at -O3 (a runaway: 90000)"
if [ "$ms" -lt 90000 ]; then pass; else fail "compile time $ms ms"; fi

finish build/headers
