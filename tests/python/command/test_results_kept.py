# SPDX-License-Identifier: Apache-2.0
"""Results are never thrown away: if the file cannot be written, they go to stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import small_host
from conftest import Run
from programs import ran
from staged import POINT, SHORT, press_ctrl_c

import headrace
from headrace._run import launches

COPY = ["bench", "copy", "--sizes", "4KiB", "--engines", "memcpy", "--rounds", "1"]
HISTOGRAM = ["bench", "histogram", "--size", "80KB", "--threads", "1", "--rounds", "1"]
STREAM = ["bench", "stream", "--size", "80KB", "--threads", "1", "--repetitions", "1"]
MEASURE = ["measure", *POINT]
PREDICT = ["predict", "copy", "--by", "dsa"]

#: The command, of which something is replaced by what fails.
FAILING = """
{short}
import subprocess, sys
import headrace
from headrace import _files
from headrace_bench.commands import copy as bench_copy
from headrace._cli import main, measuring
def fail(*_, **__):
    raise {error}
{what} = fail
sys.argv = ["headrace", *{arguments}]
main()
"""


def failing(
    what: str, error: str, arguments: list[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    script = FAILING.format(short=SHORT, what=what, error=error, arguments=arguments)
    return ran(script, cwd=folder)


@pytest.mark.parametrize("asked", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize(
    "arguments", [COPY, HISTOGRAM, STREAM, MEASURE, PREDICT], ids=lambda a: a[1]
)
def test_a_full_disk(tmp_path: Path, arguments: list[str], asked: list[str]) -> None:
    full = "OSError(28, 'No space left on device')"
    result = failing("_files._replace", full, [*arguments, *asked, "--out", "out.json"], tmp_path)
    assert result.returncode == 6 and result.stderr.count("\n") == 1
    assert "No space left" in result.stderr and "on stdout instead" in result.stderr
    assert json.loads(result.stdout)["rows"]
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_whose_reader_goes_away(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def read_nothing() -> None:
        os.close(os.open(tmp_path / "pipe", os.O_RDONLY))

    # The first opening is the check before the work, if it opens at all; the command's is the next.
    reader = threading.Thread(target=read_nothing, daemon=True)
    reader.start()
    result = run(*PREDICT, "--out", "pipe")
    reader.join(30)
    if result.returncode == 0:
        pytest.skip("all of it fitted into the pipe before its reader went")
    assert result.returncode == 7 and json.loads(result.stdout)["rows"]


def test_a_pipe_gets_the_document_once(command: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_text()))
    reader.start()
    arguments = ["measure", *POINT[:-1], "4s", "--launches", "2", "--out", "pipe"]
    result = subprocess.run(
        [command, *arguments], capture_output=True, timeout=120, cwd=tmp_path,
        env=os.environ | small_host.ENVIRONMENT,
    )  # fmt: skip
    reader.join(30)
    assert result.returncode == 0, result
    assert json.loads(found[0])["rows"]


DEMO = ["demo", "--scale", "0.01", "--runs", "1", "--data", "data", "--no-png"]


def test_a_demo_that_cannot_measure_copies(tmp_path: Path) -> None:
    error = "headrace.ExhaustedError('no thread to be had')"
    result = failing("bench_copy.measure_copy", error, DEMO, tmp_path)
    assert (result.returncode, result.stderr) == (6, "headrace: no thread to be had\n")
    assert "read" in result.stdout and "report: out/report.html" in result.stdout
    document = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert document["rates"] and "copy" not in document and "query" not in document


@pytest.mark.parametrize(
    ("what", "error", "code", "told"),
    [
        (
            "subprocess.Popen",
            "BlockingIOError(11, 'Resource temporarily unavailable')",
            6,
            "cannot launch the measurement again: Resource temporarily unavailable; "
            "raise ulimit -u",
        ),
        ("measuring.measure_again", "headrace.InvalidError('damaged')", 2, "damaged"),
    ],
    ids=["no process", "damaged profile"],
)
def test_a_launch_that_fails(
    tmp_path: Path, what: str, error: str, code: int, told: str
) -> None:
    arguments = ["measure", *POINT[:-1], "6s", "--launches", "3", "--json"]
    result = failing(what, error, arguments, tmp_path)
    assert (result.returncode, result.stderr) == (code, f"headrace: {told}\n")
    assert any(row["samples"] for row in json.loads(result.stdout)["rows"])


def test_a_launch_that_is_killed_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os; os.write(2, b'warning: few rounds'); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(launches, "_COMMAND", script)
    with pytest.raises(headrace.ExhaustedError, match="was killed, as the kernel does when memory"):
        launches.measure_again(["latency"], lambda: False)


def test_several_launches_are_one_document_of_the_commands_own_output(
    command: Path, tmp_path: Path
) -> None:
    arguments = ["measure", *POINT[:-1], "4s", "--launches", "2", "--out", "/dev/stdout"]
    with (tmp_path / "out").open("w") as file:
        subprocess.run(
            [command, *arguments], stdout=file, check=True, timeout=120,
            env=os.environ | small_host.ENVIRONMENT,
        )  # fmt: skip
    text = (tmp_path / "out").read_text()
    document, end = json.JSONDecoder().raw_decode(text)
    assert document["rows"] and document["conditions"]["launches"] == "2"
    assert '"schema_version"' not in text[end:]


def test_ctrl_c_while_a_pipe_has_no_reader(command: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        [command, *PREDICT, "--out", "pipe"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=tmp_path,
    )  # fmt: skip
    opening = hex(os.O_WRONLY | os.O_CLOEXEC)
    place = Path(f"/proc/{process.pid}/syscall")
    end = time.monotonic() + 60
    while opening not in place.read_text().split() and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (
        130, "headrace: interrupted; the document is on stdout instead\n"
    )  # fmt: skip
    assert json.loads(out)["rows"]


def test_ctrl_c_while_a_demos_data_are_made(tmp_path: Path) -> None:
    result = press_ctrl_c(DEMO, tmp_path, 1, "TPC-H")
    assert (result.returncode, result.stderr) == (
        130, "headrace: interrupted; results cover the time until then\n",
    )
    document = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert document["rates"] and document["copy"]["rows"] and "query" not in document
    assert list((tmp_path / "data").iterdir()) == []
