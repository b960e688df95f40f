# SPDX-License-Identifier: Apache-2.0
"""The experiment of um_cases.py run on a model of a GPU's driver, block by block
(docs/design/gpu/um.md).

A block of 2 MiB is in host or device memory; in host memory, the GPU may have it mapped. The
block's state decides the cost for a kernel: a near read, a read over the link, or faults. Faults
are served in batches, and map or migrate the block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import headrace
from headrace._errors import unknown
from headrace._model.um_cases import GIB, KIB, MIB, Case

BLOCK = 2 * MIB
#: Bytes that a fault requests, in a block whose pages the driver migrates as a tree.
LEAF = 64 * KIB
#: The driver migrates a whole subtree once more than this percentage of it is present or requested
#: (the driver's default).
DENSITY = 51
#: Threads of a block: in the original kernel, and in the wide kernel.
THREADS = {"reprex": 128, "wide": 256}


@dataclass(frozen=True)
class Counters:
    """Access counters: they report blocks that were read over the link, to be migrated."""

    delay: float  #: seconds from the first report until reports are served
    service: float  #: seconds that the kernel waits for each


@dataclass(frozen=True)
class Machine:
    """Costs of a GPU's driver, from machines/*.json. Rates in bytes and times in seconds."""

    name: str
    words: str
    ats: bool  #: the GPU uses the host's page tables: it reads any memory of the host
    kernel: str  #: with which its figures were published
    device_bytes: int  #: for managed memory
    multiprocessors: int
    device_latency: float  #: of one load of a kernel
    device_rate: float  #: the most of its memory
    link_in: float  #: host memory read by the GPU
    link_out: float
    host_page: int
    fault_batch: float  #: from faults of what is in flight until their threads go on
    #: Extra seconds to migrate a block if another must be evicted; None: not published.
    eviction: float | None
    counters: Counters | None
    fitted: dict[str, str]  #: which of these, and to what
    sources: dict[str, str]
    #: Without ATS, the GPU reads any host memory by faults of its own. The speed is not published.
    hmm: bool = False

    def in_flight(self, kernel: str) -> int:
        """Bytes that all threads of a reading kernel have in flight."""
        return self.blocks(kernel) * THREADS[kernel] * (64 if kernel == "wide" else 4)

    def blocks(self, kernel: str) -> int:
        """Blocks that run at once: a thread that reads has 58 to 63 registers (ptxas 12.9, sm_70 to
        sm_100), so 4 blocks of the wide kernel fit into a multiprocessor's 65536."""
        return self.multiprocessors * (4 if kernel == "wide" else 2)


#: Presets with costs of their driver.
NAMES = ("ac922", "x86-pcie3", "gh200")


