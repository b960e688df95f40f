# SPDX-License-Identifier: Apache-2.0
"""Foreign libraries in a process of their own: their deaths are errors of one sentence."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import report_documents as documents

import headrace
from headrace._cli import report
from headrace._isolated_calls import Child, call


def test_a_function_is_called_in_another_process() -> None:
    with Child("the library") as child:
        first = child.call(os.getpid)
        assert first != os.getpid() and child.call(os.getpid) == first
        assert child.call(divmod, 7, 3) == (2, 1)


DEATHS: dict[str, tuple[Callable[..., object], object, type[Exception], str]] = {
    "abort": (os.abort, None, headrace.IoError, "the library ended by SIGABRT; headrace doctor"),
    "exit": (os._exit, 3, headrace.IoError, "the library ended with exit code 3; "),
    "killed": (signal.raise_signal, 9, headrace.ExhaustedError, "the library was killed, as the"),
    "real-time signal": (signal.raise_signal, 36, headrace.IoError, "ended by signal 36; headrace"),
    "exception": (int, "x", headrace.IoError, "the library failed: invalid literal for int"),
    "no exception": (sys.exit, "a panic", headrace.IoError, "the library failed: a panic"),
    "ours": (report.read, Path("none"), headrace.AbsentError, "no file none"),
    "system": (os.listdir, "/none", FileNotFoundError, "No such file or directory"),
}
#: Under a limit of address space, which is not blamed for all.
LIMITED: dict[str, tuple[Callable[..., object], object, type[Exception], str]] = DEATHS | {
    "abort": (os.abort, None, headrace.ExhaustedError, "SIGABRT where ulimit -v allows 4.0 GB"),
    "ended": (signal.raise_signal, 15, headrace.IoError, "ended by SIGTERM; "),
}


@pytest.mark.parametrize("limited", [False, True], ids=["without a limit", "with a limit"])
@pytest.mark.parametrize("how", LIMITED)
def test_failure_in_the_child_is_an_error_here(
    monkeypatch: pytest.MonkeyPatch, how: str, limited: bool
) -> None:
    if limited:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (4_000_000_000, -1))
    function, argument, error, words = (LIMITED if limited else {**LIMITED, **DEATHS})[how]
    with pytest.raises(error, match=words):
        call("the library", function, *([] if argument is None else [argument]))


def test_a_child_that_cannot_be_started_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(headrace.ExhaustedError, match="^cannot start the library: Too many"):
            Child("the library")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def no_process(*_: object, **__: object) -> None:
        raise BlockingIOError(11, os.strerror(11))

    monkeypatch.setattr(subprocess, "Popen", no_process)
    told = "^cannot start the library: Resource temporarily unavailable; raise ulimit -u$"
    with pytest.raises(headrace.ExhaustedError, match=told):
        Child("the library")


def test_a_child_that_died_stays_dead() -> None:
    with Child("the library") as child:
        for _ in range(2):
            with pytest.raises(headrace.IoError, match="ended with exit code 3"):
                child.call(os._exit, 3)


def test_nobody_waits_longer_than_wanted() -> None:
    with pytest.raises(headrace.TimedOutError, match="no answer within 0.1 s"):
        call("the library", time.sleep, 600, seconds=0.1)
    looks = iter([False, True])
    with Child("the library") as child, pytest.raises(headrace.CancelledError):
        child.call(time.sleep, 600, stop=lambda: next(looks))


def test_a_picture_under_a_limit_of_memory_is_one_line(command: Path, tmp_path: Path) -> None:
    """V8 asks for far more address space than it uses, and ends its process without it."""
    pytest.importorskip("vl_convert")
    (tmp_path / "demo.json").write_text(json.dumps(documents.whole() | {"kind": "demo"}))
    own = "XDG_CACHE_HOME=$PWD"  # where no earlier report kept its scripts
    shell = f"ulimit -v 4000000; {own} exec {command} report demo.json --html page.html"
    result = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert (result.returncode, result.stdout) == (6, "")
    told = "headrace: the picture writer (vl-convert) ended by SIGTRAP where ulimit -v allows "
    assert result.stderr == f"{told}4.1 GB of address space; raise it or do without\n"
    assert not (tmp_path / "page.html").exists()
