# SPDX-License-Identifier: Apache-2.0
"""Streams Parquet into Hugging Face's datasets through the cache of headrace.fsspec.

datasets 5.2 itself takes no URL with `headrace:` in it: it drops a slash of `headrace:///path`, and
takes the first part of `headrace::s3://...` for a file. So the rows come from scan().

    pip install '.[fsspec]' datasets
"""

import tempfile
from collections.abc import Iterator
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet

import headrace.fsspec
from headrace import parquet


def rows(files: list[str]) -> Iterator[dict[str, Any]]:
    """`files`: paths, or URLs such as s3://bucket/part.parquet."""
    for path in files:
        for batch in parquet.scan(path):
            yield from batch.to_pylist()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = pyarrow.table({"text": [f"line {number}" for number in range(10_000)]})
        pyarrow.parquet.write_table(table, f"{folder}/part.parquet", row_group_size=1000)
        files = [f"{folder}/part.parquet"]
        data = datasets.IterableDataset.from_generator(rows, gen_kwargs={"files": files})
        for state in ("first", "second"):
            right = [row["text"] for row in data] == table.column("text").to_pylist()
            misses = headrace.fsspec.stats()["local"].misses
            print(f"{state} epoch: {'right' if right else 'WRONG'}, misses so far {misses}")
        headrace.fsspec.close()


if __name__ == "__main__":
    main()
