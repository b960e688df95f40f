# SPDX-License-Identifier: Apache-2.0
"""Compares the answers of all that reads through headrace.fsspec, under faults that a seed chooses.

    .venv/bin/python tests/python/reading/compare_readers.py --reads 100000

Each reader reads a local file in a faulty mount (faulty_mount.py), and one of a faulty file system:
reads are short, late, or fail, and the file is replaced, changed in place, truncated and restored.
An answer is right, or it is refused with an error. Prints counts of answers, and of the reads that
the reader made for them; exit status 1: a wrong answer, or a refusal without a fault. Readers that
are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
from faulty_mount import faulty_mount
from fsspec.implementations.memory import MemoryFileSystem

import headrace.fsspec
from headrace import arrow, parquet
from headrace._reading import row_groups
from headrace._reading.file import ReadFile
from headrace.fsspec import HeadraceFileSystem

ROWS, GROUPS = 20_000, 5  # 480 KB
THREADS = 4
#: Answers between two changes of the file.
ROUND = 10
RATES = (0.0, 0.02, 0.2)


class FaultyFileSystem(MemoryFileSystem):
    """Fails as `faults` says, and counts requests."""

    protocol = "faulty"
    cachable = False
    store: dict[str, Any] = {}
    pseudo_dirs: list[str] = [""]  # noqa: RUF012

    def __init__(self, seed: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.requests: list[tuple[int, int]] = []
        self.asked: dict[str, list[tuple[int, int]]] = {}  # the same by path
        self.chance = random.Random(seed)
        self.faults = 0.0
        self.delay = 0.0

    def cat_ranges(self, paths: Any, starts: Any, ends: Any, **options: Any) -> list[bytes]:
        found = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            self.requests.append((start, end))
            self.asked.setdefault(path, []).append((start, end))
            time.sleep(self.delay)
            kind = self.chance.random() / self.faults if self.faults else 1.0
            if kind < 0.3:
                raise OSError("no answer")
            if kind < 0.4:
                time.sleep(0.002)
            data = self.cat_file(path, start, end)
            found.append(data[:-1] if 0.4 <= kind < 0.8 else data + b"x" if kind < 1 else data)
        return found


class Reads:
    """Counts calls that read, by any thread."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._looks = 0
        for owner, name in (
            (ReadFile, "_advance"),
            (HeadraceFileSystem, "cat_file"),
            (HeadraceFileSystem, "cat_ranges"),
        ):
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, call: Any) -> Any:
        def read(*args: Any, **options: Any) -> Any:
            next(self._count)
            return call(*args, **options)

        return read

    def now(self) -> int:
        self._looks += 1
        return next(self._count) + 1 - self._looks


class Place:
    """Where the file is: `put` changes it, `faults` sets the share of reads that have one."""

    def __init__(self, fs: Any, path: str, put: Any, faults: Any) -> None:
        self.fs, self.path, self.put, self.faults = fs, path, put, faults


def remote(seed: int) -> Place:
    below = FaultyFileSystem(seed)

    def faults(rate: float) -> None:
        below.requests.clear()
        below.asked.clear()
        below.faults = rate

    def put(data: bytes, chance: random.Random) -> None:
        below.pipe("/store/c/0", data)
        below.pipe("/store/zarr.json", array_around(len(table(1)[0])))

    return Place(HeadraceFileSystem(fs=below), "/store/c/0", put, faults)


@contextmanager
def local(seed: int) -> Iterator[Place]:
    """OSError: this host allows no mount."""
    with tempfile.TemporaryDirectory() as folder, faulty_mount(Path(folder), seed) as mount:
        hidden = Path(folder) / "data"
        # Long ago, so that the cache keeps the bytes, and never twice the same time.
        times = iter(range(10**18, 2 * 10**18, 1000))

        def put(data: bytes, chance: random.Random) -> None:
            if chance.random() < 0.5 and hidden.exists():  # in place
                with hidden.open("r+b") as file:
                    file.write(data)
                    file.truncate()
            else:
                other = hidden.with_name("other")
                other.write_bytes(data)
                other.rename(hidden)
            now = next(times)
            os.utime(hidden, ns=(now, now))

        fs = HeadraceFileSystem()
        yield Place(fs, str(mount.path / "data"), put, mount.set)


LIMITS = (100, 500, 900)


def array_around(length: int) -> bytes:
    """The array of Zarr whose only chunk is the file. A truncated file is no chunk of it."""
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [length],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [length]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes"}],
        }
    ).encode()


