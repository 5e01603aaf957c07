# Each target first makes the environment it needs. `make help` lists the targets.
# For another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
PYTHON312 ?= python3.12
FREETHREADED ?=
ARGS ?=

BIN := .venv/bin
CHECK_VERSION := import sys; sys.exit(sys.version_info < (3, 11) and "bags needs Python 3.11 or newer: make PYTHON=…")
# Quiet, except for errors.
PIP := -m pip install -qq --disable-pip-version-check --no-input
# tests/durability records what a process writes.
STRACE := [ "$$(uname)" != Linux ] || command -v strace > /dev/null || tools/debian-packages strace
# tests/cloud/test_cache_server.py, which is skipped without it.
NGINX := command -v nginx > /dev/null || [ -x /usr/sbin/nginx ] || [ "$$(id -u)" -ne 0 ] || tools/debian-packages nginx-light || true

# Of `make test` and `make slow`: one more than cores, as some tests wait for processes and servers.
CORES := getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0)
WORKERS = $(shell $(BIN)/python -c 'import os; print(min(8, len($(CORES)) + 1))')

# Tests start many processes, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help test pytest lint format slow campaigns demo bench bench-remote bench-tables docs flows layers notebooks pictures test-adapters test-lerobot test-lerobot-0.6 test-megatron test-oldest test-cloud test-systems test-freethreaded fuzz viewer test-viewer dist clean

help: ## lists the targets
	@grep -hE '^[a-z0-9.-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{printf "make %-18s %s\n", $$1, $$2}'

# At the same time: mypy uses one core.
test: .venv/ready ## ruff, mypy, and the tests with every example in the docs (ARGS='-k limits' selects tests)
	@$(MAKE) --no-print-directory -j 2 lint pytest

pytest: .venv/ready
	@$(STRACE)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

lint: .venv/ready ## ruff and mypy --strict
	$(BIN)/ruff check --quiet --output-format concise
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy --no-error-summary

format: .venv/ready ## formats the code
	$(BIN)/ruff check --quiet --fix
	$(BIN)/ruff format --quiet

slow: .venv/ready ## the tests marked slow, which CI runs too
	@$(STRACE)
	$(BIN)/pytest -n $(WORKERS) -m 'slow and not campaign' $(ARGS)

campaigns: .venv/ready ## the tests marked campaign, which take minutes each; as root, also power cuts of file systems
	@$(STRACE)
	@[ "$$(id -u)" -ne 0 ] || tools/debian-packages e2fsprogs xfsprogs || true
	$(BIN)/pytest -n auto --maxprocesses 8 -m campaign -o faulthandler_timeout=7200 $(ARGS)

fuzz: .venv-fuzz/ready ## coverage-guided fuzzing of parsers of bytes (ARGS='--executions 100000 refs')
	.venv-fuzz/bin/python -m tests.fuzz $(ARGS)

# The tests of local files over object stores, except for what only local files can do; then tests/cloud. Two pairs of
# a store and a client run all of them, the other two pairs a part.
CLOUD = $(shell $(BIN)/python -c 'from tests.cloud.local_only import FILES; print(*FILES)')
CLOUD_PART = $(shell $(BIN)/python -c 'from tests.cloud.local_only import PART; print(*PART)')
test-cloud: .venv/ready ## the tests of bags and datasets with an S3 and a GCS server, through obstore and fsspec
	@$(NGINX)
	for storage in s3-obstore gs-fsspec; do \
	  $(BIN)/pytest -q -n auto --maxprocesses 8 -m 'not campaign' --storage $$storage $(CLOUD) $(ARGS) || exit 1; done
	for storage in s3-fsspec gs-obstore; do \
	  $(BIN)/pytest -q -n auto --maxprocesses 8 -m 'not campaign' --storage $$storage $(CLOUD_PART) $(ARGS) || exit 1; done
	$(BIN)/pytest -n auto --maxprocesses 8 -m 'not campaign' tests/cloud $(ARGS)

test-systems: .venv/ready ## tests of bags, datasets and storage, with what Windows and macOS have
	for system in windows macos; do \
	  $(BIN)/python -m pytest -q -n auto --maxprocesses 8 -p tests.systems.$$system tests/bag tests/dataset tests/storage $(ARGS) || exit 1; done

demo: .venv-demo/ready ## writes and reads a small dataset of real media, and draws out/contact-sheet.png
	@echo 'running examples/demo.py'
	@.venv-demo/bin/python examples/demo.py

