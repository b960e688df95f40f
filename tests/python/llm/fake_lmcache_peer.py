# SPDX-License-Identifier: Apache-2.0
"""The little of LMCache, and of PyTorch, that benchmarks/peers/lmcache_peer.py touches, for tests
where neither is installed: a back end keeps chunks in a dictionary.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_lmcache import MemoryFormat, MemoryObj


@dataclass(frozen=True)
class CacheEngineKey:
    model: str
    world_size: int
    worker: int
    chunk: int
    dtype: Any
    layer: int = -1

    def split_layers(self, layers: int) -> list[CacheEngineKey]:
        return [replace(self, layer=layer) for layer in range(layers)]


class Backend:
    """Counts what is pinned, as a caller must give all back."""

    def __init__(self) -> None:
        self.held: dict[CacheEngineKey, bytes] = {}
        self.pinned = 0
        self.disk_worker = SimpleNamespace(put_tasks=[])

    def contains(self, key: CacheEngineKey, pin: bool = False) -> bool:
        self.pinned += pin and key in self.held
        return key in self.held

    def unpin(self, key: CacheEngineKey) -> None:
        self.pinned -= 1

    def touch_cache(self) -> None:
        pass

    def exists_in_put_tasks(self, key: CacheEngineKey) -> bool:
        return False

    def allocate(self, shape: Sequence[int], dtype: Any, form: Any, busy_loop: bool) -> MemoryObj:
        return MemoryObj(2 * math.prod(shape))

    def batched_submit_put_task(
        self, keys: Sequence[CacheEngineKey], objects: Sequence[MemoryObj]
    ) -> None:
        for key, one in zip(keys, objects, strict=True):
            self.held[key] = bytes(one.byte_array)

    def batched_get_blocking(self, keys: Sequence[CacheEngineKey]) -> list[MemoryObj]:
        found = []
        for key in keys:
            found.append(MemoryObj(len(self.held[key])))
            found[-1].byte_array[:] = self.held[key]
        return found

    def close(self) -> None:
        assert self.pinned == 0


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    def backends(*_: Any) -> dict[str, Backend]:
        return {"LocalCPUBackend": Backend(), "LocalDiskBackend": Backend()}

    config = SimpleNamespace(from_defaults=lambda **options: SimpleNamespace(**options))
    modules: dict[str, dict[str, Any]] = {
        "torch": {"Size": tuple, "float16": "half"},
        "lmcache": {}, "lmcache.v1": {},
        "lmcache.utils": {"CacheEngineKey": CacheEngineKey},
        "lmcache.v1.config": {"LMCacheEngineConfig": config},
        "lmcache.v1.memory_management": {"MemoryFormat": MemoryFormat},
        "lmcache.v1.metadata": {"LMCacheMetadata": lambda *_: None},
        "lmcache.v1.pin_monitor": {"PinMonitor": SimpleNamespace(GetOrCreate=lambda _: None)},
        "lmcache.v1.storage_backend": {"CreateStorageBackends": backends},
    }  # fmt: skip
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
