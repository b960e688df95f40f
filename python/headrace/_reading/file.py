# SPDX-License-Identifier: Apache-2.0
"""A file object for reading, whose position several threads may move."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

#: readline() reads at least so much.
_LINE = 8192


class ReadFile(io.RawIOBase):
    """Thread-safe. A read after a seek of the same thread begins where that thread sought, whatever
    others do meanwhile; so threads that seek and read share a file object and get the right bytes.
    A read without a seek goes on where the last one ended.
    """

    def __init__(
        self,
        fs: Any,
        path: str,
        size: Callable[[], int],
        read_at: Callable[[int, memoryview], int],
    ) -> None:
        """`read_at(offset, into)`: the number of bytes that are there."""
        super().__init__()
        self.fs = fs
        self.path = path
        self.mode = "rb"
        self._size = size
        self._read_at = read_at
        self._lock = threading.Lock()
        self._at = 0
        self._sought = threading.local()  # .at: of this thread's seek; .turn: _turn then
        self._turn = 0  # of reads without a seek: they end what was sought before

    @property
    def name(self) -> str:
        return self.path

    @property
    def size(self) -> int:
        return self._size()

    @property
    def full_name(self) -> str:
        return str(self.fs.unstrip_protocol(self.path))

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = self.fs.info(self.path)
        return found

    def readable(self) -> bool:
        self._check()
        return True

    def seekable(self) -> bool:
        self._check()
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check()
        end = self._size() if whence == io.SEEK_END else 0
        with self._lock:
            base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position(), io.SEEK_END: end}.get(whence)
            if base is None:
                raise ValueError(f"whence={whence}; give 0, 1 or 2")
            if base + offset < 0:
                raise ValueError(f"a position of {base + offset}, before the file's start")
            self._at = base + offset
            self._sought.at, self._sought.turn = self._at, self._turn
            return self._at

    def tell(self) -> int:
        self._check()
        with self._lock:
            return self._position()

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            with self._lock:
                at = self._position()
            size = max(self.size - at, 0)
        into = bytearray(min(size, max(self.size, 0)))
        got = self.readinto(into)
        return bytes(memoryview(into)[:got])

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        self._check()
        into = memoryview(buffer).cast("B")
        with self._lock:
            at = self._position()
            if not self._is_sought():
                self._turn += 1
            self._sought.at = None
            # What another thread reads next without a seek is what comes after this.
            self._at = at + min(len(into), max(self.size - at, 0))
        got = self._read_at(at, into)
        if got < len(into):
            with self._lock:
                self._at = min(self._at, at + got)
        return got

    def readline(self, size: int | None = -1, /) -> bytes:
        limit = -1 if size is None else size
        line = bytearray()
        at = self.tell()
        while limit < 0 or len(line) < limit:
            piece = bytearray(_LINE if limit < 0 else min(_LINE, limit - len(line)))
            got = self._read_at(at + len(line), memoryview(piece))
            end = piece.find(b"\n", 0, got) + 1
            line += piece[: end or got]
            if end or got < len(piece):
                break
        self.seek(at + len(line))
        return bytes(line)

    def _position(self) -> int:
        return int(self._sought.at) if self._is_sought() else self._at

    def _is_sought(self) -> bool:
        at = getattr(self._sought, "at", None)
        return at is not None and self._sought.turn == self._turn

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")

    def __reduce__(self) -> Any:
        return _open, (self.fs, self.path)

    def __repr__(self) -> str:
        return f"<headrace file {self.path}>"


def _open(fs: Any, path: str) -> Any:
    return fs.open(path, "rb")
