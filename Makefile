# The two commands of the README: `make demo` and `make test`. Both set up what they need, once.
ENGINE ?= local
ENGINES ?= local,spark,ray
# The exact torch keeps pip from fetching a CUDA build; any version of pyproject.toml's range will do.
TORCH ?= torch==2.13.0
# Its own metadata pins numpy < 2, hence --no-deps; what it needs is in the extra.
MXNET := mxnet==1.9.1
ARGS ?=
# How many test processes run side by side, one more than there are cores, for most wait at times; 0: the one you see.
# A choice of tests (ARGS) is run in one.
JOBS ?= $(if $(ARGS),0,3)

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

DEMO_EXTRAS_local := demo
DEMO_EXTRAS_spark := demo,spark
DEMO_EXTRAS_ray := demo,ray
DEV_EXTRAS := torch,tensorflow,mxnet,openvino,onnx,int8,spark,ray,image,s3,dev

.PHONY: help demo test lint fmt bench kills dist extras horovod-tf docs clean

help:  ## what can be typed here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/'

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.demo-$(ENGINE): pyproject.toml | .venv/bin/python
	@echo "setting up for the demo on $(ENGINE) (once) ..."
	$(PIP) "$(TORCH)"
	$(PIP) -e ".[$(DEMO_EXTRAS_$(ENGINE))]"
	@touch $@

.venv/.dev: pyproject.toml scripts/horovod.sh | .venv/bin/python
	@echo "setting up everything the tests need (once, a few minutes) ..."
	$(PIP) "$(TORCH)"
	$(PIP) -e ".[$(DEV_EXTRAS)]"
	$(PIP) --no-deps $(MXNET)
	./scripts/horovod.sh $(BIN)/python
	@touch $@ .venv/.demo-local .venv/.demo-spark .venv/.demo-ray .venv/.docs

.venv/.bench: pyproject.toml .venv/.dev
	$(PIP) -e ".[bench]"
	@touch $@

.venv/.docs: pyproject.toml | .venv/bin/python
	@echo "setting up for the docs (once) ..."
	$(PIP) -e ".[docs]"
	@touch $@

demo: .venv/.demo-$(ENGINE)  ## the main job, on ENGINE=local (default), spark or ray
	$(BIN)/orca demo --engine $(ENGINE)

# Spark starts in half the time with it, and without it too: hence the dash.
.venv/.spark-archive: .venv/.dev tests/spark_archive.py
	-$(BIN)/python tests/spark_archive.py
	@touch $@

# Compiled first: where PYTHONDONTWRITEBYTECODE is set, each of a thousand processes would do it by itself.
test: .venv/.dev .venv/.spark-archive  ## every test, on every engine
	$(BIN)/ruff check src tests examples benchmarks docs scripts
	$(BIN)/mypy
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest --engines=$(ENGINES) -n $(JOBS) --durations=20 $(ARGS)

lint: .venv/.dev  ## ruff and mypy
	$(BIN)/ruff check src tests examples benchmarks docs scripts
	$(BIN)/ruff format --check src tests examples benchmarks docs scripts
	$(BIN)/mypy

fmt: .venv/.dev  ## put the code in shape
	$(BIN)/ruff check --fix src tests examples benchmarks docs scripts
	$(BIN)/ruff format src tests examples benchmarks docs scripts

docs: .venv/.docs  ## the docs site, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

bench: .venv/.bench  ## us, the peers and the limit, side by side
	$(BIN)/orca bench $(ARGS)

kills: .venv/.dev  ## kill 100 workers on each engine, and compare weights and figures to the bit (about half an hour)
	$(BIN)/python -m benchmarks.kills $(ARGS)

dist: .venv/.dev  ## the wheel and the source package, in dist/
	rm -rf dist
	$(BIN)/python -m build

extras: .venv/.dev  ## build the wheel and try every extra alone in an empty environment (about 20 minutes), or ARGS="torch ray"
	$(BIN)/python scripts/extras.py --torch "$(TORCH)" $(ARGS)

horovod-tf: .venv/.dev  ## Horovod for TensorFlow too, for creators that use it themselves (once, about 10 minutes)
	./scripts/horovod.sh $(BIN)/python tensorflow

clean:  ## remove what was installed and made
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist src/*.egg-info site demo-output
