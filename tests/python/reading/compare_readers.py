# SPDX-License-Identifier: Apache-2.0
"""Compares the answers of all that reads through headrace.fsspec, under faults that a seed chooses.

    .venv/bin/python tests/python/reading/compare_readers.py --operations 100000

Each reader reads a local file in a faulty mount (faulty_mount.py), and one of a faulty file system:
reads are short, late, or fail, and the file is replaced, changed in place, truncated and restored.
An answer is right, or it is refused with an error. Prints counts; exit status 1: a wrong answer, or
a refusal without a fault.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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

ROWS, GROUPS = 100_000, 5
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

    return Place(
        headrace.fsspec.HeadraceFileSystem(fs=below),
        "/data",
        lambda data, chance: below.pipe("/data", data),
        faults,
    )


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

        fs = headrace.fsspec.HeadraceFileSystem()
        yield Place(fs, str(mount.path / "data"), put, mount.set)


LIMITS = (100, 500, 900)


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
}


class Comparison:
    """One reader at one place."""

    def __init__(self, reader: str, place: Place, seed: int) -> None:
        self._place = place
        self._answer = READERS.get(reader)
        self._chance = random.Random(seed)
        self._tables = [table(1), table(2)]
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, operations: int) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            while sum(self.counts.values()) < operations:
                number = self._chance.randrange(2)
                data, _ = self._tables[number]
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

    def _count(self, outcome: str, *, may_refuse: bool) -> None:
        kind = "right" if outcome == "right" else "refused"
        if outcome.startswith("wrong") or (kind == "refused" and not may_refuse):
            self.wrong.append(outcome)
        self.counts[kind] += 1

    def _pieces(self, number: int, data: bytes, is_cut: bool, chance: random.Random) -> str:
        try:
            return "right" if pieces(self._place, data, chance) else f"wrong bytes of {number}"
        except OSError as error:
            return f"refused: {error}"

    def _query(self, number: int, data: bytes, is_cut: bool, chance: random.Random) -> str:
        limit, expected = chance.choice(list(self._tables[number][1].items()))
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
    parser.add_argument("--operations", type=int, default=1000, help="of each reader and place")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--readers", nargs="+", default=["bytes", *READERS])
    options = parser.parse_args()
    headrace.fsspec.configure(budget="2MiB")
    failed = False

    def compare(reader: str, where: str, place: Place) -> None:
        nonlocal failed
        comparison = Comparison(reader, place, options.seed)
        comparison.run(options.operations)
        right, refused = comparison.counts["right"], comparison.counts["refused"]
        print(f"{reader}, {where}: {right} right, {refused} refused", flush=True)
        for one in comparison.wrong[:5]:
            print(f"  {one}")
        failed = failed or bool(comparison.wrong) or not right

    try:
        with local(options.seed) as place:
            for reader in options.readers:
                compare(reader, "local", place)
    except OSError as error:
        print(f"no local files: {error}")
    for reader in options.readers:
        compare(reader, "remote", remote(options.seed))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
