# SPDX-License-Identifier: Apache-2.0
"""KvJobs: loads and stores of blocks that another thread begins."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy
import pytest

import headrace
from headrace import kvcache

SIZE, COUNT = 4096, 64


class Bench:
    def __init__(self, folder: Path, in_flight: int = 1 << 20) -> None:
        self.array = numpy.zeros((COUNT, SIZE), numpy.uint8)
        machine = headrace.Machine.discover(storage=[folder])
        self.store = kvcache.Store(
            headrace.Mover(machine),
            kvcache.opaque("jobs", SIZE),
            [kvcache.Folder(folder / "kv", 4 * COUNT * SIZE)],
            in_flight=in_flight,
        )
        self.jobs = headrace.KvJobs(self.store, headrace.MemoryRange(self.array, machine=machine))
        self.keys = [f"a name of block {number}".encode() for number in range(2 * COUNT)]
        self.all = numpy.arange(COUNT)

    def outcome(self) -> tuple[int, list[bool], int, str]:
        self.jobs.wait()
        (outcome,) = self.jobs.take()
        return outcome


def test_blocks_come_back_at_their_positions(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    right = numpy.random.default_rng(1).integers(0, 256, bench.array.shape, numpy.uint8)
    bench.array[:] = right
    bench.jobs.store(7, bench.keys[:COUNT], bench.all)
    assert bench.outcome() == (7, [], COUNT, "")
    for part in (0, 1, 10, 1000):
        bench.array[:] = 0
        bench.jobs.load(8, bench.keys[:COUNT], bench.all[::-1].copy(), part=part, promote=False)
        assert bench.outcome() == (8, [True] * COUNT, COUNT, "")
        assert (bench.array[::-1] == right).all()
    bench.jobs.load(9, bench.keys[COUNT - 2 : COUNT + 2], bench.all[:4], part=3, promote=True)
    assert bench.outcome() == (9, [True, True, False, False], 2, "")


def test_jobs_begin_in_their_order_and_end_with_errors_that_say_why(tmp_path: Path) -> None:
    bench = Bench(tmp_path, in_flight=8 * SIZE)
    for number in range(20):
        bench.jobs.store(number, bench.keys[number : number + 2], bench.all[:2])
    bench.jobs.store(20, bench.keys[:2], numpy.array([COUNT, 0]))
    bench.jobs.wait()
    outcomes = {outcome[0]: outcome for outcome in bench.jobs.take()}
    assert sorted(outcomes) == list(range(21))
    assert all(outcome[3] == "" for number, outcome in outcomes.items() if number < 20)
    assert outcomes[20][2] == 0 and outcomes[20][3] != ""
    with pytest.raises(headrace.InvalidError, match="2 keys for 3 positions"):
        bench.jobs.store(21, bench.keys[:2], bench.all[:3])
    assert bench.jobs.take() == []
    bench.store.close()
    bench.jobs.load(22, bench.keys[:2], bench.all[:2], part=0, promote=False)
    number, loaded, there, error = bench.outcome()
    assert (number, loaded, there) == (22, [False, False], 0) and "closed" in error
    bench.jobs.close()
    bench.jobs.close()
    with pytest.raises(headrace.CancelledError, match="closed"):
        bench.jobs.store(23, bench.keys[:2], bench.all[:2])


def test_keys_that_are_no_bytes_are_refused_and_begin_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for keys in ([b"a key", "text"], [b"a key", None], b"", "ab"):
        with pytest.raises((TypeError, headrace.InvalidError)):
            bench.jobs.store(1, keys, bench.all[:2])  # type: ignore[arg-type]
    bench.jobs.wait(0.0)
    assert bench.jobs.take() == []
    bench.jobs.store(2, (b"", b"a longer key"), bench.all[:2])  # of any length
    assert bench.outcome() == (2, [], 2, "")


def test_a_long_first_key_takes_no_memory_for_the_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    count = 1 << 20
    with pytest.raises(TypeError):  # after 1 MiB of names; 1 TiB would be a MemoryError
        bench.jobs.store(1, [b"k" * (1 << 20)] + [None] * count, numpy.zeros(count + 1, "int64"))


def test_threads_that_close_the_jobs_together_all_return(tmp_path: Path) -> None:
    for number in range(10):
        (folder := tmp_path / str(number)).mkdir()
        bench = Bench(folder)
        bench.jobs.store(1, bench.keys[:COUNT], bench.all)
        start = threading.Barrier(4)

        def close(jobs: headrace.KvJobs = bench.jobs, start: threading.Barrier = start) -> None:
            start.wait()
            jobs.close()

        threads = [threading.Thread(target=close, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert bench.outcome() == (1, [], COUNT, "")


def test_threads_end_with_jobs_under_way(tmp_path: Path) -> None:
    before = threading.active_count(), len(list(Path("/proc/self/task").iterdir()))
    for i in range(5):
        (folder := tmp_path / str(i)).mkdir()
        bench = Bench(folder)
        for number in range(10):
            bench.jobs.store(number, bench.keys[:COUNT], bench.all)
            bench.jobs.load(number, bench.keys[:COUNT], bench.all, part=4, promote=False)
        del bench
        gc.collect()
    assert threading.active_count() == before[0]
    assert not [task for task in Path("/proc/self/task").iterdir()
                if (task / "comm").read_text() == "headrace-kvjobs\n"]  # fmt: skip


def test_jobs_of_several_threads_have_an_outcome_each(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.jobs.store(0, bench.keys[:COUNT], bench.all)
    bench.outcome()
    numbers = range(1, 1 + 4 * 50)

    def load(first: int) -> None:
        for number in numbers[first::4]:
            bench.jobs.load(number, bench.keys[:4], bench.all[:4], part=2, promote=False)

    threads = [threading.Thread(target=load, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.jobs.wait()
    assert sorted(outcome[0] for outcome in bench.jobs.take()) == list(numbers)
