# SPDX-License-Identifier: Apache-2.0
"""TPC-H Q6 in numpy over columns that are files of plain integers: mapped, read by preadv(), and
fetched ahead by a plan of headrace.Cache. readers.py measures them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from decimal import Decimal
from itertools import chain
from typing import Any

import duckdb
import numpy

from headrace import Cache, File, Machine, Mover

#: The columns with the narrowest integers for their hundredths or days, and the rows of a chunk.
KINDS = {
    name: numpy.dtype(kind)
    for name, kind in {
        "l_extendedprice": "<i4", "l_discount": "i1", "l_shipdate": "<i2", "l_quantity": "<i2",
    }.items()
}  # fmt: skip
CHUNK = 1 << 20

#: Arrays of the columns in this order, chunk by chunk.
Chunks = Iterable[list[numpy.ndarray[Any, Any]]]


def q6_of(chunks: Chunks) -> Decimal:
    first, last = numpy.array(["1994-01-01", "1995-01-01"], "datetime64[D]").astype("<i2")
    total = 0
    for price, discount, date, quantity in chunks:
        keep = (date >= first) & (date < last) & (discount >= 5) & (discount <= 7)
        keep &= quantity < 2400
        total += int(numpy.dot(price[keep].astype("<i8"), discount[keep].astype("<i8")))
    return Decimal(total).scaleb(-4)


def columns_of(path: str) -> list[str]:
    """Files of the columns of a Parquet file; made unless they are there."""
    files = [f"{path}.{name}" for name in KINDS]
    for (name, kind), file in zip(KINDS.items(), files, strict=True):
        if os.path.exists(file):
            continue
        number = f"{name} - date '1970-01-01'" if name == "l_shipdate" else f"{name} * 100"
        asked = duckdb.execute(f"select cast({number} as int) as x from '{path}'")
        asked.fetchnumpy()["x"].astype(kind).tofile(file + ".part")
        os.rename(file + ".part", file)
    return files


def mapped(files: list[str]) -> Chunks:
    columns = [
        numpy.memmap(file, kind, "r") for file, kind in zip(files, KINDS.values(), strict=True)
    ]
    for at in range(0, len(columns[0]), CHUNK):
        yield [column[at : at + CHUNK] for column in columns]


def read(files: list[str]) -> Chunks:
    buffers = [numpy.empty(CHUNK, kind) for kind in KINDS.values()]
    opened = [os.open(file, os.O_RDONLY) for file in files]
    try:
        for at in range(0, os.fstat(opened[0]).st_size // buffers[0].itemsize, CHUNK):
            yield [
                buffer[: os.preadv(file, [buffer.data], at * buffer.itemsize) // buffer.itemsize]
                for file, buffer in zip(opened, buffers, strict=True)
            ]
    finally:
        for each in opened:
            os.close(each)


class Planned:
    """A cache that keeps all columns from the first scan on."""

    def __init__(self, files: list[str]) -> None:
        machine = Machine.discover(storage=["/"])
        self._files = [File.open(machine, file) for file in files]
        budget = sum(file.size for file in self._files) * 5 // 4
        self._cache = Cache(Mover(machine), {machine.of_kind("dram")[0].id: budget})

    def chunks(self) -> Chunks:
        planned = [
            [
                file.extent(at, min(CHUNK * kind.itemsize, file.size - at))
                for at in range(0, file.size, CHUNK * kind.itemsize)
            ]
            for file, kind in zip(self._files, KINDS.values(), strict=True)
        ]
        chunks = list(zip(*planned, strict=True))
        with self._cache.prefetch(list(chain(*chunks))):
            for chunk in chunks:
                yield [
                    numpy.frombuffer(self._cache.view(extent), kind)
                    for extent, kind in zip(chunk, KINDS.values(), strict=True)
                ]


def fio(files: list[str]) -> float:
    """Seconds of direct reads of 1 MiB of all columns, 16 at once."""
    done = subprocess.run(
        ["fio", "--name=read", f"--filename={':'.join(files)}", "--rw=read", "--bs=1m",
         "--iodepth=16", "--ioengine=io_uring", "--direct=1", "--readonly",
         "--output-format=json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    read = json.loads(done.stdout)["jobs"][0]["read"]
    return float(read["io_bytes"]) / float(read["bw_bytes"])
