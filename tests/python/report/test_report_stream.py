# SPDX-License-Identifier: Apache-2.0
"""The figure of headrace bench stream."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from headrace_bench.commands.stream import print_stream
from headrace_bench.runner import row_of

from headrace._report.figures_stream import stream_figures

KERNELS = ("copy", "scale", "add", "triad")


def document(counts: list[int], rate: float = 1e10) -> dict[str, Any]:
    places = {"a": "8", "b": "8", "c": "8"}
    rows = [
        row_of(
            "stream", {"kernel": kernel, **places, "threads": threads, "rank": "all"}, "B/s",
            [0.9 * rate * threads, rate * threads] if rate else [],
            details={"best": rate * threads},
        ).asdict()
        for threads in counts for kernel in KERNELS
    ]  # fmt: skip
    ranks = [{**places, "threads": counts[-1]} for _ in range(8)]
    return {"ranks": ranks, "repetitions": 2, "rows": rows}


def test_a_sweep_is_a_line_of_each_kernel() -> None:
    (figure,) = stream_figures(document([1, 2, 4, 12]))
    assert [heading for heading, _ in figure.charts] == [
        "all ranks together, by the threads of each", "all ranks together"
    ]  # fmt: skip
    assert "8 ranks" in figure.caption and "96 threads in all" in figure.caption
    assert "120 GB/s" in figure.caption
    drawn = json.dumps(figure.charts[0][1].to_dict())
    assert {int(n) for n in re.findall(r'"x": (\d+)', drawn)} == {1, 2, 4, 12}


def test_without_a_sweep_there_are_bars_only() -> None:
    (figure,) = stream_figures(document([4]))
    assert [heading for heading, _ in figure.charts] == ["all ranks together"]
    assert "Thin bars are the range of the samples." in figure.caption
    (figure,) = stream_figures(document([4], rate=0))
    assert figure.missing and not figure.charts


def test_RanksWithDifferentThreads_HaveTheirLinesInTheTable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = document([4])
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
