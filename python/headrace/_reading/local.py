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

from headrace._core import Cache, Extent, File, Prefetch
from headrace._reading.caches import Caches

#: Open files that nobody reads at the moment, at most.
KEPT_OPEN = 256
#: A file that was written so short a time before it was looked at may be written again without
#: another time stamp: ext4 and xfs round to a tick of the kernel (4 ms, 10 ms at most).
RECENT_NS = 100_000_000

_Stamp = tuple[int, int, int, int, int]


@dataclass
class _Opened:
    """A file with what it looked like when its cached bytes began to be right."""

    file: File
    stamp: _Stamp
    recent: bool


class LocalFiles:
    """Thread-safe. A file that changes is read anew from the next read on."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._lock = threading.Lock()
        self._files: OrderedDict[str, _Opened] = OrderedDict()
        self._cache: Cache | None = None

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read(self, path: str, at: int, length: int) -> bytes:
        """The bytes that are there. OSError as of open()."""
        extent = self._extent(path, at, length)
        return b"" if extent is None else self._caches.local.read(extent)

    def readinto(self, path: str, at: int, into: memoryview) -> int:
        """As read(); their number."""
        extent = self._extent(path, at, len(into))
        if extent is None:
            return 0
        self._caches.local.readinto(extent, into[: extent.length])
        return extent.length

    def plan(self, path: str, ranges: Sequence[tuple[int, int]]) -> Prefetch | None:
        """Begins to fetch ranges (start, end) in this order."""
        opened, size = self._current(path)
        extents = [
            opened.file.extent(start, min(end, size) - start)
            for start, end in ranges
            if start < min(end, size)
        ]
        return self._caches.local.prefetch(extents) if extents else None

    def _extent(self, path: str, at: int, length: int) -> Extent | None:
        opened, size = self._current(path)
        inside = min(length, size - at)
        return opened.file.extent(at, inside) if inside > 0 else None

    def _current(self, path: str) -> tuple[_Opened, int]:
        """The file as it is now, and its size."""
        status = os.stat(path)
        stamp = _stamp(status)
        with self._lock:
            cache = self._caches.local
            if cache is not self._cache:  # closed since, or a child of fork()
                self._files.clear()
                self._cache = cache
            opened = self._files.get(path)
            if opened is not None and opened.stamp == stamp and not opened.recent:
                self._files.move_to_end(path)
                return opened, status.st_size
        return self._look_again(path, status)

    def _look_again(self, path: str, status: os.stat_result) -> tuple[_Opened, int]:
        """A new object: the copies of the old one are never found again, and leave."""
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        recent = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < RECENT_NS
        opened = _Opened(File.open(self._caches.mover.machine, path), _stamp(status), recent)
        with self._lock:
            self._files[path] = opened
            self._files.move_to_end(path)
            while len(self._files) > KEPT_OPEN:
                self._files.popitem(last=False)
        return opened, min(status.st_size, opened.file.size)


def _stamp(status: os.stat_result) -> _Stamp:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class LocalSource:
    """A file for ReadFile."""

    def __init__(self, files: LocalFiles, path: str) -> None:
        self._files = files
        self._path = path

    def size(self) -> int:
        return self._files.size(self._path)

    def read(self, at: int, length: int) -> bytes:
        return self._files.read(self._path, at, length)

    def readinto(self, at: int, into: memoryview) -> int:
        return self._files.readinto(self._path, at, into)
