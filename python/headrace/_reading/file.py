# SPDX-License-Identifier: Apache-2.0
"""A file object for reading with a position that several threads may move."""

from __future__ import annotations

import atexit
import io
import os
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from headrace._reading.caches import unlock_in_children

#: readline() reads at least this many bytes.
_LINE = 8192
#: read() of more asks for the size first, so that no more memory is made than there are bytes.
_LARGE = 1 << 20
#: Most seconds that the interpreter's end waits for reads.
_END_SECONDS = 10.0

#: The function of each read under way. Adding and removing one is atomic.
_reads: set[Any] = set()
_ending = False

os.register_at_fork(after_in_child=_reads.clear)


@atexit.register
def _end_reads() -> None:
    """Waits for reads. A thread that is in one when the interpreter ends sleeps forever. At exit
    Arrow would wait for it.
    """
    global _ending
    _ending = True
    until = time.monotonic() + _END_SECONDS
    while _reads and time.monotonic() < until:
        time.sleep(0.001)


class Source(Protocol):
    """A source of bytes at positions. Thread-safe."""

    def size(self) -> int: ...

    def read(self, at: int, length: int) -> bytes:
        """The bytes from `at` on; fewer at the end."""

    def readinto(self, at: int, into: memoryview) -> int:
        """Like read(), into a buffer. Returns the number of bytes."""

    def view(self, at: int, length: int) -> memoryview | bytes:
        """As read(), without a copy where that is possible."""


class ReadFile(io.RawIOBase):
    """Thread-safe. A thread that called seek() reads from its own position, whatever other threads
    do. So threads that seek and read can share a file object and get the right bytes. A thread that
    did not seek reads from the end of the last read or seek of any thread; then all threads
    continue there.
    """

    def __init__(self, fs: Any, path: str, source: Source) -> None:
        super().__init__()
        self.fs = fs
        self.path = path
        self.mode = "rb"
        self.source = source
        #: Bytes that are here already, with their positions, for read_buffer().
        self.held: Sequence[tuple[int, memoryview]] = ()
        self._at = 0
        self._sought = threading.local()  # .at: of this thread's seek; .turn: _turn then
        self._turn = 0  # counts reads without a seek: they end what was sought before
        unlock_in_children(self)

    def unlock(self) -> None:
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        return self.path

    @property
    def size(self) -> int:
        return self.source.size()

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
        end = self.size if whence == io.SEEK_END else 0
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
        length = -1 if size is None else size

        def read_at(at: int) -> tuple[bytes, int]:
            most = length
            if length < 0 or length > _LARGE:
                left = max(self.size - at, 0)
                most = left if length < 0 else min(length, left)
            found = self.source.read(at, most)
            return found, len(found)

        found: bytes = self._advance(read_at)
        return found

    def read_buffer(self, size: int, /) -> memoryview | bytes:
        """As read(), without a copy where that is possible: pyarrow calls it."""

        def read_at(at: int) -> tuple[memoryview | bytes, int]:
            for start, piece in self.held:
                if start <= at and at + size <= start + len(piece):
                    return piece[at - start : at - start + size], size
            found = self.source.view(at, size)
            return found, len(found)

        found: memoryview | bytes = self._advance(read_at)
        return found

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        into = memoryview(buffer).cast("B")

        def read_at(at: int) -> tuple[int, int]:
            got = self.source.readinto(at, into)
            return got, got

        got: int = self._advance(read_at)
        return got

    def readline(self, size: int | None = -1, /) -> bytes:
        limit = -1 if size is None else size

        def read_at(at: int) -> tuple[bytes, int]:
            line = bytearray()
            while limit < 0 or len(line) < limit:
                most = _LINE if limit < 0 else min(_LINE, limit - len(line))
                piece = self.source.read(at + len(line), most)
                end = piece.find(b"\n") + 1
                line += piece[: end or len(piece)]
                if end or len(piece) < most:
                    break
            return bytes(line), len(line)

        line: bytes = self._advance(read_at)
        return line

    def write(self, data: Any, /) -> int:
        raise io.UnsupportedOperation(f"{self.path} is open for reading; open it with 'wb'")

    def _advance(self, read_at: Any) -> Any:
        """Reads at the position of this thread. read_at(position): a result, and how far it goes;
        a new function for each read. Without a seek, reads of several threads come one after the
        other.
        """
        self._check()
        _reads.add(read_at)
        try:
            if _ending and threading.get_ident() != threading.main_thread().ident:
                raise OSError("the interpreter is ending; join threads that read before")
            with self._lock:
                at = self._position()
                if not self._is_sought():
                    self._turn += 1
                    found, length = read_at(at)
                    self._at = at + length
                    return found
            found, length = read_at(at)
            with self._lock:
                self._at = self._sought.at = at + length
            return found
        finally:
            _reads.discard(read_at)

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
