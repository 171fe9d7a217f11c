# Benchmarks: `make perf` builds build/perf/*. They measure and print; no test depends on their figures.
# A peer whose package is missing is built out and shows as "unavailable".

PERF_COMMON = $(patsubst %,$(BUILD)/obj/perf/%.o,bench stage)
PERF_RING   = $(patsubst %,$(BUILD)/obj/perf/%.o,ring ring_peers_own ring_peers_ck ring_peers_dpdk) $(PERF_COMMON)
HAVE_CXX    = $(shell command -v g++ 2>/dev/null)
HAVE_DPDK   = $(shell pkg-config --exists libdpdk 2>/dev/null && echo yes)
ifneq ($(HAVE_CXX),)
PERF_RING  += $(BUILD)/obj/perf/ring_peers_cxx.o
PERF_LD     = g++
else
PERF_LD     = $(CC)
endif
ifneq ($(HAVE_DPDK),)
DPDK_CFLAGS = $(shell pkg-config --cflags libdpdk | sed 's/-I/-isystem /g')
DPDK_LIBS   = $(shell pkg-config --libs-only-L libdpdk) -Wl,--as-needed -lrte_ring -lrte_eal
endif

PERF_FORWARD = $(patsubst %,$(BUILD)/obj/perf/%.o,forward first_frame relay traffic) $(PERF_COMMON)

PERF_COMPARE = $(patsubst %,$(BUILD)/obj/perf/%.o,compare compare_table compare_ends compare_peers compare_station plot_svg relay traffic) $(PERF_COMMON)

PERF_LANES   = $(patsubst %,$(BUILD)/obj/perf/%.o,lanes lanes_cases lanes_run lanes_table lanes_plots lanes_lab mix plot_svg relay) $(PERF_COMMON)
PERF_FLOWS   = $(patsubst %,$(BUILD)/obj/perf/%.o,flows rig_cost rig) $(PERF_COMMON)
PERF_STREAM  = $(BUILD)/obj/perf/stream.o $(PERF_COMMON)
PERF_SCALE   = $(patsubst %,$(BUILD)/obj/perf/%.o,scale scale_links rig_cost rig plot_svg relay) $(PERF_COMMON)
PERF_SHM     = $(BUILD)/obj/perf/shm.o $(PERF_COMMON)
PERF_INSTRUCTIONS = $(patsubst %,$(BUILD)/obj/perf/%.o,instructions rig)

PERF_PROGRAMS = $(BUILD)/perf/ring $(BUILD)/perf/forward $(BUILD)/perf/compare \
                $(BUILD)/perf/lanes $(BUILD)/perf/flows $(BUILD)/perf/scale $(BUILD)/perf/shm \
                $(BUILD)/perf/stream $(BUILD)/perf/instructions

.PHONY: perf check-perf-smoke check-instructions instructions-bound
perf: all | deps-perf
	@$(MAKE) --no-print-directory perf-build
.PHONY: perf-build
perf-build: $(PERF_PROGRAMS)

$(BUILD)/obj/perf/ring_peers_dpdk.o: BASE_FLAGS += $(DPDK_CFLAGS)

$(BUILD)/obj/perf/%.o: perf/%.c | deps
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) -I. $(CFLAGS) -c $< -o $@

$(BUILD)/obj/perf/%.o: perf/%.cc | deps
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)g++ -std=gnu++17 -Wall -Wextra -Wconversion -Wshadow -Werror -MMD -MP -I. $(CFLAGS) -c $< -o $@

$(BUILD)/perf/ring: $(PERF_RING) $(BUILD)/lib/engine.a
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(PERF_LD) -pthread $(CFLAGS) -o $@ $^ -lm $(DPDK_LIBS)

$(BUILD)/perf/forward: $(PERF_FORWARD) $(BUILD)/lib/engine.a | $(BUILD)/vmlane
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) -pthread $(CFLAGS) -o $@ $^ -lm $(LIBS)

$(BUILD)/perf/compare: $(PERF_COMPARE) $(BUILD)/lib/engine.a | $(BUILD)/vmlane
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) -pthread $(CFLAGS) -o $@ $^ -lm $(LIBS)

$(BUILD)/perf/lanes: $(PERF_LANES) $(BUILD)/lib/engine.a | $(BUILD)/vmlane $(BUILD)/vmlanectl
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) -pthread $(CFLAGS) -o $@ $^ -lm $(LIBS)

$(BUILD)/perf/stream: $(PERF_STREAM) $(BUILD)/lib/engine.a
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) -pthread $(CFLAGS) -o $@ $^ -lm $(LIBS)

$(BUILD)/perf/flows: $(PERF_FLOWS) $(BUILD)/lib/engine.a
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) -pthread $(CFLAGS) -o $@ $^ -lm $(LIBS)

$(BUILD)/perf/shm: $(PERF_SHM) $(BUILD)/lib/ctl.a $(BUILD)/lib/engine.a | $(BUILD)/vmlane
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) -pthread $(CFLAGS) -o $@ $^ -lm $(LIBS)

$(BUILD)/perf/scale: $(PERF_SCALE) $(BUILD)/lib/engine.a | $(BUILD)/vmlane
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) -pthread $(CFLAGS) -o $@ $^ -lm $(LIBS)

$(BUILD)/perf/instructions: $(PERF_INSTRUCTIONS) $(BUILD)/lib/engine.a
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) -pthread $(CFLAGS) -o $@ $^ $(LIBS)

# No clock: vmlane's own instructions a frame, against the bounds in perf/results/instructions.txt.
check-instructions: $(BUILD)/perf/instructions
	perf/check-instructions $(BUILD)
# Takes what is counted now as the bounds, for a change that is worth what it costs.
instructions-bound: $(BUILD)/perf/instructions
	perf/check-instructions $(BUILD) --update

# Each benchmark runs for a moment, so that it cannot rot; its figures are not looked at.
check-perf-smoke: all $(PERF_PROGRAMS)
	tests/perf-smoke $(BUILD)
	tests/profile-smoke $(BUILD)

-include $(PERF_RING:.o=.d) $(PERF_FORWARD:.o=.d) $(PERF_LANES:.o=.d) $(PERF_FLOWS:.o=.d) $(PERF_SHM:.o=.d) $(PERF_STREAM:.o=.d) $(PERF_SCALE:.o=.d) $(PERF_INSTRUCTIONS:.o=.d) $(PERF_COMPARE:.o=.d)
