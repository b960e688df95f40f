# SPDX-License-Identifier: Apache-2.0
"""Test programs with one file of the library replaced, built in seconds, from ASan's build.

explore_test, which no sanitizer may be in, is from the release build.

The changed file alone is compiled, with the command of the unit that includes it, and linked in
front of the library. The linker takes the first definition of each function. Calls that the library
has inlined stay as they were, so whoever changes a small function compiles its callers too.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import steps

ROOT = Path(__file__).resolve().parent.parent
PRESET = "asan"
BUILD = ROOT / "build" / PRESET
#: Programs of other builds. They compile units of their own, with this in the names of the objects.
OTHERS = {"explore_test": ("release", "/explore")}
#: Seconds of wall time for one command: a defect may let threads wait for each other.
BOUND = 300
#: Warnings are no errors; clang's analysis of locks is one of the tests.
WARNINGS = ["-Wno-error", "-Werror=thread-safety"]
#: As the preset has it: the compiler's cache knows what was compiled in an earlier run.
CACHED = ["env", "CCACHE_DEPEND=1", "CCACHE_SLOPPINESS=pch_defines,time_macros", "ccache"]


@dataclass(frozen=True)
class Ended:
    status: int
    cpu_seconds: float
    said: str


def environment() -> dict[str, str]:
    """The environment in which `make test` runs the tests."""
    asan = next(step.environment for step in steps.all_steps() if step.name == PRESET)
    # A file that is linked twice defines its globals twice.
    options = f"{asan.get('ASAN_OPTIONS', '')}:detect_odr_violation=0"
    more = {"ASAN_OPTIONS": options, "GTEST_FAIL_FAST": "1", "HEADRACE_EXPLORE_SCHEDULES": "3000"}
    return os.environ | asan | more


class Commands:
    """Runs commands, each in a process group of its own, from any thread."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._stopped = False
        self._mutex = threading.Lock()

    def run(self, command: list[str], log: Path, folder: Path | None = None) -> Ended:
        """Runs a command for at most BOUND seconds. Nothing that it started is left."""
        with self._mutex, log.open("wb") as out:
            if self._stopped:
                raise InterruptedError
            process = subprocess.Popen(
                command, cwd=folder or BUILD, env=environment(), stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, process_group=0)  # fmt: skip
            self._groups.add(process.pid)
        late = threading.Event()
        timer = threading.Timer(BOUND, lambda: (late.set(), _kill(process.pid)))
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        _kill(process.pid)
        with self._mutex:
            self._groups.remove(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        said = log.read_text(errors="replace")
        said += f"\nno end within {BOUND} s\n" if late.is_set() else ""
        return Ended(process.returncode, usage.ru_utime + usage.ru_stime, said)

    def stop(self) -> None:
        """Ends all that run. No other command starts."""
        with self._mutex:
            self._stopped = True
            for group in self._groups:
                _kill(group)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def preset_of(program: str) -> str:
    return OTHERS.get(program, (PRESET, ""))[0]


def folder_of(program: str) -> Path:
    return BUILD.parent / preset_of(program)


def build(programs: list[str]) -> str:
    """Builds test programs as they are. Returns the compiler's complaint, or an empty text."""
    for preset in sorted({preset_of(program) for program in programs}):
        targets = " ".join(program for program in programs if preset_of(program) == preset)
        # Configured once only: the tests of the same build may be running.
        configure = f"[ -f build/{preset}/build.ninja ] || cmake --preset {preset}"
        make = f"cmake --build --preset {preset} -j $JOBS --target {targets}"
        done = subprocess.run(
            ["bash", "-c", f"set -e\n{configure}\n{make}"],
            cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode != 0:
            return (done.stdout + done.stderr)[-2000:]
    return ""


def path_of(program: str) -> Path:
    places = (folder_of(program) / program, folder_of(program) / "tests" / program)
    return next(path for path in places if path.is_file())


class Units:
    """The commands by which the build of a program compiles and links."""

    def __init__(self, program: str) -> None:
        self.folder = folder_of(program)
        mark = OTHERS.get(program, ("", ""))[1]
        self._warnings = WARNINGS if mark == "" else ["-w"]  # GCC compiles the others
        units = json.loads((self.folder / "compile_commands.json").read_text())
        self._units = [unit for unit in units if mark in unit["command"]]
        self._texts = {
            unit["file"]: Path(unit["file"]).read_text()
            for unit in self._units
            if "/Unity/" in unit["file"]
        }

    def compile(self, source: str, changed: Path, out: Path) -> list[str]:
        """Compiles a source file of the tree. Files below `changed` replace those of the tree."""
        path = str(ROOT / source)
        unit = next(
            unit for unit in self._units
            if unit["file"] == path or f'"{path}"' in self._texts.get(unit["file"], "")
        )  # fmt: skip
        command = shlex.split(unit["command"])
        copy = changed / source
        command[command.index("-o") + 1] = str(out)
        command[command.index("-c") + 1] = str(copy if copy.is_file() else path)
        before = [f"-I{changed / folder}" for folder in ("src", "include", "")]
        return [*CACHED, command[0], *before, *command[1:], *self._warnings]

    def link(self, program: str, objects: list[Path], out: Path) -> list[str]:
        listed = subprocess.run(
            ["ninja", "-C", self.folder, "-t", "commands", "-s",
             str(path_of(program).relative_to(self.folder))],
            capture_output=True, text=True, check=True)  # fmt: skip
        line = next(line for line in listed.stdout.splitlines() if " -o " in line)
        command = shlex.split(line.split("&& ", 1)[1].rsplit(" && ", 1)[0])
        command[command.index("-o") + 1] = str(out)
        return [command[0], *map(str, objects), "-Wl,-z,muldefs", *command[1:]]
