# SPDX-License-Identifier: Apache-2.0
"""Lines of the demo's table, from rows as a quick session of other machines gives them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_documents import check_commands
from profile_documents import Maker, machine

import headrace
from headrace._profile.documents import profile_of
from headrace._profile.row_documents import rate_rows, variation

pytest.importorskip("altair")

from headrace._report import figures_dsa  # noqa: E402

Run = Callable[..., "subprocess.CompletedProcess[str]"]

LARGE = 64 << 20


def lines(*copies: dict[str, Any]) -> list[tuple[str, str]]:
    """The fields "what" and "where" of each row of a profile with these copies."""
    maker = Maker(1)
    rows = [
        maker.row("copy", "B/s", 1e10, **{"engine": "cpu", "cpu_node": 0, "state": "cold", **copy})
        for copy in copies
    ]
    profile = headrace.Profile.fromdict(machine() | {"rows": rows})
    return [(row["what"], row["where"]) for row in rate_rows(profile, Path())]


def copy(source: int, target: int, threads: int, size: int = LARGE) -> dict[str, Any]:
    return {"from": source, "to": target, "bytes": size, "threads": threads}


def test_a_pair_of_memories_has_a_line_where_there_is_one_cpu() -> None:
    assert lines(copy(0, 2, 1), copy(2, 0, 1)) == [
        ("copy", "1 thread, node 0 to node 2"),
        ("copy", "1 thread, node 2 to node 0"),
    ]


def test_a_pair_of_memories_has_one_line_by_the_most_threads() -> None:
    assert lines(copy(0, 2, 1), copy(0, 2, 8), copy(0, 3, 4), copy(0, 3, 1)) == [
        ("copy", "8 threads, node 0 to node 2"),
        ("copy", "4 threads, node 0 to node 3"),
    ]


def test_a_memory_has_lines_of_one_thread_and_of_all() -> None:
    assert lines(copy(0, 0, 1), copy(0, 0, 8), copy(2, 2, 1)) == [
        ("memory copy", "node 0, 1 thread"),
        ("memory copy", "node 0, 8 threads"),
        ("memory copy", "node 2, 1 thread of node 0"),
    ]


def test_small_copies_have_no_line() -> None:
    assert lines(copy(0, 0, 1, 65536), copy(0, 2, 8, 1 << 20)) == []


def test_rows_say_how_much_they_vary_and_of_how_many() -> None:
    one = Maker(1).row("copy", "B/s", 1e10, engine="cpu", cpu_node=0, state="cold", **copy(0, 0, 1))
    one |= {"samples": [9e9, 10e9, 11e9], "median": 10e9, "low": 9e9, "high": 11e9}
    alone = one | {"samples": [10e9]}
    profile = headrace.Profile.fromdict(machine() | {"rows": [one, alone]})
    several, single = (variation(row) for row in profile.rows)
    assert (several["low"], several["high"], several["n"]) == (9e9, 11e9, 3)
    assert several["interval"] == "range of 3"
    assert (single["low"], single["high"], single["interval"], single["n"]) == (None, None, None, 1)


def test_BenchCopy_WritesRowsThatOthersRead(run: Run, tmp_path: Path) -> None:
    sizes = ["--sizes", "4KiB,64KiB", "--engines", "cpu,memcpy", "--rounds", "3"]
    result = run("bench", "copy", *sizes, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    check_commands(document, run, tmp_path)
    engines = [row["parameters"]["engine"] for row in document["rows"]]
    assert engines == ["cpu", "memcpy"] * 4 and {"copy"} == {
        row["experiment"] for row in document["rows"]
    }  # fmt: skip
    assert all(row["details"]["ratio_to_memcpy"] > 0 for row in document["rows"][::2])
    page = run("report", "a.json", "--html", "page.html")
    assert page.returncode == 0 and "Hot, where memcpy is" in (tmp_path / "page.html").read_text()
    assert run("bench", "copy", *sizes).stdout.split()[:3] == ["state", "bytes", "threads"]


def test_what_varies_has_a_bar_in_figures_of_devices() -> None:
    row = {"bytes_per_second": 3e10, "low": 2.7e10, "high": 3.3e10, "interval": "range of 5"}
    drawn = figures_dsa._rate(row)
    assert drawn["low"] == pytest.approx(0.9 * drawn["y"])
    assert drawn["high"] == pytest.approx(1.1 * drawn["y"])
    assert figures_dsa._varies([row]) == " Thin bars are the range of the samples."
    modelled = {"bytes_per_second": 3e10, "low": None, "high": None, "interval": None, "n": 1}
    assert figures_dsa._varies([modelled]) == ""
    assert figures_dsa._rate(modelled)["low"] == figures_dsa._rate(modelled)["high"]


def test_Results_AreNotConditionsOfADocument() -> None:
    results = {"answer_ok": True, "layer_ms": 1.5, "us_per_token_and_layer": 2.5,
               "device_free_bytes": 7, "conclusion": "none"}  # fmt: skip
    made = {"kind": "bench query", "machine": machine(), "rows": [], "scale": 1, **results}
    found = profile_of(made).conditions
    assert found["scale"] == "1" and not results.keys() & found.keys()
