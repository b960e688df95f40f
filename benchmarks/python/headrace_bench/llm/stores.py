# SPDX-License-Identifier: Apache-2.0
"""The interface of stores of KV blocks in `headrace bench kvcache`, and a store in plain Python.

Like serving systems, the second one uses asyncio, a thread pool and preadv into its own memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy

import headrace
from headrace._errors import error_of, limit_of_threads

#: Longest time that one operation of a store may take.
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Shape:
    """The blocks of a store: each has its layers one after the other (page first)."""

    layers: int
    fragment: int  #: bytes of one layer of a block; a multiple of 4096

    @property
    def block(self) -> int:
        return self.layers * self.fragment


def memory_kind(machine: headrace.Machine) -> str:
    """The fast tier: DRAM, or what the CPUs have where there is none."""
    near = [node.kind for node in machine.nodes if node.byte_addressable and node.cpus]
    return "dram" if machine.of_kind("dram") or not near else near[0]


class Loading(Protocol):
    """Blocks on their way into memory."""

    def wait(self, layer: int) -> None:
        """Until the layer is there in all blocks. headrace.Error: it will not be."""

    def done(self) -> bool:
        """Whether all is there, or will not be."""

    def ended(self) -> float:
        """When all was there, by time.perf_counter(); waits for it."""


class Match(Protocol):
    """The leading blocks of a prompt that are there, held there until release()."""

    tiers: list[int]  #: of each block

    def load(self, to: Any, layers: range, first: int = 0, ahead: bool = False) -> Loading:
        """Starts loading these layers of them, from block `first` on, in their order; block i lies
        at the i-th place. `ahead`: behind others, where the store can, until somebody waits for it.
        """

    def release(self) -> None: ...


class Store(Protocol):
    """Blocks by number."""

    name: str
    tiers: list[str]  #: from fast to slow

    def match(self, blocks: Sequence[int]) -> Match: ...

    def store(self, blocks: Sequence[int], source: Any, positions: Sequence[int]) -> None:
        """Begins to store them, from these places of a memory that keeps its bytes."""

    def settle(self) -> None:
        """Waits until nothing is on its way."""

    def close(self) -> None: ...


class _Loading:
    """The peer's: one future for each layer."""

    def __init__(self, layers: range) -> None:
        self._there: dict[int, Future[None]] = {layer: Future() for layer in layers}
        self._last = layers[-1]
        self._ended = 0.0

    def there(self, layer: int, error: BaseException | None) -> None:
        if layer == self._last:
            self._ended = time.perf_counter()
        if error is not None:
            self._there[layer].set_exception(error)
        else:
            self._there[layer].set_result(None)

    def wait(self, layer: int) -> None:
        try:
            self._there[layer].result(TIMEOUT_SECONDS)
        except TimeoutError:
            raise headrace.TimedOutError("a load did not end; is the disk well?") from None
        except OSError as error:
            raise error_of(error, "cannot load a block") from None

    def done(self) -> bool:
        return all(layer.done() for layer in self._there.values())

    def ended(self) -> float:
        for layer in self._there:
            self.wait(layer)
        return self._ended


@dataclass
class _Entry:
    slot: int
    pins: int = 0


class _Match:
    """The peer's: what it found, pinned."""

    def __init__(self, store: AsyncioStore, found: list[tuple[int, _Entry]]) -> None:
        self._store, self._found = store, found
        self.tiers = [tier for tier, _ in found]

    def load(self, to: Any, layers: range, first: int = 0, ahead: bool = False) -> Loading:
        loading = _Loading(layers)
        self._store.begin_load(self._found, first, to, layers, loading)
        return loading

    def release(self) -> None:
        self._store.unpin(self._found)
        self._found = []


#: Address of the target, address of the source, bytes.
Part = tuple[int, int, int]


class Copies(Protocol):
    """Copies memory for a store without Headrace, between all of its tiers of memory."""

    together: bool  #: whether many parts in one call are faster than calls by several threads

    def copy(self, parts: Sequence[Part]) -> None:
        """Copies all parts before it returns. Called by several threads."""

    def memory(self, tier: str, size: int) -> Any:
        """Allocates memory of a tier; its address is address_of()."""

    def bounce(self, size: int) -> int | None:
        """Memory of this thread that the disk reaches; None: the disk reaches all memory."""


class HostCopies:
    """Copies between memory of the host, by the calling threads."""

    together = False

    def copy(self, parts: Sequence[Part]) -> None:
        for part in parts:
            ctypes.memmove(*part)

    def memory(self, tier: str, size: int) -> Any:
        return aligned(size)

    def bounce(self, size: int) -> int | None:
        return None


