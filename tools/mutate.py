#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one defect after the other and shows that a test notices each.

tools/mutations/AREA.toml lists the defects; one_file.py says how a program gets one. The working
tree stays as it is.

Exit status: 1 if a defect was not noticed, 2 if one no longer applies or does not compile.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import one_file
import steps
from one_file import ROOT, Commands, Units

TABLE = ROOT / "tools" / "mutations"
WORK = ROOT / "build" / "mutate"


@dataclass(frozen=True)
class Mutation:
    area: str
    #: The broken promise.
    name: str
    file: str
    code: str
    broken: str
    #: Filter of the tests that run, as --gtest_filter takes it.
    tests: str
    #: The source files, and tests, that have its functions inlined; default: the file itself.
    compiled: tuple[str, ...] = ()
    #: How often the tests run, for defects that only a race shows.
    repeat: int = 1
    #: `make test` plants it.
    quick: bool = False
    #: The test program; default: the one of the file's folder.
    runs: str = ""

    @property
    def program(self) -> str:
        if self.runs:
            return self.runs
        folder = Path(self.file).parent.as_posix().removeprefix("src/")
        return folder.replace("/", "_") + "_test"

    def applies(self) -> bool:
        return (ROOT / self.file).read_text().count(self.code) == 1


def table() -> list[Mutation]:
    found = []
    for path in sorted(TABLE.glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text())["mutation"]
            found += [Mutation(area=path.stem, **entry) for entry in entries]
        except (tomllib.TOMLDecodeError, TypeError, KeyError) as error:
            print(f"mutate.py: {path.name} is no table of defects: {error}", file=sys.stderr)
            sys.exit(2)
    for mutation in found:
        if not (ROOT / mutation.file).is_file():
            print(f"mutate.py: {mutation.name}: no file {mutation.file}", file=sys.stderr)
            sys.exit(2)
    return found


def failing(said: str) -> str:
    """Which test of a program failed, and how if not by an expectation."""
    running = re.findall(r"\[ RUN      \] (\S+)", said)
    failed = re.findall(r"\[  FAILED  \] ([\w/]+\.[\w/]+)", said)
    signs = r"FAILED: [^(:\n]+|CHECK failed|Sanitizer: [\w-]+|runtime error|no end within [\d.]+ s"
    how = re.search(signs, said)
    name = failed[0] if failed else running[-1] if running else "its start"
    return f"{name}: {how[0]}" if how else name


@dataclass(frozen=True)
class Outcome:
    word: str  # noticed, NOT NOTICED or STALE
    why: str = ""
    cpu_seconds: float = 0


def plant(mutation: Mutation, units: Units, commands: Commands) -> Outcome:
    if not mutation.applies():
        return Outcome("STALE", f"its code is not in {mutation.file} once")
    # A path of its own that is the same in each run, for the compiler's cache.
    folder = WORK / re.sub(r"\W+", "-", mutation.name)
    changed = folder / "tree" / mutation.file
    changed.parent.mkdir(parents=True)
    text = (ROOT / mutation.file).read_text()
    changed.write_text(text.replace(mutation.code, mutation.broken))
    log, program = folder / "log", folder / mutation.program
    objects: list[Path] = []
    seconds = 0.0
    for source in mutation.compiled or (mutation.file,):
        objects.append(folder / f"{len(objects)}.o")
        compiling = units.compile(source, folder / "tree", objects[-1])
        done = commands.run(compiling, log, units.folder)
        seconds += done.cpu_seconds
        if done.status != 0 and "-Wthread-safety" in done.said:
            return Outcome("noticed", "clang's thread-safety analysis", seconds)
        if done.status != 0:
            return Outcome("STALE", f"it does not compile\n{done.said[-2000:]}", seconds)
    done = commands.run(units.link(mutation.program, objects, program), log, units.folder)
    seconds += done.cpu_seconds
    if done.status != 0:
        return Outcome("STALE", f"it does not link\n{done.said[-2000:]}", seconds)
    filters = [f"--gtest_filter={mutation.tests}", f"--gtest_repeat={mutation.repeat}"]
    done = commands.run([str(program), *filters], log, units.folder)
    seconds += done.cpu_seconds
    shutil.rmtree(folder)
    if "Running 0 tests" in done.said:
        return Outcome("STALE", f"{mutation.program} has no test {mutation.tests}", seconds)
    if done.status == 0:
        return Outcome("NOT NOTICED", f"by {mutation.program} {mutation.tests}", seconds)
    return Outcome("noticed", failing(done.said), seconds)


