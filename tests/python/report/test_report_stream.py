# SPDX-License-Identifier: Apache-2.0
"""The figure of headrace bench stream."""

from __future__ import annotations

import json
import re
from typing import Any

from headrace._report.figures_stream import stream_figures

KERNELS = ("copy", "scale", "add", "triad")


def document(counts: list[int]) -> dict[str, Any]:
    def total(threads: int) -> list[dict[str, Any]]:
        return [{"kernel": kernel, "bytes_per_second": 1e10 * threads} for kernel in KERNELS]

    return {
        "ranks": [{"a": "8", "b": "8", "c": "8", "threads": counts[-1]} for _ in range(8)],
        "repetitions": 3, "total": total(counts[-1]),
        "sweep": [{"threads": n, "total": total(n)} for n in counts],
    }  # fmt: skip


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
    stopped = document([4])
    for row in stopped["total"]:
        row["bytes_per_second"] = None
    (figure,) = stream_figures(stopped)
    assert figure.missing and not figure.charts
