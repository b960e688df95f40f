# SPDX-License-Identifier: Apache-2.0
"""headrace predict as users run it: tables, documents, sweeps, what-if, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Golden, Run

import headrace
from headrace_bench.predict import command, kvcache

Row = dict[str, Any]

EVERY = {
    "stream": ["stream", "--machine", "xeon-max"],
    "stream_mixed": ["stream", "--machine", "xeon-max", "--a", "hbm", "--c", "hbm"],
    "histogram": ["histogram", "--machine", "xeon-max"],
    "copy": ["copy", "--machine", "xeon-max"],
    "kv": ["kv", "--distribution", "latest", "--cold", "980GB"],
    "arena": [
        "arena", "--machine", "xeon-max-9462", "--objects", "bfs", "--nodes", "0", "--limit",
        "12.5%",
    ],
    "bandwidth": ["bandwidth", "--machine", "xeon-max"],
    "spark": ["spark", "--machine", "cxl-a1000"],
    "um": ["um", "--machine", "ac922"],
    "kvcache": ["kvcache", "--machine", "h200", "--add", "ssd:1"],
    "kvcache_sweep": ["kvcache", "--sweep", "cached=1024,131072"],
    "kvcache_trace": ["kvcache", "--trace", "4", "--memory", "2GiB", "--ssd", "64GiB",
                      "--add", "ssd:4", "--model", "llama-3.2-1b"],
    "query": ["query", "--working-set", "1GiB", "--passes", "2"],
    "sweep": ["stream", "--machine", "xeon-max", "--sweep", "threads=8,96"],
}  # fmt: skip


def predicted(run: Run, *arguments: str) -> Row:
    result = run("predict", *arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    found: Row = json.loads(result.stdout)
    return found


def values(document: Row, column: str) -> dict[str, float]:
    """Values by placement."""
    return {row["placement"]: row["values"][column]["value"] for row in document["rows"]}


@pytest.mark.parametrize("name", EVERY)
def test_table(run: Run, golden: Golden, name: str) -> None:
    result = run("predict", *EVERY[name])
    assert (result.returncode, result.stderr) == (0, "")
    golden(f"predict/{name}.txt", result.stdout)


@pytest.mark.parametrize(
    "name", ["stream", "kv", "copy", "kvcache", "kvcache_sweep", "kvcache_trace"]
)
def test_table_fits_eighty_columns(run: Run, name: str) -> None:
    table = run("predict", *EVERY[name]).stdout.partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80


def test_document_is_the_same_bytes_for_the_same_settings(run: Run) -> None:
    first, second = (run("predict", *EVERY["stream"], "--json").stdout for _ in range(2))
    assert first == second
    document = json.loads(first)
    assert document["kind"] == "predict stream"
    assert document["basis"] == "modelled"
    bases = {"measured", "rated", "fitted", "assumed"}
    assert {each["basis"] for each in document["constants"]} <= bases
    for each in document["constants"]:
        assert each["source"]
        assert each["fitted_to"] or each["basis"] != "fitted"


def test_document(run: Run, golden: Golden) -> None:
    """All fields except the constants, which are the machine's."""
    document = predicted(run, *EVERY["kv"])
    constants = document.pop("constants")
    assert constants
    golden("predict/kv.json", json.dumps(document, indent=2) + "\n")


def test_rows_are_sorted_and_have_intervals(run: Run) -> None:
    document = predicted(run, *EVERY["stream"])
    times = [row["values"]["time"] for row in document["rows"]]
    assert [t["value"] for t in times] == sorted(t["value"] for t in times)
    for row in document["rows"]:
        assert row["binds"]
        for each in row["values"].values():
            assert 0 < each["low"] <= each["value"] <= each["high"]
    assert sum(row["given"] for row in document["rows"]) == 1


def test_a_mixed_placement_is_between_its_memories(run: Run) -> None:
    document = predicted(run, *EVERY["stream_mixed"])
    triad = values(document, "triad")
    given = next(row["placement"] for row in document["rows"] if row["given"])
    assert triad["DDR"] < triad[given]
    copy = values(document, "copy")
    assert copy[given] == pytest.approx(copy["HBM"], rel=1e-6)  # copy does not touch b


