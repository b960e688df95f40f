# SPDX-License-Identifier: Apache-2.0
"""Files of other file systems, read through the store of this process."""

from __future__ import annotations

import errno
import itertools
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.implementations.dirfs import DirFileSystem

from headrace import kvcache
from headrace._core import Error, Extent
from headrace._reading.caches import REMOTE_BLOCK, Caches, unlock_in_children
from headrace._serving.client import Attached

_log = logging.getLogger(__name__)

#: Largest number of blocks in one request: larger reads are split, so that several requests run at
#: once.
REQUEST_BLOCKS = 32
#: Largest number of requests of one read that run at once.
MOST_REQUESTS = 16
#: A read waits for another thread's fetch of the same blocks at most this long.
FETCH_SECONDS = 600


@dataclass(frozen=True)
class Version:
    """A version of a file: `identity` changes with its bytes."""

    path: str
    size: int
    identity: str

    def key(self, block: int) -> bytes:
        return f"{self.identity}\0{self.path}\0{block}".encode()

    def bytes_of(self, block: int) -> int:
        """The last block of a file is shorter."""
        return min(REMOTE_BLOCK, self.size - block * REMOTE_BLOCK)


#: Entries of info() that change with a file. The ukey() of some file systems is only its name.
_STAMPS = ("size", "ETag", "mtime", "LastModified", "last_modified", "updated", "version_id")


#: Entries that change when a file is read: the ukey() that fsspec itself gives is of all of them.
_READ_TIMES = ("time", "atime", "accessTime", "last_accessed")


