# SPDX-License-Identifier: Apache-2.0
"""Headrace compared with tools of others, on one machine in one run, each in its own convention.

    .venv/bin/python benchmarks/peers/peers.py [--rounds 5] [--seed 1] [--stream PATH]
        [--multichase PATH] [--nvbandwidth PATH]

A peer is taken if it is installed (Debian: likwid mbw linux-perf; Rust: cargo install nanoda
--locked, looked for in PATH and in ~/.cargo/bin) and left out with a line if not; STREAM
(https://www.cs.virginia.edu/stream/) and multichase (https://github.com/google/multichase) where a
path of their source or program is given, nvbandwidth (https://github.com/NVIDIA/nvbandwidth), which
needs a GPU, where one of its program is. Output is parsed, nothing of them is part of the project.
In each round every peer
runs once and Headrace measures the same thing once, the pairs and the two of each in an order drawn
anew, so that both see the same machine; a program that does not end with status 0 has no number.
The ratio is the median over rounds of the two of one round, with its range.
Headrace's number is turned into the peer's convention, never the other way round. Where the two
are more than 5 % apart, the peer runs again with one thing changed at a time (explain.py).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import explain
import sources

import headrace

MIB = 1 << 20
GIB = 1 << 30
_PEER_SECONDS = 120
#: What a random cycle goes through, of ours and of the peers that chase one.
_CHASED = 256 * MIB
PATH = f"{os.environ.get('PATH', '')}:{Path.home()}/.cargo/bin"


#: prctl(2): no huge pages for the process and its children.
_PR_SET_THP_DISABLE = 41
_LIBC = ctypes.CDLL(None)
#: glibc's tunables: huge pages for allocations; least bytes of a copy that bypasses the caches.
_HUGE = "glibc.malloc.hugetlb=1"
_NEVER_PAST = f"glibc.cpu.x86_non_temporal_threshold={1 << 40:#x}"
#: STREAM asks for arrays of four times all last-level caches; beyond this a cache is not believed,
#: as in src/measure (docs/design/measure.md), and no array has more than a sixteenth of the memory.
_MOST_ARRAY = 512 * MIB


@dataclass(frozen=True)
class Variant:
    """One thing that is changed in how a peer runs."""

    words: str
    environment: dict[str, str] = field(default_factory=dict)
    no_huge_pages: bool = False
    command: list[str] | None = None  # instead of the peer's


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
    #: A change that may explain a difference.
    variants: tuple[Variant, ...] = ()
    title: str = ""
    #: What is read in place of the pattern, in the printed unit.
    read: Callable[[str], float | None] | None = None

    @property
    def name(self) -> str:
        return self.title or " ".join(self.command)


_PAGES = (
    Variant("huge pages for its allocations", {"GLIBC_TUNABLES": _HUGE}),
    Variant("no huge pages", no_huge_pages=True),
)
_LIBRARY_COPY = Variant("a memcpy that never passes the caches", {"GLIBC_TUNABLES": _NEVER_PAST})


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """What the first CPU can, in the kernel's words ("avx512f"); nothing where it says none."""
    found = re.search(r"(?m)^flags\s*:(.*)$", cpuinfo.read_text()) if cpuinfo.is_file() else None
    return frozenset(found[1].split()) if found else frozenset()


def cycle_bytes(machine: headrace.Machine) -> int:
    """What Headrace chases in small pages, in which it has one size: some times the caches."""
    node = first_node(machine)
    point: dict[str, int | str] = {
        "cpu_node": node, "memory_node": node, "window": "all", "pages": "base",
    }  # fmt: skip
    (planned,) = headrace.plan_session(machine, experiments=["latency"], only=point, budget=None)
    return int(planned.row.parameters["bytes"])


def peers(
    threads: int, flags: frozenset[str] = frozenset(), small_pages: int = _CHASED
) -> list[Peer]:
    """Those that measure what Headrace measures, on CPUs with such flags; `small_pages`: bytes of
    the cycle in them."""
    n, all_cpus = str(threads), {"threads": threads}

    def likwid(kernel: str, mix: str, detail: str, why: str = "") -> Peer:
        command = ["likwid-bench", "-t", kernel, "-w", f"N:1GB:{n}"]
        return Peer("likwid-bench", command, r"MByte/s:\s+([0-9.]+)", 1e6, "reads + writes, MB/s",
                    "bandwidth", {"mix": mix, **all_cpus}, detail, why, _PAGES)  # fmt: skip

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
             "copy", copy, variants=(*_PAGES, _LIBRARY_COPY)),
        Peer("perf", ["perf", "bench", "mem", "memcpy", "-s", "256MB", "-l", "16", "-f", "default"],
             r"([0-9.]+) GB/sec", GIB, 'copied bytes once, GiB/s called "GB/sec"', "copy",
             copy | {"bytes": 256 * MIB}, variants=(*_PAGES, _LIBRARY_COPY)),
        Peer("nanoda", ["nanoda", "-n", f"{small_pages / MIB:g}", "-i", "3"],
             r"avg = ([0-9.]+) ns", 1,
             f"ns per load, one random cycle over {small_pages / MIB:g} MiB in small pages",
             "latency", {"bytes": small_pages, "window": "all", "pages": "base"},
             variants=_PAGES),
    ]  # fmt: skip


