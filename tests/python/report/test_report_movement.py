# SPDX-License-Identifier: Apache-2.0
"""Figures of movement: rates beside the memories' limits, engines side by side, CPU time of each
engine, and the spread of every number."""

from __future__ import annotations

import functools
import json
from typing import Any

import profile_documents as documents
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from headrace._report import rows
from headrace._report.charts import has_spread, specification
from headrace._report.figure import Figure
from headrace._report.profile import profile_figures

SIDE_BY_SIDE = "Ways from memory to memory, side by side"
COSTS = "What a GB costs the cores"
COPY, MIGRATE = "Copying from memory to memory", "Moving pages to another node"
STORAGE, DSA, GPU = "Files on storage", "Copies by DSA devices", "GPUs"
#: Figures with numbers that are details of their rows, of which a row has no samples.
OF_DETAILS = {
    "Loaded latency": {"background bandwidth by injected delay"},
    MIGRATE: {"when the first page is there"},
    STORAGE: {"how long one takes"},
    "Who slows whom": {"what equal jobs reach together", "how evenly they share it"},
    COSTS: {""},
}
MATRICES = ("CPUs by memory", "half a round trip", "the job of the row")


def document_of(*experiments: str) -> dict[str, Any]:
    """A profile with these experiments and with the bandwidths that limit them. Copies are by the
    usual engines. Without names, all experiments."""
    found: dict[str, Any] = json.loads(_whole())
    kept = {*experiments, "bandwidth"}
    if experiments:
        found["rows"] = [
            row for row in found["rows"]
            if row["experiment"] in kept
            and row["parameters"].get("engine", "cpu") in ("memcpy", "cpu")
        ]  # fmt: skip
    return found


@functools.cache
def _whole() -> str:
    return json.dumps(documents.profile())


def figures(document: dict[str, Any]) -> dict[str, Figure]:
    profile = headrace.Profile.fromdict(document)
    return {figure.title: figure for figure in profile_figures(profile)}


@pytest.fixture(scope="module")
def whole() -> dict[str, Figure]:
    return figures(document_of())


def level(chart: Any) -> float | None:
    """Where its dashed line is."""
    for layer in specification(chart).get("layer", []):
        if layer["mark"]["type"] == "rule" and "strokeDash" in layer["mark"]:
            found: float = layer["data"]["values"][0]["y"]
            return found
    return None


def data(chart: Any) -> list[dict[str, Any]]:
    whole = specification(chart)
    views = [whole, *whole.get("layer", [])]
    values: list[list[dict[str, Any]]] = [view.get("data", {}).get("values", []) for view in views]
    return next(found for found in values if found and "text" in found[0])


def chart_of(figure: Figure, heading: str) -> Any:
    (found,) = [chart for told, chart in figure.charts if told.startswith(heading)]
    return found


def test_divided_copies_are_lines_of_their_own() -> None:
    """All threads of a divided copy make one: another number than of copies that each makes."""
    document = document_of("copy")
    own = [row for row in document["rows"] if row["experiment"] == "copy"]
    document["rows"] += [
        row | {"parameters": row["parameters"] | {"work": "divided"}} for row in own
        if row["parameters"]["threads"] == 8 and row["parameters"]["state"] == "cold"
    ]  # fmt: skip
    found = figures(document)
    for heading, chart in found[COPY].charts:
        points = [(row["line"], row["x"]) for row in data(chart)]
        assert len(points) == len(set(points)), heading
    lines = {row["line"] for row in data(chart_of(found[COPY], "DRAM 0 to HBM 2; cold"))}
    assert {"cpu × 8", "cpu × 8, divided", "memcpy × 8, divided"} <= lines
    (over_cores,) = [
        data(chart) for told, chart in found[COPY].charts if "one copy divided among cores" in told
    ]
    assert {row["x"] for row in over_cores if row["line"] == "cpu, 16 MiB"} == {1, 8}
    assert "divided: all of them make one copy together" in found[COPY].caption
    ways = [line[0] for line in found[COSTS].tables[0].rows]
    assert "cpu, several threads" in ways and "cpu, several threads, divided" in ways


def test_a_gpu_is_held_against_memory_that_is_slower_than_its_own() -> None:
    document = document_of("gpu")
    inside = next(r for r in document["rows"] if r["parameters"].get("direction") == "inside")
    inside["samples"], inside["median"] = [1e11] * 5, 1e11
    inside["low"] = inside["high"] = inside["min"] = inside["max"] = 1e11
    found = figures(document)[GPU]
    assert level(found.charts[0][1]) is None
    assert "No bound is known of copies to the GPU" in found.caption


@pytest.mark.parametrize("missing", [("read", 0), ("nt_write", 2)])
def test_unknown_bounds_have_no_line_and_are_reported(missing: tuple[str, int]) -> None:
    document = document_of("copy", "migrate")
    document["rows"] = [
        row for row in document["rows"]
        if row["experiment"] != "bandwidth"
        or (row["parameters"]["mix"], row["parameters"]["memory_node"]) != missing
    ]  # fmt: skip
    drawn = figures(document)
    for title in (COPY, MIGRATE, SIDE_BY_SIDE):
        found = drawn[title]
        assert level(chart_of(found, "DRAM 0 to HBM 2" + "; cold" * (title == COPY))
                     if title != MIGRATE else found.charts[3][1]) is None  # fmt: skip
        assert "No bound is known of DRAM 0 to HBM 2" in found.caption


