# SPDX-License-Identifier: Apache-2.0
"""The figure of headrace bench stream."""

from __future__ import annotations

import pytest
import report_documents
from headrace_bench.commands.stream import print_stream
from headrace_bench.runner import row_of

KERNELS = ("copy", "scale", "add", "triad")


def test_RanksWithDifferentThreads_HaveTheirLinesInTheTable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = report_documents.stream([4])
    for kernel in KERNELS:
        made["rows"] += [
            row_of(
                "stream", {"kernel": kernel, "threads": threads, "rank": rank}, "B/s", [1e9],
                details={"best": threads * 1e9},
            ).asdict()
            for rank, threads in enumerate((4, 3))
        ]  # fmt: skip
    made["ranks"] = [
        {"rank": rank, "host": "h", "threads": threads, **dict.fromkeys("abc", "8"),
         "bytes_per_array": 1 << 20, "in_cache": False}
        for rank, threads in enumerate((4, 3))
    ]  # fmt: skip
    print_stream({**made, "rests_on": {"detail": "as tested"}})
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    assert lines[1][:3] == ["0", "h", "4"] and lines[1][-8:] == ["4", "GB/s"] * 4
    assert lines[2][:3] == ["1", "h", "3"] and lines[2][-8:] == ["3", "GB/s"] * 4
    assert lines[3][:2] == ["all", "7"] and "threads of a rank" not in text
