# SPDX-License-Identifier: Apache-2.0
"""`headrace bench kvcache` with one more store: LMCache's back ends for CPU memory and local disk.

    V=$(mktemp -d)/venv; python3 -m venv $V
    $V/bin/pip install . ./benchmarks lmcache  # 6 GB; no GPU needed
    $V/bin/python benchmarks/peers/lmcache_peer.py --store headrace,lmcache,lmcache-whole [OPTIONS]

Options are those of `headrace bench kvcache`. LMCache is asked as its own storage manager asks it,
by `batched_get_blocking`, which reads with `--depth` threads (`disk_io_threads`), past the page
cache (`use_odirect`). `lmcache` has one key, and file, for each layer of a chunk (`use_layerwise`)
and is asked layer by layer; `lmcache-whole` has one for each chunk and tells all layers at the end.
Chunks come into memory of LMCache, from where they are copied to where the engine wants them, here
too: some are copied while the next ones are read. It writes each chunk to disk at once, so its disk
has room for those in memory besides. It verifies nothing.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.pin_monitor import PinMonitor
from lmcache.v1.storage_backend import CreateStorageBackends

import headrace
from headrace._cli import app
from headrace_bench.llm import kv_store, kvcache
from headrace_bench.llm.stores import TIMEOUT_SECONDS, Loading, Match, Shape, _Loading

#: Blocks of LMCache's memory for what is on its way, besides those that it keeps there.
_STAGING = 24
#: Whole blocks that are asked for at once; as many are copied meanwhile.
_AT_ONCE = 8


class LmcacheStore:
    """Blocks by number; tier 0 is LocalCPUBackend, tier 1 LocalDiskBackend."""

    def __init__(
        self, shape: Shape, blocks: Sequence[int], directory: Path, depth: int, whole: bool
    ) -> None:
        self.name = "lmcache-whole" if whole else "lmcache"
        self.tiers = ["dram", "ssd"]
        self._shape = shape
        self._parts = 1 if whole else shape.layers  # of a block, each with a key
        self._size = shape.block // self._parts
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-lmcache-", dir=directory)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        # Where nothing but the disk is asked, nothing is kept in memory.
        keeps = blocks[0] > kvcache.FRONT
        pool = (_STAGING + (blocks[0] if keeps else 0)) * shape.block
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=1, local_cpu=keeps, max_local_cpu_size=pool / 2**30,
            use_layerwise=not whole,
            local_disk=self._folder.name,
            max_local_disk_size=sum(blocks) * shape.block / 2**30,
            extra_config={"use_odirect": True, "disk_io_threads": depth},
        )  # fmt: skip
        self._piece = torch.Size([1, 1, self._size // 2])  # of one token, in two bytes
        metadata = LMCacheMetadata(
            "bench", 1, 1, 0, 0, torch.float16, (shape.layers, 1, 1, 1, shape.fragment // 2)
        )
        PinMonitor.GetOrCreate(config)  # as its engine does
        backends = CreateStorageBackends(config, metadata, self._loop, "cpu")
        self._cpu, self._disk = backends["LocalCPUBackend"], backends["LocalDiskBackend"]
        self._keeps = keeps
        self._getter = ThreadPoolExecutor(1, "lmcache-get")
        self._drivers = ThreadPoolExecutor(4, "lmcache-load")
        self._putter = ThreadPoolExecutor(1, "lmcache-put")
        self._puts: list[Future[None]] = []

    def keys(self, block: int) -> list[Any]:
        whole = CacheEngineKey("bench", 1, 0, block, torch.float16)
        return list(whole.split_layers(self._parts)) if self._parts > 1 else [whole]

    def match(self, blocks: Sequence[int]) -> Match:
        found: list[list[tuple[Any, Any]]] = []  # of each block, its layers: who has it, its key
        for block in blocks:
            layers = []
            for key in self.keys(block):
                who = next((b for b in (self._cpu, self._disk) if b.contains(key, pin=True)), None)
                if who is None:
                    break
                layers.append((who, key))
            if len(layers) < self._parts:
                _unpin([layers])
                break
            found.append(layers)
        for backend in (self._cpu, self._disk):
            backend.touch_cache()  # as its engine does: the last of a prompt leave first
        tiers = [int(any(who is self._disk for who, _ in layers)) for layers in found]
        return _LmcacheMatch(self, found, tiers)

    def store(self, blocks: Sequence[int], source: Any, positions: Sequence[int]) -> None:
        self._puts = [each for each in self._puts if not each.done()]
        self._puts.append(self._putter.submit(self._put, list(blocks), source, list(positions)))

    def settle(self) -> None:
        until = time.monotonic() + TIMEOUT_SECONDS
        for each in self._puts:
            each.result(TIMEOUT_SECONDS)
        while self._disk.disk_worker.put_tasks and time.monotonic() < until:
            time.sleep(0.001)

    def close(self) -> None:
        self.settle()
        for pool in (self._drivers, self._getter, self._putter):
            pool.shutdown()
        for backend in (self._disk, self._cpu):
            backend.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_SECONDS)
        self._loop.close()
        self._folder.cleanup()

    def begin_load(
        self, found: Sequence[Sequence[tuple[Any, Any]]], first: int, to: Any, layers: range
    ) -> Loading:
        loading = _Loading(layers)
        self._drivers.submit(self._load, found, first, to, layers, loading)
        return loading

    def _load(
        self, found: Sequence[Sequence[tuple[Any, Any]]], first: int, to: Any, layers: range,
        loading: _Loading,
    ) -> None:  # fmt: skip
        """Step by step: a layer of all blocks from the first on, or some whole blocks."""
        count = range(first, len(found))
        if self._parts > 1:
            steps = [(count, layer) for layer in layers]
        else:
            steps = [(count[i : i + _AT_ONCE], 0) for i in range(0, len(count), _AT_ONCE)]
        get = self._getter.submit(self._get, found, *steps[0])
        failed: Exception | None = None
        for i, (some, part) in enumerate(steps):
            try:
                objects = get.result()
                if i + 1 < len(steps):  # read while these are copied
                    get = self._getter.submit(self._get, found, *steps[i + 1])
                self._copy(objects, to, some, part)
            except Exception as error:
                failed = error if isinstance(error, OSError) else OSError(5, str(error))
            if self._parts > 1:
                loading.there(part, failed)
            if failed is not None:
                break
        left = layers if self._parts == 1 else [part for _, part in steps[i + 1 :]]
        for layer in left:
            loading.there(layer, failed)

    def _get(self, found: Sequence[Sequence[tuple[Any, Any]]], some: range, part: int) -> list[Any]:
        objects: dict[int, Any] = {}
        for backend in (self._cpu, self._disk):
            of_it = [i for i in some if found[i][part][0] is backend]
            if of_it:
                got = backend.batched_get_blocking([found[i][part][1] for i in of_it])
                objects.update(zip(of_it, got, strict=True))
        return [objects[i] for i in some]

    def _copy(self, objects: Sequence[Any], to: Any, some: range, part: int) -> None:
        for position, one in zip(some, objects, strict=True):
            if one is None:
                raise OSError(5, "LMCache lost a chunk that was pinned")
            at = position * self._shape.block + part * self._size
            numpy.copyto(to[at : at + self._size], numpy.frombuffer(one.byte_array, numpy.uint8))
            one.ref_count_down()

    def _put(self, blocks: Sequence[int], source: Any, positions: Sequence[int]) -> None:
        size, form = self._size, MemoryFormat.KV_T2D if self._parts > 1 else MemoryFormat.KV_2LTD
        for block, position in zip(blocks, positions, strict=True):
            for part, key in enumerate(self.keys(block)):
                if self._disk.contains(key) or self._disk.exists_in_put_tasks(key):
                    continue
                one = self._cpu.allocate(self._piece, torch.float16, form, busy_loop=True)
                if one is None:
                    return
                at = position * self._shape.block + part * size
                numpy.copyto(numpy.frombuffer(one.byte_array, numpy.uint8), source[at : at + size])
                if self._keeps:
                    self._cpu.batched_submit_put_task([key], [one])
                self._disk.batched_submit_put_task([key], [one])
                one.ref_count_down()


class _LmcacheMatch:
    def __init__(
        self, store: LmcacheStore, found: list[list[tuple[Any, Any]]], tiers: list[int]
    ) -> None:
        self._store, self._found, self.tiers = store, found, tiers

    def load(self, to: Any, layers: range, first: int = 0, ahead: bool = False) -> Loading:
        """LMCache knows no load that others may pass: one ahead is as any other."""
        return self._store.begin_load(self._found, first, to, layers)

    def release(self) -> None:
        _unpin(self._found)
        self._found = []


def _unpin(found: Sequence[Sequence[tuple[Any, Any]]]) -> None:
    for layers in found:
        for backend, key in layers:
            backend.unpin(key)


def main() -> int:
    for name in logging.root.manager.loggerDict:
        if name.startswith("lmcache"):
            logging.getLogger(name).setLevel(logging.ERROR)
    ours = kv_store.maker

    def maker(
        name: str, machine: headrace.Machine, directory: Path, depth: int, gpu: int | None = None
    ) -> kvcache.MakeStore:
        if name not in ("lmcache", "lmcache-whole"):
            return ours(name, machine, directory, depth, gpu)
        whole = name == "lmcache-whole"
        return lambda shape, blocks, by_layer: LmcacheStore(shape, blocks, directory, depth, whole)

    kv_store.maker = maker
    kv_store.STORES = (*kv_store.STORES, "lmcache", "lmcache-whole")
    return int(app.run(["bench", "kvcache", *sys.argv[1:]]) or 0)


if __name__ == "__main__":
    sys.exit(main())
