# SPDX-License-Identifier: Apache-2.0
"""Options, loop and output that `tier attach` and `tier run` share."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import typer

import headrace
from headrace._cli import output, parse
from headrace._cli.interrupt import Interrupt
from headrace._core import HostFiles as Files
from headrace._format import percent, say
from headrace._run.plan import numbers, ranges
from headrace._tiering.tiers import tiers

Budget = Annotated[str, typer.Option("--budget", metavar="SIZE", help="Limit of fast memory.")]
Fast = Annotated[
    Optional[str],
    typer.Option(
        "--fast",
        metavar="NODES",
        help="Fast nodes, such as 0-3,8 (default: the kernel's fastest tier).",
    ),
]
Slow = Annotated[
    Optional[str],
    typer.Option(
        "--slow", metavar="NODES",
        help="Slow nodes, or swap (default: the kernel's slower tiers; swap without those).",
    ),
]  # fmt: skip
Word = Literal["hint-faults", "refaults", "damon"]
Source = Annotated[
    Optional[Word],
    typer.Option(
        "--source",
        help="Hotness source (default: the best that changes no setting of the whole "
        "host). hint-faults switches kernel.numa_balancing on; damon, also between "
        "nodes, needs root.",
    ),
]
Hold = Annotated[
    Optional[Literal["cgroup"]],
    typer.Option(
        "--hold",
        help="Beside swap, limit the process by its cgroup too.",
    ),
]
Guard = Annotated[
    str,
    typer.Option(
        "--guard", metavar="SHARE",
        help="Largest cost for the program: beside swap, growth of its share of CPU time "
            "in faults; between nodes, share of a CPU. Tiering is undone above it. 0: no "
            "guard.",
    ),
]  # fmt: skip
Rate = Annotated[
    str, typer.Option("--rate", metavar="SIZE", help="Limit of bytes moved per second.")
]
Decisions = Annotated[
    int,
    typer.Option(
        "--decisions", metavar="N", min=0, max=1000, help="Number of last decisions to list."
    ),
]
GUARD = "5%"
RATE = "64MiB"

_STEP_SECONDS = 0.25
_TELL_SECONDS = 10.0
_KEPT_SAMPLES = 10_000
#: Fields that are read in /proc/PID/status.
_COUNTED = {"RssAnon": "resident", "VmSwap": "out"}


@dataclass(frozen=True)
class Request:
    budget: int
    source: Word | None
    guard: float
    rate: int
    fast: tuple[int, ...] = ()  #: none: DRAM and swap
    slow: tuple[int, ...] = ()
    hold: bool = False  #: by a cgroup

    @property
    def kept_on(self) -> str:
        return f"on node {ranges(self.fast)}" if self.fast else "in DRAM"


@dataclass
class Done:
    """A summary from begin to end."""

    source: str = ""
    kept_on: str = "in DRAM"
    why: str = ""
    ended: str = ""  #: why it ended
    gone: bool = False  #: the process has ended, or is another program
    interrupted: bool = False
    resident: int = 0
    out: int = 0
    totals: headrace.ProcessTierTotals | None = None
    kernel: dict[str, int] = field(default_factory=dict)  #: as the kernel counts, at the last look
    samples: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decisions: list[headrace.TierDecision] = field(default_factory=list)


def request(
    budget: str,
    source: Word | None,
    guard: str,
    rate: str,
    fast: str | None,
    slow: str | None,
    hold: Literal["cgroup"] | None = None,
) -> Request:
    # Without nodes, these options are for swap.
    swap = source in ("hint-faults", "refaults") or hold is not None
    nodes = _nodes_of(swap, fast, slow)
    return Request(
        parse.size(budget), source, parse.share(guard), parse.size(rate), *nodes, hold is not None
    )


def _nodes_of(
    swap: bool, fast: str | None, slow: str | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Fast and slow nodes; both empty for swap."""
    if slow == "swap" and fast is not None:
        raise headrace.InvalidError("beside swap DRAM is fast; leave --fast out")
    if slow == "swap" or (swap and fast is None and slow is None):
        return (), ()
    if fast is not None or slow is not None:
        return _numbers(fast), _numbers(slow)
    first, *others = tiers(Files()).all or (None,)
    if first is None or not others:
        return (), ()
    return first.nodes, tuple(sorted(node for tier in others for node in tier.nodes))


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        return () if text is None else tuple(numbers(text))
    except headrace.InvalidError:
        raise headrace.InvalidError(f"'{text}' is no list of nodes; write 0-3,8") from None


