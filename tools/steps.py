#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The steps of `make test` (docs/design/tests.md says what each is for).

Each step prints one line and the notes of its log; the log of a step that fails follows it. Exit
status 1 if any failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scheduler import Outcome, Step, run

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"

def jobs() -> int:
    done = subprocess.run([ROOT / "tools" / "jobs.sh"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:  # it said why
        sys.exit(done.returncode)
    return int(done.stdout)


JOBS = jobs()
TIMES = ROOT / "tools" / "test_times.json"

#: A step that takes more CPU than FACTOR times its kept time, and SLACK_SECONDS more, gets a note.
#: A busy machine does not double it.
FACTOR, SLACK_SECONDS = 2.0, 10.0

#: Lines of ctest and GoogleTest about tests that passed.
PASSED = re.compile(r" *\d+/\d+ Test +#\d+: .* Passed |\[ +OK \] ")

#: Steps whose time is a network's.
NETWORK = {
    "packages", "pip", "engines", "docs", "guest-prepare", "aarch64-prepare", "bare", "bare-trixie",
}  # fmt: skip

#: The program that names the lines of a report; clang's own choice may be another LLVM's.
NAMES = "external_symbolizer_path=/usr/bin/addr2line"
SANITIZERS = {
    "ASAN_OPTIONS": f"detect_stack_use_after_return=1:{NAMES}",
    "UBSAN_OPTIONS": f"print_stacktrace=1:{NAMES}",
    "TSAN_OPTIONS": f"halt_on_error=1:second_deadlock_stack=1:{NAMES}:"
    f"suppressions=\"{ROOT / 'tests' / 'tsan.txt'}\"",  # a path may have blanks and colons
}

#: Where the compiler's cache and name are not chosen: as in the Makefile.
DEFAULTS = {
    "CCACHE_DIR": str(ROOT / ".cache" / "ccache"), "CCACHE_BASEDIR": str(ROOT),
    "CCACHE_NOHASHDIR": "1", "CXX": "/usr/bin/c++",
    # Objects serve other versions of these headers, whose ABI is stable.
    "CCACHE_IGNOREHEADERS":
        ":".join(f"/usr/include/{n}" for n in ("linux", "python3.11", "python3.12", "python3.13")),
}  # fmt: skip

# Most modules of the packages are never imported; a first import writes the module's bytecode.
LITTLE_BYTECODE = {} if "PYTHONDONTWRITEBYTECODE" in os.environ else {"PIP_COMPILE": "0"}

# Prints the path of tcmalloc, with which compilers are faster, or nothing if it is not installed.
HEAP = "/sbin/ldconfig -p | awk '/libtcmalloc_minimal[.]so[.]4 / {print $NF; exit}'"
NO_WARNING = "awk '{print} /warning:/ {found = 1} END {exit found}'"
CLEAN = "{ cmake --build --preset release --target clean; false; }"
FORMAT = "git ls-files -z -- '*.cpp' '*.h' | xargs -0 clang-format-19 --dry-run -Werror"
# Each file alone, as clang 19 sees it.
CLANG_TIDY = """\
cmake --preset tidy >/dev/null
cmake --build --preset tidy --target headrace headrace_benchmarks
git ls-files -z -- 'src/*.cpp' 'dsa_sim/*.cpp' 'tests/support/dsa/*.cpp' \
  'benchmarks/*.cpp' ':!benchmarks/python' |
  grep -zvE '_(test|bench|fuzz)\\.cpp$' |
  xargs -0 -n 2 -P "$JOBS" clang-tidy-19 -p build/tidy --quiet"""


# On the driver of a real GPU.
REAL_GPU = """\
export HEADRACE_TEST_LIBCUDA=${HEADRACE_TEST_LIBCUDA:-libcuda.so.1} HEADRACE_GPU_TRANSFERS=20000
build/release/tests/conformance_test --gtest_filter='Cuda/*:GpuTransfers*' --gtest_brief=1
.venv/bin/python -m pytest -q tests/python/extension/test_gpu_arrays.py"""


def build(preset: str, *targets: str) -> str:
    """Configures and builds targets of a preset."""
    names = f" --target {' '.join(targets)}" if targets else ""
    return (
        f"tools/fresh.sh build/{preset}\ncmake --preset {preset} >/dev/null\n"
        f"LD_PRELOAD=$({HEAP}) cmake --build --preset {preset} -j $JOBS{names}"
    )


def tests(preset: str, *filters: str) -> str:
    return f"ctest --preset {preset} -j $JOBS --no-tests=error {' '.join(filters)}"


def on_bookworm() -> bool:
    release = Path("/etc/os-release")
    return release.is_file() and "VERSION_CODENAME=bookworm" in release.read_text().splitlines()


def all_steps(whole: bool = False) -> list[Step]:
    """The steps of `make test`, in the order in which they are started, as far as they may.

    whole: with the numbers of `--all`, which docs/design/tests.md compares.
    """
    cases = {"RC_PARAMS": f"max_success={100 if whole else 25}"}
    transfers = {"HEADRACE_GPU_TRANSFERS": "1500" if whole else "500"}
    asan = SANITIZERS | cases | transfers | {
        "HEADRACE_DSA_DESCRIPTORS": "50000" if whole else "5000",
        "HEADRACE_COVERAGE_RUNS": "1000" if whole else "200",
        **({"HEADRACE_EVERY_MUTATION": "1"} if whole else {}),
        # hwloc's plugin for PCI, which comes with Open MPI, leaks when it is unloaded.
        "HWLOC_PLUGINS_BLACKLIST": "hwloc_pci.so",
    }
    # Random operations in full are ASan's; what races does so in fewer.
    tsan = SANITIZERS | transfers | {"RC_PARAMS": f"max_success={30 if whole else 10}"}
    release = {"HEADRACE_EXPLORE_SCHEDULES": "1000" if whole else "185"} | cases
    racing = "threaded" if whole else "racing"
    sanitized = () if whole else ("sanitized",)
    slow = ' -m "slow or not slow"' if whole else ""
    # Debian 12 builds and runs the same tests in the step `release`.
    unit = " unit" if whole or not on_bookworm() else ""
    packages = ("packages",)
    return [
        Step("packages", "tools/setup.sh tools/packages.txt tools/packages-test.txt"),
        # GCC's warnings are errors here; a cached object repeats its own.
        Step("build-release",
             f"{build('release', 'optimised')} | {NO_WARNING} || {CLEAN}", packages, is_build=True),
        Step("house", "python3 tools/tidy.py", packages),
        Step("format", FORMAT, packages),
        Step("docs", "make -s docs", packages, False, LITTLE_BYTECODE),
        Step("ptx", "tools/make_ptx.sh --check", packages),
        Step("pip", "make -s .venv/.requirements-installed", packages, False, LITTLE_BYTECODE),
        Step("engines", "tools/engines.sh", ("pip",)),
        Step("abi", "tests/abi/check_cuda.sh build/abi", ("pip",)),
        Step("guest-prepare", "tests/guest/prepare.sh build/guest", packages),
        Step("package", "make install", ("build-release", "pip"), is_build=True),
        Step("build-asan", build("asan", *sanitized), packages, is_build=True),
        Step("build-tsan", build("tsan", racing), packages, is_build=True),
        Step("headers",
             build("release", "headrace_headers_cxx20",
                   *whole * ["all_verify_interface_header_sets"]), packages, True),
        Step("install", "tests/install/run.sh build/install", ("build-release",), True),
        Step("guest", "tests/guest/run_tests.sh build/release" + whole * " --all",
             ("build-release", "guest-prepare", "package")),
        Step("release", tests("release", "-L optimised"), ("build-release",), False, release),
        Step("types",
             ".venv/bin/python -m mypy --strict python/headrace"
             " benchmarks/{python,peers,llm_engine}",
             ("package",)),
        # "engines" builds the programs that tests need, so that no test is skipped.
        Step("python",
             f".venv/bin/python -m pytest -q -n $JOBS --dist worksteal{slow} tests/python",
             ("package", "engines"), False, {"HEADRACE_EVERY_TEST": "1"}),
        Step("bare",
             'HEADRACE_BARE_CCACHE="$CCACHE_DIR" tests/bare/run.sh bookworm demo package' + unit,
             ("package",)),
        Step("asan", tests("asan", *(f"-L {label}" for label in sanitized)), ("build-asan",),
             False, asan),
        Step("mutate", "python3 tools/mutate.py" + (not whole) * " --quick", ("build-asan",)),
        Step("tsan", tests("tsan", f"-L {racing}"), ("build-tsan",), False, tsan),
    ]  # fmt: skip


#: Minutes, so run only when named, or by `--all`.
NAMED_ONLY = [
    Step("aarch64-prepare", "tests/aarch64/prepare.sh build/aarch64-root", ("packages",)),
    Step("build-aarch64", "unset CXX\n" + build("aarch64"), ("aarch64-prepare",), True),
    Step("aarch64", tests("aarch64"), ("build-aarch64",)),
    Step("bare-trixie", "tests/bare/run.sh trixie demo package unit wheel", ("packages",)),
    Step("bare-bookworm", "tests/bare/run.sh bookworm wheel", ("packages",)),
    Step("hardened", build("hardened"), ("packages",), is_build=True),
    Step("benchmarks",
         f"{build('release', 'benchmarks')} | {NO_WARNING}\n"
         + tests("release", "-L benchmarks"),
         ("build-release",), True),
    Step("clang-tidy", CLANG_TIDY, ("packages",), is_build=True),
]

#: Ask for hardware, so run only when named.
ON_HARDWARE = [Step("gpu", REAL_GPU, ("build-release", "package"))]


def with_conditions(names: Sequence[str], steps: Sequence[Step]) -> list[Step]:
    """The named steps and all that must have passed before them."""
    by_name = {step.name: step for step in steps}
    wanted: set[str] = set()
    left = list(names)
    while left:
        if (name := left.pop()) not in wanted:
            wanted.add(name)
            left += by_name[name].after
    return [step for step in steps if step.name in wanted]


class Times:
    """The CPU time that each step may take: kept in a file, and only made shorter by this."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[str, float] = json.loads(path.read_text()) if path.is_file() else {}

    def key(self, outcome: Outcome) -> str | None:
        """Name under which the time of a step is kept; None if the time means nothing."""
        name = outcome.step.name
        if not outcome.passed or name in NETWORK:
            return None
        if not outcome.step.is_build:
            return name
        hits, misses = cache_use(LOGS / f"{name}.ccache")
        if misses == 0:
            return f"{name}, cached"
        return name if misses > hits else None

    def complaint(self, outcome: Outcome) -> str | None:
        key = self.key(outcome)
        if key is None or key not in self.kept:
            return None
        if outcome.cpu_seconds <= self.kept[key] * FACTOR + SLACK_SECONDS:
            return None
        return f"note: {key} took {outcome.cpu_seconds:.0f} s of CPU; {self.kept[key]:.0f} are kept"

    def tighten(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if (key := self.key(outcome)) is not None:
                now = round(outcome.cpu_seconds, 1)
                self.kept[key] = min(now, self.kept.get(key, now))
        self.path.write_text(json.dumps(dict(sorted(self.kept.items())), indent=2) + "\n")


def cache_use(log: Path) -> tuple[int, int]:
    """How many objects of a step the compiler's cache had, and how many it had not."""
    lines = log.read_text().splitlines() if log.is_file() else []
    return sum(line.endswith("_cache_hit") for line in lines), lines.count("cache_miss")


def eventful(lines: Sequence[str]) -> list[str]:
    """Without tests that passed, which would hide what a failed one said."""
    passed = [line.split("] ")[-1].split(" (")[0] for line in lines if PASSED.match(line)]
    begun = {f"[ RUN      ] {name}" for name in passed}
    return [
        line for line in lines
        if not PASSED.match(line) and line not in begun and not line.startswith("    Start ")
    ]


def tell(outcome: Outcome, times: Times) -> None:
    """One line, the notes of its log, and of a failure the log's end."""
    name, log = outcome.step.name, LOGS / f"{outcome.step.name}.log"
    word = "ok" if outcome.passed else "FAILED"
    used = f"{outcome.seconds:5.0f} s {outcome.cpu_seconds:6.0f} s of CPU"
    print(f"{word:<7} {name:<14} {used}  {outcome.reason}".rstrip())
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    if outcome.passed:
        told = [line for line in lines if line.startswith("note: ")]
        told += filter(None, [times.complaint(outcome)])
        print("\n".join(told), end="\n" if told else "", flush=True)
    elif outcome.seconds > 0:
        print("\n".join(eventful(lines)[-120:]))
        print(f"(whole log: {log.relative_to(ROOT)})", flush=True)


def prepare(steps: Sequence[Step]) -> None:
    """The environment of every step, and no log of an earlier run."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("JOBS", str(JOBS))
    try:
        LOGS.mkdir(parents=True, exist_ok=True)
        for step in steps:
            (LOGS / f"{step.name}.log").unlink(missing_ok=True)
            cache_log = LOGS / f"{step.name}.ccache"
            cache_log.unlink(missing_ok=True)
            if step.is_build:
                step.environment["CCACHE_STATSLOG"] = str(cache_log)
    except OSError as error:
        sys.exit(f"test.sh: nothing can be built in {ROOT} ({error.strerror}); is it another "
                 "user's? clone it elsewhere")


def chosen(arguments: argparse.Namespace) -> list[Step]:
    everything = all_steps(arguments.all)
    named = everything + NAMED_ONLY + ON_HARDWARE
    unknown = set(arguments.steps) - {step.name for step in named}
    if unknown:
        names = " ".join(step.name for step in named)
        sys.exit(f"test.sh: no step {', '.join(sorted(unknown))}; there are: {names}")
    if arguments.all:
        return everything + NAMED_ONLY
    if not arguments.steps:
        return everything
    return with_conditions(arguments.steps, named)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="test.sh", description="Runs every test of the project from nothing."
    )
    parser.add_argument("steps", nargs="*", metavar="STEP",
                        help="only these, and what they need")
    parser.add_argument("--all", action="store_true",
                        help="every step, those that run only when named too, with large numbers")
    parser.add_argument("--update", action="store_true",
                        help=f"keep shorter times in {TIMES.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if arguments.all and arguments.steps:
        parser.error("--all runs every step; name none")
    steps = chosen(arguments)
    prepare(steps)
    times = Times(TIMES)
    begin = time.monotonic()
    outcomes = run(steps, LOGS, lambda outcome: tell(outcome, times))
    if arguments.update:
        times.tighten(outcomes)
    passed = sum(outcome.passed for outcome in outcomes)
    cpu = sum(outcome.cpu_seconds for outcome in outcomes)
    print(f"whole {time.monotonic() - begin:18.0f} s {cpu:6.0f} s of CPU")
    print(f"{passed} passed, {len(outcomes) - passed} failed")
    return 0 if passed == len(outcomes) else 1


def interrupt(signal_number: int, frame: object) -> None:
    raise KeyboardInterrupt


def stop_on_signals() -> None:
    """Makes a closed terminal and a cancelled job stop all steps, as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


if __name__ == "__main__":
    stop_on_signals()
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # all steps are stopped
        print("test.sh: interrupted", file=sys.stderr)
        sys.exit(130)
