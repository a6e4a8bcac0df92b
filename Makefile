# neo: the examples, the tests and the benches. `make help` lists what there is.
#
# Needs GNU make and a C compiler (gcc or clang). The other tools - the second compiler, cross
# compilers, qemu, libFuzzer - are used where they are installed; what is missing is reported as
# skipped. Everything is written below build/.

CC     ?= cc
CXX    ?= c++
MPICC  ?= mpicc
CUDA   ?= /usr/local/cuda
NVCC   ?= nvcc
# GPUs that nvcc compiles for: A100 and its like, H100 and H200, and from their PTX what comes later.
CUDA_ARCH ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
    -gencode arch=compute_90,code=compute_90
CFLAGS ?= -O2 -g
B      ?= build
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)

DEMO_DATA  = --format adult --data examples/data/adult/adult.data --test examples/data/adult/adult.test
DEMO_MODEL = --dim 8 --bottom 5-32-8 --top 32-1
DEMO_TRAIN = --epochs 10 --batch 256 --shuffle 32768 --optimizer adagrad --lr 0.03 --schedule linear
DEMO_OUT   = --checkpoint $(B)/demo/checkpoint --report $(B)/demo/report.html --log $(B)/demo/log.jsonl
DEMO_ARGS ?= $(DEMO_DATA) $(DEMO_MODEL) $(DEMO_TRAIN) $(DEMO_OUT)

BENCHES      ?= gemm bags step sweep reader comm shard fsdp
FUZZ_SECONDS ?= 600

flags       = -Wall -Wextra -I. -Itests -Ibench -MMD -MF $@.d -MT $@
compile     = $(CC) -std=c11 $(flags) $(CFLAGS) $(SANITIZE)
compile_cxx = $(CXX) -std=c++17 $(flags) $(CFLAGS) $(SANITIZE) -ffp-contract=off
compile_mpi = $(MPICC) -std=c11 $(flags) $(CFLAGS) $(SANITIZE) -DNEO_COMM_MPI
compile_cu  = $(NVCC) -std=c++17 -O2 -I. -Itests $(CUDA_ARCH)
nccl_flags  = -DNEO_COMM_NCCL -isystem $(CUDA)/include
libs        = -lm -pthread
objects     = $(filter %.o %.a,$^)
# The source of a program: examples/train/dlrm/main.c of dlrm and of emulated_dlrm, tests/cuda/comm.c of cuda/comm.
source_of   = $(firstword $(foreach name,$(1:emulated_%=%),$(wildcard examples/train/$(name)/main.c \
    examples/plan/$(name).c examples/$(name).c tests/$(name).c bench/*/$(name).c)))

# Names of programs. Of a test folder each file is one, less what helps another.
helpers  = $(addprefix tests/,data/make_npy files/write_safetensors comm/fault_rank comm/fake_nccl)
tests_of = $(addprefix $(B)/,$(basename $(filter-out $(helpers:=.c),$(wildcard $(1:%=tests/%/*.c)))))
examples = $(addprefix $(B)/,$(notdir $(basename $(filter-out %/neo.c,$(wildcard examples/*.c examples/plan/*.c)) \
    $(patsubst %/main.c,%,$(wildcard examples/train/*/main.c)))))