def multichase_peer(path: Path, folder: Path) -> Peer:
    """One random cycle on huge pages; it prints the best of its samples, in ns."""
    program = path if sources.is_program(path) else sources.build_multichase(path, folder)
    built = "" if program == path else f", built with {sources.MULTICHASE_FLAGS}"
    size = f"{_CHASED // MIB}m"
    options = ["-m", size, "-T", size, "-s", "64", "-n", "5"]
    small = Variant("small pages", command=[str(program), *options], no_huge_pages=True)
    samples = Variant("the average of its samples", command=[str(program), "-a", *options, "-H"])
    return Peer(
        "multichase", [str(program), *options, "-H"], r"(?m)^\s*([0-9]+\.[0-9]+)\s*$", 1,
        f"ns per load, one random cycle over {_CHASED // MIB} MiB in huge pages, best sample"
        f"{built}",
        "latency", {"bytes": _CHASED, "window": "all", "pages": "huge"}, variants=(small, samples),
        title=f"multichase {' '.join(options)} -H",
    )  # fmt: skip


#: Test cases of nvbandwidth: the way, what moves the bytes, and the detail of a row that is its own
#: direction's share where both are under way.
_TESTS = {
    "host_to_device_memcpy_ce": ("to_gpu", "engine", ""),
    "device_to_host_memcpy_ce": ("from_gpu", "engine", ""),
    "host_to_device_bidirectional_memcpy_ce": ("both", "engine", "to_gpu"),
    "device_to_host_bidirectional_memcpy_ce": ("both", "engine", "from_gpu"),
    "host_to_device_memcpy_sm": ("to_gpu", "kernel", ""),
    "device_to_host_memcpy_sm": ("from_gpu", "kernel", ""),
}
#: Bytes of its buffers where nobody says.
_ITS_BUFFER = 512 * MIB


def nvbandwidth_peers(path: Path) -> list[Peer]:
    """A peer for each of some of its test cases, for the first GPU."""
    program = path if sources.is_program(path) else path / "nvbandwidth"
    if not sources.is_program(program):
        raise sources.CannotBuild(f"{path} is no program of it, nor a folder that has one")
    return [
        Peer(
            "nvbandwidth", [str(program), "-j", "-t", test], "", 1e9,
            "payload of one direction, GB/s, median of 3", "gpu",
            {"part": "copy", "direction": way, "by": by, "memory": "pinned",
             "bytes": _ITS_BUFFER}, detail, title=f"nvbandwidth -t {test}",
            read=lambda output, test=test: of_first_gpu(output, test),  # type: ignore[misc]
        )
        for test, (way, by, detail) in _TESTS.items()
    ]  # fmt: skip


def of_first_gpu(output: str, test: str) -> float | None:
    """From what `nvbandwidth -j` prints; None where the test did not pass, or has no figure."""
    begin = output.find("{")
    try:
        found = json.JSONDecoder().raw_decode(output, max(begin, 0))[0]["nvbandwidth"]["testcases"]
        case = next(each for each in found if each["name"] == test)
        return float(case["bandwidth_matrix"][0][0]) if case["status"] == "Passed" else None
    except (ValueError, LookupError, TypeError, StopIteration):
        return None


def stream_peers(path: Path, folder: Path, threads: int, elements: int) -> list[Peer]:
    """A peer for each of STREAM's kernels, all by one program."""
    built = not sources.is_program(path)
    program = sources.build_stream(path, elements, folder, []) if built else path
    size = f", arrays of {elements * 8 // MIB} MiB, {' '.join(sources.STREAM_FLAGS)}" * built
    variants = _stream_variants(path, folder, elements, built)
    return [
        Peer(
            "STREAM", ["env", f"OMP_NUM_THREADS={threads}", "OMP_PROC_BIND=true", str(program)],
            rf"{kernel}:\s+([0-9.]+)", 1e6,
            f"reads + writes of payload, MB/s, best of its runs{size}",
            "stream", {"kernel": kernel.lower(), "threads": threads}, title=f"STREAM {kernel}",
            variants=variants,
        )
        for kernel in ("Copy", "Scale", "Add", "Triad")
    ]  # fmt: skip


def _stream_variants(
    path: Path, folder: Path, elements: int, built: bool
) -> tuple[Variant, ...]:
    """Pages, place and offset of its arrays, and how the compiler makes its copy."""
    pages = str(sources.build_pages(folder))

    def on(words: str, how: str) -> Variant:
        return Variant(words, {"LD_PRELOAD": pages, "HEADRACE_PAGES": how})

    found = [
        on("its arrays on huge pages", "huge"), on("its arrays on small pages", "small"),
        on("its arrays mapped, on small pages", "mapped"),
        on("its arrays mapped, on huge pages", "mapped-huge"),
        Variant("its memcpy never past the caches", {"GLIBC_TUNABLES": _NEVER_PAST}),
    ]  # fmt: skip
    for words, flags in _BUILDS if built else ():
        with contextlib.suppress(sources.CannotBuild):  # a flag of another processor or compiler
            other = sources.build_stream(path, elements, folder, flags)
            found.append(Variant(words, command=[str(other)]))
    return tuple(found)


#: How STREAM may be built otherwise. OFFSET is its own, in elements.
_BUILDS = (
    ("arrays 4 KiB and a line further apart", ["-DOFFSET=520"]),
    ("its loops as written, none made a memcpy", ["-fno-tree-loop-distribute-patterns"]),
    ("narrow vectors", ["-march=x86-64"]),
)


def array_elements(machine: headrace.Machine) -> int:
    """Of an array of STREAM: four times all last-level caches, as it asks."""
    level = max((cache.level for cache in machine.caches), default=0)
    caches = sum(cache.size for cache in machine.caches if cache.level == level)
    memory = sum(node.capacity or 0 for node in machine.nodes if node.byte_addressable)
    return max(MIB, min(4 * caches, _MOST_ARRAY, memory // 16)) // 8


@dataclass
class Found:
    peer: Peer
    theirs: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)


def parsed(peer: Peer, output: str) -> float | None:
    """Bytes per second in the peer's convention, or ns; None if it printed none."""
    if peer.read is not None:
        number = peer.read(output)
        return None if number is None else number * peer.unit
    match = re.search(peer.pattern, output)
    return float(match[1]) * peer.unit if match else None


Tell = Callable[[str], None]


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def run_peer(peer: Peer, variant: Variant | None = None, tell: Tell = to_stderr) -> float | None:
    """What it prints, with one thing changed if a variant is given. None, and a line that says why,
    where it did not end well or printed no number: what a crashed program had printed is none."""
    variant = variant or Variant("")
    command = peer.command
    if variant.command is not None:  # in the same environment
        command = [*(command[:-1] if command[0] == "env" else []), *variant.command]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PEER_SECONDS, check=False,
            env=os.environ | {"PATH": PATH} | variant.environment,
            preexec_fn=_forbid_huge_pages if variant.no_huge_pages else None,
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
    changed = f" with {variant.words}" if variant.words else ""
    tell(f"no number: {peer.name}{changed}: {why}")
    return None


def _failure(done: subprocess.CompletedProcess[str]) -> str:
    """ "it ended with status 1: cannot allocate", "it was killed by SIGSEGV"."""
    said = (done.stderr or done.stdout).strip().splitlines()
    last = f": {said[-1].strip()}" if said else ""
    if done.returncode < 0:
        return f"it was killed by {signal.Signals(-done.returncode).name}{last}"
    return f"it ended with status {done.returncode}{last}"


def _forbid_huge_pages() -> None:
    _LIBC.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)


def first_node(machine: headrace.Machine) -> int:
    """The node on which all is measured."""
    return next(n.id for n in machine.nodes if n.byte_addressable and n.cpus)


def point_of(machine: headrace.Machine, peer: Peer) -> dict[str, int | str] | None:
    """The parameters of the one row that measures what the peer does; None without its GPU."""
    node = first_node(machine)
    if peer.experiment == "gpu":
        first = next((n for n in machine.nodes if n.gpu is not None), None)
        if first is None or first.gpu is None:
            return None
        # Its memory of the host is on the node that the GPU is nearest to.
        near = node if first.gpu.host is None else first.gpu.host
        return peer.parameters | {"gpu": first.id, "node": near}
    names = {"copy": ("cpu_node", "from", "to"), "stream": ("a", "b", "c")}
    return peer.parameters | dict.fromkeys(
        names.get(peer.experiment, ("cpu_node", "memory_node")), node
    )


