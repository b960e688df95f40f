"""Arrays that say wrong things of themselves, or must not be written to: each is refused by one
line, and nothing of the interpreter is lost."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy
import pytest

import headrace
from headrace import kv

SIZE = 1 << 12


class Objects(ctypes.Structure):
    _fields_ = [("Offset", ctypes.c_int), ("it", ctypes.py_object)]


class Numbers(ctypes.Structure):
    _fields_ = [("Offset", ctypes.c_int), ("O", ctypes.c_long)]


MIXED = [("when", "M8[s]"), ("what", "O")]  # NumPy has no format for it


@pytest.mark.parametrize(
    "array",
    [
        numpy.full(SIZE // 8, None, object),
        numpy.zeros(4, [("a", "i8"), ("b", [("c", "O")])]),
        numpy.zeros(4, MIXED),
        (ctypes.py_object * 4)(),
        (Objects * 2)(),
        memoryview((ctypes.py_object * 4)()),
    ],
    ids=["objects", "nested", "times", "ctypes", "structure", "memoryview"],
)
def test_arrays_of_objects_are_refused(array: Any, mover: headrace.Mover) -> None:
    def refused(take: Any) -> None:
        with pytest.raises(headrace.InvalidError, match="Python objects"):
            take()

    refused(lambda: headrace.MemoryRange(array))
    refused(lambda: headrace.where(array))
    geometry = kv.Geometry("g", layers=1, kv_heads=1, head_dim=8, block_tokens=1)
    store = kv.Store(mover, geometry, [kv.Memory("dram", 1 << 20)])
    refused(lambda: store.load([], array))
    refused(lambda: store.store([], array))


def test_other_arrays_are_taken() -> None:
    for array in (
        numpy.zeros(4, "M8[s]"),
        numpy.zeros(4, [("Offset", "i4"), ("O", "i8")]),
        (Numbers * 2)(),
        bytearray(32),
        memoryview(bytearray(32)).cast("I"),
        b"bytes",
    ):
        taken = headrace.MemoryRange(array, 0)
        assert taken.size == memoryview(taken).nbytes
        assert taken.writable == (not isinstance(array, bytes))
        assert taken.itemsize == getattr(array, "itemsize", taken.itemsize)
    with pytest.raises((BufferError, ValueError)):
        headrace.MemoryRange(numpy.zeros((4, 4))[:, 1], 0)
