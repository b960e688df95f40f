# SPDX-License-Identifier: Apache-2.0
"""headrace bench dsa without a device, and what follows from its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_documents import check_commands

import headrace
from headrace._cli import output
from headrace._profile import dsa_rows
from headrace._profile.documents import Fields
from headrace_bench.commands import dsa as bench_dsa
from headrace_bench.runner import row_of

Run = Callable[..., Any]

#: Parameters of a copy within a node.
USUAL = {
    "method": "single", "bytes": 4096, "threads": 1, "at_once": 1, "window": 1, "from": 0,
    "to": 0, "route": "one", "engines": "", "queue": "", "group_engines": "any",
    "beside": "nothing",
}  # fmt: skip


def test_without_a_device_it_says_how_to_go_on(run: Run) -> None:
    if any(engine.kind == "dsa" for engine in headrace.Machine.discover().engines):
        pytest.skip("this host has a DSA device")
    result = run("bench", "dsa")
    assert result.returncode == 4 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1 and "headrace predict copy" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["speed"], 2, "there are submission, threads"),
        (["submission", "--sizes", "3GiB"], 2, "2 GiB"),
        (["--rounds", "0"], 2, "--rounds"),
        (["--emulated"], 2, "No such option: --emulated"),
        (["--out", "nowhere/rows.json"], 3, "no directory"),
    ],
)
def test_bad_requests(run: Run, arguments: list[str], code: int, words: str) -> None:
    result = run("bench", "dsa", *arguments)
    assert result.returncode == code and result.stdout == ""
    assert words in result.stderr and len(result.stderr.splitlines()) == 1


def row(way: str, size: int, rate: float | None, machine: str = "a", to_node: int = 0) -> Fields:
    return Fields({
        "experiment": "cpu", "method": way, "window": 1, "at_once": 1, "threads": 1,
        "route": "one", "bytes": size, "bytes_per_second": rate, "basis": "modelled",
        "machine": machine, "from_node": 0, "to_node": to_node,
    })  # fmt: skip


def test_a_crossover_holds_at_all_larger_sizes() -> None:
    cores = [row("cores", size, 5.0, "b") for size in (1, 2, 4, 8)]
    device = [row("single", size, rate) for size, rate in ((1, 6.0), (2, 4.0), (4, 5.0), (8, 9.0))]
    (found,) = dsa_rows.crossovers([*cores, *device])
    assert (found["bytes"], found["machine"], found["cores_of"]) == (4, "a", "b")
    (never,) = dsa_rows.crossovers([*cores, *device[:2], row("single", 8, 1.0)])
    assert never["bytes"] is None and "core is faster" in never["reason"]
    (alone,) = dsa_rows.crossovers(device)
    assert alone["bytes"] is None and "no size" in alone["reason"]


def test_a_crossover_is_within_a_node() -> None:
    at_home = [row("single", 8, 6.0), row("cores", 8, 9.0)]
    (never,) = dsa_rows.crossovers([*at_home, row("cores", 8, 5.0, to_node=8)])
    assert never["bytes"] is None and "core is faster" in never["reason"]


def test_MeasuredRows_AreThoseOfAProfile(run: Run, tmp_path: Path) -> None:
    machine = headrace.Machine.load("xeon-max")
    rows = [
        row_of("dsa", {**USUAL, "part": "cpu", "method": way, "bytes": size}, "B/s", rates)
        for size in (4096, 1 << 20)
        for way, rates in (("single", [2e9, 3e9, 4e9]), ("cores", [1e9, 1.5e9, 2e9]))
    ]  # fmt: skip
    made = output.document("bench dsa", machine, **bench_dsa.fields(rows, machine, "here"))
    check_commands(made, run, tmp_path)
    [crossover] = made["crossovers"]
    assert (crossover["bytes"], crossover["machine"], crossover["basis"]) == (
        4096, "here", "measured",
    )  # fmt: skip
    bench_dsa.print_rows(made)


def test_a_document_with_nothing_but_reasons_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    from headrace._report.figures_dsa import dsa_figures

    rows = [row_of("dsa", {"part": name, **USUAL}, "B/s", [], reason="no device")
            for name in dsa_rows.EXPERIMENTS]  # fmt: skip
    machine = headrace.Machine.load("xeon-max").asdict()
    figures = dsa_figures({"rows": [row.asdict() for row in rows], "machine": machine, "host": "a"})
    assert [bool(figure.missing) for figure in figures] == [True] * 4 + [False]
    assert figures[-1].caption == "No number: no device."
