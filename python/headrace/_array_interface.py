# SPDX-License-Identifier: Apache-2.0
"""Finds the memory of other libraries' arrays that have no buffer protocol.

PyTorch is used only if it was imported already, because its import takes seconds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

from headrace import _core
from headrace._core import InvalidError, UnsupportedError

# Device types of DLPack.
_CPU = 1
_CUDA = 2
_CUDA_HOST = 3

_LEGACY_STREAM = 1  # of __dlpack__(): what the producer orders its work before


class ArrayMemory(NamedTuple):
    """Memory, and the object that keeps it alive."""

    address: int
    size: int
    on_gpu: bool
    writable: bool
    itemsize: int
    stream: int | None  # what is to be waited for before the memory is used
    keeper: object


def memory_of(memory: Any) -> ArrayMemory | None:
    """The memory of an array; None: an array of an unknown type."""
    torch = sys.modules.get("torch")
    if isinstance(memory, getattr(torch, "Tensor", ())):
        return _of_tensor(torch, memory)
    described = getattr(memory, "__cuda_array_interface__", None)
    if described is not None:
        return _of_interface(described, memory)
    if hasattr(memory, "__dlpack__") and hasattr(memory, "__dlpack_device__"):
        return _of_dlpack(memory)
    return None


def _of_tensor(torch: Any, tensor: Any) -> ArrayMemory:
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise UnsupportedError(f"a tensor on '{kind}'; move it to a GPU of CUDA or to the CPU")
    if not tensor.is_contiguous():
        raise _gaps(tuple(tensor.stride()))
    on_gpu = kind == "cuda"
    return ArrayMemory(
        tensor.data_ptr(),
        tensor.numel() * tensor.element_size(),
        on_gpu,
        True,
        tensor.element_size(),
        torch.cuda.current_stream(tensor.device).cuda_stream if on_gpu else None,
        tensor,
    )


def _of_interface(described: dict[str, Any], memory: object) -> ArrayMemory:
    try:
        shape = tuple(index(length) for length in described["shape"])
        itemsize = int(described["typestr"][2:])
        address, read_only = described["data"]
        strides = described.get("strides")
        whole = strides is None or _whole(shape, strides, itemsize)
        stream = described.get("stream")
        found = ArrayMemory(
            index(address or 0),
            _size(shape, itemsize),
            True,
            not read_only,
            itemsize,
            None if stream is None else index(stream),
            memory,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidError(f"a __cuda_array_interface__ that is none ({error!r})") from None
    if described.get("mask") is not None:
        raise InvalidError("an array with a mask; give the array without it")
    if not whole:
        raise _gaps(strides or ())
    if found.stream is not None and not 0 < found.stream < 1 << 64:
        raise InvalidError(
            f"an array on stream {found.stream}, which __cuda_array_interface__ has not: 1 is the "
            "default stream, 2 that of each thread"
        )
    return _there(found)


def _of_dlpack(memory: Any) -> ArrayMemory:
    try:
        kind = index(memory.__dlpack_device__()[0])
    except (IndexError, TypeError) as error:
        raise InvalidError(f"a __dlpack_device__() that is none ({error!r})") from None
    if kind not in (_CPU, _CUDA, _CUDA_HOST):
        raise UnsupportedError(
            f"an array on DLPack's device {kind}; memory of a GPU is 2, of the host 1 and 3"
        )
    options = {"stream": _LEGACY_STREAM} if kind == _CUDA else {}
    try:
        capsule = memory.__dlpack__(**options, max_version=(1, 0))
    except TypeError:  # of an older one
        capsule = memory.__dlpack__(**options)
    contents = _core._dlpack_take(capsule)  # type: ignore[attr-defined]
    its_kind, address, shape, strides, itemsize, writable, keeper = contents
    if its_kind != kind:
        raise InvalidError(
            f"an array on DLPack's device {its_kind}, whose __dlpack_device__() says {kind}"
        )
    try:
        whole = strides is None or _whole(shape, strides, 1)
        size = _size(shape, itemsize)
    except ValueError as error:
        raise InvalidError(f"a capsule of DLPack that is none ({error!r})") from None
    if not whole:
        raise _gaps(strides)
    stream = 0 if kind == _CUDA else None
    return _there(ArrayMemory(address, size, kind == _CUDA, writable, itemsize, stream, keeper))


def _size(shape: Sequence[int], itemsize: int) -> int:
    if itemsize < 1 or any(length < 0 for length in shape):
        raise ValueError(f"shape {tuple(shape)} of elements of {itemsize} bytes")
    return math.prod(shape) * itemsize


def _there(found: ArrayMemory) -> ArrayMemory:
    """Returns the memory unchanged, after checking that such memory can exist."""
    end = found.address + found.size
    if found.address < 0 or end > sys.maxsize or (found.address == 0 and found.size > 0):
        raise InvalidError(f"an array of {found.size} bytes at address {found.address:#x}")
    return found


def _whole(shape: Sequence[int], strides: Sequence[int], step: int) -> bool:
    """Whether the elements lie one after the other, in the order of C."""
    if 0 in shape:
        return True
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != step:
            return False
        step *= length
    return True


def _gaps(strides: Sequence[int]) -> InvalidError:
    return InvalidError(
        f"an array with strides {tuple(strides)}, whose elements do not lie one after the other; "
        "give a contiguous one"
    )
