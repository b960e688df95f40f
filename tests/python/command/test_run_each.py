"""What the tests run commands by: nothing outlives it, and it says what went wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import finished

RunEach = Callable[..., "Iterator[subprocess.CompletedProcess[str]]"]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_outlives_its_time(tmp_path: Path) -> None:
    in_time, printed, _ = finished(["sh", "-c", "sleep 600 >&- 2>&- & echo $!; wait"], tmp_path, 2)
    assert not in_time
    until = time.monotonic() + 10
    while _runs(int(printed)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _runs(int(printed))


def test_why_it_failed_is_told(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the reason"):
        finished([sys.executable, "-c", "raise SystemExit('the reason')"], tmp_path, 60)


def test_the_command_that_takes_too_long_is_named(run_each: RunEach) -> None:
    with pytest.raises(AssertionError, match=r"there ran: .*'--watch', '600'"):
        list(run_each([["tier", "status", "--watch", "600"]], timeout=0.5))


def test_the_directory_of_a_command_is_its_own(run_each: RunEach, tmp_path: Path) -> None:
    (done,) = run_each([["topo", "--from", "none.json"]])
    assert done.returncode == 3 and "none.json" in done.stderr and not done.stdout
    assert list(tmp_path.iterdir()) == []
