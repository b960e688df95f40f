# SPDX-License-Identifier: Apache-2.0
"""The report of documents of `bench kvcache`, `bench layer`, `bench um`, models and `advise um`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from headrace_bench.runner import row_of

import headrace
from headrace._cli import report as command
from headrace._profile.nested import details_of
from headrace._report import contents, report

Run = Callable[..., "CompletedProcess[str]"]
#: A model of each, to draw; their pages name what is drawn.
DOCUMENTS = {
    "prefill": (["model", "prefill", "--requests", "100"], "What a layer waits for cached blocks"),
    "kv": (["model", "kv", "--workloads", "C"], "Operations per second"),
    "layer": (["bench", "layer", "--bandwidth", "306GB/s,550GB/s"],
              "Milliseconds of a layer while it decodes"),
    "um": (["model", "um", "--machine", "gh200"], "Unified Memory on"),
    "advice": (["advise", "um", "--size", "8GiB", "--machine", "gh200"],
               "Recipes for an array that a GPU reads"),
}  # fmt: skip


def test_what_commands_wrote_is_drawn(run: Run, tmp_path: Path) -> None:
    made = [[*arguments, "--out", f"{name}.json"] for name, (arguments, _) in DOCUMENTS.items()]
    drawn = [["report", f"{name}.json", "--html", f"{name}.html"] for name in DOCUMENTS]
    for arguments in [*made, *drawn]:
        result = run(*arguments)
        assert (result.returncode, result.stderr) == (0, ""), result
    for name, (_, title) in DOCUMENTS.items():
        page = (tmp_path / f"{name}.html").read_text()
        assert title in page and "const figures = {}" not in page, name
        assert "Not measured" not in page and "Rests on model" in page, name


def kvcache() -> dict[str, Any]:
    def row(store: str, policy: str, stall: float | None) -> headrace.Row:
        found = {
            "with_cached": 3, "hit_rate": {"dram": 0.1, "ssd": 0.2}, "stall_p99_ms": stall,
            "hidden_share": stall and 0.5, "waited_of_alone": stall and 1.25,
            "roofline_share": stall and 0.4,
        }  # fmt: skip
        return row_of(
            "kvcache", {"store": store, "policy": policy}, "ms", [stall] if stall else [],
            details=details_of(found), flags=["noisy"] if store == "own" else [],
        )  # fmt: skip

    rows = [
        row("own", "layerwise", 1.5), row("peer", "layerwise", 3.0), row("peer", "demand", None),
        row_of("kvcache_load", {"store": "own", "tier": "ssd"}, "B/s", [1e9, 2e9, 3e9]),
        row_of("kvcache_interference", {"of": "layer", "beside": "loads"}, "share", [0.8]),
    ]  # fmt: skip
    return {
        "schema_version": 1, "kind": "bench kvcache", "model": "tiny", "block_tokens": 2,
        "block_bytes": 8192, "rates": {"dram": 1e9}, "hides": {"dram": 12.0, "ssd": 99.0},
        "scale": {"requests": 20, "of_requests": 12031, "work": 0.005},
        "rows": [each.asdict() for each in rows],
    }  # fmt: skip


def test_the_measured_stand_beside_each_other() -> None:
    stalls, hidden, loads = contents.content_of(kvcache()).figures
    points = stalls.charts[0][1].to_dict(validate=False)["data"]["values"]
    assert [(each["line"], each["x"]) for each in points] == [("own", 1.5e6), ("peer", 3e6)]
    assert "1 of 3 rows are noisy" in stalls.caption and "20 of 12031" in stalls.caption
    assert len(stalls.tables[0].rows) == 3 and len(loads.charts) == 2
    bars = hidden.charts[0][1].to_dict(validate=False)["data"]["values"]
    assert [each["y"] for each in bars] == [-25, -25]
    assert "Thin bars are the range of the samples." in loads.caption
    older = kvcache()
    for row in older["rows"]:
        row["details"].pop("waited_of_alone", None)
    assert "No policy loads first" in contents.content_of(older).figures[1].missing


def test_an_interrupted_one_is_enough(tmp_path: Path) -> None:
    document = kvcache() | {"rows": [], "rates": {}, "hides": {}}
    report.build(document, tmp_path / "r.html")
    assert "Nothing was loaded." in (tmp_path / "r.html").read_text()


def test_a_layer_and_what_is_left_of_it() -> None:
    row = row_of(
        "layer", {"on": "hbm"}, "ms", [1.5, 1.7], details={"bytes_per_second": 3e11}
    ).asdict()
    engines = [
        {"engine": "cpu0", "bytes": 1_000_000, "target_ms": 2.0, "reason": ""},
        {"engine": "dsa0", "bytes": None, "target_ms": 2.0, "reason": "see elsewhere"},
        {"engine": "vda", "bytes": 5, "target_ms": 2.0, "reason": "", "source": "into node 0"},
    ]
    document = {
        "schema_version": 1, "kind": "bench layer", "model": "tiny", "batch": 1, "context": 2,
        "dtype": "bf16", "kv_dtype": "bf16", "weight_bytes": 1, "kv_bytes": 2,
        "claim_needs_bytes_per_second": 5e11, "rows": [row], "engines": engines,
    }  # fmt: skip
    layer, left = contents.content_of(document).figures
    (bar,) = layer.charts[0][1].to_dict(validate=False)["data"]["values"]
    assert (bar["y"], bar["low"], bar["high"]) == (1.6, 1.5, pytest.approx(1.7))
    assert left.charts and left.items == ["dsa0: see elsewhere", "vda: into node 0"]
    layer, left = contents.content_of(document | {"engines": engines[1:2]}).figures
    assert left.missing == "dsa0: see elsewhere"
    (layer,) = contents.content_of(document | {"rows": [], "engines": []}).figures
    assert "Interrupted" in layer.missing


def test_what_is_emulated_says_so_in_the_picture() -> None:
    figure = {"published": None, "measured": 2.0}
    document = {
        "schema_version": 1, "kind": "bench um", "basis": "emulated", "emulated": True, "rows": [],
        "published": [],
        "machines": [{"name": "here", "words": "a GPU"}],
        "cases": [{"machine": "here", "case": "managed", "size": 1 << 20, "reason": None,
                   "source": None, "first": figure, "steady": figure}],
    }  # fmt: skip
    chart = contents.content_of(document).figures[0].charts[0][1].to_dict(validate=False)
    assert [each["line"] for each in chart["data"]["values"]] == ["emulated"]
    color = chart["encoding"]["color"]
    assert color["legend"]["values"] == ["emulated"]
    # Not the hue of what was published in the next chart.
    hues = dict(zip(color["scale"]["domain"], color["scale"]["range"], strict=True))
    assert hues["emulated"] != hues["published"]
    assert "logarithmic" in chart["encoding"]["x"]["title"]


@pytest.mark.parametrize("kind", ["doctor", "advise_cost"])
def test_what_has_no_figures_is_refused_in_a_line(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "x.json"
    machine = {"name": "vm", "nodes": []}
    file.write_text(json.dumps({"schema_version": 1, "kind": kind, "rows": [], "machine": machine}))
    with pytest.raises(headrace.InvalidError, match=f"report draws nothing of '{kind}'; it draws"):
        command.command(file=file, machine=None, html=tmp_path / "r.html", png=None)
    assert not (tmp_path / "r.html").exists()
