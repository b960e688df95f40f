# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs given to other libraries and taken from them, on a GPU made of software."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import mmap
import os
import signal
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from programs import outcome_of

import headrace
from headrace import kvcache

GEOMETRY = kvcache.Geometry("tiny", layers=3, kv_heads=2, head_dim=40, block_tokens=4)
KEYS = GEOMETRY.keys(list(range(4 * 6)))
SIZE = 6 * GEOMETRY.block_bytes
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Gpu:
    """A machine with the fake driver, and memory there as others would have it."""

    def __init__(self, folder: Path, driver: Path) -> None:
        self.machine = headrace.Machine.discover(storage=[str(folder)])
        self.mover = headrace.Mover(self.machine)
        self.node = next(node.id for node in self.machine.nodes if node.kind == "gpu")
        self.cuda = ctypes.CDLL(str(driver))
        self.held: list[Any] = []

    def memory(self, data: Any = None) -> headrace.Buffer:
        buffer = headrace.allocate(self.machine, SIZE, headrace.Placement.on(self.node))
        if data is not None:
            self.mover.copy(buffer, headrace.MemoryRange(data)).wait()
        return buffer

    def bytes_of(self, memory: headrace.Object) -> Any:
        into = numpy.zeros(memory.size, numpy.uint8)
        self.mover.copy(headrace.MemoryRange(into), memory).wait()
        return into

    def hold(self, stream: int) -> threading.Event:
        """The stream stands still until the event is set."""
        go_on = threading.Event()
        self.held.append(HOST_FUNCTION(lambda _: None if go_on.wait(60) else None))
        context = ctypes.c_void_p()
        assert self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.cuda.cuCtxPushCurrent_v2(context) == 0
        function = self.held[-1]
        assert self.cuda.cuLaunchHostFunc(ctypes.c_void_p(stream), function, None) == 0
        assert self.cuda.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
        return go_on

    def stream(self) -> int:
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.cuda.cuCtxPushCurrent_v2(context) == 0
        assert self.cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
        assert self.cuda.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
        return stream.value or 0


@pytest.fixture
def gpu(
    monkeypatch: pytest.MonkeyPatch, fake_cuda: Path, tmp_path: Path
) -> Iterator[Gpu]:  # fmt: skip
    monkeypatch.setenv("HEADRACE_LIBCUDA", str(fake_cuda))
    yield Gpu(tmp_path, fake_cuda)
    gc.collect()


class Interface:
    """An array as CuPy and Numba give it."""

    def __init__(self, memory: headrace.Buffer, **other: Any) -> None:
        self.memory = memory
        self.described = {
            "shape": (SIZE // 2,), "typestr": "<i2", "data": (memory.device_address, False),
            "version": 3, "strides": None, "stream": None, **other,
        }  # fmt: skip

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.described


class Exchanged:
    """An array as JAX gives it: DLPack and nothing else."""

    def __init__(self, memory: headrace.Buffer, **options: Any) -> None:
        self.memory = memory
        self.options = options

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int] | None = None) -> Any:
        assert stream == 1
        return self.memory.__dlpack__(max_version=max_version, **self.options)


class Tensor:
    """One of a module that is called torch."""

    def __init__(self, memory: headrace.Buffer, contiguous: bool = True) -> None:
        self.memory = memory
        self.contiguous = contiguous
        self.device = types.SimpleNamespace(type="cuda", index=0)

    def is_contiguous(self) -> bool:
        return self.contiguous

    def stride(self) -> tuple[int, ...]:
        return (2,)

    def numel(self) -> int:
        return SIZE // 2

    def element_size(self) -> int:
        return 2

    def data_ptr(self) -> int:
        return self.memory.device_address or 0


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    module = types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace())
    module.cuda.current_stream = lambda _device: types.SimpleNamespace(cuda_stream=0)
    monkeypatch.setitem(sys.modules, "torch", module)  # type: ignore[arg-type]
    return module


def data() -> Any:
    return numpy.random.default_rng(5).integers(0, 256, SIZE, numpy.uint8)


