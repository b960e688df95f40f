# The front doors of Headrace. Each starts from nothing: it installs the packages that are missing,
# makes a virtual environment in .venv, builds, and runs. HACKING.md has everything else.
#
#   make demo      measure this machine, run a query, leave out/report.html
#   make test      build and run every test of the project
#   make soak      tests under faults for hours: operations, faults, what was lost or stale
#   make install   the packages headrace and headrace-bench with its programs, in .venv
#   make docs      the site of guides, references, decisions and results, in build/site
#   make wheel     wheels for other machines, in dist

PYTHON ?= /usr/bin/python3
JOBS ?= $(shell tools/jobs.sh)
export CCACHE_DIR ?= $(CURDIR)/.cache/ccache
export CCACHE_BASEDIR = $(CURDIR)
export CCACHE_NOHASHDIR = 1
# Objects serve every patch release of a Python and every version of the kernel's headers: the ABI
# of both is stable.
export CCACHE_IGNOREHEADERS = \
  /usr/include/linux:/usr/include/python3.11:/usr/include/python3.12:/usr/include/python3.13
# One name for the compiler, so that every build of the same sources finds the others' objects.
export CXX = /usr/bin/c++

sources := $(shell find src include python cmake machines benchmarks dsa_sim tests/support/dsa CMakeLists.txt \
             pyproject.toml -type f -not -name '*_test.cpp' -not -path '*/__pycache__/*')

# Each recipe uses all cores by itself, and two of them would build in one folder.
.NOTPARALLEL:
.PHONY: help demo test soak install docs wheel clean FORCE
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

demo: .venv/.package-installed
	@.venv/bin/headrace demo $(DEMO_OPTIONS)

test:
	@tools/test.sh

soak: .venv/.package-installed
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j$(JOBS) --target cache_test explore_test kvcache_shared_test
	@.venv/bin/python tools/soak.py $(SOAK_OPTIONS)

install: .venv/.programs-installed
	@echo "installed in .venv: the Python packages headrace and headrace-bench, the command" \
	  ".venv/bin/headrace (try .venv/bin/headrace topo) and the programs of headrace bench"

docs: build/site-tools/.installed
	@build/site-tools/bin/python tools/site/pages.py
	@echo "open build/site/index.html in a browser"

build/site-tools/.installed: tools/site/requirements.txt .venv/.packages-installed
	@$(PYTHON) -m venv build/site-tools
	@build/site-tools/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

wheel: .venv/.requirements-installed
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) tools/wheel.sh

# Stamps, so that a second run does nothing.
.venv/.packages-installed: tools/packages.txt tools/setup.sh
	@tools/setup.sh tools/packages.txt
	@PYTHON=$(PYTHON) tools/install.sh venv
	@touch $@

.venv/.requirements-installed: python/requirements.txt .venv/.packages-installed
	@tools/install.sh requirements
	@touch $@

# Records the compiler and the optional libraries; changes only when they change.
build/environment: FORCE .venv/.packages-installed
	@tools/install.sh environment $@

.venv/.package-installed: $(sources) build/environment .venv/.requirements-installed
	@JOBS=$(JOBS) tools/install.sh package
	@touch $@

.venv/.programs-installed: $(sources) build/environment .venv/.requirements-installed
	@JOBS=$(JOBS) tools/install.sh programs
	@touch $@ .venv/.package-installed

clean:
	rm -rf build out .venv
