# SPDX-License-Identifier: Apache-2.0
"""Views of a cache's bytes: without a copy, bounded, and right when their source is gone."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import numpy
import pyarrow
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


def address(view: memoryview) -> int:
    return numpy.frombuffer(view, "uint8").ctypes.data


def test_view_of_a_block_has_its_bytes_and_pins_it(
    cache: headrace.Cache, file: headrace.File, payload: bytes
) -> None:
    extent = file.extent(4096 + 5, 1 << 20)
    view = cache.view(extent)
    assert view == payload[4101 : 4101 + (1 << 20)] and view.readonly
    assert cache.stats().bytes_pinned == 1 << 20
    assert address(cache.view(extent)) == address(view)
    buffer = pyarrow.py_buffer(view)
    assert buffer.address == address(view)
    del view
    gc.collect()
    assert cache.stats().bytes_pinned == 1 << 20, "the buffer of pyarrow holds it"
    del buffer
    gc.collect()
    assert cache.stats().bytes_pinned == 0
    assert (cache.stats().misses, cache.stats().hits) == (1, 1)


def test_views_of_more_than_a_quarter_of_the_budget_are_copies(
    cache: headrace.Cache, machine: headrace.Machine, tmp_path: Path
) -> None:
    data = os.urandom(8 << 20)
    (tmp_path / "data").write_bytes(data)
    file = headrace.File.open(machine, tmp_path / "data")
    views = [cache.view(file.extent(at, 1 << 20)) for at in range(0, 8 << 20, 1 << 20)]
    assert b"".join(views) == data
    assert cache.stats().bytes_pinned == BUDGET // 4
    views.clear()
    again = cache.view(file.extent(7 << 20, 1 << 20))
    assert again == data[7 << 20 :] and cache.stats().bytes_pinned == 1 << 20
    cache.resize(cache_node(machine), 2 << 20)
    assert cache.view(file.extent(0, 1 << 20)) == data[: 1 << 20]
    assert cache.stats().bytes_pinned == 1 << 20, "half of the budget now"


def cache_node(machine: headrace.Machine) -> int:
    return next(node.id for node in machine.nodes if node.byte_addressable and node.cpus)


def test_view_outlives_its_cache_and_its_file(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int, payload_file: Path
) -> None:
    payload = payload_file.read_bytes()
    cache = headrace.Cache(mover, {memory_node: BUDGET})
    view = cache.view(headrace.File.open(machine, payload_file).extent(0, 100_000))
    payload_file.write_bytes(bytes(len(payload)))
    payload_file.unlink()
    del cache
    gc.collect()
    assert view == payload[:100_000]


def test_view_of_what_cannot_be_read_is_an_error(
    cache: headrace.Cache, file: headrace.File, payload_file: Path
) -> None:
    os.truncate(payload_file, 1000)
    with pytest.raises(headrace.IoError):
        cache.view(file.extent(1 << 20, 1 << 20))
    assert cache.stats().bytes_pinned == 0
    with pytest.raises(headrace.InvalidError):
        cache.view(file.extent(0, 10), priority="whatever")  # type: ignore[arg-type]


FORKED = """
file = some_file(1 << 20, 9)
cache = headrace.Cache(mover, {node: 8 << 20})
view = cache.view(file)
child = os.fork()
if child == 0:
    right = view == bytes([9]) * (1 << 20)
    try:
        cache.view(file.extent(0, 100))
        right = False
    except headrace.UnsupportedError:  # a child has caches of its own
        pass
    view.release()
    os._exit(0 if right else 1)
assert os.waitpid(child, 0)[1] == 0
assert view == bytes([9]) * (1 << 20)
"""


def test_child_of_fork_reads_the_views_of_its_parent() -> None:
    assert outcome_of(FORKED) == (0, "", "")


@pytest.fixture
def page(machine: headrace.Machine, tmp_path: Path) -> headrace.Extent:
    path = tmp_path / "pages.bin"
    path.write_bytes(bytes(1 << 16))
    return headrace.File.open(machine, path, writable=True).extent(4096, 4096)


def test_written_view_ends_with_its_block(
    mover: headrace.Mover, memory_node: int, page: headrace.Extent
) -> None:
    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True)
    with cache.access(page, write=True) as block:
        view = block.write()
        view[:5] = b"hello"
        copy = view.tobytes()
    for use in (lambda: view[0], lambda: view.__setitem__(0, 1), lambda: bytes(view)):
        with pytest.raises(ValueError, match="released"):
            use()
    with cache.access(page, write=True, lock_timeout=0.5) as block:
        assert block.write() == copy


def test_array_of_written_bytes_that_outlives_its_block_is_an_error(
    mover: headrace.Mover, memory_node: int, page: headrace.Extent
) -> None:
    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True)
    for derive in (lambda view: view[10:20], lambda view: numpy.frombuffer(view, "uint8")):
        block = cache.access(page, write=True)
        held = derive(block.write())
        with pytest.raises(headrace.InvalidError, match="a slice or an array"):
            block.release()
        with pytest.raises(headrace.TimedOutError):
            cache.access(page, write=True, lock_timeout=0.01).wait()
        del held
        with cache.access(page, write=True, lock_timeout=0.5) as block:
            block.write()


def test_many_views_of_one_block_take_no_memory(
    mover: headrace.Mover, memory_node: int, page: headrace.Extent
) -> None:
    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True)
    with cache.access(page, write=True) as block:
        block.write()
        before = sys.getallocatedblocks()
        for _ in range(5000):
            block.write()[0] = 1
        assert sys.getallocatedblocks() < before + 1000
