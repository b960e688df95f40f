# SPDX-License-Identifier: Apache-2.0
"""headrace.vllm behind vLLM's factory and interface, on modules of vLLM's wheel."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import real_vllm
import wheels

import headrace
from headrace import kvcache, serving
from headrace._serving.server import OneStore

ROW, ROWS = 16384, 16
Open = Callable[..., Any]

needs_the_wheel = pytest.mark.skipif(
    not real_vllm.WHEEL.exists(), reason="needs vLLM's wheel: tools/engines.sh"
)


def test_without_vllm_the_error_is_one_line() -> None:
    program = "import sys; sys.modules['vllm'] = None; import headrace.vllm"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith(
        "headrace.UnsupportedError: headrace.vllm needs vLLM 0.33"
    )


class Engine:
    """A tier over its own memory, driven as vLLM's scheduler drives it."""

    def __init__(self, folder: Path, spec: Any = None, **config: Any) -> None:
        from vllm.v1.kv_offload.base import ReqContext
        from vllm.v1.kv_offload.tiering.factory import (
            SecondaryTierFactory,
        )

        self.array = numpy.zeros((ROWS, ROW), numpy.int8)
        self.view = memoryview(self.array)
        tier = {"type": "HeadraceTier", "module_path": "headrace.vllm", "folder": str(folder),
                "budget": 64 * ROW, **config}  # fmt: skip
        if "server" in config:  # has these
            del tier["folder"], tier["budget"]
        self.tier = SecondaryTierFactory.create_secondary_tier(
            tier, self.view, spec or real_vllm.spec()
        )
        self.request = ReqContext(req_id="r")
        self._jobs = 0

    def key(self, number: int) -> bytes:
        return number.to_bytes(32, "little") + bytes(4)

    def content(self, numbers: range) -> Any:
        return numpy.stack(
            [numpy.random.default_rng(n).integers(-128, 128, ROW, numpy.int8) for n in numbers]
        )

    def submit(self, numbers: range, loads: bool) -> None:
        from vllm.v1.kv_offload.tiering.base import TransferJob

        self._jobs += 1
        # As vLLM's scheduler: no sequences, and chunk ids in the order of their keys.
        at = {self.key(number): position for position, number in enumerate(numbers)}
        keys: Any = at.keys() if loads else set(at)
        positions = numpy.array([at[key] for key in keys], numpy.int64)
        job = TransferJob(self._jobs, keys, positions, loads, self.request)
        (self.tier.submit_load if loads else self.tier.submit_store)(job)

    def result(self) -> Any:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if results := list(self.tier.get_finished_jobs()):
                assert len(results) == 1 and results[0].job_id == self._jobs
                return results[0]
            time.sleep(0.001)
        raise AssertionError("no result")

    def store(self, numbers: range) -> Any:
        self.array[: len(numbers)] = self.content(numbers)
        self.submit(numbers, False)
        return self.result()

    def load(self, numbers: range) -> Any:
        self.array[:] = 0
        self.submit(numbers, True)
        return self.result()

    def has(self, number: int) -> bool:
        return bool(self.tier.lookup(self.key(number), self.request).name == "HIT")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    engines: list[Engine] = []

    def open_one(*spec: Any, **config: Any) -> Engine:
        engines.append(Engine(tmp_path / "kv", *spec, **config))
        return engines[-1]

    with wheels.undone():
        real_vllm.install()
        yield open_one
        for engine in engines:
            engine.tier.shutdown()


@needs_the_wheel
@pytest.mark.parametrize("memory", [0, 4 * ROW])
def test_rows_come_back_now_and_after_a_restart(opened: Open, memory: int) -> None:
    numbers = range(12)
    for engine in (opened(memory=memory), opened):
        if engine is opened:
            engine = opened(memory=memory)
        else:
            result = engine.store(numbers)
            assert result.success and result.transfer_bytes == 12 * ROW
        result = engine.load(numbers)
        assert result.success and (engine.array[:12] == engine.content(numbers)).all()
        assert engine.has(11) and not engine.has(12)
        assert not engine.tier.has_pending_work()
        engine.tier.shutdown()
        engine.view.release()  # as vLLM does afterwards


@needs_the_wheel
def test_a_flipped_bit_costs_one_row(opened: Open, tmp_path: Path) -> None:
    engine = opened()
    engine.store(range(8))
    with (tmp_path / "kv" / "blocks").open("r+b") as file:
        right = engine.content(range(3, 4)).tobytes()
        at = file.read().index(right)
        file.seek(at + 100)
        file.write(bytes([right[100] ^ 1]))
    result = engine.load(range(8))
    assert not result.success
    good = [number for number in range(8) if number != 3]
    assert list(result.successful_keys) == [engine.key(number) for number in good]
    assert (engine.array[good] == engine.content(range(8))[good]).all()
    assert not engine.has(3) and engine.has(4)
    assert engine.tier.get_stats().reduce()["vllm:kv_offload_headrace_damaged_chunks"] == 1


