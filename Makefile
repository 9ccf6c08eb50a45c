# Every command makes .venv first, where it is missing or older than what it is made from.
#   make fuzz TARGET=layernorm_bw ARGS="--seconds 60"
VENV := .venv
STAMP := $(VENV)/.installed
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --quiet
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))
PYTHON ?= $(shell for name in python3.11 python3.12 python3; do \
	"$$name" -c '$(FITS)' >/dev/null 2>&1 && echo "$$name" && break; done)
# A new Python, or none, behind the links in .venv makes it out of date.
BROKEN := $(if $(wildcard $(VENV)/bin/python),,FORCE)

.PHONY: fuzz test lint replay list bench bench-cold bench-interpreter bench-waves bench-checks bench-growth bench-gpu planted-gpu history archaeology random-kernels libraries triton-tests tutorials scoreboard mutations honest gpuemu versions campaign faults attacks self-fuzz overrun soak cluster cluster-gpu needles findings peers referee referee-set referee-scripts FORCE
.DEFAULT_GOAL := list

fuzz: $(if $(TARGET),$(STAMP))
	@$(if $(TARGET),,$(error name a target, such as make fuzz TARGET=layernorm_bw; make list shows all))
	@$(VENV)/bin/fuzz run $(TARGET) $(ARGS)

# Tests wait for processes and deadlines too: two workers more than there are processors. Each of them imports every test,
# and hundreds of processes the same modules: with PYTHONDONTWRITEBYTECODE each would compile them again.
test: $(STAMP)
	@PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -q --numprocesses $$(( $$(nproc) + 2 )) --dist loadfile --no-loadscope-reorder --max-worker-restart 1 $(ARGS)

lint: $(STAMP)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy --strict fuzz

# The entries in corpus are of published libraries.
replay: $(if $(ARGS),$(STAMP),$(VENV)/.libraries)
	@$(VENV)/bin/fuzz replay $(or $(ARGS),corpus)

list: $(STAMP)
	@$(VENV)/bin/fuzz list $(ARGS)

# The figures of docs/benchmarks.md one after the other, but for the needles: 70 minutes.
bench: $(STAMP)
	@$(MAKE) -j1 --no-print-directory bench-interpreter bench-checks ARGS=
	@$(MAKE) --no-print-directory bench-waves ARGS="--plans 40 --seconds 10"
	@$(MAKE) --no-print-directory peers ARGS="--seconds 10 --write docs/benchmarks.md"
	@$(MAKE) --no-print-directory bench-growth ARGS=

# The cpu backend against Triton's interpreter.
bench-interpreter: $(STAMP)
	@$(VENV)/bin/python benchmarks/interpreter.py

# What the first launch of a kernel costs, by the way to compile: make bench-cold ARGS="layernorm_bw liger_jsd"
bench-cold: $(STAMP)
	@$(VENV)/bin/python -m benchmarks.cold $(ARGS)

# Cases a second in waves, one at a time and by hand: make bench-waves ARGS="--target gelu_bw"
bench-waves: $(STAMP)
	@$(VENV)/bin/python -m benchmarks.waves $(ARGS)

bench-checks: $(STAMP)
	@$(VENV)/bin/python benchmarks/checks.py $(ARGS)

# A run of 20 minutes, cases of many sizes, and runs beside 10,000 known findings.
bench-growth: $(STAMP)
	@$(VENV)/bin/python -m benchmarks.growth --plot docs/growth.svg $(ARGS)

# The cpu backend against numpy: make random-kernels ARGS="--seconds 600 --seed 1"
random-kernels: $(STAMP)
	@$(VENV)/bin/python -m benchmarks.random_kernels $(ARGS)

# Published libraries through their own launchers; the table goes into the document.
libraries: $(VENV)/.libraries
	@$(VENV)/bin/python -m benchmarks.libraries $(ARGS) --write docs/cpu-backend.md

$(VENV)/.libraries: $(STAMP)
	@$(PIP) install -c constraints.txt -e '.[libraries]' --no-build-isolation
	@touch $@

# Bugs of real releases, found again; wheels and measurements are kept in .history.
history: $(VENV)/.libraries
	@$(VENV)/bin/python -m benchmarks.history $(ARGS) --write docs/history.md

# Every release of the libraries against the targets, hours on 2 cores; what is done stays in .archaeology.
archaeology: $(VENV)/.libraries
	@$(VENV)/bin/python -m benchmarks.archaeology --releases liger-kernel --targets targets/liger --stand-in peft --stand-in transformers --out .archaeology/liger --write docs/archaeology.md $(ARGS)
	@$(VENV)/bin/python -m benchmarks.archaeology --releases flash-linear-attention --releases fla-core --targets targets/fla --stand-in transformers --stand-in fla.models --stand-in fla.layers --out .archaeology/fla --write docs/archaeology.md $(ARGS)