def test_memory_that_another_was_measured_for_has_its_line() -> None:
    document = document_of("copy")
    for row in document["rows"]:
        p = row["parameters"]
        if row["experiment"] == "bandwidth" and p["memory_node"] == 0:
            p["memory_node"] = 1
            row["stands_for"] = ["cpu_node=0 memory_node=0"]
    told = [heading for heading, _ in figures(document)[COPY].charts]
    assert any("read of DRAM 1, its like by CPUs" in heading for heading in told)


def test_a_line_far_beyond_is_told_and_not_drawn() -> None:
    document = document_of("copy")
    for row in document["rows"]:
        if row["experiment"] == "copy":
            for name in ("median", "low", "high", "min", "max"):
                row[name] /= 100
            row["samples"] = [sample / 100 for sample in row["samples"]]
    found = figures(document)[COPY]
    assert level(found.charts[0][1]) is None and "; far beyond: 155 GB/s" in found.charts[0][0]


def test_pages_moved_are_drawn_over_how_much_was_moved() -> None:
    document = document_of("copy", "migrate")
    moved = [row for row in document["rows"] if row["experiment"] == "migrate"]
    for row in moved:
        row["parameters"]["bytes"] = 256 << 20
    document["rows"] += [
        row | {"parameters": row["parameters"] | {"bytes": 1 << 30}} for row in moved
    ]
    across, *_ = figures(document)[SIDE_BY_SIDE].charts
    sizes = [row["x"] for row in data(across[1]) if row["line"].endswith("base pages × 1")]
    assert sorted(sizes) == [256 << 20, 1 << 30], "by the calls that move most"


def test_published_and_emulated_devices_are_marked() -> None:
    document = document_of("copy", "migrate")
    published = {"from": 0, "to": 0, "bytes": 1 << 20, "threads": 1, "state": "unstated"}
    document["rows"].append({
        "experiment": "copy", "unit": "B/s", "median": 3e10, "source": "a thesis",
        "parameters": {"engine": "dsa", "cpu_node": 0} | published,
    })  # fmt: skip
    lines = {row["line"] for _, chart in figures(document)[SIDE_BY_SIDE].charts
             for row in data(chart)}  # fmt: skip
    assert "DSA, published" in lines and "DSA" not in lines
    document = document_of("copy", "dsa")
    for row in document["rows"]:
        if row["experiment"] == "dsa":
            row["basis"] = "emulated"
    lines = {row["line"] for _, chart in figures(document)[SIDE_BY_SIDE].charts
             for row in data(chart)}  # fmt: skip
    assert "DSA, emulated" in lines and "DSA" not in lines


def test_cores_alone_are_not_held_against_themselves() -> None:
    document = document_of("copy")
    assert SIDE_BY_SIDE not in figures(document)


def test_older_rows_say_no_costs() -> None:
    document = document_of("copy", "dsa")
    for row in document["rows"]:
        row["details"].pop("cpu_s_per_gb", None)
    assert COSTS not in figures(document)


LATENCY = next(documents.latency(documents.Maker(1)))
SAMPLES = st.lists(st.floats(1, 1e12), min_size=2, max_size=20)


@given(samples=SAMPLES)
def test_the_bar_is_the_interval_of_the_median(samples: list[float]) -> None:
    document = documents.machine() | {"conditions": {}}
    found = headrace.summarize(samples)
    assert found is not None
    one = LATENCY | {
        "samples": samples, "median": found.median, "low": found.interval.low,
        "high": found.interval.high, "min": min(samples), "max": max(samples),
    }  # fmt: skip
    (row,) = headrace.Profile.from_json(json.dumps(document | {"rows": [one]})).rows
    drawn = rows.point(row, 1)
    assert (drawn["low"], drawn["high"]) == (found.interval.low, found.interval.high)
    assert drawn["low"] <= drawn["y"] <= drawn["high"]


def test_captions_say_what_the_bars_are() -> None:
    assert rows.bars_are(["range of 3", "range of 5"]) == " Thin bars are the range of the samples."
    assert rows.bars_are(["95 %", "range of 3", "95 % of 6 launches", None]) == (
        " Thin bars are the 95 % interval of the median or the range of the samples."
    )
    assert rows.bars_are([None]) == ""


def test_every_number_with_samples_has_its_bar(whole: dict[str, Figure]) -> None:
    for title, figure in whole.items():
        if title == "The machine" or not figure.charts:
            continue
        for heading, chart in figure.charts:
            without = any(part in heading for part in OF_DETAILS.get(title, ()))
            if not without and not any(part in heading for part in MATRICES):
                points = data(chart)
                assert has_spread(chart), (title, heading)
                assert all(row["low"] < row["high"] for row in points), (title, heading)
        told = "Thin bars are the range of the samples." in figure.caption
        assert told == any(has_spread(chart) for _, chart in figure.charts), title


def test_one_mapping_has_no_bar() -> None:
    document = document_of("stream")
    for row in document["rows"]:
        row |= dict.fromkeys(("low", "high", "min", "max"), row["median"])
        row["samples"] = [row["median"]]
    (found,) = [f for title, f in figures(document).items() if title == "STREAM's kernels"]
    assert "Thin bars" not in found.caption and not has_spread(found.charts[0][1])


def test_noisy_rows_keep_their_bar_and_stay_noisy() -> None:
    document = document_of("copy")
    for row in document["rows"]:
        row["flags"] = ["noisy"]
    points = data(figures(document)[COPY].charts[0][1])
    assert all(row["noisy"] and row["low"] < row["high"] for row in points)
