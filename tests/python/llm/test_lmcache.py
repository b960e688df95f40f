# SPDX-License-Identifier: Apache-2.0
"""The storage plug-in of LMCache, on stand-ins for what LMCache gives it, and on LMCache itself
where it is installed.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_lmcache
import numpy
import pytest
from fake_lmcache import Allocator, Key, MemoryObj, config, metadata

import headrace
from headrace import kvcache

CHUNK = 2 * fake_lmcache.LAYERS * fake_lmcache.TENSORS * fake_lmcache.TOKENS * 64
Open = Callable[..., Any]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a back end: 4 chunks in memory, 64 in a folder."""
    fake_lmcache.install(monkeypatch)
    module = importlib.import_module("headrace.lmcache")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = []

    def open_one(
        tiers: Any = None, meta: Any = None, layerwise: bool = False, revision: Any = "1"
    ) -> Any:
        usual = [{"memory": "dram", "bytes": 4 * CHUNK},
                 {"folder": str(tmp_path / "kv"), "bytes": 64 * CHUNK}]  # fmt: skip
        made.append(
            module.Backend(
                config(usual if tiers is None else tiers, layerwise, revision),
                meta or metadata(), Allocator(), loop,
            )
        )  # fmt: skip
        return made[-1]

    yield open_one
    for backend in made:
        backend.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    sys.modules.pop("headrace.lmcache", None)


def chunk(number: int, size: int = CHUNK) -> MemoryObj:
    made = MemoryObj(size)
    made.array[:] = numpy.random.default_rng(number).integers(0, 256, size, numpy.uint8)
    return made


def put(backend: Any, numbers: range) -> list[MemoryObj]:
    """Chunks that are kept when it returns."""
    chunks = [chunk(number) for number in numbers]
    told: list[int] = []
    for number, one in zip(numbers, chunks, strict=True):
        begun = backend.batched_submit_put_task(
            [Key(number)], [one], on_complete_callback=lambda key: told.append(key.number)
        )
        begun[0].result(60)
    barrier = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), backend.loop)
    barrier.result(60)  # callbacks come last
    assert told == list(numbers)
    return chunks


def same(found: Any, number: int) -> bool:
    return bool((found.array == chunk(number).array).all())


def test_put_blocks_come_back_and_release_their_memory(opened: Open) -> None:
    backend = opened()
    chunks = put(backend, range(20))  # five times what the memory holds
    assert all(one.references == 1 for one in chunks)
    keys = [Key(number) for number in range(22)]
    assert backend.batched_contains(keys) == 20 and not backend.contains(Key(20))
    found = backend.batched_get_blocking(keys)
    assert found[20:] == [None, None]
    assert all(same(one, number) for number, one in enumerate(found[:20]))
    later = backend.batched_get_non_blocking("lookup", keys)
    found = asyncio.run_coroutine_threadsafe(later, backend.loop).result(60)
    assert len(found) == 20 and all(same(one, number) for number, one in enumerate(found))
    assert backend.get_blocking(Key(99)) is None
    assert backend.batched_get_blocking([Key(99), Key(0)]) == [None, None]  # a beginning
    assert all(one.references == 1 for one in backend.local_cpu_backend.given)
    assert backend.get_allocator_backend() is backend.local_cpu_backend


def test_pins(opened: Open) -> None:
    backend = opened([{"memory": "dram", "bytes": 4 * CHUNK}])
    put(backend, range(2))
    count = backend.batched_async_contains("lookup", [Key(0), Key(1), Key(7)], pin=True)
    assert asyncio.run(count) == 2
    assert backend.pin(Key(1)) and not backend.pin(Key(9))
    put(backend, range(10, 13))
    assert backend.batched_contains([Key(0), Key(1)]) == 2
    assert backend._opened().stats().pinned == 2 * CHUNK
    assert [backend.unpin(Key(i)) for i in (0, 1, 1, 1)] == [True, True, True, False]
    assert backend._opened().stats().pinned == 0 and not backend.remove(Key(0))


def test_a_damaged_chunk_is_not_served(opened: Open, tmp_path: Path) -> None:
    backend = opened()
    put(backend, range(12))
    blocks = tmp_path / "kv" / "worker-0" / "blocks"
    blocks.write_bytes(bytes(byte ^ 1 for byte in blocks.read_bytes()))
    found = backend.batched_get_blocking([Key(number) for number in range(12)])
    good = next((i for i, one in enumerate(found) if one is None), 12)
    assert good < 12 and found[good:] == [None] * (12 - good)
    assert all(same(one, number) for number, one in enumerate(found[:good]))
    backend.close()  # waits for what was cancelled
    given = backend.local_cpu_backend.given
    assert [one.references for one in given] == [1] * good + [0] * (len(given) - good)


def test_without_memory_of_lmcache_fewer_come(opened: Open) -> None:
    backend = opened()
    put(backend, range(4))
    backend.local_cpu_backend.most = 3
    found = backend.batched_get_blocking([Key(number) for number in range(4)])
    assert found[3] is None and all(same(found[i], i) for i in range(3))


