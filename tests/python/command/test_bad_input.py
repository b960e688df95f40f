# SPDX-License-Identifier: Apache-2.0
"""Requests and files that make no sense, odd terminals and tight limits: one line and a code."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import profile_documents
import pytest
import report_documents
from conftest import Run
from programs import ran

from headrace._cli.interrupt import Interrupt

NOT_TEXT = os.fsdecode(b"\xff")
REQUESTS: list[tuple[list[str], int]] = [
    (["run", "--on", NOT_TEXT, "--dry-run", "--", "true"], 2),
    (["bench", "stream", "--a", NOT_TEXT, "--size", "1MiB"], 2),
    (["bench", "query", "--query", NOT_TEXT, "--data", "data"], 2),
    (["bench", "query", "--mode", NOT_TEXT, "--data", "data"], 2),
    (["measure", NOT_TEXT], 2),
    (["bench", "histogram", "--data", NOT_TEXT], 2),
    (["export", "xeon-max", "--as", NOT_TEXT], 2),
    (["measure", "latency", "--seed", "99999999999999999999999"], 2),
    (["measure", "latency", "--seed", str(1 << 63)], 2),
    (["bench", "query", "--scale", "0.0000001", "--data", "data"], 2),
    (["bench", "query", "--scale", "nan", "--data", "data"], 2),
    (["report", "pipe"], 2),
    (["report", "/dev/zero"], 2),
    (["report", "/proc/kmsg"], 2),
    (["report", "not-utf8.json"], 2),
    (["compare", "pipe", "pipe"], 2),
    (["compare", "not-utf8.json", "not-utf8.json"], 2),
    (["topo", "--from", "pipe"], 2),
    (["topo", "--from", "/proc/self/status"], 2),
    (["export", "pipe", "--as", "csv"], 2),
    (["fleet", "pipe", "/dev/zero"], 2),
]


@pytest.mark.parametrize(("arguments", "code"), REQUESTS, ids=lambda value: str(value)[:40])
def test_one_line_and_no_defect(run: Run, tmp_path: Path, arguments: list[str], code: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "not-utf8.json").write_bytes(b'{"schema_version": 1, "rows": [], "name": "\xff"}')
    result = run(*arguments, timeout=60)
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.count("\n") == 1 and "internal error" not in result.stderr


def some_rows() -> dict[str, Any]:
    """A profile with each eighth row of every experiment; tables of all take seconds to draw."""
    document = profile_documents.profile()
    rows = sorted(document["rows"], key=lambda row: str(row["experiment"]))
    found = [list(each)[::8] for _, each in groupby(rows, key=lambda row: row["experiment"])]
    return document | {"rows": [row for each in found for row in each]}


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "latin-1", "C"],
)
def test_a_terminal_without_the_characters(
    run: Run, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "query.json").write_text(json.dumps(report_documents.query()))
    (tmp_path / "p.json").write_text(json.dumps(some_rows()))
    (tmp_path / "q.json").write_text(json.dumps(some_rows(), indent=1))
    for arguments in (
        ["compare", "p.json", "q.json", "--all"],
        ["export", "p.json", "--as", "table"],
        ["doctor"],
        ["topo", "--from", "xeon-max"],
    ):
        result = run(*arguments, env=environment, encoding="latin-1")
        assert (result.returncode, result.stderr) == (0, ""), result
    topo = result.stdout
    assert "|  |- engines 0-7" in topo and (topo.isascii() or "latin-1" in environment.values())


def extreme(middle: float, low: float, high: float) -> str:
    """A profile with these values in all its rows."""
    document = some_rows()
    for row in document["rows"]:
        if row["samples"]:
            row.update(median=middle, mad=high, min=low, low=low, max=high, high=high)
            row["samples"] = [middle, high, low, middle]
            row["details"] = {name: high for name in row["details"]}
    return json.dumps(document)


def test_the_largest_numbers_there_are(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(extreme(1.7e308, 1e-308, 1.7e308))
    (tmp_path / "b.json").write_text(extreme(1e-300, 1e-300, 1e300))
    for each, value in (("c", 1.6e308), ("d", 1.5e308)):
        (tmp_path / f"{each}.json").write_text(extreme(1.7e308, 1e-308, value))
    for arguments, code in (
        (["compare", "a.json", "b.json", "--all"], 9),
        (["compare", "b.json", "a.json", "--json"], 9),
        (["fleet", "a.json", "b.json", "c.json", "d.json"], None),
        (["export", "a.json", "--as", "table"], 0),
        (["export", "a.json", "--as", "csv"], 0),
    ):
        result = run(*arguments)
        assert result.returncode in ({0, 9} if code is None else {code}), result
        assert code is None or result.stderr == ""  # a warning if two hosts have one name
        if "--json" in arguments:
            json.loads(result.stdout)


#: It clears, colours, rings, goes on as if the next line were the command's, and turns text round.
HOSTILE = "a\x1b[2J\x1b[31m\x07\nINJECTED\r\x9b2Jb\u202egnp.\u2066\u200f"


def hostile(name: str) -> dict[str, Any]:
    """A profile in which all that may be any text is such."""
    document = some_rows() | {"name": name, "description": name}
    document["conditions"] = {"governor": name, "date": name}
    for node in document["nodes"]:
        node |= {"name": name, "reason": name}
    for row in document["rows"]:
        if row["median"] is None:
            row["reason"] = name
        row["flags"] = [*row["flags"], name]
    return document


def test_names_do_nothing_to_a_terminal(run: Run, tmp_path: Path) -> None:
    for name, text in (("p", HOSTILE), ("q", f"{HOSTILE}2"), ("r", f"{HOSTILE}3")):
        (tmp_path / f"{name}.json").write_text(json.dumps(hostile(text)))
    (tmp_path / "seen.txt").write_text(f"{HOSTILE}\n")
    for arguments in (
        ["topo", "--from", "p.json"],
        ["topo", "--from", "p.json", "--all"],
        ["topo", "--from", "p.json", "--json"],
        ["topo", "--from", "p.json", "--xml"],
        ["compare", "p.json", "q.json", "--all"],
        ["compare", "p.json", "q.json", "--json"],
        ["fleet", "p.json", "q.json", "r.json"],
        *(["export", "p.json", "--as", form]
          for form in ("table", "csv", "mlc", "nvbandwidth", "hwloc", "weights", "audit")),
        ["advise", "interleave", "--profile", "p.json", "--threads", "2"],
        ["advise", "arenas", "seen.txt", "--tier", "dram"],
        ["measure", "latency", "--dry-run", "--from", "p.json"],
        ["run", "--on", "dram", "--dry-run", "--from", "p.json", "--", "true"],
        ["measure", "latency", "--resume", "--out", "p.json"],
        ["topo", "--from", HOSTILE],
        ["bench", "copy", "--engines", HOSTILE],
    ):  # fmt: skip
        result = run(*arguments)
        said = result.stdout + result.stderr
        assert not set(said) & set("\x1b\x07\r\x9b\u202e\u2066\u200f"), (arguments, said)
        assert not any(line.startswith("INJECTED") for line in said.splitlines()), arguments
    assert r"a\x1b[2J\x1b[31m" in run("export", "p.json", "--as", "mlc").stdout


def test_a_file_has_the_names_as_they_are(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(hostile(HOSTILE)))
    assert run("export", "p.json", "--as", "mlc", "--out", "mlc.txt").returncode == 0
    assert "Headrace: a\x1b[2J\x1b[31m" in (tmp_path / "mlc.txt").read_text()
    document = json.loads(run("topo", "--from", "p.json", "--json").stdout)
    assert document["name"] == HOSTILE, "it is escaped as JSON does"


#: The command, of which a library fails in a way of its own.
FAILING = """
import sys
from headrace._cli import main, topo
class Panic(BaseException): pass
def fail(*_, **__): raise {error}
topo.output.print_text = fail
sys.argv = ["headrace", "topo", "--from", "one-node"]
main()
"""


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ("Panic('a library in Rust')", 70, "internal error: Panic: a library in Rust"),
        ("RuntimeError(\"can't start new thread\")", 6, "ulimit -u"),
        ("MemoryError()", 6, "out of memory"),
        ("OSError(24, 'Too many open files')", 6, "headrace: Too many open files\n"),
        (
            "BlockingIOError(11, 'Resource temporarily unavailable')",
            6,
            "headrace: Resource temporarily unavailable; raise ulimit -u\n",
        ),
        ("OSError(2, 'No such file', 'x.json')", 3, "headrace: x.json: No such file\n"),
    ],
)
def test_a_failure_of_a_library_is_one_line(error: str, code: int, words: str) -> None:
    result = ran(FAILING.format(error=error))
    assert result.returncode == code and words in result.stderr
    assert result.stderr.count("\n") == 1 and result.stdout == ""


def test_a_thread_that_cannot_be_started_names_the_limit() -> None:
    script = """
