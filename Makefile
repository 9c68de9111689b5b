# The two commands are `make audit` and `make test`; both make the environment they need, once.

PYTHON ?= python3
VENV ?= .venv
OUT ?= out
EXTRAS ?= dev,torch,real
AUDIT_FLAGS ?= --fail-on none -o $(OUT)
# Two workers; each starts on a contiguous half, so that a file's compiled functions are compiled once.
PYTEST_FLAGS ?= -n 2 --dist worksteal

BIN := $(VENV)/bin
READY := $(VENV)/ready

.DEFAULT_GOAL := help
.PHONY: help setup audit test lint format notebooks third-party bench clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## make $(VENV) and install the project into it; a second call does nothing

audit: $(READY) ## audit every norm kernel on this machine: out/findings.json, out/report.html
	@mkdir -p $(OUT)
	$(BIN)/verify audit $(AUDIT_FLAGS)

test: $(READY) ## run the tests and the doctests
	$(BIN)/pytest $(PYTEST_FLAGS)

lint: $(READY) ## lint, format check, types, and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

notebooks: $(VENV)/ready-notebooks ## open the notebooks in a browser (`make test` executes them)
	$(BIN)/jupyter lab notebooks

third-party: $(VENV)/ready-third-party ## audit the kernels of other libraries too
	@mkdir -p $(OUT)
	$(BIN)/verify audit $(AUDIT_FLAGS)

bench: $(READY) ## run every benchmark: out/bench/*.json
	@mkdir -p $(OUT)/bench
	@set -e; for each in $(sort $(wildcard benchmarks/*.py)); do \
	  echo "running $$each"; $(BIN)/python $$each --json $(OUT)/bench/$$(basename $$each .py).json; \
	done

clean: ## remove what the commands made, the environment included
	rm -rf $(VENV) $(OUT)

# ---------------------------------------------------------------------------------- the environment

# Where torch lies, if the interpreter at hand has a GPU build of it; fails otherwise.
LENT_TORCH = import os, torch; assert torch.version.cuda or torch.version.hip; \
  print(os.path.dirname(os.path.dirname(torch.__file__)))

# A GPU build of torch is kept: the environment sees the folder it lies in, behind its own packages,
# and neither the extra nor the pin of torch applies. Elsewhere torch comes from constraints.txt.
$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)
	@if lent=$$($(PYTHON) -c '$(LENT_TORCH)' 2>/dev/null); then \
	  echo "keeping the GPU build of torch in $$lent"; \
	  echo "$$lent" > $$(echo $(VENV)/lib/python3*/site-packages)/zz_lent_torch.pth; \
	  touch $(VENV)/torch-is-lent; \
	fi

# $(1): extras. With a lent torch, the extra and the pin of torch are left out.
define install
@if [ -e $(VENV)/torch-is-lent ]; then \
  grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt; \
  extras=$$(echo '$(1)' | sed -E 's/(^|,)torch(,|$$)/\1/'); \
else \
  cp constraints.txt $(VENV)/constraints.txt; extras='$(1)'; \
fi; \
set -x; $(BIN)/pip install --disable-pip-version-check -q -c $(VENV)/constraints.txt -e ".[$$extras]"
@touch $@
endef

$(READY): $(BIN)/pip pyproject.toml constraints.txt
	$(call install,$(EXTRAS))

$(VENV)/ready-%: $(READY)
	$(call install,$*)
