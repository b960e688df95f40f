# SPDX-License-Identifier: Apache-2.0
"""The lines on stderr that all commands share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace._format import say


class _Writes:
    """Keeps what each call of write() is given."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def write(self, text: str) -> None:
        self.all.append(text)

    def flush(self) -> None:
        pass


def test_lines_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = _Writes()
    monkeypatch.setattr(sys, "stderr", stderr)
    say("one", "two\nthree", before="> ")
    assert stderr.all == ["> headrace: one\nheadrace: two\\nthree\n"]


def test_nobody_reads_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    say("there is no stderr")
    closed = (tmp_path / "closed").open("w")
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    say("it is closed")
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        say("the pipe has no reader")
        # The buffer is not empty: its flush would fail again when the file is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)