programs = $(call tests_of,core bags data files golden comm shard fsdp)
fuzzers  = $(call tests_of,fuzz)
devices  = $(call tests_of,cuda)
kernels  = $(addprefix $(B)/,$(basename $(wildcard tests/cuda/*.cpp)))
cxx      = $(shell command -v $(CXX) 2>/dev/null)
emulator = $(if $(cxx),$(B)/tests/cuda/emulator/test_emulator)
emulated = $(devices) $(addprefix $(B)/tests/emulated_,dlrm gpt ops)
over_nccl = $(if $(wildcard $(CUDA)/include/nccl.h),$(addprefix $(B)/tests/,cuda/comm_nccl cuda/shard_nccl \
    emulated_dlrm_nccl emulated_gpt_nccl))

# One recipe at a time may run; sub-makes build in parallel unless the caller chose -j.
jobs = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
make = +@$(MAKE) --no-print-directory $(jobs)
export B CC CXX CUDA MAKE MPICC NVCC JOBS

all: $(examples)

help:
	@echo 'make              build the examples: build/dlrm, build/gpt, build/custom, build/bags,'
	@echo '                  build/allreduce, build/ranks, build/plan'
	@echo 'make demo         train a recommendation model on the data in examples/data'
	@echo 'make test         everything this machine can run; ends with the totals'
	@echo 'make test-full    the whole grids of which make test runs a part: collectives, all sizes and ways (half an hour)'
	@echo 'make headers      neo.h and neo_comm.h under gcc and clang, C11 to C++17, all macros, -Werror'
	@echo 'make cuda         neo_cuda.cuh under nvcc for sm_80 and sm_90, -Werror; build/dlrm_cuda, build/gpt_cuda'
	@echo 'make nccl         build/dlrm_nccl, build/gpt_nccl: ranks of mpirun with a GPU each, tensors over NCCL'
	@echo 'make test-cuda    on a GPU: the tests of neo_cuda.cuh, dlrm and gpt with the bits of the CPU, compute-sanitizer'
	@echo 'make bench-cuda   on a GPU: figures, also in bench/results/cuda-<its name>.md'
	@echo 'make bench        one line per figure; also build/bench.jsonl (BENCHES="gemm bags" BENCH_ARGS=--quick)'
	@echo 'make peers        the same work by PyTorch, FBGEMM, OpenBLAS, torchrec and pandas (installed below build/, 6 GB), in turns with neo;'
	@echo '                  bench/results/cpu.md has the latest whole runs of each (PEERS_ARGS="--only gemm,bags --threads 1"; --quick: build/peers/quick.md)'
	@echo 'make mpi          build/dlrm_mpi, build/gpt_mpi, build/allreduce_mpi, build/ranks_mpi, build/tests/comm/collectives_mpi, build/bench/comm_mpi, with $$(MPICC)'
	@echo 'make netns        the MPI test over TCP between network namespaces, and a link cut in the middle (root)'
	@echo 'make asan         the tests under AddressSanitizer; likewise ubsan and tsan'
	@echo 'make fuzz         the parsers under libFuzzer, FUZZ_SECONDS=600 each (clang)'
	@echo 'make arm          the tests for AArch64, under qemu, and its digest against this machine'
	@echo 'make mingw        neo.h, examples and tests for Windows, compiled only'
	@echo 'make clean        remove build/'
	@echo 'Variables: CC, CXX, NVCC, CUDA_ARCH, MPICC (default mpicc), CFLAGS (default -O2 -g), JOBS, DEMO_ARGS'

ifneq ($(filter-out help clean,$(or $(MAKECMDGOALS),all)),)
$(shell mkdir -p $(addprefix $(B)/,bench peers libfuzzer $(sort $(dir $(wildcard tests/*/*.c* tests/*/*/*.c*)))))
endif
-include $(wildcard $(B)/*.d $(B)/*/*.d $(B)/*/*/*.d)
.SECONDEXPANSION:

# ---- neo itself, compiled once for each way to use it. Programs link it from an archive, of which one with an
# ---- implementation of its own takes only what it lacks ----

neo_c     = $(or $(wildcard examples/neo.c),tests/neo.c)
archive   = rm -f $@ && ar rcs $@ $^
# A header as an object.
implement = -D$(shell echo $* | tr a-z A-Z)_IMPLEMENTATION= -x c -c -o $@ $<

$(B)/neo.o: $(neo_c)
	$(compile) -c -o $@ $<
$(B)/neo_mpi.o: $(neo_c)
	$(compile_mpi) -c -o $@ $<
$(B)/neo_nccl.o: $(neo_c)
	$(compile_mpi) $(nccl_flags) -c -o $@ $<
$(B)/neo_cuda.o: examples/neo_cuda.cu neo_cuda.cuh neo.h
	$(compile_cu) -c -o $@ $<