import resource, sys, threading, time
from headrace._errors import limit_of_threads
if sys.argv[1:]:
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20),) * 2)
print(limit_of_threads())
"""
    for arguments, limit in (([], "ulimit -u"), (["narrow"], "ulimit -v")):
        result = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=30
        )
        assert (result.stdout, result.stderr) == (f"{limit}\n", "")


#: A package that takes long to load, and Ctrl-C meanwhile.
SLOW = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"


def test_ctrl_c_while_the_command_is_loaded(command: Path, tmp_path: Path) -> None:
    (tmp_path / "headrace").mkdir()
    (tmp_path / "headrace" / "__init__.py").write_text(SLOW)
    result = subprocess.run(
        [command, "topo"], env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=30,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (-signal.SIGINT, "")


#: A command in whose middle somebody ends it.
ENDED = """
import signal, sys
from headrace._cli import compare, main, report
def end(*_, **__): signal.raise_signal(signal.{name})
compare.headrace.compare = report.write = end
sys.argv = ["headrace", *{arguments}]
main()
"""


@pytest.mark.parametrize("arguments", [["compare", "p.json", "q.json"], ["report", "p.json"]])
@pytest.mark.parametrize(
    ("name", "code", "told"),
    [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "ended by SIGTERM"),
     ("SIGHUP", 129, "ended by SIGHUP")],
)  # fmt: skip
def test_a_command_that_is_ended_says_so(
    tmp_path: Path, arguments: list[str], name: str, code: int, told: str
) -> None:
    for indent, file in enumerate(("p.json", "q.json")):
        (tmp_path / file).write_text(json.dumps(some_rows(), indent=indent))
    result = ran(ENDED.format(name=name, arguments=arguments), cwd=tmp_path)
    assert (result.returncode, result.stderr) == (code, f"headrace: {told}\n")


@pytest.mark.parametrize("arguments", [
    ["report", "FILE"], ["export", "FILE", "--as", "csv"], ["compare", "FILE", "xeon-max"],
    ["fleet", "xeon-max", "FILE"], ["topo", "--from", "FILE"],
    ["advise", "interleave", "--profile", "FILE"],
], ids=lambda each: each[0])  # fmt: skip
def test_another_schema_is_told_alike(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "new.json").write_text(json.dumps(some_rows() | {"schema_version": 99}))
    result = run(*("new.json" if word == "FILE" else word for word in arguments))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("headrace: new.json") and "schema" in result.stderr
    assert result.stderr.count("\n") == 1


#: Modules that swallow what a signal raises while they are imported, or turn it into another error.
SWALLOWS = """
import os, signal, sys
from headrace import _cli
from headrace._cli import interrupt
def _run():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        if sys.argv[1] == "another":
            return _cli._complain_of_defect(RuntimeError("cannot set a name"))
    return 0
