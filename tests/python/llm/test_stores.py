# SPDX-License-Identifier: Apache-2.0
"""The stores of bench kvcache, with random requests against what they must hold."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import headrace_bench
import numpy
import pytest
from headrace_bench.llm import kv_store
from headrace_bench.llm.stores import AsyncioStore, Shape, Store, aligned, unlike

import headrace

SHAPE = Shape(layers=3, fragment=4096)


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[AsyncioStore]:
    made = AsyncioStore(SHAPE, [4, 6], tmp_path, depth=4)
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(params=["asyncio", "headrace", "headrace by layer"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    name, *by_layer = request.param.split(" ", 1)
    machine = headrace.Machine.discover(storage=[tmp_path])
    made = kv_store.maker(name, machine, tmp_path, 4)(SHAPE, [4, 6], bool(by_layer))
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", kv_store.STORES)
def test_a_machine_without_dram_keeps_them_in_what_it_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = headrace.Machine.discover(storage=[tmp_path])
    near = [str(node.id) for node in here.nodes if node.byte_addressable and node.cpus]
    monkeypatch.setenv("HEADRACE_NODES", f"{','.join(near)}=hbm")
    machine = headrace.Machine.discover(storage=[tmp_path])
    if machine.of_kind("dram"):
        pytest.skip("a node of DRAM without CPUs")
    made = kv_store.maker(name, machine, tmp_path, 4)(SHAPE, [4, 6], False)
    try:
        source, to = contents(1), aligned(SHAPE.block)
        to[:] = 0
        made.store([7], source, [0])
        made.settle()
        match = made.match([7])
        assert made.tiers == ["hbm", "ssd"] and match.tiers == [0]
        match.load(to, range(3)).ended()
        match.release()
        assert numpy.array_equal(to[: SHAPE.block], source[: SHAPE.block])
    finally:
        made.close()


def contents(blocks: int) -> numpy.ndarray:
    source = aligned(blocks * SHAPE.block)
    headrace_bench.fill_random(source, 3, [0])
    return source


def test_loads_return_what_was_stored(store: Store) -> None:
    draw, source, to = random.Random(1), contents(20), aligned(20 * SHAPE.block)
    seen, kept = 0, []
    for _ in range(60):
        first = draw.randrange(5)
        blocks = [4 * first + i for i in range(draw.randint(1, 4))]
        match = store.match(blocks)
        found = match.tiers
        assert all(tier in (0, 1) for tier in found) and len(found) <= len(blocks)
        if found:
            to[:] = 0
            one = getattr(store, "by_layer", True)
            layers = draw.choice([range(3), range(1, 2)]) if one else range(3)
            load = match.load(to, layers)
            for layer in layers:
                load.wait(layer)
                for i in range(len(found)):
                    at, frm = (n * SHAPE.block + layer * 4096 for n in (i, blocks[i]))
                    assert (to[at : at + 4096] == source[frm : frm + 4096]).all()
            assert load.done() and load.ended() > 0
            seen += len(set(found)) == 2
        if draw.random() < 0.8:
            match.release()
        else:
            kept.append(match)
        store.store(blocks, source, blocks)
        if draw.random() < 0.5:
            store.settle()
        if len(kept) > 1:  # some stay pinned while others come and go
            kept.pop(0).release()
    store.settle()
    assert seen > 0  # loads from both tiers at once
    held = [block for block in range(20) if there(store, block)]
    assert 4 <= len(held) <= 10


def test_the_peer_loses_no_place_to_blocks_stored_at_the_same_time(peer: AsyncioStore) -> None:
    source = contents(12)
    for first in range(24):
        blocks = [(first + i) % 12 for i in range(3)]
        for _ in range(3):
            peer.store(blocks, source, blocks)
    peer.settle()
    for block in range(12):  # a slow disk refused some of those; these find every place
        peer.store([block], source, [block])
        peer.settle()
    held = [block for block in range(12) if there(peer, block)]
    assert len(held) == 10


def there(store: Store, block: int) -> list[int]:
    match = store.match([block])
    match.release()
    return match.tiers


def test_blocks_go_to_the_disk_and_then_away(store: Store) -> None:
    source = contents(12)
    for block in range(12):
        store.store([block], source, [block])
        store.settle()
    assert [there(store, block) for block in range(12)] == [[]] * 2 + [[1]] * 6 + [[0]] * 4


def test_wrong_bytes_are_counted() -> None:
    source, to = contents(3), aligned(3 * SHAPE.block)
    to[:] = source
    pairs = [(0, 0), (1, 1), (2, 2)]
    assert unlike(to, source, pairs, SHAPE.block) == 0
    to[SHAPE.block + 5] ^= 1
    assert unlike(to, source, pairs, SHAPE.block) == 1


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    machine = headrace.Machine.discover(storage=[])
    for name in kv_store.STORES:
        with pytest.raises(headrace.AbsentError, match="cannot make a f"):
            kv_store.maker(name, machine, tmp_path / "nowhere", 1)(SHAPE, [1, 1], False)


def test_threads_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line at once, not a load that is waited for."""
    before, start = threading.active_count(), threading.Thread.start

    def some(thread: threading.Thread) -> None:
        if threading.active_count() >= before + 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    for depth in (2, 4):  # the event loop's, one of the pool's
        with pytest.raises(headrace.ExhaustedError, match="can't start new thread; give a smaller"):
            AsyncioStore(SHAPE, [1, 1], tmp_path, depth=depth)
        assert threading.active_count() == before


def test_a_disk_that_fails(peer: AsyncioStore, monkeypatch: pytest.MonkeyPatch) -> None:
    source = contents(8)
    for block in range(8):
        peer.store([block], source, [block])
        peer.settle()
    monkeypatch.setattr("os.preadv", lambda *_: 0)
    load = peer.match([0]).load(aligned(SHAPE.block), range(3))
    with pytest.raises(headrace.IoError, match="cannot load a block: "):
        load.wait(0)
    with pytest.raises(headrace.IoError):
        load.ended()
