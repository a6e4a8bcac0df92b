# neo: the examples, the tests and the benches. `make help` lists what there is.
#
# Needs GNU make and a C compiler (gcc or clang). The other tools - the second compiler, cross
# compilers, qemu, libFuzzer - are used where they are installed; what is missing is reported as
# skipped. Everything is written below build/.

CC     ?= cc
MPICC  ?= mpicc
CUDA   ?= /usr/local/cuda
CFLAGS ?= -O2 -g
B      ?= build
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)

DEMO_DATA  = --format adult --data examples/data/adult/adult.data --test examples/data/adult/adult.test
DEMO_MODEL = --dim 8 --bottom 5-32-8 --top 32-1
DEMO_TRAIN = --epochs 10 --batch 256 --shuffle 32768 --optimizer adagrad --lr 0.03 --schedule linear
DEMO_OUT   = --checkpoint $(B)/demo/checkpoint --report $(B)/demo/report.html --log $(B)/demo/log.jsonl
DEMO_ARGS ?= $(DEMO_DATA) $(DEMO_MODEL) $(DEMO_TRAIN) $(DEMO_OUT)

BENCHES      ?= gemm bags step reader comm shard fsdp
FUZZ_SECONDS ?= 600

compile     = $(CC) -std=c11 -Wall -Wextra -I. $(CFLAGS) $(SANITIZE)
compile_mpi = $(MPICC) -std=c11 -Wall -Wextra -I. $(CFLAGS) $(SANITIZE) -DNEO_COMM_MPI
libs        = -lm -pthread