_cli._run = _run
_cli.main()
"""


@pytest.mark.parametrize("how", ["swallowed", "another"])
def test_ctrl_c_that_a_library_swallows(how: str) -> None:
    result = ran(SWALLOWS, how, timeout=30)
    assert (result.returncode, result.stderr) == (130, "headrace: interrupted\n")


def test_ctrl_c_swallowed_in_a_step_of_which_nothing_is_kept() -> None:
    with Interrupt() as wish, pytest.raises(KeyboardInterrupt), wish.suspended():
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


#: A step that hears no signal: a mutex that is locked already.
DEAF = """
import contextlib, ctypes, sys
from headrace._cli.interrupt import Interrupt
mutex = ctypes.create_string_buffer(128)
lock = ctypes.CDLL(None).pthread_mutex_lock
lock(mutex)
with Interrupt() as interrupt:
    interrupt.keeps = {keeps}
    with interrupt.suspended() if {alone} else contextlib.nullcontext():
        print(hex(ctypes.addressof(mutex)), flush=True)
        lock(mutex)
"""


def deaf(keeps: bool, alone: bool = True) -> subprocess.Popen[str]:
    """A process in such a step, of which nothing is kept (`alone`) or something may be."""
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF.format(keeps=keeps, alone=alone)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    mutex = process.stdout.readline().strip()
    place = Path(f"/proc/{process.pid}/syscall")
    while process.poll() is None and mutex not in place.read_text().split():
        time.sleep(0.01)
    return process


LOST = "; unsaved results are lost\n"


@pytest.mark.parametrize(
    ("number", "code", "told"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM"),
     (signal.SIGHUP, 129, "ended by SIGHUP")],
)  # fmt: skip
def test_a_signal_in_a_step_that_hears_nothing(number: int, code: int, told: str) -> None:
    process = deaf(keeps=False)
    process.send_signal(number)
    assert process.communicate(timeout=30)[1] == f"headrace: {told}{LOST}"
    assert process.returncode == code


@pytest.mark.parametrize(
    ("keeps", "alone", "number", "told"),
    [
        (True, True, signal.SIGINT, ", with what was measured; Ctrl-C again ends it at once"),
        (True, False, signal.SIGINT, ", with what was measured; Ctrl-C again ends it at once"),
        (False, False, signal.SIGINT, "; Ctrl-C again ends it at once"),
        (True, True, signal.SIGTERM, ", with what was measured"),  # nobody presses Ctrl-C
        (True, True, signal.SIGHUP, ", with what was measured"),
    ],
)
def test_a_signal_in_a_step_whose_end_is_waited_for(
    keeps: bool, alone: bool, number: int, told: str
) -> None:
    process = deaf(keeps, alone)
    process.send_signal(number)
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith(f"headrace: stops after this step{told}")
    if number != signal.SIGINT:
        assert first.endswith(f"{told}\n")
        process.kill()
        process.communicate(timeout=30)
        return
    process.send_signal(number)
    assert process.communicate(timeout=30)[1] == f"headrace: interrupted{LOST}"
    assert process.returncode == 130


def test_ctrl_c_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupt()
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_a_wish_to_stop_unless_it_is_ignored(number: int) -> None:
    for handler, asked in ((signal.SIG_DFL, True), (signal.SIG_IGN, False)):
        before = signal.signal(number, handler)
        try:
            with Interrupt() as interrupt:
                os.kill(os.getpid(), number)
                assert interrupt() is asked
            assert signal.getsignal(number) is handler
        finally:
            signal.signal(number, before)


#: A command to which all that ends one is sent.
IN_THE_BACKGROUND = """
import os, signal
from headrace._cli import interrupt
def end():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
interrupt.end_with_a_line()
end()
with interrupt.Interrupt() as wish:
    with wish.suspended():
        end()
    end()
    print(wish())
