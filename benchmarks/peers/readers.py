# SPDX-License-Identifier: Apache-2.0
"""TPC-H Q6 over lineitem: pyarrow and DuckDB alone and through headrace.fsspec, and raw columns
(raw_columns.py).

    pip install '.[fsspec]' pyarrow duckdb tpchgen-cli
    .venv/bin/python benchmarks/peers/readers.py --data DIRECTORY_ON_THE_DISK --out readers.md

Cold: nothing in the page cache, and a new cache of ours. Warm: the second run. `slow`: the file is
in a file system that needs 20 ms for a request and gives 200 MB/s. `next process`: the cache is
closed before the second run, which finds blocks of the first one in a folder. `raw, fio` reads all
columns with io_uring past the page cache, without a query. The order is drawn in each round, the
first is not counted, and the answers are compared. No round begins that would end after --minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import fsspec
import pyarrow
import pyarrow.compute as compute
import pyarrow.dataset
import raw_columns
from fsspec.implementations.local import LocalFileSystem

import headrace.fsspec
from headrace import parquet

COLUMNS = ["l_extendedprice", "l_discount", "l_shipdate", "l_quantity"]
SQL = (
    "select sum(l_extendedprice * l_discount) from '{}' where l_shipdate >= date '1994-01-01' and "
    "l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24"
)


class SlowFile:
    def __init__(self, fs: SlowFileSystem, file: Any) -> None:
        self._fs = fs
        self._file = file

    def read(self, size: int = -1) -> bytes:
        found: bytes = self._file.read(size)
        self._fs.wait(len(found))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class SlowFileSystem(LocalFileSystem):
    """20 ms a request, and 200 MB/s in all."""

    protocol = "slow"
    cachable = False
    _line = threading.Lock()

    def wait(self, length: int) -> None:
        time.sleep(0.02)
        with self._line:
            time.sleep(length / 200e6)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return SlowFile(self, super()._open(path, mode, **options))

    def cat_ranges(self, paths: Any, starts: Any, ends: Any, **options: Any) -> list[bytes]:
        found = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            self.wait(end - start)
            with open(path, "rb") as file:
                file.seek(start)
                found.append(file.read(end - start))
        return found


def q6_of(batches: Any) -> Decimal:
    import datetime

    total = Decimal(0)
    for batch in batches:
        date = batch.column("l_shipdate")
        keep = compute.and_(
            compute.greater_equal(date, pyarrow.scalar(datetime.date(1994, 1, 1))),
            compute.less(date, pyarrow.scalar(datetime.date(1995, 1, 1))),
        )
        discount = batch.column("l_discount")
        keep = compute.and_(keep, compute.greater_equal(discount, Decimal("0.05")))
        keep = compute.and_(keep, compute.less_equal(discount, Decimal("0.07")))
        keep = compute.and_(keep, compute.less(batch.column("l_quantity"), 24))
        part = batch.filter(keep)
        product = compute.multiply(part.column("l_extendedprice"), part.column("l_discount"))
        total += compute.sum(product).as_py() or Decimal(0)
    return total


def pyarrow_scan(path: str, fs: Any = None) -> Decimal:
    data = pyarrow.dataset.dataset(path, filesystem=fs, format="parquet")
    return q6_of(data.scanner(columns=COLUMNS).to_batches())


def duckdb_query(path: str, fs: Any = None) -> Decimal:
    connection = duckdb.connect()
    if fs is not None:
        connection.register_filesystem(fs)
    answer: Decimal = connection.execute(SQL.format(path)).fetchall()[0][0]
    return answer


class HeldFile:
    """A file whose bytes objects exist: no file object in Python can be faster for DuckDB."""

    def __init__(self, path: str, held: dict[tuple[int, int], bytes]) -> None:
        self._at = threading.local()
        self._file = os.open(path, os.O_RDONLY)
        self._held = held

    def seek(self, at: int) -> int:
        self._at.now = at
        return at

    def read(self, size: int) -> bytes:
        where = self._at.now, size
        if where not in self._held:
            self._held[where] = os.pread(self._file, size, self._at.now)
        return self._held[where]

    def close(self) -> None:
        os.close(self._file)


class HeldFileSystem(LocalFileSystem):
    protocol = "held"
    cachable = False
    held: ClassVar[dict[tuple[int, int], bytes]] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("held://"))

    def open(self, path: str, *arguments: Any, **options: Any) -> Any:
        return HeldFile(self._strip_protocol(path), self.held)


def sides(path: str, raw: list[str]) -> dict[str, Callable[[], Decimal]]:
    fs = fsspec.filesystem("headrace")
    slow = headrace.fsspec.HeadraceFileSystem(fs=SlowFileSystem())
    slow.is_local = False
    planned = raw_columns.Planned(raw)
    return {
        "pyarrow": lambda: pyarrow_scan(path),
        "pyarrow through headrace": lambda: pyarrow_scan(path, fs),
        "headrace.parquet.scan": lambda: q6_of(parquet.scan(path, COLUMNS)),
        "duckdb": lambda: duckdb_query(path),
        "duckdb through headrace": lambda: duckdb_query(f"headrace://{path}", fs),
        "duckdb through held bytes": lambda: duckdb_query(f"held://{path}", HeldFileSystem()),
        "slow, pyarrow": lambda: pyarrow_scan(path, SlowFileSystem()),
        "slow, pyarrow through headrace": lambda: pyarrow_scan(path, slow),
        "slow, headrace.parquet.scan": lambda: q6_of(parquet.scan(path, COLUMNS, filesystem=slow)),
        NEXT: lambda: pyarrow_scan(path, slow),
        "raw, numpy.memmap": lambda: raw_columns.q6_of(raw_columns.mapped(raw)),
        "raw, preadv": lambda: raw_columns.q6_of(raw_columns.read(raw)),
        "raw, headrace.Cache": lambda: raw_columns.q6_of(planned.chunks()),
    }


def drop_page_cache(paths: list[str]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def lineitem(folder: Path, scale: float) -> str:
    path = folder / "lineitem.parquet"
    if not path.exists():
        command = ["tpchgen-cli", "parquet", "-s", f"{scale:g}", "--tables=lineitem",
                   f"--output-dir={folder}"]  # fmt: skip
        subprocess.run([str(Path(sys.executable).with_name(command[0])), *command[1:]], check=True)
    return str(path)


NEXT = "slow, pyarrow through headrace, next process"

#: Comparisons: ours, the other reader, each with its state, and the ratio that ours should reach.
#: Those without a ratio are bounds: DuckDB with nothing to read or with no work behind its calls;
#: reads without a query.
GOALS: list[tuple[str, str, str, str, float | None]] = [
    ("headrace.parquet.scan", "cold", "pyarrow", "cold", 1.3),
    ("pyarrow through headrace", "cold", "pyarrow", "cold", 1.3),
    ("duckdb through headrace", "cold", "duckdb", "cold", 1.3),
    ("headrace.parquet.scan", "warm", "pyarrow", "warm", 0.95),
    ("pyarrow through headrace", "warm", "pyarrow", "warm", 0.95),
    ("duckdb through headrace", "warm", "duckdb", "warm", 0.95),
    ("duckdb", "warm", "duckdb", "cold", None),
    ("duckdb through held bytes", "warm", "duckdb", "warm", None),
    ("slow, headrace.parquet.scan", "warm", "slow, headrace.parquet.scan", "cold", 5),
    ("slow, pyarrow through headrace", "warm", "slow, pyarrow through headrace", "cold", 5),
    (NEXT, "warm", NEXT, "cold", 5),
    ("raw, headrace.Cache", "cold", "raw, numpy.memmap", "cold", 1),
    ("raw, headrace.Cache", "cold", "raw, preadv", "cold", 1),
    ("raw, fio", "cold", "raw, headrace.Cache", "cold", None),
    ("raw, headrace.Cache", "warm", "raw, numpy.memmap", "warm", 0.95),
    ("raw, headrace.Cache", "warm", "raw, preadv", "warm", 0.95),
]

Times = dict[tuple[str, str], list[float]]


def one_round(path: str, raw: list[str], expected: Decimal) -> dict[tuple[str, str], float]:
    order = list(sides(path, raw).items())
    random.shuffle(order)
    taken = {}
    for name, run in order:
        with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
            settings = {"budget": "4GiB"} | ({"folder": folder} if name == NEXT else {})
            headrace.fsspec.configure(**settings)
            drop_page_cache([path, *raw])
            HeldFileSystem.held.clear()
            for state in ("cold", "warm"):
                if state == "warm" and "headrace" in name:
                    drop_page_cache([path, *raw])  # ours alone serves it
                if state == "warm" and name == NEXT:
                    headrace.fsspec.close()
                begun = time.perf_counter()
                answer = run()
                taken[name, state] = time.perf_counter() - begun
                if answer != expected:
                    sys.exit(f"{name}: {answer}, not {expected}")
            headrace.fsspec.close()
    if shutil.which("fio"):
        taken["raw, fio", "cold"] = raw_columns.fio(raw)
    return taken


def table(times: Times) -> str:
    """Markdown: medians with their range, and for each goal the median of the rounds' ratios."""
    lines = ["| side | state | median s | least | most |", "|---|---|---|---|---|"]
    for (name, state), each in sorted(times.items()):
        middle = statistics.median(each)
        lines.append(f"| {name} | {state} | {middle:.3f} | {min(each):.3f} | {max(each):.3f} |")
    lines += ["", "| ours | compared with | times faster | least | most | goal | met |",
              "|---|---|---|---|---|---|---|"]  # fmt: skip
    for ours, state, other, its_state, goal in GOALS:
        if (ours, state) not in times:
            continue  # fio is not installed
        pairs = zip(times[other, its_state], times[ours, state], strict=True)
        ratios = [slower / faster for slower, faster in pairs]
        middle = statistics.median(ratios)
        met = "bound | " if goal is None else f"{goal} | {'yes' if middle >= goal else 'no'}"
        lines.append(
            f"| {ours}, {state} | {other}, {its_state} | {middle:.2f} | {min(ratios):.2f} | "
            f"{max(ratios):.2f} | {met} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--out", type=Path, help="where the table goes too, as Markdown")
    options = parser.parse_args()
    path = lineitem(options.data, options.scale)
    raw = raw_columns.columns_of(path)
    expected = duckdb_query(path)
    times: Times = {}
    begun, longest, rounds = time.monotonic(), 0.0, 0
    for number in range(options.rounds + 1):
        started = time.monotonic()
        if started - begun + longest > options.minutes * 60:
            break
        taken = one_round(path, raw, expected)
        longest = max(longest, time.monotonic() - started)
        if number:
            rounds += 1
            for key, seconds in taken.items():
                times.setdefault(key, []).append(seconds)
    if not rounds:
        sys.exit(f"a round takes {longest:.0f} s; give more --minutes, or a smaller --scale")
    text = (
        f"{rounds} rounds, lineitem at scale {options.scale:g} ({os.path.getsize(path)} bytes), "
        f"pyarrow {pyarrow.__version__}, duckdb {duckdb.__version__}, {os.cpu_count()} CPUs\n\n"
        f"{table(times)}\n"
    )
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
