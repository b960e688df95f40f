# SPDX-License-Identifier: Apache-2.0
"""Tensors over bytes that were read: arrays of numpy, tensors of PyTorch."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy

from headrace._core import UnsupportedError

#: Types of the format: bytes of an element, and the name of the type in numpy, ml_dtypes and
#: PyTorch. numpy has none for some of 8 and 16 bits; without ml_dtypes they are
#: unsigned integers of that size.
_TYPES: dict[str, tuple[int, str]] = {
    "F64": (8, "float64"), "F32": (4, "float32"), "F16": (2, "float16"),
    "BF16": (2, "bfloat16"), "F8_E4M3": (1, "float8_e4m3fn"),
    "F8_E5M2": (1, "float8_e5m2"), "F8_E8M0": (1, "float8_e8m0fnu"),
    "I64": (8, "int64"), "I32": (4, "int32"), "I16": (2, "int16"),
    "I8": (1, "int8"), "U64": (8, "uint64"), "U32": (4, "uint32"),
    "U16": (2, "uint16"), "U8": (1, "uint8"), "BOOL": (1, "bool"),
    "C64": (8, "complex64"),
}  # fmt: skip

#: A tensor from content and its address, type, shape, and begin and length of its bytes in it.
View = Callable[[Any, int, str, tuple[int, ...], int, int], Any]


@cache
def numpy_type(name: str) -> Any:
    """The type of numpy for a type of the format."""
    size, known = _TYPES[name]
    if hasattr(numpy, known) or known == "bool":
        return numpy.dtype(known)
    try:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), known))
    except (ImportError, AttributeError):
        return numpy.dtype(f"uint{8 * size}")


def fits(memory_type: Any, name: str) -> bool:
    """Whether memory of this type of numpy or PyTorch may get a tensor of this type of the format:
    its own type, bytes, or the unsigned integers that stand for a type that numpy lacks.
    """
    size, known = _TYPES[name]
    its = str(memory_type).rpartition(".")[2]
    stand_in = None if hasattr(numpy, known) else f"uint{8 * size}"
    return its in (known, "uint8", stand_in)


def of_numpy(
    content: Any, address: int, kind: str, shape: tuple[int, ...], at: int, length: int
) -> Any:
    """An array over the content's bytes, or a copy of them if the file does not align them."""
    array = numpy.ndarray(shape, numpy_type(kind), content, at)
    return array.copy() if (address + at) % _TYPES[kind][0] else array


def torch_module() -> ModuleType:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        message = f"tensors of PyTorch need torch ({error}); install it, or leave device= out"
        raise UnsupportedError(message) from None


def of_torch(
    device: str | None, content: Any, address: int, kind: str, shape: tuple[int, ...], at: int,
    length: int,
) -> Any:  # fmt: skip
    """A tensor over an array of bytes, or over a tensor of bytes on `device`."""
    torch = torch_module()
    size, name = _TYPES[kind]
    wanted = getattr(torch, name)
    if length == 0:
        return torch.empty(shape, dtype=wanted, device=device)
    aligned = (address + at) % size == 0
    if not isinstance(content, numpy.ndarray):
        part = content[at : at + length]
        return (part if aligned else part.clone()).view(wanted).view(shape)
    if not aligned:
        content, at = content[at : at + length].copy(), 0
    count = math.prod(shape)
    return torch.frombuffer(content, dtype=wanted, count=count, offset=at).view(shape)