end()
"""


def test_signal_ignored_by_the_shell_stays_ignored() -> None:
    """Ctrl-C for what it runs in the background, and SIGHUP under nohup."""
    script = "trap '' INT TERM HUP; exec \"$0\" -c \"$1\""
    result = subprocess.run(
        ["sh", "-c", script, sys.executable, IN_THE_BACKGROUND],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (0, "False\n", "")


#: Machines are discovered in /proc, and who writes pictures needs it.
WITHOUT_PROC = [
    ["topo"],
    ["report", "demo.json", "--html", "page.html", "--png", "page.png"],
]


@pytest.mark.parametrize("arguments", WITHOUT_PROC, ids=lambda each: each[0])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root unmounts /proc for itself")
def test_without_proc(command: Path, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "demo.json").write_text(json.dumps(report_documents.whole() | {"kind": "demo"}))
    libc = ctypes.CDLL(None, use_errno=True)

    def hide() -> None:
        new_namespace, private, lazily = 0x20000, 1 << 18 | 1 << 14, 2
        if libc.unshare(new_namespace) or libc.mount(b"none", b"/", None, private, None):
            os._exit(99)
        if libc.umount2(b"/proc", lazily):
            os._exit(99)

    result = subprocess.run(
        [command, *arguments], preexec_fn=hide, capture_output=True, text=True, timeout=300,
        cwd=tmp_path,
    )  # fmt: skip
    if result.returncode == 99:
        pytest.skip("no mount namespace of one's own here")
    # The picture writer fails without it, and ends its own process only.
    assert result.returncode in ((0, 3) if arguments == ["topo"] else (0, 3, 7))
    assert result.stderr.count("\n") <= 1 and "internal error" not in result.stderr
    assert (result.returncode == 0) == (result.stderr == "")
    assert (tmp_path / "page.html").exists() == (result.stdout == "page.html\n")