def test_bins_in_hbm_pay_and_data_there_too_do_not(run: Run) -> None:
    times = values(predicted(run, *EVERY["histogram"]), "time")
    assert times["all DDR"] > 1.5 * times["data DDR, bins HBM"]
    assert times["all HBM"] > times["data DDR, bins HBM"]


def test_a_query_in_hbm_is_the_fastest_and_waits_least(run: Run) -> None:
    document = predicted(run, *EVERY["query"])
    times = values(document, "time")
    assert times["all in HBM"] < times["direct from DDR"]
    assert times["all in HBM"] <= times["HBM as a cache"] * 1.01
    assert values(document, "waited")["all in HBM"] == 0
    assert predicted(run, *EVERY["query"]) == document  # the same seed


def test_a_cache_that_is_too_small_loses_its_gain(run: Run) -> None:
    sizes = ["32GiB", "192GiB", "512GiB"]
    document = predicted(
        run, "stream", "--machine", "xeon-max-cache", "--sweep", "size=" + ",".join(sizes)
    )
    rates = [row["values"]["triad"]["value"] for row in document["rows"]]
    assert [row["point"]["size"] for row in document["rows"]] == sizes
    assert rates[0] > 1.5 * rates[1] > 1.5 * rates[2]


def test_what_if_changes_what_it_names(run: Run) -> None:
    plain = values(predicted(run, *EVERY["stream"]), "triad")
    faster = predicted(run, *EVERY["stream"], "--set", "ceiling:DDR.bandwidth=120GB/s")
    assert values(faster, "triad")["DDR"] > 1.5 * plain["DDR"]
    assert "ceiling:DDR.bandwidth=120GB/s" in faster["machine"]
    small = predicted(run, *EVERY["stream"], "--size", "64GiB",
                      *(f"--set=node:{n}.capacity=1GiB" for n in range(8, 16)))  # fmt: skip
    assert "HBM, then DDR" in values(small, "time")


def test_added_devices_copy(run: Run) -> None:
    arguments = ["copy", "--machine", "cxl-a1000", "--to", "cxl", "--by", "dsa"]
    assert "no DSA" not in run("predict", *arguments, "--add", "dsa:2").stderr
    rates = values(predicted(run, *arguments, "--add", "dsa:2"), "rate")
    assert list(rates) == ["all 2 DSAs", "1 DSA"] or rates["1 DSA"] > 0


def test_blocks_of_requests_come_from_the_tiers_that_keep_them(run: Run) -> None:
    trace = ["kvcache", "--trace", "12", "--model", "llama-3.2-1b"]
    memory = predicted(run, *trace, "--memory", "64GiB")
    disk = predicted(run, *trace, "--memory", "64MiB", "--ssd", "64GiB", "--add", "ssd:1")
    for document in (memory, disk):
        times = values(document, "time")
        assert times["stored, layerwise"] < times["stored, load-first"]
        assert times["stored, layerwise"] < times["computed again"]
    assert values(disk, "time")["stored, layerwise"] > values(memory, "time")["stored, layerwise"]
    assert "in dram." in next(row["note"] for row in memory["rows"] if row.get("note"))
    assert "in ssd." in next(row["note"] for row in disk["rows"] if row.get("note"))


def test_rows_of_a_stopped_trace_are_means_of_the_same_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulate, served = kvcache._core.simulate_kvcache, iter((3, 1, 2, 0))

    def stopped(machine: str, options: str, **calls: Any) -> str:
        found = json.loads(simulate(machine, options, **calls))
        found["requests"] = found["requests"][: next(served)]
        return json.dumps(found)

    monkeypatch.setattr(kvcache._core, "simulate_kvcache", stopped)
    target = command.machine_of(kvcache.WORKLOAD, None, None, (), ())
    given = {"trace": "3", "memory": "8GiB", "model": "llama-3.2-1b"}
    settings = {axis.name: axis.value(given.get(axis.name, axis.default))
                for axis in kvcache.WORKLOAD.axes}  # fmt: skip
    again, *rows = kvcache.predict(target, settings | {"seed": 0})
    # The store is empty when the first request comes.
    times = {round(row.values["time"].value, 7) for row in (again, *rows)}
    assert len(times) == 1 and again.note == "Stopped: means of 1 of 3 requests."
    again, first, second = kvcache.predict(target, settings | {"seed": 0})
    assert again.note == "Stopped: means of 2 of 3 requests."
    assert first.values["of recompute"].value < 1 and second.values["time"] is None


