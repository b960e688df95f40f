# SPDX-License-Identifier: Apache-2.0
"""On a terminal of 80 columns no line is wider, except commands that are to be copied."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import termios
from pathlib import Path

import pytest
from forked import clean_environment
from profile_documents import profile

from headrace._cli import output

COLUMNS = 80

COMMANDS = [
    "--help",
    "topo",
    "topo --from gh200",
    "topo --from xeon-max --all",
    "doctor",
    "advise interleave --machine cxl-a1000",
    "advise cost",
    "advise capacity --zipf 0.99 --pages 1000000",
    "advise um --size 8GiB --machine ac922",
    "bench layer --bandwidth 306GB/s",
    "compare old.json new.json --all",
    "export xeon-max --as table",
    "fleet old.json new.json",
    "measure --dry-run",
    "measure --dry-run --from xeon-max",
    "measure --list",
    "tier explain",
    "tier status",
]


def on_a_terminal(command: Path, arguments: list[str], folder: Path) -> list[str]:
    """The lines that the command shows."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        silent = os.open(os.devnull, os.O_WRONLY)  # errors are one line, whatever its length
        os.dup2(silent, 2)
        os.execve(command, [str(command), *arguments], clean_environment() | {"TERM": "xterm"})
    shown = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # how a terminal says that nobody writes to it any more
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    os.waitpid(pid, 0)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).splitlines()


@pytest.mark.parametrize("arguments", COMMANDS)
def test_no_line_is_wider_than_the_terminal(command: Path, tmp_path: Path, arguments: str) -> None:
    for name, seed in (("old", 1), ("new", 2)):
        document = profile(seed)
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    lines = on_a_terminal(command, arguments.split(), tmp_path)
    assert len(lines) > 3, lines
    wide = [line for line in lines if len(line) > COLUMNS and not output._TYPED.match(line)]
    assert wide == []


def test_folded_lines_are_indented_below_what_they_continue() -> None:
    assert output.folded("├─ node 0  dram  a long reason", 20).split("\n") == [
        "├─ node 0  dram  a", "│    long reason",
    ]  # fmt: skip
    assert output.folded("! a warning in many words", 20).split("\n") == [
        "! a warning in many", "    words",
    ]  # fmt: skip
    assert output.folded("short\n  of which a few words more", 20).split("\n") == [
        "short", "  of which a few", "    words more",
    ]  # fmt: skip


def test_what_is_typed_or_has_no_space_is_not_folded() -> None:
    for line in ("    sudo headrace tier kernel --on and so on and on", "x" * 90):
        assert output.folded(line, 20) == line
