# SPDX-License-Identifier: Apache-2.0
"""Weights from safetensors files, read past the page cache where it does not have them.

>>> from headrace import safetensors
>>> weights = safetensors.load("model.safetensors")
>>> weights["embed.weight"].shape
(32000, 4096)

The format: https://github.com/huggingface/safetensors (8 bytes of length, a JSON header, data).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from headrace._core import (
    Extent,
    File,
    InvalidError,
    Machine,
    MemoryRange,
    Mover,
    Object,
    Placement,
    Transfer,
    allocate,
)
from headrace._errors import error_of
from headrace.kvcache import memory_range

__all__ = ["Tensor", "header", "load"]

#: The format's own bound of a header's length.
_LONGEST_HEADER = 100_000_000
_PAGE = 4096
#: Tensors below _SMALL bytes that lie together are read as one, up to _TOGETHER bytes, and spread.
_SMALL, _TOGETHER = 1 << 20, 32 << 20
#: The share of a file in the page cache from which on it is read through it.
_RESIDENT = 0.75

#: Bytes of an element, and its type in numpy. numpy has none for those of 8 and 16 bits that only
#: GPUs compute with: they are given as unsigned integers of that size.
_TYPES: dict[str, tuple[int, str]] = {
    "F64": (8, "float64"), "F32": (4, "float32"), "F16": (2, "float16"), "BF16": (2, "uint16"),
    "F8_E4M3": (1, "uint8"), "F8_E5M2": (1, "uint8"), "F8_E8M0": (1, "uint8"),
    "I64": (8, "int64"), "I32": (4, "int32"), "I16": (2, "int16"), "I8": (1, "int8"),
    "U64": (8, "uint64"), "U32": (4, "uint32"), "U16": (2, "uint16"), "U8": (1, "uint8"),
    "BOOL": (1, "bool"), "C64": (8, "complex64"),
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """Where a tensor is in its file. `dtype`: as the file names it; `offset`: in bytes."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


