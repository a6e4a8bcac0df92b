# rules.mk, of the Makefile: programs that attack neo. `make attack` tries some of each kind, in
# about 2 minutes on 2 cores; with ATTACK=all every one, which takes days: all kills and faults of
# walk.py, 10^6 schedules, 10^5 cycles, 10^8 inputs of the fuzzers.

# Schedules are a test of `make test` and of the sanitizers, too.
programs += $(B)/tests/attack/schedules

attacked  = dlrm gpt job
has_mpi   = $(shell command -v $(MPICC) 2>/dev/null)
walked    = $(attacked:%=$(B)/%) $(if $(has_mpi),$(attacked:%=$(B)/%_mpi))
attackers = $(B)/tests/attack/schedules $(B)/tests/attack/cycles
days      = TEST_TIMEOUT=100000 FUZZ_RUNS=100000000

attack-programs: $(walked) $(attackers)
	-@$(MAKE) --no-print-directory $(B)/tests/attack/faults.so
attack:
	$(make) attack-programs $(if $(ATTACK),$(fuzzers))
	@$(if $(ATTACK),$(days)) ATTACK=$(ATTACK) sh tests/run.sh tests/attack/walk.sh $(attackers) \
	    $(if $(ATTACK),tests/fuzz/libfuzzer.sh)

$(B)/tests/attack/faults.so: tests/attack/faults.c
	$(CC) -std=c11 $(flags) -O1 -g -shared -fPIC -o $@ $< -ldl

.PHONY: attack attack-programs
