# SPDX-License-Identifier: Apache-2.0
"""Every ErrorCode is an exception that people already catch."""

from __future__ import annotations

import pytest

import headrace

TABLE = {
    headrace.AbsentError: ("absent", LookupError),
    headrace.UnsupportedError: ("unsupported", NotImplementedError),
    headrace.DeniedError: ("denied", PermissionError),
    headrace.ExhaustedError: ("exhausted", MemoryError),
    headrace.IoError: ("io", OSError),
    headrace.InvalidError: ("invalid", ValueError),
    headrace.CancelledError: ("cancelled", headrace.Error),
    headrace.TimedOutError: ("timed_out", TimeoutError),
}


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
def test_each_error(kind: type[headrace.Error]) -> None:
    code, builtin = TABLE[kind]
    assert issubclass(kind, headrace.Error) and issubclass(kind, builtin)
    assert kind.code == code
    assert kind.__module__ == "headrace"
    assert str(kind("what to do")) == "what to do"


def test_each_error_has_an_exit_code_of_its_own() -> None:
    codes = {kind.exit_code for kind in TABLE}
    assert len(codes) == len(TABLE) == len(headrace.Error.__subclasses__())
    assert not codes & {0, 1, headrace.Error.exit_code}
    assert headrace.InvalidError.exit_code == 2 and headrace.CancelledError.exit_code == 128 + 2
