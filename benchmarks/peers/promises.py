# SPDX-License-Identifier: Apache-2.0
"""Checks two promises of `headrace measure` on this machine, which should be idle.

    .venv/bin/python benchmarks/peers/promises.py latency [--rounds 10] [--seed 1]
    .venv/bin/python benchmarks/peers/promises.py bandwidth [--rounds 10] [--seed 1]

latency: loaded latency without load equals idle latency, within 5 %. Each round measures both once,
in random order, with one cycle through one mapping of memory near the first CPUs. The traffic
pauses a millisecond between two blocks of lines, so it is no load.

bandwidth: `measure bandwidth` reaches at least 0.95 of the best other program, for all CPUs of the
first node, reading and storing past the caches. The other programs are likwid-bench (Debian:
likwid) and a hand-written loop (streams.c, compiled here; 1 to 8 streams). Each round runs all of
them once, in random order. The best program is the one with the highest median over all rounds: the
best of each single round would be chosen by luck. Each round gives one ratio.

Prints the median and the range of the ratios. Exit status: 0 the promise holds, 1 it does not,
2 nothing could be compared.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import peers

import headrace

Measure = Callable[[int], "float | None"]
#: Runs one round with a seed. Returns the result of each program by name; None: no result.
RunRound = Callable[[int], "Mapping[str, float | None]"]

HELD, NOT_HELD, NOTHING = 0, 1, 2
#: Least ratio of Headrace's rate to that of the best other program.
LEAST_BANDWIDTH = 0.95
#: Largest relative difference between loaded latency without load and idle latency.
MOST_APART = 0.05
#: Pause of a traffic thread between two blocks of lines; it then moves some 5 MB/s.
_NO_LOAD_NS = 1_000_000
_STREAMS = (1, 2, 4, 8)
_MIXES = ("read", "nt_write")
#: Kernels of likwid-bench, without the width of their vectors.
_KERNELS = {"read": "load", "nt_write": "store_mem"}


@dataclass
class Rounds:
    """Results by program, from the rounds in which every program gave a result."""

    results: dict[str, list[float]]

    def ratios(self, one: str, other: str) -> list[float]:
        return [a / b for a, b in zip(self.results[one], self.results[other], strict=True)]

    def median(self, name: str) -> float:
        return statistics.median(self.results[name])


def in_rounds(run_round: RunRound, rounds: int, seed: int, tell: peers.Tell) -> Rounds:
    """Runs the rounds. Leaves out programs without any result, and rounds in which another program
    gave none.
    """
    got: list[Mapping[str, float | None]] = []
    for number in range(rounds):
        got.append(run_round(seed + number))
        tell(f"round {number + 1} of {rounds}")
    usable = [name for name in got[0] if any(each[name] is not None for each in got)]
    complete = [each for each in got if all(each[name] is not None for name in usable)]
    return Rounds({name: [each[name] or 0 for each in complete] for name in usable})


def spread(ratios: list[float]) -> str:
    """ "0.98 (0.95 to 1.02 in 10 rounds)"."""
    return (
        f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f} in "
        f"{len(ratios)} round{'s' if len(ratios) != 1 else ''})"
    )


def verdict_of_latency(found: Rounds) -> tuple[int, str]:
    if not found.results.get("loaded") or not found.results.get("idle"):
        return NOTHING, "latency: nothing to compare"
    ratios = found.ratios("loaded", "idle")
    held = abs(statistics.median(ratios) - 1) <= MOST_APART
    return HELD if held else NOT_HELD, (
        f"latency: loaded without a load {found.median('loaded'):.1f} ns, idle "
        f"{found.median('idle'):.1f} ns; loaded / idle {spread(ratios)}, promised within "
        f"{100 * MOST_APART:g} %: {'holds' if held else 'does not hold'}"
    )


def verdict_of_bandwidth(mix: str, found: Rounds) -> tuple[int, str]:
    others = [name for name in found.results if name != "Headrace"]
    if not others or not found.results.get("Headrace"):
        return NOTHING, f"bandwidth, {mix}: nothing to compare"
    best = max(others, key=found.median)
    ratios = found.ratios("Headrace", best)
    held = statistics.median(ratios) >= LEAST_BANDWIDTH
    return HELD if held else NOT_HELD, (
        f"bandwidth, {mix}: Headrace {_rate(found.median('Headrace'))}, best of the others {best} "
        f"{_rate(found.median(best))}; Headrace / best {spread(ratios)}, promised at least "
        f"{LEAST_BANDWIDTH}: {'holds' if held else 'does not hold'}"
    )


def table(found: Rounds) -> str:
    """A line per program, the fastest first."""
    lines = []
    for name in sorted(found.results, key=found.median, reverse=True):
        rates = found.results[name]
        lines.append(
            f"  {_rate(found.median(name)):>10}  {_rate(min(rates))} to {_rate(max(rates))}  {name}"
        )
    return "\n".join(lines)


def _rate(number: float) -> str:
    text: str = headrace.format_rate(number)
    return text


def latencies(machine: headrace.Machine, tell: peers.Tell) -> RunRound:
    """Measures idle latency, and loaded latency without load, in one session."""
    node = peers.first_node(machine)
    near: dict[str, int | str] = {"cpu_node": node, "memory_node": node}
    idle = near | {"window": "all", "pages": "huge"}
    planned = headrace.plan_session(machine, experiments=["latency"], only=idle, budget=None)
    # Loaded latency chases the largest.
    idle |= {"bytes": max(int(each.row.parameters["bytes"]) for each in planned)}
    loaded = near | {
        "traffic_cpu_node": node, "traffic_memory_node": node, "mix": "read",
        "delay_ns": _NO_LOAD_NS,
    }  # fmt: skip

    def run_round(seed: int) -> dict[str, float | None]:
        rows = _measured(machine, [("latency", idle), ("loaded", loaded)], seed, tell)
        return {"idle": rows["latency"], "loaded": rows["loaded"]}

    return run_round


def _measured(
    machine: headrace.Machine, points: list[tuple[str, dict[str, int | str]]], seed: int,
    tell: peers.Tell,
) -> dict[str, float | None]:  # fmt: skip
    """The median of each experiment's one row, all in one mapping."""
    profile = headrace.measure(
        machine, selections=points, budget=None, rounds=1, seed=seed, noise_checks=False
    )
    assert len(profile.rows) == len(points), [row.parameters for row in profile.rows]
    for row in profile.rows:
        if row.median is None:
            tell(f"no number of {row.experiment}: {row.reason}")
    return {row.experiment: row.median for row in profile.rows}


