# SPDX-License-Identifier: Apache-2.0
"""Whether two things that `headrace measure` promises hold on this machine, which should be quiet.

    .venv/bin/python benchmarks/peers/promises.py latency [--rounds 10] [--seed 1]
    .venv/bin/python benchmarks/peers/promises.py bandwidth [--rounds 10] [--seed 1]

latency: loaded latency without a load is the idle one, within 5 %. In each round both are measured
once, in an order drawn anew, of one cycle through one mapping of memory near the first CPUs; the
traffic pauses a millisecond between two blocks of lines, which is no load.

bandwidth: the rate that `measure bandwidth` finds for all CPUs of the first node, reading and
storing past the caches, is at least 0.95 of the best that likwid-bench (Debian: likwid) and a loop
written by hand (streams.c, compiled here; 1 to 8 streams) reach. In each round all of them run once
in an order drawn anew; the best is the one whose median over rounds is the highest, and the ratio
is of the two in one round. Of one maximum per round luck would choose.

Prints the ratio, its median and range over rounds, and ends with status 0 where the promise holds,
1 where it does not, 2 where nothing could be compared.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import peers
import sources

import headrace

Measure = Callable[[int], "float | None"]
#: What each gave in one round, by a seed; None: no number.
Once = Callable[[int], "Mapping[str, float | None]"]

HELD, NOT_HELD, NOTHING = 0, 1, 2
#: Ours is at least so much, as a part of the best of the others.
LEAST_BANDWIDTH = 0.95
#: Loaded latency without a load may be so far from the idle one.
MOST_APART = 0.05
#: Between two blocks of lines of a thread of traffic: some 5 MB/s.
_NO_LOAD_NS = 1_000_000
_STREAMS = (1, 2, 4, 8)
_MIXES = ("read", "nt_write")
#: Kernels of likwid-bench, without the width of their vectors.
_KERNELS = {"read": "load", "nt_write": "store_mem"}


@dataclass
class Rounds:
    """What each gave, by round; of rounds in which all gave a number."""

    found: dict[str, list[float]]

    def ratios(self, one: str, other: str) -> list[float]:
        return [a / b for a, b in zip(self.found[one], self.found[other], strict=True)]

    def median(self, name: str) -> float:
        return statistics.median(self.found[name])


def in_rounds(once: Once, rounds: int, seed: int, tell: peers.Tell) -> Rounds:
    """Those that never give a number are left out; a round in which one of the others gave none
    is, too."""
    got: list[Mapping[str, float | None]] = []
    for number in range(rounds):
        got.append(once(seed + number))
        tell(f"round {number + 1} of {rounds}")
    named = [name for name in got[0] if any(each[name] is not None for each in got)]
    whole = [each for each in got if all(each[name] is not None for name in named)]
    return Rounds({name: [each[name] or 0 for each in whole] for name in named})


def spread(ratios: list[float]) -> str:
    """ "0.98 (0.95 to 1.02 in 10 rounds)"."""
    return (
        f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f} in "
        f"{len(ratios)} round{'s' if len(ratios) != 1 else ''})"
    )


def verdict_of_latency(found: Rounds) -> tuple[int, str]:
    if not found.found.get("loaded") or not found.found.get("idle"):
        return NOTHING, "latency: nothing to compare"
    ratios = found.ratios("loaded", "idle")
    held = abs(statistics.median(ratios) - 1) <= MOST_APART
    return HELD if held else NOT_HELD, (
        f"latency: loaded without a load {found.median('loaded'):.1f} ns, idle "
        f"{found.median('idle'):.1f} ns; loaded / idle {spread(ratios)}, promised within "
        f"{100 * MOST_APART:g} %: {'holds' if held else 'does not hold'}"
    )


def verdict_of_bandwidth(mix: str, found: Rounds) -> tuple[int, str]:
    others = [name for name in found.found if name != "Headrace"]
    if not others or not found.found.get("Headrace"):
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
    """All of them, the fastest first."""
    lines = []
    for name in sorted(found.found, key=found.median, reverse=True):
        rates = found.found[name]
        lines.append(
            f"  {_rate(found.median(name)):>10}  {_rate(min(rates))} to {_rate(max(rates))}  {name}"
        )
    return "\n".join(lines)


def _rate(number: float) -> str:
    text: str = headrace.format_rate(number)
    return text


def latencies(machine: headrace.Machine, tell: peers.Tell) -> Once:
    """Idle latency, and loaded latency with a load that is none, in one session."""
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

    def once(seed: int) -> dict[str, float | None]:
        rows = _measured(machine, [("latency", idle), ("loaded", loaded)], seed, tell)
        return {"idle": rows["latency"], "loaded": rows["loaded"]}

    return once


def _measured(
    machine: headrace.Machine, points: list[tuple[str, dict[str, int | str]]], seed: int,
    tell: peers.Tell,
) -> dict[str, float | None]:  # fmt: skip
    """By experiment the median of its one row, of one mapping."""
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
) -> Once:
    """Headrace, what likwid-bench has for the mix, and the loop by hand by number of streams."""
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

    def once(seed: int) -> dict[str, float | None]:
        order = random.Random(seed).sample(list(measures), len(measures))
        return {name: measures[name](seed) for name in order}

    return once


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


def _compiled(folder: Path, tell: peers.Tell) -> Path | None:
    try:
        return sources.build_streams(folder)
    except sources.CannotBuild as error:
        tell(f"left out: the loop by hand: {error}")
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
        program = _compiled(Path(name), tell)
        for mix in _MIXES:
            once = bandwidths(machine, mix, program, tell)
            found = in_rounds(once, options.rounds, options.seed, tell)
            code, said = verdict_of_bandwidth(mix, found)
            print(f"{said}\n{table(found)}" if found.found else said)
            codes.append(code)
    print(peers.load())
    return next((code for code in (NOT_HELD, NOTHING) if code in codes), HELD)


if __name__ == "__main__":
    sys.exit(main())
