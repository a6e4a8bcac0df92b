# rules.mk, of the Makefile: programs with a GPU, real or emulated.

# GPUs that nvcc compiles for: A100 and its like, H100 and H200, and by their PTX later ones.
CUDA_ARCH ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
    -gencode arch=compute_90,code=compute_90
compile_cxx = $(CXX) -std=c++17 $(flags) $(CFLAGS) $(SANITIZE) -ffp-contract=off
compile_cu  = $(NVCC) -std=c++17 -O2 -I. -Itests $(CUDA_ARCH)
nccl_flags  = -DNEO_COMM_NCCL -isystem $(CUDA)/include

define link_cuda
$(compile) -DEXAMPLE_CUDA -c -o $@.o $<
$(NVCC) -o $@ $@.o $(objects) -lcublasLt -lm -lpthread
endef

devices  = $(call tests_of,cuda)
kernels  = $(patsubst %.cpp,$(B)/%,$(wildcard tests/cuda/*.cpp))
cxx      = $(shell command -v $(CXX) 2>/dev/null)
has_nvcc = $(shell command -v $(NVCC) 2>/dev/null)
has_nccl = $(wildcard $(CUDA)/include/nccl.h)
emulator = $(if $(cxx),$(B)/tests/cuda/emulator/test_emulator)
emulated = $(devices) $(addprefix $(B)/tests/emulated_,dlrm gpt gpu ops \
    $(if $(has_nccl),,plan))
over_nccl = $(patsubst %,$(B)/tests/%_nccl,cuda/comm cuda/shard emulated_dlrm emulated_gpt \
    emulated_plan)

# ---- by nvcc; gpu.sh says what is done with them ----

# dlrm_cuda: with GPUs; dlrm_nccl: and with ranks of mpirun.
$(B)/neo_comm_nccl.o: $(B)/%_nccl.o: %.h
	$(compile_mpi) $(nccl_flags) $(implement)
$(B)/neo_cuda.o: examples/neo_cuda.cu neo_cuda.cuh neo.h neo_kernels.h
	$(compile_cu) -c -o $@ $<
$(examples:=_cuda): $(B)/%_cuda: $$(call source_of,$$*) $(B)/neo_cuda.o $(B)/neo.a
	$(link_cuda)
$(examples:=_nccl): $(B)/%_nccl: $$(call source_of,$$*) $(B)/neo_cuda.o $(B)/neo_nccl.a
	$(compile_mpi) -DEXAMPLE_CUDA $(nccl_flags) -o $@ $< $(objects) -L$(CUDA)/lib64 \
	    -Wl,-rpath,$(CUDA)/lib64 -lnccl -lcublasLt -lcudart -lstdc++ $(libs)

cuda-programs: $(B)/gpu $(B)/dlrm_cuda $(B)/gpt_cuda $(B)/bench/cuda
cuda-programs: $(if $(has_nccl),$(if $(shell command -v $(MPICC) 2>/dev/null),$(B)/dlrm_nccl))
gpu-programs: $(devices:=_gpu) $(kernels:=_gpu) $(B)/dlrm_cuda $(B)/gpt_cuda
gpu-bench: $(B)/bench/cuda

# Without nvcc the CPU computes.
$(B)/gpu: examples/gpu.c $(if $(has_nvcc),$(B)/neo_cuda.o) $(B)/neo.a
	$(if $(has_nvcc),$(link_cuda),$(compile) -o $@ $< examples/train/no_cuda.c $(objects) $(libs))
$(B)/bench/cuda: bench/cuda/ops.c $(B)/neo_cuda.o $(B)/neo.a
	$(link_cuda)
$(devices:=_gpu): $(B)/%_gpu: %.c $(B)/neo_cuda.o $(B)/tests/neo.a
	$(link_cuda)
$(kernels:=_gpu): $(B)/%_gpu: %.cpp tests/test.h neo_cuda.cuh neo.h neo_kernels.h
	$(compile_cu) -o $@ -x cu $< -lcublasLt -lm -lpthread

# ---- emulated on the CPU, always under AddressSanitizer. Graphs are full after few operations and
# ---- get old sooner, so that a test reaches that; the device's pages are opened and closed around
# ---- every call, which is quick with little work memory ----

emulated-programs: $(if $(cxx),$(emulator) $(emulated) $(kernels) $(if $(has_nccl),$(over_nccl)))

small    = -DNEO__GRAPH_OPS=256 -DNEO__GRAPH_AGE=40 '-DNEO__CUDA_WORK_BYTES=((size_t)1 << 20)' \
    '-DNEO__COMM_DEVICE_PIECE=((size_t)1 << 16)'
watched  = -O0 -g1 $(flags) -DNEO_NO_SIMD -fsanitize=address -fno-omit-frame-pointer $(small)
on_cpu   = $(CC) -std=c11 $(watched) $(checked) -DEXAMPLE_CUDA -DEMULATED
emulate  = $(CXX) -std=c++17 $(watched) -ffp-contract=off -DNEO_CUDA_ON_CPU -Itests/cuda/emulator

$(B)/tests/emulated_cuda.o: examples/neo_cuda.cu
	$(emulate) -c -o $@ -x c++ $<
$(addprefix $(B)/tests/emulated_,controls.o nccl_on_cpu.o): $(B)/tests/emulated_%.o: \
    tests/cuda/emulator/%.cpp
	$(emulate) -c -o $@ $<
$(addprefix $(B)/tests/emulated_,neo.o neo_comm.o neo_fsdp.o): $(B)/tests/emulated_%.o: $$($$*_of)
	$(on_cpu) $(implement)
$(B)/tests/emulated.a: $(B)/tests/checked.o $(addprefix $(B)/tests/emulated_,neo.o neo_comm.o \
    neo_fsdp.o cuda.o controls.o)
	$(archive)
$(B)/tests/emulated_neo_comm_nccl.o: $(B)/tests/emulated_%_nccl.o: $$($$*_of)
	$(on_cpu) $(nccl_flags) $(implement)
$(B)/tests/emulated_nccl.a: $(B)/tests/emulated_neo_comm_nccl.o $(B)/tests/emulated_nccl_on_cpu.o
	$(archive)

$(B)/tests/cuda/emulator/kernels: small =
$(B)/tests/cuda/emulator/kernels: tests/cuda/emulator/kernels.cpp
	$(emulate) -o $@ $< $(libs)
$(kernels): $(B)/tests/cuda/emulator/kernels ; ln -f $< $@
$(B)/tests/cuda/graph: libs += -Wl,--wrap=calloc
$(B)/tests/cuda/graph: small += -DCOUNT_CALLOC
$(B)/tests/emulated_plan $(B)/tests/emulated_plan_nccl: small += -DDISK_ROWS=512
$(emulated): $(B)/tests/%: $$(call source_of,$$(subst emulated_,,$$*)) $(B)/tests/emulated.a
	$(on_cpu) -o $@ $< $(objects) -lstdc++ $(libs)
$(over_nccl): $(B)/tests/%_nccl: $$(call source_of,$$(subst emulated_,,$$*)) \
    $(B)/tests/emulated_nccl.a $(B)/tests/emulated.a
	$(on_cpu) $(nccl_flags) -o $@ $< $(objects) -lstdc++ $(libs)
# Over MPI, device memory by way of pinned memory.
$(B)/tests/cuda/comm_mpi: tests/cuda/comm.c $(B)/tests/emulated.a
	$(MPICC) -std=c11 $(watched) $(checked) -DNEO_COMM_MPI -DNEO_COMM_MPI_STAGED -o $@ $< \
	    $(objects) -lstdc++ $(libs)

# g++ can watch the emulated shared memory, too.
red_zones = $(if $(findstring address,$(SANITIZE)),$(shell $(CXX) -E -x c++ /dev/null \
    -fsanitize=address '-fsanitize-sections=x*' >/dev/null 2>&1 && \
    echo "'-fsanitize-sections=neo_shared*' -DNEO_EMU_RED_ZONES"))
$(B)/tests/cuda/emulator/%: tests/cuda/emulator/%.cpp
	$(compile_cxx) $(red_zones) -o $@ $< $(libs)

.PHONY: cuda-programs gpu-programs gpu-bench emulated-programs
