# SPDX-License-Identifier: Apache-2.0
"""Streams a data set of Hugging Face's datasets through the cache of headrace.fsspec.

pip install 'headrace[fsspec]' datasets
"""

import tempfile

import datasets
import pyarrow
import pyarrow.parquet

import headrace.fsspec


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = pyarrow.table({"text": [f"line {number}" for number in range(10_000)]})
        pyarrow.parquet.write_table(table, f"{folder}/part.parquet", row_group_size=1000)
        # Or headrace::s3://bucket/part.parquet, headrace::hf://datasets/OWNER/NAME/part.parquet.
        files = f"headrace://{folder}/part.parquet"
        for state in ("first", "second"):
            data = datasets.load_dataset(
                "parquet", data_files=files, split="train", streaming=True, cache_dir=folder
            )
            lines = [row["text"] for row in data]
            right = lines == table.column("text").to_pylist()
            misses = headrace.fsspec.stats()["local"].misses
            print(f"{state} epoch: {'right' if right else 'WRONG'}, misses so far {misses}")
        headrace.fsspec.close()


if __name__ == "__main__":
    main()
