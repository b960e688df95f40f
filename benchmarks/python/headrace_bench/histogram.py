# SPDX-License-Identifier: Apache-2.0
"""IT4I's example of data and bins in different memories: pairs of placements, sizes, runs."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

import headrace
import headrace_bench
from headrace._run.plan import nodes_of
from headrace_bench.runner import Progress, Runner, Stop, Variant, wrong_of
from headrace_bench.threads import buffer

Pair = tuple[str, str]

SOURCE = "IT4Innovations, Heterogeneous Memory Management on Intel Platforms, Simple Application"
#: The guide has 2^31 doubles for 96 threads, ten iterations.
_GUIDES_BYTES, _GUIDES_THREADS = 16 << 30, 96
_ITERATIONS = 10
#: The data takes free memory divided by this, in the place with less. The rest is for the system,
#: and for page cache that cannot be reclaimed.
_SHARE_OF_FREE = 4
_KINDS = ("hbm", "dram", "cxl")
#: Doubles that NumPy counts at a time: some 24 MiB of temporaries, whatever the size of the data.
_CHUNK = 1 << 19


@dataclass(frozen=True)
class Options:
    pairs: Sequence[Pair]  # placements of data and bins
    cpus: Sequence[int]
    bytes: int  # of data
    rounds: int
    iterations: int = _ITERATIONS


def chosen(
    machine: headrace.Machine, data: str | None, bins: str | None, cpus: Sequence[int]
) -> list[Pair]:
    """The requested pair; an open place takes the two fastest kinds, in all combinations."""
    kinds = fastest_kinds(machine)[:2]
    pairs = list(itertools.product([data] if data else kinds, [bins] if bins else kinds))
    for place in {place for pair in pairs for place in pair}:
        headrace.Placement.parse(machine, place, near=list(cpus))  # complains before the work
    return pairs


def fastest_kinds(machine: headrace.Machine) -> list[str]:
    """The fast kinds of memory that this machine has."""
    here = {n.kind for n in machine.nodes if n.byte_addressable and n.capacity != 0}
    return [kind for kind in _KINDS if kind in here]


def default_bytes(
    machine: headrace.Machine, pairs: Sequence[Pair], cpus: Sequence[int]
) -> int:
    """The guide's size for this number of threads, or less if that does not fit on the nodes of
    every placement."""
    free = headrace.free_memory()
    spaces = [free.cgroup] if free.cgroup is not None else []
    for place in {place for pair in pairs for place in pair}:
        wish = headrace.Placement.parse(machine, place, near=list(cpus))
        spaces.append(sum(free.nodes.get(node, 0) for node in nodes_of(machine, wish)))
    return _whole(min(_GUIDES_BYTES * len(cpus) // _GUIDES_THREADS, min(spaces) // _SHARE_OF_FREE))


def _whole(size: int) -> int:
    """A whole number of doubles, at least one."""
    return max(size // 8, 1) * 8


def run(
    machine: headrace.Machine, options: Options, stop: Stop, progress: Progress | None = None
) -> Runner:
    """Each round maps the memory of all pairs anew, so that no pair keeps lucky pages. Results are
    seconds of all iterations, and errors in the bins.
    """
    variants = [
        Variant({"data": data, "bins": bins, "threads": len(options.cpus), "bytes": options.bytes})
        for data, bins in options.pairs
    ]
    expected = _Expected()
    runner = Runner(variants, options.rounds)
    runner.run(
        lambda variant, _: _sample(machine, options, _pair(variant.parameters), expected, stop),
        stop, progress,
    )  # fmt: skip
    return runner


def _pair(parameters: Mapping[str, int | str]) -> Pair:
    return str(parameters["data"]), str(parameters["bins"])


class _Expected:
    """The naive count, made once: all pairs have the same data."""

    def __init__(self) -> None:
        self._bins: Any = None

    def of(self, data: headrace.Buffer) -> Any:
        if self._bins is None:
            count = headrace_bench.HISTOGRAM_BINS
            self._bins = numpy.zeros(count, "int64")
            numbers = data.numpy("float64")
            for at in range(0, len(numbers), _CHUNK):
                index = (numbers[at : at + _CHUNK] / (1.0 / (count + 1))).astype("int64")
                index %= count
                self._bins += numpy.bincount(index, minlength=count)
        return self._bins


def _sample(
    machine: headrace.Machine,
    options: Options,
    pair: Pair,
    expected: _Expected,
    stop: Stop,
) -> tuple[float, str] | None:
    """Seconds of all iterations, and an error in the result, if any. None: stopped."""
    cpus = list(options.cpus)
    counters = len(cpus) * headrace_bench.HISTOGRAM_BINS
    data = buffer(machine, options.bytes, pair[0], cpus)
    bins = buffer(machine, counters * 8, pair[1], cpus)
    headrace_bench.fill_random(bins, 0, cpus)  # by each thread its own, which are near it then
    headrace_bench.histogram_fill(data, cpus)
    seconds = 0.0
    for _ in range(options.iterations):
        if stop():
            return None
        seconds += headrace_bench.histogram_count(data, bins, cpus)
    found = bins.numpy("int64").reshape(len(cpus), -1).sum(axis=0)
    if int(found.sum()) != options.bytes // 8:
        return seconds, f"{found.sum()} items counted of {options.bytes // 8}"
    different = int((found != expected.of(data)).sum())
    return seconds, f"{different} bins differ from a naive count" if different else ""


def rows(runner: Runner, options: Options) -> list[headrace.Row]:
    return [_row(runner, each, options) for each in runner.variants]


def _row(runner: Runner, variant: Variant, options: Options) -> headrace.Row:
    samples = [seconds for seconds, _ in variant.results]
    wrong = [complaint for _, complaint in variant.results if complaint]
    moved = options.bytes * options.iterations
    # Rate of data: each item is read once and changes one counter.
    details = {"bytes_per_second": moved / statistics.median(samples)} if samples else {}
    return runner.row(
        "histogram", variant, "s", samples, details=details | wrong_of(len(wrong), samples),
        words={"complaint": wrong[-1]} if wrong else {},
    )  # fmt: skip


def conclusion(rows: Sequence[headrace.Row], level: str = "real hardware") -> dict[str, Any]:
    """The guide's conclusion. It is confirmed or refuted if the rounds of the two pairs do not
    overlap."""
    claim = "bins in HBM with the data in DRAM is best, and over twice as fast as all in DRAM"
    samples = {_pair(row.parameters): row.samples for row in rows if row.samples}
    best, slow, both = (samples.get(p) for p in (("dram", "hbm"), ("dram", "dram"), ("hbm", "hbm")))
    if not (best and slow and both):
        here = sorted({place for pair in samples for place in pair})
        why = f"it takes dram and hbm; measured were {', '.join(here) or 'none'}"
        return {"claim": claim, "holds": None, "why": why}
    gain, loss = (statistics.median(each) / statistics.median(best) for each in (slow, both))
    why = f"{gain:.2f} times as fast; with the data in HBM too it takes {loss:.2f} of that time"
    if level != "real hardware":
        return {"claim": claim, "holds": None, "why": f"{why}; speeds of a {level} are not real"}
    if min(slow) > 2 * max(best) and min(both) > max(best):
        return {"claim": claim, "holds": True, "why": why}
    if max(slow) < 2 * min(best) or max(both) < min(best):
        return {"claim": claim, "holds": False, "why": why}
    return {"claim": claim, "holds": None, "why": f"{why}, within what rounds differ by"}