def measure_ours(
    machine: headrace.Machine, peer: Peer, seed: int, tell: Tell = to_stderr
) -> float | None:
    """That point by Headrace, and no other; None, and a line that says why, where it has none."""
    point = point_of(machine, peer)
    if point is None:
        tell(f"no number of Headrace: {peer.name}: no GPU")
        return None
    profile = headrace.measure(
        machine, experiments=[peer.experiment], only=point, budget=None,
        width=1.0, seed=seed,
    )  # fmt: skip
    (row,) = profile.rows
    if row.median is None:
        tell(f"no number of Headrace: {peer.name}: {row.reason}")
        return None
    return row.details[peer.detail] if peer.detail else row.median


Measure = Callable[[Peer, int], "float | None"]


def chosen_peers(
    installed: Sequence[Peer], threads: int, elements: int, folder: Path,
    options: argparse.Namespace, tell: Tell,
) -> list[Peer]:
    """The peers that are installed or were given; prints a line for each missing one."""
    found = []
    for peer in installed:
        if shutil.which(peer.command[0], path=PATH) is None:
            tell(f"left out: {peer.tool} is not installed")
        else:
            found.append(peer)
    try:
        if options.multichase is not None:
            found.append(multichase_peer(options.multichase, folder))
    except sources.CannotBuild as error:
        tell(f"left out: multichase: {error}")
    try:
        if options.stream is not None:
            found += stream_peers(options.stream, folder, threads, elements)
    except sources.CannotBuild as error:
        tell(f"left out: STREAM: {error}")
    try:
        if options.nvbandwidth is not None:
            found += nvbandwidth_peers(options.nvbandwidth)
    except sources.CannotBuild as error:
        tell(f"left out: nvbandwidth: {error}")
    return found


def compare(
    chosen: list[Peer], ours: Measure, rounds: int, seed: int, tell: Tell
) -> list[Found]:
    found = [Found(peer) for peer in chosen]
    order = random.Random(seed)
    for number in range(rounds):
        for one in order.sample(found, len(found)):
            mine, theirs = _both(one.peer, ours, seed + number, order, tell)
            if mine is None or theirs is None:  # why was told
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


def explained(
    found: list[Found], ours: Measure, rounds: int, seed: int, tell: Tell
) -> list[str]:
    """A line for each peer that is more than 5 % apart: what makes the difference."""
    return [
        _explained(one.peer, ours, rounds, seed, tell)
        for one in found
        if one.ours and explain.differ(one.ours, one.theirs)
    ]


def _explained(peer: Peer, ours: Measure, rounds: int, seed: int, tell: Tell) -> str:
    tell(f"explaining {peer.name}: {', '.join(v.words for v in peer.variants) or 'nothing'}")
    changes = [
        explain.Change(
            each.words, lambda each=each: run_peer(peer, each, tell)  # type: ignore[misc]
        )
        for each in peer.variants
    ]  # fmt: skip
    got = explain.run(
        lambda: run_peer(peer, tell=tell), lambda: ours(peer, seed), changes, rounds, seed
    )
    return f"{peer.name}: {explain.verdict(got, lambda n: _text(peer, n))}"


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
    parser.add_argument("--stream", type=Path, metavar="PATH",
                        help="STREAM: its stream.c, the folder of it, or a program")  # fmt: skip
    parser.add_argument("--multichase", type=Path, metavar="PATH",
                        help="multichase: its source tree, or the program")  # fmt: skip
    parser.add_argument("--nvbandwidth", type=Path, metavar="PATH",
                        help="nvbandwidth: its program, or the folder of it")  # fmt: skip
    options = parser.parse_args()

    machine = headrace.Machine.discover()
    threads = len(next(n.cpus for n in machine.nodes if n.id == first_node(machine)))
    installed = peers(threads, cpu_flags(), cycle_bytes(machine))

    def ours(peer: Peer, seed: int) -> float | None:
        return measure_ours(machine, peer, seed)

    with tempfile.TemporaryDirectory(prefix="headrace-peers-") as name:
        chosen = chosen_peers(
            installed, threads, array_elements(machine), Path(name), options, to_stderr
        )
        found = compare(chosen, ours, options.rounds, options.seed, to_stderr)
        print(table(found), end="")
        lines = explained(found, ours, options.rounds, options.seed, to_stderr)
    for line in lines:
        print(f"- {line}")
    print(load())


if __name__ == "__main__":
    main()
