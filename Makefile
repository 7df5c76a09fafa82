# Every target works on a machine that has only Python (>= 3.11) and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-extras test-trainers chromium notebooks fuzz coverage lint figures docs bench attack mutants clean

demo: $(VENV)/.core
	$(BIN)/trm-bounds certify --mask 'seq_max_k2<=0.05'

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal
	$(BIN)/python -m pytest -n 2 --dist worksteal -p nbmake.pytest_plugin --nbmake --nbmake-timeout=300 notebooks

test-extras: $(VENV)/.extras chromium
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/extras

# the hook inside TRL and a real vLLM: by hand, since it installs 4 GB; docs/trainers.md has the dates
test-trainers: $(VENV)/.extras
	tests/trainers/run.sh
	$(BIN)/python -m pytest tests/extras/test_trainers.py

notebooks: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --editable '.[notebooks]'
	$(BIN)/jupyter lab notebooks

fuzz: $(VENV)/.extras
	$(BIN)/python tests/fuzz_readers.py 10000

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

figures: $(VENV)/.core
	$(BIN)/trm-bounds figures --out figures

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -b html -W --keep-going -D nb_execution_mode=force -c docs . docs/_build/html

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/bench.py

coverage: $(VENV)/.core
	$(BIN)/python tests/coverage_study.py
	$(BIN)/python tests/coverage_certificates.py
	$(BIN)/python tests/coverage_plan.py

attack: $(VENV)/.core
	$(BIN)/python tests/attack.py

mutants: $(VENV)/.dev
	$(BIN)/python tests/mutants.py

clean:
	rm -rf $(VENV) .trainers build dist docs/_build *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.core: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.core

# torch and transformers are pinned, so that every machine tests the same release
$(VENV)/.extras: pyproject.toml tests/trainers/others.txt $(VENV)/.dev
	$(BIN)/python -m pip install --quiet torch==2.13.0 safetensors transformers==5.24.0
	$(BIN)/python -m pip install --quiet --editable '.[dev,torch,ray,browser,loggers]'
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(VENV)/trainers -r tests/trainers/others.txt
	touch $@

# the report page is looked at by a real browser; where there is none and apt cannot bring it, its tests fail and say so
chromium:
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || test -n "$$CHROMIUM" \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } > /dev/null \
	  || echo 'no Chromium: install it (Debian: apt-get install chromium), or set CHROMIUM to one' >&2