def test_an_ssd_without_a_rate_is_left_out(run: Run, tmp_path: Path) -> None:
    machine = json.loads(headrace.Machine.load("h200").to_json())
    ssd = {"name": "ssd", "reason": "a test"}
    machine["nodes"].append({"id": 1000, "kind": "storage", "cpus": [], **ssd})
    machine["engines"].append({"id": 2, "kind": "ssd", "home": 1000, **ssd})
    (tmp_path / "m.json").write_text(json.dumps(machine))
    document = predicted(run, "kvcache", "--machine", str(tmp_path / "m.json"))
    assert list(values(document, "time")) == ["DDR, layerwise", "DDR, load-first", "computed again"]


def test_intervals_span_the_rate_of_computing(run: Run) -> None:
    rows = predicted(run, "kvcache", "--cached", "1024")["rows"]
    for row in rows:  # bound by computing
        time, share = row["values"]["time"], row["values"]["of recompute"]
        assert time["low"] < 0.75 * time["value"] < 1.25 * time["value"] < time["high"]
        assert share["high"] < 1.02 * share["value"]


def test_interval_holds_the_times_at_the_ends_of_the_computing_rate(run: Run) -> None:
    arguments = ["kvcache", "--cached", "4096", "--tflops"]
    given = predicted(run, *arguments, "400")
    ends = [values(predicted(run, *arguments, f"{400 / part}"), "time") for part in (0.71, 1.29)]
    for row in given["rows"]:
        time = row["values"]["time"]
        assert all(time["low"] <= end[row["placement"]] <= time["high"] for end in ends)


