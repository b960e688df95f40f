# SPDX-License-Identifier: Apache-2.0
"""The same measurement in the counting of other tools: exact numbers."""

from __future__ import annotations

import json
from pathlib import Path

import profile_documents as documents
import pytest
from conftest import Run

import headrace
from headrace import _selection
from headrace._profile import conventions

#: 6 GB/s of payload each; what headrace, stream, likwid, mlc (MB/s) and mbw (MiB/s) say of it.
GIVEN = 6e9
MBW = 6e9 / (1 << 20)
TABLE = [
    ("bandwidth", {"mix": "read"}, 6000, 6000, 6000, 6000, None),
    ("bandwidth", {"mix": "write"}, 6000, 6000, 6000, 12000, None),
    ("bandwidth", {"mix": "nt_write"}, 6000, 6000, 6000, 6000, None),
    ("bandwidth", {"mix": "2:1"}, 6000, 6000, 6000, 8000, None),
    ("bandwidth", {"mix": "1:1"}, 6000, 6000, 6000, 9000, None),
    ("bandwidth", {"mix": "nt_2:1"}, 6000, 6000, 6000, 6000, None),
    ("bandwidth", {"mix": "copy"}, 6000, 12000, 12000, 18000, MBW),
    ("bandwidth", {"mix": "nt_copy"}, 6000, 12000, 12000, 12000, MBW),
    ("stream", {"kernel": "copy"}, 6000, 6000, 6000, 9000, MBW / 2),
    ("stream", {"kernel": "triad"}, 6000, 6000, 6000, 8000, None),
    ("stream", {"kernel": "nt_copy"}, 6000, 6000, 6000, 6000, MBW / 2),
    ("stream", {"kernel": "nt_triad"}, 6000, 6000, 6000, 6000, None),
    ("copy", {"engine": "memcpy"}, 6000, 12000, 12000, None, MBW),
    ("migrate", {"method": "mbind"}, 6000, None, None, None, None),
]


def row(experiment: str, unit: str = "B/s", **parameters: str) -> headrace.Row:
    document = {
        "schema_version": 1, "nodes": [],
        "rows": [{"experiment": experiment, "parameters": parameters, "unit": unit,
                  "median": GIVEN}],
    }  # fmt: skip
    return headrace.Profile.from_json(json.dumps(document)).rows[0]


@pytest.mark.parametrize(
    ("experiment", "parameters", "own", "stream", "likwid", "mlc", "mbw"), TABLE
)
def test_what_each_tool_would_print(
    experiment: str, parameters: dict[str, str], own: float, stream: float | None,
    likwid: float | None, mlc: float | None, mbw: float | None,
) -> None:  # fmt: skip
    found = {
        name: tool.number(row(experiment, **parameters))
        for name, tool in conventions.CONVENTIONS.items()
    }
    expected = {"headrace": own, "stream": stream, "likwid": likwid, "mlc": mlc, "mbw": mbw}
    for name, number in expected.items():
        assert found[name] == (None if number is None else pytest.approx(number)), name


@pytest.mark.parametrize(
    ("name", "reads", "writes", "around"),
    [("R", 1, 0, False), ("W2", 2, 1, False), ("W3", 3, 1, False), ("W4", 3, 2, False),
     ("W5", 1, 1, False),
     ("W6", 0, 1, True), ("W7", 2, 1, True), ("W8", 1, 1, True), ("W9", 3, 1, True),
     ("W12", 4, 1, False)],
)  # fmt: skip
def test_what_a_checker_calls_a_mix_is_what_it_makes_on_the_bus(
    name: str, reads: int, writes: int, around: bool
) -> None:
    mix = _selection.value_of("mix", name)
    traffic = conventions.Traffic.of(str(mix))
    fetched = 0 if traffic.non_temporal else traffic.writes
    assert (traffic.reads + fetched) * writes == traffic.writes * reads
    assert traffic.writes == 0 or traffic.non_temporal == around
    assert conventions.MLC_TRAFFIC[str(mix)] == name


def test_a_mix_is_called_by_its_names() -> None:
    called = [conventions.called(mix) for mix in ("2:1", "write", "7:3", "read", "copy")]
    assert called == ["2:1 (W3, STREAM triad)", "write (W5)", "7:3", "read", "copy (STREAM copy)"]
    assert _selection.value_of("mix", "7:3") == "7:3" and _selection.value_of("mix", 3) == 3


def test_only_the_mix_that_copies_has_the_name_of_streams_copy() -> None:
    """1:1 reads and writes as much, other bytes."""
    mixes = ("copy", "1:1", "nt_copy", "nt_1:1", "1:2")
    assert [conventions.called(mix) for mix in mixes] == [
        "copy (STREAM copy)", "1:1 (W2)", "nt_copy (STREAM nt_copy)", "nt_1:1 (W8)", "1:2 (W4)"
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "why"), [
    ("W10", "two buffers: measure stream --only kernel=nt_triad"),
    ("W11", "two buffers: measure stream --only kernel=triad"),
    ("W19", "is not published"), ("W21", "two memories"), ("W23", "two memories"),
])  # fmt: skip
def test_traffic_of_others_that_is_no_mix_says_what_is(name: str, why: str) -> None:
    with pytest.raises(headrace.InvalidError, match=why):
        _selection.value_of("mix", name)
    assert _selection.value_of("kernel", name) == name


def test_a_latency_is_no_rate() -> None:
    for tool in conventions.CONVENTIONS.values():
        assert tool.number(row("loaded", "ns", mix="read")) is None


def test_the_arithmetic_is_that_of_what_is_measured(machine: headrace.Machine) -> None:
    profile = headrace.measure(
        machine, experiments=["bandwidth"], only={"threads": 1}, rounds=1, repetitions=1,
        noise_checks=False,
    )  # fmt: skip
    measured = [row for row in profile.rows if row.median is not None]
    assert measured
    for each in measured:
        for name, detail in (("stream", "read_write"), ("mlc", "bus")):
            number = conventions.find(name).number(each)
            assert number == pytest.approx(each.details[detail] / 1e6, rel=1e-6), each.key


def test_a_column_and_a_line_are_added(run: Run, tmp_path: Path) -> None:
    document = documents.machine() | {"rows": [
        {"experiment": "bandwidth", "parameters": {"mix": mix}, "unit": "B/s", "median": GIVEN}
        for mix in ("read", "copy")
    ]}  # fmt: skip
    (tmp_path / "p.json").write_text(json.dumps(document))
    plain = run("export", "p.json", "--as", "table").stdout
    asked = run("export", "p.json", "--as", "table", "--convention", "stream").stdout
    assert "stream" not in plain
    assert [line.split()[-2:] for line in asked.splitlines()[2:4]] == [
        ["6000.0", "MB/s"], ["12000.0", "MB/s"],
    ]  # fmt: skip
    assert "stream counts: bytes read plus bytes written" in asked


def test_measure_refuses_an_unknown_tool_before_it_measures(run: Run) -> None:
    result = run("measure", "--convention", "ibm")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("headrace: no convention 'ibm'; there are headrace, stream")
