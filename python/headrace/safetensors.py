# SPDX-License-Identifier: Apache-2.0
"""Loads weights from safetensors files, past the page cache unless it has them already.

>>> from headrace import safetensors
>>> weights = safetensors.load("model")  # a file, an index, or the folder of a model
>>> weights["embed.weight"].shape
(32000, 4096)
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy

from headrace._core import (
    Extent,
    InvalidError,
    Machine,
    MemoryRange,
    Mover,
    Object,
    Placement,
    allocate,
)
from headrace._argument_errors import ArgumentError
from headrace._weights import arrays, kept, reading
from headrace._weights.files import Opened, Shards, shards
from headrace._weights.kept import Keep
from headrace._weights.reading import PAGE, Reading, Source, Wanted
from headrace.kvcache import memory_range

__all__ = ["Keep", "Tensor", "Weights", "header", "load"]

#: Begin and end of a range of a file, and where it is in memory.
_Run = tuple[int, int, int]
#: With `names`, gaps of unwanted tensors up to this number of bytes are read too.
_GAP = 128 << 10


@dataclass(frozen=True)
class Tensor:
    """The type, shape and place of a tensor in its file. `dtype`: the file's name of the type.
    `offset`: in bytes."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


class _Part:
    """The tensors of one file, and their bytes."""

    def __init__(self, table: Any, names: list[str]) -> None:
        self.table = table
        self.names = names
        self.content: Any = numpy.empty(0, numpy.uint8)
        self.address = 0
        #: Ranges of the file that were read (begin, end), and where each is in the content.
        self.runs: list[_Run] = []
        self.begins: list[int] = []

    def hold(self, content: Any, runs: list[_Run]) -> None:
        self.content, self.runs = content, runs
        self.begins = [begin for begin, _, _ in runs]
        of_numpy = isinstance(content, numpy.ndarray)
        self.address = content.ctypes.data if of_numpy else content.data_ptr()

    def place(self, offset: int, length: int) -> int:
        """The offset of a tensor in the content."""
        number = bisect_right(self.begins, offset) - 1
        if number >= 0:
            begin, end, at = self.runs[number]
            if offset < end:
                return offset - begin + at
        assert length == 0  # it may lie behind all others
        return 0


class Weights(Mapping[str, Any]):
    """Tensors by name, in the order of their files. Each look-up makes a numpy array or PyTorch
    tensor over memory that all of them share and keep alive.
    """

    def __init__(self, parts: list[_Part], view: arrays.View) -> None:
        self._parts = parts
        self._view = view
        self._of = {name: part for part in parts for name in part.names}

    def __getitem__(self, name: str) -> Any:
        part = self._of[name]
        kind, shape, offset, length = part.table.find(name)
        at = part.place(offset, length)
        return self._view(part.content, part.address, kind, shape, at, length)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def tensor(self, name: str) -> Tensor:
        """The tensor's type, shape and place in its file."""
        return Tensor(*self._of[name].table.find(name))

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata strings in the files' headers."""
        return {key: value for part in self._parts for key, value in part.table.metadata().items()}


