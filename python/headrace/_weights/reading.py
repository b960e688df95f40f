# SPDX-License-Identifier: Apache-2.0
"""Reads of one load, all in flight at once: resident parts of a file through the page cache, by
threads, and the others past it, by the Mover.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headrace._core import (
    Buffer,
    DeniedError,
    Error,
    Extent,
    File,
    IoError,
    Mover,
    Placement,
    TimedOutError,
    Transfer,
    allocate,
)
from headrace._errors import error_of
from headrace._weights.files import Opened

PAGE = 4096
#: The page cache is asked for parts of this size, and one thread reads a part.
_PART = 4 << 20
#: A part with at least this share in the page cache is read through it.
_RESIDENT = 0.75
#: Threads that copy from the page cache; more gain little on one node.
_THREADS = 8
#: Tensors below SMALL bytes that lie together are read as one, up to a part, and spread; of parts
#: past the page cache _AHEAD are read meanwhile.
SMALL, _AHEAD = 1 << 20, 4
#: Parts that are staged at once, each with a buffer of its size.
_STAGES = 8
#: Longest wait. A disk that does not answer is an error by then.
_SECONDS = 3600.0
#: Buffers of one preadv() (IOV_MAX).
_MOST_BUFFERS = 1000


class Wanted(NamedTuple):
    """The destination of bytes of the file. `array`: the memory as bytes, if CPUs reach it.
    `memory`: for the Mover, from its byte `at` on; None for small tensors with an array.
    """

    offset: int
    bytes: int
    array: Any
    memory: Any
    at: int = 0

    def extent(self, begin: int, length: int) -> Extent:
        if isinstance(self.memory, Extent):
            assert begin == 0 and length == self.memory.length  # it has no array
            return self.memory
        extent: Extent = self.memory.extent(self.at + begin, length)
        return extent


class Source:
    """A file to read from."""

    def __init__(self, opened: Opened, mover: Mover) -> None:
        self.opened = opened
        self.file = File.open(mover.machine, opened.path)
        #: False once the kernel has refused to report the file's pages in the page cache.
        self._may_ask = True
        self._resident: dict[int, bool] = {}

    def resident(self, offset: int) -> bool:
        """Whether the part around this offset is in the page cache."""
        part = offset // _PART
        if part not in self._resident:
            self._resident[part] = self._ask(part * _PART)
        return self._resident[part]

    def _ask(self, begin: int) -> bool:
        length = min(_PART, self.opened.size - begin)
        if self._may_ask:
            try:
                return self.file.page_cache_residency(begin, length) >= _RESIDENT * length
            except DeniedError:  # another user's file
                self._may_ask = False
        try:  # its first page, if that costs no reading
            return os.preadv(self.opened.fd, [bytearray(1)], begin, os.RWF_NOWAIT) == 1
        except OSError:
            return False


class Reading:
    """To be used in a with statement, whose end waits for what was started. Errors: IoError: a file
    could not be read, or became shorter. TimedOutError.
    """

    def __init__(self, mover: Mover) -> None:
        self._mover = mover
        self._until = time.monotonic() + _SECONDS
        self._transfers: list[Transfer] = []
        self._calls: deque[Future[None]] = deque()
        #: Small pages are rarely contiguous, and each is a segment of a request to the disk: reads
        #: into huge pages and copies from there were 1.6 times as fast.
        self._staged = reports_free_pages()
        self._spare: list[Buffer] = []
        self._pool = ThreadPoolExecutor(
            min(_THREADS, len(os.sched_getaffinity(0))), "headrace-weights"
        )
        self._stages = ThreadPoolExecutor(_STAGES, "headrace-stage")

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            for pool in (self._pool, self._stages):
                pool.shutdown(wait=False, cancel_futures=True)
            self._end_transfers()
            # After an error too: threads must not read from a descriptor that is closed. Each has a
            # part to read at most.
            for pool in (self._pool, self._stages):
                pool.shutdown(wait=True)
            self._calls.clear()  # their errors refer to this object

    def _end_transfers(self) -> None:
        """Cancels transfers. Waits until pieces in flight have ended, since they write to the
        caller's memory: the storage engine bounds that (StorageOptions.limit), except for network
        file systems that do not answer.
        """
        for transfer in self._transfers:
            transfer.cancel()
        for transfer in self._transfers:
            while not transfer.done():
                with suppress(Error):  # the first error is raised, or this one was raised already
                    transfer.wait()

    def read(self, source: Source, wanted: Sequence[Wanted]) -> None:
        """Starts reading these, which are in the file's order."""
        cold: list[tuple[Extent, Extent]] = []
        for each in wanted:
            self._read(source, each, cold)
        if cold:
            self._transfers.append(self._mover.copy_all(cold))

    def _read(self, source: Source, wanted: Wanted, cold: list[tuple[Extent, Extent]]) -> None:
        at, end = wanted.offset, wanted.offset + wanted.bytes
        staged = self._staged and wanted.array is not None and wanted.bytes >= SMALL
        while at < end:
            until, resident = at, wanted.array is not None and source.resident(at)
            while until < end:  # one part to copy, or all that follow and are not resident
                until = min(until // _PART * _PART + _PART, end)
                if resident or staged:
                    break
                if wanted.array is not None and until < end and source.resident(until):
                    break
            first, last = at - wanted.offset, until - wanted.offset
            if resident:
                self._call(source.opened, [wanted.array[first:last]], at)
            elif staged:
                array = wanted.array[first:last]
                self._calls.append(self._stages.submit(self._stage, source, array, at))
            else:
                from_file = source.file.extent(at, last - first)
                cold.append((wanted.extent(first, last - first), from_file))
            at = until

    def _call(self, opened: Opened, buffers: list[Any], offset: int) -> None:
        self._calls.append(self._pool.submit(_scatter, opened, buffers, offset))

    def _stage(self, source: Source, array: Any, offset: int) -> None:
        """Reads past the page cache into a buffer of huge pages, and copies from there."""
        try:
            buffer = self._spare.pop()
        except IndexError:
            buffer = allocate(self._mover.machine, _PART + PAGE)
        begin = offset // PAGE * PAGE
        skip, length = offset - begin, offset - begin + len(array)
        move = self._mover.copy(buffer.extent(0, length), source.file.extent(begin, length))
        self._transfers.append(move)
        move.wait(self._left())
        array[:] = buffer.numpy()[skip:length]
        self._spare.append(buffer)

    def spread(self, source: Source, wanted: Sequence[Wanted]) -> None:
        """Reads these into memory of their own; small neighbours as one. Waits for most of them."""
        self.read(source, [each for each in wanted if each.bytes >= SMALL])
        staged: deque[tuple[Transfer, Buffer, list[Wanted]]] = deque()
        spare: list[Buffer] = []
        for group in _groups([each for each in wanted if each.bytes < SMALL]):
            if all(each.array is not None for each in group) and source.resident(group[0].offset):
                self._call(source.opened, _with_gaps(group), group[0].offset)
                continue
            if len(staged) == _AHEAD:
                spare.append(self._unpack(*staged.popleft()))
            buffer = spare.pop() if spare else allocate(self._mover.machine, _PART + SMALL + PAGE)
            begin, length = _span(group)
            move = self._mover.copy(buffer.extent(0, length), source.file.extent(begin, length))
            self._transfers.append(move)
            staged.append((move, buffer, group))
        while staged:
            self._unpack(*staged.popleft())

    def _unpack(self, move: Transfer, buffer: Buffer, group: list[Wanted]) -> Buffer:
        move.wait(self._left())
        begin, _ = _span(group)
        content = buffer.numpy()
        pairs = []
        for each in group:
            at = each.offset - begin
            if each.array is not None:
                each.array[:] = content[at : at + each.bytes]
            else:
                pairs.append((each.extent(0, each.bytes), buffer.extent(at, each.bytes)))
        if pairs:
            self._transfers.append(self._mover.copy_all(pairs))
            self._transfers[-1].wait(self._left())
        return buffer

    def wait(self) -> None:
        """For all that was started."""
        while self._calls:
            try:  # no name for the call: the error's traceback would keep it, and it the error
                self._calls.popleft().result(self._left())
            except FutureTimeoutError:
                message = f"weights are not read after {_SECONDS:g} s; the disk does not answer"
                raise TimedOutError(message) from None
        for transfer in self._transfers:
            transfer.wait(self._left())
        self._transfers.clear()

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())


