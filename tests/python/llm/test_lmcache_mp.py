# SPDX-License-Identifier: Apache-2.0
"""headrace.lmcache_mp behind LMCache's plug-in factory, on modules of LMCache's wheel."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import real_lmcache_mp
import wheels

import headrace

SIZE, COUNT = 16384, 12
Open = Callable[..., Any]

needs_the_wheel = pytest.mark.skipif(
    not real_lmcache_mp.WHEEL.exists(), reason="needs LMCache's wheel: tools/engines.sh"
)


@pytest.mark.parametrize("module", ["lmcache", "lmcache_mp"])
def test_without_lmcache_the_error_is_one_line(module: str) -> None:
    program = f"import sys; sys.modules['lmcache'] = None; import headrace.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith(
        f"headrace.UnsupportedError: headrace.{module} needs LMCache 0.5"
    )


class Controller:
    """LMCache's arena and the calls of its controllers. `in_arena`: the adapter knows it."""

    def __init__(
        self, folder: Path, in_arena: bool = True, around: Any = None, **params: Any
    ) -> None:
        """`around`: the configuration of an adapter of LMCache that wraps ours."""
        from lmcache.v1.distributed.l2_adapters.config import (  # type: ignore[import-not-found]
            get_l2_adapter_config_class,
        )
        from lmcache.v1.distributed.l2_adapters.factory import (  # type: ignore[import-not-found]
            create_l2_adapter_from_registry,
        )

        self.arena = numpy.zeros(COUNT * SIZE, numpy.uint8)
        where = SimpleNamespace(ptr=self.arena.ctypes.data, size=self.arena.size, align_bytes=4096)
        params = {"folder": str(folder), "budget": 64 * SIZE, "unit": 4096, **params}
        given = {"type": "plugin", "module_path": "headrace.lmcache_mp", "class_name": "L2Adapter",
                 "adapter_params": params}  # fmt: skip
        if around is not None:
            given = {**around, "inner": given}
        config = get_l2_adapter_config_class(given["type"]).from_dict(given)
        self.adapter = create_l2_adapter_from_registry(config, where if in_arena else None)
        self.told: dict[str, list[Any]] = {"stored": [], "deleted": []}
        self.adapter.register_listener(
            SimpleNamespace(
                on_l2_keys_stored=lambda keys, sizes: self.told["stored"].extend(keys),
                on_l2_keys_deleted=self.told["deleted"].extend,
                on_l2_keys_accessed=lambda keys: None,
            )
        )

    def key(self, number: int) -> Any:
        from lmcache.v1.distributed.api import ObjectKey  # type: ignore[import-not-found]

        return ObjectKey(number.to_bytes(32, "little"), "org/model", 1)

    def keys(self, numbers: range) -> list[Any]:
        return [self.key(number) for number in numbers]

    def objects(self, count: int, size: int = SIZE) -> list[Any]:
        arrays = [self.arena[i * size : (i + 1) * size] for i in range(count)]
        return [SimpleNamespace(byte_array=memoryview(array), data_ptr=array.ctypes.data)
                for array in arrays]  # fmt: skip

    def fill(self, numbers: range, size: int = SIZE) -> Any:
        """The content of the objects, in the arena too."""
        right = numpy.concatenate(
            [numpy.random.default_rng(n).integers(0, 256, size, numpy.uint8) for n in numbers]
        )
        self.arena[: right.size] = right
        return right

    def wait(self, descriptor: int, query: Callable[[], Any]) -> Any:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not (result := query()):
            assert poll.poll(60_000), "no event"
        return result

    def store(self, numbers: range, size: int = SIZE) -> Any:
        self.fill(numbers, size)
        task = self.adapter.submit_store_task(
            self.keys(numbers), self.objects(len(numbers), size)
        )
        done = self.wait(
            self.adapter.get_store_event_fd(), self.adapter.pop_completed_store_tasks
        )
        return done[task]

    def look_up(self, numbers: range) -> list[bool]:
        task = self.adapter.submit_lookup_and_lock_task(self.keys(numbers), {})
        found = self.wait(
            self.adapter.get_lookup_and_lock_event_fd(),
            lambda: self.adapter.query_lookup_and_lock_result(task),
        )
        assert self.adapter.query_lookup_and_lock_result(task) is None
        return list(found.bits)

    def unlock(self, numbers: range) -> None:
        self.adapter.submit_unlock(self.keys(numbers))

    def pinned(self) -> int:
        status = self.adapter.report_status()
        pinned: int = status["objects"]["pinned"]
        return pinned

    def listed(self, page_size: int = 500, model: str | None = None) -> list[tuple[str, int]]:
        entries, cursor = [], None
        while True:
            page = self.adapter.list_l2_keys(model, page_size, cursor)
            assert len(page.entries) <= page_size
            entries += [(each.key.chunk_hash_hex, each.size_bytes) for each in page.entries]
            if (cursor := page.next_page_token) is None:
                return sorted(entries)

    def load(self, numbers: range, size: int = SIZE) -> list[bool]:
        self.arena[:] = 0
        task = self.adapter.submit_load_task(self.keys(numbers), self.objects(len(numbers), size))
        loaded = self.wait(
            self.adapter.get_load_event_fd(), lambda: self.adapter.query_load_result(task)
        )
        return list(loaded.bits)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    made: list[Controller] = []

    def open_one(*args: Any, **params: Any) -> Controller:
        made.append(Controller(tmp_path / "kv", *args, **params))
        return made[-1]

    with wheels.undone():
        real_lmcache_mp.install()
        yield open_one
        for controller in made:
            controller.adapter.close()