def address_of(memory: Any) -> int:
    """Returns where an array of numpy or a Buffer on a GPU begins."""
    if isinstance(memory, headrace.Buffer) and memory.device_address is not None:
        return memory.device_address
    return int(numpy.frombuffer(memory, dtype=numpy.uint8).ctypes.data)


def _bytes_at(address: int, size: int) -> Any:
    return (ctypes.c_char * size).from_address(address)


class AsyncioStore:
    """One or two tiers of memory, and a file without the page cache; what is used longest ago
    leaves for the next tier. All that is kept about blocks belongs to the thread of the event loop;
    pool threads move bytes.
    """

    def __init__(
        self, shape: Shape, blocks: Sequence[int], directory: Path, depth: int,
        memory: Sequence[str] = ("dram",), copies: Copies | None = None, name: str = "asyncio",
    ) -> None:  # fmt: skip
        """Numbers of blocks in each tier of memory and in the file, and of requests at once."""
        self.name = name
        memory = memory[: len(blocks) - 1]
        self.tiers = [*memory, "ssd"]
        self._shape = shape
        self._copies: Copies = copies or HostCopies()
        self._memories = [
            self._copies.memory(tier, count * shape.block)
            for tier, count in zip(memory, blocks, strict=False)
        ]
        self._begins = [address_of(each) for each in self._memories]
        self._file = _Unnamed(directory, blocks[-1] * shape.block)
        self._held: list[OrderedDict[int, _Entry]] = [OrderedDict() for _ in blocks]
        self._free = [list(range(count)) for count in blocks]
        self._moving: set[int] = set()  # in no tier now: on their way to one
        try:
            self._loop = asyncio.new_event_loop()
        except OSError as error:
            self._file.close()
            raise error_of(error, "cannot start an event loop") from None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._pool = ThreadPoolExecutor(depth, "kv")
        try:
            _start_all(self._pool, depth)
            self._thread.start()
        except RuntimeError as error:
            limit = limit_of_threads()
            self._pool.shutdown()
            self._loop.close()
            self._file.close()
            raise headrace.ExhaustedError(
                f"cannot start {depth} threads for the disk: {error}; give a smaller --depth, or "
                f"raise {limit}"
            ) from None

    def match(self, blocks: Sequence[int]) -> Match:
        return _Match(self, self._call(self._pinned, list(blocks)))

    def begin_load(
        self, found: Sequence[tuple[int, _Entry]], first: int, to: Any, layers: range,
        loading: _Loading,
    ) -> None:  # fmt: skip
        begin = address_of(to)
        self._call(self._begin, self._load, list(found[first:]), first, begin, layers, loading)

    def unpin(self, found: Sequence[tuple[int, _Entry]]) -> None:
        self._call(_count_pins, list(found), -1)

    def store(self, blocks: Sequence[int], source: Any, positions: Sequence[int]) -> None:
        self._call(self._begin, self._store, list(blocks), source, list(positions))

    def settle(self) -> None:
        async def all_of_them() -> None:
            while self._tasks:
                await asyncio.wait(set(self._tasks))

        asyncio.run_coroutine_threadsafe(all_of_them(), self._loop).result(TIMEOUT_SECONDS)

    def close(self) -> None:
        self.settle()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._pool.shutdown()
        self._file.close()

    def _call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        async def there() -> Any:
            return work(*arguments)

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(TIMEOUT_SECONDS)

    def _begin(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        async def kept() -> None:
            await work(*arguments)

        task = self._loop.create_task(kept())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _pinned(self, blocks: Sequence[int]) -> list[tuple[int, _Entry]]:
        found: list[tuple[int, _Entry]] = []
        for block in blocks:
            tier = next((i for i, held in enumerate(self._held) if block in held), None)
            if tier is None:
                break
            found.append((tier, self._held[tier][block]))
        # The last of a prompt are of no use without the first, so these leave after them.
        for block, (tier, _) in zip(reversed(blocks[: len(found)]), reversed(found), strict=True):
            self._held[tier].move_to_end(block)
        _count_pins(found, 1)
        return found

    async def _load(
        self, found: Sequence[tuple[int, _Entry]], first: int, to: int, layers: range,
        loading: _Loading,
    ) -> None:  # fmt: skip
        _count_pins(found, 1)
        runs = {
            layer: [
                self._loop.run_in_executor(self._pool, *work)
                for work in self._work(found, first, to, layer)
            ]
            for layer in layers
        }
        for layer, run in runs.items():
            done = await asyncio.gather(*run, return_exceptions=True)
            failed = next((each for each in done if isinstance(each, BaseException)), None)
            loading.there(layer, failed)
        _count_pins(found, -1)

    def _work(
        self, found: Sequence[tuple[int, _Entry]], first: int, to: int, layer: int
    ) -> list[tuple[Any, ...]]:
        """Calls that bring one layer of these blocks."""
        size, block = self._shape.fragment, self._shape.block
        parts: list[Part] = []
        work: list[tuple[Any, ...]] = []
        for position, (tier, entry) in enumerate(found, first):
            target, at = (place * block + layer * size for place in (position, entry.slot))
            if tier < len(self._begins):
                parts.append((to + target, self._begins[tier] + at, size))
            else:
                work.append((self._read, to + target, at, size))
        groups = [parts] if parts and self._copies.together else [[part] for part in parts]
        return [*((self._copies.copy, group) for group in groups), *work]

    def _read(self, to: int, at: int, size: int) -> None:
        bounce = self._copies.bounce(size)
        self._file.read(_bytes_at(to if bounce is None else bounce, size), at)
        if bounce is not None:
            self._copies.copy([(to, bounce, size)])

    async def _store(self, blocks: Sequence[int], source: Any, positions: Sequence[int]) -> None:
        size = self._shape.block
        for block, position in zip(blocks, positions, strict=True):
            if block in self._moving or any(block in held for held in self._held):
                continue
            self._moving.add(block)
            try:
                slot = await self._slot(0)
                if slot is None:
                    return  # all is pinned
                part = (self._begins[0] + slot * size, address_of(source) + position * size, size)
                await self._loop.run_in_executor(self._pool, self._copies.copy, [part])
                self._held[0][block] = _Entry(slot)
            finally:
                self._moving.discard(block)

    async def _slot(self, tier: int) -> int | None:
        """A free one; else that of the block that leaves, whose bytes go to the next tier."""
        if self._free[tier]:
            return self._free[tier].pop()
        held = self._held[tier]
        block = next((block for block, entry in held.items() if entry.pins == 0), None)
        if block is None:
            return None
        entry, after = held.pop(block), tier + 1
        if after < len(self.tiers) and (slot := await self._slot(after)) is not None:
            self._moving.add(block)
            try:
                await self._loop.run_in_executor(self._pool, self._move, tier, entry.slot, slot)
                self._held[after][block] = _Entry(slot)
            except OSError:
                self._free[after].append(slot)  # dropped: it is a cache
            finally:
                self._moving.discard(block)
        return entry.slot

    def _move(self, tier: int, slot: int, to: int) -> None:
        """Copies a block to the next tier."""
        size = self._shape.block
        source = self._begins[tier] + slot * size
        if tier + 1 < len(self._begins):
            self._copies.copy([(self._begins[tier + 1] + to * size, source, size)])
            return
        bounce = self._copies.bounce(size) if self.tiers[tier] == "gpu" else None
        if bounce is not None:
            self._copies.copy([(bounce, source, size)])
        self._file.write(_bytes_at(source if bounce is None else bounce, size), to * size)


def _start_all(pool: ThreadPoolExecutor, threads: int) -> None:
    """All threads of a pool at once: one that cannot start later would leave a load under way."""
    met = threading.Barrier(threads)
    try:
        for one in [pool.submit(met.wait) for _ in range(threads)]:
            one.result(TIMEOUT_SECONDS)
    finally:
        met.abort()  # those that began wait for no others


def _count_pins(found: Sequence[tuple[int, _Entry]], by: int) -> None:
    for _, entry in found:
        entry.pins += by


class _Unnamed:
    """A file that goes when it is closed, read and written past the page cache where it can be."""

    def __init__(self, directory: Path, size: int) -> None:
        flags = os.O_RDWR | os.O_TMPFILE
        try:
            try:
                self._file = os.open(directory, flags | os.O_DIRECT, 0o600)
            except OSError:
                self._file = os.open(directory, flags, 0o600)
            os.posix_fallocate(self._file, 0, max(1, size))
        except OSError as error:
            raise error_of(error, f"cannot make a file in {directory}", "another --data") from None

    def read(self, to: Any, at: int) -> None:
        if os.preadv(self._file, [to], at) != len(to):
            raise OSError(5, "a short read")

    def write(self, part: Any, at: int) -> None:
        if os.pwritev(self._file, [part], at) != len(part):
            raise OSError(5, "a short write")

    def close(self) -> None:
        os.close(self._file)


def aligned(size: int) -> Any:
    """Memory that begins with a page, as bytes of numpy."""
    return numpy.frombuffer(mmap.mmap(-1, max(mmap.PAGESIZE, size)), dtype=numpy.uint8)


def unlike(memory: Any, source: Any, pairs: Iterable[tuple[int, int]], size: int) -> int:
    """How many blocks of `memory` differ from those of `source`."""
    return sum(
        not numpy.array_equal(memory[at * size :][:size], source[frm * size :][:size])
        for at, frm in pairs
    )
