# make run: set up and run the main job · make test: set up and test · make setup: set up only
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test test-slow lint setup clean
.DEFAULT_GOAL := run

RUN := outputs/racing_$(shell date +%Y%m%d_%H%M%S)

run: setup
	@echo "== Ten racing teams keep their logs (made on first use) and learn to drive together: three to four minutes"
	$(BIN)/python scripts/run_fed.py --out $(RUN)/federated
	@echo "== The floor: every team for itself"
	$(BIN)/python scripts/run_fed.py --fed local --out $(RUN)/local eval.every=15
	@echo "== The oracle: all logs in one place"
	$(BIN)/python scripts/run_centralized.py --out $(RUN)/centralised
	@echo "== What federation costs and buys"
	$(BIN)/python scripts/analyze.py $(RUN) --target 75 --out $(RUN)/curves.png
	$(BIN)/python scripts/evaluate.py $(RUN)/federated --episodes 5 --picture $(RUN)/laps.png
	@echo "== More to try: source .venv/bin/activate, then README.md, 'What one types'"

test: setup lint
	@echo "== Tests (a few minutes)"
	$(BIN)/python -m pytest -m "not slow"

test-slow: setup
	@echo "== Slow tests: learning, a thousand clients"
	$(BIN)/python -m pytest -m slow

lint: setup
	@echo "== Lint and format"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

setup: $(READY)

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v == (3, 11) or sys.exit(f"Python 3.11 is needed, this is {v[0]}.{v[1]}: make PYTHON=/path/to/python3.11")'
	@echo "== Setting up .venv (about 1 GB; a few minutes the first time)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
	@touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache
