# SPDX-License-Identifier: Apache-2.0
"""vLLM's own file tier (O_DIRECT) and headrace.vllm through vLLM's interface of secondary tiers:
stores, cold loads, loads beside stores, and the time that the scheduler's thread spends.

    tools/engines.sh  # once: vLLM's modules from its wheel, 3 MB
    .venv/bin/python benchmarks/peers/vllm_tiers.py --data DIRECTORY_ON_THE_DISK [--rounds 7]

Both have the same rows in the same memory, in jobs of the same size; the order is drawn in each
round, and the first is not counted. Bytes are compared in each round. Neither needs a GPU.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "python" / "llm"))
import real_vllm

real_vllm.install()

from vllm.v1.kv_offload.base import (  # noqa: E402
    LookupResult,
    ReqContext,
    make_offload_key,
)
from vllm.v1.kv_offload.tiering.base import TransferJob  # noqa: E402
from vllm.v1.kv_offload.tiering.factory import (  # noqa: E402
    SecondaryTierFactory,
)

#: A row's bytes, rows of a job, jobs that are stored: two sizes of chunks.
CASES = {"2 MiB": (2 << 20, 64, 8), "16 KiB": (16 << 10, 1024, 8)}
#: Rows of a load beside stores, and how many such loads a round has.
_SMALL_BYTES, _SMALL_LOADS = 16 << 20, 24
_GIB = float(1 << 30)

REQUEST = ReqContext(req_id="r")
Figures = dict[str, list[float]]


class Side:
    """A tier over its own memory of `rows` rows, twice: for loads, and for stores beside them."""

    def __init__(
        self, name: str, row: int, rows: int, jobs: int, rounds: int, folder: Path
    ) -> None:
        self.name, self.rows, self.jobs = name, rows, jobs
        self.memory = mmap.mmap(-1, 2 * rows * row)
        self.array = numpy.frombuffer(self.memory, numpy.int8).reshape(2 * rows, row)
        self.array[:] = 1
        self.figures: Figures = {}
        self._job = 0
        config: dict[str, Any] = {"type": "fs", "root_dir": str(folder)}
        if name != "fs":
            config = {
                "type": "HeadraceTier", "module_path": "headrace.vllm", "folder": str(folder),
                "budget": (jobs + 3 * rounds + 6) * rows * row,
                "verify": name.partition(" ")[2] or "all",
            }  # fmt: skip
        view = memoryview(self.array)  # type: ignore[arg-type]
        self.tier = SecondaryTierFactory.create_secondary_tier(config, view, real_vllm.spec())

    def submit(self, keys: list[bytes], first: int, loads: bool) -> int:
        self._job += 1
        at = numpy.arange(first, first + len(keys))
        job = TransferJob(self._job, keys, at, loads, REQUEST)
        cpu, begun = time.thread_time(), time.perf_counter()
        (self.tier.submit_load if loads else self.tier.submit_store)(job)
        seconds = time.perf_counter() - begun, time.thread_time() - cpu
        job_kind = f"{'load' if loads else 'store'} of {len(keys)} rows"
        for name, each in zip(("us", "CPU us"), seconds, strict=True):
            self.keep(f"submit a {job_kind}, {name}", each * 1e6)
        return self._job

    def run(self, keys: list[bytes], first: int, loads: bool) -> float:
        """Seconds of one job."""
        begun = time.perf_counter()
        job = self.submit(keys, first, loads)
        self.wait({job})
        return time.perf_counter() - begun

    def wait(self, jobs: set[int]) -> None:
        while jobs:
            for result in self.tier.get_finished_jobs():
                assert result.success, (self.name, result)
                jobs.discard(result.job_id)
            time.sleep(0.0002)

    def keep(self, figure: str, value: float) -> None:
        self.figures.setdefault(figure, []).append(value)


def keys_of(job: int, rows: int, kind: int = 0) -> list[bytes]:
    return [make_offload_key((kind << 40 | job * rows + i).to_bytes(32, "little"), 0)
            for i in range(rows)]  # fmt: skip


def content(side: Side, job: int) -> Any:
    row = side.array.shape[1]
    return numpy.random.default_rng(job).integers(-128, 128, (side.rows, row), numpy.int8)


def timed(side: Side, name: str, gib: float, run: Callable[[], float]) -> None:
    """Rates of wall and CPU time."""
    cpu = time.process_time()
    seconds = run()
    side.keep(f"{name} GiB/s", gib / seconds)
    side.keep(f"{name} CPU ms/GiB", (time.process_time() - cpu) * 1e3 / gib)


def beside(side: Side, number: int) -> None:
    """Loads of 16 MiB one after another, while stores of whole jobs go on."""
    few = max(1, _SMALL_BYTES // side.array.shape[1])
    stores: set[int] = set()
    for i in range(_SMALL_LOADS):
        if i % 8 == 0:
            kept = keys_of(i, side.rows, kind=1 + number)
            stores.add(side.submit(kept, side.rows, False))
        keys = keys_of(i % side.jobs, side.rows)[:few]
        begun = time.perf_counter()
        load = side.submit(keys, 0, True)
        waits = True
        while waits:
            for result in side.tier.get_finished_jobs():
                assert result.success, (side.name, result)
                waits = waits and result.job_id != load
                stores.discard(result.job_id)
            time.sleep(0.0002)
        side.keep("load beside stores ms", (time.perf_counter() - begun) * 1e3)
    side.wait(stores)


def lookups(side: Side) -> None:
    keys = keys_of(0, side.rows)[:500] + keys_of(10**6, 500)
    begun = time.perf_counter()
    for key in keys:
        side.tier.lookup(key, REQUEST)
    seconds = (time.perf_counter() - begun) / len(keys) * 1000
    side.keep("1000 lookups ms", seconds * 1e3)
    until = time.monotonic() + 10
    side.tier.on_schedule_end(None)
    while time.monotonic() < until:  # answers that come later
        if LookupResult.RETRY not in {side.tier.lookup(key, REQUEST) for key in keys[:1]}:
            break
        time.sleep(0.001)
    side.tier.on_request_finished(REQUEST)


def case(name: str, directory: Path, rounds: int, names: list[str]) -> list[Side]:
    row, rows, jobs = CASES[name]
    gib = row * rows / _GIB
    sides = [
        Side(each, row, rows, jobs, rounds, directory / each.replace(" ", "-")) for each in names
    ]
    order = random.Random(1)
    for job in range(jobs):
        for side in order.sample(sides, len(sides)):
            side.array[:rows] = content(side, job)
            timed(side, "store", gib, partial(side.run, keys_of(job, rows), 0, False))
    for number in range(rounds + 1):
        for side in order.sample(sides, len(sides)):
            job = number % jobs
            side.array[:rows] = 0
            timed(side, "load", gib, partial(side.run, keys_of(job, rows), 0, True))
            assert (side.array[:rows] == content(side, job)).all(), (side.name, job)
        for side in order.sample(sides, len(sides)):
            beside(side, number)
            lookups(side)
        if number == 0:
            for side in sides:  # not counted, except the stores, which happen once
                once = ("store ", "submit a store")
                side.figures = {k: v for k, v in side.figures.items() if k.startswith(once)}
    return sides


def show(name: str, sides: list[Side]) -> None:
    print(f"rows of {name}; median [least .. most]")
    for figure in sides[0].figures:
        cells = []
        for side in sides:
            found = sorted(side.figures[figure])
            at = statistics.median(found)
            cells.append(f"{side.name} {at:.4g} [{found[0]:.4g} .. {found[-1]:.4g}]")
            if figure.startswith("load beside"):
                cells[-1] += f" p99 {found[int(len(found) * 0.99)]:.4g}"
        print(f"  {figure}: " + ", ".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--tiers", default="fs,headrace,headrace found")
    given = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    for name in given.cases.split(","):
        with tempfile.TemporaryDirectory(dir=given.data) as directory:
            sides = case(name, Path(directory), given.rounds, given.tiers.split(","))
            show(name, sides)
            for side in sides:
                side.tier.shutdown()


if __name__ == "__main__":
    main()
