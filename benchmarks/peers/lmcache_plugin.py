# SPDX-License-Identifier: Apache-2.0
"""LMCache's storage manager with its own local disk and with headrace.lmcache, each on the same
disk and past the page cache: how fast chunks of keys and values come into LMCache's memory.

    V/bin/python benchmarks/peers/lmcache_plugin.py --data DIRECTORY [--rounds 7]

V is a virtual environment with Headrace and LMCache. Both load the same chunks into the same
memory, in turn; bytes are compared in the first round, which is not counted.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.event_manager import EventManager
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.pin_monitor import PinMonitor
from lmcache.v1.storage_backend.storage_manager import StorageManager

#: Keys and values of Llama 3.2 1B.
LAYERS, HEADS, SIZE = 16, 8, 64
_BYTES = 256 << 20  #: loaded at once
_IN_MEMORY = 2  #: chunks in the tier before the folder


class Side:
    """A storage manager whose chunks are all on disk."""

    def __init__(self, name: str, tokens: int, count: int, directory: Path, threads: int) -> None:
        self.name, self.tokens = name, tokens
        chunk = 2 * 2 * LAYERS * tokens * HEADS * SIZE
        common: dict[str, Any] = {
            "chunk_size": tokens, "local_cpu": False, "max_local_cpu_size": 2 * _BYTES / 2**30,
        }  # fmt: skip
        if name == "LocalDiskBackend":
            config = LMCacheEngineConfig.from_defaults(
                **common, local_disk=str(directory), max_local_disk_size=2 * _BYTES / 2**30,
                extra_config={"use_odirect": True, "disk_io_threads": threads},
            )  # fmt: skip
        else:
            config = LMCacheEngineConfig.from_defaults(
                **common, storage_plugins=[name],
                extra_config={
                    f"storage_plugin.{name}.module_path": "headrace.lmcache",
                    f"storage_plugin.{name}.class_name": "Backend",
                    "headrace.revision": "1",
                    "headrace.tiers": [
                        {"memory": "dram", "bytes": _IN_MEMORY * chunk},
                        {"folder": str(directory / "kv"), "bytes": 2 * _BYTES},
                    ],
                },
            )  # fmt: skip
        PinMonitor.GetOrCreate(config)
        shape = (LAYERS, 2, tokens, HEADS, SIZE)
        self.metadata = LMCacheMetadata("llama", 1, 1, 0, 0, torch.float16, shape)
        self.manager = StorageManager(config, self.metadata, EventManager())
        self.backend = self.manager.storage_backends[name]
        self.keys = [CacheEngineKey("llama", 1, 0, i, torch.float16) for i in range(count)]
        for number, key in enumerate(self.keys):
            self._put(key, number)
        for number in range(3 * _IN_MEMORY if name == "headrace" else 0):
            self._put(CacheEngineKey("llama", 1, 0, 10**6 + number, torch.float16), number)

    def chunk(self, number: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(number)
        shape = self.metadata.get_shapes(self.tokens)[0]
        return torch.randint(-(2**15), 2**15, shape, dtype=torch.int16, generator=draw)

    def _put(self, key: CacheEngineKey, number: int) -> None:
        shapes, dtypes = self.metadata.get_shapes(self.tokens), self.metadata.get_dtypes()
        (one,) = self.manager.batched_allocate(shapes, dtypes, 1)
        one.tensor.view(torch.int16).copy_(self.chunk(number))
        self.manager.batched_put([key], [one])
        while self.backend.exists_in_put_tasks(key):
            time.sleep(0.001)

    def get(self, compare: bool) -> float:
        """Bytes per second."""
        begin = time.perf_counter()
        found = self.manager.batched_get(self.keys, self.name)
        seconds = time.perf_counter() - begin
        size = 0
        for number, one in enumerate(found):
            if one is None:
                raise SystemExit(f"{self.name} has lost a chunk")
            if compare and not torch.equal(one.tensor.view(torch.int16), self.chunk(number)):
                raise SystemExit(f"{self.name} gives other bytes than were put")
            size += one.get_size()
            one.ref_count_down()
        return size / seconds


def measure(options: argparse.Namespace, tokens: int) -> None:
    count = _BYTES // (4 * LAYERS * tokens * HEADS * SIZE)
    with tempfile.TemporaryDirectory(prefix="headrace-lmcache-", dir=options.data) as scratch:
        sides = [
            Side(name, tokens, count, Path(scratch), options.threads)
            for name in ("LocalDiskBackend", "headrace")
        ]
        rates: dict[str, list[float]] = {side.name: [] for side in sides}
        for number in range(options.rounds + 1):
            for side in sides if number % 2 else sides[::-1]:
                rate = side.get(compare=number == 0)
                if number > 0:
                    rates[side.name].append(rate / 1e6)
        for side in sides:
            side.manager.close()
    ours, theirs = rates["headrace"], rates["LocalDiskBackend"]
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    size = 4 * LAYERS * tokens * HEADS * SIZE >> 10
    print(f"| {tokens} tokens, {size} KiB | {told(ours)} | {told(theirs)} | {ratio:.2f} |")


def told(found: list[float]) -> str:
    return f"{statistics.median(found):.0f} ({min(found):.0f} to {max(found):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=Path("."), help="a directory on the disk")
    parser.add_argument("--tokens", type=lambda s: [int(x) for x in s.split(",")],
                        default=[16, 64, 256], help="of a chunk")  # fmt: skip
    parser.add_argument("--threads", type=int, default=16, help="of LocalDiskBackend")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for name in logging.root.manager.loggerDict:
        if name.startswith("lmcache"):
            logging.getLogger(name).setLevel(logging.ERROR)
    print("| chunk | headrace, MB/s | LocalDiskBackend, MB/s | median of the rounds' ratios |\n"
          "|---|---|---|---|")  # fmt: skip
    for tokens in options.tokens:
        measure(options, tokens)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
