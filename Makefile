# SPDX-License-Identifier: Apache-2.0
# Thin wrappers over tools/setup.sh and the presets of CMakePresets.json.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# The paper's comparison; also what README.md shows (tools/check_console.py reads this line).
SIMULATE := simulate --compare --model all --cluster paper-64x2080ti --world 64
FUZZ_SECONDS ?= 60
SEED ?= 1

.PHONY: help setup test simulate bench fuzz format lint golden clean

help:  ## print this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup:  ## install the Debian packages that are missing
	@tools/setup.sh

test: setup  ## build and run all tests, plain and under the sanitizers
	@start=$$SECONDS; \
	cmake --workflow --preset dev; \
	cmake --workflow --preset asan; \
	count() { sed -nE "/^\s*$$2=\"([0-9]+)\".*/{s//\1/p;q}" build/$$1/tests.xml; }; \
	dev=$$(count dev tests); asan=$$(count asan tests); \
	skipped=$$(($$(count dev skipped) + $$(count asan skipped))); \
	echo "make test: $$((dev + asan)) tests without a failure ($$dev dev, $$asan asan, $$skipped skipped) in $$((SECONDS - start)) s"

simulate: setup  ## predict one iteration of every model and algorithm of the paper
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target spdkfac
	@build/release/bin/spdkfac $(SIMULATE)

bench: setup  ## measure the planner and the simulator
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target planner_bench simulator_bench
	@build/release/bin/planner_bench
	@build/release/bin/simulator_bench

fuzz: setup  ## feed broken files to the readers for a minute (FUZZ_SECONDS=60 SEED=1)
	@cmake --preset asan > /dev/null
	@cmake --build --preset asan --target reader_fuzz
	@build/asan/bin/reader_fuzz --seconds $(FUZZ_SECONDS) --seed $(SEED)

format: setup  ## format the C++ sources
	@tools/format.sh

lint: setup  ## check format, layers, SPDX lines and file lengths
	@tools/format.sh --check || test $$? -eq 77
	@python3 tools/check_layers.py

golden: setup  ## write the outputs in tests/golden, README.md and docs anew; review the difference
	@cmake --preset dev > /dev/null
	@cmake --build --preset dev --target golden

clean:  ## remove the build folder
	@rm -rf build
