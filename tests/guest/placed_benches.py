# SPDX-License-Identifier: Apache-2.0
"""The benchmarks whose arrays one places, on a real kernel with DRAM and HBM: that all four ways of
the histogram are run and verified, and that the arrays of eight ranks are on their own tiles.

Run in the guest xeon-max by in_guest.sh with --all, and the Python that has Headrace installed.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from forked import HEADRACE, MPIRUN, headrace


def rows_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def histogram_four_ways() -> None:
    options = ["--size", "1MiB", "--rounds", "1", "--threads", "1", "--json"]
    found = rows_of(headrace("bench", "histogram", *options))
    places = [row["parameters"] for row in found["rows"]]
    ways = [(place["data"], place["bins"]) for place in places]
    kinds = ("hbm", "dram")
    assert ways == [(data, bins) for data in kinds for bins in kinds], ways
    assert all(row["details"]["wrong"] == 0 for row in found["rows"]), found["rows"]
    assert found["rests_on"]["level"] == "guest"
    assert found["conclusion"]["holds"] is None, found["conclusion"]


def stream_of_eight_ranks_on_their_tiles() -> None:
    places = ["--per-rank-tile", "--a", "hbm", "--b", "dram", "--c", "hbm:dram"]
    options = ["--size", "1MiB", "--repetitions", "1", *places, "--json"]
    command = [*MPIRUN, "8", *HEADRACE, "bench", "stream", *options]
    found = rows_of(subprocess.run(command, capture_output=True, text=True))
    ranks = [(rank["cpus"], rank["a"], rank["b"], rank["c"]) for rank in found["ranks"]]
    assert ranks == [([t], f"{t + 8}", f"{t}", f"{t + 8}:dram") for t in range(8)], ranks


for check in (histogram_four_ways, stream_of_eight_ranks_on_their_tiles):
    check()
    print(f"{check.__name__}: passed", flush=True)