@needs_the_wheel
def test_absent_rows_are_told_one_by_one(opened: Open) -> None:
    engine = opened()
    engine.store(range(2))
    result = engine.load(range(4))
    assert not result.success
    assert list(result.successful_keys) == [engine.key(0), engine.key(1)]
    assert engine.load(range(8, 10)).successful_keys is None


@needs_the_wheel
def test_the_budget_holds_and_evictions_are_told(opened: Open) -> None:
    engine = opened(real_vllm.spec(events=True), enable_kv_events=True, budget=8 * ROW)
    told: dict[bytes, bool] = {}
    for first in range(0, 64, 4):
        assert engine.store(range(first, first + 4)).success
        for event in engine.tier.take_events():
            told.update((key, not event.removed) for key in event.keys)
    stats = engine.tier.get_stats().reduce()
    assert stats["vllm:kv_offload_headrace_used_bytes"] == 8 * ROW
    assert stats["vllm:kv_offload_headrace_evicted_chunks"] == 64 - 8
    assert {key for key, there in told.items() if there} == {
        engine.key(number) for number in range(64) if engine.has(number)
    }


@needs_the_wheel
def test_drained_jobs_have_results(opened: Open) -> None:
    engine = opened()
    engine.array[:] = engine.content(range(ROWS))
    for _ in range(5):
        engine.submit(range(ROWS), False)
        engine.submit(range(ROWS), True)
    engine.tier.drain_jobs()
    results = list(engine.tier.get_finished_jobs())
    assert sorted(result.job_id for result in results) == list(range(1, 11))
    assert not engine.tier.has_pending_work()


@needs_the_wheel
def test_chunks_of_hybrid_groups_come_back(opened: Open) -> None:
    """A group of full attention, and one of a sliding window with larger blocks."""
    from vllm.v1.kv_offload.base import make_offload_key
    from vllm.v1.kv_offload.tiering.base import TransferJob

    full, window = (16, ("layer.0",), 0), (32, ("layer.1", "layer.2"), 1, 2)
    hashes = [number.to_bytes(32, "little") for number in range(6)]
    keys = [make_offload_key(each, 0) for each in hashes]
    keys += [make_offload_key(each, 1) for each in hashes[4:]]  # the window
    engine = opened(real_vllm.spec(groups=(full, window)))
    engine.array[:8] = right = engine.content(range(8))

    def run(order: list[int], loads: bool) -> Any:
        engine._jobs += 1
        job = TransferJob(
            engine._jobs, [keys[i] for i in order], numpy.array(order), loads, engine.request
        )
        (engine.tier.submit_load if loads else engine.tier.submit_store)(job)
        return engine.result()

    assert run([7, 0, 3, 6, 1, 2, 5, 4], loads=False).success
    for reopened in (False, True):
        if reopened:
            engine.tier.shutdown()
            engine = opened(real_vllm.spec(groups=(full, window)))
        engine.array[:] = 0
        assert run([4, 6, 0, 7, 1, 5, 2, 3], loads=True).success
        assert (engine.array[:8] == right).all()
        for number in (3, 4):  # before the window, and in it
            found = engine.tier.lookup(make_offload_key(hashes[number], 1), engine.request)
            assert found.name == ("HIT" if number == 4 else "MISS")
    engine.tier.shutdown()
    swapped = ((*full[:2], 1), (*window[:2], 0))
    with pytest.raises(headrace.InvalidError, match="another geometry, model or revision"):
        opened(real_vllm.spec(groups=swapped))


