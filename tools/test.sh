#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test of the project from nothing; tools/steps.py has the steps.
# Usage: test.sh [--changed] [--update] [STEP...]
set -euo pipefail
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || tools/setup.sh tools/packages.txt
exec python3 tools/steps.py "$@"
