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

compile     = $(CC) -std=c11 -Wall -Wextra -I. $(CFLAGS) $(SANITIZE)
compile_cxx = $(CXX) -std=c++17 -Wall -Wextra -I. $(CFLAGS) $(SANITIZE) $(cxx_red_zones) -ffp-contract=off
compile_mpi = $(MPICC) -std=c11 -Wall -Wextra -I. $(CFLAGS) $(SANITIZE) -DNEO_COMM_MPI
libs        = -lm -pthread

# Short programs, each one file; gpu.c wants nvcc. neo.c is the implementation, linked with all.
examples = $(patsubst examples/%.c,$(B)/%,$(filter-out examples/neo.c examples/gpu.c,$(wildcard examples/*.c))) \
    $(B)/dlrm $(B)/gpt $(B)/plan
train    = $(wildcard examples/train/*.h examples/train/*/*.h)
programs = $(patsubst tests/%.c,$(B)/tests/%,$(filter-out tests/test_device%.c,$(wildcard tests/test_*.c tests/unit_*.c tests/large_*.c))) \
    $(cxx_programs)
fuzzers  = $(patsubst tests/fuzz/%.c,$(B)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
helpers  = $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/make_*.c))
scripts  = $(wildcard tests/test_*.sh)
# g++ can watch the emulated shared memory, too.
cxx_red_zones = $(if $(findstring address,$(SANITIZE)),$(shell $(CXX) -fsanitize=address '-fsanitize-sections=x*' -E \
    -x c++ /dev/null >/dev/null 2>&1 && echo "'-fsanitize-sections=neo_shared*' -DNEO_EMU_RED_ZONES"))
# Tests in C++, where there is a compiler for it: of the emulation of CUDA on the processor, and of kernels by it.
cxx_programs = $(if $(shell command -v $(CXX) 2>/dev/null),$(B)/tests/test_cuda_on_cpu)
cuda_cpp = $(filter-out $(cxx_programs),$(patsubst tests/%.cpp,$(B)/tests/%,$(wildcard tests/test_cuda_*.cpp)))
# Of devices, in C; those of ranks with devices hold their own copy of neo.
device_ranks = $(addprefix $(B)/tests/,test_device_comm test_device_shard test_device_fsdp)
device_ones  = $(B)/tests/test_device $(B)/tests/test_device_graph
cuda_programs = $(if $(cxx_programs),$(device_ones) $(device_ranks) $(cuda_cpp) $(cuda_emulated))
cuda_emulated = $(B)/tests/emulated_gpu $(B)/tests/emulated_dlrm $(B)/tests/emulated_gpt $(B)/tests/emulated_bench $(nccl_emulated)
nccl_emulated = $(if $(wildcard $(CUDA)/include/nccl.h),$(B)/tests/emulated_dlrm_nccl $(B)/tests/emulated_gpt_nccl $(device_nccl))
device_nccl   = $(device_ranks:=_nccl)
gpu_programs  = $(addsuffix _gpu,$(device_ones) $(device_ranks) $(filter-out %/test_cuda_on_cpu,$(patsubst tests/%.cpp,$(B)/tests/%, \
    $(wildcard tests/test_cuda_*.cpp))))
# Tests of neo_comm.h and of what is sharded: each holds its own copy of neo, and is compiled for MPI too.
comm_programs = $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/test_comm*.c tests/test_shard*.c tests/test_fsdp*.c))

# One recipe at a time may run; sub-makes build in parallel unless the caller chose -j.
jobs = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

all: $(examples)

help:
	@echo 'make              build the examples: build/dlrm, build/gpt, build/plan, and examples/*.c'
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
	@echo 'make mpi          build/dlrm_mpi, build/gpt_mpi, build/allreduce_mpi, build/ranks_mpi, build/tests/test_comm_mpi, build/bench/comm_mpi, with $$(MPICC)'
	@echo 'make netns        the MPI test over TCP between network namespaces, and a link cut in the middle (root)'
	@echo 'make asan         the tests under AddressSanitizer; likewise ubsan and tsan'
	@echo 'make fuzz         the parsers under libFuzzer, FUZZ_SECONDS=600 each (clang)'
	@echo 'make arm          the tests for AArch64, under qemu, and its digest against this machine'
	@echo 'make mingw        neo.h, examples and tests for Windows, compiled only'
	@echo 'make clean        remove build/'
	@echo 'Variables: CC, CXX, NVCC, CUDA_ARCH, MPICC (default mpicc), CFLAGS (default -O2 -g), JOBS, DEMO_ARGS'