$(B)/neo.a $(B)/neo_mpi.a $(B)/neo_nccl.a: %.a: %.o
	$(archive)

# ---- examples: dlrm_mpi is dlrm with ranks as processes of mpirun, dlrm_cuda with GPUs, dlrm_nccl with both ----

$(examples): $(B)/%: $$(call source_of,$$*) $(B)/neo.a
	$(compile) -o $@ $< $(objects) $(libs)
$(examples:=_mpi): $(B)/%_mpi: $$(call source_of,$$*) $(B)/neo_mpi.a
	$(compile_mpi) -o $@ $< $(objects) $(libs)
$(examples:=_nccl): $(B)/%_nccl: $$(call source_of,$$*) $(B)/neo_nccl.a $(B)/neo_cuda.o
	$(compile_mpi) -DEXAMPLE_CUDA $(nccl_flags) -o $@ $< $(objects) -L$(CUDA)/lib64 -Wl,-rpath,$(CUDA)/lib64 \
	    -lnccl -lcublasLt -lcudart -lstdc++ $(libs)

define link_cuda
$(compile) -DEXAMPLE_CUDA -c -o $@.o $<
$(NVCC) -o $@ $@.o $(objects) -lcublasLt -lm -lpthread
endef
$(examples:=_cuda): $(B)/%_cuda: $$(call source_of,$$*) $(B)/neo_cuda.o $(B)/neo.a
	$(link_cuda)
$(B)/bench/cuda: bench/cuda/ops.c $(B)/neo_cuda.o $(B)/neo.a
	$(link_cuda)
$(devices:=_gpu): $(B)/%_gpu: %.c $(B)/neo_cuda.o $(B)/tests/neo.a
	$(link_cuda)
$(kernels:=_gpu): $(B)/%_gpu: %.cpp tests/test.h neo_cuda.cuh neo.h
	$(compile_cu) -o $@ -x cu $< -lcublasLt -lm -lpthread

demo: $(B)/dlrm
	@rm -rf $(B)/demo && mkdir -p $(B)/demo
	$(B)/dlrm $(DEMO_ARGS)
mpi: $(B)/dlrm_mpi $(B)/gpt_mpi $(B)/allreduce_mpi $(B)/ranks_mpi $(B)/tests/comm/collectives_mpi $(B)/bench/comm_mpi
nccl: $(B)/dlrm_nccl $(B)/gpt_nccl
cuda-programs: $(B)/dlrm_cuda $(B)/gpt_cuda $(B)/bench/cuda $(if $(over_nccl),$(if $(shell command -v $(MPICC)),$(B)/dlrm_nccl))
gpu-programs: $(devices:=_gpu) $(kernels:=_gpu) $(B)/dlrm_cuda $(B)/gpt_cuda
gpu-bench: $(B)/bench/cuda

# ---- tests: each file is a program, linked with a neo whose assertions are on ----

checked = -D_GNU_SOURCE= -include tests/checked.h

$(B)/tests/neo.o $(B)/tests/neo_comm.o $(B)/tests/neo_fsdp.o: $(B)/tests/%.o: %.h
	$(compile) $(checked) $(implement)
$(B)/tests/checked.o: tests/checked.c
	$(compile) -c -o $@ $<
$(B)/tests/neo.a: $(addprefix $(B)/tests/,neo.o neo_comm.o neo_fsdp.o checked.o)
	$(archive)
$(B)/tests/%_mpi.o: %.h
	$(compile_mpi) $(checked) $(implement)

$(B)/tests/%: tests/%.c $(B)/tests/neo.a
	$(compile) $(checked) $(of_test) -o $@ $< $(objects) $(libs)
$(B)/tests/%_mpi: tests/%.c $(B)/tests/neo_comm_mpi.o $(B)/tests/neo.a
	$(compile_mpi) $(checked) -o $@ $< $(objects) $(libs)
$(B)/tests/cuda/emulator/%: tests/cuda/emulator/%.cpp
	$(compile_cxx) $(red_zones) -o $@ $< $(libs)
$(B)/libfuzzer/%: tests/fuzz/%.c
	clang -std=c11 $(flags) -g -O1 -fsanitize=fuzzer,address -o $@ $< $(libs)

