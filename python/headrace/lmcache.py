# SPDX-License-Identifier: Apache-2.0
"""A storage plug-in of LMCache: its chunks in the tiers of headrace.kvcache.

LMCache imports this module when its configuration names it, and it imports LMCache; nothing else of
Headrace does (docs/howto/kv-store.md):

    local_cpu: false
    max_local_cpu_size: 5
    storage_plugins: ["headrace"]
    extra_config:
      storage_plugin.headrace.module_path: headrace.lmcache
      storage_plugin.headrace.class_name: Backend
      headrace.revision: "2026-11-23"
      headrace.tiers:
        - {memory: dram, bytes: 8589934592}
        - {folder: /mnt/ssd/kv, bytes: 214748364800}
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy

import headrace
from headrace import kvcache
from headrace._errors import error_of

try:
    from lmcache.v1.memory_management import MemoryFormat
    from lmcache.v1.storage_backend.abstract_backend import StoragePluginInterface
except ImportError as error:
    raise headrace.UnsupportedError(
        f"headrace.lmcache needs LMCache 0.5, whose storage plug-ins it implements ({error})"
    ) from error

_log = logging.getLogger(__name__)

#: Longest wait of close() for chunks in flight, and once more for flush().
_CLOSE_SECONDS = 60.0
#: Longest wait of one call for all its loads.
_LOAD_SECONDS = 60.0

Loads = list[tuple[Any, kvcache.Load]]  # what is loaded into, and how it gets there

#: Copies that may not have ended, and what to do when they have. Holds the memory that they read or
#: write, also without a back end: LMCache gives memory to others once its object is dropped.
_under_way: list[tuple[kvcache.Load | kvcache.Stored, Callable[[], None]]] = []


def _sweep() -> None:
    """Does what waits for copies that have ended. Any thread; whoever removes an entry has it."""
    for entry in _under_way.copy():
        if entry[0].done():
            try:
                _under_way.remove(entry)
            except ValueError:
                continue
            entry[1]()


class Backend(StoragePluginInterface):
    """Whole chunks, found by their keys. They leave by themselves, from the last tier for good;
    remove() removes none. Chunks of another size than the configured one (`save_unfull_chunk`,
    models with layers of several kinds) are not kept. Thread-safe.
    """

    def __init__(
        self,
        config: Any = None,
        metadata: Any = None,
        local_cpu_backend: Any = None,
        loop: asyncio.AbstractEventLoop | None = None,
        dst_device: str = "cpu",
    ) -> None:
        """InvalidError: the configuration; it says what to write."""
        super().__init__(dst_device, config, metadata, local_cpu_backend, loop)
        _sweep()  # what an earlier one left may hold the folder
        if config is None or metadata is None or loop is None:
            raise headrace.InvalidError("LMCache gives a plug-in its config, metadata and loop")
        if local_cpu_backend is None:
            raise headrace.InvalidError(
                "chunks are put into memory of LMCache: set max_local_cpu_size above 0, and let "
                "workers look up chunks, not the scheduler, since one process has a folder"
            )
        if config.use_layerwise and metadata.use_mla:
            raise headrace.InvalidError("layers of MLA one by one; set use_layerwise: false")
        tiers = _tiers(config, metadata.worker_id)
        folders = [os.fsdecode(tier.path) for tier in tiers if isinstance(tier, kvcache.Folder)]
        self._geometry = _geometry(config, metadata, _revision(config, bool(folders)))
        machine = headrace.Machine.discover(storage=[Path(path).parent for path in folders])
        self._store: kvcache.Store | None = kvcache.Store(
            headrace.Mover(machine), self._geometry, tiers
        )
        self._lock = threading.Lock()  # of what follows
        self._putting: set[Any] = set()
        self._tasks: set[Future[None]] = set()
        self._pins: dict[Any, list[kvcache.Match]] = {}
        self._warned = False

    def __str__(self) -> str:
        return "Headrace"

    def contains(self, key: Any, pin: bool = False) -> bool:
        return self.batched_contains([key], pin) == 1

    def batched_contains(self, keys: Sequence[Any], pin: bool = False) -> int:
        """How many leading ones are there."""
        store = self._opened()
        match = store.match_keys([_name(key) for key in keys])
        count = len(match)
        if pin:
            held = [(key, store.match_keys([_name(key)])) for key in keys[:count]]
            with self._lock:
                for key, one in held:
                    self._pins.setdefault(key, []).append(one)
        match.release()
        return count

    async def batched_async_contains(
        self, lookup_id: str, keys: Sequence[Any], pin: bool = False
    ) -> int:
        return self.batched_contains(keys, pin)

    def pin(self, key: Any) -> bool:
        return self.contains(key, pin=True)

    def unpin(self, key: Any) -> bool:
        with self._lock:
            held = self._pins.get(key)
            if not held:
                return False
            held.pop().release()
            if not held:
                del self._pins[key]
        return True

    def remove(self, key: Any, force: bool = True) -> bool:
        return False

    def touch_cache(self) -> None:
        """A load tells the store that a chunk is used; nothing is left to tell."""

    def exists_in_put_tasks(self, key: Any) -> bool:
        _sweep()
        with self._lock:
            return key in self._putting

    def batched_submit_put_task(
        self,
        keys: Sequence[Any],
        objs: Sequence[Any],
        transfer_spec: Any = None,
        on_complete_callback: Callable[[Any], None] | None = None,
    ) -> list[Future[None]] | None:
        """Chunks on their way are kept by a reference each. One that finds no room is dropped."""
        if len(keys) != len(objs):
            raise headrace.InvalidError(f"{len(keys)} keys for {len(objs)} chunks")
        begun = [
            future
            for key, obj in zip(keys, objs, strict=True)
            if (future := self._put(key, obj, on_complete_callback)) is not None
        ]
        return begun or None

    def _put(self, key: Any, obj: Any, then: Callable[[Any], None] | None) -> Future[None] | None:
        chunk = _bytes(obj)
        if len(chunk) != self._geometry.block_bytes:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "a chunk of %d bytes is not kept: those of the configuration have %d",
                    len(chunk), self._geometry.block_bytes,
                )  # fmt: skip
            return None
        store = self._opened()
        with self._lock:
            if key in self._putting:
                return None
            self._putting.add(key)
        try:
            obj.ref_count_up()
        except BaseException:
            with self._lock:
                self._putting.remove(key)
            raise
        put_ended = partial(self._put_ended, key, obj)
        try:
            stored = store.store([_name(key)], chunk)
        except Exception:
            put_ended()
            raise
        _under_way.append((stored, put_ended))
        end = self._stored(key, stored, then)
        try:
            task = asyncio.run_coroutine_threadsafe(end, self.loop)
        except BaseException:  # the loop is closed
            end.close()
            raise
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _stored(
        self, key: Any, stored: kvcache.Stored, then: Callable[[Any], None] | None
    ) -> None:
        there = False
        try:
            counts = await stored
            there = counts.stored + counts.present == 1
        except headrace.Error as error:
            _log.warning("a chunk is not kept: %s", error)
        _sweep()
        if there and then is not None:
            try:
                then(key)
            except Exception:
                _log.exception("a callback of LMCache failed")

    def _put_ended(self, key: Any, obj: Any) -> None:
        obj.ref_count_down()
        with self._lock:
            self._putting.remove(key)

    def get_blocking(self, key: Any) -> Any:
        return self.batched_get_blocking([key])[0]

    def batched_get_blocking(self, keys: Sequence[Any]) -> list[Any]:
        """The leading ones that are there and come in time, and None for the others."""
        with self._loading(keys) as (loads, found):
            until = time.monotonic() + _LOAD_SECONDS
            for obj, load in loads:
                load.wait(_left(until))
                found.append(obj)
        return found + [None] * (len(keys) - len(found))

    async def batched_get_non_blocking(
        self, lookup_id: str, keys: Sequence[Any], transfer_spec: Any = None
    ) -> list[Any]:
        """The leading ones that are there and come in time."""
        with self._loading(keys) as (loads, found):
            async with asyncio.timeout(_LOAD_SECONDS):
                for obj, load in loads:
                    await load
                    found.append(obj)
        return found

    @contextmanager
    def _loading(self, keys: Sequence[Any]) -> Iterator[tuple[Loads, list[Any]]]:
        """Loads that have begun, and a list for the objects that have come, in their order. At the
        first failure, and with any other exception, the rest is cancelled, and given back once
        nothing writes to it.
        """
        loads: Loads = []
        found: list[Any] = []
        good = 0
        try:
            self._begin(keys, loads)
            try:
                yield loads, found
            except (headrace.Error, TimeoutError) as error:
                _log.warning("a chunk is computed again: %s", str(error) or "too late")
            good = len(found)
        finally:
            _under_way.extend([(load, obj.ref_count_down) for obj, load in loads[good:]])
            for _, load in loads[good:]:
                load.cancel()
        _sweep()

    def _begin(self, keys: Sequence[Any], loads: Loads) -> None:
        """Starts loading those that are there into memory of LMCache, as far as it has some: to
        wait for more has no bound, and this call may have it.
        """
        store = self._opened()
        match = store.match_keys([_name(key) for key in keys])
        shapes, dtypes, form = self._shapes()
        try:
            for name in match.keys:
                obj = self.local_cpu_backend.allocate(shapes, dtypes, form, busy_loop=False)
                if obj is None:
                    break
                try:
                    load = store.load([name], _bytes(obj), layer_order=False)
                except headrace.Error as error:
                    _log.warning("a chunk is computed again: %s", error)
                    obj.ref_count_down()
                    break
                loads.append((obj, load))
        finally:
            match.release()

    def _shapes(self) -> tuple[Any, Any, Any]:
        shapes = self.metadata.get_shapes(self.config.chunk_size)
        form = MemoryFormat.KV_MLA_FMT if self.metadata.use_mla else MemoryFormat.KV_2LTD
        if self.config.use_layerwise:
            tensors, _, tokens, hidden = shapes[0]
            shapes, form = [type(shapes[0])((tokens, tensors, hidden))], MemoryFormat.KV_T2D
        return shapes, self.metadata.get_dtypes()[: len(shapes)], form

    def get_allocator_backend(self) -> Any:
        return self.local_cpu_backend

    def close(self) -> None:
        """Waits for chunks on their way, and writes to the folder what is only in memory."""
        with self._lock:
            pins = [match for held in self._pins.values() for match in held]
            self._pins = {}
        until = time.monotonic() + _CLOSE_SECONDS
        for copy, _ in _under_way.copy():
            with suppress(headrace.Error):
                copy.wait(_left(until))
        if self.loop.is_running():
            wait(self._tasks.copy(), _left(until))
        _sweep()
        for match in pins:
            match.release()
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close(timeout=_CLOSE_SECONDS)
            except headrace.Error as error:
                _log.warning("not all chunks are kept: %s", error)

    def _opened(self) -> kvcache.Store:
        _sweep()
        if self._store is None:
            raise headrace.CancelledError("the back end is closed")
        return self._store


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


def _name(key: Any) -> bytes:
    """16 bytes that stand for a key of LMCache."""
    return hashlib.blake2b(key.to_string().encode(), digest_size=16).digest()


def _bytes(obj: Any) -> Any:
    return numpy.frombuffer(obj.byte_array, dtype=numpy.uint8)


def _geometry(config: Any, metadata: Any, revision: str) -> kvcache.Geometry:
    """The geometry of a chunk; with `use_layerwise`, of one of its layers."""
    layers, tensors, _, heads, size = metadata.kv_shape
    rank = f"{metadata.worker_id}/{metadata.world_size}"
    return kvcache.Geometry(
        metadata.model_name,
        layers=1 if config.use_layerwise else layers,
        kv_heads=heads,
        head_dim=size,
        tensors=tensors,
        element_bytes=metadata.kv_dtype.itemsize,
        block_tokens=config.chunk_size,
        revision=f"lmcache {metadata.kv_dtype} {rank} {revision}",
    )


def _revision(config: Any, needed: bool) -> str:
    """From `headrace.revision`: the weights, since LMCache's keys have only the model's name."""
    revision = (config.extra_config or {}).get("headrace.revision")
    if not isinstance(revision, str | None) or (needed and not revision):
        raise headrace.InvalidError(
            "a folder outlives the weights that its chunks were computed with; give extra_config "
            'headrace.revision, a string that changes whenever they do, such as "2026-11-23"'
        )
    return revision or ""


def _is_tier(tier: Any) -> bool:
    if not isinstance(tier, dict) or len(tier) != 2 or "bytes" not in tier:
        return False
    where = tier.get("memory", tier.get("folder"))
    size = tier["bytes"]
    return (
        isinstance(where, str) and where != ""
        and isinstance(size, int) and not isinstance(size, bool) and 0 < size < 1 << 63
    )  # fmt: skip


def _tiers(config: Any, worker: int) -> list[kvcache.Memory | kvcache.Folder]:
    """From `headrace.tiers`. Each worker has a folder of its own."""
    tiers: list[kvcache.Memory | kvcache.Folder] = []
    given = (config.extra_config or {}).get("headrace.tiers", [])
    for tier in given if isinstance(given, list) else [given]:
        if not _is_tier(tier):
            raise headrace.InvalidError(
                f"{tier} is no tier; write {{memory: dram, bytes: 8589934592}} or "
                "{folder: /mnt/ssd/kv, bytes: 214748364800}"
            )
        if "folder" in tier:
            folder = Path(tier["folder"])
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise error_of(error, f"cannot make {folder}") from None
            tiers.append(kvcache.Folder(folder / f"worker-{worker}", tier["bytes"]))
        else:
            tiers.append(kvcache.Memory(tier["memory"], tier["bytes"]))
    if not tiers:
        raise headrace.InvalidError(
            "no tiers; give extra_config a list headrace.tiers, from fast to slow, such as "
            "[{memory: dram, bytes: 8589934592}, {folder: /mnt/ssd/kv, bytes: 214748364800}]"
        )
    return tiers
