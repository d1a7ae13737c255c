# Each target makes its own .venv from constraints.txt when it is missing.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo evidence test slow release attack check site bench lock

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py --out build/demo

evidence: $(INSTALLED)
	$(BIN)/python benchmarks/evidence.py --out build/evidence

test: $(INSTALLED)
	$(BIN)/python -m pytest -q -n 2

slow: $(INSTALLED)
	$(BIN)/python -m pytest -q -m slow -n 2

release: $(INSTALLED)
	DEPENDENCIES=lowest $(BIN)/python -m pytest -q -m slow tests/end_to_end/test_release.py
	DEPENDENCIES=newest $(BIN)/python -m pytest -q -m slow tests/end_to_end/test_release.py

attack: $(INSTALLED)
	$(BIN)/python tests/attack/run.py --cases 2000 --out build/attack.json
	$(BIN)/python tests/attack/interrupt.py --cases 400 --out build/interruptions.json
	$(BIN)/python tests/attack/interrupt.py --cases 100 --processes 2 --out build/interruptions_of_two.json
	$(BIN)/python tests/attack/stale.py --cases 1000 --out build/stale.json
	$(BIN)/python tests/attack/interrupt_adapt.py --out build/adapt_interruptions.json

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

site: $(INSTALLED)
	$(BIN)/mkdocs build

bench: $(INSTALLED)
	$(BIN)/python benchmarks/collation.py
	$(BIN)/python benchmarks/corpora.py
	$(BIN)/python benchmarks/mining.py
	$(BIN)/python benchmarks/evaluation.py
	$(BIN)/python benchmarks/pretraining.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Refresh the lock from an environment in which the tests pass.
lock:
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' | grep -v '^-e' > constraints.txt
