# vmlane: the wire between a virtual machine and its host's network.
#
#   make            build/vmlane, build/vmlanectl, build/libvmlane-{stats,shm}.{so,a}
#   make demo       a real guest through vmlane, with live counters and a summary
#   make check      every test that needs no virtual machine
#   make check-vm check-tools check-packaging check-san check-build check-fuzz check-mutants   the slower suites
#   make macos      both programs for macOS, from Linux (docs/macos.md); make check-macos looks into them
#   make install    DESTDIR= PREFIX=/usr/local; make uninstall; make deb builds a package; make check-packaging looks into it
#   make perf       build the benchmarks (build/perf/*)
#   make deps       install what is missing (apt; the targets above do it by themselves)
#   make format     clang-format in place
#
# Variables: CC, CFLAGS, SAN=address,undefined|thread, BUILD (build), V=1 shows commands.

.DEFAULT_GOAL := all

BUILD   ?= build
CC      ?= cc
CFLAGS  ?= -O2 -g
SAN     ?=
Q        = $(if $(V),,@)

VERSION := 0.1.0
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo none)

# The system that is built for: files named for another one are left out.
SYSTEM  := $(shell uname -s | tr A-Z a-z)

include tests/deps.mk

# Frame pointers stay, so that perf sees whole call graphs.
BASE_FLAGS = -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Werror \
             -fno-omit-frame-pointer -pthread -MMD -MP $(DEPS_CFLAGS)
LIBS       = $(LIBS_$(SYSTEM))
LIBS_linux  = -lurcu-qsbr -lmnl -ljansson -lpcap -lyaml -luring
ifeq ($(SAN),)
LIBS_linux += -ljemalloc
else
# Another allocator would blind the sanitizer; gcc warns of fences that it cannot model (ring/shared_word.h).
BASE_FLAGS += -fsanitize=$(SAN) -fno-sanitize-recover=all
ifeq ($(SAN),thread)
ifeq ($(findstring clang,$(shell $(CC) --version | head -1)),)
BASE_FLAGS += -Wno-tsan
endif
endif
endif

include ctl/packaging/macos/macos.mk

NOT_linux  = %_darwin.c
NOT_darwin = %_linux.c $(LINUX_ONLY)
ENGINE_SRC = $(filter-out $(NOT_$(SYSTEM)),$(wildcard ring/*.c shm/*.c io/*.c workers/*.c))
CTL_PROGRAMS = ctl/vmlane.c ctl/vmlanectl.c
CTL_SRC    = $(filter-out $(CTL_PROGRAMS) $(NOT_$(SYSTEM)),$(wildcard ctl/*.c))
ENGINE_OBJ = $(ENGINE_SRC:%.c=$(BUILD)/obj/%.o)
CTL_OBJ    = $(CTL_SRC:%.c=$(BUILD)/obj/%.o)

.PHONY: all deps clean format
all: $(BUILD)/vmlane $(BUILD)/vmlanectl

$(BUILD)/obj/%.o: %.c | deps
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) -c $< -o $@

# The commit's name is in one object only, made anew when it changes.
$(BUILD)/build-name: FORCE
	@mkdir -p $(@D)
	@echo '$(VERSION) $(COMMIT)' | cmp -s - $@ || echo '$(VERSION) $(COMMIT)' > $@
.PHONY: FORCE
$(BUILD)/obj/ctl/build.o: $(BUILD)/build-name
$(BUILD)/obj/ctl/build.o: BASE_FLAGS += -DVMLANE_BUILD='"$(VERSION) $(COMMIT)"'

$(BUILD)/lib/engine.a: $(ENGINE_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/lib/ctl.a: $(CTL_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/vmlane $(BUILD)/vmlanectl: $(BUILD)/%: $(BUILD)/obj/ctl/%.o $(BUILD)/lib/ctl.a $(BUILD)/lib/engine.a
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# What vmlanectl alone needs: an HTTP server for its exporter, a terminal for `top`, scales for `plot`.
CTL_LIBS_linux = -lm -lmicrohttpd -lncursesw -ltinfo
$(BUILD)/vmlanectl $(BUILD)/tests/unit: LIBS += $(CTL_LIBS_$(SYSTEM))

include ctl/library.mk
include shm/library.mk
include ctl/packaging/install.mk

clean:
	rm -rf $(BUILD)

C_FILES = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cc' 2>/dev/null)
format: | deps
	clang-format -i $(C_FILES)

include tests/tests.mk
include perf/perf.mk

# What each object was made of, whatever part of the project it is in.
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
