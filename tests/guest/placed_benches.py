"""The benchmarks whose arrays one places, on a real kernel with DRAM and HBM: that all four ways of
the histogram are run and verified, and that the arrays of eight ranks are on their own tiles.

Run in the guest xeon-max by in_guest.sh, with the Python that has Headrace installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

#: Eight ranks on eight tiles; Open MPI's own binding left out.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "8"]
HEADRACE = [sys.executable, "-c", "from headrace._cli import main; main()"]


def document(*arguments: str, launcher: Sequence[str] = ()) -> dict[str, Any]:
    command = [*launcher, *HEADRACE, "bench", *arguments, "--json"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def histogram_four_ways() -> None:
    found = document("histogram", "--size", "1MiB", "--rounds", "1", "--threads", "1")
    ways = [(row["data"], row["bins"], row["verified"]) for row in found["rows"]]
    kinds = ("hbm", "dram")
    assert ways == [(data, bins, True) for data in kinds for bins in kinds], ways
    assert {row["basis"] for row in found["rows"]} == {"guest"}
    assert found["conclusion"]["holds"] is None, found["conclusion"]


def stream_of_eight_ranks_on_their_tiles() -> None:
    places = ["--per-rank-tile", "--a", "hbm", "--b", "dram", "--c", "hbm:dram"]
    found = document(
        "stream", "--size", "1MiB", "--repetitions", "1", *places, launcher=MPIRUN
    )  # fmt: skip
    ranks = [(rank["cpus"], rank["a"], rank["b"], rank["c"]) for rank in found["ranks"]]
    assert ranks == [([t], f"{t + 8}", f"{t}", f"{t + 8}:dram") for t in range(8)], ranks


for check in (histogram_four_ways, stream_of_eight_ranks_on_their_tiles):
    check()
    print(f"{check.__name__}: passed", flush=True)