@contextmanager
def attached(pid: int, request: Request, *, quiet: bool = False) -> Iterator[headrace.ProcessTier]:
    if not quiet:
        _allow_many_files()
    tier = headrace.tier_process(
        pid, request.budget, source=request.source, guard=request.guard, per_second=request.rate,
        fast=list(request.fast), slow=list(request.slow), hold=request.hold,
    )  # fmt: skip
    try:
        if not quiet:
            budget = headrace.format_bytes(request.budget)
            rest = f"node {ranges(request.slow)}" if request.slow else "swap"
            say(
                f"keeps process {pid} within {budget} {request.kept_on}, the rest in {rest}, by "
                f"{tier.source}: {tier.why}"
            )
        yield tier
    finally:
        tier.close()


def _allow_many_files() -> None:
    """Raises the limit of open files: each thread whose page faults are watched takes two
    descriptors."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def counted(pid: int, root: Path = Path("/")) -> dict[str, int]:
    """The kernel's counts: bytes of the process's anonymous memory that are resident and swapped
    out, bytes that zram takes for all programs, and huge pages split on the host. Empty: the
    process has ended.
    """
    found = {}
    with suppress(OSError):
        for line in _text(root / f"proc/{pid}/status").splitlines():
            name, _, rest = line.partition(":")
            if name in _COUNTED:
                found[_COUNTED[name]] = int(rest.split()[0]) << 10
        zram = [path.read_text().split()[2] for path in root.glob("sys/block/zram*/mm_stat")]
        if zram:
            found["zram"] = sum(map(int, zram))
        split = re.search(r"^thp_split_pmd (\d+)$", _text(root / "proc/vmstat"), re.MULTILINE)
        if split:
            found["huge_pages_split"] = int(split[1])
    return found if set(_COUNTED.values()) <= set(found) else {}


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def until_end(
    tier: headrace.ProcessTier,
    request: Request,
    *,
    pid: int | None = None,
    seconds: float | None = None,
    ended: Callable[[], bool] | None = None,
) -> Done:
    """Steps until the process ends, the time is over, or a signal comes.

    With `ended`, also until that returns true. A step that fails is then the last one: the error is
    recorded, the tier is closed so that it no longer affects the program, and the end is waited
    for.
    """
    done = Done(kept_on=request.kept_on)
    begun = told = time.monotonic()
    before = tier.totals()
    source = tier.source
    split = counted(pid).get("huge_pages_split", 0) if pid else 0
    with Interrupt() as interrupt:
        interrupt.keeps = True
        failed = False
        while True:
            try:
                if not failed:
                    _note(done, tier.step())
                    done.kernel = (pid and _since(split, counted(pid))) or done.kernel
                    if tier.source != source:
                        source = tier.source
                        say(f"now by {source}: {tier.why}")
            except headrace.AbsentError as error:
                done.ended = str(error)
                done.gone = True
                break
            except headrace.Error as error:
                if ended is None:
                    raise
                failed = True
                _keep(done, tier)
                tier.close()
                done.notes.append(f"{error}; the program goes on, and nothing moves any more")
                say(done.notes[-1])
            now = time.monotonic()
            if now - told >= _TELL_SECONDS and not failed:
                told, before = now, _sample(done, tier, before)
            over = ended is not None and ended()
            if interrupt() or over or (seconds is not None and now - begun >= seconds):
                break
            time.sleep(_STEP_SECONDS)
        done.interrupted = interrupt()
    if not done.ended:
        done.ended = "interrupted" if done.interrupted else "as asked"
    if not failed:
        _keep(done, tier)
    return done


def _since(split: int, kernel: dict[str, int]) -> dict[str, int]:
    """The huge pages that were split since the start."""
    if "huge_pages_split" in kernel:
        kernel["huge_pages_split"] -= split
    return kernel


def _keep(done: Done, tier: headrace.ProcessTier) -> None:
    done.source, done.why = tier.source, tier.why
    done.totals, done.decisions = tier.totals(), tier.decisions()


def _note(done: Done, step: headrace.ProcessTierStep) -> None:
    done.resident, done.out = step.resident, step.out
    for text in (step.undone, step.note):
        if text and text not in done.notes[-1:]:
            done.notes.append(text)
            say(text)


def _sample(
    done: Done, tier: headrace.ProcessTier, before: headrace.ProcessTierTotals
) -> headrace.ProcessTierTotals:
    totals = tier.totals()
    cpu = totals.program_cpu - before.program_cpu
    sample = {
        "elapsed": totals.elapsed,
        "resident": done.resident,
        "out": done.out,
        "faults_per_cpu_second": _per(totals.major_faults - before.major_faults, cpu),
        "tracker_share": _per(totals.tracker_cpu - before.tracker_cpu, cpu),
        "mover_share": _per(totals.mover_cpu - before.mover_cpu, cpu),
    }
    if len(done.samples) < _KEPT_SAMPLES:
        done.samples.append(sample)
    say(_line(sample, done.kept_on))
    return totals


def _per(value: float, cpu: float) -> float | None:
    return value / cpu if cpu > 0 else None


def _line(sample: dict[str, Any], kept_on: str) -> str:
    places = (
        f"{sample['elapsed']:.0f} s: {headrace.format_bytes(sample['resident'])} {kept_on}, "
        f"{headrace.format_bytes(sample['out'])} out"
    )
    if sample["tracker_share"] is None:
        return f"{places}; the program is idle"
    return (
        f"{places}; {sample['faults_per_cpu_second']:.0f} major faults per second of its CPU time, "
        f"of which tracker {percent(sample['tracker_share'])}, mover "
        f"{percent(sample['mover_share'])}"
    )


def text(done: Done, decisions: int) -> str:
    """The summary."""
    totals = done.totals
    assert totals is not None
    cpu = totals.program_cpu
    shares = (
        f"tracker {percent(totals.tracker_cpu / cpu)}, mover {percent(totals.mover_cpu / cpu)} of "
        "the program's CPU time"
        if cpu > 0
        else "the program was idle"
    )
    lines = [
        f"{totals.elapsed:.1f} s, ended: {done.ended}",
        f"source: {done.source} ({done.why})",
        f"places: {headrace.format_bytes(done.resident)} {done.kept_on}, "
        f"{headrace.format_bytes(done.out)} out",
        f"moved: {headrace.format_bytes(totals.went_out)} out, "
        f"{headrace.format_bytes(totals.came_in)} in; undone by the guard: {totals.undone}",
        f"cost: {shares}; major faults of it: {totals.major_faults}",
    ]
    if done.kernel:
        lines.insert(3, _by_kernel(done.kernel))
    for each in done.decisions[-decisions:] if decisions else []:
        way = "in " if each.comes_in else "out"
        lines.append(
            f"{way} {each.begin:#x} {headrace.format_bytes(each.bytes)}, heat {each.heat:.3f}: "
            f"{each.reason}"
        )
    return "\n".join(lines) + "\n"


def _by_kernel(kernel: dict[str, int]) -> str:
    zram = kernel.get("zram")
    taken = f"; zram takes {headrace.format_bytes(zram)} of DRAM for all programs" if zram else ""
    count = kernel.get("huge_pages_split")
    split = f"; huge pages split on this host meanwhile: {count}" if count else ""
    return (
        f"by the kernel: {headrace.format_bytes(kernel['resident'])} in memory (RssAnon), "
        f"{headrace.format_bytes(kernel['out'])} out (VmSwap){taken}{split}"
    )


def document(pid: int, request: Request, done: Done, decisions: int) -> dict[str, Any]:
    assert done.totals is not None
    return output.document(
        "tier_process",
        headrace.Machine.discover(storage=[]),
        pid=pid,
        budget=request.budget,
        fast=list(request.fast),
        slow=list(request.slow),
        guard=request.guard,
        source=done.source,
        why=done.why,
        ended=done.ended,
        resident=done.resident,
        out=done.out,
        kernel=done.kernel,
        totals=done.totals.asdict(),
        notes=done.notes,
        samples=done.samples,
        decisions=[each.asdict() for each in done.decisions[-decisions:]] if decisions else [],
    )
