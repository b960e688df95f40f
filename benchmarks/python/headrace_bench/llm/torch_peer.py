# SPDX-License-Identifier: Apache-2.0
"""PyTorch on a GPU, as engines use it: layers of blocks by one copy each, and matrix products that
stand for computing. PyTorch is imported only when it is needed.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import headrace
from headrace._language_models import Model
from headrace_bench.llm.gpu import DriverCopies
from headrace_bench.llm.stores import Part, address_of


def torch_with_cuda() -> Any:
    """Returns the module. Errors: headrace.AbsentError: it is not here, or has no GPU."""
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise headrace.AbsentError("no PyTorch here; pip install torch") from None
    if not torch.cuda.is_available():
        raise headrace.AbsentError("PyTorch has no GPU here; install its build with CUDA")
    return torch


def has_torch() -> bool:
    try:
        torch_with_cuda()
    except headrace.AbsentError:
        return False
    return True


class TorchCopies(DriverCopies):
    """The blocks of one layer: gathered into pinned memory by the calling thread, one copy to the
    GPU, and index_copy_() to their places there. Other copies are the driver's.
    """

    def __init__(self, machine: headrace.Machine, node: headrace.Node) -> None:
        super().__init__(machine, node)
        self._torch, self._device_name = torch_with_cuda(), f"cuda:{self.ordinal}"
        self._of_host: list[range] = []  # addresses of the tiers in memory of the host
        self._lock = threading.Lock()
        self._staged = threading.local()

    def memory(self, tier: str, size: int) -> headrace.Buffer:
        made = super().memory(tier, size)
        if tier != "gpu":
            begin = address_of(made)
            with self._lock:
                self._of_host.append(range(begin, begin + len(made)))
        return made

    def copy(self, parts: Sequence[Part]) -> None:
        gathered = [part for part in parts if self._is_of_host(part[1])] if len(parts) > 1 else []
        others = [part for part in parts if part not in gathered]
        if gathered:
            self._copy_layer(gathered)
        if others:
            super().copy(others)

    def _is_of_host(self, address: int) -> bool:
        with self._lock:
            return any(address in each for each in self._of_host)

    def _copy_layer(self, parts: Sequence[Part]) -> None:
        torch, size = self._torch, parts[0][2]
        host, there = self._staging(len(parts) * size)
        for i, (_, source, _) in enumerate(parts):
            ctypes.memmove(host + i * size, source, size)
        stream = self._stream()
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.value, self._device_name)):
            self._call("cuMemcpyAsync", there, host, len(parts) * size, stream)
            begin = min(to for to, _, _ in parts)
            rows = [(to - begin) // size for to, _, _ in parts]
            places = self._tensor(begin, max(rows) + 1, size)
            index = torch.tensor(rows, device=self._device_name)
            places.index_copy_(0, index, self._tensor(there, len(parts), size))
        self._call("cuStreamSynchronize", stream)

    def _staging(self, size: int) -> tuple[int, int]:
        """Addresses of this thread's pinned memory and memory on the GPU."""
        if getattr(self._staged, "size", 0) < size:
            self._staged.memories = [DriverCopies.memory(self, t, size) for t in ("dram", "gpu")]
            self._staged.size = size
        host, there = self._staged.memories
        return address_of(host), address_of(there)

    def _tensor(self, address: int, rows: int, size: int) -> Any:
        array = {
            "shape": (rows, size), "typestr": "|u1", "data": (address, False), "version": 3,
            "strides": None, "stream": None,
        }  # fmt: skip
        return self._torch.as_tensor(
            SimpleNamespace(__cuda_array_interface__=array), device=self._device_name
        )


class MatrixProducts:
    """A share of a layer as one product of matrices on the GPU, in bfloat16: two operations for
    each parameter and token.
    """

    def __init__(self, model: Model, work: float, ordinal: int) -> None:
        self._torch, self._device = torch_with_cuda(), f"cuda:{ordinal}"
        side = math.sqrt(work * model.token_parameters)
        self._side = max(64, round(side / 64) * 64)  # tensor cores take multiples
        self._weights = self._matrix(self._side)

    def seconds(self, tokens: int) -> float:
        torch, rows = self._torch, self._matrix(max(1, tokens))
        torch.cuda.synchronize(self._device)
        begin = time.perf_counter()
        torch.matmul(rows, self._weights)
        torch.cuda.synchronize(self._device)
        return time.perf_counter() - begin

    def _matrix(self, rows: int) -> Any:
        return self._torch.ones(
            rows, self._side, device=self._device, dtype=self._torch.bfloat16
        )  # fmt: skip
