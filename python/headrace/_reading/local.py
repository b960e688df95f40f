# SPDX-License-Identifier: Apache-2.0
"""Files that the kernel opens, read through the cache of this process."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from headrace._core import Cache, Extent, File, InvalidError, Prefetch
from headrace._reading.caches import Caches, unlock_in_children

#: Largest number of open files without a reader.
KEPT_OPEN = 256
#: Reads of these lengths get a block of their own, which they read without a copy.
VIEWED = range(64 << 10, (8 << 20) + 1)
#: Other reads copy from blocks that begin and end at multiples of this (Cache.read).
CELL = 64 << 10
#: A file written within this time (ns) before a look may be written again with the same time stamp:
#: ext4 and xfs round to a tick of the kernel (4 ms, 10 ms at most).
RECENT_NS = 100_000_000

_Stamp = tuple[int, int, int, int, int]


@dataclass
class _Opened:
    """An open file, and its status from which on cached bytes are right."""

    file: File
    stamp: _Stamp
    recent: bool


class LocalFiles:
    """Thread-safe. A file that changes is read anew from the next read on."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._files: OrderedDict[str, _Opened] = OrderedDict()
        self._cache: Cache | None = None
        unlock_in_children(self)

    def unlock(self) -> None:
        self._lock = threading.Lock()

    def read(self, path: str, at: int, length: int, opened: os.stat_result | None = None) -> bytes:
        """The bytes at `at`, fewer at the end. OSError: as of open(), or the file is not the one
        that was `opened`.
        """
        extent = self._extent(path, at, length, opened)
        return b"" if extent is None else self._caches.local.read(extent)

    def readinto(self, path: str, at: int, into: memoryview, opened: os.stat_result) -> int:
        """As read(); their number."""
        extent = self._extent(path, at, len(into), opened)
        if extent is None:
            return 0
        self._caches.local.readinto(extent, into[: extent.length])
        return extent.length

    def view(
        self, path: str, at: int, length: int, opened: os.stat_result | None = None
    ) -> memoryview | bytes:
        """As read(), without a copy where that is possible."""
        extent = self._extent(path, at, length, opened)
        if extent is None:
            return b""
        cache = self._caches.local
        return cache.view(extent) if extent.length in VIEWED else cache.read(extent)

    def plan(self, path: str, ranges: Sequence[tuple[int, int]]) -> Prefetch | None:
        """Begins to fetch ranges (start, end) for view(), in this order."""
        opened, size = self._current(path)
        inside = [(start, min(end, size)) for start, end in ranges if start < min(end, size)]
        extents = [
            opened.file.extent(start, min(end, size) - start)
            for start, end in (_blocks_of(*each) for each in inside)
        ]
        return self._caches.local.prefetch(extents) if extents else None

    def _extent(
        self, path: str, at: int, length: int, before: os.stat_result | None
    ) -> Extent | None:
        opened, size = self._current(path, before)
        inside = min(length, size - at)
        return opened.file.extent(at, inside) if inside > 0 else None

    def _current(self, path: str, before: os.stat_result | None = None) -> tuple[_Opened, int]:
        """The file in its present state, and its size."""
        status = os.stat(path)
        stamp = _stamp(status)
        if before is not None and _is_another(before, status):
            raise OSError(errno.ESTALE, "another file has its name since; open it again", path)
        with self._lock:
            cache = self._caches.local
            if cache is not self._cache:  # closed since, or a child of fork()
                self._files.clear()
                self._cache = cache
            opened = self._files.get(path)
            if opened is not None and opened.stamp == stamp and not opened.recent:
                self._files.move_to_end(path)
                return opened, status.st_size
        _check_kind(path, status)
        found = self._look_again(path, status)
        if os.stat(path).st_ino != status.st_ino:  # replaced before it was opened
            return self._current(path, before)
        return found

    def _look_again(self, path: str, status: os.stat_result) -> tuple[_Opened, int]:
        """Makes a new object for the file: copies of the old object are never found again, and are
        evicted."""
        recent = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < RECENT_NS
        opened = _Opened(File.open(self._caches.mover.machine, path), _stamp(status), recent)
        with self._lock:
            self._files[path] = opened
            self._files.move_to_end(path)
            while len(self._files) > KEPT_OPEN:
                self._files.popitem(last=False)
        return opened, min(status.st_size, opened.file.size)


def _blocks_of(start: int, end: int) -> tuple[int, int]:
    """The range of the blocks that view() reads."""
    if end - start in VIEWED:
        return start, end
    return start // CELL * CELL, -(-end // CELL) * CELL


def _stamp(status: os.stat_result) -> _Stamp:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _is_another(before: os.stat_result, now: os.stat_result) -> bool:
    """Whether a path names another file now. On a file system without lasting inode numbers the
    same file may get another number.
    """
    return before.st_ino != now.st_ino and _stamp(before)[2:] != _stamp(now)[2:]


def _check_kind(path: str, status: os.stat_result) -> None:
    """IsADirectoryError. InvalidError: no regular file, or one of /proc."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidError(f"{path} is not a regular file; open it without headrace")
    if status.st_size == 0:
        with open(path, "rb", buffering=0) as file:
            if file.read(1) and os.fstat(file.fileno()).st_size == 0:
                raise InvalidError(f"{path} does not say its size; open it without headrace")


class LocalSource:
    """A file for ReadFile: the one that has this name now."""

    def __init__(self, files: LocalFiles, path: str) -> None:
        """FileNotFoundError; IsADirectoryError. InvalidError: no regular file, or one of /proc."""
        self._files = files
        self._path = path
        self._opened = os.stat(path)
        _check_kind(path, self._opened)

    def size(self) -> int:
        return os.stat(self._path).st_size

    def read(self, at: int, length: int) -> bytes:
        return self._files.read(self._path, at, length, self._opened)

    def readinto(self, at: int, into: memoryview) -> int:
        return self._files.readinto(self._path, at, into, self._opened)

    def view(self, at: int, length: int) -> memoryview | bytes:
        return self._files.view(self._path, at, length, self._opened)
