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

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet

from headrace._reading.file import ReadFile
from headrace._reading.row_groups import (
    Ahead,
    check_columns,
    checked_leaves,
    in_order,
    joined,
    leaf_paths,
    spans,
    units,
    watched,
)
from headrace.fsspec import HeadraceFileSystem, url_to_fs

if TYPE_CHECKING:
    import polars

__all__ = ["scan", "scan_polars"]


def scan(
    path: str,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
    *,
    filesystem: HeadraceFileSystem | None = None,
    batch_rows: int = 131072,
) -> Iterator[pyarrow.RecordBatch]:
    """The columns (default: all) of the row groups (default: all) of a file, in their order.
    Threads fetch and decode the next row groups meanwhile: at most 3 at once (small ones: 3 times
    16 MiB and 262 144 rows), whose bytes without compression are at most 256 MiB if they are
    several. Row groups before a damaged one are returned before its error. `path`: with
    `filesystem`, as that has it; else a path or URL (`/data/x.parquet`, `s3://bucket/x.parquet`).

    Errors: FileNotFoundError; OSError: not read, or a local file that changed since the scan began;
    pyarrow.ArrowInvalid: no Parquet file, or a damaged one; InvalidError: no such column.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is of {type(path)}; give a path or URL")
    if isinstance(columns, str):
        raise TypeError(f"columns is {columns!r}; give a list of names")
    fs, path = (filesystem, path) if filesystem is not None else url_to_fs(path)
    with watched(fs, path) as check, fs.open(path) as source:
        # pyarrow need not buffer: the cache does.
        file = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
        groups = list(range(file.num_row_groups) if row_groups is None else row_groups)
        wanted = None if columns is None else list(columns)
        check_columns(path, wanted or [], leaf_paths(file.metadata))
        leaves = checked_leaves(file.metadata, groups, wanted, source.size)
        described = [file.metadata.row_group(group) for group in groups]
        pieces = [spans(each, leaves) for each in described]
        sizes = [  # some writers leave the first one out
            max(each.total_byte_size, sum(end - start for start, end in piece))
            for each, piece in zip(described, pieces, strict=True)
        ]
        runs = units(sizes, [each.num_rows for each in described])
        parts = [[groups[number] for number in run] for run in runs]
        chunks = [joined(span for number in run for span in pieces[number]) for run in runs]
        readers = threading.local()
        ahead = Ahead(source, chunks)

        def decode(number: int) -> Iterable[pyarrow.RecordBatch]:
            if not hasattr(readers, "file"):  # opening one is a tenth of a row group's work
                readers.source = ReadFile(fs, path, source.source)
                readers.file = pyarrow.parquet.ParquetFile(
                    readers.source, metadata=file.metadata
                )
            try:
                readers.source.held = ahead.need(number)
                table: Any = readers.file.read_row_groups(parts[number], wanted)
            except Exception:
                if len(parts[number]) == 1:
                    raise
                # The consumer gets the row groups before the damaged one, then its error.
                alone = (file.read_row_group(group, wanted) for group in parts[number])
                return (each for table in alone for each in table.to_batches(batch_rows))
            finally:
                readers.source.held = ()
            batches: list[pyarrow.RecordBatch] = table.to_batches(batch_rows)
            return batches

        with ahead:
            for batches in in_order(decode, [sum(sizes[i] for i in run) for run in runs]):
                for batch in batches:
                    check()
                    yield batch


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
        batches = scan(inside, with_columns, filesystem=fs, batch_rows=batch_size or 131072)
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
