# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays in memory of a placement."""

from __future__ import annotations

import functools
import math
import operator
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from headrace._core import Arena, ExhaustedError, Machine, Placement, allocate

if TYPE_CHECKING:
    import numpy
    import numpy.typing


def empty(
    shape: SupportsIndex | Sequence[SupportsIndex],
    dtype: numpy.typing.DTypeLike = "float64",
    *,
    place: str | Placement | Arena = "dram",
    machine: Machine | None = None,
) -> numpy.typing.NDArray[Any]:
    """A NumPy array in memory placed like that of ``allocate``; zeroed, except in an arena.

    ``place`` is an Arena, a Placement, or the text of one: a kind ``"hbm"``, a property
    ``"fastest"``, nodes ``"8-15"``, weights ``"dram=3,cxl=1"``, a spill order ``"hbm:dram"``.
    ``"storage"`` is an unnamed file on the disk, for arrays larger than memory; forked processes
    share it. Memory is whole pages, so this function is for large arrays; in an Arena, arrays of
    any size share pages. The memory is freed with the last array that uses it. Libraries that take
    DLPack take the array.

    ``machine``: this host by default, discovered once; for ``"storage"`` with the disk of the
    working directory.

    ExhaustedError: it does not fit. AbsentError: there is no such memory. As in NumPy, ValueError:
    a negative size; TypeError: no shape, no place, or no dtype of plain data of a known length.
    """
    import numpy

    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise TypeError("arrays of Python objects cannot be placed; use a dtype of plain data")
    if kind.itemsize == 0:
        raise TypeError(f"a dtype of no bytes, {kind}; give its length, as in 'S8'")
    if not isinstance(place, str | Placement | Arena):
        raise TypeError(
            f"place is a Placement, an Arena or text such as 'hbm' or '8-15', not {place!r}"
        )
    sizes = _sizes(shape)
    size = math.prod(sizes) * kind.itemsize
    if size > sys.maxsize:
        raise ExhaustedError(f"{size} bytes are more than any machine has; ask for less")
    if isinstance(place, Arena):
        return numpy.ndarray(sizes, kind, buffer=memoryview(place.allocate(max(size, 1))))
    here = machine or _this_host(os.getcwd() if place == "storage" else None)
    buffer = allocate(here, max(size, 1), place)
    return numpy.ndarray(sizes, kind, buffer=memoryview(buffer))


def _sizes(shape: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
    sizes: tuple[int, ...]
    try:
        sizes = (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        try:
            sizes = tuple(map(operator.index, shape))  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"a shape is a whole number or several, not {shape!r}") from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"a shape of {sizes} has a negative size")
    return sizes


@functools.cache
def _this_host(folder: str | None) -> Machine:
    return Machine.discover(storage=[folder] if folder else [])
