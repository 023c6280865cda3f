# make demo: project a network that no GPU holds over 1 to 1,024 GPUs; plan and run a smaller one on four CPU ranks,
# and check it.
# make test: style, types and the tests to run before each commit; make test-slow: the other tests.
# make docs: the site, in docs/_build/html; any warning fails it.
# All install what they need into .venv.

PYTHON ?= python3
CIRCUIT := paths/sycamore_n53_m10
MEMORY := 128MiB
LARGE := $(addprefix paths/zuchongzhi_n60_m24_,b32_schedule_d1.json b35_schedule_d8.json b38_schedule_d64.json b40_schedule_d1024.json)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test test-slow docs clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tnplan needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv

.venv/demo.stamp: $(BIN)/python pyproject.toml
	$(PIP) install --editable '.[mpi,plot]'
	touch $@

.venv/test.stamp: $(BIN)/python pyproject.toml
	$(PIP) install --editable '.[dev,mpi,qasm,qec,sqd]'
	touch $@ .venv/demo.stamp

.venv/docs.stamp: $(BIN)/python pyproject.toml
	$(PIP) install --editable '.[docs,qasm]'
	touch $@

demo: .venv/demo.stamp
	rm -rf demo-out && mkdir demo-out
	@echo "An amplitude of a random circuit with 60 qubits and 24 cycles, projected on H100 GPUs (nothing is run):"
	$(BIN)/tnplan report $(LARGE) --devices 1,8,64,1024 --hardware dgx-h100 --html demo-out/projection.html
	@echo "An amplitude of a circuit with 53 qubits and 10 cycles, planned and run on four ranks of this machine:"
	$(BIN)/tnplan plan $(CIRCUIT)_b24_flops.json --devices 4 --hardware cpu --memory $(MEMORY) -o demo-out/schedule.json
	$(BIN)/tnplan show demo-out/schedule.json --top 3 --plot demo-out/use-chain.svg
	$(BIN)/mpirun -n 4 $(BIN)/tnplan execute demo-out/schedule.json -o demo-out/amplitude.npy
	$(BIN)/python benchmarks/contraction/cotengra_check.py $(CIRCUIT)_b22_flops.json demo-out/amplitude.npy
	$(BIN)/tnplan report $(wildcard $(CIRCUIT)_*.json) --devices 1,2,4,8,16 --hardware cpu --memory $(MEMORY) --html demo-out/report.html --json > demo-out/report.json
	@echo "Open demo-out/projection.html: what 1 to 1,024 GPUs make of the large network. report.html has the small one."

test: .venv/test.stamp
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow" --numprocesses 2 --dist loadfile --timeout 600

# Properties with ten times the examples; and a twentieth of the quick tests again, in an order of the day: each runs alone.
SEED ?= $(shell date +%Y%m%d)

test-slow: export HYPOTHESIS_PROFILE ?= many
test-slow: .venv/test.stamp
	$(BIN)/pytest -m slow --numprocesses 2 --dist load --timeout 600
	$(BIN)/pytest -m "hypothesis and not slow" --numprocesses 2 --dist load --timeout 600
	$(BIN)/pytest -m "not slow" --shuffle $(SEED) --share 0.05 --numprocesses 2 --dist load --timeout 600

docs: .venv/docs.stamp
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going docs docs/_build/html

clean:
	rm -rf .venv demo-out docs/_build docs/jupyter_execute docs/reference/api build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
