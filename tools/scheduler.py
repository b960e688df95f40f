# SPDX-License-Identifier: Apache-2.0
"""Runs steps at the same time: one build at a time, and two other steps that need no more builds.

Builds use every core at a low priority, so that what else runs is hardly slower than alone
and no core is idle as long as there is something to compile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

#: Signals that stop all steps.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: A step that takes longer hangs. It is stopped and has failed.
LIMIT_SECONDS = 2400
#: Steps that run at the same time as the build.
OTHERS = 2
NICE = 10


@dataclass(frozen=True)
class Step:
    name: str
    #: For bash, in the root of the tree.
    command: str
    #: Steps that must have passed before.
    after: tuple[str, ...] = ()
    is_build: bool = False
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    step: Step
    passed: bool
    seconds: float
    #: User and system time of the step and all that it waited for.
    cpu_seconds: float
    #: Why it did not run, or was stopped.
    reason: str = ""


@dataclass
class Running:
    step: Step
    process: subprocess.Popen[bytes]
    begin: float


def start(step: Step, log: Path) -> Running:
    # A process group, so that all of it can be stopped; not a session, among which Linux shares the
    # processors without regard to priorities.
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", f"set -euo pipefail\n{step.command}"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env=os.environ | step.environment, process_group=0,
            preexec_fn=(lambda: os.nice(NICE)) if step.is_build else None,
        )  # fmt: skip
    return Running(step, process, time.monotonic())


def ended(running: Running) -> Outcome | None:
    """The outcome of a step that is over, or has run too long."""
    reason = ""
    seconds = time.monotonic() - running.begin
    pid, status, usage = os.wait4(running.process.pid, os.WNOHANG)
    if pid == 0:
        if seconds < LIMIT_SECONDS:
            return None
        stop(running)
        reason = f"stopped after {LIMIT_SECONDS} s"
        _, status, usage = os.wait4(running.process.pid, 0)
    running.process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Outcome(running.step, status == 0 and not reason, seconds, cpu, reason)


def runs(group: int) -> bool:
    """Whether a process of the group has not ended."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = file.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def stop(running: Running) -> None:
    """Ends a step and its processes. Ninja's compilers have process groups of their own, and ninja
    ends them on SIGTERM, which may take it longer than the shell that started it. SIGKILL follows
    after five seconds at most."""
    group = running.process.pid
    with contextlib.suppress(ProcessLookupError):  # just over by itself
        os.killpg(group, signal.SIGTERM)
        end = time.monotonic() + 5
        while runs(group) and time.monotonic() < end:
            time.sleep(0.02)
        os.killpg(group, signal.SIGKILL)


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Signals to stop are heard at the end of the block: no step is started but not yet known."""
    seen: list[int] = []
    before = {
        number: signal.signal(number, lambda heard, _: seen.append(heard)) for number in STOPPING
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if seen:
        signal.raise_signal(seen[0])


def ignore_after_first() -> None:
    """The first signal to stop is heard as before. Later ones are ignored, at once: they must not
    leave steps behind.
    """
    before = {number: signal.getsignal(number) for number in STOPPING}

    def first(number: int, frame: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)
        handler = before[signal.Signals(number)]
        assert callable(handler)
        handler(number, frame)

    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, first)


def choose(waiting: Sequence[Step], passed: set[str], running: Sequence[Step]) -> Step | None:
    """The first step that can start now: its conditions are met and its place is free."""
    builds = sum(step.is_build for step in running)
    others = len(running) - builds
    for step in waiting:
        if set(step.after) <= passed and (builds < 1 if step.is_build else others < OTHERS):
            return step
    return None


def run(steps: Sequence[Step], logs: Path, tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Runs the steps, each as early as it may, in their order; tells each outcome at once."""
    logs.mkdir(parents=True, exist_ok=True)
    waiting, outcomes = list(steps), list[Outcome]()
    running: list[Running] = []
    passed: set[str] = set()

    def note(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if outcome.passed:
            passed.add(outcome.step.name)
        tell(outcome)

    before = {number: signal.getsignal(number) for number in STOPPING}
    ignore_after_first()
    try:
        while waiting or running:
            step = choose(waiting, passed, [each.step for each in running])
            if step is not None:
                waiting.remove(step)
                with held_signals():
                    running.append(start(step, logs / f"{step.name}.log"))
                continue
            if not running:  # what is left waits for a step that failed
                for step in waiting:
                    missing = ", ".join(name for name in step.after if name not in passed)
                    note(Outcome(step, False, 0, 0, f"not run: it needs {missing}"))
                break
            for each in list(running):
                if (outcome := ended(each)) is not None:
                    running.remove(each)
                    note(outcome)
            time.sleep(0.05)
    finally:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        for each in running:
            stop(each)
        for number, handler in before.items():
            signal.signal(number, handler)
    return outcomes
