# SPDX-License-Identifier: Apache-2.0
"""Sums a column of Parquet files by actors of Ray. Each actor has a cache of its own.

pip install '.[fsspec]' pyarrow ray
"""

import tempfile

import pyarrow
import pyarrow.parquet
import ray

from headrace import parquet


@ray.remote
class Reader:
    """A process, and so a cache."""

    def __init__(self, folder: str) -> None:
        import headrace.fsspec

        headrace.fsspec.configure(budget="64MiB", folder=folder, folder_budget="1GiB")

    def total(self, path: str) -> int:
        batches = parquet.scan(path, columns=["value"])
        return sum(sum(batch.column("value").to_pylist()) for batch in batches)

    def misses(self) -> int:
        import headrace.fsspec

        return int(headrace.fsspec.stats()["local"].misses)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{part}.parquet" for part in range(4)]
        for part, path in enumerate(files):
            table = pyarrow.table({"value": range(part * 1000, (part + 1) * 1000)})
            pyarrow.parquet.write_table(table, path)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        readers = [Reader.remote(f"{folder}/reader-{number}") for number in range(2)]
        for state in ("first", "second"):
            # A file always goes to the same actor, which has it in its cache.
            parts = [readers[part % 2].total.remote(path) for part, path in enumerate(files)]
            right = sum(ray.get(parts)) == sum(range(4000))
            counts = ray.get([reader.misses.remote() for reader in readers])
            print(f"{state} run: {'right' if right else 'WRONG'}, misses of the actors {counts}")
        ray.shutdown()


if __name__ == "__main__":
    main()