@cache
def table(seed: int) -> tuple[bytes, dict[int, int]]:
    """A file, and the right answer for each limit."""
    chance = numpy.random.default_rng(seed)
    columns = {
        "a": chance.integers(1000, size=ROWS),
        "b": chance.integers(1 << 60, size=ROWS),
        "c": chance.random(ROWS),
    }
    out = io.BytesIO()
    found = pyarrow.table(columns)
    pyarrow.parquet.write_table(
        found, out, row_group_size=ROWS // GROUPS, use_dictionary=False, compression="none"
    )
    return out.getvalue(), {limit: _sum(found, limit) for limit in LIMITS}


# Each reader answers: the sum of b over the rows with a < limit.


def _sum(found: Any, limit: int) -> int:
    kept = found.filter(pyarrow.compute.less(found.column("a"), limit))
    values = pyarrow.compute.cast(kept.column("b"), pyarrow.decimal128(38))
    total: Any = pyarrow.compute.sum(values).as_py()
    return int(total or 0)


def by_pyarrow(place: Place, limit: int) -> int:
    columns = ["a", "b"]
    return _sum(pyarrow.parquet.read_table(place.path, columns=columns, filesystem=place.fs), limit)


def by_dataset(place: Place, limit: int) -> int:
    data = pyarrow.dataset.dataset(place.path, filesystem=place.fs, format="parquet")
    return _sum(data.to_table(["a", "b"], filter=pyarrow.dataset.field("a") < limit), limit)


def by_arrow(place: Place, limit: int) -> int:
    data = pyarrow.dataset.dataset(place.path, filesystem=arrow.filesystem(place.fs))
    batches = arrow.scan(data, ["b"], pyarrow.dataset.field("a") < limit)
    values = [pyarrow.compute.cast(each.column("b"), pyarrow.decimal128(38)) for each in batches]
    return sum(int(pyarrow.compute.sum(each).as_py()) for each in values)


def by_scan(place: Place, limit: int) -> int:
    row_groups.UNIT = 1 << 20  # two row groups
    batches = parquet.scan(place.path, ["a", "b"], filesystem=place.fs)
    return sum(_sum(batch, limit) for batch in batches)


def by_duckdb(place: Place, limit: int) -> int:
    import duckdb

    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.register_filesystem(place.fs)
        query = f"select sum(b) from read_parquet('headrace://{place.path}') where a < {limit}"
        return int(connection.execute(query).fetchall()[0][0] or 0)


def by_polars(place: Place, limit: int) -> int:
    import polars

    lazy = parquet.scan_polars(place.path, filesystem=place.fs)
    total = polars.col("b").cast(polars.Int128).sum()
    return int(lazy.filter(polars.col("a") < limit).select(total).collect().item() or 0)


def by_pandas(place: Place, limit: int) -> int:
    import pandas

    found = pandas.read_parquet(place.path, columns=["a", "b"], filesystem=place.fs)
    return sum(int(value) for value in found["b"][found["a"] < limit])


