# SPDX-License-Identifier: Apache-2.0
"""Headrace compared with third-party tools, on one machine in one run, each by its own convention.

    .venv/bin/python benchmarks/peers/peers.py [--rounds 5] [--seed 1]

Runs the peers that are installed (Debian: likwid mbw linux-perf; Rust: cargo install nanoda
--locked, in PATH or in ~/.cargo/bin), and names the missing ones. In each round every peer runs
once and Headrace measures the same thing once. The pairs, and the two of each pair, run in random
order, so that both see the same machine. A program that does not end with status 0 has no number.
Headrace's number is turned into the peer's convention, never the other way round. The ratio is the
median over rounds, with its range.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import headrace

MIB = 1 << 20
GIB = 1 << 30
_PEER_SECONDS = 120
#: Size of a random cycle, of ours and of the peers that chase one.
_CHASED = 256 * MIB
PATH = f"{os.environ.get('PATH', '')}:{Path.home()}/.cargo/bin"


@dataclass(frozen=True)
class Peer:
    """One figure of one tool, and the row of Headrace that measures the same."""

    tool: str
    command: list[str]
    pattern: str
    #: Bytes per second in one unit of the printed number; 1 for times, which are in ns.
    unit: float
    #: How the tool counts, in words.
    convention: str
    experiment: str
    parameters: dict[str, int | str]
    #: The number of the row: "" the value itself, else the detail that counts as the tool does.
    detail: str = ""
    title: str = ""

    @property
    def name(self) -> str:
        return self.title or " ".join(self.command)


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Features of the first CPU by the kernel's names ("avx512f"); empty if it lists none."""
    found = re.search(r"(?m)^flags\s*:(.*)$", cpuinfo.read_text()) if cpuinfo.is_file() else None
    return frozenset(found[1].split()) if found else frozenset()


def cycle_bytes(machine: headrace.Machine) -> int:
    """Bytes of Headrace's pointer chase in small pages: a multiple of the caches."""
    node = first_node(machine)
    point: dict[str, int | str] = {
        "cpu_node": node, "memory_node": node, "window": "all", "pages": "base",
    }  # fmt: skip
    (planned,) = headrace.plan_session(machine, experiments=["latency"], only=point, budget=None)
    return int(planned.row.parameters["bytes"])


def peers(
    threads: int, flags: frozenset[str] = frozenset(), small_pages: int = _CHASED
) -> list[Peer]:
    """Tools that measure the same as Headrace, on CPUs with these flags. `small_pages`: bytes of
    the pointer chase in small pages."""
    n, all_cpus = str(threads), {"threads": threads}

    def likwid(kernel: str, mix: str, detail: str) -> Peer:
        command = ["likwid-bench", "-t", kernel, "-w", f"N:1GB:{n}"]
        return Peer("likwid-bench", command, r"MByte/s:\s+([0-9.]+)", 1e6, "reads + writes, MB/s",
                    "bandwidth", {"mix": mix, **all_cpus}, detail)  # fmt: skip

    copy: dict[str, int | str] = {
        "engine": "memcpy", "bytes": 64 * MIB, "threads": 1, "state": "cold",
    }  # fmt: skip
    return [
        likwid("load_avx", "read", ""),
        *([likwid("load_avx512", "read", "")] if "avx512f" in flags else []),
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
        Peer("nanoda", ["nanoda", "-n", f"{small_pages / MIB:g}", "-i", "3"],
             r"avg = ([0-9.]+) ns", 1,
             f"ns per load, one random cycle over {small_pages / MIB:g} MiB in small pages",
             "latency", {"bytes": small_pages, "window": "all", "pages": "base"}),
    ]  # fmt: skip


@dataclass
class Found:
    peer: Peer
    theirs: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)


def parsed(peer: Peer, output: str) -> float | None:
    """Bytes per second in the peer's convention, or ns; None if it printed none."""
    match = re.search(peer.pattern, output)
    return float(match[1]) * peer.unit if match else None


