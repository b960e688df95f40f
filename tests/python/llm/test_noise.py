# SPDX-License-Identifier: Apache-2.0
"""Rows of bench kvcache that others disturbed say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headrace_bench.llm import noise
from headrace_bench.llm.noise import Counts


def test_counters_of_the_kernel(tmp_path: Path) -> None:
    assert noise.counts(tmp_path) is None
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu  100 200 300 4000 50 6 7 80 9 0\ncpu0 1 2 3\n")
    found = noise.counts(tmp_path)
    assert found is not None
    # user, nice, system and both of interrupts; guests are users already.
    assert found.busy / found.stolen == pytest.approx(613 / 80)
    assert found.total / found.stolen == pytest.approx(4743 / 80)
    assert found.own > 0
    for odd in ("", "cpu  1 2\n", "cpu  a b c d e f g h\n", "intr 1 2 3 4 5 6 7 8\n"):
        stat.write_text(odd)
        assert noise.counts(tmp_path) is None


@pytest.mark.parametrize(
    ("busy", "stolen", "own", "flags"),
    [(40, 0, 40, []), (44, 0, 40, []), (46, 0, 40, ["noisy"]), (40, 0.8, 40, []),
     (40, 0.9, 40, ["noisy"]), (39, 0, 40, []), (0.4, 0.01, 0.4, []), (1, 0.05, 1, ["noisy"])],
)  # fmt: skip
def test_others_make_a_row_noisy(busy: float, stolen: float, own: float, flags: list[str]) -> None:
    """Programs by their part of the time of all CPUs, the hypervisor by that of CPUs in use."""
    row = noise.between(Counts(50, 20, 3, 10), Counts(150, 20 + busy, 3 + stolen, 10 + own))
    assert row["flags"] == flags
    assert row["others_share"] == pytest.approx(max(0, busy - own) / 100)
    assert row["steal_share"] == pytest.approx(stolen / (busy + stolen) if busy > 0.4 else 0)


def test_missing_counters_are_unknown() -> None:
    some = Counts(1, 1, 1, 1)
    for before, after in ((None, some), (some, None), (some, some)):
        row = noise.between(before, after)
        assert row == {"others_share": None, "steal_share": None, "flags": []}


def row(store: str, stall: float | None, policy: str = "recompute", **more: Any) -> dict[str, Any]:
    head = {"store": store, "policy": policy, "stall_p50_ms": stall}
    return head | {"reason": "", "flags": []} | more


def test_recompute_is_a_control() -> None:
    rows = [row("headrace", 13.1), row("asyncio", 0.865), row("asyncio", 2.0, "demand")]
    found = noise.control(rows)
    assert found is not None and not found["holds"] and found["ratio"] == pytest.approx(15.1, 0.01)
    assert all(each["flags"] == ["noisy"] for each in rows)
    rows = [row("headrace", 1.0), row("asyncio", 1.05), row("asyncio", 9.0, "demand")]
    found = noise.control(rows)
    assert found is not None and found["holds"]
    assert all(each["flags"] == [] for each in rows)
    for few in ([], rows[:1], [rows[0], row("asyncio", None)],
                [rows[0], row("asyncio", 9.0, reason="interrupted")]):  # fmt: skip
        assert noise.control(few) is None
