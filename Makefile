# neo: the examples, the tests and the benches. Needs GNU make and a C compiler (gcc or clang).
# Other tools (a second compiler, cross compilers, qemu, libFuzzer) are used where they are
# installed; what is missing is reported as skipped. Everything is written below build/.
# `make help` prints:
#:make              build the examples and programs: build/dlrm, build/gpt, build/serve ...
#:make demo         train a recommendation model on the data in examples/data
#:make test         every feature on the CPU, over threads and MPI, in minutes; ends with the totals
#:make check        everything this machine can run: make test, and the five that follow
#:                  (one alone: make build/tests/core/gemm && build/tests/core/gemm; of a script,
#:                  after make test: sh tests/programs/plans.sh)
#:make test-full    larger grids, MPIs, emulated GPU, AVX-512; libFuzzer, ARM, macOS, Windows, musl
#:                  (NEO_FULL=all: whole grids, for a night)
#:make headers      the headers under gcc and clang, C11 to C++17, all macros, -Werror
#:make asan         the tests under AddressSanitizer and UndefinedBehaviorSanitizer
#:make tsan         the tests under ThreadSanitizer
#:make attack       kills and faults at every call, ranks that go wrong (ATTACK=all: days)
#:make cuda         neo_cuda.cuh under nvcc for sm_75 to sm_120, -Werror; build/dlrm_cuda, gpt_cuda
#:make nccl         build/dlrm_nccl, gpt_nccl: ranks of mpirun with a GPU each, tensors over NCCL
#:make test-cuda    on a GPU: the tests of neo_cuda.cuh, dlrm and gpt with the bits of the CPU
#:make bench-cuda   on a GPU: figures, also in bench/results/cuda-<its name>.md
#:make bench        a line per figure; build/bench.jsonl (BENCHES="gemm bags" BENCH_ARGS=--quick)
#:make peers        the same work by PyTorch, FBGEMM and others, in turns with neo: bench/README.md
#:                  (6 GB below build/; PEERS_ARGS="--only gemm,bags --threads 1" or --quick)
#:make mpi          by $(MPICC): build/dlrm_mpi, gpt_mpi, plan_mpi, allreduce_mpi, ranks_mpi ...
#:make netns        the MPI test over TCP between network namespaces, and a link that is cut (root)
#:make fuzz         the parsers under libFuzzer, FUZZ_SECONDS=600 each (clang)
#:make arm          the tests for AArch64, under qemu, and its digest against this machine
#:make mingw        the headers, examples and programs for Windows, compiled only
#:make clean        remove build/
#:Variables: CC, CXX, NVCC, CUDA_ARCH, MPICC (mpicc), CFLAGS (-O2 -g1), JOBS, DEMO_ARGS

CC     ?= cc
CXX    ?= c++
MPICC  ?= mpicc
CUDA   ?= /usr/local/cuda
NVCC   ?= nvcc
CFLAGS ?= -O2 -g1
B      ?= build
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
BENCHES      ?= gemm bags tiers step predict serve sweep reader comm shard fsdp
FUZZ_SECONDS ?= 600

adult       = examples/data/adult/adult
DEMO_DATA   = --format adult --data $(adult).data --test $(adult).test
DEMO_MODEL  = --dim 8 --bottom 5-32-8 --top 32-1
DEMO_TRAIN  = --epochs 10 --batch 256 --shuffle 32768 \
    --optimizer adagrad --lr 0.03 --schedule linear
to          = $(B)/demo
DEMO_OUT    = --checkpoint $(to)/checkpoint --report $(to)/report.html --log $(to)/log.jsonl
DEMO_ARGS  ?= $(DEMO_DATA) $(DEMO_MODEL) $(DEMO_TRAIN) $(DEMO_OUT)

flags       = -Wall -Wextra -I. -Itests -MMD -MF $@.d -MT $@
compile     = $(CC) -std=c11 $(flags) $(CFLAGS) $(SANITIZE)
compile_mpi = $(MPICC) -std=c11 $(flags) $(CFLAGS) $(SANITIZE) -DNEO_COMM_MPI
libs        = -lm -pthread
objects     = $(filter %.o %.a,$^)
archive     = rm -f $@ && $(AR) rcs $@ $^
# A header as an object; that of neo.h has neo_run.h, neo_state.h, neo_data.h, neo_serve.h and
# neo_store.h in it, of neo_fsdp.h neo_plan.h; and what tests ask of it.
neo_of      = tests/neo.c
neo_comm_of = tests/inside_comm.c
neo_fsdp_of = tests/inside.c
implement   = -D$(shell echo $* | tr a-z A-Z)_IMPLEMENTATION= -x c -c -o $@ $<

# The source of a program: examples/train/dlrm/main.c of dlrm, tests/cuda/comm.c of cuda/comm.
source_of = $(firstword $(wildcard examples/train/$(1)/main.c examples/plan/$(1).c \
    examples/$(1).c tests/$(1).c bench/cuda/$(1).c))
# The programs of test folders: each file is one, less what helps another.
helpers   = data/make_npy data/make_synthetic files/write_safetensors comm/fault_rank \
    comm/fake_nccl programs/http_client programs/peak serve/predict fuzz/targets
