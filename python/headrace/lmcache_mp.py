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
from dataclasses import dataclass, field
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
    """`adapter_params`. `sizes`: how many sizes objects may have, as those of models with layers of
    several kinds; each has an equal part of the budget, and a folder below `folder`.
    """

    sizes: int = 1


@dataclass
class _Task:
    """A store or load: its handles, one for each size, with the numbers of their objects."""

    keys: list[Any]
    sizes: list[int]
    loads: bool
    parts: list[tuple[kvcache.Load | kvcache.Stored | None, list[int]]] = field(
        default_factory=list
    )
    left: int = 1  # parts that have not ended, and the call that starts them


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
        for text in (self._settings.memory, self._settings.in_flight):
            bytes_of(text)
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
        self._opening = threading.Lock()  # held while a store opens or closes, before _lock
        # Held from a change of what is there until listeners know of it, before _lock.
        self._reporting = threading.RLock()
        self._lock = threading.Lock()  # of what follows; nobody waits for a disk with it
        self._stores: dict[int, kvcache.Store] = {}  # by size of object
        self._lists: dict[int, KeyList] = {}  # of the same; keys that LMCache knows
        self._tasks: dict[int, _Task] = {}
        self._of_part: dict[int, int] = {}  # tasks by what the queues tell
        self._found: dict[int, Any] = {}  # results of lookups
        # Blocks that each lookup of a key found, the oldest lookup first: one of each size.
        self._locks: dict[Any, deque[list[kvcache.Match]]] = {}
        self._used: set[int] = set()  # sizes of objects that were stored or loaded
        self._warned = self._closed = False
        found = [int(name) for each in sorted(self._folder.glob("objects-*"))
                 if (name := each.name.partition("-")[2]).isdecimal()]  # fmt: skip
        if len(found) > self._settings.sizes:
            raise headrace.InvalidError(
                f"{self._folder} has objects of {len(found)} sizes; set `sizes`, or remove the "
                "folders of sizes that are not used any more"
            )
        for bytes_each in found:
            self._store_of(bytes_each)
        self._notify_keys_stored(*self._listed())  # counts them; nobody listens yet

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
        keys: list[Any] = []
        sizes: list[int] = []
        for bytes_each, known in self._lists.items():
            keys += [_key_of(text) for text in known.keys.values()]
            sizes += [bytes_each] * len(known.keys)
        return keys, sizes

    def _store_of(self, bytes_each: int) -> kvcache.Store | None:
        """None: another size than those that are kept. Waits for a disk where a store is opened.
        Errors: as of headrace.kvcache.Store, and CancelledError: the adapter is closed.
        """
        with self._lock:
            if bytes_each in self._stores or not self._may_open():
                return self._open_store(bytes_each)
        with self._opening:
            with self._lock:
                if bytes_each in self._stores or not self._may_open():
                    return self._open_store(bytes_each)
                unused = self._take_unused() if self._is_full() else None
            if unused is not None:
                self._discard(*unused)
            path = self._folder / f"objects-{bytes_each}"
            store = self._settings.open(
                self._mover, "lmcache", bytes_each, path,
                share=1 / self._settings.sizes, list_dropped=True,
            )  # fmt: skip
            known = KeyList(self._folder / f"keys-{bytes_each}", store)
            with self._lock:
                if not self._closed:
                    self._stores[bytes_each] = store
                    self._lists[bytes_each] = known
                    return store
            known.close()
            store.close(flush=False)
            raise headrace.CancelledError("the adapter is closed")

    def _is_full(self) -> bool:
        return len(self._stores) >= self._settings.sizes

    def _may_open(self) -> bool:
        """Whether one more store may be there. Requires: the lock."""
        unused = self._settings.other == "discard" and self._stores.keys() - self._used
        return not self._closed and (not self._is_full() or bool(unused))

    def _open_store(self, bytes_each: int) -> kvcache.Store | None:
        """Requires: the lock."""
        if self._closed:
            raise headrace.CancelledError("the adapter is closed")
        store = self._stores.get(bytes_each)
        if store is None and not self._warned:
            self._warned = True
            _log.warning(
                "objects of %d bytes are not kept, besides those of %s; set `sizes`",
                bytes_each, sorted(self._stores),
            )  # fmt: skip
        return store

    def _take_unused(self) -> tuple[int, kvcache.Store, KeyList]:
        """Takes out a size that has not been used since the start. Requires: the lock, and that
        there is one.
        """
        bytes_each = next(iter(self._stores.keys() - self._used))
        return bytes_each, self._stores.pop(bytes_each), self._lists.pop(bytes_each)

    def _discard(self, bytes_each: int, store: kvcache.Store, known: KeyList) -> None:
        store.close(flush=False)
        known.close()
        (self._folder / f"keys-{bytes_each}").unlink(missing_ok=True)
        shutil.rmtree(self._folder / f"objects-{bytes_each}", ignore_errors=True)

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
        by_size: dict[int, list[int]] = {}
        for i, bytes_each in enumerate(task.sizes):
            by_size.setdefault(bytes_each, []).append(i)
        stores = {bytes_each: self._try_store_of(bytes_each) for bytes_each in by_size}
        with self._lock:
            self._tasks[number] = task
            for bytes_each, some in by_size.items():
                names = [_text(keys[i]).encode() for i in some]
                extents = [memories[i][0] for i in some]
                handle: kvcache.Load | kvcache.Stored | None = None
                try:
                    if (store := stores[bytes_each]) is None:
                        pass
                    elif task.loads:
                        handle = store.load_blocks(
                            names, extents, promote=bool(self._settings.memory)
                        )
                    else:
                        handle = store.store(names, extents)
                except (headrace.Error, MemoryError) as error:
                    _log.warning("%d objects are left out: %s", len(some), error)
                task.parts.append((handle, some))
                if handle is not None:
                    task.left += 1
                    part = next(self._numbers)
                    self._of_part[part] = number
                    queue.add(handle, part)
            part = next(self._numbers)
            self._of_part[part] = number
        queue.tell(part)
        return number

    def _try_store_of(self, bytes_each: int) -> kvcache.Store | None:
        with self._lock:
            self._used.add(bytes_each)
        try:
            return self._store_of(bytes_each)
        except (headrace.Error, MemoryError) as error:
            _log.warning("objects of %d bytes are left out: %s", bytes_each, error)
            return None

    def _memory(self, each: Any) -> tuple[Extent | Object, int]:
        array = each.byte_array
        bytes_each = len(array)
        at = each.data_ptr
        if self._arena is not None and at in self._arena_at:
            return self._arena.extent(at - self._arena_at.start, bytes_each), bytes_each
        return memory_range(array, self._mover.machine), bytes_each

    def _take(self, queue: CompletionQueue) -> None:
        """Counts the parts that have ended. Requires: the lock."""
        for part in queue.take():
            if part == 0:
                continue
            self._tasks[self._of_part.pop(part)].left -= 1

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
        ended: dict[int, dict[bytes, str]] = {}
        self._take(self._stored)
        over = [number for number, task in self._tasks.items()
                if task.left == 0 and not task.loads]  # fmt: skip
        for number in over:
            task = self._tasks.pop(number)
            good = all(_all_stored(handle, len(some)) for handle, some in task.parts)
            results[number] = L2StoreResult(good, sum(task.sizes))
            for key, each in zip(task.keys, task.sizes, strict=True):
                text = _text(key)
                ended.setdefault(each, {})[kvcache.key(text.encode())] = text
        return self._changes(ended)

    def _changes(
        self, ended: dict[int, dict[bytes, str]]
    ) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Objects that LMCache knows and that have left, and those of ended stores that are there
        and new to it. Requires: the lock.
        """
        gone: list[tuple[str, int]] = []
        new: list[tuple[str, int]] = []
        for bytes_each, store in self._stores.items():
            known = self._lists[bytes_each]
            left = [name for name in dict.fromkeys(store.take_dropped()) if name in known.keys]
            for name, has in zip(left, store.contains(left), strict=True):
                if not has and (text := known.pop(name)):
                    gone.append((text, bytes_each))
            came = {name: text for name, text in ended.get(bytes_each, {}).items()
                    if name not in known.keys}  # fmt: skip
            for name, has in zip(list(came), store.contains(list(came)), strict=True):
                if not has:
                    del came[name]
            known.add(came)
            new += [(text, bytes_each) for text in came.values()]
        return gone, new

    def query_load_result(self, task_id: int) -> Any:
        with self._lock:
            self._take(self._loaded)
            task = self._tasks.get(task_id)
            if task is None or task.left > 0:
                if any(each.loads and each.left == 0 for each in self._tasks.values()):
                    self._loaded.tell(0)
                return None
            del self._tasks[task_id]
            # The descriptor is readable until all results are taken.
            if any(each.loads and each.left == 0 for each in self._tasks.values()):
                self._loaded.tell(0)
        bitmap = Bitmap(len(task.keys))
        for handle, some in task.parts:
            if isinstance(handle, kvcache.Load):
                for i, there in zip(some, handle.loaded, strict=True):
                    if there:
                        bitmap.set(i)
        return bitmap

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: Any) -> int:
        number = next(self._numbers)
        names = [_text(key).encode() for key in keys]
        bitmap = Bitmap(len(keys))
        with self._lock:
            for i, name in enumerate(names):
                found = [match for store in self._stores.values()
                         if len(match := store.pin([name]))]  # fmt: skip
                if found:
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
                for match in locks.popleft():
                    match.release()
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
            for bytes_each, store in self._stores.items():
                removed = store.remove([name])
                known = self._lists[bytes_each].pop(kvcache.key(name))
                if removed and known is not None:
                    gone.append((key, bytes_each))
        return gone

    def list_l2_keys(
        self, model_name: str | None = None, page_size: int = 500, cursor: str | None = None
    ) -> Any:
        """As of LMCache. An object whose key an earlier process had not written to the folder,
        because it was killed or the disk was full, is found by lookups but not listed.
        """
        if page_size <= 0:
            raise ValueError(f"page_size is {page_size}; give at least 1")
        at, after = _place(cursor)
        entries: list[KeyEntry] = []
        with self._lock:
            sizes = sorted(size for size in self._lists if size >= at)
            while sizes and len(entries) < page_size:
                bytes_each = sizes[0]
                page = self._lists[bytes_each].page(after, page_size - len(entries))
                there = self._stores[bytes_each].contains([name for name, _ in page])
                keys = [_key_of(text) for (_, text), has in zip(page, there, strict=True) if has]
                entries += [
                    KeyEntry(key.to_encoded_object_key(), bytes_each)
                    for key in keys
                    if model_name in (None, key.model_name)
                ]
                after = page[-1][0] if page else b""
                if not page:
                    del sizes[0]
        token = f"{sizes[0]}-{after.hex()}" if sizes else None
        return KeyListPage(tuple(entries), token)

    def get_usage(self) -> Any:
        """The bytes in the folder, with objects that an earlier process left."""
        with self._lock:
            used = sum(store.stats().tiers[-1].used for store in self._stores.values())
        return AdapterUsage(used, self._budget, super().get_usage().bytes_by_cache_salt)

    def report_status(self) -> dict[str, Any]:
        with self._lock:
            stats = {bytes_each: store.stats() for bytes_each, store in self._stores.items()}
        wrong = [each.last_error for each in stats.values()
                 if each.last_error_age is not None
                 and each.last_error_age < _UNWELL_SECONDS]  # fmt: skip
        return {"is_healthy": not wrong, "last_error": "; ".join(wrong),
                "objects": {each: of.asdict() for each, of in stats.items()}}  # fmt: skip

    def close(self) -> None:
        """Ends what is in flight, and writes to the folder what is only in memory."""
        with self._lock:
            self._closed = True
        with self._opening, self._lock:
            stores, self._stores = self._stores, {}
            lists, self._lists = self._lists, {}
            self._locks = {}
        for known in lists.values():
            known.close()
        for store in stores.values():
            try:
                store.close()
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


def _place(cursor: str | None) -> tuple[int, bytes]:
    """The size of objects and the name that a page of keys begins behind."""
    if cursor is None:
        return 0, b""
    bytes_each, dash, name = cursor.partition("-")
    if not dash or not bytes_each.isdecimal():
        raise ValueError(f"the cursor {cursor!r} is none of list_l2_keys")
    return int(bytes_each), bytes.fromhex(name)


def _all_stored(handle: kvcache.Load | kvcache.Stored | None, blocks: int) -> bool:
    if not isinstance(handle, kvcache.Stored):
        return False
    counts = handle.wait(0)
    return counts.stored + counts.present == blocks