def _scatter(opened: Opened, buffers: list[Any], offset: int) -> None:
    """Reads buffers that lie one after another in the file."""
    left = sum(len(each) for each in buffers)
    try:
        while left > 0:
            count = os.preadv(opened.fd, buffers, offset)
            if count == 0:
                raise IoError(f"{opened.path} became shorter while it was read; load it again")
            offset += count
            left -= count
            while buffers and count >= len(buffers[0]):
                count -= len(buffers.pop(0))
            if count:
                buffers[0] = buffers[0][count:]
    except OSError as error:
        if isinstance(error, IoError):
            raise
        raise error_of(error, f"cannot read {opened.path}") from None


def _with_gaps(group: list[Wanted]) -> list[Any]:
    buffers: list[Any] = []
    end = group[0].offset
    for each in group:
        if each.offset > end:
            buffers.append(bytearray(each.offset - end))
        buffers.append(each.array)
        end = each.offset + each.bytes
    return buffers


def _span(group: list[Wanted]) -> tuple[int, int]:
    """Begin and length of a group, extended to the beginning of a page, so that devices read in
    place."""
    begin = group[0].offset // PAGE * PAGE
    return begin, group[-1].offset + group[-1].bytes - begin


def _groups(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """Tensors whose bytes lie together, within one part of the file."""
    groups: list[list[Wanted]] = []
    for each in wanted:
        if groups:
            group = groups[-1]
            gap = each.offset - group[-1].offset - group[-1].bytes
            near = gap <= PAGE and each.offset // _PART == group[0].offset // _PART
            if near and 2 * len(group) < _MOST_BUFFERS:
                group.append(each)
                continue
        groups.append([each])
    return groups


def place(mover: Mover, on: Placement | str, pin: bool) -> Placement:
    """The placement of the memory. Threads that read into pages touch them first."""
    if not isinstance(on, str):
        return on
    pages: Literal["base", "transparent"] = "base" if reports_free_pages() else "transparent"
    return Placement.parse(mover.machine, on, pages=pages, touch=pin, pin=pin)


#: A virtio balloon's device number, and its feature of free page reporting.
_BALLOON, _REPORTING = "0x0005", 5


@cache
def reports_free_pages(devices: Path = Path("/sys/bus/virtio/devices")) -> bool:
    """Whether the kernel reports free pages to a hypervisor, which takes their memory back. After a
    pause, new huge pages then have no memory of the host: in one such machine they took 2.5 s of
    CPU time per GiB, small pages 0.5 s.
    """
    for device in devices.glob("*"):
        with suppress(OSError):
            if (device / "device").read_text().strip() == _BALLOON:
                return (device / "features").read_text()[_REPORTING:][:1] == "1"
    return False
