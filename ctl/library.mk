# libvmlane-stats: the statistics reader as a library, shared and static, with its header and pkg-config file. vmlanectl
# is made of the same sources. Only what ctl/vmlane_stats.map lists is visible, in the static library too.
#
#   build/libvmlane-stats.so.1.0 (.so.1, .so)   build/libvmlane-stats.a   build/vmlane-stats.pc

STATS_VERSION = 1.0
STATS_LIB_SRC = shm/counters.c shm/fault.c shm/histogram.c shm/owner_$(SYSTEM).c shm/settings.c shm/stats_dir.c \
                shm/stats_layout.c shm/stats_place.c shm/stats_view.c ctl/stats_snapshot.c ctl/vmlane_stats.c
STATS_LIB_OBJ = $(STATS_LIB_SRC:%.c=$(BUILD)/obj/pic/%.o)
STATS_SO      = $(BUILD)/libvmlane-stats.so
OBJCOPY      ?= objcopy

# Where an installed pkg-config file points.
PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include

# Built with GNU's linker and objcopy, so not on macOS yet.
ifeq ($(SYSTEM),linux)
all: $(STATS_SO) $(BUILD)/libvmlane-stats.a $(BUILD)/vmlane-stats.pc $(BUILD)/examples/stats-drops
endif

$(BUILD)/obj/pic/%.o: %.c | deps
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) -fPIC $(CFLAGS) -c $< -o $@

$(STATS_SO).$(STATS_VERSION): $(STATS_LIB_OBJ) ctl/vmlane_stats.map
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libvmlane-stats.so.1 \
	    -Wl,--version-script=ctl/vmlane_stats.map -o $@ $(STATS_LIB_OBJ)

$(STATS_SO).1 $(STATS_SO): $(STATS_SO).$(STATS_VERSION)
	$(Q)ln -sf $(<F) $@

# One object with all others' names made local, so that a program's own names cannot meet ours.
$(BUILD)/obj/pic/vmlane-stats.o: $(STATS_LIB_OBJ)
	$(Q)$(CC) -r -nostdlib -o $@ $^
	$(Q)$(OBJCOPY) --wildcard --keep-global-symbol='vmlane_stats_*' $@

$(BUILD)/libvmlane-stats.a: $(BUILD)/obj/pic/vmlane-stats.o
	@echo '  $@'
	@rm -f $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/vmlane-stats.pc: ctl/packaging/vmlane-stats.pc.in ctl/library.mk
	@mkdir -p $(@D)
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(STATS_VERSION)|' $< > $@

# As a program of somebody else is built: with the public header and the shared library only.
$(BUILD)/examples/stats-drops: docs/examples/stats-drops.c ctl/vmlane_stats.h $(STATS_SO) $(STATS_SO).1
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) -Ictl $(LDFLAGS) -o $@ $< -L$(BUILD) -lvmlane-stats '-Wl,-rpath,$$ORIGIN/..'

-include $(STATS_LIB_OBJ:.o=.d) $(BUILD)/examples/stats-drops.d
