# Tests. `make check` is everything that needs no virtual machine; the slower suites have targets of their own.

TEST_FLAGS = -I. -Itests $(shell pkg-config --cflags check 2>/dev/null)
TEST_LIBS  = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)

UNIT_OBJ     = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/unit_*.c))
SCENARIO_OBJ = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/scenario_*.c))

$(BUILD)/obj/tests/%.o: tests/%.c | deps
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(TEST_FLAGS) $(CFLAGS) -c $< -o $@

# The suite of libvmlane-stats looks at the library's files.
$(BUILD)/tests/unit: | $(STATS_SO) $(BUILD)/libvmlane-stats.a $(BUILD)/vmlane-stats.pc $(BUILD)/examples/stats-drops
# Darwin's waits are built over a model of its <sys/event.h>.
$(BUILD)/obj/tests/unit_darwin_waits.o: TEST_FLAGS += -Itests/darwin

# Darwin's code that needs only the seam of io/calls_darwin.h: linked against the model.
DARWIN_MODEL_OBJ = $(patsubst %,$(BUILD)/obj/io/%.o,calls_darwin datagram_darwin vmnet_darwin vmnet_status_darwin \
                     port_vmnet_darwin)

$(BUILD)/tests/unit: $(UNIT_OBJ) $(DARWIN_MODEL_OBJ) $(BUILD)/lib/ctl.a $(BUILD)/lib/engine.a
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LIBS)

$(BUILD)/tests/scenario: $(SCENARIO_OBJ) $(BUILD)/lib/ctl.a $(BUILD)/lib/engine.a
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LIBS)

.PHONY: check check-unit check-scenario check-model check-rooms check-probes check-build check-vm check-san check-fuzz \
        check-mutants check-arm64 check-tools demo

check-probes: $(BUILD)/vmlane
	CC="$(CC)" tests/check-probes $(BUILD)

check-rooms:
	tests/check-rooms

check-model: | deps
	tests/model/run

check-unit: $(BUILD)/tests/unit
	tests/run-units $(BUILD)

check-scenario: $(BUILD)/tests/scenario all
	tests/run-scenarios $(BUILD)

# Check's closing lines are printed by the unit and scenario runners.
check: all
	@tests/run-check $(BUILD)

check-vm: all | deps-vm
	tests/run-vm

# AddressSanitizer with UndefinedBehaviorSanitizer, and ThreadSanitizer, without a suppression file. Leaks are looked
# for in the programs as a whole, in the scenarios; in a forked unit test each look costs half a second.
# ThreadSanitizer looks at the suites that share words between threads; a flood is ten times slower under it.
TSAN_UNITS     = ring ring_peers arena doorbell histogram order_stress port_stream worker_rest engine
TSAN_SCENARIOS = traffic refusal peer packet stream live links
SAN_MAKE    = $(MAKE) --no-print-directory CC=clang CFLAGS='-O1 -g'
TSAN_UNITS     += channel port_shm shm_door vmlane_shm capture_ring capture
TSAN_SCENARIOS += shm capture
check-san: | deps-slow
	$(Q)$(SAN_MAKE) SAN=address,undefined BUILD=$(BUILD)/asan all $(BUILD)/asan/tests/unit $(BUILD)/asan/tests/scenario
	ASAN_OPTIONS=detect_leaks=0 tests/run-units $(BUILD)/asan
	tests/run-scenarios $(BUILD)/asan
	$(Q)$(SAN_MAKE) SAN=thread BUILD=$(BUILD)/tsan all $(BUILD)/tsan/tests/unit $(BUILD)/tsan/tests/scenario
	$(Q)for suite in $(TSAN_UNITS); do CK_RUN_SUITE=$$suite $(BUILD)/tsan/tests/unit || exit 1; done
	$(Q)for suite in $(TSAN_SCENARIOS); do CK_RUN_SUITE=$$suite tests/run-scenarios $(BUILD)/tsan || exit 1; done

# Both compilers on both machines, and the format.
check-build: | deps-slow deps-perf
	$(Q)$(MAKE) --no-print-directory -j2 CC=clang BUILD=$(BUILD)/clang all $(BUILD)/clang/tests/unit
	tests/arm64
	clang-format --dry-run -Werror $(C_FILES)
	shellcheck -x -S warning $$(git grep -lE '^#!/(bin/sh|bin/bash|usr/bin/env bash)' -- ':!*.md')

# The viewers in a real terminal, the metrics in a real prometheus.
check-tools: all | deps-tools
	tests/run-tools $(BUILD)

check-fuzz: | deps-slow
	tests/fuzz/run 20

check-mutants: | deps
	tests/run-tx-mutants
	tests/run-mutants

demo: all | deps-vm
	tests/vm/demo

