# SPDX-License-Identifier: Apache-2.0
"""Steps with one key-value server: place its memory, run a workload, count what grew."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace
from headrace import _programs as programs
from headrace_bench import kv_pages, kv_promote
from headrace_bench.kv_place import SSD, Options
from headrace_bench.kv_servers import PROGRAM, Running
from headrace_bench.two_memories import Memories, bytes_by_node, kilobytes, slow_share

Row = dict[str, Any]

_STEP_SECONDS = 600.0


@dataclass
class Steps:
    """Measured windows on one server."""

    running: Running
    here: Memories
    nodes: int
    options: Options
    stop: Callable[[], bool]
    keeper: kv_promote.Keeper | None = None
    driven: dict[str, float] = field(default_factory=dict)  #: seconds, by config and workload
    settled: dict[str, list[Row]] = field(default_factory=dict)  #: pages of the discarded round

    def load(self) -> None:
        rate = self.running.load_rate(self.options.records)
        self._asked("load", *([] if rate is None else ["--rate", str(rate)]))
        self.running.written()

    @contextmanager
    def moved(self) -> Iterator[None]:
        """Half of the pages are moved away: to the slow node, or at random to swap. A tier brings
        hot pages back in exchange for cold ones.
        """
        fast, slow = self.here.fast, self.here.slow
        nodes = None if fast is None or slow is None else (fast, slow)
        placed = self._place(0.0 if nodes else 0.5, self.options.seed)
        data, out = placed["data_bytes"], placed["out_bytes"]
        budget = data // 2 if nodes else data - out
        with kv_promote.keeping(self.running.process, budget, nodes) as self.keeper:
            yield

    def measure(self, config: str, workload: str, number: int) -> tuple[Row, list[Row]]:
        """Measures one window, and the places of memory in it. With pages in swap, every window
        begins with the same number of them. Pages settle during the discarded round.
        """
        seed = self.options.seed + (number if number >= 0 else self.options.rounds)
        placed: Row = {"data_bytes": 0, "out_bytes": 0}
        settles = self.keeper is not None or self.running.file is not None
        if settles and number < 0:
            row, pages = self._drive(config, workload, None, self.options.settle, seed)
            self.settled[f"{config} {workload}"] = pages
            return row, pages
        pages = self.settled.pop(f"{config} {workload}", [])
        if not settles and (SSD.get(config) or self._swapped()):
            placed = self._place(SSD.get(config, 0.0), seed)
        before = self._counted()
        row, more = self._drive(config, workload, number, self.options.seconds, seed)
        after = self._counted()
        row |= placed | _between(before, after, max(1, row["operations"]), self.options.value)
        if settles and "slow_gets" not in before:
            row["out_bytes"] = kilobytes(f"/proc/{self.running.process}/status", "VmSwap")
        faults = float(row["major_faults_per_op"] or 0)
        elsewhere = slow_share(bytes_by_node(self.running.process), self.here.fast)
        return row | {"slow_share": faults + elsewhere + row.get("slow_gets", 0.0)}, pages + more

    def _counted(self) -> Row:
        """Counters, which only grow."""
        counts: Row = {"read": _read_bytes(self.running.process)}
        if self.keeper is not None:
            totals = self.keeper.totals()
            counts["cpu"] = totals.tracker_cpu + totals.mover_cpu
            counts["promoted"] = totals.came_in + totals.major_faults * mmap.PAGESIZE
        if self.running.file is not None:
            counts["slow_gets"] = self.running.slow_gets()
            counts["came_in"] = self.running.came_in()
        return counts

    def _drive(
        self, config: str, workload: str, number: int | None, seconds: float, seed: int
    ) -> tuple[Row, list[Row]]:
        """The client's answer, and samples of the places of memory. Their seconds continue from
        window to window.
        """
        options, key = self.options, f"{config} {workload}"
        rate = [] if options.rate is None else ["--rate", repr(options.rate)]
        begun = time.monotonic()
        with kv_pages.sampled(self._look) as samples:
            row = self._asked(
                "drive", "--workload", workload, "--clients", str(options.clients),
                "--seconds", repr(seconds), "--seed", str(seed), *rate,
            )  # fmt: skip
        dropped = self.running.dropped()
        if 0 < row["wrong"] <= dropped:
            raise headrace.ExhaustedError(
                f"it has dropped records, and was asked for them {dropped} times: it "
                "was filled faster than it makes room; try an idle machine"
            )  # fmt: skip
        since = self.driven.get(key, 0.0)
        self.driven[key] = since + time.monotonic() - begun
        return row, [
            {"round": number} | each | {"seconds": round(since + each["seconds"], 3)}
            for each in samples
        ]

    def _look(self) -> Row:
        running = self.running
        if running.server.protocol == "memcached":  # which reads through the page cache
            running.forget_file()
        return kv_pages.look(running.process, self.here.fast or 0, self.nodes, running.file)

    def _place(self, share: float, seed: int) -> Row:
        placed = self._asked("place", "--share", repr(share), "--seed", str(seed))
        if share and placed["out_bytes"] < share * placed["data_bytes"] / 2:
            raise headrace.UnsupportedError("the kernel did not page out the pages asked for")
        return placed

    def _asked(self, task: str, *arguments: str) -> Row:
        options, running = self.options, self.running
        command = [
            programs.find(PROGRAM), "--task", task, "--protocol", running.server.protocol,
            "--socket", running.path, "--server", str(running.process),
            "--records", str(options.records), "--value", str(options.value), *arguments,
        ]  # fmt: skip
        seconds = options.seconds + options.settle + _STEP_SECONDS
        return programs.answer(command, seconds, self.stop)

    def _swapped(self) -> bool:
        try:
            return bool(kilobytes(f"/proc/{self.running.process}/status", "VmSwap"))
        except OSError:
            return False


def _between(before: Row, after: Row, operations: int, value: int) -> Row:
    """Growth of the counters in one window, of those that are known."""
    grown = {
        name: after[name] - was
        for name, was in before.items()
        if was is not None and after[name] is not None
    }
    told: Row = {}
    if "read" in grown:
        told["ssd_bytes_per_op"] = grown["read"] / operations
    if "cpu" in grown:
        told["tier_cpu_us_per_op"] = 1e6 * grown["cpu"] / operations
    if "promoted" in grown:
        told["promoted_bytes"] = grown["promoted"]
    if "slow_gets" in grown:
        told["slow_gets"] = grown["slow_gets"] / operations
    if "came_in" in grown:
        told["promoted_bytes"] = value * grown["came_in"]
    return told


def _read_bytes(process: int) -> int | None:
    """Bytes read from storage for the process, swap included; None if the kernel does not say."""
    try:
        lines = Path(f"/proc/{process}/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(each.split()[1]) for each in lines if each.startswith("read_bytes:")), None)
