# libvmlane-shm: the client library of the `shm:` port, shared and static, with its header (shm/vmlane_shm.h), pkg-config
# file and example. Only what shm/vmlane_shm.map lists is visible, in the static library too.
#
#   build/libvmlane-shm.so.1.0 (.so.1, .so)   build/libvmlane-shm.a   build/vmlane-shm.pc   build/examples/shm-echo

SHM_VERSION = 1.0
SHM_LIB_SRC = ring/arena.c ring/spsc_ring.c shm/channel.c shm/channel_bell.c shm/channel_end.c shm/fault.c shm/fd_message.c \
              shm/memory_pages.c shm/memory_pages_linux.c shm/memory_segment_linux.c shm/vmlane_shm_linux.c
SHM_LIB_OBJ = $(SHM_LIB_SRC:%.c=$(BUILD)/obj/pic/%.o)
SHM_SO      = $(BUILD)/libvmlane-shm.so

# GNU's linker and objcopy, and memory of Linux's kind.
ifeq ($(SYSTEM),linux)
all: $(SHM_SO) $(SHM_SO).1 $(BUILD)/libvmlane-shm.a $(BUILD)/vmlane-shm.pc $(BUILD)/examples/shm-echo
endif

$(SHM_SO).$(SHM_VERSION): $(SHM_LIB_OBJ) shm/vmlane_shm.map
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libvmlane-shm.so.1 \
	    -Wl,--version-script=shm/vmlane_shm.map -o $@ $(SHM_LIB_OBJ)

$(SHM_SO).1 $(SHM_SO): $(SHM_SO).$(SHM_VERSION)
	$(Q)ln -sf $(<F) $@

# One object with all others' names made local, so that a program's own names cannot meet ours.
$(BUILD)/obj/pic/vmlane-shm.o: $(SHM_LIB_OBJ)
	$(Q)$(CC) -r -nostdlib -o $@ $^
	$(Q)$(OBJCOPY) --wildcard --keep-global-symbol='vmlane_shm_*' $@

$(BUILD)/libvmlane-shm.a: $(BUILD)/obj/pic/vmlane-shm.o
	@echo '  $@'
	@rm -f $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/vmlane-shm.pc: ctl/packaging/vmlane-shm.pc.in shm/library.mk
	@mkdir -p $(@D)
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(SHM_VERSION)|' $< > $@

# As a program of somebody else is built: with the public header and the static library only.
$(BUILD)/examples/shm-echo: docs/examples/shm-echo.c shm/vmlane_shm.h $(BUILD)/libvmlane-shm.a
	@mkdir -p $(@D)
	@echo '  $@'
	$(Q)$(CC) $(BASE_FLAGS) $(CFLAGS) -Ishm $(LDFLAGS) -o $@ $< $(BUILD)/libvmlane-shm.a

-include $(SHM_LIB_OBJ:.o=.d) $(BUILD)/examples/shm-echo.d
