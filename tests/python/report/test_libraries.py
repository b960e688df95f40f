# SPDX-License-Identifier: Apache-2.0
"""The scripts of a page: made once, kept, and made again where what is kept is not whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from headrace import _isolated_calls  # noqa: E402
from headrace._report import libraries  # noqa: E402

MADE = "const made = '</script><!--';\r\n"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One entry for each time that the scripts were made."""
    times: list[int] = []

    def call(*_: object, **__: object) -> str:
        times.append(1)
        return MADE

    monkeypatch.setattr(_isolated_calls, "call", call)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    libraries.script.cache_clear()
    yield times
    libraries.script.cache_clear()


def again() -> str:
    libraries.script.cache_clear()  # as a process of its own
    return str(libraries.script())


def test_they_are_made_once_and_cannot_end_their_element(made: list[int]) -> None:
    assert [again() for _ in range(3)] == ["const made = '<\\/script><\\!--';\r\n"] * 3
    assert len(made) == 1


@pytest.mark.parametrize("spoilt", [b"", b"// 0\nother", b"\xff\xfe", None])
def test_what_is_not_whole_is_made_again(
    made: list[int], tmp_path: Path, spoilt: bytes | None
) -> None:
    first = again()
    [kept] = (tmp_path / "cache" / "headrace").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1] if spoilt is None else spoilt)
    assert again() == first and again() == first
    assert len(made) == 2


def test_a_pipe_in_its_place_is_left_alone(made: list[int], tmp_path: Path) -> None:
    first = again()
    [kept] = (tmp_path / "cache" / "headrace").iterdir()
    kept.unlink()
    os.mkfifo(kept)
    assert again() == first
    assert len(made) == 2 and kept.is_fifo()


def test_where_nothing_can_be_kept_they_are_made_each_time(
    made: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert again() == again()
    assert len(made) == 2