def machine_of(document: Mapping[str, Any]) -> Machine | None:
    """The costs in a machine's model, "unified_memory"; None: the model has none. InvalidError:
    some are missing.
    """
    model = document.get("model") or {}
    found = dict(model.get("unified_memory") or {})
    if not found:
        return None
    try:
        counters = found.pop("counters")
        return Machine(
            name=str(document["source"]).removeprefix("preset "),
            counters=None if counters is None else Counters(**counters), **found,
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise headrace.InvalidError(
            f"{document['name']}: model.unified_memory has not all costs, or unknown ones: {error}"
        ) from None


@cache
def machine_named(name: str) -> Machine:
    """The costs of a preset. InvalidError: no costs are known for this machine."""
    if name not in NAMES:
        raise unknown("model of", name, NAMES)
    found = machine_of(headrace.Machine.load(name).asdict())
    assert found is not None
    return found


@cache
def fault_batches(window: int) -> tuple[int, ...]:
    """Fault batches per block that a kernel with `window` bytes in flight reads in order.

    The numbers differ by block, since windows and blocks rarely begin together; the last is
    followed by the first. Threads advance together: a window is requested when the whole previous
    window is there.
    """
    leaves, blocks = BLOCK // LEAF, 8
    there = [[False] * leaves for _ in range(blocks)]
    batches = [0] * blocks
    for start in range(0, blocks * BLOCK, window):
        end = min(start + window, blocks * BLOCK)
        asked = range(start // LEAF, (end - 1) // LEAF + 1)
        faults = [divmod(leaf, leaves) for leaf in asked]
        faults = [(block, leaf) for block, leaf in faults if not there[block][leaf]]
        for block in {block for block, _ in faults}:
            batches[block] += 1
        for block, leaf in faults:
            there[block][leaf] = True
        for block, leaf in faults:
            _bring_dense(there[block], leaf)
    return tuple(batches)


def _bring_dense(there: list[bool], leaf: int) -> None:
    """The largest subtree about a leaf that is dense enough."""
    size, dense = 2, 1
    while size <= len(there):
        first = leaf // size * size
        if sum(there[first : first + size]) * 100 > DENSITY * size:
            dense = size
        size *= 2
    first = leaf // dense * dense
    there[first : first + dense] = [True] * dense


class Array:
    """The array of a case on a machine, and the time of runs.

    UnsupportedError: the GPU cannot read such memory, or its behaviour is not published.
    """

    def __init__(self, machine: Machine, case: Case) -> None:
        if not case.managed and machine.hmm:
            raise headrace.UnsupportedError(
                f"{machine.name}: the GPU reads {case.memory} memory by faults (HMM), and nobody "
                "told how fast"
            )
        if not case.managed and not machine.ats:
            raise headrace.UnsupportedError(
                f"{machine.name}: the GPU cannot read {case.memory} memory that is not registered; "
                "take --memory managed"
            )
        if case.memory not in ("managed", "system", "node:0"):
            raise headrace.UnsupportedError(
                f"{machine.name}: nobody told how fast {case.memory} is; take node:0"
            )
        self.machine, self.case = machine, case
        self.blocks = -(-case.size // BLOCK)
        self.near = bytearray(self.blocks)
        #: Blocks in host memory that the GPU has mapped.
        self.mapped = bytearray(self.blocks)
        #: Blocks that access counters reported before this run, to be migrated.
        self.due = bytearray(self.blocks)
        self.oldest: deque[int] = deque()  #: those in device memory by when they came
        self.room = machine.device_bytes // BLOCK
        self.evicted = 0  #: blocks, in all runs
        self.batches = 0.0  #: of faults, in all runs
        self.copying = BLOCK / machine.link_in
        self.replacing: float | None = None
        if machine.eviction is not None:
            # A read-mostly block still has its copy in host memory.
            out = 0.0 if case.read_mostly else BLOCK / machine.link_out
            self.replacing = max(self.copying, out) + machine.eviction
        if case.managed and case.accessed_by:
            self._map_all()

    def run(self) -> float:
        """Seconds of one run."""
        return self._prefetched() if self.case.prefetch_block else self._kernel()

    def touch_on_host(self) -> None:
        """The host writes the whole array. Blocks in device memory come back; reported blocks stay
        reported."""
        for block in self.oldest:
            self.near[block] = 0
            self.mapped[block] = self.case.accessed_by
        self.oldest.clear()

    def state(self) -> tuple[object, ...]:
        """The whole state on which the next run depends."""
        return bytes(self.near), bytes(self.mapped), bytes(self.due), tuple(self.oldest)

    @property
    def stays(self) -> bool:
        """Whether the array stays in host memory, whoever reads it."""
        return not self.case.managed or self.case.preferred_location_cpu

    def _map_all(self) -> None:
        self.mapped[:] = b"\1" * self.blocks

    def _near_seconds(self) -> float:
        m = self.machine
        return BLOCK / min(m.device_rate, m.in_flight(self.case.kernel) / m.device_latency)

    def _far_seconds(self) -> float:
        """A load over the link takes no less time than one of device memory."""
        m = self.machine
        link = m.link_in if self.case.op == "read" else m.link_out
        return max(BLOCK / link, self._near_seconds())

    def _kernel(self) -> float:
        m, window = self.machine, self.machine.in_flight(self.case.kernel)
        near, far = self._near_seconds(), self._far_seconds()
        batches = fault_batches(min(window, BLOCK))
        mapping = 0.0
        if self.case.managed:  # the GPU walks the host's page tables for all other memory
            mapping = max(1.0, BLOCK / max(window, m.host_page))
        reports = _Reports(m.counters if self.case.managed and not self.stays else None)
        seconds = 0.0
        for block in range(self.blocks):
            if self.near[block]:
                seconds += near
            elif self.due[block]:
                self.batches += 1
                seconds += m.fault_batch + self._bring(block) + near
            elif self.mapped[block]:
                seconds += far
                seconds += reports.add(block, seconds, self.mapped)
            elif self.stays:
                self.batches += mapping
                seconds += mapping * m.fault_batch + far
                self.mapped[block] = 1
            else:
                count = batches[block % len(batches)]
                self.batches += count
                seconds += count * m.fault_batch + self._bring(block) + near
        for block in reports.waiting:
            self.due[block] = 1
        return seconds

    def _bring(self, block: int) -> float:
        """Seconds to migrate a block to device memory, with the eviction of another if needed."""
        seconds = self.copying
        if len(self.oldest) >= self.room:
            if self.replacing is None:
                raise headrace.UnsupportedError(
                    f"{self.machine.name}: nobody told what managed memory beyond the card's costs "
                    "there"
                )
            seconds = self.replacing
            self.near[self.oldest.popleft()] = 0
            self.evicted += 1
        self.near[block], self.mapped[block], self.due[block] = 1, 0, 0
        self.oldest.append(block)
        return seconds

    def _prefetched(self) -> float:
        """One stream migrates blocks while the other stream's kernel reads earlier ones."""
        assert self.case.prefetch_block is not None
        step = max(1, self.case.prefetch_block // BLOCK)
        near, seconds, reading = self._near_seconds(), 0.0, 0.0
        for first in range(0, self.blocks, step):
            blocks = range(first, min(first + step, self.blocks))
            moving = sum(self._bring(block) for block in blocks if not self.near[block])
            alone = self.case.streams == 1
            seconds += moving + reading if alone else max(moving, reading)
            reading = near * len(blocks)
        return seconds + reading


class _Reports:
    """Reports of access counters in one run: the first are served, others wait for the next run."""

    def __init__(self, counters: Counters | None) -> None:
        self.counters = counters
        self.waiting: deque[int] = deque()
        self.began: float | None = None

    def add(self, block: int, now: float, mapped: bytearray) -> float:
        """Adds a report. Returns the seconds that the kernel waits while the oldest is served and
        unmapped."""
        if self.counters is None:
            return 0.0
        self.began = now if self.began is None else self.began
        self.waiting.append(block)
        if now - self.began < self.counters.delay:
            return 0.0
        mapped[self.waiting.popleft()] = 0
        return self.counters.service


@dataclass(frozen=True)
class Outcome:
    """The time of one run, and its effect on the array."""

    seconds: float
    batches: float  #: of faults
    evicted: int  #: blocks
    near: int  #: blocks in device memory when it began


def runs(machine: Machine, case: Case) -> list[Outcome]:
    """All runs of a case. UnsupportedError: with the reason."""
    array = Array(machine, case)
    found: list[Outcome] = []
    before: tuple[object, ...] | None = None
    for number in range(case.runs):
        if case.touch_on_host and number:
            array.touch_on_host()
        state = array.state()
        # A run that begins in the same state as the last one ends in the same way.
        if state == before:
            found.append(found[-1])
            continue
        before = state
        near, batches, evicted = len(array.oldest), array.batches, array.evicted
        seconds = array.run()
        found.append(Outcome(seconds, array.batches - batches, array.evicted - evicted, near))
    return found


def rates(machine: Machine, case: Case) -> tuple[float, ...]:
    """GiB/s by run. UnsupportedError: with the reason."""
    return tuple(case.size / GIB / each.seconds for each in runs(machine, case))
