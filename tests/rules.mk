# rules.mk, of the Makefile: how tests are compiled, and which of them each goal runs.

# Each file is a program, linked with a neo whose assertions are on.
checked = -D_GNU_SOURCE= -include tests/checked.h

# They go into shared objects, too: see programs/peers.sh.
shared = -fPIC -fvisibility=hidden
$(addprefix $(B)/tests/,neo.o neo_comm.o neo_fsdp.o): $(B)/tests/%.o: $$($$*_of)
	$(compile) $(shared) $(checked) $(implement)
$(B)/tests/checked.o: tests/checked.c
	$(compile) $(shared) -c -o $@ $<
$(B)/tests/neo.a: $(addprefix $(B)/tests/,neo.o neo_comm.o neo_fsdp.o checked.o)
	$(archive)
$(B)/tests/neo_comm_mpi.o: $(B)/tests/%_mpi.o: $$($$*_of)
	$(compile_mpi) $(checked) $(implement)
$(B)/tests/%_mpi.a: $(B)/tests/%_mpi.o
	$(archive)

$(B)/tests/%: tests/%.c $(B)/tests/neo.a
	$(compile) $(level) $(checked) $(of_test) -o $@ $< $(objects) $(libs)
$(B)/tests/%_mpi: tests/%.c $(B)/tests/neo_comm_mpi.a $(B)/tests/neo.a
	$(compile_mpi) $(checked) -o $@ $< $(objects) $(libs)
$(addprefix $(B)/tests/,$(over_mpi)): $(B)/tests/%_mpi: $$(call source_of,$$*) \
    $(B)/tests/neo_comm_mpi.a $(B)/tests/neo.a
	$(compile_mpi) $(checked) -o $@ $< $(objects) $(libs)
# All of neo is in it: it waits for no archive.
$(B)/tests/fuzz/targets: tests/fuzz/targets.c $(B)/tests/checked.o
	$(compile) $(level) $(checked) $(of_test) -o $@ $< $(objects) $(libs)
$(B)/libfuzzer/targets: tests/fuzz/targets.c
	clang -std=c11 $(flags) -O1 -g -fsanitize=fuzzer,address -o $@ $< $(libs)

# Measures for a shorter while than build/plan: see inside.c.
$(B)/tests/plan: examples/plan/plan.c $(B)/tests/neo.a
	$(compile) -O0 -o $@ $< $(objects) $(libs)

# The NCCL backend runs over a stand-in for CUDA and NCCL, of which it needs the headers.
$(B)/tests/comm/nccl: of_test = -isystem $(CUDA)/include
$(B)/tests/fuzz/targets: of_test = -O0 -DNEO_FUZZ_MAIN
$(fuzzers) $(fuzzers:$(B)/tests/fuzz/%=$(B)/libfuzzer/%): $$(@D)/targets ; ln -f $< $@
# Tests compile in half the time so; -O1 for what then takes longer to run.
level = $(if $(SANITIZE),-O1,-O0)
$(addprefix $(B)/tests/,$(addprefix shard/,slow_links placements tiers accumulate replicas \
    unpooled keys) $(addprefix comm/,nccl faults collectives groups) fsdp/grid \
    fsdp/dtypes_and_faults serve/serve serve/predict data/reader_ranks bags/lookup core/gemm \
    core/layers core/bf16 core/transformer): level = -O1
$(B)/tests/shard/plan: level = $(if $(SANITIZE),-O1,-O2)
# What implements all of neo for itself, for its private names; several tests in one.
$(addprefix $(B)/tests/,private private_files): of_test = -O0
$(addprefix $(B)/tests/,core/math core/short_lists files/json files/state bags/lines): \
    $(B)/tests/private ; ln -f $< $@
$(addprefix $(B)/tests/,data/numbers files/checkpoint_ranks core/sgemm_hook): \
    $(B)/tests/private_files ; ln -f $< $@

# The longest first. larger: of them what does more than in `make test` where NEO_FULL is set
# (groups.c over MPI alone: mpi.sh).
first   = tests/programs/dlrm.sh tests/comm/mpi.sh
longest = $(addprefix tests/,cuda/emulated.sh cuda/nvcc.sh comm/mpi.sh cuda/emulated_programs.sh \
    programs/readme.sh build/arm.sh comm/mpi_faults.sh) $(B)/tests/fsdp/grid \
    $(addprefix tests/,programs/tiers.sh programs/serve.sh fuzz/libfuzzer.sh) \
    $(B)/tests/shard/placements
scripts = $(first) $(filter-out $(first),$(wildcard $(addprefix tests/,programs/*.sh files/*.sh \
    fsdp/*.sh serve/*.sh build/contents.sh)))
others  = $(filter-out %/headers.sh %/contents.sh,$(wildcard tests/cuda/emulated*.sh \
    tests/cuda/nvcc.sh tests/comm/mpi_faults.sh tests/fuzz/*.sh tests/build/*.sh))
larger  = $(filter-out tests/comm/groups.c, \
    $(shell grep -l 'NEO_FULL\|test_grid' tests/*/*.sh tests/*/*.c))
full    = $(sort $(others) $(filter %.sh,$(larger))) $(fuzzers) $(emulator) \
    $(patsubst %.c,$(B)/%,$(filter %.c,$(larger)))

test_helpers = $(addprefix $(B)/tests/,data/make_npy data/make_synthetic programs/http_client \
    programs/peak serve/predict)
test-programs: $(programs) $(test_helpers) $(B)/tests/plan
test:
	$(make) all test-programs
	@SCRIPT_TIMEOUT=$${SCRIPT_TIMEOUT:-1800} sh tests/run.sh $(B)/tests/shard/plan $(scripts) \
	    $(filter-out %/shard/plan,$(programs))
test-full:
	$(make) all test-programs $(fuzzers) emulated-programs
	@NEO_FULL=$${NEO_FULL:-1} sh tests/run.sh $(filter $(full),$(longest)) \
	    $(filter-out $(longest),$(full))
headers: ; @sh tests/build/headers.sh
check:   ; @sh tests/check.sh test test-full headers asan attack tsan

# The same tests under sanitizers, the examples with the neo of the tests. What has one thread has
# nothing for ThreadSanitizer.
memory_flags = -fsanitize=address,undefined -fno-sanitize-recover -fno-omit-frame-pointer
asan: ; $(make) sanitized S=$(B)/address SANITIZE='$(memory_flags)'
tsan:
	$(make) $(B)/dlrm $(B)/gpt
	$(make) sanitized S=$(B)/thread SANITIZE='-fsanitize=thread'
one_thread = $(fuzzers) $(emulator) $(addprefix $(B)/tests/,core/exact core/log core/math \
    core/report bags/lines files/json files/safetensors shard/plan)
checkable  = $(filter-out $(if $(findstring thread,$(SANITIZE)),$(one_thread)),$(programs) \
    $(fuzzers) $(emulator))
sanitized:
	$(make) B=$(S) CFLAGS='-O1 -g1' SANITIZE='$(SANITIZE)' sanitized-programs
	@B=$(S) PLAIN=$(B) SANITIZER=$(notdir $(S)) sh tests/run.sh \
	    $(addprefix tests/programs/,dlrm.sh gpt.sh serve.sh) \
	    $(patsubst $(B)/%,$(S)/%,$(checkable))
# The longest to compile first: at the end they would have one core.
sanitized-programs: $(filter %/fuzz/svm %/data/numbers %/files/state,$(checkable)) \
    $(addprefix $(B)/,dlrm gpt serve stages) $(checkable) $(test_helpers)
