# SPDX-License-Identifier: Apache-2.0
"""Parses the points to measure. The command's --only and Python's `only` have the same words and
meaning.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar, cast

from headrace._core import InvalidError
from headrace._format import is_size, size

F = TypeVar("F", bound=Callable[..., Any])

#: Parameters of rows that are sizes, in output and in requests.
SIZES = ("bytes", "window", "block")
_NUMBER = re.compile("[0-9]{1,18}")

#: Names of our mixes in Intel's latency checker (its option -W; R: reads alone). It counts traffic
#: on the bus, where a plain store is a read and a write: 3:2 there is 1:2 here.
MLC_TRAFFIC = {
    "read": "R", "1:1": "W2", "2:1": "W3", "1:2": "W4", "write": "W5", "nt_write": "W6",
    "nt_2:1": "W7", "nt_1:1": "W8", "nt_3:1": "W9", "3:1": "W12",
}  # fmt: skip
#: Measurements in place of other MLC traffic, or why there is none.
_NO_MIX = {
    "W10": "it is W7 that reads two buffers: measure stream --only kernel=nt_triad",
    "W11": "it is W3 that reads two buffers: measure stream --only kernel=triad",
    "W19": "it reads 90 %, and with which stores it writes is not published: mix=8:1 with plain "
    "ones, nt_9:1 around the caches",
    **dict.fromkeys(
        ("W21", "W23", "W27"), "its reads or writes go to two memories: measure split has reads"
    ),
}
#: Mixes by their names in other tools; STREAM's copy has its name here as well.
_OWN_MIXES = {other: own for own, other in MLC_TRAFFIC.items()} | {
    "triad": "2:1", "nt_triad": "nt_2:1"
}  # fmt: skip


def value_of(name: str, given: Any) -> Any:
    """The value of a parameter given as a word: "64KiB", "W3", "2". Other types are returned
    unchanged. InvalidError: another tool's traffic that is no mix here.
    """
    if not isinstance(given, str):
        return given
    if name in SIZES and is_size(given):
        return size(given)
    if _NUMBER.fullmatch(given):
        return int(given)
    if name != "mix":
        return given
    if given in _NO_MIX:
        raise InvalidError(f"no mix of ours is {given}; {_NO_MIX[given]}")
    return _OWN_MIXES.get(given, given)


def together(found: Iterable[tuple[str, int | str]]) -> dict[str, int | str | list[int | str]]:
    """Values by name. Several values of a name become a list, of which any may match."""
    by_name: dict[str, list[int | str]] = {}
    for name, value in found:
        values = by_name.setdefault(name, [])
        if value not in values:
            values.append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in by_name.items()}


def check_width(width: float) -> None:
    """Raises before the work if `width` is 0: such an interval is never reached."""
    if not 0 < width < math.inf:
        raise InvalidError(f"a width of {width:g}; give a share above 0, such as 0.03")


def _check_budget(seconds: float) -> None:
    if not 0 < seconds < math.inf:
        raise InvalidError(f"a budget of {seconds:g} s; it must be above 0 and have an end")


_CHECKS = {"width": check_width, "budget": _check_budget}


def as_written(function: F) -> F:
    """Wraps a function of the extension, so that points may be given as they are printed."""

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        for name, check in _CHECKS.items():
            if isinstance(named.get(name), Real):
                check(named[name])
        return function(*given, **{name: _read(name, value) for name, value in named.items()})

    return cast(F, call)


def _read(name: str, value: Any) -> Any:
    """Converts an option's value. The extension refuses values of a wrong type."""
    if name == "only":
        return _values(value)
    if name == "selections" and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_selection(each) for each in value]
    return value


def _selection(given: Any) -> Any:
    if isinstance(given, tuple) and len(given) == 2:
        return given[0], _values(given[1])
    return given


def _values(only: Any) -> Any:
    if not isinstance(only, Mapping):
        return only
    return {
        name: [value_of(name, each) for each in value]
        if isinstance(value, list | tuple) else value_of(name, value)
        for name, value in only.items()
    }  # fmt: skip