bench: .venv-bench/ready ## measures bags beside its peers (ARGS=--quick); see benchmarks/README.md
	.venv-bench/bin/python -m benchmarks $(ARGS)

bench-remote: .venv-bench/ready ## measures object stores, beside MosaicML Streaming, LitData and WebDataset; needs nginx, installs 3 GB
	.venv-bench/bin/python $(PIP) -r benchmarks/requirements-remote.txt -r benchmarks/requirements-mosaic.txt
	.venv-bench/bin/python $(PIP) --no-deps mosaicml-streaming
	.venv-bench/bin/python -m benchmarks --only remote $(ARGS)

bench-tables: ## writes the tables and charts of README and docs/performance.md from benchmarks/results
	$(PYTHON) -m benchmarks.render

# Each file runs in its own process: PyTorch forks, which Grain's threads do not survive.
test-adapters: .venv-adapters/ready ## the tests of datasets with PyTorch, Grain, JAX, Beam and Ray; installs 2 GB first
	.venv-adapters/bin/python -m pytest -n 2 --dist loadfile tests/adapters $(ARGS)

test-lerobot: .venv-adapters/ready ## the tests of bags.lerobot beside LeRobot 0.4.4; installs 2 GB first
	.venv-adapters/bin/python -m pytest -n 2 --dist loadfile -m 'not campaign' tests/lerobot $(ARGS)

test-lerobot-0.6: .venv-lerobot-0.6/ready ## the same beside LeRobot 0.6.1, with PYTHON312 (python3.12); installs 5 GB first
	.venv-lerobot-0.6/bin/python -m pytest -n 2 --dist loadfile -m 'not campaign' tests/lerobot $(ARGS)

test-megatron: .venv-megatron/ready ## the tests of token files beside Megatron-Core; installs PyTorch first, 1 GB
	.venv-megatron/bin/python -m pytest -n 2 -m 'not campaign' tests/megatron $(ARGS)

# LeRobot asks for both.
test-oldest: .venv-adapters/ready ## the tests of media, formats and pushes with the oldest PyAV and huggingface_hub that are supported
	.venv-adapters/bin/python -m pytest -n auto --maxprocesses 8 -m 'not campaign' tests/media tests/formats tests/interop/hub/test_push.py $(ARGS)

# Without the formats, which use no threads, and what needs packages that have no wheels for it, such as PyAV.
test-freethreaded: .venv-freethreaded/ready ## the tests on CPython 3.13t, which is built first (FREETHREADED=path uses another)
	env -u PYTHON_GIL .venv-freethreaded/bin/python -m pytest -n auto --maxprocesses 8 -m 'not campaign' tests/arrow tests/authoring tests/bag \
	  tests/dataset tests/display tests/keys tests/loader tests/maintenance tests/samplers tests/storage tests/views/windows tests/workers tests/test_concurrency.py $(ARGS)

notebooks: .venv/ready ## runs the notebooks of the documentation and stores their outputs
	$(BIN)/python tools/run-notebooks $(ARGS)

pictures: .venv/ready viewer ## takes the pictures of the documentation in Chromium: docs/assets
	@test -x "$${CHROMIUM:-/usr/bin/chromium}" || tools/debian-packages chromium
	$(BIN)/python tools/pictures

viewer: viewer/node_modules/ready ## builds the page of `bags view` into bags/viewer/static; needs Node.js 20
	@cd viewer && npm run --silent build -- --logLevel warn

test-viewer: .venv/ready viewer ## the tests of the page in Chromium, which Debian's package installs (CHROMIUM=path uses another)
	@test -x "$${CHROMIUM:-/usr/bin/chromium}" || tools/debian-packages chromium
	@cd viewer && PYTHON="$(CURDIR)/$(BIN)/python" npm test --silent -- $(ARGS)

dist: .venv/ready viewer ## builds the sdist and the wheel into dist, and checks both as a user gets them
	@rm -rf dist
	@said=$$($(BIN)/python -m build 2>&1) || { echo "$$said"; exit 1; }
	@$(BIN)/python tools/check-dist

viewer/node_modules/ready: viewer/package-lock.json
	@node -e "const [major, minor] = process.versions.node.split('.'); process.exit(major > 20 || major == 20 && minor >= 19 ? 0 : 1)" \
	  || { echo 'the viewer needs Node.js 20.19 or newer, with npm'; exit 1; }
	@echo 'installing the packages of the viewer'
	@cd viewer && npm ci --loglevel error --no-audit --no-fund
	@touch $@

docs: .venv-docs/ready ## builds the documentation site in out/site; a warning, such as of a dead link, is an error
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

