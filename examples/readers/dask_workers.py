# SPDX-License-Identifier: Apache-2.0
"""Sums a column of Parquet files on a local cluster of Dask. Each worker has a cache of its own.

pip install '.[fsspec]' pyarrow 'dask[distributed]'
"""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from dask.distributed import Client, LocalCluster

import headrace.fsspec
from headrace import parquet


def configure(folder: str, dask_worker: Any) -> None:
    """In each worker. A folder belongs to one process at a time, so it has the worker's name."""
    own = Path(folder, f"worker-{dask_worker.name}")
    headrace.fsspec.configure(budget="64MiB", folder=own, folder_budget="1GiB")


def total(path: str) -> int:
    batches = parquet.scan(path, columns=["value"])
    return sum(sum(batch.column("value").to_pylist()) for batch in batches)


def misses() -> int:
    return int(headrace.fsspec.stats()["local"].misses)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        files = [f"{folder}/{part}.parquet" for part in range(4)]
        for part, path in enumerate(files):
            table = pyarrow.table({"value": range(part * 1000, (part + 1) * 1000)})
            pyarrow.parquet.write_table(table, path)
        client.run(configure, folder)
        workers = list(client.scheduler_info()["workers"])
        for state in ("first", "second"):
            # A file always goes to the same worker, which has it in its cache.
            parts = [
                client.submit(total, path, pure=False, workers=[workers[part % 2]])
                for part, path in enumerate(files)
            ]
            right = sum(client.gather(parts)) == sum(range(4000))
            counts = sorted(client.run(misses).values())
            print(f"{state} run: {'right' if right else 'WRONG'}, misses of the workers {counts}")
        client.run(headrace.fsspec.close)


if __name__ == "__main__":
    main()