examples = $(patsubst examples/%.c,$(B)/%,$(wildcard examples/*.c))
programs = $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/test_*.c tests/unit_*.c tests/large_*.c))
fuzzers  = $(patsubst tests/fuzz/%.c,$(B)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
helpers  = $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/make_*.c))
scripts  = $(wildcard tests/test_*.sh)
# Tests of neo_comm.h and of what is sharded: each holds its own copy of neo, and is compiled for MPI too.
comm_programs = $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/test_comm*.c tests/test_shard*.c tests/test_fsdp*.c))

# One recipe at a time may run; sub-makes build in parallel unless the caller chose -j.
jobs = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

all: $(examples)

help:
	@echo 'make              build the examples: build/dlrm, build/gpt, build/custom, build/bags,'
	@echo '                  build/allreduce, build/plan'
	@echo 'make demo         train a recommendation model on the data in examples/data'
	@echo 'make test         everything this machine can run; ends with the totals'
	@echo 'make test-full    the whole grids of which make test runs a part: collectives, all sizes and ways (half an hour)'
	@echo 'make headers      neo.h and neo_comm.h under gcc and clang, C11 to C++17, all macros, -Werror'
	@echo 'make bench        one line per figure; also build/bench.jsonl (BENCHES="gemm bags" BENCH_ARGS=--quick)'
	@echo 'make mpi          build/dlrm_mpi, build/gpt_mpi, build/allreduce_mpi, build/tests/test_comm_mpi, build/bench/comm_mpi, with $$(MPICC)'
	@echo 'make netns        the MPI test over TCP between network namespaces, and a link cut in the middle (root)'
	@echo 'make asan         the tests under AddressSanitizer; likewise ubsan and tsan'
	@echo 'make fuzz         the parsers under libFuzzer, FUZZ_SECONDS=600 each (clang)'
	@echo 'make arm          the tests for AArch64, under qemu, and its digest against this machine'
	@echo 'make mingw        neo.h, examples and tests for Windows, compiled only'
	@echo 'make clean        remove build/'
	@echo 'Variables: CC, MPICC (default mpicc), CFLAGS (default -O2 -g), JOBS, DEMO_ARGS'

# ---- examples: each is one file that holds its own copy of neo ----

$(B)/%: examples/%.c neo.h | $(B)/tests
	$(compile) -o $@ $< $(libs)

$(B)/allreduce: neo_comm.h
$(B)/plan: neo_comm.h neo_fsdp.h examples/plans/sets.h
$(B)/dlrm $(B)/dlrm_mpi $(B)/gpt $(B)/gpt_mpi: neo_comm.h neo_fsdp.h

demo: $(B)/dlrm
	@rm -rf $(B)/demo && mkdir -p $(B)/demo
	$(B)/dlrm $(DEMO_ARGS)

# ---- tests: one object of neo with its assertions on, and a program for each file ----

checked = -include tests/neo_assert.h
test_headers = $(wildcard tests/*.h)

$(B)/tests:
	@mkdir -p $@

$(B)/tests/neo.o: tests/neo_impl.c tests/neo_assert.h neo.h | $(B)/tests
	$(compile) $(checked) -c -o $@ $<

$(B)/tests/%.o: tests/%.c tests/neo_assert.h | $(B)/tests
	$(compile) -c -o $@ $<

$(B)/tests/test_%: tests/test_%.c $(test_headers) neo.h $(B)/tests/neo.o $(B)/tests/neo_assert.o
	$(compile) -o $@ $< $(B)/tests/neo.o $(B)/tests/neo_assert.o $(libs)

# They need little of neo.h, which compiles much faster without its kernels.
$(comm_programs): $(B)/tests/%: tests/%.c $(test_headers) neo.h neo_comm.h $(B)/tests/neo_assert.o
	$(compile) -O1 -DNEO_NO_SIMD $(checked) -o $@ $< $(B)/tests/neo_assert.o $(libs)

$(filter $(B)/tests/test_shard% $(B)/tests/test_fsdp%,$(comm_programs)): neo_fsdp.h

# The NCCL backend over a stand-in for CUDA and NCCL, of which it needs the headers.
$(B)/tests/test_comm_nccl: tests/fake_nccl.c tests/fake_nccl.h
$(B)/tests/test_comm_nccl: private compile += -isystem $(CUDA)/include

# neo_comm.h alone, over neo.h implemented in another file.
$(B)/tests/test_wire: tests/test_wire.c $(test_headers) neo_comm.h $(B)/tests/neo.o $(B)/tests/neo_assert.o
	$(compile) $(checked) -DNEO_COMM_IMPLEMENTATION -o $@ $< $(B)/tests/neo.o $(B)/tests/neo_assert.o $(libs)

# The planner, of neo_fsdp.h, with what it needs of neo_comm.h.
$(B)/tests/test_plan: tests/test_plan.c $(test_headers) examples/plans/sets.h neo_comm.h neo_fsdp.h $(B)/tests/neo.o \
    $(B)/tests/neo_assert.o
	$(compile) $(checked) -DNEO_COMM_IMPLEMENTATION -o $@ $< $(B)/tests/neo.o $(B)/tests/neo_assert.o $(libs)

$(B)/tests/large_%: tests/large_%.c $(test_headers) neo.h $(B)/tests/neo.o $(B)/tests/neo_assert.o
	$(compile) -o $@ $< $(B)/tests/neo.o $(B)/tests/neo_assert.o $(libs)

$(B)/tests/unit_%: tests/unit_%.c $(test_headers) neo.h $(B)/tests/neo_assert.o
	$(compile) $(checked) -DNEO_STATIC -o $@ $< $(B)/tests/neo_assert.o $(libs)

# Each fuzz target holds its own neo, less what it does not use (that compiles much faster). Without
# libFuzzer it runs over its seeds and plain mutations of them.
lean = -O1 -DNEO_STATIC -DNEO_NO_SIMD
$(B)/tests/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/fuzz.h neo.h | $(B)/tests
	$(compile) $(lean) -DNEO_FUZZ_MAIN -o $@ $< $(libs)

$(B)/tests/fuzz_plan $(B)/libfuzzer/fuzz_plan: neo_comm.h neo_fsdp.h

$(B)/libfuzzer/%: tests/fuzz/%.c tests/fuzz/fuzz.h neo.h
	@mkdir -p $(B)/libfuzzer
	clang -std=c11 -g -O1 -fsanitize=fuzzer,address $(lean) -o $@ $< $(libs)

$(B)/tests/make_%: tests/make_%.c | $(B)/tests
	$(compile) -o $@ $<

test-programs: $(programs) $(fuzzers) $(helpers)

test:
	@$(MAKE) --no-print-directory $(jobs) all test-programs
	@CC='$(CC)' B='$(B)' MAKE='$(MAKE)' JOBS='$(JOBS)' sh tests/run.sh $(programs) $(fuzzers) $(scripts)

test-full:
	@$(MAKE) --no-print-directory $(jobs) all test-programs
	@CC='$(CC)' B='$(B)' MAKE='$(MAKE)' JOBS='$(JOBS)' NEO_FULL=1 TEST_TIMEOUT=3600 sh tests/run.sh $(B)/tests/test_comm \
	    $(B)/tests/test_shard $(B)/tests/test_fsdp tests/test_mpi.sh

headers:
	@CC='$(CC)' B='$(B)' JOBS='$(JOBS)' sh tests/headers.sh

# ---- the same tests under sanitizers; a program stops at the first finding ----

asan:  ; @$(MAKE) --no-print-directory sanitized NAME=address   SANITIZE='-fsanitize=address -fno-omit-frame-pointer'
ubsan: ; @$(MAKE) --no-print-directory sanitized NAME=undefined SANITIZE='-fsanitize=undefined -fno-sanitize-recover=all'
tsan:  ; @$(MAKE) --no-print-directory sanitized NAME=thread    SANITIZE='-fsanitize=thread'

sanitized: CFLAGS = -O1 -g
sanitized:
	@$(MAKE) --no-print-directory $(jobs) B=$(B)/$(NAME) CFLAGS='$(CFLAGS)' SANITIZE='$(SANITIZE)' \
	    $(B)/$(NAME)/dlrm $(B)/$(NAME)/gpt test-programs
	@CC='$(CC)' B='$(B)/$(NAME)' MAKE='$(MAKE)' SANITIZER=$(NAME) sh tests/run.sh \
	    $(patsubst $(B)/%,$(B)/$(NAME)/%,$(programs) $(fuzzers)) tests/test_dlrm.sh tests/test_gpt.sh

fuzz:
	@$(MAKE) --no-print-directory $(jobs) $(fuzzers)
	@B='$(B)' MAKE='$(MAKE)' FUZZ_SECONDS=$(FUZZ_SECONDS) sh tests/run.sh tests/test_fuzz.sh

# ---- other machines ----

arm:
	@CC='$(CC)' B='$(B)' MAKE='$(MAKE)' JOBS='$(JOBS)' ARM_ALL=1 sh tests/run.sh tests/test_arm.sh

mingw:
	@CC='$(CC)' B='$(B)' MAKE='$(MAKE)' JOBS='$(JOBS)' sh tests/run.sh tests/test_mingw.sh

# ---- benches: verified before they are timed ----

$(B)/bench/neo.o: neo.h
	@mkdir -p $(B)/bench
	printf '#define NEO_IMPLEMENTATION\n#include "neo.h"\n' | $(compile) -I. -x c -c -o $@ -

$(B)/bench/%: bench/%.c $(wildcard bench/*.h) $(B)/bench/neo.o
	$(compile) -I. -o $@ $< $(B)/bench/neo.o $(libs) -ldl

bench: $(patsubst %,$(B)/bench/%,$(BENCHES))
	@BENCH_ARGS="$(BENCH_ARGS)" sh tests/bench.sh $(B)/bench.jsonl $^

# They hold the implementations that neo.o has not.
$(B)/bench/comm $(B)/bench/shard $(B)/bench/fsdp: neo_comm.h
$(B)/bench/shard $(B)/bench/fsdp: neo_fsdp.h

# ---- ranks as MPI processes: mpirun -n 4 build/dlrm_mpi ... ----

mpi: $(B)/dlrm_mpi $(B)/gpt_mpi $(B)/allreduce_mpi $(B)/tests/test_comm_mpi $(B)/bench/comm_mpi

$(B)/%_mpi: examples/%.c neo.h neo_comm.h | $(B)/tests
	$(compile_mpi) -o $@ $< $(libs)

$(comm_programs:=_mpi): $(B)/tests/%_mpi: tests/%.c $(test_headers) neo.h neo_comm.h $(B)/tests/neo_assert.o
	$(compile_mpi) -DNEO_NO_SIMD $(checked) -o $@ $< $(B)/tests/neo_assert.o $(libs)

$(B)/bench/%_mpi: bench/%.c $(wildcard bench/*.h) neo_comm.h $(B)/bench/neo.o
	$(compile_mpi) -o $@ $< $(B)/bench/neo.o $(libs)

netns:
	@CC='$(CC)' B='$(B)' MAKE='$(MAKE)' sh tests/run.sh tests/netns.sh

clean:
	rm -rf $(B)

.PHONY: all help demo test test-programs headers asan ubsan tsan sanitized fuzz arm mingw bench mpi netns clean
.DELETE_ON_ERROR:
.SECONDARY:
