# SPDX-License-Identifier: Apache-2.0
"""The forks that tests run commands in: as a start in all that tests see of it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import Run
from forked import can_fork, clean_environment
from programs import ran


@pytest.mark.parametrize("arguments", [
    ["--version"], [], ["topo", "--from", "xeon-max"], ["topo", "--from", "none.json"],
    ["export", "xeon-max", "--as", "csv", "--out", "out.csv"], ["bench", "copy", "--rounds", "²"],
], ids=" ".join)  # fmt: skip
def test_a_fork_does_what_a_start_does(
    run: Run, command: Path, tmp_path: Path, arguments: list[str]
) -> None:
    forked = run(*arguments)
    started = subprocess.run(
        [command, *arguments], capture_output=True, text=True, env=clean_environment(), cwd=tmp_path
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode, started.stdout, started.stderr
    )  # fmt: skip


def test_directory_environment_and_signals_are_its_own(tmp_path: Path) -> None:
    looks = "import os, signal; print(os.getcwd(), signal.getsignal(2) is signal.SIG_IGN)"
    assert ran(looks, cwd=tmp_path).stdout == f"{tmp_path} False\n"
    changes = "import os; os.chdir('/'); os.environ['HEADRACE_NODES'] = 'zero'"
    assert ran(changes, cwd=tmp_path).returncode == 0
    left = ran("import os, sys; print(os.getcwd(), 'HEADRACE_NODES' in os.environ)", cwd=tmp_path)
    assert left.stdout == f"{tmp_path} False\n"


def test_how_it_ends_is_known() -> None:
    end = "import os, sys; sys.stderr.write('why\\n'); os.kill(os.getpid(), 9)"
    assert (ended := ran(end)).returncode == -signal.SIGKILL and ended.stderr == "why\n"
    assert ran("raise SystemExit(7)").returncode == 7
    assert "ValueError: odd" in (failed := ran("raise ValueError('odd')")).stderr
    assert failed.returncode == 1
    assert ran("import atexit; atexit.register(print, 'at the end')").stdout == "at the end\n"


def test_slow_command_is_killed_and_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired, match="'--watch', '600'"):
        run("tier", "status", "--watch", "600", timeout=0.5)
    waits = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\n" \
            "print('so far', flush=True)\ntime.sleep(60)"  # fmt: skip
    with pytest.raises(subprocess.TimeoutExpired) as expired:
        ran(waits, cwd=tmp_path, timeout=2)
    assert expired.value.stdout == "so far\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert run("--version").returncode == 0, "the next is forked as before"


def test_variables_read_at_start_need_a_new_process() -> None:
    for name in ("PYTHONIOENCODING", "LC_ALL", "LD_PRELOAD", "TERM"):
        assert not can_fork(clean_environment() | {name: "odd"})
    assert can_fork(clean_environment() | {"HEADRACE_NODES": "0=hbm", "COLUMNS": "200"})
