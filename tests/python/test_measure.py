"""Experiments called from Python: rows, callbacks, Ctrl-C."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import headrace

POINT = {"sizes": [4096], "engines": ["memcpy"], "rounds": 1, "per_sample": 0.001}


def test_rows(machine: headrace.Machine) -> None:
    told: list[tuple[int, int]] = []
    rows = headrace.bench_copy(
        machine,
        sizes=[4096, 1 << 20],
        engines=["memcpy", "cpu"],
        rounds=2,
        per_sample=0.001,
        progress=lambda done, total: told.append((done, total)),
    )
    assert len(rows) == 8
    assert all((row.bytes_per_second or 0) > 0 for row in rows)
    assert all(row.ratio_to_memcpy for row in rows)
    assert told and told[-1][0] == told[-1][1] and told == sorted(told)
    assert rows[0].asdict()["engine"] == rows[0].engine


def test_stop_gives_the_rows_so_far(machine: headrace.Machine) -> None:
    told: list[int] = []
    rows = headrace.bench_copy(
        machine,
        sizes=[64, 256, 1024, 4096],
        engines=["memcpy"],
        rounds=1,
        per_sample=0.001,
        stop=lambda: len(told) >= 2,
        progress=lambda done, total: told.append(done),
    )
    measured = [row for row in rows if row.bytes_per_second]
    assert 0 < len(measured) <= 4


def test_what_a_callback_raises_is_raised(machine: headrace.Machine) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("from the callback")

    for callback in ("stop", "progress"):
        with pytest.raises(RuntimeError, match="from the callback"):
            headrace.bench_copy(machine, **POINT, **{callback: fail})  # type: ignore[arg-type]


def test_ctrl_c_is_felt(machine: headrace.Machine) -> None:
    def press(done: int, total: int) -> None:
        if done == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        options: dict[str, Any] = POINT | {"sizes": [64, 256]}
        headrace.bench_copy(machine, **options, progress=press)


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
    machine = headrace.Machine.discover(storage=[tmp_path])
    rows = headrace.measure_briefly(machine, tmp_path / "nowhere")
    failed = [row for row in rows if row.reason]
    assert failed and all(row.bytes_per_second is None for row in failed)
    assert any("nowhere" in row.reason for row in failed)
    assert machine.copy_rates


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
    assert summary.interval95.low <= summary.median <= summary.interval95.high
    assert headrace.summarize([]) is None
    assert headrace.format_bytes(1 << 16) == "64 KiB"
    assert headrace.format_rate(24.1e9) == "24.1 GB/s"
