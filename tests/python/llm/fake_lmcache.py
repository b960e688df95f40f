# SPDX-License-Identifier: Apache-2.0
"""The little of LMCache that its plug-ins touch, for tests where LMCache is not installed."""

from __future__ import annotations

import enum
import math
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest

LAYERS, TENSORS, TOKENS, HEADS, SIZE = 4, 2, 16, 2, 32


class MemoryFormat(enum.Enum):
    KV_2LTD = 1
    KV_T2D = 2
    KV_MLA_FMT = 3


class StoragePluginInterface:
    def __init__(
        self, dst_device: str, config: Any, metadata: Any, local_cpu_backend: Any, loop: Any
    ) -> None:
        self.config, self.metadata, self.loop = config, metadata, loop
        self.local_cpu_backend = local_cpu_backend


@dataclass
class Meta:
    """The state of a memory object, also when it is gone."""

    references: int = 1
    freed: bool = False


class MemoryObj:
    """Gives its memory to others once the last reference is given back, or it is dropped."""

    def __init__(self, size: int) -> None:
        self.array = numpy.zeros(size, numpy.uint8)
        self.meta = Meta()

    def __del__(self) -> None:
        self.meta.freed = True

    @property
    def references(self) -> int:
        return self.meta.references

    @property
    def byte_array(self) -> memoryview:
        return memoryview(self.array)

    def ref_count_up(self) -> None:
        self.meta.references += 1

    def ref_count_down(self) -> None:
        self.meta.references -= 1
        self.meta.freed = self.meta.freed or self.meta.references == 0


class Allocator:
    """Allocates a limited number of objects and remembers them. Beyond the limit it would wait
    without a bound, if it may. The allocation with number `breaks` fails.
    """

    def __init__(self) -> None:
        self.given: list[Meta] = []
        self.most = 1000
        self.breaks = 1000

    def allocate(
        self, shapes: Any, dtypes: Any, form: Any, eviction: bool = True, busy_loop: bool = True
    ) -> MemoryObj | None:
        if len(self.given) == self.breaks:
            raise MemoryError
        if len(self.given) == self.most:
            assert not busy_loop
            return None
        made = MemoryObj(2 * sum(math.prod(shape) for shape in shapes))
        self.given.append(made.meta)
        return made


@dataclass(frozen=True)
class Key:
    number: int

    def to_string(self) -> str:
        return f"model@1@0@{self.number:x}@half"


def config(tiers: Any, layerwise: bool = False, revision: Any = "1") -> Any:
    extra = {"headrace.tiers": tiers, "headrace.revision": revision}
    return SimpleNamespace(extra_config=extra, use_layerwise=layerwise, chunk_size=TOKENS)


def metadata(mla: bool = False) -> Any:
    return SimpleNamespace(
        model_name="model", worker_id=0, world_size=1, use_mla=mla,
        kv_dtype=numpy.dtype("f2"), kv_shape=(LAYERS, TENSORS, TOKENS, HEADS, SIZE),
        get_shapes=lambda tokens: [(TENSORS, LAYERS, tokens, HEADS * SIZE)],
        get_dtypes=lambda: [numpy.dtype("f2")],
    )  # fmt: skip


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, dict[str, Any]] = {
        "lmcache": {}, "lmcache.v1": {}, "lmcache.v1.storage_backend": {},
        "lmcache.v1.memory_management": {"MemoryFormat": MemoryFormat},
        "lmcache.v1.storage_backend.abstract_backend": {
            "StoragePluginInterface": StoragePluginInterface
        },
    }  # fmt: skip
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "headrace.lmcache", raising=False)
