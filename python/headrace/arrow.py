# SPDX-License-Identifier: Apache-2.0
"""pyarrow over the caches of headrace.fsspec: a file system, and datasets read by plan.

>>> import pyarrow, pyarrow.dataset, pyarrow.parquet, tempfile
>>> folder = tempfile.mkdtemp()
>>> for part in range(2):
...     table = pyarrow.table({"a": [part], "b": [part * 10]})
...     pyarrow.parquet.write_table(table, f"{folder}/{part}.parquet")
>>> data = pyarrow.dataset.dataset(folder, filesystem=filesystem())
>>> [batch.to_pylist() for batch in scan(data, ["b"])]
[[{'b': 0}], [{'b': 10}]]

Needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow
import pyarrow.dataset
import pyarrow.fs

from headrace._core import InvalidError
from headrace._reading.row_groups import (
    Ahead,
    check_columns,
    checked_leaves,
    joined,
    spans,
    watched,
)
from headrace.fsspec import HeadraceFileSystem

__all__ = ["filesystem", "scan"]


def filesystem(fs: Any = None) -> pyarrow.fs.PyFileSystem:
    """A file system for pyarrow. `fs`: one of fsspec that it reads (default: local files)."""
    if not isinstance(fs, HeadraceFileSystem):
        fs = HeadraceFileSystem(fs=fs)
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))


def scan(
    dataset: pyarrow.dataset.Dataset,
    columns: Sequence[str] | None = None,
    filter: pyarrow.dataset.Expression | None = None,
    *,
    batch_rows: int = 131072,
) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a dataset of Parquet files, as Dataset.to_batches() gives them, in order. While
    one row group is decoded, the next ones are fetched, also those of the next file. Row groups
    without rows for the filter are not fetched.

    Errors: those of parquet.scan(); InvalidError: the dataset's files are not Parquet, or not read
    through filesystem().
    """
    check_columns("the dataset", columns or [], dataset.schema.names)
    names = None if columns is None else _named(dataset.schema, columns, filter)
    files = _files(dataset, filter, names)
    opened = list(islice(files, 1))
    try:
        while opened:
            opened.extend(islice(files, 1))
            yield from opened.pop(0).batches(columns, filter, batch_rows)
    finally:
        for file in opened:
            file.resources.close()


@dataclass
class _File:
    """A file whose first row groups are on their way."""

    schema: pyarrow.Schema
    row_groups: list[Any]  # a fragment for each
    ahead: Ahead
    check: Callable[[], None]
    resources: ExitStack

    def batches(
        self, columns: Sequence[str] | None, filter: Any, rows: int
    ) -> Iterator[pyarrow.RecordBatch]:
        with self.resources:
            for number, each in enumerate(self.row_groups):
                self.ahead.need(number)
                for batch in each.to_batches(
                    self.schema, columns=columns, filter=filter, batch_size=rows
                ):
                    self.check()
                    if batch.num_rows:
                        yield batch


def _files(dataset: Any, filter: Any, names: Sequence[str] | None) -> Iterator[_File]:
    """The fragments that have row groups with rows for the filter."""
    for fragment in dataset.get_fragments(filter=filter):
        path = fragment.path
        fs = getattr(getattr(fragment.filesystem, "handler", None), "fs", None)
        if not isinstance(fs, HeadraceFileSystem):
            raise InvalidError(f"{path} is not read through headrace.arrow.filesystem()")
        if not isinstance(fragment, pyarrow.dataset.ParquetFileFragment):
            raise InvalidError(f"{path} is not Parquet")
        with ExitStack() as opening:
            check = opening.enter_context(watched(fs, path))
            row_groups = fragment.split_by_row_group(filter=filter, schema=dataset.schema)
            if not row_groups:
                continue
            numbers = [each.row_groups[0].id for each in row_groups]
            source = opening.enter_context(fs.open(path))
            metadata = fragment.metadata
            leaves = checked_leaves(metadata, numbers, names, source.size)
            chunks = [joined(spans(metadata.row_group(number), leaves)) for number in numbers]
            ahead = opening.enter_context(Ahead(source, chunks))
            ahead.begin(0)
            file = _File(dataset.schema, row_groups, ahead, check, opening.pop_all())
        yield file


def _named(schema: Any, columns: Sequence[str], filter: Any) -> list[str]:
    """The columns with those that the filter may name: a name that its text has."""
    text = "" if filter is None else str(filter)
    return [*columns, *(name for name in schema.names if name in text)]
