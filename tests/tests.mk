# Tests. `make check` is everything that needs no virtual machine; the slower suites have targets of their own.

TEST_FLAGS = -I. -Itests $(shell pkg-config --cflags check 2>/dev/null)
TEST_LIBS  = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)

UNIT_OBJ     = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/unit_*.c))
SCENARIO_OBJ = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/scenario_*.c))

$(BUILD)/obj/tests/%.o: tests/%.c | deps
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(TEST_FLAGS) $(CFLAGS) -c $< -o $@

$(BUILD)/tests/unit: $(UNIT_OBJ) $(BUILD)/lib/ctl.a $(BUILD)/lib/engine.a
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LIBS)

$(BUILD)/tests/scenario: $(SCENARIO_OBJ) $(BUILD)/lib/ctl.a $(BUILD)/lib/engine.a
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LIBS)

.PHONY: check check-unit check-scenario check-model check-rooms check-build check-vm check-san check-fuzz \
        check-mutants check-arm64 demo

check-rooms:
	tests/check-rooms

check-model: | deps
	tests/model/run

check-unit: $(BUILD)/tests/unit
	$(BUILD)/tests/unit

check-scenario: $(BUILD)/tests/scenario all
	tests/run-scenarios $(BUILD)

# Check's closing lines are printed by the unit and scenario runners.
check: all
	@tests/run-check $(BUILD)

demo: all | deps-vm
	tests/vm/demo

-include $(UNIT_OBJ:.o=.d) $(SCENARIO_OBJ:.o=.d)
