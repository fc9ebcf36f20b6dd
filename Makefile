# SPDX-License-Identifier: Apache-2.0
# Thin wrappers over tools/setup.sh and the presets of CMakePresets.json.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# The paper's comparison.
SIMULATE := simulate --compare --model all --cluster paper-64x2080ti --world 64
FUZZ_SECONDS ?= 60
STRESS_MINUTES ?= 60
SEED ?= 1

.PHONY: help setup program package quick test train simulate bench overlap reproduce convergence fuzz stress python pictures docs format lint golden wheels clean

help:  ## print this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup:  ## install missing Debian packages, and Python packages in .venv
	@tools/setup.sh --test

program:  ## build the program as users run it: build/release/bin/spdkfac
	@tools/setup.sh --torch
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target spdkfac

quick:  ## check format and layers, build and test what needs no LibTorch
	@tools/setup.sh
	@tools/format.sh --check || test $$? -eq 77
	@python3 tools/check_layers.py
	@cmake --workflow --preset light

test: setup  ## build and run all tests, and the C++ tests again under the sanitizers
	@start=$$SECONDS; \
	for preset in dev asan light; do cmake --workflow --preset $$preset; done; \
	count() { sed -nE "/^\s*$$2=\"([0-9]+)\".*/{s//\1/p;q}" build/$$1/tests.xml; }; \
	dev=$$(count dev tests); asan=$$(count asan tests); light=$$(count light tests); \
	skipped=$$(($$(count dev skipped) + $$(count asan skipped) + $$(count light skipped))); \
	echo "make test: all $$((dev + asan + light)) tests passed ($$dev dev, $$asan asan, $$light light; $$skipped skipped) in $$((SECONDS - start)) s"

# The Python package, in the build folder.
package:
	@tools/setup.sh --torch
	@cmake --preset release -DSPDKFAC_PYTHON=ON > /dev/null
	@cmake --build --preset release --target spdkfac_python

train: package  ## train an autoencoder and a classifier to a target with SGD, AdamW and K-FAC, all tuned
	@PYTHONPATH=build/release/python .venv/bin/python benchmarks/target --demo

simulate:  ## forecast an iteration of the paper's models with every algorithm (no LibTorch)
	@tools/setup.sh
	@cmake --preset light > /dev/null
	@cmake --build --preset light
	@build/light/bin/spdkfac $(SIMULATE)

bench: program  ## measure the planner, the simulator and a training step
	@cmake --build --preset release --target planner_bench simulator_bench
	@build/release/bin/planner_bench
	@build/release/bin/simulator_bench
	@build/release/bin/spdkfac bench step --model resnet18 --input 3x64x64 --batch 8
	@build/release/bin/spdkfac bench step --model resnet50 --width 0.25 --input 3x64x64 --batch 8

overlap: setup program  ## measure iterations of four algorithms on a slow link (RATE=1gbit; needs root)
	@RANKS=4 tools/overlap.sh --algorithm d-kfac --algorithm mpd-kfac --algorithm spd-kfac --algorithm auto

reproduce: program  ## make every table and figure of the paper, simulated and measured, and a page of them
	@python3 tools/reproduce.py

convergence: program  ## count steps and seconds to 90 % with SGD, Adam and K-FAC, all tuned (an hour)
	@python3 tools/convergence.py --out out/convergence.json

fuzz: setup  ## feed broken files to the readers (FUZZ_SECONDS=60 SEED=1)
	@cmake --preset asan > /dev/null
	@cmake --build --preset asan --target reader_fuzz
	@build/asan/bin/reader_fuzz --seconds $(FUZZ_SECONDS) --seed $(SEED)

stress: setup  ## random faults, plans, networks and files, also under sanitizers (STRESS_MINUTES=60 SEED=1)
	@for preset in dev asan tsan; do cmake --preset $$preset > /dev/null; done
	@cmake --build --preset dev
	@cmake --build --preset asan --target spdkfac spdkfac-torch plan_stress reader_fuzz checkpoint_fuzz
	@cmake --build --preset tsan
	@.venv/bin/python tests/stress/stress.py --minutes $(STRESS_MINUTES) --seed $(SEED)

python: setup program  ## install the Python package in .venv and compare its speed with the program's
	@.venv/bin/pip install --quiet --disable-pip-version-check .
	@.venv/bin/python tools/python_overhead.py --program build/release/bin/spdkfac

pictures:  ## draw the pictures of README.md and docs, and make their tables, from records and forecasts
	@tools/setup.sh
	@cmake --preset light > /dev/null
	@cmake --build --preset light --target spdkfac
	@python3 tools/docs --program build/light/bin/spdkfac

docs:  ## build the documentation as a site that needs no network: build/docs/index.html
	@tools/setup.sh --docs
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict --quiet
	@echo "build/docs/index.html"

# Downloads each torch; not a part of the tests.
wheels:  ## build dist/spdkfac-….whl for all supported versions of torch (WHEEL_TORCH="2.11 2.15" WHEEL_CUDA=off)
	@python3 tools/wheels.py --cuda $(or $(WHEEL_CUDA),auto) $(if $(WHEEL_PYTHON),--python $(WHEEL_PYTHON)) \
	  $(if $(WHEEL_TORCH),--torch $(WHEEL_TORCH))

format: setup  ## format the C++ sources
	@tools/format.sh

lint: setup  ## check format, layers, SPDX lines and file lengths
	@tools/format.sh --check || test $$? -eq 77
	@python3 tools/check_layers.py

golden: setup  ## rewrite the expected outputs in tests/golden, README.md and docs; review the difference
	@cmake --preset dev > /dev/null
	@cmake --build --preset dev --target golden

clean:  ## remove the build folder
	@rm -rf build
