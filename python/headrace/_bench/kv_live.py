"""A real redis-server in the configurations of a talk (P. Zhou, MemCon 2024), asked by
headrace-bench-kv.

The server has a temporary directory and a socket in it, and ends with us, however we end: with the
block it was started in, and by the kernel if nobody is left to end that.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace
from headrace._bench import kv_promote, programs
from headrace._bench.kv import PROGRAM
from headrace._bench.two_memories import (
    INTERLEAVES, bytes_by_node, free_bytes, kilobytes, memories_here, no_interleave, placed,
    slow_share,
)  # fmt: skip
from headrace._errors import WrongAnswer, error_of, kind_of

Row = dict[str, Any]
Progress = Callable[[int, int, str], object]

SERVER = "redis-server"
#: Share of pages in swap, by configuration; the others have all in memory.
SSD = {"MMEM-SSD-0.2": 0.2, "MMEM-SSD-0.4": 0.4}
#: A half of the pages in swap, and a tier that keeps as much there, the hot half in memory.
PROMOTED = "Hot-Promote"
CONFIGS = ("MMEM", *SSD, *INTERLEAVES, PROMOTED)
#: What a record takes besides its value: its name, its entry, what the allocator rounds up.
_OVERHEAD_BYTES = 400
_START_SECONDS = 20.0
_STEP_SECONDS = 600.0


@dataclass(frozen=True)
class Options:
    workloads: list[str]
    configs: list[str]
    records: int
    value: int
    clients: int
    seconds: float
    rounds: int
    rate: float | None
    settle: float  #: seconds between the begin of promotion and its first measurement
    seed: int


@dataclass
class Point:
    """A workload in a configuration, and what its rounds found."""

    config: str
    workload: str
    found: list[Row] = field(default_factory=list)
    code: str = ""
    reason: str = ""


def points(options: Options) -> list[Point]:
    return [Point(config, w) for w in options.workloads for config in options.configs]


def run(
    points: list[Point], machine: headrace.Machine, options: Options, stop: Callable[[], bool],
    progress: Progress,
) -> str:  # fmt: skip
    """Fills the points; the server's version. AbsentError, ExhaustedError: nothing can be run."""
    version = server_version()
    _check_memory(options)
    _leave_out(points, machine, options)
    done, total = 0, options.rounds * sum(not point.reason for point in points)
    for weights, promoted, group in _by_placement(points):
        try:
            with server(placed(machine, weights)) as (process, path):
                step = _Steps(process, path, memories_here(machine).fast, options, stop)
                step.load()
                with step.promotion() if promoted else nullcontext():
                    for number in range(options.rounds):
                        for point in group:
                            progress(done, total, f"{point.config} {point.workload}")
                            point.found.append(step.measure(point, number))
                            done += 1
        except programs.Stopped:
            break
        except programs.Failed as failed:
            for point in group:
                point.code, point.reason = failed.code, failed.reason
        except headrace.Error as error:  # of the tier
            for point in group:
                point.code, point.reason = error.code, str(error)
    return version


def server_version() -> str:
    if shutil.which(SERVER) is None:
        raise headrace.AbsentError(f"no {SERVER}; install it: sudo apt install {SERVER}")
    told = subprocess.run([SERVER, "--version"], capture_output=True, text=True, timeout=60)
    found = re.search(r"v=(\S+)", told.stdout)
    return f"{SERVER} {found[1] if found else 'of unknown version'}"


def _check_memory(options: Options) -> None:
    needed = options.records * (options.value + _OVERHEAD_BYTES)
    free = free_bytes()
    if free is not None and needed > 0.8 * free:
        raise headrace.ExhaustedError(
            f"{options.records} records take some {headrace.format_bytes(needed)} and "
            f"{headrace.format_bytes(free)} are free; give fewer --records"
        )


