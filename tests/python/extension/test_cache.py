# SPDX-License-Identifier: Apache-2.0
"""Cache, Block and Prefetch from Python: values, pins, views."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from programs import outcome_of

import headrace

BUDGET = 16 << 20


@pytest.fixture
def cache(mover: headrace.Mover, memory_node: int) -> headrace.Cache:
    return headrace.Cache(mover, {memory_node: BUDGET}, slab=4 << 20)


@pytest.fixture
def file(machine: headrace.Machine, payload_file: Path) -> headrace.File:
    return headrace.File.open(machine, payload_file)


def test_a_block_has_the_bytes(
    cache: headrace.Cache, file: headrace.File, payload: bytes, memory_node: int
) -> None:
    with cache.access(file.extent(4096, 1 << 20)) as block:
        assert block.wait() == payload[4096 : 4096 + (1 << 20)]
        assert block.state == "ready" and block.node == memory_node
        assert block.now() == block.wait()
        assert len(block) == 1 << 20 and block.extent == file.extent(4096, 1 << 20)
        assert bytes(memoryview(block)[:10]) == payload[4096:4106]
    stats = cache.stats()
    assert (stats.misses, stats.hits + stats.inflight_hits) == (1, 0)
    with cache.access(file.extent(8192, 100)) as inside:
        assert inside.wait() == payload[8192:8292]
    assert cache.stats().hits == 1
    assert cache.stats().copy_latency.count == 1


def full(cache: headrace.Cache, file: headrace.File) -> list[headrace.Block]:
    """Blocks that hold the whole budget."""
    blocks = cache.access_all([file.extent(at, 1 << 20) for at in range(0, BUDGET, 1 << 20)])
    for block in blocks:
        block.wait()
    return blocks


@pytest.fixture
def long_file(machine: headrace.Machine, tmp_path: Path) -> headrace.File:
    path = tmp_path / "long"
    with path.open("wb") as out:
        out.truncate(BUDGET + (2 << 20))
    return headrace.File.open(machine, path)


def test_space_timeout_waits_until_a_block_is_released(
    cache: headrace.Cache, long_file: headrace.File
) -> None:
    blocks = full(cache, long_file)
    wanted = long_file.extent(BUDGET, 1 << 20)
    with pytest.raises(headrace.ExhaustedError):
        cache.access(wanted).wait()
    with pytest.raises(headrace.ExhaustedError):
        cache.access(wanted, space_timeout=0.01).wait()
    release = threading.Timer(0.1, blocks.pop().release)
    release.start()
    with cache.access(wanted, space_timeout=60) as block:
        assert block.wait() == bytes(1 << 20)
        release.join()
        timer = threading.Timer(0.1, blocks.pop().release)
        timer.start()
        other = long_file.extent(BUDGET + (1 << 20), 1 << 20)
        with cache.access_all([other, wanted], space_timeout=60)[0] as second:
            assert second.wait() == bytes(1 << 20)
        timer.join()


@pytest.mark.parametrize("many", [False, True])
def test_a_signal_ends_the_wait_for_space(
    cache: headrace.Cache, long_file: headrace.File, many: bool
) -> None:
    blocks = full(cache, long_file)
    wanted = long_file.extent(BUDGET, 1 << 20)

    def handler(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            if many:
                cache.access_all([wanted], space_timeout=3600)
            else:
                cache.access(wanted, space_timeout=3600)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    blocks.pop().release()
    assert cache.access(wanted).wait() == bytes(1 << 20)


def test_arrays_straight_from_a_block(
    cache: headrace.Cache, file: headrace.File, payload: bytes
) -> None:
    block = cache.access(file.extent(0, 1 << 20))
    array = block.numpy("<i4")
    assert (array == numpy.frombuffer(payload[: 1 << 20], "<i4")).all()
    assert not array.flags.writeable
    assert numpy.shares_memory(array, block.numpy())
    imported = numpy.from_dlpack(block)
    assert numpy.shares_memory(imported, array) and not imported.flags.writeable
    assert block.__dlpack_device__() == (1, 0)
    with pytest.raises(ValueError):
        cache.access(file.extent(0, 3)).numpy("int32")


VIEWS: dict[str, Callable[[headrace.Block], Any]] = {
    "numpy": headrace.Block.numpy,
    "wait": headrace.Block.wait,
    "now": headrace.Block.now,
    "memoryview": memoryview,
    "dlpack": numpy.from_dlpack,
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_holds_the_pin(
    machine: headrace.Machine, mover: headrace.Mover, memory_node: int, payload_file: Path,
    payload: bytes, view: str,
) -> None:  # fmt: skip
    cache = headrace.Cache(mover, {memory_node: 1 << 20}, slab=1 << 20)
    file = headrace.File.open(machine, payload_file)
    block = cache.access(file.extent(0, 1 << 20))
    block.wait()
    kept = VIEWS[view](block)
    block.release()
    del block
    gc.collect()
    assert cache.stats().bytes_pinned == 1 << 20
    # No room beside the pin: the other extent is refused instead of overwriting this one.
    with pytest.raises(headrace.Error):
        cache.access(file.extent(1 << 20, 1 << 20)).wait()
    assert bytes(kept) == payload[: 1 << 20]
    del file, cache, mover
    gc.collect()
    assert bytes(kept) == payload[: 1 << 20]


def test_a_released_block(cache: headrace.Cache, file: headrace.File) -> None:
    block = cache.access(file.extent(0, 100))
    twin = block.clone()
    block.release()
    block.release()
    assert repr(block) == "Block(released)"
    for use in (block.wait, block.now, block.numpy, block.clone, lambda: block.state):
        with pytest.raises(headrace.InvalidError, match="released"):
            use()
    with pytest.raises(headrace.InvalidError):
        memoryview(block)
    assert len(twin.wait()) == 100


def test_blocks_are_awaited(
    cache: headrace.Cache, file: headrace.File, payload: bytes, memory_node: int
) -> None:
    mebibyte = 1 << 20
    extents = [file.extent(i * mebibyte // 4, mebibyte // 4) for i in range(12)]

    async def bytes_of(extent: headrace.Extent) -> bytes:
        with cache.access(extent) as block:
            return bytes(await block)

    async def main() -> list[bytes]:
        return await asyncio.gather(*(bytes_of(extent) for extent in extents * 2))

    for _ in range(2):  # misses, then hits
        for extent, found in zip(extents * 2, asyncio.run(main()), strict=True):
            assert found == payload[extent.offset : extent.offset + extent.length]

    async def released() -> bytes:
        block = cache.access(file.extent(2 * mebibyte, mebibyte))
        task = asyncio.ensure_future(_awaited(block))
        await asyncio.sleep(0)
        block.release()
        return bytes(await task)

    assert asyncio.run(released()) == payload[2 * mebibyte : 3 * mebibyte]
    gone = cache.access(file.extent(0, 1))
    gone.release()
    with pytest.raises(headrace.InvalidError, match="released"):
        asyncio.run(_awaited(gone))


async def _awaited(block: headrace.Block) -> memoryview:
    return await block


def test_prefetch(cache: headrace.Cache, file: headrace.File, payload: bytes) -> None:
    extents = [file.extent(i << 18, 1 << 18) for i in range(12)]
    with cache.prefetch(extents, lead=1.0, window=2 << 20) as plan:
        for i, extent in enumerate(extents):
            with cache.access(extent) as block:
                assert block.wait() == payload[i << 18 : (i + 1) << 18]
        progress = plan.progress()
    assert (progress.planned, progress.used) == (12, 12) and not progress.cancelled
    assert plan.progress().cancelled or plan.progress().used == 12
    stats = cache.stats()
    assert stats.prefetched + stats.misses == 12
    dropped = cache.prefetch([file.extent(0, 1 << 20)])
    del dropped
    gc.collect()


def test_strided_plan_is_used_by_its_extents(
    cache: headrace.Cache, file: headrace.File, payload: bytes
) -> None:
    every = headrace.Strided(file.extent(4096, 1 << 20), 4096, stride=1 << 16)
    assert (every.offset, every.length, every.stride, every.count) == (4096, 4096, 1 << 16, 16)
    with cache.prefetch(every, named=True) as plan:
        for at in range(every.offset, every.offset + every.count * every.stride, every.stride):
            with cache.access(file.extent(at, 4096), plan=plan) as block:
                assert block.wait() == payload[at : at + 4096]
        progress = plan.progress()
    assert (progress.planned, progress.used, progress.invalid) == (16, 16, 0)
    assert cache.stats().prefetched == 16


def test_strided_without_count_has_what_lies_in_its_source(
    cache: headrace.Cache, file: headrace.File
) -> None:
    assert headrace.Strided(file, 1 << 20).count == file.size >> 20
    assert headrace.Strided(file.extent(0, 100), 50, stride=51).count == 1
    assert headrace.Strided(file.extent(0, 100), 101).count == 0
    far = headrace.Strided(file, 4096, stride=1 << 62, count=10**9)
    with cache.prefetch(far) as plan:
        assert plan.progress().invalid == 10**9 - 1
    for length, stride in ((0, 1), (1, 0)):
        with pytest.raises(headrace.InvalidError, match="0 bytes"):
            headrace.Strided(file, length, stride=stride)


def test_explain_says_where_an_extent_is(
    cache: headrace.Cache, file: headrace.File, memory_node: int
) -> None:
    extent = file.extent(0, 1 << 20)
    before = cache.explain(extent)
    assert (before.state, before.node, before.dirty) == ("absent", memory_node, False)
    assert before.text.startswith("not cached; a copy to node")
    cache.access(extent).wait()
    assert cache.explain(extent, initiator=memory_node).state == "ready"
    assert cache.stats().hits == 0, "explaining is no access"
    large = cache.explain(file.extent(0, file.size))
    assert (large.refusal is None) == (file.size <= BUDGET)
    with pytest.raises(headrace.InvalidError, match="no bytes"):
        cache.explain(file.extent(0, 0))


def test_a_plan_counts_the_accesses_that_name_it(
    cache: headrace.Cache, file: headrace.File
) -> None:
    extents = [file.extent(i << 18, 1 << 18) for i in range(8)]
    with cache.prefetch(extents) as plan, cache.prefetch(extents) as other:
        cache.access(extents[0], plan=plan).wait()
        cache.access(extents[1], plan=None).wait()
        assert (plan.progress().used, other.progress().used) == (1, 1)
        for block in cache.access_all(extents[1:], plan=plan):
            block.wait()
        assert (plan.progress().used, other.progress().used) == (8, 1)
    with pytest.raises(TypeError):
        cache.access(extents[0], plan=extents)  # type: ignore[arg-type]


def test_invalidate_and_friends(
    machine: headrace.Machine, cache: headrace.Cache, memory_node: int
) -> None:
    source = headrace.allocate(machine, 1 << 16)
    source.numpy()[:] = 1
    assert set(bytes(cache.access(source).wait())) == {1}
    source.numpy()[:] = 2
    cache.invalidate(source.extent(0, 10))
    assert set(bytes(cache.access(source).wait())) == {2}
    cache.resize(memory_node, 1 << 20)
    cache.clear()
    assert cache.stats().bytes_used == 0
    with pytest.raises(headrace.AbsentError):
        cache.resize(777, 1)


def test_tenants_share_a_cache(
    mover: headrace.Mover, memory_node: int, file: headrace.File
) -> None:
    tenants = {"a": (0.5, 1.0), "b": (0.0, 0.25)}
    cache = headrace.Cache(mover, {memory_node: 8 << 16}, tenants=tenants)
    for at in range(0, 32 << 16, 1 << 16):
        extent = file.extent(at, 1 << 16)
        cache.access(extent, tenant="b", keep="shorter").wait()
        cache.read(extent, tenant="b")
        cache.view(extent, tenant="b")
    cache.access_all([file.extent(0, 1 << 16)], tenant="a", keep="longer")[0].wait()
    with cache.prefetch([file.extent(1 << 20, 1 << 16)], tenant="a"):
        cache.readinto(file.extent(1 << 20, 10), bytearray(10), tenant="a")
    others, a, b = cache.stats().tenants
    assert (others.name, a.name, b.name) == ("", "a", "b")
    assert others.hits + others.misses == 0 and a.hits + a.misses >= 2
    assert b.bytes_used <= 2 << 16 and b.evictions > 0 and b.hits > 0
    assert 'headrace_cache_tenant_used_bytes{cache="cache",tenant="b"}' in cache.metrics()
    cache.set_tenant(file, "a")
    cache.read(file.extent(2 << 20, 1 << 16))
    cache.set_tenant(file, None)
    after, owner, _ = cache.stats().tenants
    assert after.hits + after.misses == 0 and owner.misses == a.misses + 1
    with pytest.raises(headrace.AbsentError, match="no tenant 'c'"):
        cache.access(file.extent(0, 10), tenant="c")
    with pytest.raises(headrace.AbsentError, match="no tenant 'c'"):
        cache.set_tenant(file, "c")
    extent, misses = file.extent(0, 10), cache.stats().misses
    for call in (
        lambda: cache.access(extent, initiator=77),
        lambda: cache.access_all([extent], initiator=77),
        lambda: cache.prefetch([extent], initiator=77),
        lambda: cache.prefetch(headrace.Strided(file, 10), initiator=77),
        lambda: cache.explain(extent, initiator=77),
    ):
        with pytest.raises(headrace.AbsentError, match="no node 77"):
            call()
    assert cache.stats().misses == misses
    with pytest.raises(headrace.InvalidError, match="normal, longer, shorter"):
        cache.access(file.extent(0, 10), keep="for ever")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidError, match="add up"):
        headrace.Cache(mover, {memory_node: 1 << 20}, tenants={"a": (0.6, 1), "b": (0.6, 1)})


def test_tenant_with_a_bound_on_pins_holds_no_more(
    mover: headrace.Mover, memory_node: int, file: headrace.File
) -> None:
    low = headrace.CacheTenant(least=0.25, most_pinned=0.25, priority="prefetch")
    cache = headrace.Cache(mover, {memory_node: 8 << 16}, tenants={"low": low, "b": (0, 1)})
    held = [cache.access(file.extent(at << 16, 1 << 16), tenant="low") for at in range(2)]
    refused = cache.access(file.extent(2 << 16, 1 << 16), tenant="low")
    with pytest.raises(headrace.ExhaustedError, match="tenant 'low' may not hold 64 KiB more"):
        refused.wait()
    assert len(cache.read(file.extent(2 << 16, 1 << 16), tenant="low")) == 1 << 16
    cache.access(file.extent(2 << 16, 1 << 16), tenant="b").wait()
    del held[0]
    cache.access(file.extent(2 << 16, 1 << 16), tenant="low").wait()
    with pytest.raises(headrace.InvalidError, match="most_pinned 2"):
        headrace.Cache(
            mover, {memory_node: 1 << 20}, tenants={"a": headrace.CacheTenant(most_pinned=2)}
        )


@pytest.mark.parametrize("how", ["read", "readinto", "view"])
def test_blocks_kept_shorter_leave_the_others(
    how: str, mover: headrace.Mover, memory_node: int, file: headrace.File
) -> None:
    cache = headrace.Cache(mover, {memory_node: 16 << 16}, slab=1 << 20)
    kept = [file.extent(at, 1 << 16) for at in range(0, 8 << 16, 1 << 16)]
    for extent in kept:
        cache.access(extent).wait()
    for at in range(8 << 16, 32 << 16, 1 << 16):
        extent = file.extent(at, 1 << 16)
        if how == "read":
            cache.read(extent, block=1 << 16, keep="shorter")
        elif how == "readinto":
            cache.readinto(extent, bytearray(1 << 16), block=1 << 16, keep="shorter")
        else:
            cache.view(extent, keep="shorter")
    assert all(cache.access(extent).hit for extent in kept)


def test_a_curve_gives_the_misses_of_each_budget(
    mover: headrace.Mover, memory_node: int, file: headrace.File
) -> None:
    cache = headrace.Cache(mover, {memory_node: 1 << 20}, curve=True)
    assert cache.miss_ratio_curve() == []
    for _ in range(4):
        for at in range(0, 4 << 16, 1 << 16):
            cache.access(file.extent(at, 1 << 16)).wait()
    assert cache.miss_ratio_curve() == [(4 << 16, 0.25)]
    with pytest.raises(headrace.InvalidError, match="curve"):
        headrace.Cache(mover, {memory_node: 1 << 20}).miss_ratio_curve()


def test_caches_that_make_no_sense(
    machine: headrace.Machine, mover: headrace.Mover, memory_node: int
) -> None:
    storage = machine.of_kind("storage")[0].id
    with pytest.raises(headrace.InvalidError):
        headrace.Cache(mover, {})
    with pytest.raises(headrace.InvalidError):
        headrace.Cache(mover, {storage: 1 << 20})
    with pytest.raises(headrace.InvalidError, match="s3-fifo, sieve, clock"):
        headrace.Cache(mover, {memory_node: 1 << 20}, eviction="lru")
    with pytest.raises(headrace.AbsentError):
        headrace.Cache(mover, {memory_node: 1 << 20}, route="scenic")
    assert headrace.Cache(mover, {memory_node: 1 << 20}, eviction="clock", placement=memory_node)


def test_sources_nobody_holds_are_let_go(
    cache: headrace.Cache, machine: headrace.Machine, payload_file: Path, payload: bytes
) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    # Read once first: a thread keeps descriptors for its reads.
    bytes(cache.access(headrace.File.open(machine, payload_file)).wait())
    cache.clear()
    gc.collect()
    before = descriptors()
    for _ in range(300):
        block = cache.access(headrace.File.open(machine, payload_file))
        assert bytes(block.wait()) == payload
        del block
    assert descriptors() - before <= 2 * 64 + 2
    cache.clear()
    gc.collect()
    assert descriptors() == before


#: A thread that waits for the GIL, which nobody takes from another, while a long plan ends. It may
#: be slow to wake up, so there are several.
ENDING = """
cache = headrace.Cache(mover, {node: 256 << 20}, placement=node)
extents = [headrace.allocate(machine, 4096).extent(0, 64)] * 1_000_000
sys.setswitchinterval(1000)
ran = []
for _ in range(10):
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lambda: (lock.acquire(), ran.append(1)))
    thread.start()
    plan = cache.prefetch(extents)
    time.sleep(0.05)
    lock.release()
    if sys.argv[1] == "cancel":
        plan.cancel()
    elif sys.argv[1] == "with":
        plan.__exit__()
    else:
        del plan
    if ran:
        break
    thread.join()
    ran.clear()
