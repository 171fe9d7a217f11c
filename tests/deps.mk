# What vmlane needs from Debian, and how a target gets what is missing: as root by apt, otherwise it says so.
# Lists, one package a line: tests/packages (build and `make check`), tests/vm/packages (guests and the demo),
# tests/packages-slow (sanitizers, fuzzing, arm64), tests/packages-tools (what check-tools looks with), tests/packages-packaging (packages and what looks into them), perf/packages (benchmarks and their peers).

.PHONY: deps deps-vm deps-slow deps-perf deps-tools deps-packaging
deps:
	@tests/install-packages tests/packages
deps-vm: deps
	@tests/install-packages tests/vm/packages
deps-slow: deps
	@tests/install-packages tests/packages-slow
deps-tools: deps
	@tests/install-packages tests/packages-tools
deps-packaging: deps
	@tests/install-packages tests/packages-packaging
deps-perf: deps
	@tests/install-packages perf/packages
