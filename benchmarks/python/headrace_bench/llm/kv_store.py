# SPDX-License-Identifier: Apache-2.0
"""headrace.kvcache as a store for `headrace bench kvcache`, and all such stores by name."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import headrace
from headrace import kvcache
from headrace._errors import error_of
from headrace_bench.llm.gpu import DriverCopies
from headrace_bench.llm.stores import (
    TIMEOUT_SECONDS,
    AsyncioStore,
    Copies,
    Loading,
    Match,
    Shape,
    Store,
    memory_kind,
)
from headrace_bench.llm.torch_peer import TorchCopies, has_torch, torch_with_cuda

#: Bytes of the largest piece of a Mover.
_LARGEST_PIECE = 1 << 20
#: Number of loads at once whose end is seen when it happens.
_WATCHED = 4


class KvStore:
    """A store of memory and a folder. Blocks from the folder are not kept in memory, like the
    peer's.

    `by_layer`: each layer of a block is kept as a block of its own, so that one can be loaded
    without the others; headrace.kvcache loads whole blocks, in the order of layers.
    """

    name = "headrace"

    def __init__(
        self, machine: headrace.Machine, shape: Shape, blocks: Sequence[int], directory: Path,
        depth: int, by_layer: bool = False, gpu: int | None = None,
    ) -> None:  # fmt: skip
        memory = memory_kind(machine)
        self.tiers = [memory, "ssd"] if gpu is None else ["gpu", memory, "ssd"]
        if len(blocks) < len(self.tiers):
            self.tiers.remove(memory)
        where = {"gpu": str(gpu)}
        self.by_layer = by_layer
        self._kept = shape.layers if by_layer else 1  # parts of a block that are blocks there
        geometry = kvcache.Geometry(
            "bench", layers=shape.layers // self._kept, kv_heads=1, head_dim=shape.fragment // 2,
            tensors=1, block_tokens=1,
        )  # fmt: skip
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="headrace-kvcache-", dir=directory)
        except OSError as error:
            made = f"cannot make a folder in {directory}"
            raise error_of(error, made, "another --data") from None
        piece = min(shape.fragment, _LARGEST_PIECE)
        budgets = [count * shape.block for count in blocks]
        self._watcher = ThreadPoolExecutor(_WATCHED, "kv")
        self._objects: dict[int, headrace.MemoryRange] = {}
        self._moving: list[kvcache.Stored] = []
        try:
            self._store: kvcache.Store | None = kvcache.Store(
                headrace.Mover(machine, piece=piece, in_flight_per_link=depth * piece), geometry,
                [*(kvcache.Memory(where.get(tier, tier), budget,
                                  pin=gpu is not None and tier != "gpu")
                   for tier, budget in zip(self.tiers[:-1], budgets[:-1], strict=True)),
                 kvcache.Folder(
                    Path(self._folder.name) / "blocks", budgets[-1], write="leaving"
                )],
            )  # fmt: skip
        except BaseException:
            self._watcher.shutdown()
            self._folder.cleanup()
            raise

    def match(self, blocks: Sequence[int]) -> Match:
        parts = [self._opened().match_keys(self._keys(blocks, i)) for i in range(self._kept)]
        return _KvMatch(self, parts)

    def store(self, blocks: Sequence[int], source: Any, positions: Sequence[int]) -> None:
        self._moving = [each for each in self._moving if not each.done()]
        keys = [key for block in blocks for key in self._keys_of(block)]
        places = [self._kept * place + i for place in positions for i in range(self._kept)]
        if keys:
            self._moving.append(
                self._opened().store(keys, self._object(source), positions=places)
            )  # fmt: skip

    def settle(self) -> None:
        for each in self._moving:
            each.wait(TIMEOUT_SECONDS)
        self._moving = []

    def close(self) -> None:
        try:
            self.settle()
        finally:
            self._watcher.shutdown()
            store, self._store = self._store, None
            try:
                if store is not None:
                    store.close(flush=False)
            finally:
                self._folder.cleanup()

    def begin_load(
        self, parts: Sequence[kvcache.Match], to: Any, layers: range, begin: int, ahead: bool
    ) -> Loading:
        chosen = parts if self._kept == 1 else [parts[layer] for layer in layers]
        count = min(len(part) for part in parts)
        loads = []
        for number, part in zip(layers, chosen, strict=False):
            first = 0 if self._kept == 1 else number
            places = [self._kept * i + first for i in range(begin, count)]
            keys = part.keys[begin:count]
            loads.append(
                self._opened().load(
                    keys, self._object(to), positions=places, promote=False,
                    priority="prefetch" if ahead else "demand",
                )
            )  # fmt: skip
        return _KvLoading(loads, layers, self._watcher)

    def _opened(self) -> kvcache.Store:
        assert self._store is not None
        return self._store

    def _object(self, memory: Any) -> headrace.Object:
        """The memory as an object; its node is found only once."""
        if isinstance(memory, headrace.Buffer):
            return memory
        if id(memory) not in self._objects:
            self._objects[id(memory)] = headrace.MemoryRange(memory)
        return self._objects[id(memory)]

    def _keys(self, blocks: Sequence[int], part: int) -> list[bytes]:
        return [self._keys_of(block)[part] for block in blocks]

    def _keys_of(self, block: int) -> list[bytes]:
        return [(block * self._kept + i).to_bytes(16, "little") for i in range(self._kept)]


class _KvMatch:
    def __init__(self, store: KvStore, parts: Sequence[kvcache.Match]) -> None:
        self._store, self._parts = store, parts
        count = min(len(part) for part in parts)
        self.tiers = list(parts[0].tiers[:count])

    def load(self, to: Any, layers: range, first: int = 0, ahead: bool = False) -> Loading:
        return self._store.begin_load(self._parts, to, layers, first, ahead)

    def release(self) -> None:
        for part in self._parts:
            part.release()


class _KvLoading:
    """One load of all layers, or one for each."""

    def __init__(
        self, loads: Sequence[kvcache.Load], layers: range, watcher: ThreadPoolExecutor
    ) -> None:  # fmt: skip
        self._loads, self._layers = loads, layers
        self._ended: Future[float] = watcher.submit(self._watch)

    def _watch(self) -> float:
        """Runs in a thread, so that the end is seen when it happens."""
        for load in self._loads:
            load.wait(TIMEOUT_SECONDS)
        return time.perf_counter()

    def wait(self, layer: int) -> None:
        if len(self._loads) == 1 and self._loads[0].layers > 1:
            self._loads[0].layer(layer).wait(TIMEOUT_SECONDS)
        else:
            self._loads[self._layers.index(layer)].wait(TIMEOUT_SECONDS)

    def done(self) -> bool:
        return all(load.done() for load in self._loads)

    def ended(self) -> float:
        return self._ended.result(TIMEOUT_SECONDS)


#: The stores of blocks, by name; the last needs a GPU and PyTorch.
STORES: tuple[str, ...] = ("headrace", "asyncio", "torch")


def usual(on_gpu: bool) -> list[str]:
    """The stores that are compared by default."""
    return [name for name in STORES if name != "torch" or (on_gpu and has_torch())]


def check(name: str, on_gpu: bool) -> None:
    """Errors: headrace.InvalidError, AbsentError: this store cannot be made here."""
    if name != "torch":
        return
    if not on_gpu:
        raise headrace.InvalidError("the store torch loads to a GPU; give --on gpu")
    torch_with_cuda()


def maker(
    name: str, machine: headrace.Machine, directory: Path, depth: int, gpu: int | None = None
) -> Callable[[Shape, Sequence[int], bool], Store]:
    """Returns a function that makes stores in `directory`: (shape, blocks of each tier, whether
    layers are loaded one by one). `depth`: pieces in flight. `gpu`: the node of the first tier.
    """
    if name != "headrace":
        memory = [memory_kind(machine)] if gpu is None else ["gpu", memory_kind(machine)]
        copies: Copies | None = None
        if gpu is not None:
            ways = TorchCopies if name == "torch" else DriverCopies
            copies = ways(machine, machine.node(gpu))
        return lambda shape, blocks, by_layer: AsyncioStore(
            shape, blocks, directory, depth, memory, copies, name
        )
    return lambda shape, blocks, by_layer: KvStore(
        machine, shape, blocks, directory, depth, by_layer, gpu
    )