# Triton's own tests of its language, from SOURCE=DIR or a clone at COMMIT: make triton-tests ARGS="--sample 1500 --seed 1"
TRITON_REPOSITORY = https://github.com/intel/intel-xpu-backend-for-triton
triton-tests: $(VENV)/.triton-tests
	@$(if $(SOURCE),,test -d .triton-tests/checkout || git clone -q --filter=blob:none --no-checkout $(TRITON_REPOSITORY) .triton-tests/checkout)
	@$(if $(SOURCE),,git -C .triton-tests/checkout checkout -q $(or $(COMMIT),2a41426da6))
	@$(VENV)/bin/python -m benchmarks.triton_tests --source "$(or $(SOURCE),.triton-tests/checkout)" --write docs/cpu-backend.md $(ARGS)

# Triton's tutorials, from the same checkout: make tutorials SOURCE=DIR ARGS="--work inf 06 09"
tutorials: $(VENV)/.triton-tests
	@$(if $(SOURCE),,$(error name a checkout of Triton, such as make tutorials SOURCE=.triton-tests/checkout))
	@$(VENV)/bin/python -m benchmarks.tutorials --source "$(SOURCE)" --write docs/cpu-backend.md $(ARGS)

# Some of these tests compare with scipy; tutorials print tables.
$(VENV)/.triton-tests: $(STAMP)
	@$(PIP) install scipy pandas tabulate
	@touch $@

# The tests of the cpu backend under every Triton it is for, each in an environment of its own.
versions:
	@"$(PYTHON)" benchmarks/versions.py $(ARGS)

# Rare situations that each engine is to find; runs that are done are kept in .needles.
needles: $(VENV)/.atheris
	@$(VENV)/bin/python -m benchmarks.needles $(ARGS)

# The same bugs by other tools.
peers: $(VENV)/.atheris
	@$(VENV)/bin/python -m benchmarks.peers $(ARGS)

$(VENV)/.atheris: $(STAMP)
	@$(PIP) install -c constraints.txt -e '.[atheris]' --no-build-isolation
	@touch $@

# Good kernels by other hands; what is measured is kept in .honest: make honest ARGS="--set torch --cases 64"
honest: $(VENV)/.honest
	@$(VENV)/bin/python -m benchmarks.honest $(ARGS) --write docs/honest.md