@needs_the_wheel
@pytest.mark.parametrize("in_arena", [True, False])
@pytest.mark.parametrize("memory", [0, 4 * SIZE])
def test_objects_come_back_now_and_after_a_restart(
    opened: Open, in_arena: bool, memory: int
) -> None:
    first = opened(in_arena, memory=memory)
    assert first.store(range(COUNT)).bytes_transferred() == COUNT * SIZE
    assert first.told["stored"] == first.keys(range(COUNT))
    for controller in (first, None):
        if controller is None:
            first.adapter.close()
            controller = opened(in_arena, memory=memory)
        assert controller.look_up(range(COUNT + 2)) == [True] * COUNT + [False] * 2
        assert controller.load(range(COUNT)) == [True] * COUNT
        controller.adapter.submit_unlock(controller.keys(range(COUNT)))
        got = controller.arena.copy()
        assert (got == controller.fill(range(COUNT))).all()
        assert controller.adapter.get_usage().total_bytes_used == COUNT * SIZE


@needs_the_wheel
def test_objects_that_are_not_written_yet_are_used_bytes(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = opened(memory=4 * SIZE)
    controller.store(range(4))
    counts = SimpleNamespace(tiers=[SimpleNamespace(used=SIZE)])  # of the folder
    with monkeypatch.context() as context:
        store = SimpleNamespace(closed=False, stats=lambda: counts)
        context.setattr(controller.adapter, "_store", store)
        assert controller.adapter.get_usage().total_bytes_used == 4 * SIZE
        counts.tiers[0].used = 5 * SIZE  # one is not known
        assert controller.adapter.get_usage().total_bytes_used == 5 * SIZE


@needs_the_wheel
def test_a_flipped_bit_costs_one_object(opened: Open, tmp_path: Path) -> None:
    controller = opened()
    controller.store(range(6))
    (path,) = (tmp_path / "kv").glob("objects/blocks")
    with path.open("r+b") as file:
        right = controller.fill(range(2, 3)).tobytes()
        at = file.read().index(right)
        file.seek(at + 7)
        file.write(bytes([right[7] ^ 4]))
    assert controller.load(range(6)) == [True, True, False, True, True, True]
    assert controller.look_up(range(6)) == [True, True, False, True, True, True]


@needs_the_wheel
def test_locked_objects_stay_and_evicted_ones_are_told(opened: Open) -> None:
    controller = opened(budget=4 * SIZE)
    controller.store(range(2))
    assert controller.look_up(range(2)) == [True, True]
    for first in range(2, 14, 2):
        controller.store(range(first, first + 2))
    assert controller.load(range(2)) == [True, True]
    controller.adapter.submit_unlock(controller.keys(range(3)))  # one of them is not locked
    for first in range(14, 30, 2):
        assert controller.store(range(first, first + 2)).is_successful()
    gone = {key.chunk_hash for key in controller.told["deleted"]}
    kept = {key.chunk_hash for key in controller.told["stored"]} - gone
    there = controller.look_up(range(30))
    assert kept == {controller.key(n).chunk_hash for n in range(30) if there[n]}
    assert len(kept) == 4


@needs_the_wheel
def test_objects_of_any_size_share_the_budget(opened: Open) -> None:
    sizes = [SIZE, SIZE // 2, 3 * SIZE, 5000, 1]
    controller = opened(budget=20 * SIZE)
    for n, size in enumerate(sizes):
        assert controller.store(range(2 * n, 2 * n + 2), size).is_successful()
    assert controller.look_up(range(11)) == [True] * 10 + [False]
    controller.unlock(range(10))
    used = controller.adapter.get_usage().total_bytes_used
    assert used == 2 * sum(-(-size // 4096) * 4096 for size in sizes)
    controller.adapter.close()
    again = opened(budget=20 * SIZE)
    for n, size in enumerate(sizes):
        assert again.load(range(2 * n, 2 * n + 2), size) == [True, True]
        got = again.arena[: 2 * size].copy()
        assert (got == again.fill(range(2 * n, 2 * n + 2), size)).all()
    for number in range(20, 60):  # small ones leave for large ones, and the other way round
        assert again.store(range(number, number + 1), sizes[number % 3]).is_successful()
    assert again.adapter.get_usage().total_bytes_used >= 16 * SIZE
    assert again.load(range(55, 56), sizes[1]) == [True]


@needs_the_wheel
def test_a_key_with_another_size_is_stored_anew(opened: Open) -> None:
    controller = opened()
    controller.store(range(2))
    assert controller.load(range(2), SIZE // 2) == [False, False]
    assert controller.look_up(range(1)) == [True]
    assert not controller.store(range(1), SIZE // 2).is_successful()  # it is locked
    controller.unlock(range(1))
    for number in range(2):
        assert controller.store(range(number, number + 1), SIZE // 2).is_successful()
    assert controller.load(range(2), SIZE // 2) == [True, True]
    assert [size for _, size in controller.listed()] == [SIZE // 2] * 2
    controller.adapter.delete(controller.keys(range(2)))
    assert controller.look_up(range(2)) == [False, False] and controller.listed() == []


@needs_the_wheel
def test_objects_of_an_older_version_are_refused_or_discarded(
    opened: Open, tmp_path: Path
) -> None:
    (tmp_path / "kv" / "objects-16").mkdir(parents=True)
    with pytest.raises(headrace.InvalidError, match="older version"):
        opened()
    opened(other="discard")
    assert not (tmp_path / "kv" / "objects-16").exists()


@needs_the_wheel
def test_an_object_removed_while_a_listener_registers_is_not_reported_afterwards(
    opened: Open,
) -> None:
    controller = opened()
    controller.store(range(2))
    adapter = controller.adapter
    reports: list[tuple[str, int]] = []
    deleting = threading.Thread(target=adapter.delete, args=(controller.keys(range(2)),))

    def stored(keys: list[Any], sizes: list[int]) -> None:
        if not reports:
            deleting.start()
            deleting.join(0.2)  # it ends only where reports overtake each other
        reports.append(("stored", len(keys)))

    adapter.register_listener(
        SimpleNamespace(
            on_l2_keys_stored=stored,
            on_l2_keys_deleted=lambda keys: reports.append(("deleted", len(keys))),
            on_l2_keys_accessed=lambda keys: None,
        )
    )
    deleting.join()
    assert reports == [("stored", 2), ("deleted", 2)]


@needs_the_wheel
def test_each_of_two_loads_is_signalled(opened: Open) -> None:
    controller = opened()
    controller.store(range(4))
    poll = select.poll()
    poll.register(controller.adapter.get_load_event_fd(), select.POLLIN)
    for _ in range(50):
        keys, objects = controller.keys(range(4)), controller.objects(4)
        tasks = [controller.adapter.submit_load_task(keys[i : i + 2], objects[i : i + 2])
                 for i in (0, 2)]  # fmt: skip
        while tasks:  # as LMCache's loop: the descriptor is consumed, then each is asked
            assert poll.poll(60_000), "no event"
            os.eventfd_read(controller.adapter.get_load_event_fd())
            tasks = [each for each in tasks
                     if controller.adapter.query_load_result(each) is None]  # fmt: skip


@needs_the_wheel
def test_two_controllers_at_once(opened: Open) -> None:
    controller = opened(budget=1024 * SIZE)
    controller.store(range(COUNT))
    extra = numpy.ones(4 * SIZE, numpy.uint8)
    objects = [
        SimpleNamespace(byte_array=memoryview(part), data_ptr=part.ctypes.data)
        for part in numpy.split(extra, 4)
    ]
    stored: list[bool] = []

    def store() -> None:
        for first in range(100, 300, 4):
            task = controller.adapter.submit_store_task(
                controller.keys(range(first, first + 4)), objects
            )
            done = controller.wait(
                controller.adapter.get_store_event_fd(),
                controller.adapter.pop_completed_store_tasks,
            )
            stored.append(done[task].is_successful())

    thread = threading.Thread(target=store)
    thread.start()
    while thread.is_alive():
        assert controller.load(range(COUNT)) == [True] * COUNT
        got = controller.arena.copy()
        assert (got == controller.fill(range(COUNT))).all()
    thread.join()
    assert stored == [True] * 50


@needs_the_wheel
def test_each_unlock_releases_what_its_lookup_locked(opened: Open) -> None:
    controller = opened()
    controller.store(range(4))
    controller.look_up(range(4))
    controller.look_up(range(2, 4))
    assert controller.pinned() == 4 * SIZE
    controller.unlock(range(4))  # of the first lookup
    assert controller.pinned() == 2 * SIZE
    controller.unlock(range(2, 4))
    assert controller.pinned() == 0
    assert controller.look_up(range(2)) == [True, True]
    controller.unlock(range(1))
    assert controller.pinned() == SIZE


@needs_the_wheel
def test_a_key_that_is_twice_in_a_lookup_is_locked_twice(opened: Open) -> None:
    controller = opened()
    controller.store(range(1))
    key = controller.key(0)
    task = controller.adapter.submit_lookup_and_lock_task([key, key], {})
    assert controller.adapter.query_lookup_and_lock_result(task).popcount() == 2
    controller.unlock(range(1))
    assert controller.pinned() == SIZE
    controller.unlock(range(1))
    assert controller.pinned() == 0


@needs_the_wheel
@pytest.mark.parametrize("page_size", [1, 3, 500])
def test_keys_are_listed_now_and_after_a_restart(opened: Open, page_size: int) -> None:
    def hashes(numbers: range, size: int = SIZE) -> list[tuple[str, int]]:
        return [(first.key(number).chunk_hash.hex(), size) for number in numbers]

    first = opened(budget=16 * SIZE)
    first.store(range(8))
    first.store(range(20, 22), SIZE // 2)
    everything = sorted(hashes(range(8)) + hashes(range(20, 22), SIZE // 2))
    assert first.listed(page_size) == everything
    assert first.listed(page_size, "org/model") == everything
    assert first.listed(page_size, "other") == []
    first.adapter.delete(first.keys(range(7, 8)))
    first.adapter.close()
    again = opened(budget=16 * SIZE)
    kept = sorted(hashes(range(7)) + hashes(range(20, 22), SIZE // 2))
    assert again.listed(page_size) == kept
    assert sorted(key.chunk_hash.hex() for key in again.told["stored"]) == [key for key, _ in kept]
    usage = again.adapter.get_usage()
    assert usage.bytes_by_cache_salt == {"": usage.total_bytes_used} == {"": 8 * SIZE}
    for number in range(30, 50):  # what an earlier process stored is reported when it leaves
        again.store(range(number, number + 1))
    gone = {key.chunk_hash for key in again.told["deleted"]}
    assert gone & {again.key(number).chunk_hash for number in range(7)}
    there = again.look_up(range(60))
    assert again.listed(page_size) == sorted(
        (again.key(number).chunk_hash.hex(), SIZE // 2 if number in (20, 21) else SIZE)
        for number in range(60)
        if there[number]
    )


@needs_the_wheel
def test_damaged_lists_of_keys_list_what_is_whole(opened: Open, tmp_path: Path) -> None:
    first = opened()
    first.store(range(4))
    first.adapter.close()
    path = tmp_path / "kv" / "keys"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"\xff\n" + lines[0] + b"@@\n" + lines[2] + lines[1][: len(lines[1]) // 2])
    again = opened()
    assert len(again.listed()) == 2 and again.look_up(range(4)) == [True] * 4
    again.store(range(4, 5))
    again.adapter.close()
    assert len(opened().listed()) == 3
    for cursor in ("x", "1-x", "-00", ""):
        with pytest.raises(ValueError):
            again.adapter.list_l2_keys(cursor=cursor)
    with pytest.raises(ValueError, match="at least 1"):
        again.adapter.list_l2_keys(page_size=0)


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import real_lmcache_mp, test_lmcache_mp as tests
real_lmcache_mp.install()
controller = tests.Controller(Path(sys.argv[2]), memory=int(sys.argv[3]), budget=40 * tests.SIZE)
for turn in range(10 ** 6):
    print("store", flush=True)
    numbers = range(turn % 4 * tests.COUNT, (turn % 4 + 1) * tests.COUNT)
    controller.store(numbers, tests.SIZE >> (turn // 4 % 2))
    if turn % 3 == 0:
        controller.adapter.delete(controller.keys(numbers[:4]))
"""


@needs_the_wheel
@pytest.mark.parametrize("memory", [0, 4 * SIZE])
def test_a_server_killed_while_it_writes_leaves_no_wrong_object(
    opened: Open, tmp_path: Path, memory: int
) -> None:
    found = 0
    for attempt in range(3):
        wheels.kill_a_writer(WRITER, tmp_path / "kv", memory, stores=2 * attempt + 1)
        controller = opened(memory=memory, budget=40 * SIZE)
        for size in (SIZE, SIZE // 2):
            for first in range(0, 4 * COUNT, COUNT):
                numbers = range(first, first + COUNT)
                loaded = controller.load(numbers, size)
                got = controller.arena.copy()
                right = controller.fill(numbers, size)
                for i, there in enumerate(loaded):
                    part = slice(i * size, (i + 1) * size)
                    assert not there or (got[part] == right[part]).all()
                found += sum(loaded)
        controller.adapter.close()
    assert found > 0


@needs_the_wheel
def test_lmcaches_fault_injecting_adapter_runs_around_ours(opened: Open) -> None:
    faults = {"type": "fault_inject", "rate": 0.25, "seed": 3, "gap_indices": [5]}
    controller = opened(around=faults, budget=256 * SIZE)
    dropped = 0
    for first in range(0, 120, COUNT):
        numbers = range(first, first + COUNT)
        assert controller.store(numbers).is_successful()
        assert controller.look_up(numbers) == [True] * COUNT
        came = controller.load(numbers)
        got = controller.arena.copy()
        right = controller.fill(numbers)
        assert not came[5]
        for i, has in enumerate(came):
            assert not has or (got[i * SIZE : (i + 1) * SIZE] == right[i * SIZE :][:SIZE]).all()
        dropped += came.count(False)
        controller.unlock(numbers)
    assert 10 < dropped < 60 and controller.pinned() == 0
    assert controller.adapter.report_status()["fault_inject"]["rate"] == 0.25


@needs_the_wheel
def test_settings_are_checked(opened: Open) -> None:
    for settings, told in (
        ({"path": "x"}, "no setting 'path'; there are folder, budget, memory"),
        ({"budget": "much"}, "much"),
        ({"verify": "none"}, "there are all, found"),
        ({"workers": 0}, "give at least 1"),
        ({"revision": 3}, "revision is 3; give str"),
    ):
        with pytest.raises(headrace.InvalidError, match=told):
            opened(**settings)
    with pytest.raises(headrace.AbsentError, match="no folder /nowhere; make it"):
        Controller(Path("/nowhere/kv"))
    first = opened()
    first.store(range(1))
    first.adapter.close()
    with pytest.raises(headrace.InvalidError, match="another geometry, model or revision"):
        opened(revision="2")