def by_zarr(place: Place, limit: int) -> int:
    """The sum of the first bytes of the file."""
    import zarr
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    below = AsyncFileSystemWrapper(place.fs, asynchronous=True)
    folder = str(Path(place.path).parent.parent)
    store = zarr.storage.FsspecStore(below, read_only=True, path=folder)
    array: Any = zarr.open_array(store, mode="r")
    return int(array[: array.shape[0] * limit // 1000].sum(dtype="int64"))


@cache
def sums(seed: int) -> dict[int, int]:
    """The right answers of by_zarr."""
    found = numpy.frombuffer(table(seed)[0], "uint8")
    return {limit: int(found[: len(found) * limit // 1000].sum(dtype="int64")) for limit in LIMITS}


def pieces(place: Place, data: bytes, chance: random.Random) -> bool:
    """Whether what one of the ways to read bytes gives is right."""
    at, length = chance.randrange(len(data) + 10), chance.randrange(len(data) // 2)
    way = chance.randrange(4)
    if way == 0:
        return bool(place.fs.cat_file(place.path, at, at + length) == data[at : at + length])
    if way == 1:
        cuts = sorted(chance.randrange(len(data)) for _ in range(8))
        starts, ends = cuts[::2], cuts[1::2]
        found = place.fs.cat_ranges([place.path] * 4, starts, ends, on_error="raise")
        return bool(found == [data[start:end] for start, end in zip(starts, ends, strict=True)])
    with place.fs.open(place.path) as file:
        file.seek(at)
        if way == 2:
            into = bytearray(length)
            got = file.readinto(into)
            return bool(into[:got] == data[at : at + length])
        return bool(file.read(length) == data[at : at + length])


READERS: dict[str, Callable[[Place, int], int]] = {
    "pyarrow": by_pyarrow,
    "dataset": by_dataset,
    "arrow": by_arrow,
    "scan": by_scan,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "pandas": by_pandas,
    "zarr": by_zarr,
}


def installed(readers: Iterable[str]) -> list[str]:
    return [
        reader
        for reader in readers
        if reader not in ("duckdb", "polars", "pandas", "zarr")
        or importlib.util.find_spec(reader) is not None
    ]


class Comparison:
    """One reader at one place."""

    def __init__(self, reader: str, place: Place, seed: int, reads: Reads) -> None:
        self._place = place
        self._reads = reads
        self._answer = READERS.get(reader)
        self._chance = random.Random(seed)
        self._tables = [table(1)[0], table(2)[0]]
        self._answers = [sums(1), sums(2)] if reader == "zarr" else [table(1)[1], table(2)[1]]
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.reads = 0

    def run(self, answers: int, reads: int) -> None:
        """Until it has both."""
        before = self._reads.now()
        with ThreadPoolExecutor(THREADS) as pool:
            while sum(self.counts.values()) < answers or self.reads < reads:
                number = self._chance.randrange(2)
                data = self._tables[number]
                is_cut = self._chance.random() < 0.2
                if is_cut:
                    data = data[: self._chance.randrange(len(data) // 2, len(data))]
                rate = self._chance.choice(RATES)
                self._place.put(data, self._chance)
                self._place.faults(rate)
                ask = self._pieces if self._answer is None else self._query
                running = [
                    pool.submit(ask, number, data, is_cut, random.Random(self._chance.random()))
                    for _ in range(ROUND)
                ]
                outcomes = [each.result() for each in running]
                is_damaged = is_cut and self._answer is not None
                for outcome in outcomes:
                    self._count(outcome, may_refuse=rate > 0 or is_damaged)
                self._place.faults(0.0)
                self.reads = self._reads.now() - before

    def _count(self, outcome: str, *, may_refuse: bool) -> None:
        kind = outcome.split(":")[0]
        if kind == "wrong" or (kind == "refused" and not may_refuse):
            kind = "wrong"
            self.wrong.append(outcome)
        self.counts[kind] += 1

    def _pieces(self, number: int, data: bytes, is_cut: bool, chance: random.Random) -> str:
        try:
            return "right" if pieces(self._place, data, chance) else f"wrong: bytes of {number}"
        except OSError as error:
            return f"refused: {error}"

    def _query(self, number: int, data: bytes, is_cut: bool, chance: random.Random) -> str:
        limit, expected = chance.choice(list(self._answers[number].items()))
        assert self._answer is not None
        try:
            found = self._answer(self._place, limit)
        except Exception as error:  # each engine has errors of its own
            return f"refused: {type(error).__name__}: {error}"
        if found != expected or is_cut:
            return f"wrong: {found}, not {expected}" + " of a truncated file" * is_cut
        return "right"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--answers", type=int, default=0, help="least, of each reader and place")
    parser.add_argument("--reads", type=int, default=1000, help="least, of each reader and place")
    parser.add_argument("--seed", type=int, default=1)
    there = installed(["bytes", *READERS])
    parser.add_argument("--readers", nargs="+", default=there)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    if left_out := READERS.keys() - set(there):
        print(f"not installed: {', '.join(sorted(left_out))}")
    reads = Reads()
    headrace.fsspec.configure(budget="384KiB")
    failed = False

    def compare(reader: str, where: str, place: Place) -> None:
        nonlocal failed
        comparison = Comparison(reader, place, options.seed, reads)
        comparison.run(options.answers, options.reads)
        kinds = ("right", "wrong", "refused")
        counts = ", ".join(f"{comparison.counts[kind]} {kind}" for kind in kinds)
        print(f"{reader}, {where}: {counts}, {comparison.reads} reads", flush=True)
        for one in comparison.wrong[:5]:
            print(f"  {one}")
        failed = failed or bool(comparison.wrong) or not comparison.counts["right"]

    with ExitStack() as places:
        try:
            place = places.enter_context(local(options.seed))
        except OSError as error:
            print(f"no local files: {error}")
        else:
            for reader in options.readers:
                if reader != "zarr":  # the mount has no folders
                    compare(reader, "local", place)
    for reader in options.readers:
        compare(reader, "remote", remote(options.seed))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
