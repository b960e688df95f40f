# SPDX-License-Identifier: Apache-2.0
"""A store of KV-cache blocks over the memories of a machine, and SSD.

>>> import asyncio, headrace, numpy
>>> from headrace import kvcache
>>> machine = headrace.Machine.discover()
>>> geometry = kvcache.geometry("llama-3.2-1b")
>>> store = kvcache.Store(headrace.Mover(machine), geometry, [kvcache.Memory("dram", 64 << 20)])
>>> keys = geometry.keys(list(range(64)))
>>> computed = numpy.ones(4 * geometry.block_bytes, numpy.uint8)
>>> store.store(keys, computed).wait().stored
4
>>> async def prefill(pool: numpy.ndarray) -> None:
...     with store.match(list(range(64))) as found:
...         load = store.load(found.keys, pool)
...         for number in range(load.layers):
...             await load.layer(number)  # and compute it while the next ones load
>>> pool = numpy.zeros_like(computed)
>>> asyncio.run(prefill(pool))
>>> bool((pool == computed).all())
True

How it works: docs/design/kv-store.md.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from headrace._argument_errors import ArgumentError
from headrace._core import (
    Extent,
    InvalidError,
    KvGeometry,
    KvLayer,
    KvLoad,
    KvMatch,
    KvStats,
    KvStore,
    KvStored,
    KvStoredCounts,
    KvTierStats,
    Machine,
    MemoryRange,
    Mover,
    Object,
    kv_key,
)
from headrace._format import size
from headrace._language_models import element_bytes, element_type
from headrace._language_models import model as _model

Geometry = KvGeometry
Layer = KvLayer
Load = KvLoad
Match = KvMatch
Stats = KvStats
Stored = KvStored
StoredCounts = KvStoredCounts
TierStats = KvTierStats
key = kv_key

Layout = Literal["page_first", "layer_first"]
Priority = Literal["demand", "prefetch", "migration"]
_Write = Literal["leaving", "idle", "stored"]
_Verify = Literal["all", "found"]

__all__ = [
    "Folder",
    "Geometry",
    "Layer",
    "Layout",
    "Load",
    "Match",
    "Memory",
    "Priority",
    "SharedStore",
    "Stats",
    "Store",
    "Stored",
    "StoredCounts",
    "TierStats",
    "geometry",
    "key",
    "opaque",
]


def geometry(
    model: str, *, dtype: str = "bf16", block_tokens: int = 16, revision: str = ""
) -> Geometry:
    """The geometry of a published model, by name. InvalidError: no such model; it names all.

    `dtype`: bf16, fp16, fp32, fp8, int8, or PyTorch's names. `revision`: anything else the bytes
    depend on, such as the weights.
    """
    found = _model(model)
    dtype = element_type(dtype)
    shape = (found.kv_heads, found.head_dim, 2)
    if found.latent is not None:
        shape = (1, found.kv_elements, 1)
    return Geometry(
        found.name,
        layers=found.layers,
        kv_heads=shape[0],
        head_dim=shape[1],
        tensors=shape[2],
        element_bytes=element_bytes(dtype),
        block_tokens=block_tokens,
        revision=f"{dtype} {revision}",
    )


def opaque(
    name: str,
    block_bytes: int,
    *,
    layers: int = 1,
    revision: str = "",
    any_size: bool = False,
) -> Geometry:
    """Blocks of `block_bytes` bytes in `layers` equal parts, with contents that only an engine
    knows. InvalidError: `block_bytes` is not a multiple of `layers`.

    `any_size`: blocks of any size up to 1 GiB in one budget, each the same size always. A block
    takes as many units of `block_bytes` as it needs, so half a unit is lost on average, and each
    unit takes about 100 bytes of memory. store() and load_blocks() take a list, a memory for each
    block, whose length is the size of the block.
    """
    if layers < 1 or block_bytes % layers:
        raise InvalidError(f"blocks of {block_bytes} bytes in {layers} layers; give one that fits")
    return Geometry(
        name,
        layers=layers,
        kv_heads=1,
        head_dim=block_bytes // layers,
        tensors=1,
        element_bytes=1,
        block_tokens=1,
        revision=revision,
        any_size=any_size,
    )


@dataclass(frozen=True)
class Memory:
    """A tier of memory. `where`: a placement as Placement.parse() reads it ("hbm", "gpu", "0-3").
    `budget`: bytes, as a number or as "4GiB".

    `pin`: register it with the driver of GPUs, whose copy engines reach it at full speed then.
    `touch`: allocate all pages when the store opens, which takes about half a second per GiB.
    Otherwise the first use of each page allocates it, and memory may be full by then.
    """

    where: str
    budget: int | str
    pin: bool = False
    touch: bool = True


@dataclass(frozen=True)
class Folder:
    """A tier on SSD, which must be the last one. `path`: its folder, which is made if its parent
    exists. `budget`: bytes.

    Several at the end are one tier, each on a disk of its own: blocks are spread over them by
    budget, and a lost disk costs only its blocks. All have the same `write`, `verify` and `other`.
    `write`: when a block is written to it. "leaving": when it leaves the memory tiers, by flush()
    or by close(). "idle": also while no load runs. "stored": before its store ends; a block that
    is not written then counts as refused or failed.
    `verify`: which blocks are compared with their checksums when they are read. "all", or "found":
    those that an earlier process wrote. A bit that flips on the disk is served without it.
    `other`: for a folder of another geometry, model, revision or version of the format: "refuse"
    it, or "discard" its blocks.
    """

    path: str | bytes | os.PathLike[str] | os.PathLike[bytes]
    budget: int | str
    write: _Write = "idle"
    verify: _Verify = "all"
    other: Literal["refuse", "discard"] = "refuse"


class Store(KvStore):
    """Keeps KV blocks in tiers from fast to slow, within a budget of bytes in each. Blocks evicted
    from a tier go to the next one; those evicted from the last are dropped. The next process that
    opens a folder finds its blocks; a second process at the same time is refused. close(), or the
    end of `with`, first writes blocks that are only in memory to the folder.
    """

    _shared: ClassVar[bool] = False

    def __init__(
        self,
        mover: Mover,
        geometry: Geometry,
        tiers: Sequence[Memory | Folder],
        *,
        eviction: str = "s3-fifo",
        in_flight: int = 256 << 20,
        load_ahead: int = 8 << 20,
        workers: int = 1,
        list_dropped: bool = False,
    ) -> None:
        """`eviction`: s3-fifo, sieve or clock. `in_flight`: bytes of stores in progress, at most.
        `load_ahead`: demand loads read two layers at a time, or more up to this number of bytes;
        other layers wait, the lowest layer of any load first. `workers`: threads that compute
        checksums and continue operations. `list_dropped`: for take_dropped().

        A folder may be the only tier: stores write to it from their memory.
        """
        if not isinstance(tiers, Sequence):
            raise ArgumentError(f"tiers is {_one_line(tiers)}; give a list")
        folders: list[Folder] = []
        for tier in reversed(tiers):
            if not isinstance(tier, Folder):
                break
            folders.insert(0, tier)
        memories = tiers[: len(tiers) - len(folders)]
        super().__init__(
            mover,
            geometry,
            [_memory_tier(number, tier) for number, tier in enumerate(memories)],
            _folder_tier(len(memories), folders) if folders else None,
            eviction=eviction,
            in_flight=in_flight,
            load_ahead=load_ahead,
            workers=workers,
            list_dropped=list_dropped,
            shared=self._shared,
        )
        self._home = next(
            (node.id for node in mover.machine.nodes if node.kind not in ("storage", "gpu")), 0
        )
        self._machine = mover.machine

    def match(self, tokens: Sequence[int], *, salt: str = "") -> Match:
        """Pins the leading blocks of a prompt that are there: `with store.match(tokens) as found`.
        Starts nothing. `salt`: as of Geometry.keys().
        """
        return self.match_keys(self.geometry.keys(_plain("tokens", tokens), salt=salt))

    def store(
        self,
        keys: Sequence[bytes],
        source: Any,
        *,
        layout: Layout = "page_first",
        positions: Sequence[int] = (),
        priority: Priority = "migration",
        stream: int | None = None,
    ) -> Stored:
        """Copies blocks into the first tier, after loads. Await the result, or wait() for it; until
        then `source` must not change.

        `source`: memory with a whole number of blocks: an array or other buffer, a tensor on a GPU,
        an Object or an Extent. `positions`: the places of the blocks in it. Or a list of such
        memories, one for each block. `stream`: a GPU stream, as a number. The source is read after
        the stream has finished its present work, which computes the blocks. Default: the stream
        that the array names, or that a MemoryRange made with wait=False carries, as do its Extents;
        other Objects have none. `priority`: of the copies; blocks wait for space in the first tier
        in the order of store(), whatever their priority.
        """
        memory, theirs = self._memories(source)
        return self.store_object(
            _list("keys", keys),
            memory,
            layout=layout,
            positions=_plain("positions", positions),
            priority=priority,
            stream=theirs if stream is None else _number_of(stream),
        )

    def load(
        self,
        keys: Sequence[bytes],
        into: Any,
        *,
        layout: Layout = "page_first",
        positions: Sequence[int] = (),
        layer_order: bool = True,
        priority: Priority = "demand",
        deadlines: Sequence[float] = (),
        promote: bool = True,
        stream: int | None = None,
    ) -> Load:
        """Copies blocks from their tiers into memory. AbsentError: a block is not there.

        `into`: memory as for store(); an array of a Buffer from headrace.allocate() is the fastest.
        `layer_order`: load layer 0 of all blocks first, and report each layer when it is there.
        `deadlines`: seconds from now, one for each layer. `promote`: keep blocks from SSD in the
        first tier that CPUs address; keep blocks that are used again in the fastest tier with space
        for blocks of such use, also on a GPU. `stream`: as for store(); nothing is written before.
        """
        memory, theirs = self._memories(into)
        return self.load_object(
            _list("keys", keys),
            memory,
            layout=layout,
            positions=_plain("positions", positions),
            layer_order=layer_order,
            priority=priority,
            deadlines=_deadlines(deadlines),
            promote=promote,
            stream=theirs if stream is None else _number_of(stream),
        )

    def load_blocks(
        self,
        keys: Sequence[bytes],
        into: Any,
        *,
        layout: Layout = "page_first",
        positions: Sequence[int] = (),
        priority: Priority = "demand",
        promote: bool = True,
        stream: int | None = None,
    ) -> Load:
        """Like load(), of whole blocks. Absent blocks are left out: `loaded` of the result tells
        which were loaded.
        """
        memory, theirs = self._memories(into)
        return self.load_block_objects(
            _list("keys", keys),
            memory,
            layout=layout,
            positions=_plain("positions", positions),
            priority=priority,
            promote=promote,
            stream=theirs if stream is None else _number_of(stream),
        )

    def _memories(self, what: Any) -> tuple[list[Extent | Object], int | None]:
        """The memories, one or one for each block, and a stream to wait for."""
        each = what if isinstance(what, list | tuple) else [what]
        memories = [self._memory(one) for one in each]
        streams = {stream for _, stream in memories}
        if len(streams) > 1:
            raise InvalidError("arrays of several streams; give those of one, or stream=")
        return [memory for memory, _ in memories], streams.pop() if streams else None

    def _memory(self, what: Any) -> tuple[Extent | Object, int | None]:
        """The memory, and a stream to wait for."""
        if isinstance(what, Extent | Object):
            return what, getattr(what, "stream", None)
        memory = memory_range(what, self._machine, self._home)
        element = self.geometry.element_bytes
        if memory.itemsize not in (1, element):
            raise InvalidError(
                f"an array with elements of {memory.itemsize} bytes, where those of the geometry "
                f"have {element}; give it as bytes if it is right"
            )
        return memory, memory.stream


class SharedStore(Store):
    """A store whose first tier other processes can read: see headrace.serving."""

    _shared = True


def _memory_tier(number: int, tier: Any) -> tuple[str, int, bool, bool]:
    """Placement, bytes, whether pinned, whether touched at once."""
    if isinstance(tier, Folder):
        raise InvalidError(f"tier {number} is a folder; give it last")
    if not isinstance(tier, Memory):
        raise InvalidError(f"tier {number} is {tier!r}; give a kvcache.Memory or a kvcache.Folder")
    return (tier.where, _budget(number, tier.budget), tier.pin, tier.touch)


def _folder_tier(
    number: int, folders: list[Folder]
) -> tuple[list[tuple[str, int]], _Write, _Verify, bool]:
    """Paths and bytes, when they are written, what is verified, whether other folders are emptied.
    """
    tier = folders[0]
    for each in folders:
        if each.other not in ("refuse", "discard"):
            raise InvalidError(f"other={each.other!r}; give 'refuse' or 'discard'")
        if (each.write, each.verify, each.other) != (tier.write, tier.verify, tier.other):
            raise InvalidError(
                "folders of one tier differ in write, verify or other; give all of them the same"
            )
    disks = [(_path(each.path), _budget(number, each.budget)) for each in folders]
    return (disks, tier.write, tier.verify, tier.other == "discard")


def _budget(number: int, budget: Any) -> int:
    plain = size(budget) if isinstance(budget, str) else budget
    if not isinstance(plain, int) or plain < 0:
        raise InvalidError(f"tier {number} has {plain!r} bytes; give a number, or as '4GiB'")
    return plain


def _path(folder: Any) -> str:
    try:
        path = os.fsdecode(folder)
        path.encode()
    except TypeError:
        raise InvalidError(f"the folder is {_one_line(folder)}; give its path") from None
    except UnicodeEncodeError:
        raise InvalidError(f"the folder {path!r} has a name that is no UTF-8; rename it") from None
    return path


def _one_line(value: Any) -> str:
    return " ".join(repr(value).split())


def _number_of(stream: Any) -> int:
    try:
        number = operator.index(stream)
    except TypeError:  # an array of numbers is none, though it seems to be
        number = -1
    if not 0 <= number < 1 << 64:
        raise InvalidError(
            f"stream is {_one_line(stream)}; give the number of one, as "
            "torch.cuda.current_stream().cuda_stream is, or leave it out"
        )
    return number


def memory_range(what: Any, machine: Machine, home: int = 0) -> MemoryRange:
    """A range for the user's memory. `home`: the node of memory that was never written to."""
    try:
        return MemoryRange(what, machine=machine, wait=False)
    except TypeError as error:
        if "bytes-like" not in str(error):
            raise
        raise ArgumentError(f"{_one_line(what)} is no memory; give an array or tensor") from None
    except InvalidError:  # never written to, so the kernel has no node for it yet
        pass
    return MemoryRange(what, home, machine=machine, wait=False)


def _deadlines(seconds: Sequence[float]) -> list[float]:
    plain = []
    for layer, each in enumerate(seconds):
        try:
            plain.append(float(each))
        except (TypeError, ValueError):
            plain.append(math.nan)
        if not plain[-1] >= 0:  # neither is NaN
            raise InvalidError(
                f"the deadline of layer {layer} is {_one_line(each)}; give 0 for at once"
            )
    return plain


def _plain(name: str, numbers: Any) -> list[int]:
    """The numbers as a list; arrays are converted."""
    return _list(name, numbers.tolist() if hasattr(numbers, "tolist") else numbers)


def _list(name: str, values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise ArgumentError(f"{name} is {_one_line(values)}; give a list") from None