def test_points_before_one_that_fails_are_kept(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "kept.json"
    result = run("predict", "stream", "--sweep", "threads=8,97", "--out", str(out))
    assert result.returncode != 0
    assert "97 threads are more than the 96 CPUs" in result.stderr
    assert "copy GB/s" in result.stdout
    assert {row["point"]["threads"] for row in json.loads(out.read_text())["rows"]} == {"8"}


REFUSED = {
    "axis": (["stream", "--sweep", "colour=1"], "no axis of stream 'colour'; there are a, b, c"),
    "values": (["stream", "--sweep", "threads="], "sweeps nothing; write threads=V1,V2"),
    "points": (
        ["stream", "--sweep", "threads=" + ",".join(map(str, range(1, 60))),
         "--sweep", "size=" + ",".join(f"{n}GiB" for n in range(1, 40))],
        "are more than 1000",
    ),
    "machine": (["stream", "--machine", "moon"], "moon"),
    "kind": (["stream", "--a", "cxl"], "has no CXL; it has DDR, HBM"),
    "node": (["stream", "--a", "99"], "no node 99 on xeon-max"),
    "size": (["stream", "--size", "1TiB"], "larger than all memory of xeon-max"),
    "no dsa": (
        ["copy", "--machine", "cxl-a1000", "--to", "cxl", "--by", "dsa"],
        "cxl-a1000 has no DSA; add one: --add dsa:1",
    ),
    "no gpu": (["kvcache", "--machine", "xeon-max"], "xeon-max has no GPU to load to"),
    "one memory": (["kv", "--machine", "one-node"], "one kind of memory"),
    "one memory for objects": (["arena", "--machine", "grace", "--objects", "bfs"], "one kind of"),
    "no cores": (["stream", "--machine", "h200"], "the cores of h200 are not known"),
    "no ssd rate": (["copy", "--machine", "one-node", "--source", "1000"], "headrace measure"),
    "number": (["stream", "--threads", "0"], "no number from 1"),
    "threads": (["stream", "--threads", "97"], "97 threads are more than the 96 CPUs"),
    "threads of a node": (["bandwidth", "--threads", "13"], "13 threads are more than the 12 CPUs"),
    "threads of a copy": (["copy", "--threads", "97"], "97 threads are more than the 96 CPUs"),
    "threads of kv": (["kv", "--threads", "100000"], "threads are more than the"),
    "record": (["kv", "--value", "1TB", "--size", "1GB"], "a record is larger than all data"),
    "kinds": (["spark", "--fast", "dram", "--slow", "dram"], "give two kinds"),
    "swept twice": (["stream", "--sweep", "threads=1", "--sweep", "threads=2"], "swept twice"),
    "no room on the card": (
        ["um", "--machine", "ac922", "--set", "node:2000.capacity=100MiB"], "no room for managed"
    ),
    "no capacity": (["stream", "--set", "node:0.capacity=0"], "a capacity above 0"),
    "no gpu for um": (["um", "--machine", "grace"], "grace has no GPU; take --machine ac922"),
    "set": (["stream", "--set", "capacity=3"], "changes nothing; write node:8.capacity=32GiB"),
    "set node": (["stream", "--set", "node:77.capacity=3GiB"], "no node '77'; there are 0, 1"),
    "set ceiling": (["stream", "--set", "ceiling:moon.bandwidth=3GB/s"], "no ceiling 'moon'"),
    "rate 0": (["stream", "--set", "ceiling:DDR.bandwidth=0GB/s"], "give more than 0"),
    "add": (["stream", "--add", "gpu:2"], "'gpu:2' adds nothing; write dsa:2 or ssd:1"),
    "no ssd": (["kvcache", "--trace", "2", "--ssd", "1GiB"], "no SSD with a known rate; add one"),
    "second ssd": (["kvcache", "--add", "ssd:1", "--add", "ssd:1"], "has an SSD already"),
    "no tier": (["kvcache", "--trace", "2"], "no tier for the blocks"),
    "tier of a prompt": (["kvcache", "--memory", "1GiB"], "are for the requests of --trace"),
    "block of a trace": (["kvcache", "--trace", "2", "--memory", "1GiB", "--block", "100"],
                         "another power of 2"),
    "blocks of a prompt": (["kvcache", "--cached", "1T"], "give a larger --block"),
    "requests": (["kvcache", "--trace", "1000000", "--memory", "1GiB"], "at most 100000"),
    "computing": (["kvcache", "--tflops", "1e-12"], "s of computing; give fewer tokens"),
    "no whole block": (["kvcache", "--cached", "63"], "fill no block of 64"),
    "both": (["stream", "--machine", "xeon-max", "--from", "p.json"], "give one of them"),
    "no objects": (["arena"], "give --objects FILE"),
    "limit": (["arena", "--objects", "bfs", "--limit", "110%"], "is no share"),
    "plan": (["arena", "--objects", "bfs", "--plan", "moon"], "no object 'moon'; there are"),
    "no hbm": (["query", "--machine", "cxl-a1000"], "cxl-a1000 has no HBM to prefetch into"),
    "query dsa": (["query", "--machine", "gh200"], "gh200 has no HBM"),
    "advice": (["um", "--machine", "h200"], "no costs of faults are published for h200"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_line(run: Run, name: str) -> None:
    arguments, words = REFUSED[name]
    if "--machine" not in arguments and arguments[0] in ("stream", "arena"):
        arguments = [*arguments, "--machine", "xeon-max"]
    result = run("predict", *arguments)
    assert result.returncode not in (0, 70)
    assert result.stdout == ""
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr


def test_objects_must_be_such_a_document(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    cases = {
        "[]": 'has no "objects"',
        '{"objects": []}': "objects need names",
        '{"objects": [{"name": "a", "bytes": -1}]}': "objects[0]: bytes is -1",
        '{"objects": [{"name": "a", "bytes": 9, "access": "by luck"}]}': "by luck",
        "{": "is no JSON",
    }
    for text, words in cases.items():
        file.write_text(text)
        result = run("predict", "arena", "--machine", "xeon-max", "--objects", str(file))
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1


def test_a_machine_without_model_gives_bounds(run: Run, tmp_path: Path) -> None:
    machine = json.loads(run("topo", "--from", "xeon-max", "--json").stdout)
    machine.pop("model", None)
    file = tmp_path / "plain.json"
    file.write_text(json.dumps(machine))
    document = predicted(run, "stream", "--machine", str(file))
    assert document["bound"] is True
    assert "Bounds, not predictions" in document["rests_on"]["detail"]


def test_report_draws_it(run: Run, tmp_path: Path) -> None:
    for name in ("stream", "sweep", "arena"):
        file = tmp_path / f"{name}.json"
        assert run("predict", *EVERY[name], "--out", str(file)).returncode == 0
        result = run("report", str(file), "--html", str(tmp_path / f"{name}.html"))
        assert (result.returncode, result.stderr) == (0, "")
        assert "predicted" in (tmp_path / f"{name}.html").read_text()
