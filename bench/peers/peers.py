"""Headrace compared with tools of others, on one machine in one run, each in its own convention.

    .venv/bin/python bench/peers/peers.py [--rounds 5] [--seed 1]

A peer is taken if it is installed (Debian: likwid mbw linux-perf; Rust: cargo install nanoda
--locked, looked for in PATH and in ~/.cargo/bin) and left out with a line if not; its output is
parsed, nothing of it is part of the project. In each round every peer
runs once and Headrace measures the same thing once, in an order drawn anew, so that both see
the same machine; the ratio is the median over rounds of the two of one round, with its range.
Headrace's number is turned into the peer's convention, never the other way round.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import headrace

MIB = 1 << 20
GIB = 1 << 30
_PEER_SECONDS = 120
_PATH = f"{os.environ.get('PATH', '')}:{Path.home()}/.cargo/bin"


@dataclass(frozen=True)
class Peer:
    """One figure of one tool, and the row of Headrace that measures the same."""

    tool: str
    command: list[str]
    pattern: str
    #: What one unit of the printed number is, in bytes per second; of times 1, in ns.
    unit: float
    #: How the tool counts, in words.
    convention: str
    experiment: str
    parameters: dict[str, int | str]
    #: The number of the row: "" the value itself, else the detail that counts as the tool does.
    detail: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        return " ".join(self.command)


def peers(threads: int) -> list[Peer]:
    """Those that measure what Headrace measures."""
    n, all_cpus = str(threads), {"threads": threads}

    def likwid(kernel: str, mix: str, detail: str, why: str = "") -> Peer:
        command = ["likwid-bench", "-t", kernel, "-w", f"N:1GB:{n}"]
        return Peer("likwid-bench", command, r"MByte/s:\s+([0-9.]+)", 1e6, "reads + writes, MB/s",
                    "bandwidth", {"mix": mix, **all_cpus}, detail, why)  # fmt: skip

    copy = {"engine": "memcpy", "bytes": 64 * MIB, "threads": 1, "state": "cold"}
    return [
        likwid("load_avx", "read", ""),
        likwid("store_avx", "write", ""),
        likwid("store_mem_avx", "nt_write", ""),
        likwid("copy_avx", "copy", "read_write"),
        likwid("copy_mem_avx", "nt_copy", "read_write"),
        Peer("mbw", ["mbw", "-q", "-n", "8", "-t", "0", "512"],
             r"AVG\s+Method: MEMCPY.*Copy: ([0-9.]+) MiB/s", MIB, "copied bytes once, MiB/s",
             "copy", copy),
        Peer("perf", ["perf", "bench", "mem", "memcpy", "-s", "256MB", "-l", "16", "-f", "default"],
             r"([0-9.]+) GB/sec", GIB, 'copied bytes once, GiB/s called "GB/sec"', "copy",
             copy | {"bytes": 256 * MIB}),
        Peer("nanoda", ["nanoda", "-n", "256", "-i", "3"], r"avg = ([0-9.]+) ns", 1,
             "ns per load, one random cycle over 256 MiB in small pages", "latency",
             {"window": "all", "pages": "base"}),
    ]  # fmt: skip


@dataclass
class Found:
    peer: Peer
    theirs: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)


def run_peer(peer: Peer) -> float | None:
    """Bytes per second in the peer's convention; None if it printed none."""
    done = subprocess.run(
        peer.command, capture_output=True, text=True, timeout=_PEER_SECONDS, check=False,
        env=os.environ | {"PATH": _PATH},
    )  # fmt: skip
    match = re.search(peer.pattern, done.stdout + done.stderr)
    return float(match[1]) * peer.unit if match else None


def measure_ours(machine: headrace.Machine, peer: Peer, seed: int) -> float | None:
    """The same point by Headrace, alone: rows known already are not measured."""
    node = next(n.id for n in machine.nodes if n.byte_addressable and n.cpus)
    place = (
        {"cpu_node": node, "from": node, "to": node}
        if peer.experiment == "copy"
        else {"cpu_node": node, "memory_node": node}
    )
    profile = headrace.measure(
        machine, experiments=[peer.experiment], only=peer.parameters | place, budget=None,
        width=1.0, seed=seed,
    )  # fmt: skip
    for row in profile.rows:
        if row.median is not None:
            return row.details[peer.detail] if peer.detail else row.median
    return None


def compare(rounds: int, seed: int, tell: Callable[[str], None]) -> list[Found]:
    machine = headrace.Machine.discover()
    threads = len(next(n.cpus for n in machine.nodes if n.byte_addressable and n.cpus))
    found = []
    for peer in peers(threads):
        if shutil.which(peer.command[0], path=_PATH) is None:
            tell(f"left out: {peer.tool} is not installed")
        else:
            found.append(Found(peer))
    order = random.Random(seed)
    for number in range(rounds):
        for one in order.sample(found, len(found)):
            ours = measure_ours(machine, one.peer, seed + number)
            theirs = run_peer(one.peer)
            if ours is None or theirs is None:
                tell(f"no number: {one.peer.name}")
                continue
            one.ours.append(ours)
            one.theirs.append(theirs)
            both = f"{_text(one.peer, theirs)}, ours {_text(one.peer, ours)}"
            tell(f"{number + 1}/{rounds} {one.peer.name}: {both}")
    return found


def _text(peer: Peer, number: float) -> str:
    name = {1: "ns", 1e6: "MB/s", MIB: "MiB/s", GIB: "GiB/s"}[peer.unit]
    return f"{number / peer.unit:.4g} {name}"


def table(found: list[Found]) -> str:
    lines = [
        "| tool and command | counts | theirs | Headrace | Headrace / theirs |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        if not one.ours:
            continue
        ratios = [ours / theirs for ours, theirs in zip(one.ours, one.theirs, strict=True)]
        theirs = _text(one.peer, statistics.median(one.theirs))
        ours = _text(one.peer, statistics.median(one.ours))
        lines.append(
            f"| `{one.peer.name}` | {one.peer.convention} | {theirs} | {ours} | "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = compare(options.rounds, options.seed, lambda line: print(line, file=sys.stderr))
    print(table(found), end="")


if __name__ == "__main__":
    main()