@pytest.mark.parametrize("kind", [Interface, Exchanged, Tensor])
def test_arrays_of_others_are_memory(gpu: Gpu, torch: object, kind: type) -> None:
    right = data()
    array = kind(gpu.memory())
    gone = weakref.ref(array)
    taken = headrace.MemoryRange(array, machine=gpu.machine)
    del array
    gc.collect()
    assert gone() is not None or kind is Exchanged  # whose capsule holds the memory
    assert taken.node == gpu.node and taken.size == SIZE and taken.writable
    assert taken.itemsize == (1 if kind is Exchanged else 2) and taken.stream is None
    gpu.mover.copy(taken, headrace.MemoryRange(right)).wait()
    assert (gpu.bytes_of(taken) == right).all()
    again = headrace.MemoryRange(taken, machine=gpu.machine)  # through its own interface
    assert again.device_address == taken.device_address
    del taken, again
    for _ in range(100):
        gc.collect()
        headrace.MemoryRange(bytearray(b"x"))
        if gone() is None:
            return
    raise AssertionError("the array is kept for ever")


def test_buffers_are_given_to_others(gpu: Gpu) -> None:
    right = data()
    buffer = gpu.memory(right)
    assert buffer.__dlpack_device__() == (2, 0)
    assert buffer.__cuda_array_interface__["data"] == (buffer.device_address, False)
    take = headrace._core._dlpack_take  # type: ignore[attr-defined]
    for capsule in (buffer.__dlpack__(), buffer.__dlpack__(stream=1, max_version=(1, 2))):
        *contents, keeper = take(capsule)
        assert contents == [2, buffer.device_address, [SIZE], None, 1, True]
    del buffer, capsule
    gc.collect()
    address = contents[1]
    taken = headrace.MemoryRange(  # which `keeper` keeps
        types.SimpleNamespace(
            __cuda_array_interface__={"shape": (SIZE,), "typestr": "|u1", "data": (address, True)}
        ),
        machine=gpu.machine,
    )
    assert (gpu.bytes_of(taken) == right).all() and not taken.writable
    with pytest.raises(BufferError, match="read-only"):
        taken.__dlpack__()
    assert take(taken.__dlpack__(max_version=(1, 0)))[5] is False
    del keeper
    buffer = gpu.memory()
    for options in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="Mover"):
            buffer.__dlpack__(**options)
    for name, wrong in (
        ("copy", 5), ("dl_device", 5), ("dl_device", (0,)), ("max_version", "x"),
        ("max_version", (0,)), ("stream", "x"), ("stream", 1 << 70),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"^{name}= is .*, or None$"):
            buffer.__dlpack__(**{name: wrong})
    with pytest.raises(headrace.InvalidError, match="no capsule"):
        take(object())
    with pytest.raises(BufferError, match="CPUs do not reach"):
        memoryview(buffer)


def test_streams_are_waited_for_before_memory_is_given_on(gpu: Gpu, torch: object) -> None:
    def unwaited(array: Any) -> headrace.MemoryRange:
        return headrace.MemoryRange(array, machine=gpu.machine, wait=False)

    stream = gpu.stream()
    memory = gpu.memory()
    taken = unwaited(Interface(memory, stream=stream))
    assert taken.stream == stream == taken.__cuda_array_interface__["stream"]
    assert unwaited(Tensor(memory)).__cuda_array_interface__["stream"] == 1  # 0 is not allowed
    assert unwaited(Interface(memory)).__cuda_array_interface__["stream"] is None
    go_on = gpu.hold(stream)
    given = threading.Event()
    asking = threading.Thread(target=lambda: (taken.__dlpack__(), given.set()))
    asking.start()
    taken.__dlpack__(stream=-1)  # who asks waits himself
    assert not given.wait(0.2)
    go_on.set()
    asking.join()
    assert given.is_set()


def test_waiting_for_a_stream_hears_signals(gpu: Gpu) -> None:
    stream = gpu.stream()
    memory = gpu.memory()
    go_on = gpu.hold(stream)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        headrace.MemoryRange(Interface(memory, stream=stream), machine=gpu.machine)
    timer.join()
    go_on.set()


