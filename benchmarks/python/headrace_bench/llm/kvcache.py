# SPDX-License-Identifier: Apache-2.0
"""The measurement of `headrace bench kvcache`. Requests arrive at given times. Their blocks from
earlier requests are loaded from a store. A loop that reads weights and multiplies stands for the
computation of each layer.
"""

from __future__ import annotations

import math
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace
import headrace_bench
from headrace._errors import WrongAnswer
from headrace._language_models import Model
from headrace_bench.llm import layer, noise, prefill, trace
from headrace_bench.llm.gpu import Device, DriverCopies, pages_on
from headrace_bench.llm.stores import Loading, Match, Shape, Store, aligned, memory_kind, unlike
from headrace_bench.llm.tiers import Tiers
from headrace_bench.llm.torch_peer import MatrixProducts, has_torch
from headrace_bench.stream import CACHES
from headrace_bench.threads import cache_of, cpus_for
from headrace_bench.two_memories import free_bytes

Row = dict[str, Any]
#: Makes a store from the number of blocks in each tier, and whether layers are loaded one by one.
MakeStore = Callable[[Shape, Sequence[int], bool], Store]

#: Share of time in which layers would be computed if nothing were loaded: sets the request rate.
BUSY = 0.7
#: Number of different block contents; then they repeat.
CONTENTS = 61
CALIBRATIONS = 5
#: Bytes loaded at once in comparisons of stores, and of loads beside computing.
_LOAD_BYTES = 256 << 20
#: Places for loads, and for earlier loads that are still to be compared, when requests are loaded
#: ahead.
_PLACES = 4
#: Number of requests with cached blocks that are listed separately: the first.
_APART = 1
#: Blocks in memory of a store whose disk is measured.
FRONT = 4


@dataclass(frozen=True)
class Options:
    model: Model
    scale: prefill.Scale
    work: float  #: the part of a layer's weights and operations that is done
    policies: Sequence[str]
    threads: int | None
    directory: Path
    seed: int = 1
    rounds: int = 5
    device: Device | None = None  #: the GPU whose memory blocks are loaded to

    def shape(self) -> Shape:
        return Shape(self.model.layers, self.scale.block_tokens * self.model.layer_kv_bytes())


class Compute:
    """Stands for the layers: it reads and multiplies as much as they would, or a stated part, in
    memory that no cache holds. Cores do it, or matrix products of PyTorch on the GPU that blocks
    are loaded to.
    """

    def __init__(self, options: Options, machine: headrace.Machine) -> None:
        self._model, self._work = options.model, options.work
        self.cpus = cpus_for(machine, options.threads)
        size = max(CACHES * cache_of(machine, self.cpus), 64 << 20)
        if (free := free_bytes()) is not None:
            size = min(size, free // 4)
        self._memory = headrace.allocate(
            machine, size // 4096 * 4096, headrace.Placement.parse(machine, memory_kind(machine))
        )
        headrace_bench.fill_random(self._memory, options.seed, self.cpus)
        self._weights = int(self._work * self._model.layer_weight_bytes())
        self._at = 0
        self._products: MatrixProducts | None = None
        if options.device is not None and has_torch():
            ordinal = DriverCopies(machine, options.device.node).ordinal
            self._products = MatrixProducts(options.model, options.work, ordinal)

    def words(self) -> str:
        if self._products is not None:
            return "matrix products of PyTorch on the GPU"
        return "cores of the host read and multiply"

    def layer(self, tokens: int, weights: bool = True) -> float:
        """Computes a layer and returns the seconds; without the weights if they were read just
        before."""
        if self._products is not None:
            return self._products.seconds(tokens)
        operations = int(self._work * 2 * self._model.token_parameters * tokens)
        size = self._weights if weights else 0
        run = headrace_bench.run_layer(self._memory, self._at, size, operations, self.cpus)
        self._at = (self._at + size) % len(self._memory) // 4096 * 4096
        return run.seconds

    def speed(self, tokens: int) -> tuple[float, float]:
        """Seconds of a layer without tokens, and of each token besides."""
        none = statistics.median(self.layer(0) for _ in range(CALIBRATIONS))
        some = statistics.median(self.layer(tokens) for _ in range(CALIBRATIONS))
        return none, max(0.0, some - none) / tokens


@dataclass
class Bench:
    """The state that all policies share."""

    options: Options
    machine: headrace.Machine
    make: MakeStore
    stop: Callable[[], bool]
    progress: layer.Progress
    rates: dict[str, float | None] = field(default_factory=dict)  #: bytes/s of each tier at best
    stores: int = 1  #: that are measured in turn
    done: int = 0  #: requests so far
    #: The served requests, by store and policy.
    served: dict[tuple[str, str], list[prefill.Served]] = field(default_factory=dict)

    def prepare(self) -> None:
        options = self.options
        self.shape = options.shape()
        self.most = 0
        self._check_memory()
        self.requests = trace.conversations(options.scale.requests, seed=options.seed)
        self.most = max(len(request.blocks) for request in self.requests)
        self._check_memory()
        self._check_disk()
        self.compute = Compute(options, self.machine)
        self.source = aligned(CONTENTS * self.shape.block)
        headrace_bench.fill_random(self.source, options.seed + 1, self.compute.cpus)
        size, device = self.most * self.shape.block, options.device
        self.arrived = aligned(size)  # what is compared, of blocks in a GPU
        self.arrived[:] = 0
        if device is None:
            self.places = [self.arrived, *(aligned(size) for _ in range(self._places() - 1))]
            for place in self.places[1:]:
                place[:] = 0
        else:
            self.places = [device.memory(size) for _ in range(self._places())]
        self.to = self.places[0]
        mean = sum(len(r.blocks) for r in self.requests) / len(self.requests)
        tokens = max(1, round(mean * options.scale.block_tokens))
        self.fixed, self.per_token = self.compute.speed(tokens)
        served = options.model.layers * self.seconds_of_layer(tokens)
        # Open loop: requests arrive at their times, whether or not earlier ones have ended.
        self.pace = len(self.requests) * served / BUSY / max(1e-9, self.requests[-1].seconds)

    def _places(self) -> int:
        return _PLACES if "ahead" in self.options.policies else 1

    def _check_memory(self) -> None:
        """Checks the free memory of the host, and of the GPU with the places and the first tier, if
        any."""
        tiers, device = self.options.scale.blocks(), self.options.device
        places, first = self._places() * self.most, 0
        if device is not None:
            on_gpu = (places + tiers[0]) * self.shape.block
            if not device.has_room(on_gpu):
                raise headrace.ExhaustedError(
                    f"this takes {headrace.format_bytes(on_gpu)} of {device.words()}; give fewer "
                    "--requests or --block-tokens"
                )
            places, first = self.most, 1  # those that are compared
        needed = (places + CONTENTS + sum(tiers[first:-1])) * self.shape.block
        free = free_bytes()
        if free is not None and needed > 0.8 * free:
            raise headrace.ExhaustedError(
                f"this takes {headrace.format_bytes(needed)} of memory and "
                f"{headrace.format_bytes(free)} are free; give fewer --requests or --block-tokens"
            )

    def loaded_blocks(self) -> int:
        """Number of blocks that are loaded at once when only loads are measured."""
        return max(1, min(self.most, _LOAD_BYTES // self.shape.block))

    def _check_disk(self) -> None:
        """Checks the disk's free space. Stores measured in turn exist one at a time; stores whose
        loads are compared exist together."""
        last = self.options.scale.blocks()[-1]
        blocks = max(last, self.stores * (self.loaded_blocks() + FRONT))
        needed, directory = blocks * self.shape.block, self.options.directory
        disk = shutil.disk_usage(directory)
        if needed > disk.free and disk.total:  # 0: no files are kept there
            raise headrace.ExhaustedError(
                f"this takes {headrace.format_bytes(needed)} in {directory} and "
                f"{headrace.format_bytes(disk.free)} are free; give fewer --requests or another "
                "--data"
            )

    def find_rates(self) -> None:
        """The tiers' rooflines: how fast cores copy within the memory that loads go to, and how
        fast the disk reads, at best.
        """
        pages = headrace.where(self.arrived).pages
        node = max(pages, key=lambda each: pages[each])
        cores = [engine for engine in self.machine.engines if engine.kind == "cpu"]
        far = [self.machine.node(engine.home).distances.get(node, 255) for engine in cores]
        # On the largest machines others would take minutes.
        engines = [engine for engine, away in zip(cores, far, strict=True) if away == min(far)]
        engines += [engine for engine in self.machine.engines if engine.kind == "ssd"]
        kinds = {"cpu": memory_kind(self.machine), "ssd": "ssd"}
        for row in layer.engine_rates(
            self.machine, node, self.options.directory, self.stop, engines, node, self.progress
        ):
            rate, tier = row["bytes_per_second"], kinds[row["kind"]]
            self.rates[tier] = max(filter(None, (rate, self.rates.get(tier))), default=None)
        if self.options.device is not None:
            inside, to_it = self.options.device.rates()
            for tier, rate in self.rates.items():
                self.rates[tier] = to_it if tier != "ssd" else rate and min(rate, to_it)
            self.rates["gpu"] = inside

    def bring(self, place: Any, blocks: int) -> Any:
        """The bytes of the first blocks of a place, in memory for CPUs."""
        device, size = self.options.device, blocks * self.shape.block
        if device is not None:
            device.fetch(place, self.arrived[:size])
        return self.arrived if device is not None else place

    def wipe(self, place: Any, blocks: int) -> None:
        device, size = self.options.device, blocks * self.shape.block
        (place if device is None else self.arrived)[:size] = 0
        if device is not None:
            device.wipe(place, self.arrived[:size])

    def known(self) -> dict[str, int | str]:
        """Parameters of all rows."""
        options = self.options
        return {
            "model": options.model.name, "requests": options.scale.requests,
            "block_tokens": options.scale.block_tokens,
        }  # fmt: skip

    def told(self, what: str) -> layer.Progress:
        return lambda done, total, _: self.progress(done, total, what)

    def basis(self) -> str:
        device = self.options.device
        gpu = device.node.gpu if device is not None else None
        return "emulated" if gpu is not None and gpu.emulated else "measured"

    def policy(self, name: str) -> Row:
        """Serves all requests in turn from an empty store. Returns those served until a stop."""
        store = self.make(self.shape, self.options.scale.blocks(), name == "demand")
        before = noise.counts()
        run = _Run(self, store, name)
        try:
            for number, request in enumerate(self.requests):
                every = len(self.requests) * len(self.options.policies) * self.stores
                self.progress(self.done, every, name)
                self.done += 1
                if self.stop():
                    break
                run.serve(request, next(iter(self.requests[number + 1 :]), None))
            store.settle()
            run.end()
            self.served[store.name, name] = run.served
            return run.row() | noise.between(before, noise.counts())
        finally:
            run.end()
            store.close()

    def add_alone(self, rows: Sequence[Row]) -> None:
        """Adds to rows of policies the share of load time that they hide, compared with load-first
        alone."""
        for row in rows:
            alone = self.served.get((row["store"], "load-first"), [])
            row |= prefill.of_alone(self.served[row["store"], row["policy"]], alone, _APART)

    def residency(self) -> Row:
        """Pages of the destination memory by node."""
        device = self.options.device
        pages = headrace.where(self.to).pages if device is None else pages_on(
            device.node, len(self.to)
        )  # fmt: skip
        return {str(node): count for node, count in pages.items()}

    def seconds_of_layer(self, tokens: int) -> float:
        return self.fixed + self.per_token * tokens

    def floor(self, tiers: Sequence[str], found: Sequence[int]) -> float | None:
        """Seconds that loading these blocks takes at the best rates seen."""
        times = []
        for i, name in enumerate(tiers):
            blocks = list(found).count(i)
            rate = self.rates.get(name)
            if blocks and not rate:
                return None
            times.append(blocks * self.shape.block / rate if blocks and rate else 0.0)
        return max(times, default=0.0)


@dataclass
class _Begun:
    """Blocks of a request that are pinned and being loaded to a place."""

    match: Match
    place: int
    loads: list[Loading] = field(default_factory=list)
    begin: float = 0.0  #: when the first was asked for

    def under_way(self) -> bool:
        return not all(load.done() for load in self.loads)

    def ended(self) -> float:
        return max(load.ended() for load in self.loads)


class _Run:
    """One policy on one store."""

    def __init__(self, bench: Bench, store: Store, policy: str) -> None:
        self._bench, self._store, self._policy = bench, store, policy
        self._start = time.perf_counter()
        self.served: list[prefill.Served] = []
        self._waits: list[float] = []
        self._floors = 0.0
        self._loading = 0.0
        self._wrong = 0
        self._layers: list[float] = []
        self._tiers = Tiers(bench.options.scale.blocks())  # what a store would hold
        self._next: trace.Request | None = None
        self._at = 0  # the place of what is computed
        self._ahead: _Begun | None = None
        self._aheads = 0  # requests that were loaded ahead
        self._filled: dict[int, Sequence[int]] = {}  # blocks to be compared, by place

    def serve(self, request: trace.Request, after: trace.Request | None = None) -> None:
        bench, store = self._bench, self._store
        self._next = after if self._policy == "ahead" else None
        self._await(request.seconds * bench.pace)
        # The last block is always computed, since the next token needs it.
        if self._policy == "recompute":
            return self._computed(request)
        begun = self._held(request)
        tiers = begun.match.tiers
        try:
            new = (len(request.blocks) - len(tiers)) * bench.options.scale.block_tokens
            made = self._prefill(begun, new)
            self._filled[begun.place] = request.blocks[: len(tiers)]
            self._note(request, tiers, tiers, made, new)
        finally:
            begun.match.release()
        fresh = request.blocks[len(tiers) :]
        store.store(fresh, bench.source, [block % CONTENTS for block in fresh])

    def end(self) -> None:
        """Ends all loads, releases all pins, and compares all blocks."""
        begun, self._ahead = self._ahead, None
        if begun is not None:
            try:
                if begun.loads:
                    begun.ended()
            finally:
                begun.match.release()
        self._compare()

    def _held(self, request: trace.Request) -> _Begun:
        """Pins the request's blocks that are there now, and loads those that were not there when it
        was loaded ahead."""
        bench, begun = self._bench, self._ahead
        match = self._store.match(request.blocks[:-1])
        if begun is None:
            return _Begun(match, self._free_place())
        self._ahead = None
        known = len(begun.match.tiers)
        match.tiers[:known] = begun.match.tiers  # from where they came
        begun.match.release()
        if len(match.tiers) > known:
            begun.begin = begun.begin or time.perf_counter()
            to = bench.places[begun.place]
            begun.loads.append(match.load(to, range(bench.shape.layers), known))
        return _Begun(match, begun.place, begun.loads, begun.begin)

    def _computed(self, request: trace.Request) -> None:
        # The number of blocks that other policies may load: all of them compute blocks that were
        # dropped.
        known = len(self._tiers.match(request.blocks[:-1]))
        self._tiers.use(request.blocks)
        tokens = self._bench.options.scale.block_tokens
        new = (len(request.blocks) - known) * tokens
        made = self._recompute(new, known * tokens)
        self._note(request, [], [-1] * known, made, new)  # -1: in no tier

    def _await(self, at: float) -> None:
        behind = time.perf_counter() - self._start - at
        self._waits.append(max(0.0, behind))
        if behind < 0:
            time.sleep(-behind)

    def _free_place(self) -> int:
        """An empty place. There is one, since `_note` compares and empties full ones in time."""
        free = (i for i in range(len(self._bench.places)) if i not in self._filled)
        return next(free)

    def _look_ahead(self) -> None:
        """Loads the next request ahead, if it has arrived: its layers follow those of this one."""
        bench, after = self._bench, self._next
        if after is None or self._ahead is not None or len(self._filled) + 2 > len(bench.places):
            return
        if time.perf_counter() - self._start < after.seconds * bench.pace:
            return
        used = {*self._filled, self._at}
        place = next(i for i in range(len(bench.places)) if i not in used)
        self._ahead = _Begun(self._store.match(after.blocks[:-1]), place)
        if self._ahead.match.tiers:
            self._aheads += 1
            self._ahead.begin = time.perf_counter()
            layers, to = range(bench.shape.layers), bench.places[place]
            self._ahead.loads.append(self._ahead.match.load(to, layers, ahead=True))

    def _prefill(self, begun: _Begun, new: int) -> prefill.Timeline:
        bench, begin, match = self._bench, time.perf_counter(), begun.match
        layers, to = range(bench.shape.layers), bench.places[begun.place]
        self._at = begun.place
        stalls, loading = [], 0.0
        if match.tiers and not begun.loads and self._policy != "demand":
            begun.begin = begin
            begun.loads.append(match.load(to, layers))
            if self._policy == "load-first":
                begun.ended()
        for number in layers:
            since = begin if number == 0 else time.perf_counter()
            for load in begun.loads:
                load.wait(number)
            if match.tiers and not begun.loads:
                one = match.load(to, range(number, number + 1))
                one.wait(number)
                loading += time.perf_counter() - since
            stalls.append(time.perf_counter() - since if match.tiers else 0.0)
            self._look_ahead()
            self._layers.append(bench.compute.layer(new))
        end = time.perf_counter()
        if begun.loads:
            loading = begun.ended() - begun.begin
        # A load has ended for the layers when they know.
        return prefill.Timeline(stalls, max(loading, sum(stalls)), end - begin)

    def _recompute(self, new: int, known: int) -> prefill.Timeline:
        bench, begin = self._bench, time.perf_counter()
        stalls = []
        for _ in range(bench.shape.layers):
            self._layers.append(bench.compute.layer(new))
            stalls.append(bench.compute.layer(known, weights=False) if known else 0.0)
        return prefill.Timeline(stalls, 0.0, time.perf_counter() - begin)

    def _note(
        self, request: trace.Request, found: Sequence[int], known: Sequence[int],
        made: prefill.Timeline, new: int,
    ) -> None:  # fmt: skip
        bench = self._bench
        floor = bench.floor(self._store.tiers, found)
        load = None if floor is None else floor / bench.shape.layers
        compute = bench.seconds_of_layer(new)
        self.served.append(prefill.Served(made, known, len(request.blocks), compute, load))
        if floor is not None and found:
            self._floors += floor
            self._loading += made.loading
        if self._ahead is None or not self._ahead.under_way():
            self._compare()

    def _compare(self) -> None:
        """Compares arrived bytes with stored ones while the clock is stopped. Requires: no load is
        in flight, since it would profit from that.
        """
        since = time.perf_counter()
        bench = self._bench
        for place, blocks in self._filled.items():
            to = bench.bring(bench.places[place], len(blocks))
            pairs = ((i, block % CONTENTS) for i, block in enumerate(blocks))
            self._wrong += unlike(to, bench.source, pairs, bench.shape.block)
            bench.wipe(bench.places[place], len(blocks))
        self._filled = {}
        self._start += time.perf_counter() - since

    def row(self) -> Row:
        if self._wrong:
            raise WrongAnswer(
                f"{self._wrong} blocks were not what was stored; trust no number of this run"
            )
        tiers = self._store.tiers
        waits = sorted(self._waits)
        first = next((sum(each.made.stalls) for each in self.served if each.tiers), None)
        layers = self._bench.shape.layers
        found = prefill.summary(self._policy, tiers, self.served, layers, _APART)
        cached = [each for each in self.served if each.tiers][_APART:]
        return found | {
            "store": self._store.name,
            "stalls_ms": [1e3 * sum(each.made.stalls) / layers for each in cached],
            "first_stall_ms": None if first is None else 1e3 * first,
            "loaded_ahead": self._aheads,
            "queued_p99_ms": 1e3 * (prefill.quantile(waits, 0.99) or 0.0),
            "layer_p50_ms": 1e3 * statistics.median(self._layers) if self._layers else None,
            "roofline_share": self._floors / self._loading if self._loading else None,
            "residency": self._bench.residency(),
            "reason": "" if len(self._waits) == len(self._bench.requests) else "interrupted",
        }


def scale_of(options: Options) -> Row:
    """Words of a row on how much it is scaled down."""
    scale = options.scale
    return {
        "requests": scale.requests, "of_requests": math.floor(trace.PUBLISHED["requests"]),
        "block_tokens": scale.block_tokens, "of_block_tokens": trace.BLOCK_TOKENS,
        "tier_blocks": scale.blocks(), "of_tier_blocks": list(scale.capacities),
        "work": options.work,
    }  # fmt: skip