Tell = Callable[[str], None]


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def run_peer(peer: Peer, tell: Tell = to_stderr) -> float | None:
    """Returns the number that it prints. None, and a line with the reason, if it failed or printed
    no number. A crashed program has none, whatever it printed before.
    """
    try:
        done = subprocess.run(
            peer.command, capture_output=True, text=True, timeout=_PEER_SECONDS, check=False,
            env=os.environ | {"PATH": PATH},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        why = f"it had not ended after {_PEER_SECONDS} s"
    except OSError as error:
        why = str(error)
    else:
        number = parsed(peer, done.stdout + done.stderr) if done.returncode == 0 else None
        if number is not None:
            return number
        why = _failure(done) if done.returncode else "it printed no number that is known"
    tell(f"no number: {peer.name}: {why}")
    return None


def _failure(done: subprocess.CompletedProcess[str]) -> str:
    """ "it ended with status 1: cannot allocate", "it was killed by SIGSEGV"."""
    said = (done.stderr or done.stdout).strip().splitlines()
    last = f": {said[-1].strip()}" if said else ""
    if done.returncode < 0:
        return f"it was killed by {signal.Signals(-done.returncode).name}{last}"
    return f"it ended with status {done.returncode}{last}"


def first_node(machine: headrace.Machine) -> int:
    """The node on which all is measured."""
    return next(n.id for n in machine.nodes if n.byte_addressable and n.cpus)


def point_of(machine: headrace.Machine, peer: Peer) -> dict[str, int | str]:
    """The parameters of the one row that measures what the peer does."""
    names = ("cpu_node", "from", "to") if peer.experiment == "copy" else ("cpu_node", "memory_node")
    return peer.parameters | dict.fromkeys(names, first_node(machine))


def measure_ours(
    machine: headrace.Machine, peer: Peer, seed: int, tell: Tell = to_stderr
) -> float | None:
    """Measures only this peer's point with Headrace. None if there is no value; a line says why."""
    profile = headrace.measure(
        machine, experiments=[peer.experiment], only=point_of(machine, peer),
        budget=None, width=1.0, seed=seed,
    )  # fmt: skip
    (row,) = profile.rows
    if row.median is None:
        tell(f"no number of Headrace: {peer.name}: {row.reason}")
        return None
    return row.details[peer.detail] if peer.detail else row.median


Measure = Callable[[Peer, int], "float | None"]


def chosen_peers(peers: Sequence[Peer], tell: Tell) -> list[Peer]:
    """The installed peers; prints a line for each missing one."""
    found = []
    for peer in peers:
        if shutil.which(peer.command[0], path=PATH) is None:
            tell(f"left out: {peer.tool} is not installed")
        else:
            found.append(peer)
    return found


def compare(
    chosen: list[Peer], ours: Measure, rounds: int, seed: int, tell: Tell
) -> list[Found]:
    found = [Found(peer) for peer in chosen]
    order = random.Random(seed)
    for number in range(rounds):
        for one in order.sample(found, len(found)):
            mine, theirs = _both(one.peer, ours, seed + number, order, tell)
            if mine is None or theirs is None:  # a line said why
                continue
            one.ours.append(mine)
            one.theirs.append(theirs)
            both = f"{_text(one.peer, theirs)}, ours {_text(one.peer, mine)}"
            tell(f"{number + 1}/{rounds} {one.peer.name}: {both}")
    return found


def _both(
    peer: Peer, ours: Measure, seed: int, order: random.Random, tell: Tell
) -> tuple[float | None, float | None]:
    """Ours and theirs, in an order drawn anew: whoever runs second finds what the first left."""
    measures = {"ours": lambda: ours(peer, seed), "theirs": lambda: run_peer(peer, tell=tell)}
    got = {name: measures[name]() for name in order.sample(list(measures), len(measures))}
    return got["ours"], got["theirs"]


def _text(peer: Peer, number: float) -> str:
    name = {1: "ns", 1e6: "MB/s", 1e9: "GB/s", MIB: "MiB/s", GIB: "GiB/s"}[peer.unit]
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


def load() -> str:
    """How busy the machine is: figures of a busy one are of its moment."""
    busy = os.getloadavg()[0]
    cpus = len(os.sched_getaffinity(0))
    words = " The machine is busy: take none of these for its speed." if busy > cpus / 2 else ""
    return f"Load {busy:.1f} on {cpus} CPUs at the end.{words}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    machine = headrace.Machine.discover()
    threads = len(next(n.cpus for n in machine.nodes if n.id == first_node(machine)))
    installed = peers(threads, cpu_flags(), cycle_bytes(machine))

    def ours(peer: Peer, seed: int) -> float | None:
        return measure_ours(machine, peer, seed)

    chosen = chosen_peers(installed, to_stderr)
    print(table(compare(chosen, ours, options.rounds, options.seed, to_stderr)), end="")
    print(load())


if __name__ == "__main__":
    main()
