# Two commands do all set-up: `make demo` and `make test`. Both install into .venv what is missing.
# PIP_FLAGS reaches pip, for an index that holds the CPU build of torch, say.
PYTHON ?= python3
PIP_FLAGS ?=
VENV := .venv
# the CPU build of torch where there is no NVIDIA driver
HARDWARE := $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
CONSTRAINTS := constraints-$(HARDWARE).txt
INSTALLED := $(VENV)/.installed-$(HARDWARE)

VENV39 := .venv-triton39

.PHONY: demo test test-slow test-triton39 lab figures clean

demo: $(INSTALLED)
	$(VENV)/bin/workbench demo

# the README's commands read what those before them wrote: one process runs them in order;
# tests/test_compiled.py compiles all that tests/test_gluon.py would, with the same Triton
test: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/python -m pytest -q tests/test_readme.py & readme=$$!; \
	$(VENV)/bin/python -m pytest -n 2 --dist worksteal --ignore tests/test_readme.py \
	    --ignore tests/test_gluon.py -m "not slow"; \
	others=$$?; wait $$readme && exit $$others

test-slow: $(INSTALLED)
	$(VENV)/bin/python -m pytest -n 2 -m slow

# names of Gluon change between releases: the same sources with a newer Triton
test-triton39: $(VENV39)/.installed
	$(VENV39)/bin/python -m pytest -q tests/test_gluon.py tests/test_union_plan.py

$(VENV39)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV39)
	$(VENV39)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) \
	    "$$(grep '^torch==' constraints-cpu.txt)" "triton==3.9.0" "numpy<2.4" pytest -e .
	touch $@

lab: $(INSTALLED)
	$(VENV)/bin/jupyter lab notebooks

figures: $(INSTALLED)
	$(VENV)/bin/workbench figures

clean:
	rm -rf $(VENV) $(VENV39) runs

# torch comes first and alone: a resolver that meets it later may take another build
$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) \
	    "$$(grep '^torch==' $(CONSTRAINTS))" -c $(CONSTRAINTS)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) \
	    -c $(CONSTRAINTS) -e '.[lab,capture,test]'
	touch $@
