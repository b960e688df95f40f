#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks the modules of inference engines that tests of plug-ins import, from their wheels, into
# build/engines. No engine is installed, and no GPU is needed.
set -euo pipefail
cd -P -- "$(dirname -- "$0")/.."

# engine PACKAGE MODULE_WITH_ITS_VERSION PATH...: what the tests need of the wheel.
engine() {
  local package=$1 version to wheels
  version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' "tests/python/llm/$2.py")
  to=build/engines/$package-$version
  shift 2
  [ ! -e "$to" ] || return 0
  mkdir -p build/engines
  wheels=$(mktemp -d build/engines/wheel-XXXXXX)
  if .venv/bin/python -m pip --disable-pip-version-check download -q --no-deps --no-cache-dir \
    --only-binary :all: --python-version 3.11 --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_34_x86_64 -d "$wheels" "$package==$version"; then
    .venv/bin/python - "$wheels" "$@" <<'END'
import sys
import zipfile
from pathlib import Path

folder = Path(sys.argv[1])
with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
    parts = tuple(sys.argv[2:])
    wheel.extractall(folder / "parts", [n for n in wheel.namelist() if n.startswith(parts)])
END
    mv "$wheels/parts" "$to"
  else
    echo "engines: no wheel of $package $version; its tests are left out" >&2
  fi
  rm -rf "$wheels"
}

engine vllm real_vllm vllm/v1/kv_offload/ vllm/v1/metrics/ vllm/distributed/kv_transfer/ \
  vllm/utils/ vllm/fs_io_C
engine lmcache real_lmcache_mp lmcache/v1/ lmcache/logging.py lmcache/utils.py
engine sglang real_sglang sglang/srt/environ.py sglang/srt/managers/cache_controller.py \
  sglang/srt/mem_cache/hicache_storage.py sglang/srt/mem_cache/storage/__init__.py \
  sglang/srt/mem_cache/storage/backend_factory.py sglang/srt/mem_cache/storage/file/ \
  sglang/srt/mem_cache/pool_host/ sglang/srt/mem_cache/hybrid_cache/