def bandwidths(
    machine: headrace.Machine, mix: str, program: Path | None, tell: peers.Tell
) -> RunRound:
    """Measures Headrace, likwid-bench's kernels for the mix, and the hand-written loop."""
    node = peers.first_node(machine)
    cpus = next(n.cpus for n in machine.nodes if n.id == node)
    only: dict[str, int | str] = {
        "cpu_node": node, "memory_node": node, "mix": mix, "threads": len(cpus),
    }  # fmt: skip
    others = []
    if shutil.which("likwid-bench", path=peers.PATH) is None:
        tell("left out: likwid-bench is not installed")
    else:
        widths = [w for w in ("sse", "avx", "avx512") if _has(w)]
        others += [_likwid(f"{_KERNELS[mix]}_{width}", len(cpus)) for width in widths]
    if program is not None:
        others += [_by_hand(program, mix, cpus, streams) for streams in _STREAMS]
    measures: dict[str, Measure] = {
        "Headrace": lambda seed: _measured(machine, [("bandwidth", only)], seed, tell)["bandwidth"]
    }
    for peer in others:
        measures[peer.name] = _runs(peer, tell)

    def run_round(seed: int) -> dict[str, float | None]:
        order = random.Random(seed).sample(list(measures), len(measures))
        return {name: measures[name](seed) for name in order}

    return run_round


def _runs(peer: peers.Peer, tell: peers.Tell) -> Measure:
    return lambda seed: peers.run_peer(peer, tell=tell)


def _has(width: str) -> bool:
    return {"sse": "sse2", "avx": "avx", "avx512": "avx512f"}[width] in peers.cpu_flags()


def _likwid(kernel: str, threads: int) -> peers.Peer:
    command = ["likwid-bench", "-t", kernel, "-w", f"N:1GB:{threads}"]
    return peers.Peer("likwid-bench", command, r"MByte/s:\s+([0-9.]+)", 1e6, "", "bandwidth", {})


def _by_hand(program: Path, mix: str, cpus: list[int], streams: int) -> peers.Peer:
    command = [str(program), mix, ",".join(map(str, cpus)), "1024", str(streams)]
    return peers.Peer(
        "streams", command, r"MB/s:\s+([0-9.]+)", 1e6, "", "bandwidth", {},
        title=f"a loop of {streams} stream{'s' if streams > 1 else ''}",
    )  # fmt: skip


def build_streams(folder: Path, tell: peers.Tell) -> Path | None:
    """Compiles the hand-written loop for this processor; None, and a line, if that fails."""
    program = folder / "streams"
    source = Path(__file__).parent / "streams.c"
    command = [
        os.environ.get("CC", "cc"), "-O3", "-march=native", "-pthread", str(source), "-o",
        str(program),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        why = done.stderr.strip().partition("\n")[0]
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    else:
        if done.returncode == 0:
            return program
    tell(f"left out: the loop by hand: {why}")
    return None


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["latency", "bandwidth"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error("--rounds 1 or more")

    machine = headrace.Machine.discover(storage=[])
    tell = peers.to_stderr
    if options.what == "latency":
        found = in_rounds(latencies(machine, tell), options.rounds, options.seed, tell)
        code, said = verdict_of_latency(found)
        print(said)
        print(peers.load())
        return code
    codes = []
    with tempfile.TemporaryDirectory(prefix="headrace-promises-") as name:
        program = build_streams(Path(name), tell)
        for mix in _MIXES:
            run_round = bandwidths(machine, mix, program, tell)
            found = in_rounds(run_round, options.rounds, options.seed, tell)
            code, said = verdict_of_bandwidth(mix, found)
            print(f"{said}\n{table(found)}" if found.results else said)
            codes.append(code)
    print(peers.load())
    return next((code for code in (NOT_HELD, NOTHING) if code in codes), HELD)


if __name__ == "__main__":
    sys.exit(main())
