# SPDX-License-Identifier: Apache-2.0
"""Buffer, MemoryRange, File, Extent and Placement."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path

import numpy
import pytest

import headrace
from headrace._run.plan import nodes_of


def test_buffer_is_zeroed_writable_memory(machine: headrace.Machine) -> None:
    buffer = headrace.allocate(machine, 10_000)
    assert len(buffer) == buffer.size == 10_000
    view = memoryview(buffer)
    assert view.nbytes == 10_000 and not view.readonly and not any(view)
    view[:3] = b"abc"
    assert bytes(buffer.numpy()[:4]) == b"abc\0"


def test_arrays_share_the_bytes(machine: headrace.Machine) -> None:
    buffer = headrace.allocate(machine, 4096)
    words = buffer.numpy("int32")
    words[:] = 7
    assert (buffer.numpy(numpy.int32) == 7).all()
    via_dlpack = numpy.from_dlpack(buffer)
    via_dlpack[0] = 9
    assert buffer.numpy()[0] == 9
    assert buffer.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("export", [memoryview, headrace.Buffer.numpy, numpy.from_dlpack])
def test_arrays_keep_the_memory(machine: headrace.Machine, export: object) -> None:
    buffer = headrace.allocate(machine, 1 << 20)
    view = export(buffer)  # type: ignore[operator]
    view[-1] = 5
    del buffer
    gc.collect()
    view[0] = 4
    assert view[0] == 4 and view[-1] == 5


def test_bound_memory_is_where_it_was_asked(machine: headrace.Machine, memory_node: int) -> None:
    placement = headrace.Placement.on(memory_node, pages="base")
    buffer = headrace.allocate(machine, 64 << 12, placement)
    found = headrace.where(buffer)
    assert found.pages == {memory_node: 64} and found.absent == 0
    assert buffer.node == memory_node
    assert buffer.page_size == "base" and buffer.fallback == ""
    assert buffer.placement.nodes == [(memory_node, 1)]


def test_arrays_are_placed_by_a_word(machine: headrace.Machine, memory_node: int) -> None:
    array = headrace.empty((300, 7), "int32", place=str(memory_node))
    assert array.shape == (300, 7) and array.dtype == numpy.int32 and not array.any()
    assert set(headrace.where(array).pages) == {memory_node}
    array[299, 6] = 5
    view = numpy.from_dlpack(array)
    del array
    gc.collect()
    assert view[299, 6] == 5
    assert headrace.empty(3).dtype == numpy.float64
    assert headrace.empty((2, 0)).shape == (2, 0)
    strict = headrace.Placement.parse(machine, str(memory_node), pages="base")
    assert headrace.empty(10, place=strict, machine=machine).sum() == 0


def test_arrays_in_a_file_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    array = headrace.empty((1000, 1000), place="storage")
    assert not array.any()
    array += 2
    assert array.sum() == 2_000_000
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(headrace.ExhaustedError, match="free there"):
        headrace.empty(2**50, place="storage")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert headrace.empty(3).shape == (3,), "memory needs no working directory"


def test_shapes_and_types_as_numpy_takes_them() -> None:
    assert headrace.empty(numpy.int64(3)).shape == (3,)
    assert headrace.empty([numpy.int64(3), 2]).shape == (3, 2)
    assert headrace.empty(numpy.array([3, 2])).shape == (3, 2)
    assert headrace.empty(()).shape == ()
    table = headrace.empty(3, "(2,3)f8")
    assert table.shape == (3, 2, 3) and table.dtype == numpy.float64 and not table.any()
    records = headrace.empty(3, [("key", "i4"), ("name", "S3")])
    records["name"][2] = b"abc"
    assert records.tolist() == [(0, b""), (0, b""), (0, b"abc")]


@pytest.mark.parametrize("shape", [2**62, 2**64, (2**40, 2**40)])
def test_more_than_any_machine_has(shape: int | tuple[int, int]) -> None:
    with pytest.raises(headrace.ExhaustedError, match="bytes are more than any machine has"):
        headrace.empty(shape)


def test_arrays_refuse_nonsense() -> None:
    with pytest.raises(headrace.InvalidError, match="'drma' is no kind"):
        headrace.empty(10, place="drma")
    with pytest.raises(headrace.ExhaustedError):
        headrace.empty(1 << 50, place="dram")
    with pytest.raises(ValueError, match="negative"):
        headrace.empty((3, -1))
    with pytest.raises(TypeError, match="Python objects"):
        headrace.empty(3, object)
    for nothing in ("S0", "S", numpy.dtype([])):
        with pytest.raises(TypeError, match="^a dtype of no bytes, .*; give its length"):
            headrace.empty(3, nothing)
    for shape in (3.5, "33", (2, 3.5), None):
        with pytest.raises(TypeError, match="^a shape is a whole number or several, not "):
            headrace.empty(shape)  # type: ignore[arg-type]
    for place in (5, None, b"dram"):
        with pytest.raises(TypeError, match="^place is a Placement, an Arena or text such as"):
            headrace.empty(3, place=place)  # type: ignore[arg-type]


def test_placements_as_people_write_them() -> None:
    machine = headrace.Machine.load("xeon-max")
    placement = headrace.Placement.parse(machine, "8:dram:9", lock=True, near=[3])
    assert placement.nodes == [(8, 1)] and placement.spill == ["dram", 9]
    assert not placement.strict and placement.lock and placement.near == [3]
    assert str(placement) == "8:dram:9"
    fastest = headrace.Placement.parse(machine, "fastest")
    assert fastest.property == "fastest" and fastest.nodes == []
    assert fastest.resolve(machine, near=6).nodes == [(14, 1)]
    resolved = placement.resolve(machine)
    assert resolved.nodes == [(8, 1)] and resolved.spill == [0, 1, 2, 3, 4, 5, 6, 7, 9]


def test_a_buffer_moves_at_its_address(machine: headrace.Machine, memory_node: int) -> None:
    buffer = headrace.allocate(machine, 1 << 20, "dram")
    array = buffer.numpy()
    array[12345] = 6
    headrace.relocate(machine, buffer, str(memory_node))
    assert array[12345] == 6 and buffer.placement.nodes == [(memory_node, 1)]
    with pytest.raises(headrace.AbsentError):
        headrace.relocate(machine, buffer, headrace.Placement.on(777))


def test_placements() -> None:
    placement = headrace.Placement.weighted([(0, 3), (8, 1)], strict=False, pages="huge_2m")
    assert placement.nodes == [(0, 3), (8, 1)]
    assert not placement.strict and placement.pages == "huge_2m" and placement.touch
    assert headrace.Placement.interleave([0, 1]).nodes == [(0, 1), (1, 1)]
    assert headrace.Placement.on("hbm").kind == "hbm"
    assert "kind='hbm'" in repr(headrace.Placement.on("hbm"))
    with pytest.raises(headrace.InvalidError, match="no page size 'huge'; there are base"):
        headrace.Placement.on(0, pages="huge")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidError, match="no node kind 'dramm'"):
        headrace.Placement.on("dramm")  # type: ignore[arg-type]


def test_memory_range_of_an_array(memory_node: int) -> None:
    array = numpy.ones(1 << 16, numpy.uint8)
    memory = headrace.MemoryRange(array)
    assert memory.node == memory_node and memory.size == array.nbytes and memory.writable
    memory.numpy()[0] = 3
    assert array[0] == 3
    constant = headrace.MemoryRange(b"constant", node=memory_node)
    assert not constant.writable and memoryview(constant).readonly
    with pytest.raises(TypeError):
        headrace.MemoryRange(17)  # type: ignore[arg-type]


def test_memory_range_holds_the_array() -> None:
    array = bytearray(100)
    memory = headrace.MemoryRange(array, node=0)
    with pytest.raises(BufferError):
        array.extend(b"would move it")
    del memory
    array.extend(b"now it may")


def test_memory_of_unknown_place() -> None:
    with pytest.raises(headrace.InvalidError, match="give node="):
        headrace.MemoryRange(mmap.mmap(-1, 1 << 20))  # never touched
    assert headrace.MemoryRange(bytearray()).size == 0


def test_extents(machine: headrace.Machine) -> None:
    buffer = headrace.allocate(machine, 1000)
    extent = buffer.extent(100, 50)
    assert (extent.offset, extent.length, extent.object_id) == (100, 50, buffer.id)
    assert extent == headrace.Extent(buffer, 100, 50)
    assert hash(extent) == hash(headrace.Extent(buffer, 100, 50))
    assert extent != buffer.extent(100, 51) and extent != "extent"
    assert buffer.extent(900).length == 100
    assert buffer.extent(1000).length == 0
    for offset, length in ((1001, None), (0, 1001), (999, 2), ((1 << 64) - 1, 2)):
        with pytest.raises(headrace.InvalidError):
            buffer.extent(offset, length)


def test_file(machine: headrace.Machine, payload_file: Path, payload: bytes) -> None:
    file = headrace.File.open(machine, payload_file)
    assert file.size == len(payload) and file.path == payload_file and not file.writable
    assert machine.node(file.node).kind == "storage"
    file.drop_page_cache()
    assert 0 <= file.page_cache_residency() <= len(payload) + 4096


def test_copy_bytes() -> None:
    source = numpy.random.default_rng(1).bytes(1 << 20)
    for hint in ("automatic", "keep", "stream"):
        target = bytearray(1 << 20)
        headrace.copy_bytes(target, source, hint=hint)  # type: ignore[arg-type]
        assert target == source
    headrace.copy_bytes(bytearray(), b"")
    assert headrace.chosen_copy_kernel() in [*headrace.copy_kernels(), "memcpy"]
    with pytest.raises(headrace.InvalidError, match="differ in length"):
        headrace.copy_bytes(bytearray(2), b"abc")
    with pytest.raises(BufferError):
        headrace.copy_bytes(b"abc", b"abc")  # type: ignore[arg-type]
    both = memoryview(bytearray(10))
    with pytest.raises(headrace.InvalidError, match="overlap"):
        headrace.copy_bytes(both[:8], both[2:])
    with pytest.raises(headrace.InvalidError, match="automatic, keep, stream"):
        headrace.copy_bytes(bytearray(1), b"a", hint="fast")  # type: ignore[arg-type]


def test_a_whole_process_has_all_nodes_of_a_kind() -> None:
    """The kernel takes of these the one nearest to the thread that touches a page."""
    machine = headrace.Machine.load("xeon-max")
    wish = headrace.Placement.parse(machine, "hbm:dram")
    assert list(nodes_of(machine, wish, near=6)) == [14, 12, 13, 15, 8, 9, 10, 11]
    assert nodes_of(machine, headrace.Placement.parse(machine, "0=3,8=1")) == {0: 3, 8: 1}
