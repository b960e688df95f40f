"""What attaching and running have in common: options, the loop of steps, what is told of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional

import typer

import headrace
from headrace._cli import output, parse
from headrace._cli.interrupt import Interrupt
from headrace._words import percent

Budget = Annotated[
    str, typer.Option("--budget", metavar="SIZE", help="Most that is to stay in DRAM.")
]
Source = Annotated[
    Optional[Literal["hint-faults", "refaults"]],
    typer.Option("--source", help="By what hot is told from cold, else the best there is."),
]
Guard = Annotated[
    str,
    typer.Option(
        "--guard", metavar="SHARE",
        help="Undo when faults take so much more of the program's CPU time than before; 0: never.",
    ),
]  # fmt: skip
Rate = Annotated[str, typer.Option("--rate", metavar="SIZE", help="Most that moves in a second.")]
Decisions = Annotated[
    int, typer.Option("--decisions", metavar="N", min=0, max=1000, help="List the last N.")
]
GUARD = "5%"
RATE = "64MiB"

_STEP_SECONDS = 0.25
_TELL_SECONDS = 10.0
_KEPT_SAMPLES = 10_000


@dataclass(frozen=True)
class Request:
    budget: int
    source: Literal["hint-faults", "refaults"] | None
    guard: float
    rate: int


@dataclass
class Done:
    """What was done from begin to end."""

    source: str = ""
    why: str = ""
    ended: str = ""  #: why it ended
    interrupted: bool = False
    resident: int = 0
    out: int = 0
    totals: headrace.ProcessTierTotals | None = None
    samples: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decisions: list[headrace.TierDecision] = field(default_factory=list)


def size_of(text: str) -> int:
    return parse.size(text)


def share_of(text: str) -> float:
    return parse.share(text)


@contextmanager
def attached(pid: int, request: Request, *, quiet: bool = False) -> Iterator[headrace.ProcessTier]:
    tier = headrace.tier_process(
        pid, request.budget, source=request.source, guard=request.guard, per_second=request.rate
    )
    try:
        if not quiet:
            budget = headrace.format_bytes(request.budget)
            _say(f"keeps process {pid} within {budget}, by {tier.source}: {tier.why}")
        yield tier
    finally:
        tier.close()


def until_end(
    tier: headrace.ProcessTier,
    *,
    seconds: float | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> Done:
    """Steps until the process ends, the time is over, or a signal comes."""
    done = Done()
    begun = told = time.monotonic()
    before = tier.totals()
    with Interrupt() as interrupt:
        interrupt.keeps = True
        while True:
            try:
                step = tier.step()
            except headrace.AbsentError as error:
                done.ended = str(error)
                break
            _note(done, step)
            now = time.monotonic()
            if now - told >= _TELL_SECONDS:
                told, before = now, _sample(done, tier, before)
            done.interrupted = interrupt()
            if done.interrupted or ended() or (seconds is not None and now - begun >= seconds):
                break
            time.sleep(_STEP_SECONDS)
    if not done.ended:
        done.ended = "interrupted" if done.interrupted else "as asked"
    done.source, done.why = tier.source, tier.why
    done.totals, done.decisions = tier.totals(), tier.decisions()
    return done


def _note(done: Done, step: headrace.ProcessTierStep) -> None:
    done.resident, done.out = step.resident, step.out
    for text in (step.undone, step.note):
        if text and text not in done.notes[-1:]:
            done.notes.append(text)
            _say(text)


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
    _say(_line(sample))
    return totals


def _per(value: float, cpu: float) -> float | None:
    return value / cpu if cpu > 0 else None


def _line(sample: dict[str, Any]) -> str:
    places = (
        f"{sample['elapsed']:.0f} s: {headrace.format_bytes(sample['resident'])} in DRAM, "
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
        f"places: {headrace.format_bytes(done.resident)} in DRAM, "
        f"{headrace.format_bytes(done.out)} out",
        f"moved: {headrace.format_bytes(totals.went_out)} out, "
        f"{headrace.format_bytes(totals.came_in)} in; undone by the guard: {totals.undone}",
        f"cost: {shares}; major faults of it: {totals.major_faults}",
    ]
    for each in done.decisions[-decisions:] if decisions else []:
        way = "in " if each.comes_in else "out"
        lines.append(
            f"{way} {each.begin:#x} {headrace.format_bytes(each.bytes)}, heat {each.heat:.3f}: "
            f"{each.reason}"
        )
    return "\n".join(lines) + "\n"


def document(pid: int, request: Request, done: Done, decisions: int) -> dict[str, Any]:
    assert done.totals is not None
    return output.document(
        "tier_process",
        headrace.Machine.discover(storage=[]),
        pid=pid,
        budget=request.budget,
        guard=request.guard,
        source=done.source,
        why=done.why,
        ended=done.ended,
        resident=done.resident,
        out=done.out,
        totals=done.totals.asdict(),
        notes=done.notes,
        samples=done.samples,
        decisions=[each.asdict() for each in done.decisions[-decisions:]] if decisions else [],
    )


def _say(line: str) -> None:
    try:
        sys.stderr.write(f"headrace: {line}\n")
        sys.stderr.flush()
    except OSError:
        pass  # nobody listens