# The public corpus of gpuemu, cloned or from SOURCE=DIR: 10 bugs and 16 controls.
gpuemu: $(VENV)/.libraries
	@$(if $(SOURCE),,test -d .honest/gpuemu || git clone -q --depth 1 https://github.com/sarkar-dipankar/gpuemu-corpus .honest/gpuemu)
	@GPUEMU="$(or $(SOURCE),.honest/gpuemu)" $(VENV)/bin/python -m benchmarks.honest --set gpuemu --cases 300 --seconds 60 --write docs/honest.md $(ARGS)

# FlagGems pins other versions of what it needs than those that are installed here.
$(VENV)/.honest: $(VENV)/.libraries
	@$(PIP) install -c constraints.txt sqlalchemy PyYAML
	@$(PIP) install --no-deps conch-triton-kernels==1.3 expecttest==0.3.0 flag_gems==5.0.2
	@touch $@

# `fuzz judge` on published problems, cloned or from SOURCE=DIR; what is measured is kept in .referee. Hours.
referee: $(STAMP)
	@$(VENV)/bin/python -m benchmarks.referee $(if $(SOURCE),--source "$(SOURCE)") --write docs/judge.md $(ARGS)

# `fuzz judge` and published rules on 10 problems with 48 wrong and 40 right solutions; goes on where it was interrupted.
referee-set: $(STAMP)
	@$(VENV)/bin/python -m benchmarks.referee_set --write docs/judge.md $(ARGS)

# `fuzz judge script` on the programs of TritonBench_G: make referee-scripts ARGS="--jobs 16 --out DIR"
referee-scripts: $(STAMP)
	@$(VENV)/bin/python -m benchmarks.referee_scripts $(if $(SOURCE),--source "$(SOURCE)") --write docs/judge.md $(ARGS)

# One-place mutants of twenty good kernels, a minute each; what is measured is kept in .mutations.
mutations: $(VENV)/.libraries
	@$(VENV)/bin/python -m benchmarks.mutations $(ARGS) --write docs/mutations.md

# Severities of the open entries in docs/findings.md: ARGS=--grade grades those that have none.
findings: $(VENV)/.libraries
	@$(VENV)/bin/python -m benchmarks.findings $(ARGS)

# Acceptance rules against planted bugs and the honest set; what is measured is kept in .scoreboard.
scoreboard: $(VENV)/.honest
	@$(VENV)/bin/python -m benchmarks.scoreboard $(ARGS)

# Many targets, many workers: make campaign CONFIG=configs/nightly.yaml ARGS=--resume
campaign: $(STAMP)
	@$(VENV)/bin/fuzz campaign $(or $(CONFIG),configs/smoke.yaml) $(ARGS)

# What breaks a campaign, and what it costs: 100 kills take about half an hour. The table goes into the document.
faults: $(STAMP)
	@$(VENV)/bin/python benchmarks/reliability/faults.py --write docs/reliability.md $(ARGS)
	@$(if $(ARGS),,$(VENV)/bin/python benchmarks/reliability/write_kills.py --times 50)
	@$(if $(ARGS),,$(VENV)/bin/python benchmarks/reliability/write_kills.py --times 50 --postgres)
	@$(VENV)/bin/python benchmarks/reliability/hostile_entries.py --write docs/reliability.md

# Attacks on every surface, each with what it means to hold: make attacks ARGS="--only service --jobs 4"
attacks: $(STAMP)
	@$(VENV)/bin/python -m benchmarks.attacks --write docs/reliability.md $(ARGS)

# By how much 40 runs exceed their --seconds beside other work: half an hour. The table goes into the document.
overrun: $(STAMP)
	@$(VENV)/bin/python benchmarks/reliability/overrun.py --write docs/reliability.md $(ARGS)

# What this program reads, fuzzed by coverage: make self-fuzz ARGS="--seconds 3600 --surface codec"
self-fuzz: $(VENV)/.atheris
	@$(VENV)/bin/python -m benchmarks.self_fuzz $(ARGS)

# As many cases as asked for, and heartbeats of simulated hours: make soak ARGS="--cases 1000000"
soak: $(STAMP)
	@$(VENV)/bin/python benchmarks/reliability/soak.py --write docs/reliability.md $(ARGS)

# Campaigns and batches of `fuzz judge` on a Ray cluster: two nodes of this machine, of which one is killed.
cluster: $(VENV)/.ray
	@$(VENV)/bin/python -m pytest -q -n 0 tests/campaign/hosts/test_ray_process.py tests/campaign/hosts/test_ray_judges.py $(ARGS)

$(VENV)/.ray: $(STAMP)
	@$(PIP) install -c constraints.txt -e '.[ray]' --no-build-isolation
	@touch $@

# Ray workers on 1, 2, 4 and 8 GPUs: make cluster-gpu ARGS="--gpus 1 2 --seconds 60"
cluster-gpu:
	@PYTHONPATH="$$PYTHONPATH$${PYTHONPATH:+:}$(CURDIR)" python3 benchmarks/reliability/cluster.py $(ARGS)

# On a GPU machine the packages are those of its own Python. One process, then four by turns and side by side; sweeps.
GPU_WAVES = python3 -m benchmarks.waves --backend cuda --replicas 2048 --elements 2097152 --plans 24 --shapes mixed
bench-gpu:
	@$(GPU_WAVES) --seconds 8
	@$(GPU_WAVES) --seconds 8 --processes 4
	@$(GPU_WAVES) --seconds 8 --processes 4 --mps
	@python3 benchmarks/exhaustive_sweeps.py

# Every planted bug, found on a GPU.
planted-gpu:
	@python3 benchmarks/planted.py $(or $(ARGS),gpu-planted --backend cuda --max-findings 1)

$(STAMP): pyproject.toml setup.py constraints.txt $(BROKEN) | $(VENV)/bin/python
	@echo "installing into $(VENV); the first time this takes minutes" >&2
	@$(PIP) install -c constraints.txt setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev,plots,service]'
# Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each process would compile every module again.
	@$(VENV)/bin/python -m compileall -q fuzz targets
	@touch $@

RUNS = $(shell "$(PYTHON)" -c $(1) 2>/dev/null && echo yes)
NUMBER = $(shell "$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

$(VENV)/bin/python:
	@$(if $(PYTHON),,$(error Python 3.11 or 3.12 is needed: apt-get install python3.11 python3.11-venv))
	@$(if $(call RUNS,'$(FITS)'),,$(error $(PYTHON) is not Python 3.11 or 3.12))
	@$(if $(call RUNS,'import ensurepip; import venv'),,$(error $(PYTHON) cannot make $(VENV): apt-get install python$(NUMBER)-venv))
	@"$(PYTHON)" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
