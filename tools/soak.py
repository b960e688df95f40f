# SPDX-License-Identifier: Apache-2.0
"""Runs the tests under faults for long, and prints operations, faults, and what was lost or stale.

    make soak SOAK_OPTIONS="--scale 0.1 --seed 7"        # or: tools/soak.py PART...

Exit status 1: a part failed, or did nothing; the last lines say how to repeat it. 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import steps

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "build" / "release"
READING = ROOT / "tests" / "python" / "reading"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-s", "-rs"]
#: Counts in the lines of the programs, by column of the report.
COLUMNS = {
    "operations": re.compile(r"(\d+) (?:operations(?! each)|schedules|reads|kills)\b"),
    "faults": re.compile(r"(\d+) (?:faults|refused|kills)\b"),
    "wrong": re.compile(r"(\d+) (?:stale or torn|lost|wrong)\b"),
}
#: Lines without counts that say what a part left out.
LEFT_OUT = re.compile(r"no local files|no device|not installed|SKIPPED")
#: Seconds until a part that was interrupted is killed.
END_SECONDS = 10


def parts(scale: float, seed: int) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Commands and what they need in the environment, by name."""

    def times(number: float) -> str:
        return str(max(1, round(number * scale)))

    def program(name: str, tests: str) -> list[str]:
        return [str(RELEASE / name), f"--gtest_filter={tests}"]

    def reading(name: str, *options: str) -> list[str]:
        return [sys.executable, str(READING / name), "--seed", str(seed), *options]

    explored = {
        "HEADRACE_EXPLORE_SCHEDULES": times(20_000),
        "HEADRACE_EXPLORE_FIRST": str(seed * 10**6),
    }
    history = {"HEADRACE_HISTORY": times(1_000_000), "HEADRACE_SEED": str(seed)}
    kills = {"HEADRACE_KILLS": times(10_000), "HEADRACE_SEED": str(seed)}
    served = [*PYTEST, str(ROOT / "tests/python/serving"), "-k", "that_are_killed"]
    return {
        "history": (program("cache_test", "CacheHistory*"), history),
        "explore": (program("tests/explore_test", "ExploreWrites*:ExploreCache*"), explored),
        "index": (program("kvcache_shared_test", "*Killed*"), kills),
        "serve": (served, kills),
        "device": (reading("compare_device.py", "--operations", times(100_000)), {}),
        "readers": (reading("compare_readers.py", "--reads", times(100_000)), {}),
    }


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a part as Ctrl-C does, so that it removes its folders. A second Ctrl-C kills it."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(END_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(command: list[str], environment: dict[str, str]) -> tuple[Counter[str], bool]:
    """Returns the sums of the columns, and whether the part ended well."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    left_out = False
    sums: Counter[str] = Counter()
    try:
        for line in process.stdout:
            lines = [*lines[-49:], line]
            found = {name: counts.findall(line) for name, counts in COLUMNS.items()}
            for name, counts in found.items():
                sums[name] += sum(map(int, counts))
            says_left_out = LEFT_OUT.search(line) is not None
            left_out |= says_left_out
            if says_left_out or any(found.values()):
                print(f"  {line.strip()}", flush=True)
        if process.wait() == 0 and not sums["wrong"] and (sums["operations"] or left_out):
            return sums, True
    except KeyboardInterrupt:
        stop(process)
        raise
    print("".join(lines), end="")
    return sums, False


def soak(chosen: dict[str, tuple[list[str], dict[str, str]]], again: str) -> int:
    failed: list[str] = []
    report = [f"{'part':8}" + "".join(f"{name:>12}" for name in COLUMNS) + f"{'CPU s':>9}"]
    left = list(chosen)
    before = 0.0
    for name, (command, environment) in chosen.items():
        words = [f"{key}={value}" for key, value in environment.items()] + command
        print(f"{name}: {shlex.join(words)}", flush=True)
        try:
            sums, is_good = run(command, environment)
        except KeyboardInterrupt:
            print(f"soak.py: interrupted; the rest: {again} {' '.join(left)}", file=sys.stderr)
            return 130
        left.remove(name)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        now = used.ru_utime + used.ru_stime
        report.append(
            f"{name:8}" + "".join(f"{sums[each]:12}" for each in COLUMNS) + f"{now - before:9.0f}"
        )
        before = now
        if not is_good:
            failed.append(f"{name} FAILED, or did nothing; repeat it: {shlex.join(words)}")
    print("\n".join([*report, *(failed or ["nothing lost, nothing stale, nothing wrong"])]))
    return int(bool(failed))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    known = ", ".join(parts(1, 1))
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{known} (default all)")
    parser.add_argument("--scale", type=float, default=1, help="1: hours of CPU time")
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    everything = parts(options.scale, options.seed)
    if not set(options.parts) <= set(everything):
        parser.error(f"there are the parts {known}")
    again = f"tools/soak.py --scale {options.scale} --seed {options.seed}"
    return soak({name: everything[name] for name in options.parts or everything}, again)


if __name__ == "__main__":
    steps.stop_on_signals()
    sys.exit(main())
