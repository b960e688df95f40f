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
from typing import Any, Literal

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
)
from headrace._language_models import element_bytes, element_type
from headrace._language_models import model as _model
from headrace._sizes import size

Geometry = KvGeometry
Layer = KvLayer
Load = KvLoad
Match = KvMatch
Stats = KvStats
Stored = KvStored
StoredCounts = KvStoredCounts
TierStats = KvTierStats

Layout = Literal["page_first", "layer_first"]
Priority = Literal["demand", "prefetch", "migration"]

__all__ = [
    "Folder",
    "Geometry",
    "Layer",
    "Layout",
    "Load",
    "Match",
    "Memory",
    "Priority",
    "Stats",
    "Store",
    "Stored",
    "StoredCounts",
    "TierStats",
    "geometry",
]


def geometry(
    model: str, *, dtype: str = "bf16", block_tokens: int = 16, revision: str = ""
) -> Geometry:
    """That of a published model, by name. InvalidError: none of that name; it says which there are.

    `dtype`: bf16, fp16, fp32, fp8, int8, or as PyTorch calls them. `revision`: whatever else the
    bytes depend on, such as weights.
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


@dataclass(frozen=True)
class Memory:
    """A tier of memory: where, as Placement.parse() reads it ("hbm", "gpu", "0-3"), and bytes, as a
    number or as "4GiB".

    `pin`: register it with the driver of GPUs, whose copy engines reach it at full speed then.
    """

    where: str
    budget: int | str
    pin: bool = False


@dataclass(frozen=True)
class Folder:
    """A tier on SSD, the last one: its folder, which is made if its parent exists, and bytes."""

    path: str | bytes | os.PathLike[str] | os.PathLike[bytes]
    budget: int | str


class Store(KvStore):
    """Keeps KV blocks in tiers from fast to slow, at most a budget of bytes in each. What has to
    leave a tier goes to the next one, and from the last it is dropped. A folder is found again by
    the next process that opens it; two at a time are refused. `with` closes it, or close(): what is
    only in memory is written to the folder first.
    """

    def __init__(
        self,
        mover: Mover,
        geometry: Geometry,
        tiers: Sequence[Memory | Folder],
        *,
        eviction: str = "s3-fifo",
        in_flight: int = 256 << 20,
        load_ahead: int = 8 << 20,
    ) -> None:
        """`eviction`: s3-fifo, sieve or clock. `in_flight`: most bytes of stores not ended.
        `load_ahead`: layers of demand loads are read two at a time, or more, up to this many bytes;
        the rest is in line, the lowest layer first, whichever load has it.
        """
        super().__init__(
            mover,
            geometry,
            [_tier(number, tier) for number, tier in enumerate(tiers)],
            eviction=eviction,
            in_flight=in_flight,
            load_ahead=load_ahead,
        )
        self._home = next(
            (node.id for node in mover.machine.nodes if node.kind not in ("storage", "gpu")), 0
        )
        self._machine = mover.machine

    def match(self, tokens: Sequence[int], *, salt: str = "") -> Match:
        """Pins the leading blocks of a prompt that are there: `with store.match(tokens) as found`.
        Starts nothing. `salt`: as of Geometry.keys().
        """
        return self.match_keys(self.geometry.keys(_plain(tokens), salt=salt))

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
        """Copies blocks into the first tier, behind loads. `source`: an array or other buffer, a
        tensor on a GPU, an Object or an Extent, which holds a whole number of blocks; `positions`:
        which of them. Await what it gives, or wait() for it: until then `source` must not change.
        `stream`: of a GPU, as a number; nothing is read before it has done what it has now, which
        computes the blocks. By default the one that the array names, or that a MemoryRange carries
        which was made with wait=False, and each Extent of it; other Objects have none.
        """
        memory, theirs = self._memory(source)
        return self.store_object(
            list(keys),
            memory,
            layout=layout,
            positions=_plain(positions),
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
        """Copies blocks from where they are. `into` as of store(); an array that a Buffer of
        headrace.allocate() gives is the fastest. `layer_order`: layer 0 of all blocks first, each
        layer told when it is there. `deadlines`: seconds from now, one for each layer. `promote`:
        keep blocks from SSD in the first tier that CPUs address, and those that are used again in
        the fastest that has room for what is used so often, of a GPU too. `stream`: as of store();
        nothing is written before. AbsentError: a block is not there.
        """
        memory, theirs = self._memory(into)
        return self.load_object(
            list(keys),
            memory,
            layout=layout,
            positions=_plain(positions),
            layer_order=layer_order,
            priority=priority,
            deadlines=_deadlines(deadlines),
            promote=promote,
            stream=theirs if stream is None else _number_of(stream),
        )

    def _memory(self, what: Any) -> tuple[Extent | Object, int | None]:
        """What it is, and a stream to wait for."""
        if isinstance(what, Extent | Object):
            return what, getattr(what, "stream", None)
        memory = _memory(what, self._machine, self._home)
        element = self.geometry.element_bytes
        if memory.itemsize not in (1, element):
            raise InvalidError(
                f"an array with elements of {memory.itemsize} bytes, where those of the geometry "
                f"have {element}; give it as bytes if it is right"
            )
        return memory, memory.stream


def _tier(number: int, tier: Any) -> tuple[str, bool, int, bool]:
    """As the extension has it: where or a folder's path, whether that is one, bytes, pinned."""
    if not isinstance(tier, Memory | Folder):
        raise InvalidError(f"tier {number} is {tier!r}; give a kvcache.Memory or a kvcache.Folder")
    budget = size(tier.budget) if isinstance(tier.budget, str) else tier.budget
    if not isinstance(budget, int) or budget < 0:
        raise InvalidError(f"tier {number} has {budget!r} bytes; give a number, or as '4GiB'")
    if isinstance(tier, Folder):
        return (_path(tier.path), True, budget, False)
    return (tier.where, False, budget, tier.pin)


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


def _memory(what: Any, machine: Machine, home: int) -> MemoryRange:
    try:
        return MemoryRange(what, machine=machine, wait=False)
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


def _plain(numbers: Any) -> list[int]:
    """The numbers as a list; arrays are converted."""
    plain: list[int] = numbers.tolist() if hasattr(numbers, "tolist") else list(numbers)
    return plain
