# SPDX-License-Identifier: Apache-2.0
"""The border to Python: code that runs when objects are dropped, several threads, garbage
collection at any moment, the end of the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import time
import warnings
import weakref
from typing import Any

import numpy
import pytest
from programs import outcome_of

import headrace

FINE = (0, "", "")

MAPPED = """
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "column")
open(path, "wb").write(os.urandom(1 << 16))
cache = headrace.Cache(mover, {node: 16 << 20})
def work(_):
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        for i in range(30):
            array = numpy.memmap(path, dtype="u1", mode="r")
            source = headrace.MemoryRange(array, node=node)
            with cache.access(source.extent(0, 4096)) as block:
                block.wait(5)
            del block, source, array
        cache.flush()
in_threads(work)
"""


def test_threads_that_cache_mapped_files() -> None:
    """Unmapping lets go of the GIL while an object is dropped."""
    assert outcome_of(MAPPED) == FINE


class Array(numpy.ndarray):  # type: ignore[type-arg]
    """An array that can hold something."""

    kept: Any


def an_array(size: int = 1 << 16) -> Array:
    return numpy.ones(size, numpy.uint8).view(Array)


def test_arrays_that_hold_their_own_range_are_collected(
    mover: headrace.Mover, memory_node: int
) -> None:
    cache = headrace.Cache(mover, {memory_node: 1 << 20})

    def held_by_range() -> weakref.ref[Array]:
        array = an_array()
        array.kept = headrace.MemoryRange(array, node=memory_node)
        return weakref.ref(array)

    def held_by_extent() -> weakref.ref[Array]:
        array = an_array()
        array.kept = headrace.MemoryRange(array, node=memory_node).extent(0, 100)
        return weakref.ref(array)

    def held_by_block() -> weakref.ref[Array]:
        array = an_array()
        array.kept = cache.access(headrace.MemoryRange(array, node=memory_node))
        array.kept.wait()
        return weakref.ref(array)

    for make in (held_by_range, held_by_extent, held_by_block):
        alive = make()
        gc.collect()
        cache.flush()
        assert alive() is None, make.__name__


def test_memory_in_use_is_not_collected(mover: headrace.Mover, memory_node: int) -> None:
    array = an_array()
    array.kept = headrace.MemoryRange(array, node=memory_node)
    extent = array.kept.extent(0, 100)
    target = headrace.allocate(mover.machine, 100)
    del array
    gc.collect()
    mover.copy(target, extent).wait()
    assert bytes(memoryview(target)) == b"\1" * 100


@pytest.mark.parametrize(
    "kind", ["Extent", "Block", "Cache", "Mover", "MemoryRange", "Transfer", "Buffer", "File"]
)
def test_objects_that_were_never_made(
    kind: str, machine: headrace.Machine, mover: headrace.Mover, memory_node: int
) -> None:
    made = getattr(headrace, kind)
    cache = headrace.Cache(mover, {memory_node: 1 << 20})
    target = headrace.allocate(machine, 4096)
    try:
        never = made.__new__(made)
    except TypeError:
        return
    for use in (
        lambda: cache.access(never),
        lambda: mover.copy(target, never),
        lambda: memoryview(never),
        lambda: repr(never),
        lambda: never.stats(),
        lambda: never.wait(),
        lambda: len(never),
        lambda: headrace.Cache(never, {memory_node: 1 << 20}),
    ):
        with warnings.catch_warnings(action="ignore"), contextlib.suppress(Exception):
            use()
    assert cache.stats().misses == mover.stats().transfers == 0


def test_a_thousand_transfers_are_awaited_with_few_descriptors(machine: headrace.Machine) -> None:
    mover = headrace.Mover(machine)
    mebibyte = 1 << 20
    source, target = (headrace.allocate(machine, 64 * mebibyte) for _ in range(2))

    async def main() -> None:
        transfers = [
            mover.copy(target.extent(k % 64 * mebibyte, mebibyte), source.extent(0, mebibyte))
            for k in range(1000)
        ]
        outcomes = asyncio.gather(*(outcome(t) for t in transfers))
        await asyncio.sleep(0)
        most = len(os.listdir("/proc/self/fd"))
        assert {stats.bytes for stats in await outcomes} == {mebibyte}
        assert most < before + 8

    async def outcome(transfer: headrace.Transfer) -> headrace.MoveStats:
        return await transfer

    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    until = time.monotonic() + 10  # a thread of the mover may let the last one go
    while len(os.listdir("/proc/self/fd")) != before and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) == before


def test_awaiting_without_a_descriptor_left_says_so(machine: headrace.Machine) -> None:
    mover = headrace.Mover(machine)
    source, target = (headrace.allocate(machine, 64 << 20) for _ in range(2))

    async def main() -> None:
        transfers = [mover.copy(target, source) for _ in range(8)]
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            with pytest.raises(headrace.ExhaustedError, match="ulimit -n"):
                await transfers[-1]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await transfers[-1]

    asyncio.run(main())


ENDS = {
    "wait": """
