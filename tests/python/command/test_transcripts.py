# SPDX-License-Identifier: Apache-2.0
"""Commands and all that they print: each file of tests/golden/transcripts is a session.

A new case is a line `$ headrace ...` in one of them; `--update-golden` writes what it prints. A
command that fails prints nothing on stdout, and one line on stderr that says what to do.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import profile_documents
import pytest
import report_documents
from conftest import GOLDEN, Golden, Run, without_launcher

TRANSCRIPTS = sorted(path.stem for path in (GOLDEN / "transcripts").glob("*.txt"))
#: "What failed: why; what to do." A file or process that is not there says enough.
TO_DO = re.compile(r"; |: (give|write) |\? give |: (cannot read|there is no process) ")


@pytest.fixture
def inputs(tmp_path: Path) -> None:
    """The files that the commands name."""
    texts = {
        "broken.json": '{"schema_version": 1,\n "nodes": [',
        "other.json": "[1, 2]",
        "newer.json": '{"schema_version": 99, "kind": "demo"}',
        "odd.json": '{"schema_version": 1, "kind": "demo", "query": 7}',
        "deep.json": "[" * 100_000,
        "machine.json": json.dumps(report_documents.machine()),
        "p.json": json.dumps(profile_documents.profile()),
        "empty.txt": "# nothing\n\n",
        "words.txt": "5\nmany\n",
        "zeros.txt": "0\n0\n",
        "huge.txt": "1e15 1e15\n1e15 1\n",
        "beyond.txt": "1 1e308\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for name in ("binary.txt", "binary.json"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "folder").mkdir()


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_session_prints_what_it_did(run: Run, golden: Golden, name: str) -> None:
    file = f"transcripts/{name}.txt"
    told = []
    for line in (GOLDEN / file).read_text().splitlines():
        if not line.startswith("$ "):
            continue
        words = shlex.split(line)[1:]
        at = words.index("headrace")
        variables = dict(word.split("=", 1) for word in words[:at])
        result = run(*words[at + 1 :], env=without_launcher(variables))
        code = f"[exit {result.returncode}]\n" if result.returncode else ""
        if code:
            assert result.stdout == "" and result.stderr.count("\n") == 1, result
            assert result.stderr.startswith("headrace: "), result
            assert TO_DO.search(result.stderr), result
        told.append(f"{line}\n{result.stdout}{result.stderr}{code}")
    golden(file, "".join(told) if name.endswith("refused") else "\n".join(told))
