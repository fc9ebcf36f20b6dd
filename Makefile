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

# The demonstration: as many ranks as cores, 256 examples a step together; K-FAC and SGD each at its
# best rate of tools/convergence.py.
RANKS ?= $(shell cores=$$(nproc); echo $$((cores > 2 ? cores : 2)))
MPIRUN := mpirun $(if $(filter 0,$(shell id -u)),--allow-run-as-root) --oversubscribe --bind-to core:overload-allowed -n $(RANKS)
TRAIN := train --model cnn28 --data fashion-mnist --epochs 2 --eval-every 50 --threads 1 \
	--batch $(shell echo $$(((256 + $(RANKS) - 1) / $(RANKS))))
TRAIN_KFAC := $(TRAIN) --algorithm spd-kfac --lr 0.005
TRAIN_SGD := $(TRAIN) --algorithm sgd --lr 0.05

.PHONY: help setup test train simulate bench overlap reproduce convergence fuzz python format lint golden clean

help:  ## print this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup:  ## install the Debian packages and, in .venv, the Python packages that are missing
	@tools/setup.sh --torch

test: setup  ## build and run all tests, plain and under the sanitizers
	@start=$$SECONDS; \
	cmake --workflow --preset dev; \
	cmake --workflow --preset asan; \
	cmake --workflow --preset light; \
	count() { sed -nE "/^\s*$$2=\"([0-9]+)\".*/{s//\1/p;q}" build/$$1/tests.xml; }; \
	dev=$$(count dev tests); asan=$$(count asan tests); light=$$(count light tests); \
	skipped=$$(($$(count dev skipped) + $$(count asan skipped) + $$(count light skipped))); \
	echo "make test: $$((dev + asan + light)) tests without a failure ($$dev dev, $$asan asan, $$light light, $$skipped skipped) in $$((SECONDS - start)) s"

train: setup  ## train a small network on Fashion-MNIST on all cores, with K-FAC and with SGD, and compare
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target spdkfac
	@mkdir -p out && rm -f out/spd-kfac.jsonl out/sgd.jsonl
	@$(MPIRUN) build/release/bin/spdkfac $(TRAIN_KFAC) --metrics out/spd-kfac.jsonl
	@$(MPIRUN) build/release/bin/spdkfac $(TRAIN_SGD) --metrics out/sgd.jsonl
	@python3 tools/compare_training.py out/spd-kfac.jsonl out/sgd.jsonl

simulate:  ## predict one iteration of every model and algorithm of the paper (without LibTorch)
	@tools/setup.sh
	@cmake --preset light > /dev/null
	@cmake --build --preset light --target spdkfac
	@build/light/bin/spdkfac $(SIMULATE)

bench: setup  ## measure the planner, the simulator and a training step
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target planner_bench simulator_bench spdkfac
	@build/release/bin/planner_bench
	@build/release/bin/simulator_bench
	@build/release/bin/spdkfac bench step --model resnet18 --input 3x64x64 --batch 8
	@build/release/bin/spdkfac bench step --model resnet50 --width 0.25 --input 3x64x64 --batch 8

overlap: setup  ## iteration times of algorithms on a slow link (RATE=1gbit RANKS=4; needs root)
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target spdkfac
	@RANKS=4 tools/overlap.sh --algorithm d-kfac --algorithm mpd-kfac --algorithm spd-kfac --algorithm auto

reproduce: setup  ## every table and figure of the paper, simulated and measured, and a page of them
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target spdkfac
	@python3 tools/reproduce.py

convergence: setup  ## steps and seconds to 90 % with SGD, Adam and K-FAC, tuned alike (an hour)
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target spdkfac
	@python3 tools/convergence.py --out out/convergence.json

fuzz: setup  ## feed broken files to the readers for a minute (FUZZ_SECONDS=60 SEED=1)
	@cmake --preset asan > /dev/null
	@cmake --build --preset asan --target reader_fuzz
	@build/asan/bin/reader_fuzz --seconds $(FUZZ_SECONDS) --seed $(SEED)

python: setup  ## install the Python package in .venv, and time a step through it against the program
	@.venv/bin/pip install --quiet --disable-pip-version-check .
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target spdkfac
	@.venv/bin/python tools/python_overhead.py --program build/release/bin/spdkfac

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
