# SPDX-License-Identifier: Apache-2.0
"""Reads an array of Zarr (version 3) through the cache of headrace.fsspec.

pip install '.[fsspec]' zarr
"""

import tempfile
from typing import Any

import numpy
import zarr
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from zarr.storage import FsspecStore

import headrace.fsspec


def opened(place: str) -> Any:
    """`place`: a path, or a URL such as s3://bucket/array."""
    fs, path = headrace.fsspec.url_to_fs(place)
    store = FsspecStore(AsyncFileSystemWrapper(fs, asynchronous=True), read_only=True, path=path)
    return zarr.open_array(store, mode="r")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = numpy.arange(4_000_000).reshape(2000, 2000)
        zarr.save_array(f"{folder}/array", data)
        array = opened(f"{folder}/array")
        for state in ("first", "second"):
            right = bool((array[:, 5:700] == data[:, 5:700]).all())
            misses = headrace.fsspec.stats()["local"].misses
            print(f"{state} read: {'right' if right else 'WRONG'}, misses so far {misses}")
        headrace.fsspec.close()


if __name__ == "__main__":
    main()