def test_a_load_that_cannot_begin_ends_the_prefix(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened()
    put(backend, range(4))
    store, begun = backend._opened(), []

    def load(self: kvcache.Store, keys: Any, into: Any, **options: Any) -> kvcache.Load:
        begun.append(keys)
        if len(begun) == 3:
            raise headrace.ExhaustedError("no room")
        return real(self, keys, into, **options)

    real = type(store).load
    monkeypatch.setattr(type(store), "load", load)
    found = backend.batched_get_blocking([Key(number) for number in range(4)])
    assert found[2:] == [None, None] and all(same(found[i], i) for i in range(2))
    assert [one.references for one in backend.local_cpu_backend.given] == [1, 1, 0]


class Stuck:
    """A load or store that ends only on request."""

    def __init__(self, wait: Callable[[float], Any] | None = None) -> None:
        self.ended = self.cancelled = False
        self._wait = wait

    def done(self) -> bool:
        return self.ended

    def wait(self, timeout: float = 60.0) -> Any:
        if self._wait is not None:
            return self._wait(timeout)
        raise headrace.TimedOutError("not yet")

    def __await__(self) -> Any:
        return asyncio.sleep(3600).__await__()

    def cancel(self) -> None:
        self.cancelled = True


def stick(
    monkeypatch: pytest.MonkeyPatch, backend: Any, call: str, wait: Any = None
) -> list[Stuck]:
    """From now on no load or store of it ends by itself."""
    made: list[Stuck] = []

    def begin(self: kvcache.Store, *arguments: Any, **options: Any) -> Stuck:
        made.append(Stuck(wait))
        return made[-1]

    monkeypatch.setattr(type(backend._opened()), call, begin)
    return made


def given_back_when_ended(backend: Any, loads: list[Stuck]) -> None:
    backend.contains(Key(99))
    gc.collect()
    given = backend.local_cpu_backend.given
    assert len(given) == len(loads) and all(load.cancelled for load in loads)
    assert [one.freed for one in given] == [False] * len(given)
    for number, load in enumerate(loads):
        load.ended = True
        backend.contains(Key(99))
        gc.collect()
        assert [one.freed for one in given].count(True) == number + 1
    assert [one.references for one in given] == [0] * len(given)


def interrupt(timeout: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("what", ["late", "interrupted", "no memory"])
def test_memory_is_not_given_back_while_a_load_writes(
    opened: Open, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    backend = opened()
    put(backend, range(3))
    keys = [Key(number) for number in range(3)]
    loads = stick(monkeypatch, backend, "load", interrupt if what == "interrupted" else None)
    if what == "late":
        assert backend.batched_get_blocking(keys) == [None] * 3
    elif what == "interrupted":
        with pytest.raises(KeyboardInterrupt):
            backend.batched_get_blocking(keys)
    else:
        backend.local_cpu_backend.breaks = 2
        with pytest.raises(MemoryError):
            backend.batched_get_blocking(keys)
    given_back_when_ended(backend, loads)


@pytest.mark.parametrize("what", ["late", "cancelled"])
def test_nor_while_one_writes_that_was_awaited(
    opened: Open, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    backend = opened()
    put(backend, range(3))
    loads = stick(monkeypatch, backend, "load")
    later = backend.batched_get_non_blocking("lookup", [Key(number) for number in range(3)])
    if what == "late":
        monkeypatch.setattr(sys.modules["headrace.lmcache"], "_LOAD_SECONDS", 0.01)
        assert asyncio.run_coroutine_threadsafe(later, backend.loop).result(60) == []
    else:

        async def cancelled() -> None:
            task = asyncio.ensure_future(later)
            while len(loads) < 3:
                await asyncio.sleep(0)
            task.cancel()
            await task

        with pytest.raises(CancelledError):
            asyncio.run_coroutine_threadsafe(cancelled(), backend.loop).result(60)
    given_back_when_ended(backend, loads)


def test_one_bound_for_all_loads_of_a_call(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = opened()
    put(backend, range(4))
    now, bounds = [100.0], []

    def slow(timeout: float) -> None:
        bounds.append(timeout)
        now[0] += 40.0
        if timeout == 0.0:
            raise headrace.TimedOutError("not yet")

    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(sys.modules["headrace.lmcache"], "time", clock)
    loads = stick(monkeypatch, backend, "load", slow)
    found = backend.batched_get_blocking([Key(number) for number in range(4)])
    assert [one is not None for one in found] == [True, True, False, False]
    assert bounds == [60.0, 20.0, 0.0]  # nobody waits for the fourth
    assert [load.cancelled for load in loads] == [False, False, True, True]
    for load in loads:
        load.ended = True


def test_a_chunk_keeps_its_reference_until_its_copy_has_ended(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, one = opened(), chunk(1)
    stores = stick(monkeypatch, backend, "store")
    (task,) = backend.batched_submit_put_task([Key(1)], [one])
    assert task.cancel()
    barrier = asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), backend.loop)
    barrier.result(60)
    assert backend.exists_in_put_tasks(Key(1)) and one.references == 2
    assert backend.batched_submit_put_task([Key(1)], [one]) is None
    stores[0].ended = True
    assert not backend.exists_in_put_tasks(Key(1)) and one.references == 1


def test_a_closed_loop_keeps_no_chunk(opened: Open) -> None:
    backend, one = opened(), chunk(1)
    backend.loop = asyncio.new_event_loop()
    backend.loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        backend.batched_submit_put_task([Key(1)], [one])
    backend.close()
    assert one.references == 1 and not backend.exists_in_put_tasks(Key(1))


def test_chunks_of_other_weights_are_not_served(opened: Open) -> None:
    backend = opened()
    put(backend, range(3))
    backend.close()
    with pytest.raises(headrace.InvalidError, match="another geometry, model or revision"):
        opened(revision="2")
    assert opened().contains(Key(2))


@pytest.mark.parametrize("revision", [None, "", 7])
def test_a_folder_asks_for_a_revision(opened: Open, revision: Any) -> None:
    with pytest.raises(headrace.InvalidError, match=r"headrace\.revision, a string that changes"):
        opened(revision=revision)


def test_memory_alone_asks_for_none(opened: Open) -> None:
    put(opened([{"memory": "dram", "bytes": 4 * CHUNK}], revision=None), range(2))


def test_chunks_of_another_size_are_not_kept(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    backend = opened()
    short = [chunk(1, CHUNK // 2), chunk(2, CHUNK // 4)]
    assert backend.batched_submit_put_task([Key(1), Key(2)], short) is None
    assert [one.references for one in short] == [1, 1]
    assert caplog.text.count("is not kept: those of the configuration have") == 1


def test_single_layers(opened: Open) -> None:
    size = CHUNK // fake_lmcache.LAYERS
    backend = opened([{"memory": "dram", "bytes": 8 * size}], layerwise=True)
    backend.batched_submit_put_task([Key(5)], [chunk(5, size)])[0].result(60)
    assert (backend.get_blocking(Key(5)).array == chunk(5, size).array).all()


@pytest.mark.parametrize(
    ("tiers", "told"),
    [
        ([], "no tiers; give extra_config a list"),
        ([{"memory": "dram"}], "is no tier; write"),
        ([{"memory": "dram", "folder": "x", "bytes": 1}], "is no tier; write"),
        ([{"memory": "dram", "bytes": 5}], "budget"),
        ([{"folder": "/proc/none/kv", "bytes": 5}], "cannot make /proc/none/kv"),
    ],
)
def test_bad_configuration(opened: Open, tiers: Any, told: str) -> None:
    with pytest.raises(headrace.Error, match=told):
        opened(tiers)


def test_layers_of_latent_attention_are_refused(opened: Open) -> None:
    with pytest.raises(headrace.InvalidError, match="use_layerwise: false"):
        opened(meta=metadata(mla=True), layerwise=True)


def test_headrace_alone_does_not_ask_for_lmcache() -> None:
    program = "import sys, headrace, headrace.kvcache; print('lmcache' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.stdout == "False\n", told


def test_lmcache_itself_loads_it(tmp_path: Path) -> None:
    """In a process of its own, since importing it takes seconds and warns."""
    pytest.importorskip("torch", reason="needs pip install lmcache")
    pytest.importorskip("lmcache.v1", reason="needs pip install lmcache")
    program = Path(__file__).with_name("real_lmcache.py")
    told = subprocess.run(
        [sys.executable, program, tmp_path], capture_output=True, text=True, timeout=300
    )
    assert told.returncode == 0 and told.stdout.splitlines()[-1] == "as it was put", told


def test_a_chunk_whose_reference_fails_may_come_again(opened: Open) -> None:
    backend = opened()

    class Freed(MemoryObj):
        def ref_count_up(self) -> None:
            raise RuntimeError("freed")

    with pytest.raises(RuntimeError, match="freed"):
        backend.batched_submit_put_task([Key(0)], [Freed(CHUNK)])
    assert not backend.exists_in_put_tasks(Key(0))
    put(backend, range(1))
    with pytest.raises(headrace.InvalidError, match="2 keys for 1 chunks"):
        backend.batched_submit_put_task([Key(1), Key(2)], [chunk(1)])
    assert not backend.contains(Key(1)) and not backend.exists_in_put_tasks(Key(1))


@pytest.mark.parametrize(
    "tiers",
    [
        None,
        5,
        [5],
        {"memory": "dram"},
        [{"memory": "dram"}],
        [{"memory": 5, "bytes": 8000000}],
        [{"memory": "dram", "bytes": 8e9}],
        [{"memory": "dram", "bytes": "1G"}],
        [{"memory": "dram", "bytes": True}],
        [{"memory": "dram", "bytes": -1}],
        [{"folder": "", "bytes": 8000000}],
        [{"memory": "dram", "folder": "x", "bytes": 1}],
        [{"memory": "dram", "bytes": 1, "more": 1}],
    ],
)
def test_tiers_of_other_types_are_said_in_one_line(opened: Open, tiers: Any) -> None:
    with pytest.raises(headrace.InvalidError, match="no tier; write") as error:
        importlib.import_module("headrace.lmcache")._tiers(
            SimpleNamespace(extra_config={"headrace.tiers": tiers}), 0
        )
    assert "\n" not in str(error.value)
