# SPDX-License-Identifier: Apache-2.0
"""GPUs, where there is none: the reason and what to do."""

from pathlib import Path

import pytest
from programs import outcome_of

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
