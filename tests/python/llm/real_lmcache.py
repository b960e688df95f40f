# SPDX-License-Identifier: Apache-2.0
"""The storage plug-in in LMCache's own storage manager, which reads its configuration and makes it:
what is put comes back, now and from the folder. Argument: a directory. Needs pip install lmcache.
"""

from __future__ import annotations

import asyncio
import sys
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

LAYERS, TOKENS, HEADS, SIZE = 4, 16, 2, 64
CHUNKS, CHUNK = 40, 2 * LAYERS * 2 * TOKENS * HEADS * SIZE


def configured(directory: Path) -> Any:
    return LMCacheEngineConfig.from_defaults(
        chunk_size=TOKENS, local_cpu=False, max_local_cpu_size=0.05,
        storage_plugins=["headrace"],
        extra_config={
            "storage_plugin.headrace.module_path": "headrace.lmcache",
            "storage_plugin.headrace.class_name": "Backend",
            "headrace.revision": "1",
            "headrace.tiers": [{"memory": "dram", "bytes": 8 * CHUNK},
                               {"folder": str(directory / "kv"), "bytes": 64 * CHUNK}],
        },
    )  # fmt: skip


def key(number: int) -> CacheEngineKey:
    return CacheEngineKey("random", 1, 0, 1000 + number, torch.float16)


def put(manager: StorageManager, metadata: LMCacheMetadata) -> list[torch.Tensor]:
    backend, kept = manager.storage_backends["headrace"], []
    for number in range(CHUNKS):
        shapes, dtypes = metadata.get_shapes(TOKENS), metadata.get_dtypes()
        (chunk,) = manager.batched_allocate(shapes, dtypes, 1)
        chunk.tensor.copy_(torch.randn(chunk.tensor.shape).to(torch.float16))
        kept.append(chunk.tensor.clone())
        manager.batched_put([key(number)], [chunk])
        for _ in range(6000):
            if not backend.exists_in_put_tasks(key(number)):
                break
            time.sleep(0.01)
        assert chunk.get_ref_count() == 0
    return kept


def compare(found: list[Any], kept: list[torch.Tensor]) -> None:
    for one, right in zip(found, kept, strict=True):
        assert one is not None and torch.equal(one.tensor, right)
        one.ref_count_down()


def main(directory: Path) -> None:
    torch.manual_seed(1)
    metadata = LMCacheMetadata(
        "random", 1, 1, 0, 0, torch.float16, (LAYERS, 2, TOKENS, HEADS, SIZE)
    )
    keys = [key(number) for number in range(CHUNKS)]
    kept = []
    for again in (False, True):
        config = configured(directory)
        PinMonitor.GetOrCreate(config)
        manager = StorageManager(config, metadata, EventManager())
        kept = kept if again else put(manager, metadata)
        found, where = manager.batched_contains([*keys, key(CHUNKS)], pin=True)
        assert found == CHUNKS and list(where) == ["headrace"]
        compare(manager.batched_get(keys, "headrace"), kept)
        backend = manager.storage_backends["headrace"]
        later = backend.batched_get_non_blocking("lookup", keys)
        compare(asyncio.run_coroutine_threadsafe(later, manager.loop).result(60), kept)
        manager.batched_unpin(keys)
        assert backend._opened().stats().pinned == 0
        manager.close()
    print("as it was put")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
