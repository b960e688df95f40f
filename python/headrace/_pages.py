# SPDX-License-Identifier: Apache-2.0
"""Pages of an engine's pools of host memory: finds them, and copies them to a store and back.

Each page is a block. A pool is any object with the methods of SGLang's HostKVCache.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy

import headrace
from headrace import kvcache
from headrace._plugin import Warner
from headrace._serving.client import Attached, Done
from headrace.kvcache import memory_range

_log = logging.getLogger(__name__)

#: Loads that take longer are cancelled.
_COPY_SECONDS = 60.0
#: Copies that still use the engine's memory are reported this often.
_REPORT_SECONDS = 60.0
#: Loads are divided into parts of this size: one is verified while the next is read.
_PART_BYTES = 16 << 20


class PoolMemory:
    """The places of a host pool's pages. In a regular pool, pages are parts of one region, so one
    call copies them all. A page has one fragment in each part: keys and values in page-first
    layouts, keys and values of each layer in layer-first ones. `region` is None for other pools:
    their pages are copied one by one.
    """

    def __init__(self, pool: Any, needed: bool) -> None:
        """InvalidError: `needed` is true, and the pool is not regular."""
        self.pool = pool
        self.page_size = int(getattr(pool, "page_size", 1) or 1)
        self.pages = int(pool.size) // self.page_size
        self.parts = 1
        self.region: tuple[int, int] | None = None
        try:
            addresses, sizes = pool.get_page_buffer_meta(numpy.arange(2 * self.page_size))
        except (AttributeError, AssertionError, NotImplementedError, ValueError) as error:
            why, addresses, sizes = str(error), [], []
        else:
            why = "their buffers differ in size or are not evenly spaced"
        if addresses and _is_regular(addresses, sizes, self.pages):
            self.parts = len(addresses) // 2
            self.page_bytes = self.parts * sizes[0]
            self.region = (min(addresses), self.pages * self.page_bytes)
        elif needed:
            raise headrace.InvalidError(
                f"pages of the layout {pool.layout!r} cannot be copied in place ({why}); set "
                "--hicache-mem-layout page_first, or leave interface_v1 out"
            )
        else:
            page = pool.get_dummy_flat_data_page()
            self.page_bytes = page.numel() * page.element_size()
        self.pool_bytes = self.pages * self.page_bytes
        names = ("layout", "layer_num", "start_layer", "end_layer", "head_num", "head_dim",
                 "storage_format_tag")  # fmt: skip
        self.format = [self.page_size, self.page_bytes, self.parts, str(getattr(pool, "dtype", "")),
                       *(str(getattr(pool, name, "")) for name in names)]  # fmt: skip

    def region_bytes(self) -> Any:
        """The region, as a buffer. Requires: there is one."""
        assert self.region is not None
        at, size = self.region
        return (ctypes.c_char * size).from_address(at)

    def positions(self, indices: Any, count: int) -> list[int]:
        """Positions of `count` pages in the region, as the pool reports them now: pools that
        compact their memory have no fixed places. Without a region: the numbers of the pages.
        InvalidError: the indices are no whole pages, or lie outside the region.
        """
        tokens = 0 if indices is None else len(indices)
        if tokens != count * self.page_size:
            raise headrace.InvalidError(
                f"{tokens} indices for {count} pages of {self.page_size} tokens"
            )
        if count == 0:
            return []
        if self.region is None:
            return [int(each) // self.page_size for each in indices[:: self.page_size].tolist()]
        addresses, sizes = self.pool.get_page_buffer_meta(indices)
        begin, _ = self.region
        size = self.page_bytes // self.parts
        found = numpy.sort(numpy.asarray(addresses, numpy.uint64).reshape(count, -1)) - begin
        at = found[:, 0] // size
        parts = numpy.arange(self.parts, dtype=numpy.uint64) * (self.pages * size)
        right = found.shape == (count, self.parts) and set(sizes) == {size}
        if not right or (found != (at * size)[:, None] + parts).any() or at.max() >= self.pages:
            raise headrace.InvalidError("pages are not where the pool's first ones are")
        places: list[int] = at.tolist()
        return places


def _is_regular(addresses: Sequence[int], sizes: Sequence[int], pages: int) -> bool:
    """Whether the buffers of pages 0 and 1 are those of parts that lie one after the other."""
    if len(addresses) % 2 or len(set(sizes)) != 1:
        return False
    size = sizes[0]
    half = len(addresses) // 2
    first, second = sorted(addresses[:half]), sorted(addresses[half:])
    return all(
        at == first[0] + i * pages * size and following == at + size
        for i, (at, following) in enumerate(zip(first, second, strict=True))
    )


class Pages:
    """The pages of one pool: a store and the memory that they are loaded into. Thread-safe."""

    def __init__(self, memory: PoolMemory, machine: headrace.Machine) -> None:
        self.page_bytes = memory.page_bytes
        self._memory = memory
        self._machine = machine

    def there(self, keys: Sequence[str]) -> list[bool]:
        raise NotImplementedError

    def get(self, keys: Sequence[str], indices: Any) -> list[bool]:
        raise NotImplementedError

    def set(self, keys: Sequence[str], indices: Any) -> list[bool]:
        raise NotImplementedError

    def get_into(self, keys: Sequence[str], pages: Sequence[Any]) -> list[bool]:
        """Loads each page into a tensor of its own."""
        raise NotImplementedError

    def set_from(self, keys: Sequence[str], pages: Sequence[Any]) -> list[bool]:
        raise NotImplementedError

    def _check(self, tensor_bytes: int) -> None:
        if tensor_bytes != self.page_bytes:
            raise headrace.InvalidError(
                f"a tensor of {tensor_bytes} bytes for a page of {self.page_bytes}"
            )

    def _get_copied(self, keys: Sequence[str], positions: list[int]) -> list[bool]:
        """As get(), through a tensor for each page."""
        pool = self._memory.pool
        pages = [pool.get_dummy_flat_data_page() for _ in keys]
        there = self.get_into(keys, pages)
        for position, page, has in zip(positions, pages, there, strict=True):
            if has:
                pool.set_from_flat_data_page(position * self._memory.page_size, page)
        return there


class StoredPages(Pages):
    """Pages in a store of this process."""

    def __init__(
        self,
        store: kvcache.Store | Attached,
        memory: PoolMemory,
        machine: headrace.Machine,
        in_flight: int,
    ) -> None:
        super().__init__(memory, machine)
        self._store = store
        self._range: headrace.MemoryRange | None = None
        if memory.region is not None:
            self._range = memory_range(memory.region_bytes(), machine)
        self._warner = Warner(_log)
        self._part = max(1, _PART_BYTES // self.page_bytes)
        # The store would refuse a part of more than `in_flight` bytes.
        self._stored_at_once = max(1, in_flight // 2 // self.page_bytes)

    def there(self, keys: Sequence[str]) -> list[bool]:
        return self._store.contains([key.encode() for key in keys])

    def get(self, keys: Sequence[str], indices: Any) -> list[bool]:
        positions = self._memory.positions(indices, len(keys))
        if self._range is None:
            return self._get_copied(keys, positions)
        return self._load(keys, self._range, positions)

    def set(self, keys: Sequence[str], indices: Any) -> list[bool]:
        positions = self._memory.positions(indices, len(keys))
        if self._range is None:
            tokens = [each * self._memory.page_size for each in positions]
            return self.set_from(keys, [self._memory.pool.get_data_page(at) for at in tokens])
        return self._keep(keys, self._range, positions)

    def get_into(self, keys: Sequence[str], pages: Sequence[Any]) -> list[bool]:
        return self._load(keys, self._ranges(pages), None)

    def set_from(self, keys: Sequence[str], pages: Sequence[Any]) -> list[bool]:
        return self._keep(keys, self._ranges([page.contiguous() for page in pages]), None)

    def _ranges(self, pages: Sequence[Any]) -> list[headrace.MemoryRange]:
        ranges = [memory_range(page, self._machine) for page in pages]
        for each in ranges:
            self._check(len(each))
        return ranges

    def _load(self, keys: Sequence[str], into: Any, positions: list[int] | None) -> list[bool]:
        loads: list[kvcache.Load | Done[None]] = []
        try:
            for part in _parts(len(keys), self._part):
                names, memory, place = _part_of(part, keys, into, positions)
                loads.append(self._store.load_blocks(names, memory, **place))
        except (headrace.Error, MemoryError) as error:
            self._warner.warn("pages are computed again: %s", error)
        there = [has for load in _ended(loads) for has in load.loaded]
        return there + [False] * (len(keys) - len(there))

    def _keep(self, keys: Sequence[str], source: Any, positions: list[int] | None) -> list[bool]:
        there: list[bool] = []
        for part in _parts(len(keys), self._stored_at_once):
            names, memory, place = _part_of(part, keys, source, positions)
            try:
                stored = self._store.store(names, memory, **place)
            except (headrace.Error, MemoryError) as error:
                self._warner.warn("pages are not kept: %s", error)
                return there + [False] * (len(keys) - len(there))
            _wait(stored)
            counts = stored.wait(0)
            all_kept = counts.stored + counts.present == len(names)
            there += [True] * len(names) if all_kept else self._store.contains(names)
        with suppress(headrace.Error):  # closed meanwhile
            self._warner.not_kept("pages", self._store.stats())
        return there


class WritersPages(StoredPages):
    """Pages in the store of the rank that writes the pages of all ranks. If that rank does not
    answer, no page is found.
    """

    def __init__(self, store: Attached, memory: PoolMemory, machine: headrace.Machine) -> None:
        super().__init__(store, memory, machine, 0)
        self._warned = False

    def there(self, keys: Sequence[str]) -> list[bool]:
        try:
            there = super().there(keys)
        except headrace.Error as error:
            if not self._warned:
                _log.warning("no pages of the rank that writes them: %s", error)
            self._warned = True
            return [False] * len(keys)
        self._warned = False
        return there

    def set(self, keys: Sequence[str], indices: Any) -> list[bool]:
        return [False] * len(keys)  # SGLang lets only the writer

    def set_from(self, keys: Sequence[str], pages: Sequence[Any]) -> list[bool]:
        return [False] * len(keys)


def _ended(loads: Sequence[kvcache.Load | Done[None]]) -> Sequence[kvcache.Load | Done[None]]:
    """Waits until no load writes to its memory any more. Loads that take too long are cancelled."""
    until = time.monotonic() + _COPY_SECONDS
    for load in loads:
        try:
            load.wait(max(0.0, until - time.monotonic()))
        except headrace.TimedOutError:
            load.cancel()
        except headrace.Error:  # of some pages: `loaded` says which
            pass
    for load in loads:
        _wait(load)
    return loads


def _wait(copy: kvcache.Load | kvcache.Stored | Done[Any]) -> None:
    """Waits until the copy does not use its memory any more, because SGLang reuses the memory as
    soon as the call returns. Only I/O threads of SGLang wait here. The bound is the kernel's: the
    driver of a disk ends each I/O with an error after its timeout (/sys/block/*/queue/io_timeout).
    """
    begun = time.monotonic()
    while not copy.done():
        try:
            copy.wait(_REPORT_SECONDS)
        except headrace.TimedOutError:
            _log.warning(
                "pages are not copied after %.0f s, and the engine's memory is still in use; the "
                "disk does not answer", time.monotonic() - begun,
            )  # fmt: skip
        except headrace.Error:  # it has ended
            pass


def _part_of(
    part: slice, keys: Sequence[str], memory: Any, positions: list[int] | None
) -> tuple[list[bytes], Any, dict[str, Any]]:
    """Arguments of Store.store() and Store.load_blocks(), for memory with positions or for one
    range for each page.
    """
    names = [key.encode() for key in keys[part]]
    if positions is None:
        return names, memory[part], {}
    return names, memory, {"layout": "layer_first", "positions": positions[part]}


def _parts(count: int, most: int) -> Iterator[slice]:
    return (slice(first, min(first + most, count)) for first in range(0, count, most))
