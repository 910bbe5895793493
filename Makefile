# SPDX-License-Identifier: Apache-2.0
# The two commands for a newcomer: make demo, make check. Everything is built by Meson in build/.
BUILD ?= build
PREFIX ?= /usr
export PREFIX
FUZZ_SECONDS ?= 20

.PHONY: all deps demo check bench fuzz e2e format lint man install clean

all:
	@tools/build.sh $(BUILD)

deps: ## packages for everything below
	@tools/deps.sh build test fuzz e2e

demo: ## a simulated host with 8 GPUs, the real agent, a small kubelet: under a minute
	@BUILD_TARGETS="src/cmd/mete src/sim/libnvidia-ml-sim.so src/sim/nvidia-smi-sim" tools/build.sh $(BUILD)
	@tools/demo $(BUILD)

check: ## every test that needs no cluster; ends with "N passed, N failed"
	@tools/check.sh

bench: ## figures beside their limits
	@tools/deps.sh build test
	@tools/build.sh $(BUILD) -Dtests=true
	@tests/bench/run $(BUILD)

fuzz: ## each fuzzer for FUZZ_SECONDS with libFuzzer
	@tests/fuzz/run $(FUZZ_SECONDS)

e2e: ## real etcd, API server, scheduler, kubelet and containerd
	@tests/e2e/run

format:
	@tools/format.sh

lint: ## the checks that run nothing: include floors, banned functions, format, generated files
	@tools/lint.sh

man: all ## man pages and bash completion, from the program's own option tables
	@tools/docs.sh $(BUILD) $(BUILD)/docs

install: man
	@meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))
	@tools/docs.sh --install $(BUILD)/docs "$(DESTDIR)$(PREFIX)"

clean:
	rm -rf build build-*