@needs_the_wheel
def test_chunks_that_are_not_kept_are_a_line_a_minute(
    opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.vllm._STATS_SECONDS", 0.0)
    engine = opened(in_flight=ROW)
    for first in range(0, 12, 4):
        assert not engine.store(range(first, first + 4)).success
        engine.tier.get_stats()
    told = "3 chunks were not kept, and 1 were, since the last warning: all slots are in use"
    assert caplog.text.count(" were not kept, ") == 1 and told in caplog.text


@needs_the_wheel
def test_a_folder_of_another_model_is_refused_or_emptied(opened: Open) -> None:
    first = opened()
    first.store(range(2))
    first.tier.shutdown()
    with pytest.raises(headrace.InvalidError, match="another geometry, model or revision"):
        opened(revision="2")
    with pytest.raises(headrace.InvalidError, match="another geometry, model or revision"):
        opened(real_vllm.spec("other"))
    other = opened(real_vllm.spec("other"), other="discard")
    assert not other.has(0) and other.store(range(2)).success


@needs_the_wheel
def test_settings_are_checked(opened: Open) -> None:
    for settings, told in (
        ({"fodler": "x"}, "HeadraceTier has no setting 'fodler'; there are folder, budget, memory"),
        ({"budget": "many"}, "many"),
        ({"other": "x"}, "other is 'x'; there are refuse, discard"),
        ({"verify": "none"}, "there are all, found"),
        ({"in_flight": "few"}, "few"),
        ({"workers": 0}, "give at least 1"),
    ):
        with pytest.raises(headrace.InvalidError, match=told):
            opened(**settings)


    with pytest.raises(ValueError, match="Locality"):
        opened(locality="")


@needs_the_wheel
@pytest.mark.parametrize("loads", [True, False])
def test_a_job_without_chunks_succeeds(opened: Open, loads: bool) -> None:
    engine = opened()
    engine.submit(range(0), loads)
    assert engine.result().success


@needs_the_wheel
def test_jobs_with_wrong_positions_fail_and_leave_no_other(opened: Open) -> None:
    from vllm.v1.kv_offload.tiering.base import TransferJob

    engine = opened()
    engine.store(range(2))
    for at in ([0, ROWS], [-1, 0]):
        engine._jobs += 1
        keys = [engine.key(0), engine.key(1)]
        job = TransferJob(engine._jobs, keys, numpy.array(at), True, engine.request)
        engine.tier.submit_load(job)
        assert not engine.result().success
    with pytest.raises(headrace.InvalidError, match="2 keys for 1 positions"):
        engine.tier.submit_load(TransferJob(99, keys, numpy.array([0]), True, engine.request))
    assert not engine.tier.has_pending_work()
    assert engine.load(range(2)).success
    engine.tier.shutdown()
    with pytest.raises(headrace.CancelledError, match="shut down"):
        engine.submit(range(2), True)


@needs_the_wheel
def test_engines_of_data_parallelism_have_folders_of_their_own(opened: Open) -> None:
    for number in range(2):
        engine = opened(real_vllm.spec(engines=2, engine=number))
        assert engine.store(range(number, number + 1)).success
        assert engine.has(number) and not engine.has(1 - number)
    with pytest.raises(headrace.DeniedError, match="open already"):
        opened(real_vllm.spec(engines=2, engine=1))


@needs_the_wheel
def test_no_damage_on_the_disk_gives_a_wrong_row(tmp_path: Path) -> None:
    with wheels.undone():
        real_vllm.install()
        import vllm_damage

        damage = vllm_damage.run(tmp_path / "kv", 10_000, 1024, 1)
        assert damage.wrong == 0 and damage.lost > 9000
        assert all(damage.injected[kind] > 0 for kind in vllm_damage.KINDS if kind != "EIO")


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
import real_vllm
real_vllm.install()
from pathlib import Path
import test_vllm
engine = test_vllm.Engine(Path(sys.argv[2]))
first = 0
while True:
    print("store", flush=True)
    engine.store(range(first, first + 16))
    first = (first + 16) % 48
"""


@needs_the_wheel
def test_an_engine_killed_while_it_writes_leaves_no_wrong_row(opened: Open, tmp_path: Path) -> None:
    found = 0
    for attempt in range(3):
        wheels.kill_a_writer(WRITER, tmp_path / "kv", stores=2 * attempt + 1)
        engine = opened()
        for first in range(0, 48, 16):
            numbers = range(first, first + 16)
            result = engine.load(numbers)
            right = engine.content(numbers)
            keys = [engine.key(number) for number in numbers]
            good = keys if result.success else list(result.successful_keys or ())
            for i, key in enumerate(keys):
                assert key not in good or (engine.array[i] == right[i]).all()
            found += len(good)
        engine.tier.shutdown()
    assert found > 0


@needs_the_wheel
def test_engines_of_one_server_have_the_same_chunks(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = str(tmp_path / "socket")
    machine = headrace.Machine.discover(storage=[tmp_path])
    tiers = [kvcache.Memory("dram", 64 * ROW), kvcache.Folder(tmp_path / "served", 64 * ROW)]
    store = OneStore(headrace.Mover(machine), tiers)
    server = serving.Server(name, store, machine)
    first, second = (
        opened(real_vllm.spec(engines=2, engine=number), server=name)
        for number in range(2)
    )
    assert first.store(range(6)).success
    assert second.has(3) and not second.has(7)
    assert second.load(range(6)).success
    assert (second.array[:6] == second.content(range(6))).all()
    result = second.load(range(4, 8))
    assert not result.success and list(result.successful_keys) == [second.key(4), second.key(5)]
    until = time.monotonic() + 60
    while second.tier.get_stats() is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    second.tier.touch([second.key(1)], second.request)
    server.close()
    assert not second.has(3) and not second.has(4) and not first.load(range(3)).success
    assert caplog.text.count("no chunks are found: the server") == 1
    first.tier.shutdown()
    store.close(60)
    with pytest.raises(headrace.InvalidError, match="its own memory"):
        opened(server=name, memory=1)