assert ran
thread.join()
"""


@pytest.mark.parametrize("how", ["cancel", "with", "drop"])
def test_other_threads_go_on_while_a_plan_ends(how: str) -> None:
    assert outcome_of(ENDING, how) == (0, "", "")


def test_a_written_block_is_read_back_and_reaches_its_file(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int, tmp_path: Path
) -> None:
    path = tmp_path / "pages.bin"
    path.write_bytes(bytes(1 << 16))
    file = headrace.File.open(machine, path, writable=True)
    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True)
    page = file.extent(4096, 4096)
    before = file.version()
    with cache.access(page, write=True) as block:
        block.write()[:5] = b"hello"
        with pytest.raises(headrace.TimedOutError):
            cache.access(page, lock_timeout=0.01).wait()
    with cache.access(page) as block:
        assert bytes(block.wait()[:5]) == b"hello"
        with pytest.raises(headrace.InvalidError):
            block.write()
    assert cache.stats().bytes_dirty == 4096
    assert path.read_bytes()[4096:4101] == bytes(5)
    assert not cache.invalidate(page)
    cache.sync()
    assert path.read_bytes()[4096:4101] == b"hello"
    assert cache.stats().bytes_dirty == 0 and cache.stats().written_back == 1
    assert file.version() != before
    with cache.access(page, write=True) as block:
        block.write()[:5] = b"WORLD"
    cache.discard(page)
    assert bytes(cache.access(page).wait()[:5]) == b"hello"


def test_a_file_for_reading_cannot_be_written(
    mover: headrace.Mover, file: headrace.File, memory_node: int
) -> None:
    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True)
    with pytest.raises(headrace.DeniedError, match="opened for reading"):
        cache.access(file.extent(0, 4096), write=True).write()


def test_memory_for_reading_cannot_be_written(mover: headrace.Mover, memory_node: int) -> None:
    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True)
    with pytest.raises(headrace.DeniedError, match="read-only"):
        cache.access(headrace.MemoryRange(bytes(4096)).extent(0, 4096), write=True)


def test_a_file_that_nobody_holds_stays_until_it_is_durable(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int, tmp_path: Path
) -> None:
    path = tmp_path / "pages.bin"
    path.write_bytes(bytes(4096))
    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True)
    file = headrace.File.open(machine, path, writable=True)
    with cache.access(file.extent(0, 4096), write=True) as block:
        block.write()[:5] = b"hello"
    del file, block

    def is_open() -> bool:
        links = Path("/proc/self/fd").iterdir()
        return any(link.exists() and link.samefile(path) for link in links)

    for _ in range(3):
        cache.flush()
    assert path.read_bytes()[:5] == b"hello"
    assert is_open(), "sync() could not make it durable any more"
    cache.sync()
    cache.flush()
    assert not is_open()


def test_a_chain_needs_another_memory(mover: headrace.Mover, memory_node: int) -> None:
    budgets = {memory_node: BUDGET}
    with pytest.raises(headrace.InvalidError, match="two budgets"):
        headrace.Cache(mover, budgets, chain=budgets)
    with pytest.raises(headrace.InvalidError, match="0 budgets above a chain"):
        headrace.Cache(mover, {}, chain=budgets)
    with pytest.raises(headrace.InvalidError, match="a budget for no node 77"):
        headrace.Cache(mover, {77: BUDGET}, chain=budgets)
    cache = headrace.Cache(mover, budgets, chain={})
    assert (cache.stats().promotions, cache.stats().demotions) == (0, 0)


@pytest.mark.parametrize("as_given", [dict, OrderedDict, list, tuple])
def test_budgets_and_chain_can_be_dicts_or_pairs(
    mover: headrace.Mover, memory_node: int, as_given: Any
) -> None:
    pairs = [(memory_node, BUDGET)]
    cache = headrace.Cache(mover, as_given(pairs), chain=as_given([]))
    assert cache.read(headrace.MemoryRange(bytearray(b"abc"))) == b"abc"
    with pytest.raises(headrace.InvalidError, match="two budgets"):
        headrace.Cache(mover, as_given(pairs), chain=as_given(pairs))


@pytest.mark.parametrize("budgets", [[1, 2], {"a": 1}, [(1, 2, 3)], 5, None])
def test_budgets_of_another_type_are_refused(mover: headrace.Mover, budgets: Any) -> None:
    with pytest.raises(headrace.ArgumentError, match="budgets"):
        headrace.Cache(mover, budgets)