def without_defects(chosen: list[Mutation], commands: Commands) -> str:
    """Builds the test programs and runs their tests. Returns what fails, or an empty text."""
    programs = sorted({mutation.program for mutation in chosen})
    if complaint := one_file.build(programs):
        return complaint
    for program in programs:
        tests = ":".join(sorted({m.tests for m in chosen if m.program == program}))
        path = one_file.path_of(program)
        testing = [str(path), f"--gtest_filter={tests}"]
        done = commands.run(testing, WORK / "log", one_file.folder_of(program))
        if done.status != 0:
            return f"{program}: {failing(done.said)}\n{done.said[-2000:]}"
    return ""


def plant_all(chosen: list[Mutation], jobs: int) -> int:
    begin = time.monotonic()
    commands = Commands()
    if why := without_defects(chosen, commands):
        print(f"without any defect: {why}")
        return 2
    units = {build: Units(build) for build in {mutation.program for mutation in chosen}}
    counts = {"noticed": 0, "NOT NOTICED": 0, "STALE": 0}
    print(f"{'':12}{'area':9} CPU  defect, and the test that fails")
    with ThreadPoolExecutor(jobs) as pool:
        try:
            outcomes = pool.map(lambda m: plant(m, units[m.program], commands), chosen)
            for mutation, each in zip(chosen, outcomes, strict=True):
                counts[each.word] += 1
                print(f"{each.word:12}{mutation.area:8}{each.cpu_seconds:5.1f}  {mutation.name}")
                print(f"{'':27}{each.why}", flush=True)
        except KeyboardInterrupt:
            commands.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(", ".join(f"{count} {word}" for word, count in counts.items()), end="; ")
    print(f"{time.monotonic() - begin:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU")
    return 2 if counts["STALE"] else 1 if counts["NOT NOTICED"] else 0


def main() -> int:
    everything = table()
    parser = argparse.ArgumentParser(
        prog="mutate.py", description="Plants defects and shows that a test notices each."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only defects whose name has this")
    parser.add_argument("--area", choices=sorted({m.area for m in everything}),
                        help="only the defects of one area")
    parser.add_argument("--quick", action="store_true", help="only those that `make test` plants")
    parser.add_argument("--list", action="store_true", help="print their names and plant none")
    parser.add_argument("--jobs", type=int, default=steps.JOBS,
                        help="number of defects planted at once (default: CPUs)")
    arguments = parser.parse_args()
    chosen = [
        m for m in everything
        if arguments.area in (None, m.area) and (m.quick or not arguments.quick)
        and (not arguments.names or any(name in m.name for name in arguments.names))
    ]  # fmt: skip
    if not chosen:
        parser.error("no such defect; --list prints their names")
    if arguments.list:
        print("\n".join(f"{m.area:9}{m.name}" for m in chosen))
        return 0
    for name, value in (steps.DEFAULTS | {"JOBS": str(steps.JOBS)}).items():
        os.environ.setdefault(name, value)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    try:
        return plant_all(chosen, max(1, arguments.jobs))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)


if __name__ == "__main__":
    steps.stop_on_signals()
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # all commands are stopped
        print("mutate.py: interrupted", file=sys.stderr)
        sys.exit(130)
