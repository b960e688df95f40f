# SPDX-License-Identifier: Apache-2.0
"""Sums a column of a file while the cache fetches the next blocks of it ahead.

Usage: prefetch_columns.py [FILE]    a file of little-endian int32; made here if none is given
"""

import sys
import tempfile
from pathlib import Path

import numpy

import headrace

BLOCK = 1 << 20


def sum_column(path: Path) -> int:
    machine = headrace.Machine.discover(storage=[path.parent])
    fast = machine.of_kind("hbm") or machine.of_kind("dram")
    cache = headrace.Cache(headrace.Mover(machine), {fast[0].id: 64 * BLOCK})
    column = headrace.File.open(machine, path)
    extents = [
        column.extent(offset, min(BLOCK, column.size - offset))
        for offset in range(0, column.size, BLOCK)
    ]
    total = 0
    # The plan: these extents, in this order. Each is fetched before the loop gets to it.
    with cache.prefetch(extents) as plan:
        for extent in extents:
            with cache.access(extent, plan=plan) as block:
                total += int(block.numpy("<i4").sum(dtype="int64"))
    stats = cache.stats()
    print(f"{stats.hits} blocks were ready, {stats.inflight_hits} on their way, "
          f"{stats.misses} not begun")  # fmt: skip
    return total


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder, "column.bin")
        if not path.exists():
            numpy.arange(4 * BLOCK, dtype="<i4").tofile(path)
        expected = int(numpy.fromfile(path, "<i4").sum(dtype="int64"))
        total = sum_column(path)
    print(f"sum: {total}, {'right' if total == expected else 'WRONG'}")


if __name__ == "__main__":
    main()
