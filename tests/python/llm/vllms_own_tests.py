# SPDX-License-Identifier: Apache-2.0
"""vLLM's own tests of its file tier, against headrace.vllm.

They are in vLLM's source archive only. To unpack it (pip cannot build it here, and says so):

    mkdir /tmp/vllm; TMPDIR=/tmp/vllm pip download --no-binary :all: --no-deps --no-clean \\
      --no-build-isolation vllm==0.33.0
    .venv/bin/python tests/python/llm/vllms_own_tests.py /tmp/vllm/pip-download-*/vllm_*

Tests that look at files, threads or patched functions of vLLM's tier are left out, by name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import real_vllm

#: Why tests are left out. Parts of names.
LEFT_OUT = {
    "invalid_path_raises": "expects OSError; ours is headrace.AbsentError",
    "store_creates_file": "looks for the file of a block",
    "published_by_another_writer": "patches os.replace in vLLM's tier",
    "wait_idle_blocks": "vLLM's thread pool",
    "shutdown_discards": "shutdown() ends what is in flight instead, and looks into the pool",
    "batch_lookup": "vLLM's extension for lookups",
    "out_of_bounds": "vLLM's extension writes without a check; see test_vllm.py",
    "without_o_direct": "patches the probe of vLLM's tier",
    "corrects_verdict": "cuts the file of a block; see the injected damage of vllm_damage.py",
    "does_not_break_newer_probe": "the cache of answers of vLLM's tier",
    "batched_partial_load": "patches vLLM's read function",
    "first_block_fails": "patches vLLM's read function",
    "transient_load_failure": "patches vLLM's read function",
    "mixed_job_results": "patches vLLM's write function",
    "partially_failed_store": "patches vLLM's write function",
    "cascade_store": "needs PyTorch's devices",
    "factory_forwards_locality": "makes vLLM's tier by its name",
    "cross_tp_round_trip": "several engines on one folder; see the howto",
}


class Tensor(numpy.ndarray):
    """A tensor, as far as these tests use it."""

    def data_ptr(self) -> int:
        return int(self.ctypes.data)

    def element_size(self) -> int:
        return int(self.itemsize)

    def numpy(self) -> Any:
        return self.view(numpy.ndarray)

    def clone(self) -> Any:
        return self.copy()

    def view(self, *what: Any) -> Any:
        return self.reshape(what) if isinstance(what[0], int) else super().view(*what)


def _torch() -> dict[str, Any]:
    def made(array: Any) -> Any:
        return array.view(Tensor)

    return {
        "Tensor": Tensor, "dtype": numpy.dtype, "float32": numpy.float32, "uint8": numpy.uint8,
        "tensor": lambda values, dtype: made(numpy.array(values, dtype)),
        "zeros": lambda shape, dtype: made(numpy.zeros(shape, dtype)),
        "rand": lambda *shape, dtype: made(numpy.random.default_rng(1).random(shape, dtype)),
        "allclose": lambda a, b: bool(numpy.allclose(a, b)),
    }  # fmt: skip


def _install() -> None:
    real_vllm.install()
    import torch
    import vllm.v1.kv_offload.tiering.fs.manager as manager

    import headrace.vllm

    for name, value in _torch().items():
        setattr(torch, name, value)

    class Tier(headrace.vllm.HeadraceTier):
        """Made with the arguments of vLLM's file tier."""

        def __init__(self, root_dir: str, n_read_threads: int = 1, n_write_threads: int = 1,
                     **given: Any) -> None:  # fmt: skip
            super().__init__(folder=f"{root_dir}/kv", budget="256MiB", **given)
            # Lookups have their answers at once.
            self._lookup_manager = SimpleNamespace(
                _pending_results=SimpleNamespace(empty=lambda: False)
            )
            self.file_mapper = SimpleNamespace(get_file_name=lambda key: f"{root_dir}/kv/blocks")
            self.events = self._stored  # None: no events are wanted
            self._store_job_keys: dict[int, Any] = {}

    manager.FileSystemTierManager = Tier


class _Selection:
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for part, why in LEFT_OUT.items():
                if part in item.name:
                    item.add_marker(pytest.mark.skip(reason=why))


if __name__ == "__main__":
    _install()
    tests = Path(sys.argv[1], "tests", "v1", "kv_offload", "tiering", "test_fs_tier.py")
    options = "-q -rs --noconftest -p no:cacheprovider -c /dev/null --import-mode=importlib".split()
    sys.exit(pytest.main([*options, str(tests)], plugins=[_Selection()]))
