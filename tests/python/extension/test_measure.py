# SPDX-License-Identifier: Apache-2.0
"""Experiments called from Python: rows, callbacks, Ctrl-C."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from small_host import small

import headrace
from headrace._profile.row_documents import rate_rows

QUICKLY: dict[str, Any] = {
    "budget": None, "rounds": 1, "repetitions": 1, "noise_checks": False,
}  # fmt: skip


def copies(machine: headrace.Machine, sizes: list[int], **only: Any) -> dict[str, Any]:
    """Points of one thread within the first node."""
    home = machine.nodes[0].id
    point = {"from": home, "to": home, "threads": 1, "bytes": sizes, "engine": "memcpy"}
    return QUICKLY | {"selections": [("copy", point | only)]}


def test_rows(machine: headrace.Machine) -> None:
    told: list[tuple[int, int]] = []
    profile = headrace.measure(
        machine,
        **copies(machine, [4096, 1 << 20], engine=["memcpy", "cpu"]) | {"rounds": 2},
        progress=lambda done, total: told.append((done, total)),
    )
    rows = profile.rows
    assert len(rows) == 8
    assert all((row.median or 0) > 0 for row in rows)
    assert all(row.details["ratio_to_memcpy"] for row in rows)
    assert {row.basis for row in rows} == {"measured"}
    assert told and told[-1][0] == told[-1][1] and told == sorted(told)
    assert rows[0].asdict()["parameters"]["engine"] == rows[0].parameters["engine"]
    assert profile.asdict()["rows"][0]["median"] == rows[0].median


def test_stop_gives_the_rows_so_far(machine: headrace.Machine) -> None:
    told: list[int] = []
    rows = headrace.measure(
        machine,
        **copies(machine, [64, 256, 1024, 4096], state="hot"),
        stop=lambda: len(told) >= 2,
        progress=lambda done, total: told.append(done),
    ).rows
    measured = [row for row in rows if row.median]
    assert len(measured) == 2
    assert sum("stopped" in row.flags for row in rows) == 2


def test_exception_of_a_callback_is_raised(machine: headrace.Machine) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("from the callback")

    for callback in ("stop", "progress"):
        with pytest.raises(RuntimeError, match="from the callback"):
            headrace.measure(machine, **copies(machine, [4096]), **{callback: fail})


def test_ctrl_c_is_felt(machine: headrace.Machine) -> None:
    def press(done: int, total: int) -> None:
        if done == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        headrace.measure(machine, **copies(machine, [64, 256]), progress=press)


def test_experiments_say_what_their_rows_hold() -> None:
    found = {each.name: each for each in headrace.experiments()}
    assert {"latency", "copy", "storage", "dsa"} <= found.keys()
    copy = [each.name for each in found["copy"].parameters]
    assert copy == ["engine", "cpu_node", "from", "to", "bytes", "threads", "state", "work"]
    required = [each.name for each in found["copy"].parameters if each.required]
    assert required == ["engine", "from", "to", "bytes", "threads", "state"]
    kinds = {each.name: each.kind for each in found["bandwidth"].parameters}
    assert (kinds["memory_node"], kinds["mix"]) == ("node", "mix")
    assert "iops" in found["storage"].details


def test_modelled_rows_are_of_no_profile() -> None:
    row = {"experiment": "dsa", "parameters": {"bytes": 4096}, "median": 1e9, "samples": [1e9],
           "basis": "modelled"}  # fmt: skip
    modelled = headrace.Row.fromdict(row)
    assert (modelled.basis, modelled.median, modelled.parameters) == (
        "modelled", 1e9, {"bytes": 4096})  # fmt: skip
    assert headrace.Row.fromdict(modelled.asdict()).asdict() == modelled.asdict()
    with pytest.raises(headrace.InvalidError, match="basis"):
        headrace.Row.fromdict(row | {"basis": "guessed"})
    document = headrace.Machine.discover().asdict() | {"rows": [modelled.asdict()]}
    with pytest.raises(headrace.InvalidError, match="rows.0..basis"):
        headrace.Profile.fromdict(document)


def test_a_signal_ends_a_wait(machine: headrace.Machine, mover: headrace.Mover) -> None:
    def ring(*_: object) -> None:
        raise InterruptedError("rung")

    source, target = (headrace.allocate(machine, 64 << 20) for _ in range(2))
    before = signal.signal(signal.SIGALRM, ring)
    transfers = [mover.copy(target, source) for _ in range(100)]
    try:
        with pytest.raises(InterruptedError, match="rung"):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            for transfer in transfers:
                transfer.wait()
    finally:
        signal.signal(signal.SIGALRM, before)
        for transfer in transfers:
            transfer.cancel()


def test_a_disk_that_cannot_be_measured_is_a_row(tmp_path: Path) -> None:
    machine = small(headrace.Machine.discover(storage=[tmp_path]))
    profile = headrace.measure_quickly(machine, tmp_path / "nowhere")
    failed = [row for row in profile.rows if row.reason]
    assert failed and all(row.median is None for row in failed)
    assert any("nowhere" in row.reason for row in failed)
    assert any(row.experiment == "copy" and row.median for row in profile.rows)
    rates = rate_rows(profile, tmp_path)
    words = {row["what"] for row in rates}
    assert {"memory read", "memory write", "memory copy", "disk read"} <= words
    assert all((row["bytes_per_second"] is None) == bool(row["reason"]) for row in rates)


def test_backends(machine: headrace.Machine) -> None:
    backends = headrace.Backends.open(machine)
    driven = {engine for facts in backends.capabilities for engine in facts.engines}
    assert driven <= {engine.id for engine in machine.engines}
    assert {facts.name for facts in backends.capabilities} >= {"cpu"}
    assert all(isinstance(line, str) for line in backends.skipped)


def test_statistics() -> None:
    summary = headrace.summarize([3.0, 1.0, 2.0, 100.0, 2.0])
    assert summary is not None
    assert (summary.runs, summary.median, summary.mad, summary.min) == (5, 2.0, 1.0, 1.0)
    assert (summary.interval.low, summary.interval.high) == (1.0, 100.0)
    assert (summary.coverage, summary.interval_words) == (None, "range of 5")
    six = headrace.summarize([float(n) for n in range(6)])
    assert (six.coverage, six.interval_words) == (0.95, "95 %")
    assert headrace.summarize([]) is None
    assert headrace.format_bytes(1 << 16) == "64 KiB"
    assert headrace.format_rate(24.1e9) == "24.1 GB/s"