def header(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file, in the order of their bytes. InvalidError: it is no safetensors file,
    or a tensor lies outside it or on another one.
    """
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = os.fstat(file.fileno()).st_size
            if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
                raise InvalidError(f"{path} is no safetensors file: its header has {length} bytes")
            found = json.loads(file.read(length))
    except OSError as error:
        raise error_of(error, f"cannot read {path}") from None
    except InvalidError:
        raise
    except (ValueError, RecursionError):
        raise InvalidError(f"{path} is no safetensors file: its header is no JSON") from None
    if not isinstance(found, dict):
        raise InvalidError(f"{path} is no safetensors file: its header is no object")
    found.pop("__metadata__", None)
    tensors = {name: _tensor(path, name, each, 8 + length) for name, each in found.items()}
    ordered = dict(sorted(tensors.items(), key=lambda each: (each[1].offset, each[1].bytes)))
    end = 8 + length
    for name, tensor in ordered.items():
        if tensor.offset < end or tensor.offset + tensor.bytes > size:
            raise InvalidError(f"{path}: {name!r} lies outside the file, or on another tensor")
        end = tensor.offset + tensor.bytes
    return ordered


def _tensor(path: Any, name: str, found: Any, base: int) -> Tensor:
    try:
        dtype, shape = found["dtype"], tuple(found["shape"])
        first, last = found["data_offsets"]
        right = all(type(each) is int and each >= 0 for each in (*shape, first, last))
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise InvalidError(f"{path}: the header's {name!r} is no tensor")
    if dtype not in _TYPES:
        known = ", ".join(_TYPES)
        raise InvalidError(f"{path}: {name!r} has the type {dtype!r}; known are {known}")
    if last - first != math.prod(shape) * _TYPES[dtype][0]:
        raise InvalidError(f"{path}: {name!r} has {last - first} bytes for its shape {shape}")
    return Tensor(dtype, shape, base + first, last - first)


def load(
    path: str | os.PathLike[str],
    *,
    into: Mapping[str, Any] | None = None,
    on: Placement | str = "dram",
    mover: Mover | None = None,
    timeout: float = 3600.0,
) -> dict[str, Any]:
    """The tensors of a file by name.

    Without `into`: numpy arrays over one Buffer, allocated by `on`; types that numpy does not have
    are unsigned integers of their size. Placement.on(…, pin=True) registers it for copies to GPUs.
    `into`: arrays, tensors of PyTorch (also on a GPU), Objects or Extents by name, contiguous and
    of the tensors' sizes; only these are read, and are what is returned.

    The file is read in its order, as one move. What the page cache has is taken from there.
    Errors: InvalidError: see header(); a name or size of `into` is not the file's. IoError: the
    file could not be read. TimedOutError.
    """
    tensors = header(path)
    if mover is None:
        mover = Mover(Machine.discover(storage=[Path(path).absolute().parent]))
    file = File.open(mover.machine, path)
    if file.page_cache_residency() >= _RESIDENT * file.size:
        file = File.open(mover.machine, path, direct=False)
    if into is not None:
        wanted = _wanted(path, tensors, into, mover.machine)
        _Reading(file, mover, timeout).run(wanted)
        return dict(into)
    # At the same offset within a page as in the file: devices read it in place.
    first = min((each.offset for each in tensors.values()), default=0)
    last = max((each.offset + each.bytes for each in tensors.values()), default=0)
    if first == last:
        return {name: _array(numpy.empty(0, numpy.uint8), each, 0)
                for name, each in tensors.items()}  # fmt: skip
    begin = first // _PAGE * _PAGE
    # Huge pages would be compacted first, which took longer than reading where memory was full.
    place = Placement.parse(mover.machine, on, pages="base") if isinstance(on, str) else on
    buffer = allocate(mover.machine, last - begin, place)
    mover.copy(buffer.extent(0, last - begin), file.extent(begin, last - begin)).wait(timeout)
    content = buffer.numpy("uint8")
    return {name: _array(content, each, each.offset - begin) for name, each in tensors.items()}


def _array(content: Any, tensor: Tensor, at: int) -> Any:
    part = content[at : at + tensor.bytes]
    size, name = _TYPES[tensor.dtype]
    if (part.ctypes.data if tensor.bytes else 0) % size:
        part = part.copy()  # the file does not align it
    return part.view(name).reshape(tensor.shape)


Wanted = list[tuple[Tensor, Any]]  # in the file's order, with where each one goes


def _wanted(
    path: Any, tensors: Mapping[str, Tensor], into: Mapping[str, Any], machine: Machine
) -> Wanted:
    for name in into:
        if name not in tensors:
            raise InvalidError(f"{path} has no tensor {name!r}")
    home = next((node.id for node in machine.nodes if node.kind not in ("storage", "gpu")), 0)
    wanted = []
    for name, tensor in tensors.items():
        if name not in into or tensor.bytes == 0:
            continue
        memory = into[name]
        if isinstance(memory, numpy.ndarray) and tensor.bytes < _SMALL:
            memory = MemoryRange(memory, home)  # to ask the kernel for its node takes 30 us
        elif not isinstance(memory, Extent | Object):
            memory = memory_range(memory, machine)
        length = memory.length if isinstance(memory, Extent) else memory.size
        if length != tensor.bytes:
            raise InvalidError(
                f"{path}: {name!r} has {tensor.bytes} bytes, and {length} in what it is loaded into"
            )
        wanted.append((tensor, memory))
    return wanted


class _Reading:
    """One load into given memory: large tensors directly, small ones through two buffers, of which
    one is read into while the other is spread.
    """

    def __init__(self, file: File, mover: Mover, timeout: float) -> None:
        self._file, self._mover = file, mover
        self._until = time.monotonic() + timeout
        self._buffers: list[Any] = []
        self._spreading: list[Transfer | None] = [None, None]

    def run(self, wanted: Wanted) -> None:
        large = [each for each in wanted if each[0].bytes >= _SMALL]
        pairs = [(memory, self._file.extent(each.offset, each.bytes)) for each, memory in large]
        direct = self._mover.copy_all(pairs) if pairs else None
        before: tuple[Transfer, int, Wanted] | None = None
        for number, group in enumerate(_groups(wanted)):
            reading = self._read(group, number % 2)
            if before is not None:
                self._spread(*before)
            before = (reading, number % 2, group)
        if before is not None:
            self._spread(*before)
        for transfer in (*self._spreading, direct):
            if transfer is not None:
                self._wait(transfer)

    def _read(self, group: Wanted, side: int) -> Transfer:
        if len(self._buffers) <= side:
            size = _TOGETHER + _SMALL + _PAGE
            self._buffers.append(allocate(self._mover.machine, size))
        if (spreading := self._spreading[side]) is not None:
            self._wait(spreading)
        begin, end = _span(group)
        to = self._buffers[side].extent(0, end - begin)
        return self._mover.copy(to, self._file.extent(begin, end - begin))

    def _spread(self, reading: Transfer, side: int, group: Wanted) -> None:
        self._wait(reading)
        begin, _ = _span(group)
        buffer = self._buffers[side]
        self._spreading[side] = self._mover.copy_all(
            [(memory, buffer.extent(each.offset - begin, each.bytes)) for each, memory in group]
        )

    def _wait(self, transfer: Transfer) -> None:
        transfer.wait(max(0.0, self._until - time.monotonic()))


def _span(group: Wanted) -> tuple[int, int]:
    """From a page's begin, so that devices read in place."""
    return group[0][0].offset // _PAGE * _PAGE, group[-1][0].offset + group[-1][0].bytes


def _groups(wanted: Wanted) -> Iterator[Wanted]:
    """Small tensors whose bytes lie together."""
    group: Wanted = []
    for each in wanted:
        tensor = each[0]
        if tensor.bytes >= _SMALL:
            continue
        if group:
            end = group[-1][0].offset + group[-1][0].bytes
            if tensor.offset - end > _PAGE or end - group[0][0].offset >= _TOGETHER:
                yield group
                group = []
        group.append(each)
    if group:
        yield group