sources   = $(filter-out $(helpers:%=tests/%.c),$(wildcard $(1:%=tests/%/*.c)))
tests_of  = $(patsubst %.c,$(B)/%,$(sources))
programs  = $(call tests_of,core bags data files golden comm shard fsdp programs serve)
fuzzers   = $(call tests_of,fuzz)
singles   = $(filter-out $(addprefix %/,neo.c gpu.c serve.c stages.c),$(wildcard examples/*.c \
    examples/plan/*.c))
trainers  = $(patsubst %/main.c,%,$(wildcard examples/train/*/main.c))
examples  = $(addprefix $(B)/,$(notdir $(singles:.c=) $(trainers)))

# One recipe at a time may run; sub-makes build in parallel unless the caller chose -j.
make = +@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
export B CC CXX CUDA MAKE MPICC NVCC JOBS

all: $(examples) $(B)/serve $(B)/stages $(B)/libneo_serve.so
help: ; @sed -n 's/^#://p' Makefile

ifneq ($(filter-out help clean,$(or $(MAKECMDGOALS),all)),)
folders := $(sort $(dir $(wildcard tests/*/*.c* tests/*/*/*.c*)))
$(shell mkdir -p $(addprefix $(B)/,bench libfuzzer $(folders)))
endif
-include $(wildcard $(B)/*.d $(B)/*/*.d $(B)/*/*/*.d $(B)/*/*/*/*.d)
.SECONDEXPANSION:

# ---- neo itself, compiled once for each way to use it: neo_comm.h is an object of its own, which
# ---- over MPI and NCCL is another. Programs link them from an archive: one that holds a part of
# ---- the implementation takes only the rest from there ----

$(B)/neo.o: neo_store.h
	$(compile) -DNEO_IMPLEMENTATION= -include neo_data.h -x c -c -o $@ $<
$(B)/neo_comm.o $(B)/neo_fsdp.o: $(B)/%.o: %.h
	$(compile) $(implement)
$(B)/neo_comm_mpi.o: $(B)/%_mpi.o: %.h
	$(compile_mpi) $(implement)
$(B)/neo.a: $(B)/neo_comm.o
$(B)/neo_mpi.a: $(B)/neo_comm_mpi.o
$(B)/neo_nccl.a: $(B)/neo_comm_nccl.o
$(B)/neo.a $(B)/neo_mpi.a $(B)/neo_nccl.a: $(B)/neo.o $(B)/neo_fsdp.o
	$(archive)

# ---- examples; dlrm_mpi: with ranks of mpirun. With GPUs: see tests/cuda/rules.mk. CHECKED, of
# ---- arm.sh and musl.sh: with the neo of the tests, so that one is compiled ----

$(examples): $(B)/%: $$(call source_of,$$*) $(B)/$(if $(SANITIZE)$(CHECKED),tests/)neo.a
	$(compile) -o $@ $< $(objects) $(libs)
$(examples:=_mpi): $(B)/%_mpi: $$(call source_of,$$*) $(B)/neo_mpi.a
	$(compile_mpi) -o $@ $< $(objects) $(libs)

# What only predicts: in the server, and as the shared object of examples/neo.py.
inference = -DNEO_INFERENCE= -DNEO_SHARED=
$(B)/neo_serve.o: neo_serve.h
	$(compile) $(inference) -DNEO_IMPLEMENTATION= -fPIC -x c -c -o $@ $<
$(B)/libneo_serve.so: $(B)/neo_serve.o
	$(compile) -shared -o $@ $(objects) $(libs)
$(B)/serve $(B)/stages: $(B)/%: examples/%.c $(B)/$(if $(SANITIZE),tests/neo.a,neo_serve.o)
	$(compile) $(if $(SANITIZE),,$(inference)) -o $@ $< $(objects) $(libs)

demo: $(B)/dlrm $(B)/serve
	@rm -rf $(B)/demo && mkdir -p $(B)/demo
	$(B)/dlrm $(DEMO_ARGS)
over_mpi = dlrm_mpi gpt_mpi plan_mpi allreduce_mpi ranks_mpi
mpi: $(addprefix $(B)/,$(over_mpi) bench/comm_mpi tests/comm/collectives_mpi)
nccl: $(B)/dlrm_nccl $(B)/gpt_nccl

# ---- tests ----

include tests/cuda/rules.mk
include tests/attack/rules.mk
include tests/rules.mk

fuzz:
	$(make) $(fuzzers)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) sh tests/run.sh tests/fuzz/libfuzzer.sh
arm:   ; @ARM_ALL=1 sh tests/run.sh tests/build/arm.sh
mingw: ; @sh tests/run.sh tests/build/mingw.sh
netns: ; @sh tests/run.sh tests/comm/netns.sh
cuda test-cuda bench-cuda: ; @sh tests/cuda/gpu.sh $@

# ---- benches: verified before they are timed ----

$(B)/bench/%: $$(firstword $$(wildcard bench/*/$$*.c)) $(B)/neo.a
	$(compile) -o $@ $< $(objects) $(libs) -ldl
$(B)/bench/%.d: ;
$(B)/bench/%_mpi: bench/ranks/%.c $(B)/neo_mpi.a
	$(compile_mpi) -o $@ $< $(objects) $(libs)
bench: $(patsubst %,$(B)/bench/%,$(BENCHES))
	@BENCH_ARGS="$(BENCH_ARGS)" sh bench/run.sh $(B)/bench.jsonl $^
peers: $(B)/dlrm $(B)/libneo_serve.so
	$(make) -f bench/peers/Makefile B=$(B) PEERS_ARGS="$(PEERS_ARGS)"

clean: ; rm -rf $(B)

.PHONY: all help demo mpi nccl test-programs test test-full headers check asan tsan \
    sanitized sanitized-programs fuzz arm mingw netns cuda test-cuda bench-cuda bench peers clean
.DELETE_ON_ERROR .SECONDARY:
