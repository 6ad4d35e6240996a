# Everything from a fresh checkout: `make demo` and `make test` set up what they need.
# Needed beforehand: Python 3.11 or newer, Rust (cargo with rustfmt and clippy), make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# maturin and PyO3 must take this environment's Python, whatever else is active in the shell.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PYO3_PYTHON := $(VIRTUAL_ENV)/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The bindings are loaded by Python, so that nothing here links libpython.
export PYO3_BUILD_EXTENSION_MODULE := 1
unexport CONDA_PREFIX
unexport PYTHONHOME

# Directories too: their time changes when a file is added or removed.
RUST_SOURCES := $(shell find crates -type d -o -name '*.rs' -o -name Cargo.toml) \
	Cargo.toml Cargo.lock pyproject.toml
# The compiled module lies in the source tree; a stamp alone would not notice that it is gone.
NATIVE_MISSING := $(if $(wildcard python/dataset_rt/_native*.so),,missing)

# The store that fails on purpose, for fault tests.
FEATURES := dataset_rt_storage/faults

DOCS := $(VENV)-docs/bin
# A notice about the future of MkDocs at every build: decision 0024 has it.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help demo test torch order-matrix build lint-rust test-rust conformance lint-python types test-python \
	fuzz bench bench-quick bench-scale bench-workers bench-micro format lock package licences \
	docs docs-serve clean missing
# The steps share one target directory and one screen.
.NOTPARALLEL:

help:
	@echo "make demo    build, then run examples/digits.py"
	@echo "make test    build, then run every check and test"
	@echo "make torch   PyTorch (5 GB) for the tests that need it; make test runs them from then on"
	@echo "make build   environment and compiled module only"
	@echo "make format  format Rust and Python"
	@echo "make conformance  two more Rust decoders read the golden caches"
	@echo "make docs    the documentation site in target/site, its links checked"
	@echo "make docs-serve  the same on a port of this machine, made anew at every change"
	@echo "make order-matrix  every way through PyTorch delivers one order, about 10 minutes"
	@echo "make fuzz    every fuzz target for FUZZ_SECONDS (60) each, two at a time"
	@echo "make bench   measure ourselves, the machine and the peers, about 28 minutes"
	@echo "make bench-quick  the same with a few samples, to see that it runs"
	@echo "make bench-scale  tables of 10^7 rows and thousands of files, about 10 minutes"
	@echo "make bench-workers  one CPU and two, and memory of loader processes, about 6 minutes"
	@echo "make bench-micro  single steps of ours, in Rust and under pytest-benchmark"
	@echo "make package wheel and source archive in dist/, tried in an empty environment"
	@echo "make licences  write anew what the wheel says of bundled crates"
	@echo "make lock    pin the newest dependencies in requirements/"
	@echo "make clean   remove environment and build output"

demo: build
	$(BIN)/python examples/digits.py

test: docs build lint-rust test-rust conformance fuzz lint-python types test-python
	@echo "All checks and tests passed."

build: $(VENV)/native.stamp

torch: $(VENV)/torch.stamp

$(VENV)/dependencies.stamp: requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	"Python 3.11 or newer is needed, found " + sys.version.split()[0] + \
	": say which with make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	@touch $@

$(VENV)/torch.stamp: requirements/torch.txt $(VENV)/dependencies.stamp
	$(BIN)/python -m pip install --quiet --requirement requirements/torch.txt
	@touch $@

$(VENV)/native.stamp: $(VENV)/dependencies.stamp $(RUST_SOURCES) $(NATIVE_MISSING)
	@command -v cargo >/dev/null || { echo "cargo is needed: install Rust first" >&2; exit 1; }
	@touch $@.begun # what changes during the build is newer than the stamp, and built next time
	$(BIN)/maturin develop --release --locked
	@mv $@.begun $@

lint-rust: $(VENV)/dependencies.stamp
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/engine/Cargo.toml --check
	cargo fmt --manifest-path conformance/Cargo.toml --check
	cargo clippy --locked --workspace --all-targets --features $(FEATURES) -- -D warnings
	$(BIN)/python packaging/third_party.py --check

test-rust: $(VENV)/dependencies.stamp
	cargo test --locked --workspace --features $(FEATURES)

# Decoders of other people read the golden caches. They have a lock file of their own.
conformance:
	cargo test --locked --manifest-path conformance/Cargo.toml --target-dir target/conformance

# Needs a C++ compiler besides, for libFuzzer.
fuzz:
	fuzz/run

lint-python: $(VENV)/dependencies.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: build
	$(BIN)/mypy
	$(BIN)/stubtest --mypy-config-file pyproject.toml dataset_rt._native

test-python: build
	@$(BIN)/python -c 'import torch' 2>/dev/null \
	|| echo "PyTorch is not importable: its tests are not run (make torch installs it, 5 GB)"
	$(BIN)/python -m pytest

# Faces x workers x start methods x ranks, and every place to resume at; the suite tries a part.
order-matrix: build torch
	$(BIN)/python tests/python/order_matrix.py $(METHODS)

# Unattended: what fails is reported and the rest goes on. Peers come with the first run.
bench: build
	$(BIN)/python -m benchmarks

bench-quick: build
	$(BIN)/python -m benchmarks --quick

# Rows and files at scale, about 10 minutes: the figures of docs/scale.md.
bench-scale: build
	$(BIN)/python -m benchmarks.scale

# One CPU against two, and the memory of DataLoader workers, where PyTorch is importable.
bench-workers: build
	$(BIN)/python -m benchmarks.workers

# Single steps, for comparing two builds: MICRO="--benchmark-save=NAME", "--benchmark-compare".
# Those of the crates run once with their tests, too.
bench-micro: build
	cargo bench --locked --benches -p dataset_rt_sampler -p dataset_rt_storage -p dataset_rt_validator
	$(BIN)/python -m pytest benchmarks/micro.py $(MICRO)

# Reads sources alone: neither Rust nor our environment is needed, 190 MB for its own. Seconds, so
# that `make test` has it: a link dies where a page is renamed, which may be in any change.
docs: $(VENV)-docs/docs.stamp
	$(DOCS)/mkdocs build --strict
	$(DOCS)/python website/check.py target/site

docs-serve: $(VENV)-docs/docs.stamp
	$(DOCS)/mkdocs serve --watch python --watch website

$(VENV)-docs/docs.stamp: requirements/docs.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(DOCS)/python -m pip install --quiet --requirement requirements/docs.txt
	@touch $@

format: $(VENV)/dependencies.stamp
	cargo fmt --all
	cargo fmt --manifest-path fuzz/engine/Cargo.toml
	cargo fmt --manifest-path conformance/Cargo.toml
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --requirement requirements/dev.in
	{ echo "# Made by 'make lock' from dev.in; do not edit."; \
	$(VENV)-lock/bin/python -m pip freeze; } > requirements/dev.txt
	$(VENV)-lock/bin/python -m pip install --quiet --requirement requirements/torch.in
	{ echo "# Made by 'make lock' from torch.in: what it needs beyond dev.txt; do not edit."; \
	$(VENV)-lock/bin/python -m pip freeze | grep -vxFf requirements/dev.txt; } \
	> requirements/torch.txt
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --requirement requirements/docs.in
	{ echo "# Made by 'make lock' from docs.in; do not edit."; \
	$(VENV)-lock/bin/python -m pip freeze; } > requirements/docs.txt
	rm -rf $(VENV)-lock

# The wheel is built from the source archive, so that both are known to build. Not --locked: cargo
# drops from the lock file what the archive leaves out, and keeps every other pin.
package: $(VENV)/dependencies.stamp
	rm -rf dist target/from-sdist && mkdir -p target/from-sdist
	$(BIN)/maturin sdist --out dist
	tar -xzf dist/dataset_rt-*.tar.gz -C target/from-sdist --strip-components 1
	cd target/from-sdist && $(CURDIR)/$(BIN)/maturin build --release --auditwheel check --out $(CURDIR)/dist
	$(BIN)/python packaging/try_wheel.py dist/*.whl
	@ls -l dist

licences:
	$(PYTHON) packaging/third_party.py > THIRD_PARTY_LICENSES

clean:
	cargo clean
	rm -rf $(VENV) $(VENV)-docs demo_output dist python/dataset_rt/_native*.so