flows: .venv/ready ## counts the functions that one read, batch or append passes (ARGS='--trace append')
	$(BIN)/python tools/flows $(ARGS)

layers: .venv/ready ## writes the packages and modules into CONTRIBUTING.md
	$(BIN)/python -m tests.test_contributing

clean: ## removes environments, caches and outputs
	rm -rf .venv .venv-adapters .venv-bench .venv-demo .venv-docs .venv-freethreaded .venv-fuzz .venv-lerobot-0.6 .venv-megatron .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist out
	rm -rf viewer/node_modules viewer/tests/out bags/viewer/static
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# An environment is rebuilt when pyproject.toml changes; the file `ready` marks it as complete.
.venv/ready: pyproject.toml
	@$(PYTHON) -c '$(CHECK_VERSION)'
	@echo 'making .venv'
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python $(PIP) -e '.[dev]'
	@$(BIN)/python $(PIP) --no-deps --target .venv/bags-0.5.1 bags==0.5.1
	@touch $@

.venv-demo/ready: pyproject.toml
	@$(PYTHON) -c '$(CHECK_VERSION)'
	@echo 'making .venv-demo'
	@$(PYTHON) -m venv --clear .venv-demo
	@echo 'installing bags with the extras images and video into it'
	@.venv-demo/bin/python $(PIP) -e '.[images,video]'
	@touch $@

.venv-bench/ready: pyproject.toml benchmarks/requirements.txt
	@echo 'making .venv-bench'
	@$(PYTHON) -m venv --clear .venv-bench
	@.venv-bench/bin/python $(PIP) -e '.[images,video]' -r benchmarks/requirements.txt
	@touch $@

.venv-adapters/ready: pyproject.toml tests/adapters/requirements.txt tests/lerobot/requirements.txt
	@echo 'making .venv-adapters'
	@$(PYTHON) -m venv --clear .venv-adapters
	@.venv-adapters/bin/python $(PIP) -e '.[images,video,hf]' -r tests/adapters/requirements.txt -r tests/lerobot/requirements.txt
	@.venv-adapters/bin/python $(PIP) --no-deps lerobot==0.4.4 torchvision==0.25.0 diffusers==0.35.2
	@rm -rf .venv-adapters/lib/python*/site-packages/tests  # Of draccus: it would be imported instead of these tests.
	@touch $@

.venv-lerobot-0.6/ready: pyproject.toml tests/lerobot/requirements-0.6.txt
	@echo 'making .venv-lerobot-0.6'
	@$(PYTHON312) -m venv --clear .venv-lerobot-0.6
	@.venv-lerobot-0.6/bin/python $(PIP) -e '.[images,video,hf]' -r tests/lerobot/requirements-0.6.txt
	@rm -rf .venv-lerobot-0.6/lib/python*/site-packages/tests  # As above.
	@touch $@

# Without its dependencies, such as Transformer Engine: its index files need PyTorch alone.
.venv-megatron/ready: pyproject.toml tests/megatron/requirements.txt
	@echo 'making .venv-megatron'
	@$(PYTHON) -m venv --clear .venv-megatron
	@.venv-megatron/bin/python $(PIP) -e . -r tests/megatron/requirements.txt
	@.venv-megatron/bin/python $(PIP) --no-deps megatron-core==0.16.1
	@touch $@

.venv-fuzz/ready: pyproject.toml
	@echo 'making .venv-fuzz'
	@$(PYTHON) -m venv --clear .venv-fuzz
	@.venv-fuzz/bin/python $(PIP) -e '.[arrow,images,video]' atheris
	@touch $@

.venv-docs/ready: docs/requirements.txt
	@echo 'making .venv-docs'
	@$(PYTHON) -m venv --clear .venv-docs
	@.venv-docs/bin/python $(PIP) -r docs/requirements.txt
	@touch $@

# msgpack and zstandard have no wheels for 3.13t and are compiled in about a minute. The newest Pillow, av,
# Hypothesis and pydantic-core (of typer) have none either; older versions with wheels are installed.
.venv-freethreaded/ready: pyproject.toml
	@echo 'making .venv-freethreaded'
	@python="$(FREETHREADED)"; python="$${python:-$$(tools/build-python-freethreaded)}" && \
	  "$$python" -m venv --clear .venv-freethreaded
	@.venv-freethreaded/bin/python $(PIP) --only-binary numpy,pillow,hypothesis,pydantic-core \
	  -e . pillow pytest pytest-xdist hypothesis
	@touch $@