# ---- examples: linked with one object of neo ----

$(B)/neo.o: examples/neo.c neo.h neo_comm.h neo_fsdp.h | $(B)/tests
	$(compile) -c -o $@ $<
$(B)/%: examples/%.c $(B)/neo.o
	$(compile) -o $@ $< $(B)/neo.o $(libs)
$(B)/dlrm $(B)/gpt: $(B)/%: examples/train/%/main.c $(train) $(B)/neo.o
	$(compile) -o $@ $< $(B)/neo.o $(libs)
$(B)/plan: examples/plan/plan.c $(wildcard examples/plan/*.h) $(B)/neo.o
	$(compile) -o $@ $< $(B)/neo.o $(libs)

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

$(cxx_programs): $(B)/tests/%: tests/%.cpp $(test_headers) neo.h | $(B)/tests
	$(compile_cxx) -o $@ $< $(libs)

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
$(B)/tests/test_plan: tests/test_plan.c $(test_headers) examples/plan/sets.h neo_comm.h neo_fsdp.h $(B)/tests/neo.o \
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

# Under AddressSanitizer, which the emulation of the device's memory works with.
watched  = -O0 -g -Wall -Wextra -DNEO_NO_SIMD -I. -fsanitize=address -fno-omit-frame-pointer
emulated = $(CXX) -std=c++17 $(watched) -ffp-contract=off -DNEO_CUDA_ON_CPU -Itests
$(cuda_cpp): $(B)/tests/%: tests/%.cpp tests/cuda_on_cpu.h $(test_headers) neo_cuda.cuh neo.h | $(B)/tests
	$(emulated) -o $@ $< -pthread
# Graphs are full after fewer operations and get old sooner, so that a test reaches that.
few_ops = -DNEO__GRAPH_OPS=256 -DNEO__GRAPH_AGE=40
# Rights to the device's pages come and go with every call: with little work memory that is quick.
$(B)/tests/emulated_cuda.o: examples/neo_cuda.cu tests/cuda_on_cpu.h neo_cuda.cuh neo.h | $(B)/tests
	$(emulated) '-DNEO__CUDA_WORK_BYTES=((size_t)1 << 20)' $(few_ops) -c -o $@ -x c++ $<
$(B)/tests/emulated_neo.o: tests/neo_impl.c tests/neo_assert.h neo.h | $(B)/tests
	$(CC) -std=c11 $(watched) $(checked) -c -o $@ $<
$(B)/tests/test_device_graph: libs += -Wl,--wrap=calloc
$(B)/tests/test_device_graph: few_ops += -DCOUNT_CALLOC
$(device_ones): $(B)/tests/%: tests/%.c $(test_headers) neo_cuda.cuh $(B)/tests/emulated_cuda.o $(B)/tests/emulated_neo.o $(B)/tests/neo_assert.o
	$(CC) -std=c11 $(watched) $(few_ops) -c -o $@.o $<
	$(CXX) -fsanitize=address -o $@ $@.o $(filter %.o,$^) $(libs)
$(B)/tests/emu_controls.o: tests/emu_controls.cpp tests/cuda_on_cpu.h | $(B)/tests
	$(emulated) -c -o $@ $<
$(device_ranks): $(B)/tests/%: tests/%.c $(test_headers) neo_comm.h neo_fsdp.h $(B)/tests/emulated_cuda.o \
    $(B)/tests/emu_controls.o $(B)/tests/neo_assert.o
	$(CC) -std=c11 $(watched) $(checked) -DEMULATED -c -o $@.o $<
	$(CXX) -fsanitize=address -o $@ $@.o $(filter %.o,$^) $(libs)
# Over MPI, device memory by way of pinned memory.
$(B)/tests/test_device_comm_mpi: tests/test_device_comm.c tests/comm_ranks.h neo_comm.h $(B)/tests/emulated_cuda.o $(B)/tests/neo_assert.o
	$(MPICC) -std=c11 $(watched) $(checked) -DNEO_COMM_MPI -DNEO_COMM_MPI_STAGED -o $@ $< $(filter %.o,$^) -lstdc++ $(libs)
# The examples and the bench of a GPU on that device, for tests/test_cuda_bench.sh; -O0 compiles fastest.
$(B)/tests/emulated_fsdp.o $(B)/tests/emulated_fsdp_nccl.o: examples/neo.c neo.h neo_comm.h neo_fsdp.h | $(B)/tests
	$(CC) -std=c11 -DNEO_NO_SIMD -I. $(if $(findstring nccl,$@),-isystem $(CUDA)/include -DNEO_COMM_NCCL) -c -o $@ $<
$(B)/tests/emulated_%: examples/train/%/main.c $(train) neo_cuda.cuh $(B)/tests/emulated_cuda.o $(B)/tests/emulated_fsdp.o
	$(CC) -std=c11 -Wall -Wextra -I. -DEXAMPLE_CUDA -c -o $@.o $<
	$(CXX) -fsanitize=address -o $@ $@.o $(B)/tests/emulated_fsdp.o $(B)/tests/emulated_cuda.o $(libs)
$(B)/tests/emulated_gpu: examples/gpu.c neo_cuda.cuh $(B)/tests/emulated_cuda.o $(B)/tests/emulated_fsdp.o
	$(CC) -std=c11 -Wall -Wextra -I. -c -o $@.o $<
	$(CXX) -fsanitize=address -o $@ $@.o $(B)/tests/emulated_fsdp.o $(B)/tests/emulated_cuda.o $(libs)
# And over the NCCL backend, on a stand-in for NCCL.
$(B)/tests/nccl_on_cpu.o: tests/nccl_on_cpu.cpp tests/cuda_on_cpu.h | $(B)/tests
	$(emulated) -c -o $@ $<
$(B)/tests/emulated_%_nccl: examples/train/%/main.c $(train) $(B)/tests/emulated_fsdp_nccl.o $(B)/tests/emulated_cuda.o $(B)/tests/nccl_on_cpu.o
	$(CC) -std=c11 -Wall -Wextra -I. -isystem $(CUDA)/include -DEXAMPLE_CUDA -DNEO_COMM_NCCL -c -o $@.o $<
	$(CXX) -fsanitize=address -o $@ $@.o $(filter %.o,$^) $(libs)
$(device_nccl): $(B)/tests/%_nccl: tests/%.c $(test_headers) neo_comm.h neo_fsdp.h $(B)/tests/emulated_cuda.o \
    $(B)/tests/emu_controls.o $(B)/tests/nccl_on_cpu.o $(B)/tests/neo_assert.o
	$(CC) -std=c11 $(watched) $(checked) -DEMULATED -DNEO_COMM_NCCL -isystem $(CUDA)/include -c -o $@.o $<
	$(CXX) -fsanitize=address -o $@ $@.o $(filter %.o,$^) $(libs)
$(B)/tests/emulated_bench: bench/cuda.c bench/bench.h neo_cuda.cuh $(B)/tests/emulated_cuda.o $(B)/tests/emulated_neo.o \
    $(B)/tests/neo_assert.o
	$(CC) -std=c11 $(watched) -c -o $@.o $<
	$(CXX) -fsanitize=address -o $@ $@.o $(filter %.o,$^) $(libs)

test:
	@$(MAKE) --no-print-directory $(jobs) all test-programs $(cuda_programs)
	@CC='$(CC)' B='$(B)' MAKE='$(MAKE)' JOBS='$(JOBS)' BESIDE='test_arm test_cuda test_cuda_bench test_fuzz test_link test_mingw' \
	    sh tests/run.sh $(programs) $(fuzzers) $(scripts)

check: test test-full headers

test-full:
	@$(MAKE) --no-print-directory $(jobs) all test-programs
	@CC='$(CC)' B='$(B)' MAKE='$(MAKE)' JOBS='$(JOBS)' NEO_FULL=1 TEST_TIMEOUT=3600 sh tests/run.sh $(B)/tests/test_comm \
	    $(filter $(B)/tests/test_shard% $(B)/tests/test_fsdp%,$(comm_programs)) tests/test_mpi.sh

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

# ---- a GPU: neo_cuda.cuh by nvcc; tests/cuda_gpu.sh says what is done with it ----

cuda test-cuda bench-cuda:
	@CC='$(CC)' NVCC='$(NVCC)' B='$(B)' MAKE='$(MAKE)' JOBS='$(JOBS)' sh tests/cuda_gpu.sh $@

compile_cu = $(NVCC) -std=c++17 -O2 -I. $(CUDA_ARCH)
libs_cu    = -lcublasLt -lm -lpthread

$(B)/neo_cuda.o: examples/neo_cuda.cu neo_cuda.cuh neo.h | $(B)/tests
	$(compile_cu) -c -o $@ $<
$(B)/gpu: examples/gpu.c neo_cuda.cuh $(B)/neo.o $(B)/neo_cuda.o
	$(compile) -c -o $@.o $<
	$(NVCC) -o $@ $@.o $(B)/neo.o $(B)/neo_cuda.o $(libs_cu)
$(B)/%_cuda: examples/train/%/main.c $(train) neo_cuda.cuh $(B)/neo.o $(B)/neo_cuda.o
	$(compile) -DEXAMPLE_CUDA -c -o $@.o $<
	$(NVCC) -o $@ $@.o $(B)/neo.o $(B)/neo_cuda.o $(libs_cu)
$(B)/bench/cuda: bench/cuda.c bench/bench.h neo_cuda.cuh $(B)/bench/neo.o $(B)/neo_cuda.o
	$(compile) -c -o $@.o $<
	$(NVCC) -o $@ $@.o $(B)/bench/neo.o $(B)/neo_cuda.o $(libs_cu)
$(B)/tests/test_cuda_%_gpu: tests/test_cuda_%.cpp $(test_headers) neo_cuda.cuh neo.h | $(B)/tests
	$(compile_cu) -o $@ -x cu $< $(libs_cu)
$(B)/tests/test_device_gpu $(B)/tests/test_device_graph_gpu: $(B)/tests/%_gpu: tests/%.c $(test_headers) neo_cuda.cuh $(B)/neo_cuda.o $(B)/tests/neo.o $(B)/tests/neo_assert.o
	$(compile) -c -o $@.o $<
	$(NVCC) -o $@ $@.o $(filter %.o,$^) $(libs_cu)

$(device_ranks:=_gpu): $(B)/tests/%_gpu: tests/%.c $(test_headers) neo_comm.h neo_fsdp.h neo_cuda.cuh $(B)/neo_cuda.o $(B)/tests/neo_assert.o
	$(compile) $(checked) -c -o $@.o $<
	$(NVCC) -o $@ $@.o $(filter %.o,$^) $(libs_cu)

# One rank per GPU, as MPI processes, with tensors over NCCL: mpirun -n 8 build/dlrm_nccl --device cuda ...
$(B)/neo_nccl.o: examples/neo.c neo.h neo_comm.h neo_fsdp.h | $(B)/tests
	$(compile_mpi) -DNEO_COMM_NCCL -isystem $(CUDA)/include -c -o $@ $<
$(B)/%_nccl: examples/train/%/main.c $(train) neo_cuda.cuh $(B)/neo_nccl.o $(B)/neo_cuda.o
	$(compile_mpi) -DEXAMPLE_CUDA -DNEO_COMM_NCCL -isystem $(CUDA)/include -c -o $@.o $<
	$(MPICC) -o $@ $@.o $(B)/neo_nccl.o $(B)/neo_cuda.o -L$(CUDA)/lib64 -Wl,-rpath,$(CUDA)/lib64 -lnccl -lcublasLt -lcudart -lstdc++ $(libs)
nccl: $(B)/dlrm_nccl $(B)/gpt_nccl

cuda-programs: $(B)/dlrm_cuda $(B)/gpt_cuda $(B)/bench/cuda $(if $(nccl_emulated),$(if $(shell command -v $(MPICC) 2>/dev/null),$(B)/dlrm_nccl))
gpu-programs: $(gpu_programs) $(B)/dlrm_cuda $(B)/gpt_cuda
gpu-bench: $(B)/bench/cuda

# ---- benches: verified before they are timed ----

$(B)/bench/neo.o: neo.h
	@mkdir -p $(B)/bench
	printf '#define NEO_IMPLEMENTATION\n#include "neo.h"\n' | $(compile) -I. -x c -c -o $@ -

$(B)/bench/%: bench/%.c $(wildcard bench/*.h) $(B)/bench/neo.o
	$(compile) -I. -o $@ $< $(B)/bench/neo.o $(libs) -ldl

bench: $(patsubst %,$(B)/bench/%,$(BENCHES))
	@BENCH_ARGS="$(BENCH_ARGS)" sh tests/bench.sh $(B)/bench.jsonl $^

# ---- peers: the same shapes by PyTorch, FBGEMM and others, in turns; bench/README.md ----

PEERS = $(B)/peers

$(PEERS)/libneo_%.so: bench/peers/neo_%.c $(wildcard bench/*.h bench/peers/*.h) $(train) neo.h neo_comm.h neo_fsdp.h
	@mkdir -p $(PEERS)
	$(compile) -Wno-unused-function -fPIC -shared -o $@ $< $(libs)
$(PEERS)/neo_start: bench/peers/neo_side.c $(wildcard bench/*.h) neo.h
	@mkdir -p $(PEERS)
	$(compile) -DNEO_SIDE_MAIN -o $@ $< $(libs)
$(PEERS)/venv/ready: bench/peers/requirements.txt
	python3 -m venv $(PEERS)/venv
	$(PEERS)/venv/bin/pip install -q --no-deps -r $<
	touch $@

peers: $(PEERS)/venv/ready $(PEERS)/libneo_side.so $(PEERS)/libneo_dlrm.so $(PEERS)/libneo_gpt.so $(PEERS)/neo_start
	NEO_PEERS_BUILD=$(PEERS) $(PEERS)/venv/bin/python bench/peers/run.py $(PEERS_ARGS)

# They hold the implementations that neo.o has not.
$(B)/bench/comm $(B)/bench/sweep $(B)/bench/shard $(B)/bench/fsdp: neo_comm.h
$(B)/bench/sweep $(B)/bench/shard $(B)/bench/fsdp: neo_fsdp.h

# ---- ranks as MPI processes: mpirun -n 4 build/dlrm_mpi ... ----

mpi: $(B)/dlrm_mpi $(B)/gpt_mpi $(B)/allreduce_mpi $(B)/ranks_mpi $(B)/tests/test_comm_mpi $(B)/bench/comm_mpi

$(B)/neo_mpi.o: examples/neo.c neo.h neo_comm.h neo_fsdp.h | $(B)/tests
	$(compile_mpi) -c -o $@ $<
$(B)/dlrm_mpi $(B)/gpt_mpi: $(B)/%_mpi: examples/train/%/main.c $(train) $(B)/neo_mpi.o
	$(compile_mpi) -o $@ $< $(B)/neo_mpi.o $(libs)
$(B)/%_mpi: examples/%.c $(B)/neo_mpi.o
	$(compile_mpi) -o $@ $< $(B)/neo_mpi.o $(libs)

$(comm_programs:=_mpi): $(B)/tests/%_mpi: tests/%.c $(test_headers) neo.h neo_comm.h $(B)/tests/neo_assert.o
	$(compile_mpi) -DNEO_NO_SIMD $(checked) -o $@ $< $(B)/tests/neo_assert.o $(libs)

$(B)/bench/%_mpi: bench/%.c $(wildcard bench/*.h) neo_comm.h $(B)/bench/neo.o
	$(compile_mpi) -o $@ $< $(B)/bench/neo.o $(libs)

netns:
	@CC='$(CC)' B='$(B)' MAKE='$(MAKE)' sh tests/run.sh tests/netns.sh

clean:
	rm -rf $(B)

.PHONY: all help demo test check test-programs headers asan ubsan tsan sanitized fuzz arm mingw cuda test-cuda bench-cuda cuda-programs nccl gpu-programs gpu-bench bench peers mpi netns clean
.DELETE_ON_ERROR:
.SECONDARY:
