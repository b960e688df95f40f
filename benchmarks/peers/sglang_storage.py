# SPDX-License-Identifier: Apache-2.0
"""SGLang's own file backend and headrace.sglang below SGLang's controller of its cache: stores,
loads of pages that no memory has (cold), and loads of pages that were just loaded (warm).

    tools/engines.sh  # once: SGLang's modules from its wheel, 1 MB
    .venv/bin/python benchmarks/peers/sglang_storage.py --data DIRECTORY_ON_THE_DISK [--rounds 7]

All have the same pages in the same layout; the order is drawn in each round, and the first is not
counted. Bytes are compared in each round. No GPU and no PyTorch: tensors are numpy arrays. The
file backend leaves its writes to the page cache; before cold loads they are written and dropped.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "python" / "llm"))
import real_sglang

real_sglang.install()

from sglang.srt.mem_cache.storage import StorageBackendFactory  # noqa: E402

#: Pages of a call, as SGLang's controller makes them at most, and calls that are stored.
_PAGES, _CALLS = 128, 4
_GIB = float(1 << 30)
_OPERATION = SimpleNamespace(request_id="r", is_terminated=lambda: False)


class Side:
    """A backend over a pool of pages of 2 MiB: 32 layers of 8 heads of 128 elements."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.pool = real_sglang.host_pool(pages=_PAGES, layers=32, heads=8, width=128)
        self.pool.kv_buffer[...] = 1
        self.bytes = self.pool.kv_buffer.nbytes
        self.figures: dict[str, list[float]] = {}
        config = real_sglang.config()
        if name == "file":
            config.extra_config = {"file_storage_path": str(folder)}
        else:
            config.extra_config.update(folder=str(folder), budget=(_CALLS + 1) * self.bytes)
            if name.endswith("memory"):
                config.extra_config["memory"] = 2 * self.bytes
        kind = "file" if name == "file" else "dynamic"
        self.storage = StorageBackendFactory.create_backend(kind, config, self.pool)
        self.storage.register_mem_pool_host(self.pool)
        self.storage.on_host_pools_registered()
        control = real_sglang.controller(self.storage, self.pool)
        zero_copy = name != "file"
        self._set = control._page_set_zero_copy if zero_copy else control._generic_page_set
        self._get = control._page_get_zero_copy if zero_copy else control._generic_page_get
        self._indices = numpy.arange(self.pool.size).view(real_sglang.Tensor)

    def content(self, call: int) -> Any:
        words = numpy.random.default_rng(call).integers(0, 1 << 62, self.bytes // 8)
        return words.view(numpy.float16).reshape(self.pool.kv_buffer.shape)

    def store(self, call: int) -> None:
        self.pool.kv_buffer[...] = self.content(call)
        self._timed("store", lambda: self._set(keys_of(call), self._indices))

    def load(self, call: int, figure: str) -> None:
        self.pool.kv_buffer[...] = 0
        count = self._timed(figure, lambda: self._get(_OPERATION, keys_of(call), self._indices))
        same = self.pool.kv_buffer.view(numpy.uint16) == self.content(call).view(numpy.uint16)
        assert count == _PAGES and same.all(), (self.name, call, count)

    def drop(self) -> None:
        """Nothing of the folder stays in the page cache."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _timed(self, figure: str, run: Any) -> Any:
        cpu, begun = time.process_time(), time.perf_counter()
        result = run()
        gib = self.bytes / _GIB
        used = (time.process_time() - cpu) * 1e3 / gib
        rate = gib / (time.perf_counter() - begun)
        self.figures.setdefault(f"{figure} GiB/s", []).append(rate)
        self.figures.setdefault(f"{figure} CPU ms/GiB", []).append(used)
        return result


def keys_of(call: int) -> list[str]:
    return [(call << 32 | page).to_bytes(32, "little").hex() for page in range(_PAGES)]


def measure(directory: Path, rounds: int, names: list[str]) -> list[Side]:
    sides = [Side(name, directory / name.replace(" ", "-")) for name in names]
    order = random.Random(1)
    for call in range(_CALLS):
        for side in order.sample(sides, len(sides)):
            side.store(call)
    for number in range(rounds + 1):
        for side in order.sample(sides, len(sides)):
            side.drop()
            side.load(number % _CALLS, "cold")
            side.load(number % _CALLS, "warm")
        if number == 0:
            for side in sides:  # not counted, except the stores, which happen once
                side.figures = {k: v for k, v in side.figures.items() if k.startswith("store")}
    return sides


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--backends", default="file,headrace,headrace memory")
    given = parser.parse_args()
    # Freed pages are used again, as by PyTorch's allocator of pinned memory.
    for option in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of glibc
        ctypes.CDLL(None).mallopt(option, 1 << 30)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    with tempfile.TemporaryDirectory(dir=given.data) as directory:
        sides = measure(Path(directory), given.rounds, given.backends.split(","))
        for figure in sides[0].figures:
            cells = []
            for side in sides:
                found = sorted(side.figures[figure])
                at = statistics.median(found)
                cells.append(f"{side.name} {at:.4g} [{found[0]:.4g} .. {found[-1]:.4g}]")
            print(f"  {figure}: " + ", ".join(cells))
        for side in sides:
            if hasattr(side.storage, "close"):
                side.storage.close()


if __name__ == "__main__":
    main()
