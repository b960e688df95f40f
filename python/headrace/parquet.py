# SPDX-License-Identifier: Apache-2.0
"""Parquet files read by plan: the footer says which bytes a scan needs, and they are fetched ahead.

>>> import pyarrow, pyarrow.parquet, tempfile
>>> name = tempfile.NamedTemporaryFile(delete=False).name
>>> pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2, 3], "b": [4, 5, 6]}), name)
>>> [batch.column("b").to_pylist() for batch in scan(name, columns=["b"])]
[[4, 5, 6]]

Paths and file systems are those of headrace.fsspec. Needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet

from headrace.fsspec import HeadraceFileSystem, url_to_fs

if TYPE_CHECKING:
    import polars

__all__ = ["scan", "scan_polars"]

#: Bytes that are fetched from a remote file before they are needed, at least of one row group.
AHEAD = 64 << 20


def scan(
    path: str,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
    *,
    filesystem: HeadraceFileSystem | None = None,
    batch_rows: int = 65536,
) -> Iterator[pyarrow.RecordBatch]:
    """The columns (default: all) of the row groups (default: all) of a file, in their order.
    While one row group is decoded, the next ones are fetched. `path`: with `filesystem`, as that
    has it; else a path or URL (`/data/x.parquet`, `s3://bucket/x.parquet`).
    """
    fs, path = (filesystem, path) if filesystem is not None else url_to_fs(path)
    with fs.open(path) as source:
        # pyarrow need not buffer: the cache does.
        file = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
        groups = range(file.num_row_groups) if row_groups is None else row_groups
        wanted = None if columns is None else list(columns)
        with _Ahead(fs, path, [_ranges(file.metadata, one, wanted) for one in groups]) as ahead:
            for number, group in enumerate(groups):
                ahead.need(number)
                yield from file.iter_batches(batch_rows, [group], wanted)


def scan_polars(path: str, *, filesystem: HeadraceFileSystem | None = None) -> polars.LazyFrame:
    """A LazyFrame of polars over scan(), which reads only the columns that a query needs."""
    import polars
    from polars.io.plugins import register_io_source

    fs, inside = (filesystem, path) if filesystem is not None else url_to_fs(path)
    with fs.open(inside) as source:
        schema = pyarrow.parquet.read_schema(source)

    def rows(
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        batches = scan(inside, with_columns, filesystem=fs, batch_rows=batch_size or 65536)
        for batch in batches:
            frame: Any = polars.from_arrow(batch)
            if n_rows is not None:
                frame = frame.head(n_rows)
                n_rows -= len(frame)
            yield frame if predicate is None else frame.filter(predicate)
            if n_rows == 0:
                return

    empty: Any = polars.from_arrow(schema.empty_table())
    return register_io_source(rows, schema=empty.schema)


class _Ahead:
    """Fetches what is needed next: by one plan of the cache, or by a thread."""

    def __init__(self, fs: HeadraceFileSystem, path: str, groups: Sequence[Any]) -> None:
        self._fs = fs
        self._path = path
        self._groups = groups
        self._plan: Any = None
        self._pool: ThreadPoolExecutor | None = None
        self._fetched: dict[int, Future[Any]] = {}

    def __enter__(self) -> _Ahead:
        if self._fs.is_local:
            self._plan = self._fs.plan(self._path, [one for group in self._groups for one in group])
        else:
            self._pool = ThreadPoolExecutor(4, thread_name_prefix="headrace-parquet")
        return self

    def __exit__(self, *error: object) -> None:
        if self._plan is not None:
            self._plan.cancel()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def need(self, number: int) -> None:
        """This group is read now."""
        if self._pool is None:
            return
        held = 0
        for one in range(number, len(self._groups)):
            if one not in self._fetched:
                self._fetched[one] = self._pool.submit(self._fetch, one)
            held += sum(end - start for start, end in self._groups[one])
            if one > number and held > AHEAD:
                break
        self._fetched.pop(number).result()

    def _fetch(self, number: int) -> None:
        starts, ends = zip(*self._groups[number], strict=True) if self._groups[number] else ((), ())
        self._fs.cat_ranges(
            [self._path] * len(starts), list(starts), list(ends), on_error="raise"
        )


def _ranges(metadata: Any, group: int, columns: Sequence[str] | None) -> list[tuple[int, int]]:
    """Bytes of the column chunks that a scan reads, neighbours as one."""
    row_group = metadata.row_group(group)
    found: list[tuple[int, int]] = []
    for number in range(row_group.num_columns):
        chunk = row_group.column(number)
        if columns is not None and not _is_part(chunk.path_in_schema, columns):
            continue
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset:
            start = min(start, chunk.dictionary_page_offset)
        end = start + chunk.total_compressed_size
        if start < 0 or end < start:
            raise pyarrow.ArrowInvalid(f"row group {group} has a column chunk at {start} to {end}")
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _is_part(path: str, columns: Sequence[str]) -> bool:
    """Whether a leaf of the schema is a column, or inside one."""
    return any(path == column or path.startswith(f"{column}.") for column in columns)
