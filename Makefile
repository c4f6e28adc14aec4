# Every target works from a bare clone with Python 3.11 or newer and make; everything is installed into .venv.
PYTHON ?= python3
# Where torch comes from: the address of one of PyTorch's own package indexes, for a CPU build or for a given version of
# CUDA. Empty: from where pip gets everything else, which is a CUDA build on Linux, a CPU build on macOS and Windows.
TORCH_INDEX ?=
TORCH := torch $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
BIN    := .venv/bin
EXTRAS := fast,hf,science,heic,onnx,tracking,wandb,search,cluster,remote

.PHONY: help setup lint format test test-tv test-all mutants demo bench docs release clean
help:            ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

# The stamp is newer than what decides its content, so that a second call costs nothing.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]' \
	  pytest pytest-timeout pytest-xdist hypothesis ruff mypy faiss-cpu playwright coverage torchdiffeq hatchling nbclient ipykernel
	touch $@

setup: .venv/.installed            ## create .venv with every extra except timm

lint: setup      ## ruff (format and rules) and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup    ## rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# One test process per core, one thread each: half the time of one process with two threads.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

test: setup      ## the fast tests
	$(PYTEST)

# torchvision's wheel does not import beside a CPU-only torch, and breaks others while it is installed: hence apart.
.venv-tv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-tv
	.venv-tv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt $(TORCH)
	.venv-tv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e . \
	  pytest pytest-timeout pyyaml huggingface_hub
	.venv-tv/bin/pip install --quiet --disable-pip-version-check --no-deps torchvision==0.28.0 timm==1.0.30
	touch $@

test-tv: .venv-tv/.installed  ## the tests against timm and torchvision, in an environment of their own
	.venv-tv/bin/python -m pytest tests/tv

test-all: setup test-tv  ## every test, the slow tier included
	$(PYTEST) -m "slow or not slow"

mutants: setup   ## change the source in small ways and ask whether a test notices: the better part of an hour
	OMP_NUM_THREADS=1 PYTHONPATH=tools $(BIN)/python -m mutants $(MUTANTS)

demo: setup      ## pretrain a plain and a faded encoder on drawn images and compare them; first says how long
	$(BIN)/echoless demo --out runs/demo

bench: setup     ## the side-by-side measurements; each prints a ratio and writes JSON
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

.venv/.docs: .venv/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt mkdocs-material 'mkdocstrings[python]'
	touch $@

docs: .venv/.docs  ## the site, in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m pytest -n0 tests/test_docs.py

release:         ## the package in dist/, checked, installed into an empty environment and tried there
	rm -rf dist .venv-release
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/pip install --quiet --disable-pip-version-check -c constraints.txt build twine 'readme_renderer[md]'
	.venv-release/bin/python -m build
	.venv-release/bin/twine check --strict dist/*
	.venv-release/bin/pip install --quiet --disable-pip-version-check -c constraints.txt $(TORCH)
	.venv-release/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	.venv-release/bin/echoless doctor
	cd .venv-release && bin/echoless pretrain shapes:64 --out try --recipe demo --max-steps 2

clean:           ## remove the environment and every cache
	rm -rf build dist .venv .venv-tv .venv-release .mypy_cache .ruff_cache .pytest_cache .hypothesis .mutants