class RemoteFiles:
    """Thread-safe. A block that several threads miss is fetched once."""

    def __init__(self, caches: Caches, fs: Any, name: str) -> None:
        """`name`: the file system's name, with the options that distinguish it from others of its
        kind."""
        self._caches = caches
        self._fs = fs
        self._name = name
        unlock_in_children(self)

    def unlock(self) -> None:
        self._lock = threading.Lock()
        self._fetching: dict[bytes, threading.Event] = {}
        self._warned = False

    def version(self, path: str) -> Version:
        """FileNotFoundError; IsADirectoryError."""
        info = self._fs.info(path)
        if info["type"] == "directory":
            raise IsADirectoryError(path)
        stamps = [str(info[name]) for name in _STAMPS if name in info]
        below = self._fs
        while isinstance(below, DirFileSystem):
            below = below.fs
        if type(below).ukey is AbstractFileSystem.ukey:
            ukey = str({name: info[name] for name in info if name not in _READ_TIMES})
        else:
            ukey = str(self._fs.ukey(path))
        identity = "\0".join([self._name, ukey, *stamps])
        return Version(path, int(info["size"]), identity)

    def read(self, version: Version, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes of each range (start, end) inside the file. OSError: the file system returned
        another number of bytes than expected.
        """
        blocks = sorted(
            {
                block
                for start, end in ranges
                if start < end
                for block in range(start // REMOTE_BLOCK, (end - 1) // REMOTE_BLOCK + 1)
            }
        )
        held = self._blocks(version, blocks)
        return [_cut(held, start, end) for start, end in ranges]

    def _blocks(self, version: Version, wanted: Sequence[int]) -> dict[int, memoryview]:
        held: dict[int, memoryview] = {}
        missing = list(wanted)
        while missing:
            held.update(self._stored(version, missing))
            missing = [block for block in missing if block not in held]
            mine, others = self._claim(version, missing)
            try:
                if mine:
                    held.update(self._fetched(version, mine))
            finally:
                self._release(version, mine)
            for event in others:
                if not event.wait(FETCH_SECONDS):
                    raise OSError(
                        f"{version.path}: another thread's read of the same bytes has not ended in "
                        f"{FETCH_SECONDS} s; does the file system answer?"
                    )
            missing = [block for block in missing if block not in held]
        return held

    def _claim(
        self, version: Version, blocks: Sequence[int]
    ) -> tuple[list[int], list[threading.Event]]:
        """The blocks that this thread fetches, and the ends of other threads' fetches."""
        mine, others = [], []
        with self._lock:
            for block in blocks:
                event = self._fetching.get(version.key(block))
                if event is None:
                    self._fetching[version.key(block)] = threading.Event()
                    mine.append(block)
                else:
                    others.append(event)
        return mine, others

    def _release(self, version: Version, blocks: Sequence[int]) -> None:
        with self._lock:
            for block in blocks:
                self._fetching.pop(version.key(block)).set()

    def _stored(self, version: Version, blocks: Sequence[int]) -> dict[int, memoryview]:
        store = self._caches.remote
        keys = [version.key(block) for block in blocks]
        try:
            there = [number for number, found in enumerate(store.contains(keys)) if found]
        except Error as error:
            self._server_failed(store, error)
            return {}
        if not there:
            return {}
        sizes = _sizes(store, version, [blocks[number] for number in there])
        memory = bytearray(sum(sizes))
        chosen = [keys[number] for number in there]
        try:
            if isinstance(store, Attached):
                load: Any = store.load_blocks(chosen, memory)
            else:
                load = store.load_blocks(chosen, self._extents(memory, sizes))
        except Error as error:
            self._server_failed(store, error)
            return {}
        try:
            load.wait()
        except Error:
            pass  # damaged or dropped meanwhile: what did not come is fetched
        if not load.done():
            raise OSError(f"{version.path}: its blocks in the cache were not read in time")
        parts = _parts(memoryview(memory), sizes)
        return {
            blocks[number]: part
            for number, part, loaded in zip(there, parts, load.loaded, strict=True)
            if loaded
        }

    def _extents(self, memory: bytearray, sizes: Sequence[int]) -> list[Extent]:
        whole = kvcache.memory_range(memory, self._caches.mover.machine)
        ends = itertools.accumulate(sizes)
        return [whole.extent(end - size, size) for end, size in zip(ends, sizes, strict=True)]

    def _fetched(self, version: Version, blocks: Sequence[int]) -> dict[int, memoryview]:
        requests = _requests(blocks)
        starts = [first * REMOTE_BLOCK for first, _ in requests]
        ends = [min(end * REMOTE_BLOCK, version.size) for _, end in requests]
        try:
            answers = self._ask(version.path, starts, ends)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                errno.ENOENT, "it has vanished since it was opened", version.path
            ) from error
        self._check_unchanged(version)
        held: dict[int, memoryview] = {}
        for (first, end), start, stop, answer in zip(requests, starts, ends, answers, strict=True):
            if len(answer) != stop - start:
                raise OSError(
                    f"{version.path}: {len(answer)} bytes where {stop - start} were asked for at "
                    f"{start}; has it changed? open it again"
                )
            store = self._caches.remote
            sizes = _sizes(store, version, range(first, end))
            whole = bytearray(sum(sizes))
            whole[: len(answer)] = answer
            held.update(zip(range(first, end), _parts(memoryview(whole), sizes), strict=True))
            keys = [version.key(block) for block in range(first, end)]
            try:
                if isinstance(store, Attached):
                    store.store(keys, whole).wait()
                else:
                    store.store(keys, self._extents(whole, sizes)).wait()
            except Error as error:
                self._server_failed(store, error)
        return held

    def _check_unchanged(self, version: Version) -> None:
        """OSError: the bytes that were just fetched may be those of another version."""
        self._fs.invalidate_cache(version.path)
        if self.version(version.path) != version:
            raise OSError(
                errno.ESTALE, "another file has its name since; open it again", version.path
            )

    def _server_failed(self, store: kvcache.Store | Attached, error: Error) -> None:
        """Reads the file system below without the server. A warning is printed once."""
        if not isinstance(store, Attached):
            raise error
        if not self._warned:
            _log.warning("nothing is cached: %s", error)
        self._warned = True

    def _ask(self, path: str, starts: Sequence[int], ends: Sequence[int]) -> Sequence[bytes]:
        """Several requests at once, also of a file system without asyncio."""

        def ask(starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
            answers: list[bytes] = self._fs.cat_ranges(
                [path] * len(starts), list(starts), list(ends), on_error="raise"
            )
            return answers

        if len(starts) == 1 or getattr(self._fs, "async_impl", False):
            return ask(starts, ends)
        with ThreadPoolExecutor(min(len(starts), MOST_REQUESTS), "headrace-fetch") as pool:
            parts = pool.map(lambda start, end: ask([start], [end]), starts, ends)
            return [answer for part in parts for answer in part]


def _requests(blocks: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of neighbours (first, end)."""
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and runs[-1][1] == block and block - runs[-1][0] < REQUEST_BLOCKS:
            runs[-1] = (runs[-1][0], block + 1)
        else:
            runs.append((block, block + 1))
    return runs


def _sizes(
    store: kvcache.Store | Attached, version: Version, blocks: Sequence[int]
) -> list[int]:
    """A server keeps whole blocks, the store of this process what the file has."""
    if isinstance(store, Attached):
        return [REMOTE_BLOCK] * len(blocks)
    return [version.bytes_of(block) for block in blocks]


def _parts(memory: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    ends = itertools.accumulate(sizes)
    return [memory[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _cut(held: dict[int, memoryview], start: int, end: int) -> memoryview:
    first, last = start // REMOTE_BLOCK, (end - 1) // REMOTE_BLOCK
    if start >= end:
        return memoryview(b"")
    if first == last:
        return held[first][start - first * REMOTE_BLOCK : end - first * REMOTE_BLOCK]
    out = bytearray(end - start)
    for block in range(first, last + 1):
        begin = block * REMOTE_BLOCK
        low, high = max(start, begin), min(end, begin + REMOTE_BLOCK)
        out[low - start : high - start] = held[block][low - begin : high - begin]
    return memoryview(out)


class RemoteSource:
    """A version of a file for ReadFile."""

    def __init__(self, files: RemoteFiles, version: Version) -> None:
        self._files = files
        self._version = version

    def size(self) -> int:
        return self._version.size

    def read(self, at: int, length: int) -> bytes:
        return bytes(self._read(at, length))

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, memoryview]]:
        """The bytes of ranges (start, end) inside the file, asked for at once, with their starts.
        """
        found = self._files.read(self._version, ranges)
        return [(start, piece) for (start, _), piece in zip(ranges, found, strict=True)]

    def readinto(self, at: int, into: memoryview) -> int:
        found = self._read(at, len(into))
        into[: len(found)] = found
        return len(found)

    def _read(self, at: int, length: int) -> memoryview:
        end = min(at + length, self._version.size)
        (found,) = self._files.read(self._version, [(min(at, end), end)])
        return found

    def view(self, at: int, length: int) -> memoryview:
        return self._read(at, length)
