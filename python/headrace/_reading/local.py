# SPDX-License-Identifier: Apache-2.0
"""Files that the kernel opens, read through the cache of this process."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace._core import Cache, File, Prefetch
from headrace._reading.caches import Caches

#: Open files that nobody reads at the moment, at most.
KEPT_OPEN = 256
#: A file that was written so short a time before it was looked at may be written again without
#: another time stamp: ext4 and xfs round to a tick of the kernel (4 ms, 10 ms at most).
RECENT_NS = 100_000_000
#: A read of many blocks plans them, so that the disk has them all at once.
PLANNED = 4 << 20

_Stamp = tuple[int, int, int, int, int]


@dataclass
class _Opened:
    """A file with what it looked like when its cached bytes began to be right."""

    file: File
    stamp: _Stamp
    recent: bool
    lock: threading.Lock = field(default_factory=threading.Lock)


class LocalFiles:
    """Thread-safe. A file that changes is read anew from the next read on."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._lock = threading.Lock()
        self._files: OrderedDict[str, _Opened] = OrderedDict()
        self._cache: Cache | None = None

    def read(self, path: str, start: int, into: memoryview) -> int:
        """The bytes that are there from `start`, as read(2) gives them. OSError as of open()."""
        opened, size = self._current(path)
        length = max(min(len(into), size - start), 0)
        if length:
            extent = opened.file.extent(start, length)
            self._caches.local.read(extent, into[:length])
        return length

    def plan(self, path: str, ranges: Sequence[tuple[int, int]]) -> Prefetch | None:
        """Begins to fetch ranges (start, end) in this order."""
        opened, size = self._current(path)
        extents = [
            opened.file.extent(start, min(end, size) - start)
            for start, end in ranges
            if start < min(end, size)
        ]
        return self._caches.local.prefetch(extents) if extents else None

    def forget(self, path: str) -> None:
        """Its bytes will be read anew."""
        with self._lock:
            self._files.pop(path, None)

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
