# SPDX-License-Identifier: Apache-2.0
"""A GPU as a place for keys and values: which one is meant, memory there, and how fast it is."""

from __future__ import annotations

import mmap
import statistics
import time
from typing import Any

import headrace

_RATE_BYTES = 32 << 20
_TIMES = 3
_TIMEOUT_SECONDS = 60.0


def gpu_named(machine: headrace.Machine, on: str) -> headrace.Node | None:
    """The node of GPU memory that `on` means; nothing if it means memory that CPUs read.
    AbsentError: it means a GPU, and there is none.
    """
    gpus = [node for node in machine.nodes if node.gpu is not None]
    if on.strip().lower() != "gpu":
        return next((node for node in gpus if str(node.id) == on.strip()), None)
    if gpus:
        return gpus[0]
    try:
        headrace.unified_memory_gpu(machine)  # says why
    except headrace.AbsentError as error:
        raise headrace.AbsentError(f"{error}; or give --on dram, a memory of the host") from None
    raise headrace.AbsentError("no GPU in this machine; give --on dram, a memory of the host")


def pages_on(node: headrace.Node, size: int) -> dict[int, int]:
    """Pages by node of a buffer that is wholly on one node, in pages of the host."""
    return {node.id: size // mmap.PAGESIZE}


class Device:
    """Copies between memory of the host and of one GPU, for what is compared and how fast it is."""

    def __init__(self, machine: headrace.Machine, node: headrace.Node) -> None:
        self._machine, self.node = machine, node
        self._mover = headrace.Mover(machine)

    def has_room(self, size: int) -> bool:
        """Returns whether this much memory can be allocated now, by allocating and releasing it."""
        try:
            return size == 0 or len(self.memory(size)) == size
        except headrace.ExhaustedError:
            return False

    def words(self) -> str:
        """What refuses more than it has."""
        if self.node.capacity is None:
            return f"memory of {self.node.name}, which has less free"
        whole = headrace.format_bytes(self.node.capacity)
        return f"memory of {self.node.name}, which has less free of its {whole}"

    def memory(self, size: int) -> headrace.Buffer:
        return headrace.allocate(self._machine, size, str(self.node.id))

    def copy(self, to: Any, source: Any) -> None:
        self._mover.copy(to, source).wait(_TIMEOUT_SECONDS)

    def fetch(self, place: headrace.Buffer, to: Any) -> None:
        """The beginning of it, as much as `to` holds."""
        if len(to):
            self.copy(headrace.MemoryRange(to), place.extent(0, len(to)))

    def wipe(self, place: headrace.Buffer, zeros: Any) -> None:
        if len(zeros):
            self.copy(place.extent(0, len(zeros)), headrace.MemoryRange(zeros))

    def rates(self) -> tuple[float, float]:
        """Bytes per second inside the GPU, and from pinned memory of the host to it."""
        one, two = self.memory(_RATE_BYTES), self.memory(_RATE_BYTES)
        pinned = headrace.Placement.parse(self._machine, "dram", pin=True)
        host = headrace.allocate(self._machine, _RATE_BYTES, pinned)
        return self._rate(one, two), self._rate(one, host)

    def _rate(self, to: Any, source: Any) -> float:
        times = []
        for _ in range(_TIMES):
            begin = time.perf_counter()
            self.copy(to, source)
            times.append(time.perf_counter() - begin)
        return _RATE_BYTES / statistics.median(times)
