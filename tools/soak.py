# SPDX-License-Identifier: Apache-2.0
"""Runs the tests under faults for long, and prints operations, faults, and what was lost or stale.

    make soak SOAK_OPTIONS="--scale 0.1 --seed 7"        # or: tools/soak.py PART...

Exit status 1: a part failed. Each part can be repeated with the seed that is printed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "build" / "release"
READERS = ROOT / "tests" / "python" / "reading" / "compare_readers.py"
PYTEST = [sys.executable, "-m", "pytest", "-q"]
#: Lines of the programs that say how much was done.
COUNTS = re.compile(r"operations|schedules|right|killed|passed|failed|PASSED|FAILED|wrong")


def parts(scale: float, seed: int) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Commands and what they need in the environment, by name."""

    def times(number: float) -> str:
        return str(max(1, round(number * scale)))

    explored = {
        "HEADRACE_EXPLORE_SCHEDULES": times(20_000),
        "HEADRACE_EXPLORE_FIRST": str(seed * 10**6),
    }
    kills = {"HEADRACE_KILLS": times(10_000)}
    served = [*PYTEST, str(ROOT / "tests/python/serving"), "-k", "that_are_killed"]
    readers = [sys.executable, str(READERS), "--reads", times(50_000), "--seed", str(seed)]
    return {
        "history": (
            [str(RELEASE / "cache_test"), "--gtest_filter=CacheHistory*"],
            {"HEADRACE_HISTORY": times(1_000_000), "HEADRACE_SEED": str(seed)},
        ),
        "explore": (
            [str(RELEASE / "tests/explore_test"), "--gtest_filter=ExploreWrites*:ExploreCache*"],
            explored,
        ),
        "index": ([str(RELEASE / "kvcache_shared_test"), "--gtest_filter=*Killed*"], kills),
        "serve": (served, kills),
        "readers": (readers, {}),
    }


def run(name: str, command: list[str], environment: dict[str, str]) -> bool:
    print(f"{name}: {' '.join([f'{key}={value}' for key, value in environment.items()] + command)}")
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if COUNTS.search(line):
            print(f"  {line.rstrip()}", flush=True)
    if process.wait() == 0:
        return True
    print("".join(lines[-50:]))
    print(f"{name}: FAILED")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    known = ", ".join(parts(1, 1))
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{known} (default all)")
    parser.add_argument("--scale", type=float, default=1, help="1: hours of CPU time")
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    chosen = parts(options.scale, options.seed)
    if not set(options.parts) <= set(chosen):
        parser.error(f"there are the parts {known}")
    failed = [name for name in options.parts or chosen if not run(name, *chosen[name])]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
