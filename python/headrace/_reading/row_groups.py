# SPDX-License-Identifier: Apache-2.0
"""Row groups of Parquet files: which bytes they are, and their fetches ahead. A file system is one
of headrace.fsspec.
"""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

import pyarrow
import pyarrow.parquet

from headrace._core import InvalidError

T = TypeVar("T")

#: Bytes that are fetched from a remote file before they are needed, at least of one row group.
AHEAD = 64 << 20
#: Row groups that are decoded at once, and their bytes without compression; at least one.
DECODERS = 3
DECODED = 256 << 20
#: Small row groups are decoded together up to this size, since each hand-over takes time. Equal
#: values take far less space encoded than in memory: the number of rows is limited, too.
UNIT = 16 << 20
UNIT_ROWS = 1 << 18
#: pyarrow reads neighbours with a hole of at most this size at once, up to READ bytes.
HOLE = 8 << 10
READ = 32 << 20


class Ahead:
    """Fetches what is needed next of a ReadFile: by one plan of the cache, or by a thread."""

    def __init__(self, file: Any, groups: Sequence[Any]) -> None:
        self._file = file
        self._groups = groups
        self._plan: Any = None
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._begun: set[int] = set()
        self._fetched: dict[int, Future[list[tuple[int, memoryview]]]] = {}

    def __enter__(self) -> Ahead:
        fs, path = self._file.fs, self._file.path
        if fs.is_local:
            self._plan = fs.plan(path, [one for group in self._groups for one in group])
        else:
            self._pool = ThreadPoolExecutor(4, thread_name_prefix="headrace-parquet")
        return self

    def __exit__(self, *error: object) -> None:
        if self._plan is not None:
            self._plan.cancel()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def need(self, number: int) -> list[tuple[int, memoryview]]:
        """The bytes of this group with their positions, if they are fetched by a thread.
        Thread-safe, once for each group.
        """
        self.begin(number)
        return [] if self._pool is None else self._fetched.pop(number).result()

    def begin(self, number: int) -> None:
        """Fetches this group and the ones behind it."""
        if self._pool is None:
            return
        held = 0
        with self._lock:
            for one in range(number, len(self._groups)):
                if one not in self._begun:
                    self._begun.add(one)
                    self._fetched[one] = self._pool.submit(
                        self._file.source.fetch, self._groups[one]
                    )
                held += sum(end - start for start, end in self._groups[one])
                if one > number and held > AHEAD:
                    break


def units(sizes: Sequence[int], rows: Sequence[int]) -> list[list[int]]:
    """The numbers of row groups in runs of at most UNIT bytes and UNIT_ROWS rows, or of one row
    group. A row group with a negative number of rows, of a damaged footer, is alone.
    """
    runs: list[list[int]] = []
    held = 0
    for number, (size, count) in enumerate(zip(sizes, rows, strict=True)):
        weight = max(size, count * (UNIT // UNIT_ROWS)) if count >= 0 else UNIT + 1
        held += weight
        if not runs or held > UNIT:
            runs.append([])
            held = weight
        runs[-1].append(number)
    return runs


def in_order(decode: Callable[[int], T], sizes: Sequence[int]) -> Iterator[T]:
    """decode(number) of all numbers of `sizes`, by threads that run ahead of the consumer. The
    first error in this order ends it, and the end waits for the threads.
    """
    running: deque[tuple[int, Future[T]]] = deque()
    held = 0
    pool = ThreadPoolExecutor(DECODERS, thread_name_prefix="headrace-decode")
    try:
        for number, size in enumerate(sizes):
            while running and (len(running) == DECODERS or held + size > DECODED):
                first, future = running.popleft()
                yield future.result()
                held -= first
            running.append((size, pool.submit(decode, number)))
            held += size
        while running:
            yield running.popleft()[1].result()
    finally:
        pool.shutdown(cancel_futures=True)


def check_columns(path: str, columns: Sequence[str], there: Sequence[str]) -> None:
    """InvalidError: no leaf `there` is one of the columns, or inside it."""
    for column in columns:
        if not any(_is_part(each, [column]) for each in there):
            near = get_close_matches(column, [*there, *(each.split(".")[0] for each in there)], 1)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(there[:20])}"
            raise InvalidError(f"{path} has no column {column}; {known}")


@contextmanager
def watched(fs: Any, path: str) -> Iterator[Callable[[], None]]:
    """A check for whether a local file changed meanwhile: it raises OSError. Errors of pyarrow are
    one line, with the path.
    """
    before = fs.ukey(path) if fs.is_local else None

    def check() -> None:
        if before is not None and fs.ukey(path) != before:
            raise OSError(f"{path} has changed since its scan began; scan it again")

    try:
        yield check
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if path in str(error):
            raise
        check()
        kind = pyarrow.ArrowInvalid if isinstance(error, UnicodeDecodeError) else type(error)
        raise kind(f"{path}: {str(error).splitlines()[0]}") from error


def checked_leaves(
    metadata: Any, groups: Sequence[int], columns: Sequence[str] | None, size: int
) -> list[int]:
    """Numbers of the leaves that a scan reads. Errors: those of pyarrow for a damaged footer, or
    for a row group that is not there.
    """
    paths = leaf_paths(metadata)
    leaves = [
        number for number, path in enumerate(paths) if columns is None or _is_part(path, columns)
    ]
    _check(metadata, groups, leaves, size)
    return leaves


def leaf_paths(metadata: Any) -> list[str]:
    return [metadata.schema.column(number).path for number in range(metadata.num_columns)]


def spans(row_group: Any, leaves: Sequence[int]) -> list[tuple[int, int]]:
    """The bytes (start, end) of each column chunk of a row group's metadata."""
    found = []
    for leaf in leaves:
        chunk = row_group.column(leaf)
        start = chunk.data_page_offset
        dictionary = chunk.dictionary_page_offset or 0
        if 0 < dictionary < start:
            start = dictionary
        found.append((start, start + chunk.total_compressed_size))
    return found


def joined(chunks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The bytes (start, end) that pyarrow reads at once where it decodes these spans() at once."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(set(chunks)):
        first, last = found[-1] if found else (start, start)
        if found and start - last <= HOLE and max(last, end) - first <= READ:
            found[-1] = (first, max(last, end))
        else:
            found.append((start, end))
    return found


class _Unread(io.RawIOBase):
    """A file of which only the size is known."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self.refusal = BlockingIOError()

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return offset

    def tell(self) -> int:
        return self._size

    def read(self, size: int = -1, /) -> bytes:
        raise self.refusal


def _check(metadata: Any, groups: Sequence[int], leaves: Sequence[int], size: int) -> None:
    """pyarrow ends the process where it is asked for a column chunk whose metadata is damaged. A
    read finds the same as an error, before it reads anything.
    """
    unread = _Unread(size)
    reader = pyarrow.parquet.ParquetFile(unread, metadata=metadata, pre_buffer=True).reader
    try:
        reader.read_row_groups(list(groups), column_indices=list(leaves), use_threads=False)
    except BlockingIOError:
        pass
    finally:
        # pyarrow 26 never frees the exception, whose frames hold the rows of the whole scan.
        unread.refusal.__traceback__ = None


def _is_part(path: str, columns: Sequence[str]) -> bool:
    """Whether a leaf of the schema is a column, or inside one."""
    return any(path == column or path.startswith(f"{column}.") for column in columns)
