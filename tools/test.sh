#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test of the project from nothing; tools/steps.py has the steps.
# Usage: test.sh [--all] [--update] [STEP...]
set -euo pipefail
cd -- "$(dirname -- "$0")/.."
python=${PYTHON:-/usr/bin/python3}
command -v "$python" >/dev/null || tools/setup.sh tools/packages.txt
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "test.sh: Headrace needs Python 3.11, which $python is not; name another by PYTHON=" >&2
  exit 1
fi
exec "$python" tools/steps.py "$@"
