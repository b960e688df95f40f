"""The benchmarks whose arrays one places, on a real kernel with DRAM and HBM: that all four ways of
the histogram are run and verified, and that the arrays of eight ranks are on their own tiles.

Run in the guest xeon-max by in_guest.sh, with the Python that has Headrace installed.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from forked import HEADRACE, MPIRUN, headrace

import headrace as headrace_package
from headrace._bench.threads import buffer

#: Each thread has a huge page, so that none is shared.
PART = 2 << 20


def rows_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def histogram_four_ways() -> None:
    options = ["--size", "1MiB", "--rounds", "1", "--threads", "1", "--json"]
    found = rows_of(headrace("bench", "histogram", *options))
    ways = [(row["data"], row["bins"], row["verified"]) for row in found["rows"]]
    kinds = ("hbm", "dram")
    assert ways == [(data, bins, True) for data in kinds for bins in kinds], ways
    assert {row["basis"] for row in found["rows"]} == {"guest"}
    assert found["conclusion"]["holds"] is None, found["conclusion"]


def stream_of_eight_ranks_on_their_tiles() -> None:
    places = ["--per-rank-tile", "--a", "hbm", "--b", "dram", "--c", "hbm:dram"]
    options = ["--size", "1MiB", "--repetitions", "1", *places, "--json"]
    command = [*MPIRUN, "8", *HEADRACE, "bench", "stream", *options]
    found = rows_of(subprocess.run(command, capture_output=True, text=True))
    ranks = [(rank["cpus"], rank["a"], rank["b"], rank["c"]) for rank in found["ranks"]]
    assert ranks == [([t], f"{t + 8}", f"{t}", f"{t + 8}:dram") for t in range(8)], ranks


def arrays_of_eight_threads_near_them() -> None:
    machine = headrace_package.Machine.discover(storage=[])
    cpus = list(range(8))
    size = 8 * PART
    arrays = [buffer(machine, size, kind, cpus) for kind in ("hbm", "dram", "hbm")]
    headrace_package.stream_fill(*arrays, cpus)
    for array, first in zip(arrays, (8, 0, 8), strict=True):
        for cpu in cpus:
            part = array.numpy()[cpu * PART : (cpu + 1) * PART]
            found = headrace_package.where(part).pages
            assert list(found) == [first + cpu], (cpu, found)
    # One that spills: in turn on the nodes of its threads, and not on those of the other socket.
    found = headrace_package.where(buffer(machine, size, "hbm:dram", cpus[:4]).numpy()).pages
    assert sorted(found) == [8, 9, 10, 11], found


for check in (
    histogram_four_ways, stream_of_eight_ranks_on_their_tiles, arrays_of_eight_threads_near_them
):  # fmt: skip
    check()
    print(f"{check.__name__}: passed", flush=True)
