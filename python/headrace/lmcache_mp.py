# SPDX-License-Identifier: Apache-2.0
"""An L2 adapter of LMCache's multi-process mode: its objects in the tiers of headrace.kvcache.

LMCache imports this module when its configuration names it (docs/howto/lmcache.md):

    {"type": "plugin", "module_path": "headrace.lmcache_mp", "class_name": "L2Adapter",
     "adapter_params": {"folder": "/mnt/ssd/kv", "budget": "500GiB", "revision": "2026-11"}}

Tested with LMCache 0.5.6. For LMCache inside the engine's process: headrace.lmcache.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import shutil
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace
from headrace import _plugin, kvcache
from headrace._core import CompletionQueue, Extent, Object
from headrace._key_list import KeyList
from headrace._plugin import bytes_of, make_folder, settings_of
from headrace.kvcache import memory_range

try:
    from lmcache.lmcache_native import Bitmap
    from lmcache.v1.distributed.api import KeyEntry, KeyListPage, ObjectKey
    from lmcache.v1.distributed.internal_api import L2StoreResult
    from lmcache.v1.distributed.l2_adapters.base import AdapterUsage, L2AdapterInterface
except ImportError as error:
    raise headrace.UnsupportedError(
        f"headrace.lmcache_mp needs LMCache 0.5, whose L2 adapters it implements ({error})"
    ) from error

_log = logging.getLogger(__name__)

#: How long an error of the disk makes the adapter unhealthy.
_UNWELL_SECONDS = 60.0


@dataclass(frozen=True)
class Settings(_plugin.Settings):
    """`adapter_params`. `unit`: space is given in units of this size, and objects have any size:
    half a unit is lost for each on average, and each unit of the budget takes 100 bytes of memory.
    """

    unit: int | str = "64KiB"


@dataclass
class _Task:
    """A store or load. No handle: nothing of it was begun."""

    keys: list[Any]
    sizes: list[int]
    loads: bool
    handle: kvcache.Load | kvcache.Stored | None = None
    ended: bool = False


class L2Adapter(L2AdapterInterface):  # type: ignore[misc]
    """Objects are verified when they are read; a damaged one is absent, and no other is lost with
    it. The folder never exceeds its budget; the next process finds its objects. Thread-safe.
    """

    def __init__(self, params: dict[str, Any], l1_memory_desc: Any = None) -> None:
        """Errors: as of headrace.kvcache.Store, and InvalidError for wrong settings."""
        self._settings = settings_of(Settings, params, "headrace.lmcache_mp")
        if self._settings.server:
            raise headrace.InvalidError("headrace.lmcache_mp has no server=; LMCache is the server")
        self._budget = bytes_of(self._settings.budget)
        super().__init__(self._budget)
        self._folder = Path(self._settings.folder).absolute()
        make_folder(self._folder)
        machine = headrace.Machine.discover(storage=[self._folder])
        self._mover = headrace.Mover(machine)
        self._arena: headrace.MemoryRange | None = None
        self._arena_at = range(0)
        if l1_memory_desc is not None:
            self._arena_at = range(l1_memory_desc.ptr, l1_memory_desc.ptr + l1_memory_desc.size)
            bytes_of_it = (ctypes.c_char * l1_memory_desc.size).from_address(l1_memory_desc.ptr)
            self._arena = memory_range(bytes_of_it, machine)
        self._stored, self._looked, self._loaded = (CompletionQueue() for _ in range(3))
        self._numbers = itertools.count(1)
        # Held from a change of what is there until listeners know of it, before _lock.
        self._reporting = threading.RLock()
        self._lock = threading.Lock()  # of what follows; nobody waits for a disk with it
        self._tasks: dict[int, _Task] = {}
        self._found: dict[int, Any] = {}  # results of lookups
        # Objects that each lookup of a key found, the oldest lookup first.
        self._locks: dict[Any, deque[kvcache.Match]] = {}
        self._discard_old()
        blocks = kvcache.opaque(
            "lmcache", bytes_of(self._settings.unit), revision=self._settings.revision,
            any_size=True,
        )  # fmt: skip
        self._store = self._settings.open(
            self._mover, blocks, self._folder / "objects", list_dropped=True
        )
        self._known = KeyList(self._folder / "keys", self._store)  # that LMCache knows
        names = list(self._known.keys)
        self._sizes = {  # of those
            name: size
            for name, size in zip(names, self._store.sizes(names), strict=True)
            if size is not None
        }
        self._notify_keys_stored(*self._listed())  # counts them; nobody listens yet

    def _discard_old(self) -> None:
        """InvalidError: the folder has objects of an older version, and is not to be emptied."""
        old = list(self._folder.glob("objects-*"))
        if old and self._settings.other != "discard":
            raise headrace.InvalidError(
                f"{old[0]} has objects of an older version; remove it, or set other to discard"
            )
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
            path.with_name(path.name.replace("objects", "keys")).unlink(missing_ok=True)

    def register_listener(self, listener: Any) -> None:
        """Tells it the objects that are there, as LMCache's own adapters do after a restart."""
        with self._reporting:
            super().register_listener(listener)
            with self._lock:
                keys, sizes = self._listed()
            if keys:
                listener.on_l2_keys_stored(keys, sizes)

    def _listed(self) -> tuple[list[Any], list[int]]:
        """Keys and sizes of the objects that are known. Requires: the lock."""
        texts = [self._known.keys[name] for name in self._sizes]
        return [_key_of(text) for text in texts], list(self._sizes.values())

    def get_store_event_fd(self) -> int:
        return self._stored.fileno()

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._looked.fileno()

    def get_load_event_fd(self) -> int:
        return self._loaded.fileno()

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        return self._submit(keys, objects, self._stored)

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        self._notify_keys_accessed(keys)
        return self._submit(keys, objects, self._loaded)

    def _submit(self, keys: list[Any], objects: list[Any], queue: CompletionQueue) -> int:
        memories = [self._memory(each) for each in objects]
        task = _Task(keys, [bytes_each for _, bytes_each in memories], queue is self._loaded)
        number = next(self._numbers)
        names = [_text(key).encode() for key in keys]
        extents = [extent for extent, _ in memories]
        with self._lock:
            self._tasks[number] = task
            try:
                if task.loads and names:
                    promote = bool(self._settings.memory)
                    task.handle = self._store.load_blocks(names, extents, promote=promote)
                elif names:
                    self._remove_of_other_sizes(names, task.sizes)
                    task.handle = self._store.store(names, extents)
            except (headrace.Error, MemoryError) as error:
                _log.warning("%d objects are left out: %s", len(names), error)
            if task.handle is not None:
                queue.add(task.handle, number)
        if task.handle is None:
            queue.tell(number)
        return number

    def _remove_of_other_sizes(self, names: list[bytes], sizes: list[int]) -> None:
        """Objects whose keys were used with another size, which would not be stored."""
        found = self._store.sizes(names)
        old = [name for name, has, size in zip(names, found, sizes, strict=True)
               if has not in (None, size)]  # fmt: skip
        if old:
            self._store.remove(old)

    def _memory(self, each: Any) -> tuple[Extent | Object, int]:
        array = each.byte_array
        bytes_each = len(array)
        at = each.data_ptr
        if self._arena is not None and at in self._arena_at:
            return self._arena.extent(at - self._arena_at.start, bytes_each), bytes_each
        return memory_range(array, self._mover.machine), bytes_each

    def _take(self, queue: CompletionQueue) -> None:
        """Marks the tasks that have ended. Requires: the lock."""
        for number in queue.take():
            if number in self._tasks:
                self._tasks[number].ended = True

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        results: dict[int, Any] = {}
        with self._reporting:
            with self._lock:
                gone, new = self._take_stored(results)
            for changes, tell in (
                (gone, self._notify_keys_deleted), (new, self._notify_keys_stored),
            ):  # fmt: skip
                if changes:
                    tell([_key_of(text) for text, _ in changes], [each for _, each in changes])
        return results

    def _take_stored(
        self, results: dict[int, Any]
    ) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Adds the results of stores that have ended. Returns as _changes(). Requires: the lock."""
        ended: dict[bytes, tuple[str, int]] = {}
        self._take(self._stored)
        over = [number for number, task in self._tasks.items()
                if task.ended and not task.loads]  # fmt: skip
        for number in over:
            task = self._tasks.pop(number)
            good = not task.keys or _all_stored(task.handle, len(task.keys))
            results[number] = L2StoreResult(good, sum(task.sizes))
            for key, each in zip(task.keys, task.sizes, strict=True):
                text = _text(key)
                ended[kvcache.key(text.encode())] = (text, each)
        return self._changes(ended)

    def _changes(
        self, ended: dict[bytes, tuple[str, int]]
    ) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Objects that LMCache knows and that have left, and those of ended stores that are there
        and new to it. Requires: the lock.
        """
        if self._store.closed:
            return [], []
        known = self._sizes
        left = [name for name in [*self._store.take_dropped(), *ended] if name in known]
        left = list(dict.fromkeys(left))
        gone = [
            (self._known.pop(name) or "", known.pop(name))
            for name, size in zip(left, self._store.sizes(left), strict=True)
            if size != known[name]
        ]
        came = {name: each for name, each in ended.items() if name not in known}
        new = [
            (name, came[name])
            for name, size in zip(came, self._store.sizes(list(came)), strict=True)
            if size == came[name][1]
        ]
        self._known.add({name: text for name, (text, _) in new})
        known.update((name, size) for name, (_, size) in new)
        return gone, [each for _, each in new]

    def query_load_result(self, task_id: int) -> Any:
        with self._lock:
            self._take(self._loaded)
            task = self._tasks.get(task_id)
            if task is None or not task.ended:
                if any(each.loads and each.ended for each in self._tasks.values()):
                    self._loaded.tell(0)
                return None
            del self._tasks[task_id]
            # The descriptor is readable until all results are taken.
            if any(each.loads and each.ended for each in self._tasks.values()):
                self._loaded.tell(0)
        bitmap = Bitmap(len(task.keys))
        if isinstance(task.handle, kvcache.Load):
            for i, there in enumerate(task.handle.loaded):
                if there:
                    bitmap.set(i)
        return bitmap

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: Any) -> int:
        number = next(self._numbers)
        names = [_text(key).encode() for key in keys]
        bitmap = Bitmap(len(keys))
        with self._lock:
            for i, name in enumerate(names):
                found = self._store.pin([name])
                if len(found):
                    bitmap.set(i)
                    self._locks.setdefault(keys[i], deque()).append(found)
            self._found[number] = bitmap
        self._looked.tell(number)
        return number

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        self._looked.take()
        with self._lock:
            return self._found.pop(task_id, None)

    def submit_unlock(self, keys: list[Any]) -> None:
        with self._lock:
            for key in keys:
                locks = self._locks.get(key)
                if not locks:
                    continue
                locks.popleft().release()
                if not locks:
                    del self._locks[key]

    def delete(self, keys: list[Any]) -> None:
        """Locked objects stay, as in LMCache's own adapters."""
        with self._reporting:
            with self._lock:
                gone = self._remove([key for key in keys if key not in self._locks])
            if gone:
                self._notify_keys_deleted([key for key, _ in gone], [each for _, each in gone])

    def _remove(self, keys: list[Any]) -> list[tuple[Any, int]]:
        """Objects that LMCache knew, with their sizes. Requires: the lock."""
        gone: list[tuple[Any, int]] = []
        for key in keys:
            name = _text(key).encode()
            removed = self._store.remove([name])
            self._known.pop(kvcache.key(name))
            size = self._sizes.pop(kvcache.key(name), None)
            if removed and size is not None:
                gone.append((key, size))
        return gone

    def list_l2_keys(
        self, model_name: str | None = None, page_size: int = 500, cursor: str | None = None
    ) -> Any:
        """As of LMCache. An object whose key an earlier process had not written to the folder,
        because it was killed or the disk was full, is found by lookups but not listed.
        """
        if page_size <= 0:
            raise ValueError(f"page_size is {page_size}; give at least 1")
        after = b""
        if cursor is not None:
            with suppress(ValueError):
                after = bytes.fromhex(cursor)
            if not after:
                raise ValueError(f"the cursor {cursor!r} is none of list_l2_keys")
        entries: list[KeyEntry] = []
        with self._lock:
            while len(entries) < page_size:
                page = self._known.page(after, page_size - len(entries))
                if not page:
                    return KeyListPage(tuple(entries), None)
                sizes = self._store.sizes([name for name, _ in page])
                keys = [(_key_of(text), size) for (_, text), size in zip(page, sizes, strict=True)]
                entries += [
                    KeyEntry(key.to_encoded_object_key(), size)
                    for key, size in keys
                    if size is not None and model_name in (None, key.model_name)
                ]
                after = page[-1][0]
        return KeyListPage(tuple(entries), after.hex())

    def get_usage(self) -> Any:
        """The bytes in the folder, with objects that an earlier process left, and those of objects
        that are to be written there, at most the budget.
        """
        with self._lock:
            used = 0 if self._store.closed else self._store.stats().tiers[-1].used
        known = super().get_usage()
        used = max(used, min(known.total_bytes_used, self._budget))
        return AdapterUsage(used, self._budget, known.bytes_by_cache_salt)

    def report_status(self) -> dict[str, Any]:
        stats = self._store.stats()
        age = stats.last_error_age
        wrong = age is not None and age < _UNWELL_SECONDS
        return {"is_healthy": not wrong, "last_error": stats.last_error if wrong else "",
                "objects": stats.asdict()}  # fmt: skip

    def close(self) -> None:
        """Ends what is in flight, and writes to the folder what is only in memory."""
        with self._lock:
            self._locks = {}
            self._known.close()
            if self._store.closed:
                return
        try:
            self._store.close()
        except headrace.Error as error:
            _log.warning("not all objects are kept: %s", error)


def _text(key: Any) -> str:
    """All fields of an ObjectKey, none of which has an "@"; its UTF-8 is the name in the store."""
    fields = (
        key.chunk_hash.hex(), key.model_name, f"{key.kv_rank:x}", f"{key.object_group_id:x}",
        key.cache_salt,
    )  # fmt: skip
    return "@".join(fields)


def _key_of(text: str) -> Any:
    """The ObjectKey of _text()."""
    digest, model, rank, group, salt = text.split("@")
    return ObjectKey(bytes.fromhex(digest), model, int(rank, 16), int(group, 16), salt)


def _all_stored(handle: kvcache.Load | kvcache.Stored | None, blocks: int) -> bool:
    if not isinstance(handle, kvcache.Stored):
        return False
    counts = handle.wait(0)
    return counts.stored + counts.present == blocks