# The NCCL backend over a stand-in for CUDA and NCCL, of which it needs the headers. Without libFuzzer a target runs
# over its seeds and plain mutations of them. g++ can watch the emulated shared memory, too.
$(B)/tests/comm/nccl: of_test = -isystem $(CUDA)/include
$(call tests_of,shard fsdp): of_test = -O1
$(fuzzers): of_test = -O1 -DNEO_FUZZ_MAIN
red_zones = $(if $(findstring address,$(SANITIZE)),$(shell $(CXX) -fsanitize=address '-fsanitize-sections=x*' -E \
    -x c++ /dev/null >/dev/null 2>&1 && echo "'-fsanitize-sections=neo_shared*' -DNEO_EMU_RED_ZONES"))

# ---- a GPU that the CPU emulates, always under AddressSanitizer. Graphs are full after fewer operations and get old
# ---- sooner, so that a test reaches that; rights to the device's pages come and go with every call: with little work
# ---- memory that is quick ----

watched  = -O0 -g $(flags) -DNEO_NO_SIMD -fsanitize=address -fno-omit-frame-pointer $(small)
small    = -DNEO__GRAPH_OPS=256 -DNEO__GRAPH_AGE=40 '-DNEO__CUDA_WORK_BYTES=((size_t)1 << 20)'
on_cpu   = $(CC) -std=c11 $(watched) $(checked) -DEXAMPLE_CUDA -DEMULATED
emulate  = $(CXX) -std=c++17 $(watched) -ffp-contract=off -DNEO_CUDA_ON_CPU -Itests/cuda/emulator

$(B)/tests/emulated_cuda.o: examples/neo_cuda.cu
	$(emulate) -c -o $@ -x c++ $<
$(B)/tests/emulated_controls.o $(B)/tests/emulated_nccl_on_cpu.o: $(B)/tests/emulated_%.o: tests/cuda/emulator/%.cpp
	$(emulate) -c -o $@ $<
$(addprefix $(B)/tests/emulated_,neo.o neo_comm.o neo_fsdp.o): $(B)/tests/emulated_%.o: %.h
	$(on_cpu) $(implement)
$(B)/tests/emulated_%_nccl.o: %.h
	$(on_cpu) $(nccl_flags) $(implement)
$(B)/tests/emulated.a: $(addprefix $(B)/tests/,$(addprefix emulated_,neo.o neo_comm.o neo_fsdp.o cuda.o controls.o) checked.o)
	$(archive)

$(kernels): small =
$(kernels): $(B)/%: %.cpp
	$(emulate) -o $@ $< $(libs)
$(B)/tests/cuda/graph: libs += -Wl,--wrap=calloc
$(B)/tests/cuda/graph: small += -DCOUNT_CALLOC
$(emulated): $(B)/tests/%: $$(call source_of,$$*) $(B)/tests/emulated.a
	$(on_cpu) -o $@ $< $(objects) -lstdc++ $(libs)
$(over_nccl): $(B)/tests/%_nccl: $$(call source_of,$$*) $(B)/tests/emulated_neo_comm_nccl.o \
    $(B)/tests/emulated_nccl_on_cpu.o $(B)/tests/emulated.a
	$(on_cpu) $(nccl_flags) -o $@ $< $(objects) -lstdc++ $(libs)
# Over MPI, device memory by way of pinned memory.
$(B)/tests/cuda/comm_mpi: tests/cuda/comm.c $(B)/tests/emulated.a
	$(MPICC) -std=c11 $(watched) $(checked) -DNEO_COMM_MPI -DNEO_COMM_MPI_STAGED -o $@ $< $(objects) -lstdc++ $(libs)

# ---- what is run ----

test-programs: $(programs) $(emulator) $(fuzzers) $(B)/tests/data/make_npy
emulated-programs: $(if $(cxx),$(emulated) $(kernels) $(over_nccl))

