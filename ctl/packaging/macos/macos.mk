# vmlane for macOS. On a Mac: `brew install userspace-rcu jansson concurrencykit xxhash libyaml`, then `make`. Elsewhere (Linux,
# x86-64): `make macos` builds both programs for arm64 and x86-64 with zig, see ctl/packaging/macos/build.

# Ports that macOS has no counterpart of, and one whose library (libpcap) is left out there.
LINUX_ONLY = io/port_tap.c io/call_ring.c io/link_device.c io/port_packet.c io/port_pcap.c

# Memory passed by descriptor (memfd, SCM_RIGHTS with SOCK_SEQPACKET), and what stands on it.
LINUX_ONLY += io/port_shm.c io/shm_door.c shm/channel.c shm/channel_end.c

BREW        ?= $(shell brew --prefix 2>/dev/null)
LIBS_darwin  = $(MACOS_LDFLAGS) -lurcu-qsbr -ljansson -lyaml
ifeq ($(SYSTEM),darwin)
# Darwin's message headers count in int: libc_darwin.h is what else differs.
MACOS_CFLAGS ?= $(BREW:%=-isystem %/include)
MACOS_LDFLAGS ?= $(BREW:%=-L%/lib)
DEPS_CFLAGS   = -include ring/libc_darwin.h -Wno-sign-conversion $(MACOS_CFLAGS)
endif

.PHONY: macos check-macos
macos:
	ctl/packaging/macos/build $(BUILD)

check-macos: macos
	tests/run-macos $(BUILD)
