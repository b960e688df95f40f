# SPDX-License-Identifier: Apache-2.0
"""Sources of hotness, heat and PageTier on memory of Python."""

from __future__ import annotations

import gc
import mmap
import weakref
from pathlib import Path
from typing import Literal

import pytest
import swap

import headrace

_PAGE = mmap.PAGESIZE


@pytest.fixture(params=["referenced", "written"])
def source(request: pytest.FixtureRequest) -> headrace.HotnessSource:
    kind: Literal["referenced", "written"] = request.param
    try:
        return headrace.open_hotness(kind, chunk=16 * _PAGE, least_interval=0)
    except (headrace.UnsupportedError, headrace.DeniedError) as error:
        pytest.skip(str(error))


def _memory(size: int = 64 * _PAGE) -> tuple[mmap.mmap, headrace.MemoryRange]:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(b"\1" * size)
    return memory, headrace.MemoryRange(memory, node=0)


def test_touched_pages_are_hot(source: headrace.HotnessSource) -> None:
    memory, tracked = _memory()
    tracking = source.track(tracked)
    assert tracking.granularity in (_PAGE, 16 * _PAGE)
    begin = tracked.numpy().ctypes.data
    assert source.look().touches == []
    memory[5 * _PAGE] = 2
    sample = source.look()
    assert (sample.unseen, sample.why_unseen) == (0, "") and sample.covered > 0
    (touch,) = sample.touches
    assert touch.begin <= begin + 5 * _PAGE < touch.begin + touch.size
    assert touch.touched == _PAGE
    heat = headrace.Hotness(half_life=1e-3, chunk=16 * _PAGE)
    heat.add(sample)
    assert heat.heat(begin + 5 * _PAGE) > heat.heat(begin + 40 * _PAGE) == 0
    assert heat.hottest()[0].heat == heat.heat(begin + 5 * _PAGE)
    source.untrack(tracked)
    with pytest.raises(headrace.InvalidError, match="does not track"):
        source.untrack(tracked)


def test_memory_is_kept_while_it_is_tracked(source: headrace.HotnessSource) -> None:
    class Memory(mmap.mmap):
        pass

    memory = Memory(-1, 64 * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tracked = headrace.MemoryRange(memory, node=0)
    source.track(tracked)
    with pytest.raises(headrace.InvalidError, match="already"):
        source.track(tracked)
    alive = weakref.ref(memory)
    del memory, tracked
    gc.collect()
    assert alive() is not None and source.look().unseen == 0
    del source


def test_memory_goes_when_it_is_untracked(source: headrace.HotnessSource) -> None:
    memory, tracked = _memory()
    source.track(tracked)
    with pytest.raises(BufferError):
        memory.close()
    source.untrack(tracked)
    del tracked
    memory.close()


def test_object_without_memory_is_refused(source: headrace.HotnessSource) -> None:
    machine = headrace.Machine.discover(storage=[Path(__file__).parent])
    with pytest.raises(headrace.InvalidError, match="not in memory"):
        source.track(headrace.File.open(machine, __file__))
    with pytest.raises(headrace.InvalidError, match="whole pages"):
        source.track(headrace.MemoryRange(bytearray(100), node=0))


def test_invalid_request_is_refused() -> None:
    with pytest.raises(headrace.InvalidError, match="power of two"):
        headrace.open_hotness("written", chunk=5000)
    for options in ({"half_life": 0.0}, {"chunk": 0}, {"chunk": 5000}):
        with pytest.raises(headrace.InvalidError, match="half-life"):
            headrace.Hotness(**options)
    with pytest.raises(headrace.InvalidError, match="budget"):
        headrace.PageTier.open(0)
    with pytest.raises(headrace.InvalidError, match="hysteresis"):
        headrace.PageTier.open(1 << 20, hysteresis=2)
    with pytest.raises(headrace.InvalidError, match="guard"):
        headrace.PageTier.open(1 << 20, guard=1)


def _has(kind: Literal["referenced"]) -> bool:
    try:
        headrace.open_hotness(kind)
    except (headrace.UnsupportedError, headrace.DeniedError):
        return False
    return True


def test_a_tier_keeps_its_budget_or_says_why_not() -> None:
    try:
        tier = headrace.PageTier.open(32 * _PAGE, chunk=16 * _PAGE, least_interval=0)
    except (headrace.UnsupportedError, headrace.DeniedError) as error:
        assert "\n" not in str(error)
        assert swap.lacking() is not None or not _has("referenced"), f"this machine can: {error}"
        pytest.skip(str(error))
    memory, managed = _memory()
    tier.add(managed)
    step = tier.step()
    assert step.resident + step.out == 64 * _PAGE
    assert step.resident <= 32 * _PAGE + step.refused
    assert [each.comes_in for each in tier.decisions()] == [False, False]
    assert tier.decisions()[0].asdict()["reason"]
    assert tier.step(1000).undone == ""
    tier.remove(managed)
    assert memory[:] == b"\1" * (64 * _PAGE)


def test_a_tier_over_nodes_says_which_it_may_not_use() -> None:
    with pytest.raises(headrace.InvalidError, match="fast nodes and slow ones"):
        headrace.PageTier.open(1 << 20, fast=[0])
    with pytest.raises(headrace.InvalidError, match="node 0 is given twice"):
        headrace.PageTier.open(1 << 20, fast=[0], slow=[0])
    with pytest.raises((headrace.AbsentError, headrace.UnsupportedError, headrace.DeniedError)):
        headrace.PageTier.open(1 << 20, fast=[0], slow=[900])


def test_what_pays_for_its_move() -> None:
    assert headrace.least_heat_that_pays(move=2e-4, saved=1e-4, half_life=10) == pytest.approx(0.2)
    with pytest.raises(headrace.InvalidError, match="nothing pays"):
        headrace.least_heat_that_pays(move=1.0, saved=1e-4, half_life=10)
