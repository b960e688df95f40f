#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of `headrace tier attach` for a program whose budget is too small.

    sudo .venv/bin/python benchmarks/studies/guard_tier.py --pairs 10 --seconds 25
        # takes swap and root

The program reads pages at random in a part of its memory that is larger than its budget, and moves
on. It runs with tiering and without, in turn, which comes first by chance. Each pair of runs gives
the ratios of CPU time per operation (user and system) and of time per operation; at the end come
their medians, with the interval in which 95 % of bootstrap samples of the pairs have theirs. A
median, since a machine that is shared has pairs that were disturbed. The exit code is 1 where the
interval of CPU time per operation does not lie below --worse, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from statistics import median

MIB, PAGE = 1 << 20, 4096
BATCH = 256
SAMPLES = 10_000


def program(size: int, part: int, every: float, seconds: float) -> None:
    """Reads pages; says how many, and the time and CPU time that it took."""
    filled = os.urandom(PAGE // 2) + bytes(PAGE // 2)  # half of it compresses
    memory = memoryview(bytearray(filled) * (size // PAGE))
    for page in range(size // PAGE):  # no two are alike
        memory[page * PAGE : page * PAGE + 8] = page.to_bytes(8, "little")
    # The kernel gives hint faults to programs of several threads.
    threading.Thread(target=time.sleep, args=(seconds + 60,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    draw, operations = random.Random(1), 0
    begin, cpu = time.monotonic(), _cpu()
    while (now := time.monotonic() - begin) < seconds:
        first = int(now / every) * (size // 4) // PAGE
        for _ in range(BATCH):
            at = (first + draw.randrange(part // PAGE)) * PAGE % size
            zlib.crc32(memory[at : at + PAGE])
        operations += BATCH
    done = {"operations": operations, "cpu": _cpu() - cpu, "seconds": time.monotonic() - begin}
    print(json.dumps(done), flush=True)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(options: argparse.Namespace, tiered: bool) -> dict[str, float]:
    size = options.size * MIB
    worker = subprocess.Popen(
        [sys.executable, __file__, "--program", str(size), str(size * 3 // 4), "3",
         str(options.seconds)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdin is not None and worker.stdout is not None
    with worker, tempfile.TemporaryFile("w+") as out:
        try:
            worker.stdout.readline()
            tier = None
            if tiered:
                tier = subprocess.Popen(
                    [options.headrace, "tier", "attach", str(worker.pid), "--source", "hint-faults",
                     "--budget", str(size // 2), "--guard", options.guard, "--json"],
                    stdout=out, stderr=subprocess.PIPE, text=True,
                )  # fmt: skip
                assert tier.stderr is not None
                if "keeps process" not in (line := tier.stderr.readline()):
                    raise SystemExit(line.strip())
            worker.stdin.write("go\n")
            worker.stdin.flush()
            done: dict[str, float] = json.loads(worker.stdout.readline())
        finally:
            worker.kill()
        if tier is not None:
            _, errors = tier.communicate(timeout=60)
            if tier.returncode != 0:
                raise SystemExit(errors.strip())
            out.seek(0)
            totals = json.load(out)["totals"]
            done |= {key: totals[key] for key in ("undone", "went_out", "major_faults")}
            done["own_cpu"] = totals["tracker_cpu"] + totals["mover_cpu"]
        return done


def interval(values: Sequence[float], draw: random.Random) -> tuple[float, float]:
    """In which the medians of 95 % of the bootstrap samples lie."""
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(SAMPLES))
    return medians[SAMPLES // 40], medians[-SAMPLES // 40 - 1]


def measure(options: argparse.Namespace) -> int:
    draw = random.Random(options.seed)
    cpu, wall = [], []
    for number in range(options.pairs):
        runs = {}
        for tiered in draw.sample((False, True), 2):
            runs[tiered] = run(options, tiered)
        off, on = runs[False], runs[True]
        cpu.append((on["cpu"] / on["operations"]) / (off["cpu"] / off["operations"]))
        wall.append((on["seconds"] / on["operations"]) / (off["seconds"] / off["operations"]))
        print(
            f"pair {number + 1}: CPU time per operation x {cpu[-1]:.3f} "
            f"({off['cpu'] / off['operations'] * 1e6:.2f} us without, {off['cpu']:.1f} s; with "
            f"{on['cpu']:.1f} s), time per operation x "
            f"{wall[-1]:.3f}; {on['went_out'] / MIB:.0f} MiB went out, {on['undone']:.0f} times "
            f"undone, {on['major_faults']:.0f} major faults, {on['own_cpu']:.2f} s of CPU time of "
            f"headrace; load {os.getloadavg()[0]:.1f}", flush=True,
        )  # fmt: skip
    bounds = interval(cpu, draw)
    for what, values in (("CPU time", cpu), ("time", wall)):
        low, high = interval(values, draw)
        print(f"{what} per operation: x {median(values):.3f}, 95 % {low:.3f} to {high:.3f}")
    return 0 if bounds[1] < 1 + options.worse else 1


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--program"]:
        size, part, every, seconds = arguments[1:]
        program(int(size), int(part), float(every), float(seconds))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=25.0, help="of each run")
    parser.add_argument("--size", type=int, default=200, help="MiB; the budget is half of it")
    parser.add_argument("--guard", default="5%", help="of headrace tier attach; 0: none")
    parser.add_argument("--worse", type=float, default=0.05, help="share that is allowed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--headrace", default=str(Path(sys.executable).parent / "headrace"))
    return measure(parser.parse_args(arguments))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