quick = tests/programs/*.sh tests/comm/mpi.sh tests/files/*.sh tests/fsdp/*.sh tests/build/contents.sh tests/build/link.sh
rest  = tests/comm/mpi_faults.sh tests/cuda/emulated*.sh tests/fuzz/libfuzzer.sh tests/build/arm.sh tests/build/mingw.sh

test:
	$(make) all test-programs emulated-programs
	@sh tests/run.sh $(programs) $(emulator) $(fuzzers) $(wildcard $(quick) $(rest))

test-full:
	$(make) all test-programs
	@NEO_FULL=1 TEST_TIMEOUT=3600 sh tests/run.sh $(B)/tests/comm/collectives \
	    $(filter $(B)/tests/shard% $(B)/tests/fsdp%,$(programs)) tests/comm/mpi.sh

headers:
	@sh tests/build/headers.sh

# The same tests under sanitizers; a program stops at the first finding.
asan:  ; $(make) sanitized NAME=address   SANITIZE='-fsanitize=address -fno-omit-frame-pointer'
ubsan: ; $(make) sanitized NAME=undefined SANITIZE='-fsanitize=undefined -fno-sanitize-recover=all'
tsan:  ; $(make) sanitized NAME=thread    SANITIZE='-fsanitize=thread'
sanitized:
	$(make) B=$(B)/$(NAME) CFLAGS='-O1 -g' SANITIZE='$(SANITIZE)' $(B)/$(NAME)/dlrm $(B)/$(NAME)/gpt test-programs
	@B='$(B)/$(NAME)' SANITIZER=$(NAME) sh tests/run.sh $(patsubst $(B)/%,$(B)/$(NAME)/%,$(programs) $(emulator) $(fuzzers)) \
	    tests/programs/dlrm.sh tests/programs/gpt.sh

fuzz:
	$(make) $(fuzzers)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) sh tests/run.sh tests/fuzz/libfuzzer.sh
arm:   ; @ARM_ALL=1 sh tests/run.sh tests/build/arm.sh
mingw: ; @sh tests/run.sh tests/build/mingw.sh
netns: ; @sh tests/run.sh tests/comm/netns.sh
cuda test-cuda bench-cuda: ; @sh tests/cuda/gpu.sh $@

# ---- benches: verified before they are timed. Peers: the same shapes by PyTorch and others; bench/README.md ----

$(B)/bench/%: $$(wildcard bench/cpu/$$*.c bench/ranks/$$*.c) $(B)/neo.a
	$(compile) -o $@ $< $(objects) $(libs) -ldl
$(B)/bench/%_mpi: bench/ranks/%.c $(B)/neo_mpi.a
	$(compile_mpi) -o $@ $< $(objects) $(libs)

bench: $(patsubst %,$(B)/bench/%,$(BENCHES))
	@BENCH_ARGS="$(BENCH_ARGS)" sh bench/run.sh $(B)/bench.jsonl $^

PEERS = $(B)/peers
$(PEERS)/libneo_%.so: bench/peers/neo_%.c
	$(compile) -Wno-unused-function -fPIC -shared -o $@ $< $(libs)
$(PEERS)/neo_start: bench/peers/neo_side.c
	$(compile) -DNEO_SIDE_MAIN -o $@ $< $(libs)
$(PEERS)/venv/ready: bench/peers/requirements.txt
	python3 -m venv $(PEERS)/venv
	$(PEERS)/venv/bin/pip install -q --no-deps -r $<
	touch $@
peers: $(PEERS)/venv/ready $(PEERS)/libneo_side.so $(PEERS)/libneo_dlrm.so $(PEERS)/libneo_gpt.so $(PEERS)/neo_start
	NEO_PEERS_BUILD=$(PEERS) $(PEERS)/venv/bin/python bench/peers/run.py $(PEERS_ARGS)

clean:
	rm -rf $(B)

.PHONY: all help demo mpi nccl cuda-programs gpu-programs gpu-bench test-programs emulated-programs test test-full \
    headers asan ubsan tsan sanitized fuzz arm mingw netns cuda test-cuda bench-cuda bench peers clean
.DELETE_ON_ERROR:
.SECONDARY:
