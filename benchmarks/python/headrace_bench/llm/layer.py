# SPDX-License-Identifier: Apache-2.0
"""A layer of a model during decoding: the bytes it reads, their time from a memory, and the bytes
that engines can move meanwhile.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import headrace
import headrace_bench
from headrace._errors import WrongAnswer
from headrace._language_models import Model
from headrace._profile.nested import details_of
from headrace._run.host import this_host
from headrace._run.plan import Request, numbers, ranges
from headrace._run.ranks import Rank, local_rank
from headrace_bench.llm import known_rates
from headrace_bench.llm.gpu import Device, pages_on
from headrace_bench.runner import INTERRUPTED, Runner, Variant, row_of
from headrace_bench.stream import CACHES, on_tile
from headrace_bench.threads import buffer, cache_of, cpus_for

Row = dict[str, Any]
#: Called before each step with the steps done, their total, and the next step.
Progress = Callable[[int, int, str], object]

#: Time within which a layer is often claimed to be done.
CLAIM_SECONDS = 1e-3
#: Default of the allowed slow-down of a layer while something is moved.
SLOWER = 1.1
#: Share of the free memory that is used.
_USED_SHARE = 0.8
_COPY_BYTES = 64 << 20
_MIB = 1 << 20
#: Most GPU memory used: far more than its caches.
_GPU_BYTES = 8 << 30
_LEAST_GPU_BYTES = 16 << 20
_ENGINES_SECONDS = 20.0


def _untold(done: int, total: int, what: str) -> None:
    pass


@dataclass(frozen=True)
class Load:
    """One layer of one decode step."""

    model: Model
    batch: int
    context: int  #: tokens of each sequence
    dtype: str  #: of the weights
    kv_dtype: str

    @property
    def weight_bytes(self) -> int:
        return self.model.layer_weight_bytes(self.batch, self.dtype)

    @property
    def kv_bytes(self) -> int:
        return self.model.kv_bytes(self.batch * self.context, 1, self.kv_dtype)

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes

    @property
    def step_bytes(self) -> int:
        kv = self.kv_bytes * self.model.layers
        return self.model.step_weight_bytes(self.batch, self.dtype) + kv

    def asdict(self) -> Row:
        return {
            "model": self.model.name, "batch": self.batch, "context": self.context,
            "dtype": self.dtype, "kv_dtype": self.kv_dtype, "weight_bytes": self.weight_bytes,
            "kv_bytes": self.kv_bytes, "layer_bytes": self.bytes, "step_bytes": self.step_bytes,
            "claim_needs_bytes_per_second": self.bytes / CLAIM_SECONDS,
        }  # fmt: skip


def modelled(load: Load, rate: float) -> Row:
    """A modelled memory of this bandwidth, used by the layer alone."""
    seconds = load.bytes / rate
    return {
        "basis": "modelled", "bytes_per_second": rate, "ms_per_layer": 1e3 * seconds,
        "ms_per_step": 1e3 * load.step_bytes / rate, "below_1_ms": seconds < CLAIM_SECONDS,
    }  # fmt: skip


def budget(load: Load, target: float, seconds: float, peak: float, engines: Sequence[Row]) -> None:
    """Adds to each engine's row the bytes that it can move into the layer's memory if one layer may
    take `target` seconds. Cores move after the layer is done, other engines all the time. Moved
    bytes are written, so they are at most what the memory can carry beside the layer.
    """
    carried = max(0.0, peak * target - load.bytes)
    for row in engines:
        rate = row["bytes_per_second"]
        busy = seconds if row["kind"] == "cpu" else 0.0
        brought = None if rate is None else rate * max(0.0, target - busy)
        moved = None if brought is None else min(brought, carried)
        row["memory_limits"] = brought is not None and brought > carried
        row["target_ms"] = 1e3 * target
        row["bytes"] = None if moved is None else int(moved)
        row["share_of_kv"] = None if moved is None or not load.kv_bytes else moved / load.kv_bytes


@dataclass
class Bench:
    """The memory of a layer, filled, and the CPUs that read it."""

    machine: headrace.Machine
    load: Load
    on: str  #: as somebody wrote it
    threads: int | None
    seed: int = 1
    layers: list[float] = field(default_factory=list)  #: seconds of each, the first one first
    peaks: dict[int, list[float]] = field(default_factory=dict)  #: bytes/s by threads
    order: Row = field(default_factory=dict)  #: of the runs

    def __post_init__(self) -> None:
        rank = local_rank(os.environ) or Rank(0, 1, "no launcher")
        host = this_host(self.machine, Request(per_rank=True), rank)
        (self.place,), allowed = on_tile(self.machine, [self.on], host)
        self.cpus = cpus_for(self.machine, self.threads, allowed & set(host.cpus))
        self.caches = cache_of(self.machine, self.cpus)
        # Enough layers in a row that no cache still holds one when it is read again.
        enough = math.ceil(CACHES * self.caches / self.load.bytes)
        self.wanted = max(1, min(enough, self.load.model.layers)) * self.load.bytes
        placement = headrace.Placement.parse(self.machine, self.place, near=self.cpus)
        self.size = min(self.wanted, self._free(placement)) // 4096 * 4096
        if self.size < 1 << 20:
            raise headrace.ExhaustedError(f"no memory is free on {self.on}; choose another")
        self.memory = buffer(self.machine, self.size, self.place, self.cpus)
        self._at = 0

    def _free(self, placement: headrace.Placement) -> int:
        free = headrace.free_memory()
        kinds = {node.id: node.kind for node in self.machine.nodes}
        named = [node for node, _ in placement.nodes]
        nodes = named or [
            node for node in free.nodes if placement.kind in (None, kinds.get(node))
        ]  # fmt: skip
        least = sum(free.nodes.get(node, 0) for node in nodes)
        if free.cgroup is not None:
            least = min(least, free.cgroup)
        return int(_USED_SHARE * least)

    def fill(self) -> None:
        headrace_bench.fill_random(self.memory, self.seed, self.cpus)

    def run(self, cpus: Sequence[int]) -> float:
        """Reads one layer, and returns the seconds. The next call continues after it in memory."""
        run = headrace_bench.run_layer(self.memory, self._at, self.load.bytes, 0, cpus)
        self._at = (self._at + self.load.bytes) % self.size // 4096 * 4096
        return run.seconds * self.load.bytes / max(1, run.bytes)

    def repeat(
        self, repetitions: int, stop: Callable[[], bool], progress: Progress = _untold
    ) -> None:
        """Measures layers, and between them reads by fewer threads, which may be faster, to find
        the peak."""
        fewer = [n for n in (1 << i for i in range(12)) if n < len(self.cpus)]
        variants = [Variant({"threads": n}) for n in (len(self.cpus), *fewer)]

        def once(variant: Variant, number: int) -> float:
            seconds = self.run(self.cpus[: int(variant.parameters["threads"])])
            if number < 0 and variant is variants[0]:
                self.layers = [seconds]
            return seconds

        runner = Runner(variants, repetitions, self.seed)
        runner.run(once, stop, lambda done, total, _: progress(done, total, "layers"))
        self.order = runner.order()
        self.layers += variants[0].results
        for count, variant in zip(fewer, variants[1:], strict=True):
            self.peaks[count] = [self.load.bytes / seconds for seconds in variant.results]

    def link(self) -> None:
        """None: engines of the host write to this memory directly."""

    def row(self) -> Row:
        peaks = [rate for found in self.peaks.values() for rate in found]
        return {
            "basis": "measured", "on": self.on, "place": self.place, "cpus": self.cpus,
            "threads": len(self.cpus), "memory_bytes": self.size, "wanted_bytes": self.wanted,
            "shrunk": self.size < self.wanted // 4096 * 4096,
            "residency": headrace.where(self.memory).asdict()["pages"],
        } | figures(self.load, self.layers, peaks)  # fmt: skip


def figures(load: Load, layers: Sequence[float], peaks: Sequence[float]) -> Row:
    """Figures of a load, from the seconds of its layers in order and the peak rates."""
    first, *later = layers or [math.nan]
    middle = headrace.summarize(later)
    seconds = middle.median if middle else None
    peak = max([*(load.bytes / each for each in layers), *peaks], default=0)
    return {
        "first_ms": 1e3 * first if layers else None,
        "ms_per_layer": 1e3 * seconds if seconds else None,
        "ms_mad": 1e3 * middle.mad if middle else None,
        "ms_samples": [1e3 * each for each in later],
        "bytes_per_second": load.bytes / seconds if seconds else None,
        "peak_bytes_per_second": peak or None,
        "share_of_peak": load.bytes / seconds / peak if seconds else None,
        "floor_ms": 1e3 * load.bytes / peak if peak else None,
        "ms_per_step": 1e3 * seconds * load.step_bytes / load.bytes if seconds else None,
        "below_1_ms": seconds < CLAIM_SECONDS if seconds else None,
    }


def row_of_layer(load: Load, found: Row) -> headrace.Row:
    """The row of a layer in a memory, or of a modelled one; samples are ms of layers."""
    parameters: dict[str, int | str] = {
        "model": load.model.name, "batch": load.batch, "context": load.context,
        "dtype": load.dtype, "kv_dtype": load.kv_dtype,
    }  # fmt: skip
    if "on" in found:
        parameters |= {"on": found["on"], "threads": found["threads"]}
    else:
        parameters["bandwidth"] = str(headrace.format_rate(found["bytes_per_second"]))
    samples = found.get("ms_samples") or filter(None, [found["ms_per_layer"]])
    details = {k: v for k, v in details_of(found).items() if k not in (*parameters, "ms_mad")}
    words = {name: found.get(name, "") for name in ("place", "device")}
    words["cpus"] = ranges(found["cpus"]) if found.get("cpus") else ""
    return row_of(
        "layer", parameters, "ms", list(samples), details=details, words=words,
        flags=["shrunk"] if found.get("shrunk") else [], basis=found["basis"], reason=INTERRUPTED,
    )  # fmt: skip


class GpuBench:
    """The memory of a layer in a GPU, which reads it."""

    order: Row = {}  # rounds are the driver's

    def __init__(self, machine: headrace.Machine, load: Load, on: str, node: headrace.Node) -> None:
        self.machine, self.load, self.on, self.node = machine, load, on, node
        # All layers of a model, one after the other.
        self.wanted = min(load.model.layers * load.bytes, _GPU_BYTES) // _MIB * _MIB
        most = int(_USED_SHARE * (node.capacity or 0)) // _MIB * _MIB
        self.size = max(_MIB, min(self.wanted, most))
        self.found: headrace_bench.GpuLayers | None = None

    def repeat(
        self, repetitions: int, stop: Callable[[], bool], progress: Progress = _untold
    ) -> None:
        """Measures layers, and between them reads by fewer and more threads, which may be faster.
        """
        while self.found is None:
            try:
                self.found = headrace_bench.run_layers_on_gpu(
                    self.machine, self.node.id, self.size, self.load.bytes, repetitions + 1, stop,
                    lambda done, total: progress(done, total, "layers"),
                )  # fmt: skip
            except headrace.ExhaustedError:  # others have the rest of it
                self.size = self.size // 2 // _MIB * _MIB
                if self.size < _LEAST_GPU_BYTES:
                    raise
        if not all(run.correct for run in (*self.found.layers, *self.found.others)):
            raise WrongAnswer("a layer was not what was written; trust no number of this run")

    def link(self) -> float | None:
        """Bytes per second from pinned host memory; None: no free memory to measure it."""
        try:
            return Device(self.machine, self.node).rates()[1]
        except headrace.ExhaustedError:
            return None

    def row(self) -> Row:
        assert self.found is not None
        layers = [run.seconds for run in self.found.layers]
        peaks = [self.load.bytes / run.seconds for run in self.found.others]
        threads = sum({run.blocks for run in self.found.layers}) * self.found.threads_per_block
        return figures(self.load, layers, peaks) | {
            "basis": "emulated" if self.found.emulated else "measured", "on": self.on,
            "place": str(self.node.id), "device": self.found.device, "threads": threads,
            "cpus": [], "memory_bytes": self.size, "wanted_bytes": self.wanted,
            "shrunk": self.size < self.wanted,
            "residency": pages_on(self.node, self.size),
        }  # fmt: skip


#: The command that measures copies by engines of each kind.
_INSTEAD = {
    "dsa": "headrace bench dsa", "gpu": "headrace measure gpu",
    "migrate": "headrace measure migrate",
}  # fmt: skip
_NOW = "this run"


@dataclass(frozen=True)
class _Found:
    """The rate of an engine, or the reason why it is unknown."""

    rate: float | None  #: bytes/s
    from_node: int | None = None
    to_node: int | None = None
    reason: str = ""
    basis: str | None = None
    source: str = ""  #: who says so

    def limited_by(self, link: float, node: int) -> _Found:
        """Limits the rate by the link to a GPU, which data in host memory must cross as well."""
        if self.rate is None:
            return self
        return replace(
            self, rate=min(self.rate, link), to_node=node,
            source=f"{_NOW}: into node {self.to_node}, at most what is copied from there",
        )  # fmt: skip


def engine_rates(
    machine: headrace.Machine, node: int, directory: Path, stop: Callable[[], bool],
    engines: Sequence[headrace.Engine] | None = None, source: int | None = None,
    progress: Progress = _untold, link: float | None = None,
    profile: headrace.Profile | None = None,
) -> list[Row]:  # fmt: skip
    """A row for each of these engines (default: all) with the rate at which it fills a node.

    Each is measured once. A rate that is not measured here comes from a profile of the machine; if
    there is none, the row says why. Cores copy from `source`, or from the nearest other memory. A
    disk is read into the memory nearest to it, which its row names. `link`: bytes per second from
    host memory to the GPU, as measured now.
    """
    rows = []
    chosen = machine.engines if engines is None else engines
    on_gpu = link is not None and machine.node(node).gpu
    for done, engine in enumerate(chosen):
        progress(done, len(chosen), f"rate of {engine.name}")
        if stop():
            break
        if on_gpu and engine.kind == "gpu" and engine.home == node:
            found = _Found(link, on_gpu.host, node, basis="measured", source=_NOW)
        else:
            found = _rate(machine, engine, node, directory, stop, source)
        if found.rate is None and engine.kind in _INSTEAD:
            if (known := known_rates.best(machine, engine, node, profile)) is not None:
                found = _Found(known.rate, known.from_node, node, "", known.basis, known.source)
        if on_gpu and engine.kind == "ssd" and link is not None:
            found = found.limited_by(link, node)
        if on_gpu and on_gpu.emulated and found.source.startswith(_NOW):
            found = replace(found, basis="emulated")
        rows.append({
            "engine": engine.name, "kind": engine.kind, "from_node": found.from_node,
            "to_node": found.to_node, "bytes_per_second": found.rate, "basis": found.basis,
            "source": found.source, "reason": found.reason,
        })  # fmt: skip
    return rows


def _rate(
    machine: headrace.Machine, engine: headrace.Engine, node: int, directory: Path,
    stop: Callable[[], bool], source: int | None,
) -> _Found:  # fmt: skip
    """Measures the rate of an engine from a node into a node."""
    if engine.kind == "cpu" and not machine.node(node).byte_addressable:
        return _Found(None, reason=f"cores do not write there; see {_INSTEAD['gpu']}")
    to: int | None = node
    if engine.kind == "cpu":
        if source is None:
            others = [n.id for n in machine.nodes if n.byte_addressable and n.id != node]
            source = min(others or [node], key=lambda n: machine.node(node).distances.get(n, 255))
        experiment = "copy"
        only: dict[str, Any] = {
            "engine": "cpu", "cpu_node": engine.home, "from": source, "to": node,
            "bytes": _COPY_BYTES, "state": "cold",
        }  # fmt: skip
    elif engine.kind == "ssd":
        source, experiment = engine.home, "storage"
        only = {
            "node": engine.home, "operation": "read", "by": "io_uring", "io": "direct",
            "bytes": 1 << 20, "depth": 16,
        }  # fmt: skip
    else:
        return _Found(None, reason=f"not measured here; see {_INSTEAD[engine.kind]}")
    try:
        found = headrace.measure(
            machine, selections=[(experiment, only)], rounds=1, repetitions=3, noise_checks=False,
            directory=directory, budget=_ENGINES_SECONDS, stop=stop,
        )  # fmt: skip
    except headrace.Error as error:
        return _Found(None, source, reason=str(error))
    best = max((row for row in found.rows if row.median), key=_median, default=None)
    if best is None:
        reasons = [row.reason for row in found.rows if row.reason]
        return _Found(None, source, reason=(reasons or ["interrupted"])[0])
    told = _NOW
    if engine.kind == "ssd" and (to := _read_into(machine, best.cpus)) != node:
        told = f"{_NOW}: into node {to}, the memory nearest to it"
    return _Found(best.median, source, to, basis=best.basis, source=told)


def _median(row: headrace.Row) -> float:
    return row.median or 0.0


def _read_into(machine: headrace.Machine, cpus: str) -> int | None:
    """The memory that the experiment `storage` reads into: that of its CPUs, which are those
    nearest to the disk, or the first where these have none.
    """
    used = numbers(cpus) if cpus else []
    memories = [node for node in machine.nodes if node.byte_addressable and node.capacity]
    near = (node.id for node in memories if used and set(used) <= set(node.cpus))
    return next(near, memories[0].id if memories else None)
