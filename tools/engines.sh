#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks the modules of inference engines that tests of plug-ins import, from their wheels, into
# build/engines. No engine is installed, and no GPU is needed.
# Usage: engines.sh
set -euo pipefail
cd -P -- "$(dirname -- "$0")/.."
vllm=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' tests/python/llm/real_vllm.py)
to=build/engines/vllm-$vllm
[ ! -e "$to" ] || exit 0

wheels=$(mktemp -d build/wheels-XXXXXX)
trap 'rm -rf "$wheels"' EXIT
.venv/bin/python -m pip --disable-pip-version-check download -q --no-deps --no-cache-dir \
  --only-binary :all: --platform manylinux_2_28_x86_64 -d "$wheels" "vllm==$vllm" || {
  echo "engines: no wheel of vllm $vllm; its tests are left out" >&2
  exit 0
}
.venv/bin/python - "$wheels"/*.whl "$wheels/unpacked" <<'END'
import sys
import zipfile

PARTS = ("vllm/v1/kv_offload/", "vllm/v1/metrics/", "vllm/distributed/kv_transfer/", "vllm/utils/",
         "vllm/fs_io_C")
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith(PARTS)])
END
mkdir -p build/engines
mv "$wheels/unpacked" "$to"
