# SPDX-License-Identifier: Apache-2.0
"""Every ErrorCode is an exception that people already catch."""

from __future__ import annotations

import pytest

import headrace
from headrace._cli import exit_codes

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


def test_the_table_of_exit_codes_is_complete() -> None:
    assert {code for code, _ in TABLE.values()} == set(exit_codes.BY_ERROR_CODE)
    assert len(set(exit_codes.BY_ERROR_CODE.values())) == len(TABLE)
