# SPDX-License-Identifier: Apache-2.0
"""The list of keys beside a store: what a full disk and unusual keys do to it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import kvcache
from headrace._key_list import KeyList


class Everything:
    """A store that has all blocks."""

    def contains(self, names: list[bytes]) -> list[bool]:
        return [True] * len(names)


STORE: Any = Everything()
KEYS = [f"key {number}" for number in range(100)]


def named(keys: list[str]) -> dict[bytes, str]:
    return {kvcache.key(key.encode()): key for key in keys}


def listed(path: Path) -> list[str]:
    """The keys after a restart."""
    known = KeyList(path, STORE)
    known.close()
    return sorted(known.keys.values())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    known = KeyList(tmp_path / "keys", STORE)
    known.add(named(KEYS))
    known.close()
    return tmp_path / "keys"


#: Adds a key while files of the process are limited: a write is short, the next one fails. In a
#: process of its own, for others write files too.
LIMITED = """
import resource, signal, sys
from pathlib import Path
from headrace import kvcache
from headrace._key_list import KeyList

class Everything:
    def contains(self, names):
        return [True] * len(names)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
known = KeyList(Path(sys.argv[1]), Everything())
known.add({kvcache.key(b"a new one"): "a new one"})
known.close()
print(len(known.keys), "a new one" in known.keys.values())
"""


@pytest.mark.parametrize("most", [0, 25, 200])
def test_a_start_on_a_full_disk_keeps_the_list(path: Path, most: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(most)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, f"{len(KEYS) + 1} True\n"), run.stderr
    assert listed(path) == sorted(KEYS)
    assert not path.with_suffix(".new").exists()


def test_a_list_that_cannot_be_replaced_takes_new_keys(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    path.write_bytes(path.read_bytes() + b'"torn')
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        known = KeyList(path, STORE)
        known.add(named(["a new one"]))
        known.close()
    assert listed(path) == sorted([*KEYS, "a new one"])


def test_keys_with_line_breaks_and_other_characters_come_back(path: Path) -> None:
    keys = ["a\nb", "\r", "\u2028", "ä@\0", '"', ""]
    known = KeyList(path, STORE)
    known.add(named(keys))
    known.close()
    assert listed(path) == sorted(KEYS + keys)


def test_damaged_lines_are_left_out(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'\xff\n"cut\n12\n' + b"[" * 100_000 + b'\n"\\ud800"\n')
    assert listed(path) == sorted(KEYS)
