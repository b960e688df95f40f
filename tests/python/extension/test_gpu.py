"""GPUs, where there is none: the reason and what to do."""

import pytest

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
