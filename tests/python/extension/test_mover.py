# SPDX-License-Identifier: Apache-2.0
"""Mover and Transfer, waited for and awaited."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import time
from pathlib import Path
from typing import Any

import numpy
import pytest

import headrace
from headrace import _asyncio


def some_buffers(machine: headrace.Machine, size: int) -> tuple[headrace.Buffer, headrace.Buffer]:
    source, target = headrace.allocate(machine, size), headrace.allocate(machine, size)
    source.numpy()[:] = numpy.random.default_rng(size).integers(0, 256, size, numpy.uint8)
    return source, target


@pytest.mark.parametrize("route", ["one", "brute_force", "smart", "measured"])
def test_memory_to_memory(machine: headrace.Machine, route: str) -> None:
    mover = headrace.Mover(machine, route=route)
    source, target = some_buffers(machine, 1 << 20)
    for size in (0, 4095, 1 << 20):
        stats = mover.copy(target.extent(0, size), source.extent(0, size)).wait()
        assert stats.bytes == size
        assert (target.numpy()[:size] == source.numpy()[:size]).all()


def test_file_to_memory_and_back(
    machine: headrace.Machine, mover: headrace.Mover, payload_file: Path, payload: bytes
) -> None:
    buffer = headrace.allocate(machine, len(payload))
    stats = mover.copy(buffer, headrace.File.open(machine, payload_file)).wait()
    assert buffer.numpy().tobytes() == payload
    assert stats.bytes == len(payload) and stats.pieces >= 1 and stats.total > 0
    assert machine.engine(stats.engines[0]).kind == "ssd"
    other = payload_file.with_suffix(".copy")
    other.write_bytes(bytes(len(payload)))
    mover.copy(headrace.File.open(machine, other, writable=True), buffer).wait()
    assert other.read_bytes() == payload


def test_options_and_stats(machine: headrace.Machine, mover: headrace.Mover) -> None:
    source, target = some_buffers(machine, 1 << 16)
    for priority in ("demand", "prefetch", "migration"):
        options: dict[str, Any] = {"priority": priority, "hint": "keep", "route": "one"}
        mover.copy(target, source, **options).wait()
    stats = mover.stats()
    assert stats.transfers == 3 and stats.bytes == 3 << 16 and stats.failed == 0
    assert stats.in_flight_pieces == stats.queued_pieces == 0
    assert mover.machine.nodes[0].id == machine.nodes[0].id
    assert isinstance(mover.skipped, list)


def test_requests_that_make_no_sense(machine: headrace.Machine, mover: headrace.Mover) -> None:
    source, target = some_buffers(machine, 1 << 16)
    with pytest.raises(headrace.InvalidError, match="differ in length"):
        mover.copy(target, source.extent(0, 10))
    with pytest.raises(headrace.InvalidError, match="overlap"):
        mover.copy(target.extent(0, 100), target.extent(99, 100))
    with pytest.raises(headrace.DeniedError, match="read-only"):
        mover.copy(headrace.MemoryRange(bytes(1 << 16), node=0), source)
    with pytest.raises(headrace.AbsentError, match="smart"):
        mover.copy(target, source, route="scenic")
    with pytest.raises(headrace.AbsentError, match="smart"):
        headrace.Mover(machine, route="scenic")
    with pytest.raises(headrace.InvalidError):
        headrace.Mover(machine, piece=0)
    with pytest.raises(headrace.InvalidError, match="demand, prefetch, migration"):
        mover.copy(target, source, priority="urgent")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        mover.copy(target, b"no object")  # type: ignore[arg-type]


def test_a_failed_move_raises(
    machine: headrace.Machine, mover: headrace.Mover, payload_file: Path, payload: bytes
) -> None:
    file = headrace.File.open(machine, payload_file)
    with payload_file.open("r+b") as shorter:
        shorter.truncate(1000)
    transfer = mover.copy(headrace.allocate(machine, len(payload)), file)
    with pytest.raises(headrace.IoError):
        transfer.wait()
    with pytest.raises(headrace.IoError):
        transfer.poll()
    assert transfer.done() and mover.stats().failed == 1


def test_cancel(machine: headrace.Machine, mover: headrace.Mover) -> None:
    source, target = some_buffers(machine, 64 << 20)
    transfers = [mover.copy(target, source) for _ in range(8)]
    for transfer in transfers:
        transfer.cancel()
    for transfer in transfers:
        try:
            transfer.wait()
        except headrace.CancelledError:
            pass
        assert transfer.done()


def test_descriptor_becomes_readable(machine: headrace.Machine, mover: headrace.Mover) -> None:
    source, target = some_buffers(machine, 1 << 22)
    transfer = mover.copy(target, source)
    ready, _, _ = select.select([transfer], [], [], 30)
    assert ready == [transfer] and transfer.done()
    assert transfer.poll() == transfer.wait(0) or transfer.wait(0).bytes == 1 << 22


def test_borrowed_memory_is_released_after_the_move(
    machine: headrace.Machine, mover: headrace.Mover
) -> None:
    array = bytearray(1 << 20)
    source = headrace.allocate(machine, 1 << 20)
    transfer = mover.copy(headrace.MemoryRange(array, node=0), source)
    del source
    transfer.wait()
    del transfer
    # The engine's thread drops it after it has told the waiter, and leaves it to the interpreter.
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            array.append(1)
            break
        except BufferError:
            time.sleep(0.001)
    assert len(array) == (1 << 20) + 1


def test_several_awaiters_and_transfers(machine: headrace.Machine, mover: headrace.Mover) -> None:
    async def once(transfer: headrace.Transfer) -> int:
        return (await transfer).bytes

    async def main() -> None:
        source, target = some_buffers(machine, 4 << 20)
        transfers = [mover.copy(target, source) for _ in range(4)]
        counts = await asyncio.gather(*(once(t) for t in transfers for _ in range(3)))
        assert counts == [4 << 20] * 12

    asyncio.run(main())


def test_cancelling_the_task_leaves_the_move(
    machine: headrace.Machine, mover: headrace.Mover
) -> None:
    async def once(transfer: headrace.Transfer) -> int:
        return (await transfer).bytes

    async def cancelled_in_time() -> bool:
        source, target = some_buffers(machine, 64 << 20)
        transfer = mover.copy(target, source)
        tasks = [asyncio.create_task(once(transfer)) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        outcome = (await asyncio.gather(*tasks, return_exceptions=True))[0]
        assert tasks[1].result() == 64 << 20
        # On a busy machine the copy may have been done before the task was first run.
        return isinstance(outcome, asyncio.CancelledError)

    assert any(asyncio.run(cancelled_in_time()) for _ in range(50))


def test_a_failure_is_raised_where_it_is_awaited(
    machine: headrace.Machine, mover: headrace.Mover, payload_file: Path
) -> None:
    async def main() -> None:
        file = headrace.File.open(machine, payload_file)
        payload_file.write_bytes(b"")
        with pytest.raises(headrace.IoError):
            await mover.copy(headrace.allocate(machine, file.size), file)

    asyncio.run(main())


def test_a_loop_that_is_closed_while_awaiting(machine: headrace.Machine) -> None:
    mover = headrace.Mover(machine)
    source, target = some_buffers(machine, 64 << 20)
    transfer = mover.copy(target, source)
    loop = asyncio.new_event_loop()
    task = loop.create_task(_outcome(transfer))
    loop.call_soon(loop.stop)
    loop.run_forever()
    task.cancel()
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    assert asyncio.run(_outcome(transfer)).bytes == 64 << 20


def test_awaiting_ends_though_others_close_the_descriptor(
    machine: headrace.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_asyncio, "LOOK", 0.01)
    mover = headrace.Mover(machine)
    buffer = headrace.allocate(machine, 64 << 20)

    async def main() -> int:
        watch = _asyncio._watch_of(asyncio.get_running_loop())
        os.close(watch._queue.fileno())
        os.open(os.devnull, os.O_RDONLY)  # the queue closes this one
        return (await mover.copy(buffer.extent(0, 32 << 20), buffer.extent(32 << 20))).bytes

    assert asyncio.run(asyncio.wait_for(main(), 60)) == 32 << 20


async def _outcome(transfer: headrace.Transfer) -> headrace.MoveStats:
    return await transfer
