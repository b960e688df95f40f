# The two front doors of Headrace. Both start from nothing: they install what is missing (Debian
# packages, then a virtual environment), build, and run. See HACKING.md for everything else.
#
#   make demo    discover this machine, measure it, run a query, leave out/report.html
#   make test    build and run every test of the project

PYTHON ?= /usr/bin/python3
JOBS ?= $(shell nproc)
export CCACHE_DIR ?= $(CURDIR)/.cache/ccache
export CCACHE_BASEDIR = $(CURDIR)
export CCACHE_NOHASHDIR = 1
# One name for the compiler, so that every build of the same sources finds the others' objects.
export CXX = /usr/bin/c++

sources := $(shell find src include python cmake machines CMakeLists.txt pyproject.toml \
             -type f -not -name '*_test.cpp' -not -path '*/__pycache__/*' 2>/dev/null)

.PHONY: help demo test install wheel clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

demo: install
	@.venv/bin/headrace demo $(DEMO_OPTIONS)

test:
	@tools/test.sh

install: .venv/.headrace-installed

wheel: .venv/.requirements-installed
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) tools/wheel.sh

# Stamps, so that a second run does nothing.
.venv/.packages-installed: tools/packages.txt tools/setup.sh
	@tools/setup.sh tools/packages.txt
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@touch $@

.venv/.requirements-installed: python/requirements.txt .venv/.packages-installed
	@echo "setup: installing Python packages into .venv"
	@.venv/bin/python -m pip install -q --disable-pip-version-check -r python/requirements.txt
	@touch $@

.venv/.headrace-installed: $(sources) .venv/.requirements-installed
	@echo "setup: building headrace"
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) .venv/bin/python -m pip install -q \
	  --disable-pip-version-check --no-build-isolation --no-deps .
	@touch $@

clean:
	rm -rf build out .venv
