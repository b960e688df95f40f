# SPDX-License-Identifier: Apache-2.0
"""headrace export: profiles in the formats of other tools."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import profile_documents as documents
import pytest
from conftest import Golden, Run
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace._cli import tables
from headrace._profile import exports, texts


def test_weights_are_small_and_meet_the_ratio() -> None:
    assert exports.weights({0: 100e9}) == {0: 1}
    assert exports.weights({0: 300e9, 1: 100e9}) == {0: 3, 1: 1}
    assert exports.weights({0: 250e9, 1: 100e9, 2: 104e9}) == {0: 5, 1: 2, 2: 2}
    assert exports.weights({0: 1e15, 1: 1.0}) == {0: 255, 1: 1}, "the kernel takes no more"


@given(st.dictionaries(st.integers(0, 63), st.floats(1e9, 20e9), min_size=1))
def test_any_weights_are_what_the_kernel_takes(bandwidths: dict[int, float]) -> None:
    found = exports.weights(bandwidths)
    assert found.keys() == bandwidths.keys()
    assert all(1 <= weight <= 255 for weight in found.values())
    least = min(bandwidths, key=lambda n: bandwidths[n])
    for node, weight in found.items():
        wanted = bandwidths[node] / bandwidths[least]
        assert weight / found[least] == pytest.approx(wanted, rel=0.06)


def test_what_is_read_in_random_order_is_no_bandwidth_of_a_pair() -> None:
    document = documents.profile()
    for row in document["rows"]:
        if row["experiment"] == "bandwidth":
            row["parameters"] |= {"pattern": "random", "block": 64}
    profile = headrace.Profile.from_json(json.dumps(document))
    with pytest.raises(headrace.AbsentError, match="no read bandwidths"):
        exports.best_read_bandwidth(profile)
    assert "Memory Bandwidths between nodes" not in texts.as_mlc(profile)


def test_loaded_latencies_of_other_numbers_of_threads_are_other_tables() -> None:
    document = documents.profile()
    loaded = [row for row in document["rows"] if row["experiment"] == "loaded"]
    document["rows"] = [
        row | {"parameters": row["parameters"] | {"threads": threads}}
        for threads in (16, 4) for row in loaded if row["parameters"]["mix"] == "read"
    ] + loaded  # fmt: skip
    told = texts.as_mlc(headrace.Profile.from_json(json.dumps(document)))
    parts = [part.splitlines() for part in told.split("Measuring Loaded Latencies, ")[1:]]
    of_pair = [lines for lines in parts if lines[0].startswith("CPUs of node 0, memory of node 2")]
    assert [lines[0].partition(" 2")[2] for lines in of_pair if "Read-only" in lines[1]] == [
        "", ", traffic of 4 threads", ", traffic of 16 threads"
    ]  # fmt: skip
    assert all(sum(line.startswith(" 0") for line in lines) <= len(documents.DELAYS)
               for lines in parts)  # fmt: skip


def test_a_divided_copy_is_no_cell_of_a_copy_matrix() -> None:
    """As the tool that prints it has no such copies: all threads make parts of one."""
    document = documents.profile()
    told = texts.as_nvbandwidth(headrace.Profile.from_json(json.dumps(document)))
    copies = [row for row in document["rows"] if row["experiment"] == "copy"]
    document["rows"] += [
        row | {"parameters": row["parameters"] | {"work": "divided"}, "median": 9e15}
        for row in copies
    ]
    assert texts.as_nvbandwidth(headrace.Profile.from_json(json.dumps(document))) == told
    document["rows"] = [row for row in document["rows"] if "work" in row["parameters"]]
    with pytest.raises(headrace.AbsentError, match="no cold copies"):
        texts.as_nvbandwidth(headrace.Profile.from_json(json.dumps(document)))


def rated(profile: dict[str, Any]) -> dict[str, Any]:
    """With what firmware says of node 2, and what was measured there."""
    sides = [("hmat (sysfs)", False, 100, 7.0e11), ("headrace measure", True, 118, 5.4e11)]
    profile["nodes"][2]["access"] = [
        {
            "initiator": 0, "source": source, "measured": measured, "read_latency_ns": latency,
            "write_latency_ns": None, "read_bandwidth_bytes_per_second": bandwidth,
            "write_bandwidth_bytes_per_second": None,
        }
        for source, measured, latency, bandwidth in sides
    ]  # fmt: skip
    return profile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.json").write_text(json.dumps(rated(documents.profile())))
    (tmp_path / "machine.json").write_text(json.dumps(documents.machine()))
    return tmp_path


@pytest.mark.parametrize("form", ["mlc", "nvbandwidth", "weights", "memkind", "audit"])
def test_formats(
    run: Run, golden: Golden, folder: Path, form: str
) -> None:
    result = run("export", "p.json", "--as", form)
    assert (result.returncode, result.stderr) == (0, "")
    golden(f"export/{form}.txt", result.stdout)


def test_the_peak_is_of_a_whole_machine_or_socket() -> None:
    """The bandwidth of one of several nodes is not called a peak."""
    document = documents.profile()
    assert "Peak" not in texts.as_mlc(headrace.Profile.from_json(json.dumps(document)))
    first = next(row for row in document["rows"] if row["experiment"] == "bandwidth")
    for part, threads, factor in (("socket", 2, 2), ("machine", 4, 4)):
        row = json.loads(json.dumps(first))
        row["parameters"] |= {
            "cpu_node": "0-1", "memory_node": "0-1", "mix": "read", "threads": threads,
            "on": part, "placed": "near",
        }  # fmt: skip
        for name in ("median", "min", "max", "low", "high"):
            row[name] = first["median"] * factor
        row["samples"] = [row["median"]] * 3
        row["details"] = {name: row["median"] for name in ("read_write", "bus")}
        far = json.loads(json.dumps(row).replace(str(row["median"]), "1e15"))
        far["parameters"]["placed"] = "far"
        document["rows"] += [row, far]
        told = texts.as_mlc(headrace.Profile.from_json(json.dumps(document)))
        section = told.partition("Measuring Peak Injection")[2].partition("\n\n")[0]
        assert f"all cores of the {part}, memory of nodes 0-1" in section
        assert f"ALL Reads        :\t{first['median'] * factor / 1e6:.1f}" in section


def test_one_sample_has_no_bounds(run: Run, tmp_path: Path) -> None:
    document = documents.profile()
    document["rows"] = [row for row in document["rows"] if row["experiment"] == "latency"][:2]
    first = document["rows"][0]
    first["samples"] = [first["median"]]
    first["launches"] = []
    for name in ("min", "max", "low", "high"):
        first[name] = first["median"]
    del first["interval"]
    (tmp_path / "p.json").write_text(json.dumps(document))
    table = run("export", "p.json", "--as", "table").stdout
    assert "  n=1  " in table and "range of 1" not in table
    assert table.count(" to ") == 1, "the other row has bounds"


def test_each_bound_says_what_it_is(run: Run, tmp_path: Path) -> None:
    """Fewer than six samples, or launches, have a range; nothing calls it an interval of 95 %."""
    document = documents.profile()
    document["rows"] = [row for row in document["rows"] if row["experiment"] == "stream"][:4]
    for row, samples, launches in (
        (document["rows"][1], 7, []), (document["rows"][2], 6, [2, 2, 2]),
        (document["rows"][3], 6, [1] * 6),
    ):  # fmt: skip
        row["samples"], row["launches"] = [1e9 + n for n in range(samples)], launches
        del row["interval"]
    (tmp_path / "p.json").write_text(json.dumps(document))
    words = ["range of 5", "95 %", "range of 3 launches", "95 % of 6 launches"]
    table = run("export", "p.json", "--as", "table").stdout.splitlines()
    assert "  interval  " in table[1] and "95 % interval" not in table[1]
    for line, row, word in zip(table[2:], document["rows"], words, strict=False):
        assert f"GB/s, {word}  " in line and line.split()[-1] == str(len(row["samples"]))
    lines = list(csv.DictReader(io.StringIO(run("export", "p.json", "--as", "csv").stdout)))
    assert [line["interval"] for line in lines] == words
    assert [line["launches"] for line in lines] == ["1", "1", "3", "6"]
    again = headrace.Profile.load(tmp_path / "p.json")
    assert [row["interval"] for row in json.loads(again.to_json())["rows"]] == words


@pytest.mark.parametrize(
    ("emulated", "told"),
    [(all, "emulated: figures are of a device made of software"),
     (any, "emulated: some of the figures are of"), (None, ", measured; of 423 rows 4 noisy\n")],
)  # fmt: skip
def test_what_is_emulated_leaves_with_its_mark(emulated: Any, told: str) -> None:
    document = documents.profile()
    rows = [row for row in document["rows"] if row["experiment"] in ("gpu", "copy")]
    for row in rows if emulated is all else rows[:1] if emulated is any else []:
        row["basis"] = "emulated"
    profile = headrace.Profile.from_json(json.dumps(document))
    assert told in texts.as_nvbandwidth(profile).partition("\n\n")[0] + "\n"


def test_csv_has_every_row_and_number(run: Run, folder: Path) -> None:
    result = run("export", "p.json", "--as", "csv", "--out", "p.csv")
    assert (result.returncode, result.stdout) == (0, "")
    lines = list(csv.DictReader(io.StringIO((folder / "p.csv").read_text())))
    profile = headrace.Profile.load(folder / "p.json")
    assert len(lines) == len(profile.rows)
    others = {line["mix"]: line["mix_elsewhere"] for line in lines}
    assert (others["write"], others["1:1"], others[""]) == ("W5", "W2", "")
    for line, row in zip(lines, profile.rows, strict=True):
        assert line["experiment"] == row.experiment and line["reason"] == row.reason
        assert line["source"] == row.source
        assert line["median"] == ("" if row.median is None else repr(row.median))
        assert all(line[name] == str(value) for name, value in row.parameters.items())
        assert all(float(line[name]) == value for name, value in row.details.items())


def test_published_numbers_get_no_digits(run: Run) -> None:
    result = run("export", "h100", "--as", "nvbandwidth")
    assert (result.returncode, result.stderr) == (0, "")
    assert re.search(r"^ 0 +50$", result.stdout, re.MULTILINE) and "50.0" not in result.stdout
    assert "Buffers of a size that was not published." in result.stdout
    assert "4 about, by their source" in result.stdout.splitlines()[0]


def test_loaded_latencies_have_their_bandwidth_and_curves_without_a_bend_are_counted() -> None:
    document = documents.profile()
    document["rows"] = [row for row in document["rows"] if row["experiment"] == "loaded"]
    for row in document["rows"]:
        row["flags"] = []
    quiet = headrace.Profile.from_json(json.dumps(document))
    text = tables.profile_text(quiet)
    assert re.search(r" bandwidth +median +interval", text)
    rate = headrace.format_rate(quiet.rows[0].details["bandwidth"])
    assert rate in text.splitlines()[2]
    assert "knees of loaded latency" in text and "no knee in" not in text
    curves = len(headrace.knees(quiet))
    for flag in ("noisy", "few"):
        for row in document["rows"]:
            row["flags"] = [flag]
        text = tables.profile_text(headrace.Profile.from_json(json.dumps(document)))
        assert "knees of" not in text and f"no knee in {curves} curves of loaded latency" in text
        assert "fewer than three mappings per point" in text


def test_the_summary_says_what_the_host_and_the_budget_did() -> None:
    document = documents.profile()
    del document["rows"][10:]
    for conditions, first, told in (
        ({"looks_disturbed": "0 of 6"}, "", "host quiet at all 6 checks"),
        ({"looks_disturbed": "2 of 6"}, "", "host busy at 2 of 6 checks"),
        ({"looks_disturbed": "6 of 6"}, "WARNING: host busy during the whole run; results unr", ""),
        ({"over_budget": "16.2 s instead of 10.0 s"}, "", "longer than the budget: 16.2 s inst"),
    ):
        text = tables.profile_text(
            headrace.Profile.from_json(json.dumps(document | {"conditions": conditions}))
        )
        assert text.startswith(first) and told in text
        assert ("WARNING" in text) == bool(first)


@pytest.mark.parametrize("preset", ["cxl-a1000", "xeon-max"])
def test_published_machines_are_exported_too(run: Run, preset: str) -> None:
    form = {"cxl-a1000": "mlc", "xeon-max": "nvbandwidth"}[preset]
    for each in (form, "csv", "table", "hwloc"):
        result = run("export", preset, "--as", each)
        assert (result.returncode, result.stderr) == (0, "") and result.stdout


def test_hwloc_reads_what_was_measured(run: Run, folder: Path) -> None:
    (folder / "p.xml").write_text(run("export", "p.json", "--as", "hwloc").stdout)
    machine = headrace.Machine.discover(hwloc_xml=folder / "p.xml", storage=[])
    kinds = {node.id: node.kind for node in machine.nodes}
    assert kinds == {0: "dram", 1: "dram", 2: "hbm", 3: "cxl"}
    (access,) = machine.nodes[2].access
    assert access.initiator == 0
    assert access.read_latency == pytest.approx(118e-9), "measured, not the 100 ns of firmware"
    assert access.read_bandwidth == pytest.approx(5.4e11, rel=1e-6), "whole MiB/s"


def test_the_table_of_a_disk_says_by_which_cpus_it_was_read() -> None:
    document = documents.profile(1)
    rows = [row for row in document["rows"] if row["experiment"] == "storage" and row["samples"]]
    document["rows"] = [row | {"cpus": "0-3,8"} for row in rows]
    head, *_ = tables.profile_text(headrace.Profile.fromdict(document)).splitlines()
    assert head.startswith("storage ") and head.endswith("  cpus 0-3,8"), "once, of all rows"
    document["rows"][0]["cpus"] = "1"
    _, heading, first, second, *_ = tables.profile_text(
        headrace.Profile.fromdict(document)
    ).splitlines()
    assert "cpus" in heading.split()
    assert "1" in first.split() and "0-3,8" in second.split(), "else each has its own"