def header(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of one file, in the order of their bytes. InvalidError: it is no safetensors
    file, or a tensor lies outside the file or overlaps another.
    """
    with Opened(Path(path)) as opened:
        table = opened.table()
    return {name: Tensor(*table.find(name)) for name in table.names()}


def load(
    path: str | os.PathLike[str],
    *,
    into: Mapping[str, Any] | None = None,
    names: Callable[[str], bool] | None = None,
    on: Placement | str = "dram",
    pin: bool = False,
    device: str | None = None,
    keep: Keep | None = None,
    mover: Mover | None = None,
) -> Mapping[str, Any]:
    """The tensors of a model by name. `path`: a file, the index of several, or a folder with these.

    `names`: returns true for wanted tensors. Others are not read, except small ones between.
    `device`: None: arrays of numpy; types that numpy lacks are those of ml_dtypes, otherwise
    unsigned integers of their size. "cpu", "cuda:0": tensors of PyTorch there. `on`, `pin`:
    placement of host memory, and whether it is registered for copies to GPUs. `into`: memory by
    name: arrays, tensors of PyTorch (also on a GPU), Objects or Extents, contiguous and of the
    tensors' sizes; arrays and tensors also of their types, or of bytes. Only these tensors are
    read, and `into` is returned. `keep`: load from a copy in DRAM that processes of this host share
    and later starts find, so that each byte is read once from the disk. Tensors that are written to
    become this process's own.

    All files are read at once, each in its order. Parts in the page cache are copied from there,
    others are read past it. Errors: InvalidError: a file is no safetensors file; a name, size or
    type of `into` differs from the files'; a tensor is in two files, or not in the file that the
    index names. IoError: a file could not be read, or changed meanwhile. ExhaustedError: no memory.
    TimedOutError: after an hour. UnsupportedError: PyTorch is missing.
    """
    if not isinstance(into, Mapping | None):
        raise ArgumentError(f"into is {type(into).__name__}, not a mapping of names to memory")
    if names is not None and not callable(names):
        raise ArgumentError(f"names is {type(names).__name__}, not a function of a name")
    if not isinstance(keep, Keep | None):
        raise ArgumentError(f"keep is {type(keep).__name__}, not safetensors.Keep")
    found = shards(path)
    on_host = device in (None, "cpu")
    if keep is not None and (into is not None or pin or on != "dram" or not on_host):
        raise InvalidError("keep= has its own memory; leave into=, on=, pin= and device= out")
    torch = None if device is None else arrays.torch_module()
    view = arrays.of_numpy if device is None else partial(arrays.of_torch, device)
    if mover is None:
        mover = Mover(Machine.discover(storage=[found.paths[0].absolute().parent]))
    loading = _Loading(mover, found, names)
    with loading.files:
        with loading.reading:
            if into is not None:
                loading.into(into)
            elif keep is not None:
                loading.keep(keep)
            else:
                host = _on_host(mover, reading.place(mover, on, pin))
                memory = host if on_host else _on_gpu(mover, torch, device)
                (loading.whole if names is None else loading.some)(memory)
        for opened in loading.opened:
            opened.check()
    if into is not None:
        return dict(into)
    return Weights(loading.parts, view)


#: Allocates a number of bytes. Returns the memory for the Mover, the content for tensors, and an
#: array of bytes if CPUs reach the memory.
_Memory = Callable[[int], tuple[Object, Any, Any]]


def _home(machine: Machine) -> int:
    """The node to assume for memory whose pages are not allocated yet: the host's first."""
    return next((node.id for node in machine.nodes if node.kind not in ("storage", "gpu")), 0)


def _on_host(mover: Mover, placement: Placement) -> _Memory:
    def allocated(size: int) -> tuple[Object, Any, Any]:
        buffer = allocate(mover.machine, size, placement)
        content = buffer.numpy()
        return buffer, content, content

    return allocated


def _on_gpu(mover: Mover, torch: Any, device: str | None) -> _Memory:
    def allocated(size: int) -> tuple[Object, Any, Any]:
        tensor = torch.empty(size, dtype=torch.uint8, device=device)
        return memory_range(tensor, mover.machine), tensor, None

    return allocated


class _Loading:
    """One call of load()."""

    def __init__(self, mover: Mover, found: Shards, names: Callable[[str], bool] | None) -> None:
        self._mover, self._found, self._names = mover, found, names
        self.reading = Reading(mover)
        self.parts: list[_Part] = []
        self.opened: list[Opened] = []
        self.files = ExitStack()
        try:
            for path in found.paths:
                self.opened.append(self.files.enter_context(Opened(path)))
        except BaseException:
            self.files.close()
            raise

    def whole(self, memory: _Memory) -> None:
        """Reads whole files. Headers are parsed meanwhile."""
        contents = []
        for opened in self.opened:
            target, content, array = memory(opened.size - opened.begin)
            self._start(opened, [(opened.begin, opened.size, 0)], target, array)
            contents.append(content)
        self._parse()
        for opened, part, content in zip(self.opened, self.parts, contents, strict=True):
            part.hold(content, [(opened.begin, opened.size, 0)])

    def some(self, memory: _Memory) -> None:
        self._parse()
        for opened, part in zip(self.opened, self.parts, strict=True):
            runs, size = _runs(part)
            if size:
                target, content, array = memory(size)
                self._start(opened, runs, target, array)
                part.hold(content, runs)

    def _start(self, opened: Opened, runs: list[_Run], target: Object, array: Any) -> None:
        wanted = []
        for begin, end, at in runs:
            length = end - begin
            extent = target.extent(at, length) if array is None else target
            part = None if array is None else array[at : at + length]
            wanted.append(Wanted(begin, length, part, extent, at))
        self.reading.read(Source(opened, self._mover), wanted)

    def keep(self, keep: Keep) -> None:
        home = _home(self._mover.machine)
        self._parse()
        for opened, part in zip(self.opened, self.parts, strict=True):

            def fill(memory: Any, opened: Opened = opened) -> None:
                array = numpy.frombuffer(memory, numpy.uint8)[: opened.size]
                with Reading(self._mover) as all_of_it:
                    target = MemoryRange(array, home)
                    wanted = Wanted(0, opened.size, array, target, 0)
                    all_of_it.read(Source(opened, self._mover), [wanted])

            copy = kept.kept(opened, keep, fill)
            part.hold(numpy.frombuffer(copy, numpy.uint8), [(0, opened.size, 0)])

    def into(self, into: Mapping[str, Any]) -> None:
        self._names = None
        self._parse()
        home = _home(self._mover.machine)
        of = {name: number for number, part in enumerate(self.parts) for name in part.names}
        wanted: list[list[Wanted]] = [[] for _ in self.parts]
        for name, memory in into.items():
            if name not in of:
                where = self._found.paths[0]
                where = where if len(self._found.paths) == 1 else where.parent
                raise InvalidError(f"{where} has no tensor {name!r}")
            number = of[name]
            kind, _, offset, length = self.parts[number].table.find(name)
            array, target, has = _destination(memory, self._mover.machine, home)
            if has != length:
                raise InvalidError(
                    f"{self.opened[number].path}: {name!r} has {length} bytes, and {has} in what "
                    "it is loaded into"
                )
            its = getattr(memory, "dtype", None)
            if its is not None and not arrays.fits(its, kind):
                raise InvalidError(
                    f"{self.opened[number].path}: {name!r} is of type {kind}, and what it is "
                    f"loaded into is of {its}"
                )
            if length:
                wanted[number].append(Wanted(offset, length, array, target, 0))
        for opened, each in zip(self.opened, wanted, strict=True):
            self.reading.spread(Source(opened, self._mover), sorted(each, key=_offset))

    def _parse(self) -> None:
        """Parses the headers, which must match the index."""
        tables = [opened.table() for opened in self.opened]
        every = [table.names() for table in tables]
        of, index = self._found.of, self._found.listing
        files = {opened.path.name: set(names)
                 for opened, names in zip(self.opened, every, strict=True)}  # fmt: skip
        for name, file in of.items():
            if name not in files[file]:
                raise InvalidError(f"{index}: {name!r} is not in {file}")
        seen: set[str] = set()
        for opened, table, names in zip(self.opened, tables, every, strict=True):
            if of:
                names = [each for each in names if of.get(each) == opened.path.name]
            elif not seen.isdisjoint(names):
                twice = next(each for each in names if each in seen)
                raise InvalidError(f"{opened.path}: {twice!r} is in another file of its folder too")
            seen.update(names)
            if self._names is not None:
                names = [each for each in names if self._names(each)]
            self.parts.append(_Part(table, names))


def _offset(wanted: Wanted) -> int:
    return wanted.offset


def _runs(part: _Part) -> tuple[list[_Run], int]:
    """The ranges of the file with the part's tensors, each with its place in memory, and the total
    size of that memory.
    """
    found: list[tuple[int, int]] = []
    for name in part.names:
        _, _, offset, length = part.table.find(name)
        if length and found and offset - found[-1][1] <= _GAP:
            found[-1] = (found[-1][0], offset + length)
        elif length:
            found.append((offset // PAGE * PAGE, offset + length))
    runs, at = [], 0
    for begin, end in found:
        runs.append((begin, end, at))
        at += (end - begin + PAGE - 1) // PAGE * PAGE
    return runs, at


def _destination(memory: Any, machine: Machine, home: int) -> tuple[Any, Any, int]:
    """An array of the bytes if CPUs reach them; the object for the Mover; the number of bytes."""
    if isinstance(memory, Extent):
        return None, memory, memory.length
    if not isinstance(memory, Object) and not isinstance(memory, numpy.ndarray):
        memory = memory_range(memory, machine, home)  # PyTorch's, or of the buffer protocol
    if isinstance(memory, Object):
        if memory.device_address is not None or not memory.writable:
            return None, memory.extent(), memory.size
        array = memory.numpy()  # type: ignore[attr-defined]
        return array, memory, memory.size
    if not memory.flags.c_contiguous or not memory.flags.writeable:
        raise InvalidError("an array to load into is read-only or has gaps; give a contiguous one")
    array = memory.reshape(-1).view(numpy.uint8)
    large = memory.nbytes >= reading.SMALL
    return array, MemoryRange(array, home) if large else None, memory.nbytes
