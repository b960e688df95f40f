# SPDX-License-Identifier: Apache-2.0
"""Peers that come as a source: multichase and STREAM, built in a temporary folder.

A path is a program that was built already, a source tree, or for STREAM its one file, `stream.c`.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

#: As STREAM's users build it; `-mcmodel=medium` is needed for static arrays beyond 2 GiB on x86.
STREAM_FLAGS = ["-O3", "-march=native", "-fopenmp"]
#: Those of its Makefile (google/multichase), but for warnings and -Werror.
MULTICHASE_FLAGS = "-std=gnu99 -g -O3 -fomit-frame-pointer -fno-unroll-loops -pthread"
_BUILD_SECONDS = 300
_LAST_LINES = 3


class CannotBuild(Exception):
    """Why a peer was not built, in one line."""


def is_program(path: Path) -> bool:
    return path.is_file() and path.suffix != ".c" and os.access(path, os.X_OK)


def compiler() -> str:
    return os.environ.get("CC", "cc")


def stream_source(path: Path) -> Path:
    """The file of STREAM; CannotBuild where there is none."""
    file = path / "stream.c" if path.is_dir() else path
    if not file.is_file():
        raise CannotBuild(f"{path} has no stream.c and is no program; give one of them")
    return file


def build_stream(path: Path, elements: int, folder: Path, extra: list[str]) -> Path:
    """Builds STREAM with a number of elements per array, and with further flags."""
    program = folder / f"stream-{len(list(folder.iterdir()))}"
    flags = [*STREAM_FLAGS, *(["-mcmodel=medium"] if platform.machine() == "x86_64" else [])]
    size = [f"-DSTREAM_ARRAY_SIZE={elements}", "-DNTIMES=10"]
    _run([compiler(), *flags, *size, *extra, str(stream_source(path)), "-o", str(program)])
    return program


def build_multichase(path: Path, folder: Path) -> Path:
    """The program multichase of a source tree."""
    if not (path / "Makefile").is_file():
        raise CannotBuild(f"{path} has no Makefile and is no program; give one of them")
    copy = folder / "multichase"
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns("*.o", ".git", "multichase"))
    _run(["make", "-C", str(copy), "multichase", f"CFLAGS={MULTICHASE_FLAGS}"])
    return copy / "multichase"


def build_pages(folder: Path) -> Path:
    """The library that puts static arrays on other pages (pages.c)."""
    library = folder / "pages.so"
    source = Path(__file__).parent / "pages.c"
    _run([compiler(), "-O2", "-shared", "-fPIC", str(source), "-o", str(library)])
    return library


def build_streams(folder: Path) -> Path:
    """The loop written by hand (streams.c), for this processor."""
    program = folder / "streams"
    source = Path(__file__).parent / "streams.c"
    _run([compiler(), "-O3", "-march=native", "-pthread", str(source), "-o", str(program)])
    return program


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=_BUILD_SECONDS)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split("\n")[:_LAST_LINES])
        raise CannotBuild(f"{' '.join(command)}: {said.strip()}")