buffers = [headrace.allocate(machine, 16 << 20) for _ in range(2)]
def work():
    while True:
        target = headrace.MemoryRange(bytearray(16 << 20), node=node)
        mover.copy(target, buffers[0]).wait()
""",
    "block": """
cache = headrace.Cache(mover, {node: 4 << 20})
file = some_file(16 << 20)
def work():
    while True:
        for i in range(16):
            with cache.access(file.extent(i << 20, 1 << 20)) as block:
                block.wait()
        cache.flush()
""",
    "callback": """
def work():
    def go_on():
        for _ in range(1000):
            pass
        return False
    while True:
        headrace.measure(machine, selections=[("copy", {"engine": "memcpy", "bytes": 4096})],
                         rounds=1, repetitions=1, noise_checks=False, stop=go_on)
""",
    "release": """
def work():
    while True:
        own = headrace.Mover(machine)
        del own
""",
}


#: Exporters that let go of the GIL while their memory is released, by unmapping a file or by code
#: of Python: dropped by the thread that had them last, and by a look through the list of a cache.
DROPS = """
cache = headrace.Cache(mover, {node: 16 << 20})
def work():
    while True:
        for i in range(30):
            array = an_array()
            source = headrace.MemoryRange(array, node=node)
            if i % 2:
                with cache.access(source.extent(0, 4096)) as block:
                    block.wait(5)
                del block
            del array
            del source
        cache.flush()
"""
ENDS["memmap"] = (
    """
file = tempfile.TemporaryFile()
file.truncate(1 << 16)
def an_array():
    return numpy.memmap(file, dtype="u1", mode="r")
"""
    + DROPS
)
ENDS["finalizer"] = (
    """
sys.setswitchinterval(1e-5)
class Array(numpy.ndarray):
    def __del__(self):
        for _ in range(30_000):
            pass
def an_array():
    return numpy.zeros(4096, "u1").view(Array)
"""
    + DROPS
)


@pytest.mark.parametrize("kind", ENDS)
def test_the_interpreter_ends_while_daemon_threads_work(kind: str) -> None:
    body = ENDS[kind] + (
        "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(float(sys.argv[1]))\n"
    )
    assert outcome_of(body, "0.1") == FINE


def a_slow_transfer(machine: headrace.Machine) -> headrace.Transfer:
    """The last of a million small pieces, one at a time: many seconds, which nobody waits for."""
    mover = headrace.Mover(machine, piece=1 << 16, in_flight_per_link=1 << 16)
    source, target = (headrace.allocate(machine, 64 << 20) for _ in range(2))
    return [mover.copy(target, source) for _ in range(1024)][-1]


def test_a_wait_that_is_over_says_how_long_it_was(machine: headrace.Machine) -> None:
    transfer = a_slow_transfer(machine)
    for timeout, told in ((0.001, "1 ms"), (0.3, "300 ms")):
        with pytest.raises(headrace.TimedOutError, match=rf"^not done after {told}; it goes on"):
            transfer.wait(timeout)


PAUSED = """
import subprocess
slow_mover = headrace.Mover(machine, piece=1 << 16, in_flight_per_link=1 << 16)
source, target = (headrace.allocate(machine, 64 << 20) for _ in range(2))
transfer = [slow_mover.copy(target, source) for _ in range(1024)][-1]
own = os.getpid()
pause = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -STOP {own}; sleep 4; kill -CONT {own}"])
begin = time.monotonic()
try:
    transfer.wait(1.5)
except headrace.TimedOutError as error:
    print(error)
took = time.monotonic() - begin
assert took > 4 + 1.4, took
pause.wait()
"""


def test_a_pause_of_the_process_is_no_time_out() -> None:
    told = "not done after 1.5 s; it goes on, so wait again or cancel it\n"
    assert outcome_of(PAUSED) == (0, told, "")