def _leave_out(points: list[Point], machine: headrace.Machine, options: Options) -> None:
    swap = kilobytes("/proc/meminfo", "SwapFree") or 0
    for point in points:
        share = 0.5 if point.config == PROMOTED else SSD.get(point.config, 0.0)
        needed = int(share * options.records * (options.value + 100))
        if point.config in INTERLEAVES:
            point.code, point.reason = no_interleave(machine, INTERLEAVES[point.config])
        elif needed > swap:
            has = f"{headrace.format_bytes(swap)} are free" if swap else "there is none"
            point.code = "absent"
            point.reason = f"{headrace.format_bytes(needed)} of swap needed, {has}: see swapon(8)"


def _by_placement(points: list[Point]) -> list[tuple[tuple[int, int] | None, bool, list[Point]]]:
    """One server for all points whose memory is placed alike: pages, fast and slow, in turn; and
    whether hot ones are promoted.
    """
    groups: dict[tuple[tuple[int, int] | None, bool], list[Point]] = {}
    for point in points:
        if not point.reason:
            place = (INTERLEAVES.get(point.config), point.config == PROMOTED)
            groups.setdefault(place, []).append(point)
    return [(*place, group) for place, group in groups.items()]


@contextmanager
def server(launch: list[str]) -> Iterator[tuple[int, str]]:
    """A server with nothing stored: its process and its socket. Failed: it does not start."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="headrace-kv-")
    except OSError as error:
        raise error_of(error, "cannot make a directory for the server") from None
    with directory as name:
        path = str(Path(name) / "socket")
        command = [
            programs.find(PROGRAM), "--task", "serve", "--server", str(os.getpid()), "--", *launch,
            SERVER, "--port", "0", "--unixsocket", path, "--dir", name, "--save", "",
            "--appendonly", "no", "--daemonize", "no",
        ]  # fmt: skip
        log = Path(name) / "log"
        with log.open("wb") as output:
            # In a group of its own, so that Ctrl-C on a terminal reaches us alone.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                process_group=0, cwd=name,
            )  # fmt: skip
        try:
            _await(process, path, log)
            yield process.pid, path
        finally:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], path: str, log: Path) -> None:
    for _ in range(round(_START_SECONDS / 0.05)):
        with socket.socket(socket.AF_UNIX) as trial:
            try:
                trial.connect(path)
                return
            except OSError:
                pass
        if process.poll() is not None:
            told = programs.last_line(log.read_text(errors="replace"))
            raise programs.Failed("io", f"{SERVER} did not start: {told}")
        time.sleep(0.05)
    raise programs.Failed("timed_out", f"{SERVER} did not answer within {_START_SECONDS:g} s")


@dataclass
class _Steps:
    """What is done with one server."""

    server: int
    path: str
    fast: int | None  #: the node that its memory should be on
    options: Options
    stop: Callable[[], bool]
    keeper: kv_promote.Keeper | None = None

    def load(self) -> None:
        self._asked("load", "--clients", "1")

    @contextmanager
    def promotion(self) -> Iterator[None]:
        """Puts a half of the pages into swap, drawn at random; then the hot ones come in for cold
        ones, whose number stays.
        """
        placed = self._place(0.5, self.options.seed)
        budget = placed["data_bytes"] - placed["out_bytes"]
        with kv_promote.keeping(self.server, budget) as self.keeper:
            yield

    def measure(self, point: Point, number: int) -> Row:
        """One window. Of those with pages in swap as many are out at its beginning."""
        seed = self.options.seed + number
        if self.keeper is not None:
            return self._promoted(point, number, seed)
        share = SSD.get(point.config, 0.0)
        placed = {"data_bytes": 0, "out_bytes": 0}
        if share or self._swapped():
            placed = self._place(share, seed)
        row = self._drive(point, self.options.seconds, seed)
        return row | {"slow_share": self._slow_share(row), **placed}

    def _promoted(self, point: Point, number: int, seed: int) -> Row:
        """A window while the tier goes on; the first of a workload when it has settled."""
        assert self.keeper is not None
        if number == 0:
            self._drive(point, self.options.settle, self.options.seed + self.options.rounds)
        before = self.keeper.totals()
        row = self._drive(point, self.options.seconds, seed)
        after = self.keeper.totals()
        spent = after.tracker_cpu + after.mover_cpu - before.tracker_cpu - before.mover_cpu
        faults = after.major_faults - before.major_faults
        return row | {
            "slow_share": self._slow_share(row),
            "data_bytes": 0,
            "out_bytes": kilobytes(f"/proc/{self.server}/status", "VmSwap"),
            "promoted_bytes": after.came_in - before.came_in + faults * mmap.PAGESIZE,
            "tier_cpu_us_per_op": 1e6 * spent / max(1, row["operations"]),
        }

    def _place(self, share: float, seed: int) -> Row:
        placed = self._asked("place", "--share", repr(share), "--seed", str(seed))
        if share and placed["out_bytes"] < share * placed["data_bytes"] / 2:
            raise programs.Failed("unsupported", "the kernel did not page out what it was told to")
        return placed

    def _drive(self, point: Point, seconds: float, seed: int) -> Row:
        options = self.options
        rate = [] if options.rate is None else ["--rate", repr(options.rate)]
        return self._asked(
            "drive", "--workload", point.workload, "--clients", str(options.clients),
            "--seconds", repr(seconds), "--seed", str(seed), *rate,
        )  # fmt: skip

    def _asked(self, task: str, *arguments: str) -> Row:
        options = self.options
        command = [
            programs.find(PROGRAM), "--task", task, "--socket", self.path,
            "--server", str(self.server), "--records", str(options.records),
            "--value", str(options.value), *arguments,
        ]  # fmt: skip
        seconds = options.seconds + options.settle + _STEP_SECONDS
        return programs.answer(command, seconds, self.stop)

    def _swapped(self) -> bool:
        try:
            return bool(kilobytes(f"/proc/{self.server}/status", "VmSwap"))
        except OSError:
            return False

    def _slow_share(self, row: Row) -> float:
        """Accesses that are slow: those that fault, or by the pages that lie on other nodes."""
        faults = float(row["major_faults_per_op"] or 0)
        return faults + slow_share(bytes_by_node(self.server), self.fast)


def rows(points: list[Point]) -> list[Row]:
    return [_row(point) for point in points]


def _row(point: Point) -> Row:
    found = point.found
    speeds = [each["operations"] / each["seconds"] for each in found]
    middle = headrace.summarize(speeds)
    return {
        "config": point.config,
        "workload": point.workload,
        "ops_per_second": middle.median if middle else None,
        "ops_per_second_mad": middle.mad if middle else None,
        "samples": speeds,
        "p50_us": _median(found, "p50_us"),
        "p99_us": _median(found, "p99_us"),
        "p999_us": _median(found, "p999_us"),
        "slow_share": _median(found, "slow_share"),
        "promoted_bytes": _median(found, "promoted_bytes", 0),
        "major_faults_per_op": _median(found, "major_faults_per_op"),
        "server_cpu_us_per_op": _median(found, "server_cpu_us_per_op"),
        "tier_cpu_us_per_op": _median(found, "tier_cpu_us_per_op", 0.0),
        "out_bytes": _median(found, "out_bytes"),
        "verified": all(each["wrong"] == 0 for each in found) if found else None,
        "basis": "hardware",
        "code": point.code,
        "reason": point.reason or ("" if found else "interrupted"),
    }


def _median(found: list[Row], name: str, default: float | None = None) -> float | None:
    """`default` is for rounds that say nothing of it."""
    values = [value for each in found if (value := each.get(name, default)) is not None]
    return statistics.median(values) if values else None


def check(document: Row) -> None:
    """Raises, when all is written, if an answer was wrong or nothing was measured at all."""
    rows = document["rows"]
    for row in rows:
        if row["verified"] is False:
            where = f"{row['config']}, workload {row['workload']}"
            raise WrongAnswer(f"{where}: the server gave wrong values; trust no number of this run")
    if not document["interrupted"] and all(row["ops_per_second"] is None for row in rows):
        raise kind_of(rows[0]["code"])(rows[0]["reason"])
