# SPDX-License-Identifier: Apache-2.0
"""GPUs, where there is none: the reason and what to do."""

from pathlib import Path

import numpy
import pytest
from programs import outcome_of
from weight_files import write

import headrace


def test_without_a_driver_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LIBCUDA", "/nowhere/libcuda.so")
    with pytest.raises(headrace.AbsentError, match="HEADRACE_LIBCUDA names no library"):
        headrace.gpu_driver()
    monkeypatch.setenv("HEADRACE_LIBCUDA", "")
    machine = headrace.Machine.discover()
    assert all(node.gpu is None for node in machine.nodes)
    placement = headrace.Placement.parse(machine, "dram", pin=True)
    assert placement.pin
    with pytest.raises(headrace.AbsentError, match="HEADRACE_LIBCUDA is empty"):
        headrace.allocate(machine, 1 << 20, placement)


def test_memory_of_the_host_is_no_array_of_a_gpu() -> None:
    buffer = headrace.allocate(headrace.Machine.discover(), 4096)
    assert buffer.device_address is None
    assert not buffer.pinned
    assert not hasattr(buffer, "__cuda_array_interface__")


def test_what_a_gpu_has_to_do_without_is_told(
    monkeypatch: pytest.MonkeyPatch, fake_cuda: Path
) -> None:
    """A GPU that is too old for the kernel that is to gather small copies."""
    monkeypatch.setenv("HEADRACE_LIBCUDA", str(fake_cuda))
    monkeypatch.setenv("HEADRACE_FAKE_CUDA", "compute=60")
    monkeypatch.setenv("HEADRACE_GPU_GATHER", "4096,2")
    code, out, error = outcome_of("""
        gpu = next(n.id for n in machine.nodes if n.kind == "gpu")
        memory = headrace.allocate(machine, 4096, headrace.Placement.on(gpu))
        assert mover.stats().degraded == []
        for _ in range(2):
            mover.copy(memory, headrace.MemoryRange(numpy.ones(4096, numpy.uint8))).wait()
        print(mover.stats().degraded)
    """)
    assert (code, error) == (0, "")
    assert out.count("gathers nothing") == 1 and "cannot load the kernels" in out


@pytest.mark.parametrize("warm", [True, False])
def test_weights_come_into_memory_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, fake_cuda: Path, tmp_path: Path, warm: bool
) -> None:
    random = numpy.random.default_rng(1)
    tensors = {f"w.{i}": ("U8", random.integers(0, 256, length, numpy.uint8))
               for i, length in enumerate((5, 3 << 20, 70_000, 4096, 1 << 20, 9))}  # fmt: skip
    write(tmp_path / "m", tensors, gap=3)
    if not warm:
        headrace.File.open(headrace.Machine.discover(), tmp_path / "m").drop_page_cache()
    monkeypatch.setenv("HEADRACE_LIBCUDA", str(fake_cuda))
    monkeypatch.setenv("WEIGHTS", str(tmp_path / "m"))
    code, _, error = outcome_of("""
        import os
        from headrace import safetensors
        path = os.environ["WEIGHTS"]
        machine = headrace.Machine.discover(storage=[os.path.dirname(path)])
        mover = headrace.Mover(machine)
        place = headrace.Placement.on(next(n.id for n in machine.nodes if n.kind == "gpu"))
        into = {name: headrace.allocate(machine, each.bytes, place)
                for name, each in safetensors.header(path).items()}
        safetensors.load(path, into=into, mover=mover)
        right = safetensors.load(path, mover=mover, pin=True)
        for name, memory in into.items():
            back = headrace.allocate(machine, memory.size)
            mover.copy(back, memory).wait()
            assert (back.numpy() == right[name]).all(), name
    """)
    assert (code, error) == (0, "")