FREEING = """
import ctypes
cuda, libc = ctypes.CDLL(os.environ["HEADRACE_LIBCUDA"]), ctypes.CDLL(None)
gpu = next(n.id for n in machine.nodes if n.kind == "gpu")
memory = headrace.allocate(machine, 4096, headrace.Placement.on(gpu))
context, stream, held = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(64)
assert libc.sem_init(held, 0, 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxPushCurrent_v2(context) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
assert cuda.cuLaunchHostFunc(stream, libc.sem_wait, held) == 0
sys.setswitchinterval(3600)  # others run only where the GIL is let go
dropping = threading.Event()
def let_go():
    dropping.wait()
    libc.sem_post(held)
other = threading.Thread(target=let_go)
other.start()
dropping.set()
del memory
other.join()
"""


def test_freeing_memory_waits_for_streams_without_the_gil(gpu: Gpu) -> None:
    assert outcome_of(FREEING, timeout=30) == (0, "", "")


def test_memory_whose_place_is_not_known_is_let_go() -> None:
    class Shared:
        """DLPack of the host and nothing else; its pages were never touched."""

        def __init__(self) -> None:
            self.array = numpy.frombuffer(mmap.mmap(-1, 1 << 20), numpy.uint8)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

    shared = Shared()
    gone = weakref.ref(shared.array)
    with pytest.raises(headrace.InvalidError, match="give node="):
        headrace.MemoryRange(shared)
    del shared
    gc.collect()
    assert gone() is None


