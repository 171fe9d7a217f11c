# `make install`, `make uninstall`, `make deb`: programs, libraries, headers, manual pages, completion, units, examples.
#
#   make install DESTDIR= PREFIX=/usr/local     uninstall takes the same variables
#   make deb                                    build/vmlane_VERSION_ARCH.deb, for Debian's own places
#
# /etc/vmlane is the user's: it is neither made nor removed here.

BINDIR     ?= $(PREFIX)/bin
DATADIR    ?= $(PREFIX)/share
MANDIR     ?= $(DATADIR)/man
DOCDIR     ?= $(DATADIR)/doc/vmlane
UNITDIR    ?= $(PREFIX)/lib/systemd/system
BASHDIR    ?= $(DATADIR)/bash-completion/completions
ZSHDIR     ?= $(DATADIR)/zsh/site-functions
INSTALL    ?= install

INSTALL_PROGRAMS = vmlane vmlanectl
INSTALL_MAN1     = docs/vmlane.1 docs/vmlanectl.1
INSTALL_MAN5     = docs/vmlane.conf.5 docs/vmlane-stats.5
INSTALL_HEADERS  = ctl/vmlane_stats.h shm/vmlane_shm.h
INSTALL_DOCS     = README.md LICENSE docs/operations.md docs/watching.md docs/changes.md docs/architecture.md \
                   docs/profiling.md docs/performance.md docs/macos.md docs/shm-protocol.md docs/vmm-qemu.md \
                   docs/vmm-passt.md docs/vmm-others.md
INSTALL_EXAMPLES = docs/examples/stats-drops.c docs/examples/shm-echo.c ctl/packaging/examples/web1.conf \
                   ctl/packaging/grafana-vmlane.json ctl/packaging/prometheus-vmlane.rules.yml

# NAME,VERSION: the major one is the soname's.
library_files = $(addprefix $(LIBDIR)/$(1),.so.$(2) .so.$(basename $(2)) .so .a) $(LIBDIR)/pkgconfig/$(1:lib%=%).pc
define install_library
	$(Q)$(INSTALL) -m 644 $(BUILD)/$(1).so.$(2) $(BUILD)/$(1).a $(DESTDIR)$(LIBDIR)
	$(Q)ln -sf $(1).so.$(2) $(DESTDIR)$(LIBDIR)/$(1).so.$(basename $(2))
	$(Q)ln -sf $(1).so.$(basename $(2)) $(DESTDIR)$(LIBDIR)/$(1).so
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(2)|' ctl/packaging/$(1:lib%=%).pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/$(1:lib%=%).pc
endef

# What an installation consists of, below DESTDIR: install ends with a look whether each is there, uninstall removes it.
INSTALLED = $(INSTALL_PROGRAMS:%=$(BINDIR)/%) \
            $(call library_files,libvmlane-stats,$(STATS_VERSION)) $(call library_files,libvmlane-shm,$(SHM_VERSION)) \
            $(addprefix $(INCLUDEDIR)/,$(notdir $(INSTALL_HEADERS))) \
            $(addprefix $(MANDIR)/man1/,$(notdir $(INSTALL_MAN1))) \
            $(addprefix $(MANDIR)/man5/,$(notdir $(INSTALL_MAN5))) \
            $(addprefix $(DOCDIR)/,$(notdir $(INSTALL_DOCS))) \
            $(addprefix $(DOCDIR)/examples/,$(notdir $(INSTALL_EXAMPLES))) \
            $(BASHDIR)/vmlane $(BASHDIR)/vmlanectl $(ZSHDIR)/_vmlane \
            $(UNITDIR)/vmlane@.service $(UNITDIR)/vmlane-exporter.service

INSTALL_FOLDERS = $(sort $(dir $(INSTALLED)))

.PHONY: install uninstall deb check-packaging
install: all
ifneq ($(SYSTEM),linux)
	$(error install is for Linux; on a Mac copy $(BUILD)/vmlane and $(BUILD)/vmlanectl)
endif
	$(Q)$(INSTALL) -d $(addprefix $(DESTDIR),$(INSTALL_FOLDERS))
	$(Q)$(INSTALL) -m 755 $(INSTALL_PROGRAMS:%=$(BUILD)/%) $(DESTDIR)$(BINDIR)
	$(call install_library,libvmlane-stats,$(STATS_VERSION))
	$(call install_library,libvmlane-shm,$(SHM_VERSION))
	$(Q)$(INSTALL) -m 644 $(INSTALL_HEADERS) $(DESTDIR)$(INCLUDEDIR)
	$(Q)$(INSTALL) -m 644 $(INSTALL_MAN1) $(DESTDIR)$(MANDIR)/man1
	$(Q)$(INSTALL) -m 644 $(INSTALL_MAN5) $(DESTDIR)$(MANDIR)/man5
	$(Q)$(INSTALL) -m 644 $(INSTALL_DOCS) $(DESTDIR)$(DOCDIR)
	$(Q)$(INSTALL) -m 644 $(INSTALL_EXAMPLES) $(DESTDIR)$(DOCDIR)/examples
	$(Q)$(INSTALL) -m 644 ctl/packaging/completion/vmlane.bash $(DESTDIR)$(BASHDIR)/vmlane
	$(Q)ln -sf vmlane $(DESTDIR)$(BASHDIR)/vmlanectl
	$(Q)$(INSTALL) -m 644 ctl/packaging/completion/vmlane.zsh $(DESTDIR)$(ZSHDIR)/_vmlane
	$(Q)for unit in vmlane@.service vmlane-exporter.service; do \
	    sed 's|@BINDIR@|$(BINDIR)|' ctl/packaging/systemd/$$unit > $(DESTDIR)$(UNITDIR)/$$unit || exit 1; \
	done
	$(Q)for file in $(INSTALLED); do \
	    test -e "$(DESTDIR)$$file" || { echo "install: $(DESTDIR)$$file is not there" >&2; exit 1; }; \
	done

# Folders go only if nothing else is in them, and only those that bear vmlane's name.
uninstall:
	$(Q)rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	$(Q)rmdir $(addprefix $(DESTDIR),$(DOCDIR)/examples $(DOCDIR)) 2>/dev/null || true

deb: all
	ctl/packaging/deb/build $(BUILD) $(VERSION)

# The package in a root of its own, the units, the completion: under a minute.
check-packaging: all | deps-packaging
	tests/run-packaging $(BUILD)
