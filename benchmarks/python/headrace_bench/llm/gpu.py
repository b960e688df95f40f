# SPDX-License-Identifier: Apache-2.0
"""A GPU as a place for keys and values: its choice, its memory, and its rates."""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
import threading
import time
from collections.abc import Sequence
from typing import Any

import headrace
from headrace_bench.llm.stores import Part

_RATE_BYTES = 32 << 20
_TIMES = 3
_TIMEOUT_SECONDS = 60.0


def gpu_named(machine: headrace.Machine, on: str) -> headrace.Node | None:
    """The node of GPU memory that `on` names; None if it names memory that CPUs read. AbsentError:
    it names a GPU, and there is none.
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
    """Copies between host memory and one GPU, to compare contents and to measure rates."""

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
        """Words for this memory in an error."""
        if self.node.capacity is None:
            return f"memory of {self.node.name}, which has less free"
        whole = headrace.format_bytes(self.node.capacity)
        return f"memory of {self.node.name}, which has less free of its {whole}"

    def memory(self, size: int) -> headrace.Buffer:
        return headrace.allocate(self._machine, size, str(self.node.id))

    def copy(self, to: Any, source: Any) -> None:
        self._mover.copy(to, source).wait(_TIMEOUT_SECONDS)

    def fetch(self, place: headrace.Buffer, to: Any) -> None:
        """Copies the beginning of the place into `to`, until that is full."""
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


class _Stream:
    """A stream of a thread, destroyed at its end."""

    def __init__(self, cuda: ctypes.CDLL, stream: ctypes.c_void_p) -> None:
        self._cuda, self.stream = cuda, stream

    def __del__(self) -> None:
        self._cuda.cuStreamDestroy_v2(self.stream)


class DriverCopies:
    """Copies by the driver of GPUs alone, as an engine without a mover makes them: one call for
    each part, and one wait for all parts. Each thread has a stream of its own.
    """

    together = True

    def __init__(self, machine: headrace.Machine, node: headrace.Node) -> None:
        """Errors: headrace.AbsentError: the driver does not know the GPU of this node."""
        self._machine, self._node = machine, node
        headrace.gpu_driver()  # says why there is none
        self._cuda = ctypes.CDLL(os.environ.get("HEADRACE_LIBCUDA") or "libcuda.so.1")
        self._cuda.cuMemcpyAsync.argtypes = [ctypes.c_uint64] * 2 + [
            ctypes.c_size_t, ctypes.c_void_p
        ]  # fmt: skip
        self._cuda.cuStreamSynchronize.argtypes = [ctypes.c_void_p]
        self._cuda.cuCtxPushCurrent_v2.argtypes = [ctypes.c_void_p]
        self._context = ctypes.c_void_p()
        self.ordinal, device = self._device()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._mine = threading.local()

    def copy(self, parts: Sequence[Part]) -> None:
        stream = self._stream()
        for to, source, size in parts:
            self._call("cuMemcpyAsync", to, source, size, stream)
        self._call("cuStreamSynchronize", stream)

    def memory(self, tier: str, size: int) -> headrace.Buffer:
        where = str(self._node.id) if tier == "gpu" else headrace.Placement.parse(
            self._machine, tier, pin=True
        )  # fmt: skip
        return headrace.allocate(self._machine, max(size, mmap.PAGESIZE), where)

    def bounce(self, size: int) -> int | None:
        if len(getattr(self._mine, "bounce", b"")) < size:
            self._mine.bounce = self.memory("dram", size)
        return int(self._mine.bounce.numpy().ctypes.data)

    def _stream(self) -> ctypes.c_void_p:
        if not hasattr(self._mine, "stream"):
            self._call("cuCtxPushCurrent_v2", self._context)
            stream = ctypes.c_void_p()
            self._call("cuStreamCreate", ctypes.byref(stream), 1)  # does not wait for others
            self._mine.stream = _Stream(self._cuda, stream)
        found: _Stream = self._mine.stream
        return found.stream

    def _device(self) -> tuple[int, ctypes.c_int]:
        count, device = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        wanted = self._node.gpu.uuid if self._node.gpu is not None else ""
        for ordinal in range(count.value):
            self._call("cuDeviceGet", ctypes.byref(device), ordinal)
            uuid = ctypes.create_string_buffer(16)
            self._call("cuDeviceGetUuid_v2", uuid, device)
            if uuid.raw.hex() == wanted.replace("-", ""):
                return ordinal, device
        raise headrace.AbsentError(f"the driver knows no GPU like {self._node.name}; see topo")

    def _call(self, name: str, *arguments: Any) -> None:
        if (status := getattr(self._cuda, name)(*arguments)) != 0:
            raise OSError(5, f"{name} failed with {status}")
