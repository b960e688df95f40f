# SPDX-License-Identifier: Apache-2.0
"""Awaiting transfers and blocks: an event loop watches one descriptor for all of them, no thread
waits."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import TYPE_CHECKING

from headrace._core import CompletionQueue

if TYPE_CHECKING:
    from headrace._core import (
        Block,
        KvLayer,
        KvLoad,
        KvStored,
        KvStoredCounts,
        MoveStats,
        Transfer,
    )


async def finished(transfer: Transfer) -> MoveStats:
    """The outcome of `transfer`, without blocking the running loop.

    Cancelling the task that awaits does not cancel the move: others may wait for it, and its
    memory is kept until it ends. Call ``transfer.cancel()`` for that.
    """
    if not transfer.done():
        await _watch_of(asyncio.get_running_loop()).end_of(transfer)
    return transfer.wait(0)


async def ready(block: Block) -> memoryview:
    """The bytes of `block`, without blocking the running loop."""
    with block.clone() as pin:  # the awaiting task may release its own
        if pin.state == "filling":
            await _watch_of(asyncio.get_running_loop()).end_of(pin)
        return pin.wait(0)


async def layer_ready(layer: KvLayer) -> None:
    """Waits until a layer of a load is there, without blocking the running loop."""
    layer.urgent()
    if not layer.done():
        await _watch_of(asyncio.get_running_loop()).end_of(layer)
    layer.wait(0)


async def load_ready(load: KvLoad) -> None:
    """Waits until a whole load is there, without blocking the running loop."""
    for number in range(load.layers):
        layer = load.layer(number)
        if not layer.done():
            await _watch_of(asyncio.get_running_loop()).end_of(layer)
    load.wait(0)


async def stored(blocks: KvStored) -> KvStoredCounts:
    """Waits until a store has ended, without blocking the running loop."""
    if not blocks.done():
        await _watch_of(asyncio.get_running_loop()).end_of(blocks)
    return blocks.wait(0)


#: Seconds between looks for completed moves without the descriptor: other code may have closed it.
LOOK = 60.0


class _Watch:
    """The moves that the tasks of one loop await. The loop's reader keeps this object and its
    descriptor alive while there are such moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._queue = CompletionQueue()
        self._keys = itertools.count()
        #: None: the task that awaited the move has stopped waiting.
        self._awaited: dict[int, asyncio.Future[None] | None] = {}
        self._loop = weakref.ref(loop)
        loop.add_reader(self._queue.fileno(), self._wake)
        self._next_look = loop.call_later(LOOK, self._look)

    async def end_of(self, transfer: Transfer | Block | KvLayer | KvStored) -> None:
        loop = asyncio.get_running_loop()
        key = next(self._keys)
        future = self._awaited[key] = loop.create_future()
        try:
            self._queue.add(transfer, key)
            await future
        finally:
            if key in self._awaited:
                self._awaited[key] = None

    def _wake(self) -> None:
        for key in self._queue.take():
            future = self._awaited.pop(key)
            if future is not None and not future.done():
                future.set_result(None)
        loop = self._loop()
        if not self._awaited and loop is not None:
            self._next_look.cancel()
            loop.remove_reader(self._queue.fileno())
            del _watches[loop]

    def _look(self) -> None:
        loop = self._loop()
        if loop is not None:
            self._next_look = loop.call_later(LOOK, self._look)
            self._wake()


#: A loop that is closed lets go of its reader, and so of its watch.
_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Watch]]
_watches = weakref.WeakKeyDictionary()


def _watch_of(loop: asyncio.AbstractEventLoop) -> _Watch:
    reference = _watches.get(loop)
    watch = reference() if reference is not None else None
    if watch is None:
        watch = _Watch(loop)
        _watches[loop] = weakref.ref(watch)
    return watch
