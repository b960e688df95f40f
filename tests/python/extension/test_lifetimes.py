# SPDX-License-Identifier: Apache-2.0
"""Random lives of Python objects: whatever is dropped in whatever order, bytes that can still be
seen are right and nothing crashes.

The model: every object holds one byte value throughout, known when it is made; a move's target has
it once the move is done.
"""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import numpy
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import headrace

SIZE = 300_001  # several pages, odd
MACHINE = headrace.Machine.discover(storage=[tempfile.gettempdir()])
NODE = next(n.id for n in MACHINE.nodes if n.byte_addressable and n.cpus)
ANY = st.integers(0, 1 << 16)


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="headrace-test.")
        self.movers: list[headrace.Mover] = [headrace.Mover(MACHINE)]
        self.caches: list[headrace.Cache] = []
        #: Things and the byte they hold.
        self.objects: list[tuple[headrace.Object, int]] = []
        self.moves: list[tuple[headrace.Transfer, Any, int]] = []
        self.blocks: list[tuple[headrace.Block, int]] = []
        self.plans: list[headrace.Prefetch] = []
        self.views: list[tuple[Any, int]] = []

    @rule(value=st.integers(1, 255))
    def make_buffer(self, value: int) -> None:
        buffer = headrace.allocate(MACHINE, SIZE)
        buffer.numpy()[:] = value
        self.objects.append((buffer, value))

    @rule(value=st.integers(1, 255))
    def borrow_memory(self, value: int) -> None:
        array = numpy.full(SIZE, value, numpy.uint8)
        self.objects.append((headrace.MemoryRange(array, node=NODE), value))

    @rule(value=st.integers(1, 255))
    def make_file(self, value: int) -> None:
        path = Path(self.folder.name, str(len(list(Path(self.folder.name).iterdir()))))
        path.write_bytes(bytes([value]) * SIZE)
        self.objects.append((headrace.File.open(MACHINE, path), value))

    @rule()
    def make_mover(self) -> None:
        self.movers.append(headrace.Mover(MACHINE))

    @precondition(lambda self: self.movers)
    @rule(which=ANY, budget=st.sampled_from([SIZE, 4 * SIZE, 64 * SIZE]))
    def make_cache(self, which: int, budget: int) -> None:
        mover = self.movers[which % len(self.movers)]
        cache = headrace.Cache(mover, {NODE: budget}, slab=1 << 20, placement=NODE)
        self.caches.append(cache)

    @precondition(lambda self: self.movers and self.objects)
    @rule(which=ANY, source=ANY, borrowed=st.booleans(), keep=st.booleans())
    def start_move(self, which: int, source: int, borrowed: bool, keep: bool) -> None:
        origin, value = self.objects[source % len(self.objects)]
        target: Any
        if borrowed:
            view = numpy.zeros(SIZE, numpy.uint8)
            target = headrace.MemoryRange(view, node=NODE)
        else:
            target = headrace.allocate(MACHINE, SIZE)
            view = target.numpy()
        transfer = self.movers[which % len(self.movers)].copy(target, origin)
        if keep:
            self.moves.append((transfer, view, value))

    @precondition(lambda self: self.moves)
    @rule(which=ANY)
    def end_move(self, which: int) -> None:
        transfer, view, value = self.moves.pop(which % len(self.moves))
        assert transfer.wait().bytes == SIZE
        self.views.append((view, value))

    @precondition(lambda self: self.moves)
    @rule(which=ANY)
    def cancel_move(self, which: int) -> None:
        self.moves.pop(which % len(self.moves))[0].cancel()

    @precondition(lambda self: self.caches and self.objects)
    @rule(which=ANY, source=ANY, offset=st.integers(0, SIZE))
    def access(self, which: int, source: int, offset: int) -> None:
        origin, value = self.objects[source % len(self.objects)]
        cache = self.caches[which % len(self.caches)]
        self.blocks.append((cache.access(origin.extent(offset)), value))

    @precondition(lambda self: self.caches and self.objects)
    @rule(which=ANY)
    def prefetch(self, which: int) -> None:
        cache = self.caches[which % len(self.caches)]
        self.plans.append(cache.prefetch([origin for origin, _ in self.objects]))

    @precondition(lambda self: self.blocks)
    @rule(which=ANY, how=st.sampled_from(["now", "wait", "numpy", "memoryview", "clone"]))
    def look(self, which: int, how: str) -> None:
        block, value = self.blocks[which % len(self.blocks)]
        try:
            if how == "clone":
                self.blocks.append((block.clone(), value))
            elif how == "memoryview":
                self.views.append((memoryview(block), value))
            elif (view := getattr(block, how)()) is not None:
                self.views.append((view, value))
        except headrace.ExhaustedError:
            pass  # no room among the pins, and the source is a file

    @precondition(lambda self: self.caches and self.objects)
    @rule(which=ANY, source=ANY, how=st.sampled_from(["flush", "clear", "invalidate", "resize"]))
    def disturb(self, which: int, source: int, how: str) -> None:
        cache = self.caches[which % len(self.caches)]
        if how == "invalidate":
            cache.invalidate(self.objects[source % len(self.objects)][0])
        elif how == "resize":
            cache.resize(NODE, (source % 8) * SIZE)
        else:
            getattr(cache, how)()

    @rule(
        kind=st.sampled_from(["movers", "caches", "objects", "moves", "blocks", "plans", "views"]),
        which=ANY,
        collect=st.booleans(),
    )
    def drop(self, kind: str, which: int, collect: bool) -> None:
        things = getattr(self, kind)
        if things:
            del things[which % len(things)]
        if collect:
            gc.collect()

    @invariant()
    def what_is_seen_is_right(self) -> None:
        for view, value in self.views[-3:]:
            check(view, value)

    def teardown(self) -> None:
        for transfer, view, value in self.moves:
            transfer.wait()
            check(view, value)
        for view, value in self.views:
            check(view, value)
        # In the worst order: what others stand on goes first.
        for things in (self.movers, self.objects, self.caches, self.blocks, self.plans, self.moves):
            things.clear()
        gc.collect()
        for view, value in self.views:
            check(view, value)
        self.folder.cleanup()


def check(view: Any, value: int) -> None:
    array = numpy.frombuffer(view, numpy.uint8)
    assert (array == value).all()


TestLives = Lives.TestCase
TestLives.settings = settings(
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
