# SPDX-License-Identifier: Apache-2.0
"""Arrays that say wrong things of themselves, or must not be written to: each is refused by one
line, and nothing of the interpreter is lost."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy
import pytest

import headrace
from headrace import kvcache

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
    geometry = kvcache.Geometry("g", layers=1, kv_heads=1, head_dim=8, block_tokens=1)
    store = kvcache.Store(mover, geometry, [kvcache.Memory("dram", 1 << 20)])
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


class Once:
    """DLPack and nothing else, always the same capsule."""

    def __init__(self, array: Any = None, kind: int = 1, capsule: Any = None) -> None:
        self.capsule = array.__dlpack__() if capsule is None else capsule
        self.kind = kind

    def __dlpack__(self, **_: object) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)


def test_a_capsule_is_taken_and_its_deleter_called_once() -> None:
    array: Any = numpy.zeros(SIZE, numpy.uint8).view(type("Array", (numpy.ndarray,), {}))
    array[:] = 3
    gone = weakref.ref(array)
    once = Once(array)
    del array
    taken = headrace.MemoryRange(once, 0)
    with pytest.raises(headrace.InvalidError, match="somebody has used"):
        headrace.MemoryRange(once, 0)
    with pytest.raises((BufferError, ValueError)):
        numpy.from_dlpack(once)
    del once
    gc.collect()
    assert gone() is not None and bytes(taken) == b"\3" * SIZE
    view = memoryview(taken)
    del taken
    gc.collect()
    assert gone() is not None and view[SIZE - 1] == 3
    del view
    gc.collect()
    headrace.MemoryRange(b"", 0)  # what is left is let go by the next call
    assert gone() is None
    used = Once(numpy.zeros(SIZE, numpy.uint8))
    numpy.from_dlpack(used)
    with pytest.raises(headrace.InvalidError, match="somebody has used"):
        headrace.MemoryRange(used, 0)


class Tensor(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("number", ctypes.c_int32),
        ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]  # fmt: skip


MEMORY = ctypes.create_string_buffer(SIZE)
ended: list[Any] = []


@pytest.mark.parametrize(
    ("shape", "told", "its", "data", "why"),
    [
        ([SIZE], 1, 2, True, "device 2, whose __dlpack_device__.. says 1"),
        ([SIZE], 2, 1, True, "device 1, whose __dlpack_device__.. says 2"),
        ([SIZE], 1, 1, False, "at address 0x0"),
        ([-1, -SIZE], 1, 1, True, "capsule of DLPack that is none"),
        ([-1], 1, 1, True, "capsule of DLPack that is none"),
        ([1 << 40, 1 << 40], 1, 1, True, "an array of 1208925819614629174706176 bytes"),
        (None, 1, 1, True, "without a shape"),
    ],
)
def test_capsules_that_lie_are_refused_and_end(
    shape: list[int] | None, told: int, its: int, data: bool, why: str
) -> None:
    lengths = (ctypes.c_int64 * 2)(*(shape or []))
    tensor = Tensor(
        data=ctypes.addressof(MEMORY) if data else None, kind=its, bits=8, lanes=1, code=1,
        dimensions=len(shape or [0]), shape=lengths if shape is not None else None,
        deleter=type(Tensor().deleter)(ended.append),
    )  # fmt: skip
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    before = len(ended)
    with pytest.raises(headrace.InvalidError, match=why) as raised:
        headrace.MemoryRange(Once(kind=told, capsule=new(ctypes.addressof(tensor), b"dltensor", 0)))
    assert "\n" not in str(raised.value)
    raised.value.with_traceback(None)
    del raised
    gc.collect()
    assert len(ended) == before + 1


@pytest.mark.parametrize(
    "described",
    [
        {"data": (-1, False)}, {"data": (1 << 64, False)}, {"data": ("x", False)},
        {"data": (0, False)}, {"data": 5}, {"shape": (-5,)}, {"shape": (-5, -5)},
        {"shape": (1 << 40, 1 << 40)}, {"shape": (1 << 63, 2)}, {"shape": 5},
        {"shape": (1.5,)}, {"typestr": "<f-8"},
        {"typestr": "<f0"}, {"typestr": "|V99999999999999999999"}, {"typestr": 5}, {"stream": -1},
        {"stream": 0}, {"stream": 1 << 64}, {"stream": "x"}, {"stream": 1.5}, {"strides": (1, 1)},
        {"strides": 5}, {"strides": ("x",)},
    ],
    ids=str,
)  # fmt: skip
def test_interfaces_that_lie_are_refused(described: dict[str, Any]) -> None:
    class Array:
        __cuda_array_interface__ = {
            "shape": (SIZE,), "typestr": "|u1", "data": (1 << 20, False), "version": 3, **described,
        }  # fmt: skip

    with pytest.raises(headrace.InvalidError) as raised:
        headrace.MemoryRange(Array())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("device", [None, 5, (), ("x", 0)])
def test_devices_that_are_none_are_refused(device: Any) -> None:
    class Array:
        def __dlpack_device__(self) -> Any:
            return device

        def __dlpack__(self, **_: object) -> Any:
            return None

    with pytest.raises(headrace.InvalidError, match="__dlpack_device__.. that is none"):
        headrace.MemoryRange(Array())
    device = (1, 0)
    with pytest.raises(headrace.InvalidError, match="gives no capsule of DLPack"):
        headrace.MemoryRange(Array())


def test_what_is_compared_with_something_else_differs() -> None:
    geometry = kvcache.Geometry("g", layers=1, kv_heads=1, head_dim=8)
    extent = headrace.MemoryRange(bytearray(8), 0).extent()
    for thing in (geometry, extent):
        for other in (None, 5, "x", object()):
            assert thing != other and not thing == other
        assert thing in [None, thing]
    assert extent != extent.__class__.__new__(extent.__class__)