def test_memory_that_does_not_fit_is_one_line(gpu: Gpu, torch: object) -> None:
    memory = gpu.memory()
    wrong: list[tuple[Any, str]] = [
        (Interface(memory, strides=(4,)), "strides"),
        (Interface(memory, mask=memory), "mask"),
        (Interface(memory, typestr="?"), "that is none"),
        (Interface(memory, shape=(1 << 40,)), "no memory of one GPU"),
        (Interface(memory, data=(4096, False)), "no memory of one GPU"),
        (Tensor(memory, contiguous=False), "strides"),
    ]
    for array, why in wrong:
        with pytest.raises(headrace.InvalidError, match=why) as raised:
            headrace.MemoryRange(array, machine=gpu.machine)
        assert "\n" not in str(raised.value)
    with pytest.raises(headrace.InvalidError, match="leave node= out"):
        headrace.MemoryRange(Interface(memory), 0, machine=gpu.machine)
    strided = Interface(memory, shape=(2, SIZE // 4), strides=(SIZE // 2, 2))
    assert headrace.MemoryRange(strided, machine=gpu.machine).size == SIZE
    with pytest.raises(TypeError):
        headrace.MemoryRange(object())


@pytest.mark.parametrize("kind", [Interface, Tensor])
def test_blocks_go_between_tensors_and_tiers(
    gpu: Gpu, torch: object, kind: type, tmp_path: Path
) -> None:
    right = data()
    tiers = [
        kvcache.Memory("gpu", 2 * 4096), kvcache.Memory("dram", 3 * 4096, pin=True),
        kvcache.Folder(tmp_path / "kv", 64 * 4096),
    ]  # fmt: skip
    store = kvcache.Store(gpu.mover, GEOMETRY, tiers)
    stream = gpu.stream()
    assert store.store(KEYS, kind(gpu.memory(right)), stream=stream).wait().stored == 6
    store.flush()

    async def prefill() -> None:
        into = gpu.memory()
        load = store.load(KEYS, kind(into), deadlines=[0.0, 0.001, 0.03], stream=stream)
        for number in range(load.layers):
            await load.layer(number)
        assert (gpu.bytes_of(into) == right).all()

    asyncio.run(prefill())
    host = numpy.zeros(SIZE, numpy.uint8)
    store.load(KEYS, host).wait()
    assert (host == right).all()
    stats = store.stats()
    assert [tier.name for tier in stats.tiers][:2] == ["gpu", "dram"]
    assert stats.tiers[0].used <= 2 * 4096 and stats.damaged == stats.failed == 0


@pytest.mark.parametrize("whose", ["a range's", "a part's", "the calling thread's"])
def test_blocks_are_not_read_before_their_stream(gpu: Gpu, whose: str) -> None:
    store = kvcache.Store(gpu.mover, GEOMETRY, [kvcache.Memory("dram", 64 * 4096)])
    memory = gpu.memory()
    # As __cuda_array_interface__ names the stream of a thread.
    stream = 2 if whose == "the calling thread's" else gpu.stream()
    given: Any = Interface(memory, stream=stream)
    if stream != 2:
        carries = headrace.MemoryRange(given, machine=gpu.machine, wait=False)
        given = carries.extent(0, carries.size) if whose == "a part's" else carries
        assert given.stream == stream and memory.extent().stream is None
    go_on = gpu.hold(stream)
    stored = store.store(KEYS, given)
    right = data()  # what the stream is still to compute
    gpu.mover.copy(memory, headrace.MemoryRange(right)).wait()
    assert not stored.done()
    go_on.set()
    assert stored.wait().stored == 6
    host = numpy.zeros(SIZE, numpy.uint8)
    store.load(KEYS, host).wait()
    assert (host == right).all()


def test_streams_and_elements_that_do_not_fit(gpu: Gpu) -> None:
    store = kvcache.Store(gpu.mover, GEOMETRY, [kvcache.Memory("dram", 64 * 4096)])
    with pytest.raises(headrace.InvalidError, match="elements of 4 bytes"):
        store.store(KEYS, numpy.zeros(SIZE // 4, numpy.float32))
    with pytest.raises(headrace.InvalidError, match="stream goes with memory of a GPU"):
        store.store(KEYS, numpy.zeros(SIZE, numpy.uint8), stream=0)
    with pytest.raises(headrace.InvalidError, match="cannot wait for the stream"):
        store.store(KEYS, Interface(gpu.memory()), stream=12345)
    with pytest.raises(headrace.DeniedError, match="read-only"):
        memory = gpu.memory()
        read_only = Interface(memory, data=(memory.device_address, True))
        store.store(KEYS, memory).wait()
        store.load(KEYS, read_only)


def test_blocks_of_a_cache_lie_there(gpu: Gpu) -> None:
    data = numpy.arange(1 << 16, dtype=numpy.uint8)
    source = headrace.MemoryRange(data)
    for placement in (gpu.node, "gpu", "gpu:dram", headrace.Placement.on(gpu.node)):
        cache = headrace.Cache(gpu.mover, {gpu.node: 1 << 20, 0: 1 << 20}, placement=placement)
        block = cache.access(source.extent(4096, 8000))
        address = block.wait_on_gpu()
        assert block.device_address == address
        assert block.node == gpu.node and block.state == "ready"
        assert block.__dlpack_device__() == (2, 0)
        described: Any = block.__cuda_array_interface__
        assert described["data"] == (address, True) and described["shape"] == (8000,)
        there = headrace.MemoryRange(block, machine=gpu.machine)
        assert there.device_address == address and not there.writable
        assert (gpu.bytes_of(there) == data[4096:12096]).all()
        # The host reads the source.
        assert (block.numpy() == data[4096:12096]).all()
        assert (numpy.asarray(block.wait()) == data[4096:12096]).all()
        with pytest.raises(BufferError, match="memory of a GPU"):
            memoryview(block)
        with pytest.raises(BufferError, match="read-only"):
            block.__dlpack__()
        del there


def test_an_exported_block_is_held(gpu: Gpu) -> None:
    source = headrace.MemoryRange(numpy.full(1 << 16, 7, numpy.uint8))
    cache = headrace.Cache(gpu.mover, {gpu.node: 8192}, placement="gpu")
    capsule = cache.access(source.extent(0, 8192)).__dlpack__(max_version=(1, 0))
    assert cache.stats().bytes_pinned == 8192
    refused = cache.access(source.extent(8192, 8192))
    assert refused.state == "absent"
    with pytest.raises(headrace.ExhaustedError):
        refused.wait_on_gpu()
    assert not hasattr(refused, "__cuda_array_interface__")
    del capsule
    assert cache.stats().bytes_pinned == 0
    assert cache.access(source.extent(8192, 8192)).wait_on_gpu() > 0


def test_a_block_of_a_file_there_says_who_reads_it(gpu: Gpu, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 64)
    cache = headrace.Cache(gpu.mover, {gpu.node: 1 << 20, 0: 4096}, placement="gpu:dram")
    file = headrace.File.open(gpu.machine, path)
    block = cache.access(file.extent(100, 5000))
    assert block.wait_on_gpu() % 256 == 100
    with pytest.raises(headrace.UnsupportedError, match="device_address"):
        block.wait()
    assert block.now() is None
    with pytest.raises(headrace.InvalidError):
        headrace.Cache(gpu.mover, {gpu.node: 1 << 20}, placement="gpu:hbm2")
