# SPDX-License-Identifier: Apache-2.0
"""Checks that rows are complete for their experiment: a profile written by another program may lack
fields.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable

from headrace import _core

_MIX = re.compile("(nt_)?(read|write|copy|[1-9][0-9]?:[1-9][0-9]?)")


def complete(rows: Iterable[_core.Row]) -> list[_core.Row]:
    """Complete rows, and all rows of unknown experiments."""
    return [row for row in rows if is_complete(row)]


def is_complete(row: _core.Row) -> bool:
    experiment = _experiments().get(row.experiment)
    if experiment is None:
        return True
    if not all(_is(row.parameters.get(each.name), each) for each in experiment.parameters):
        return False
    return row.median is None or row.details.keys() >= set(experiment.details)


@functools.cache
def _experiments() -> dict[str, _core.ExperimentInfo]:
    """The experiments of this version by name, with the fields of their rows."""
    return {each.name: each for each in _core.experiments()}


def is_mix(value: int | str | None) -> bool:
    """ "read", "2:1", "nt_copy"."""
    return isinstance(value, str) and _MIX.fullmatch(value) is not None


def delay_of(row: _core.Row) -> float:
    """The delay injected into the traffic of a row of `loaded`, in its source's unit: ns if
    measured here. It was requested, or found for a share of the bandwidth."""
    asked = row.parameters.get("delay_ns")
    return asked if isinstance(asked, int) else row.details.get("delay_ns", 0.0)


def _is(value: int | str | None, parameter: _core.ParameterInfo) -> bool:
    if value is None:
        return not parameter.required
    return parameter.kind not in _KINDS or _KINDS[parameter.kind](value)


def _is_count(value: int | str) -> bool:
    return isinstance(value, int) and value >= 0


#: Checks of values by kind of parameter. Other kinds allow any value.
_KINDS: dict[str, Callable[[int | str], bool]] = {
    "count": _is_count,
    "count_or_all": lambda value: value == "all" or _is_count(value),
    "operation": lambda value: value in ("read", "write"),
    "word": lambda value: isinstance(value, str),
    "mix": is_mix,
}


def absent(profile: _core.Profile, what: str, how: str) -> _core.AbsentError:
    """The error of an export without rows. A preset's missing rows cannot be measured."""
    if profile.published:
        return _core.AbsentError(
            f"no {what} were published of {profile.machine.name}; give a profile that was measured"
        )
    return _core.AbsentError(f"the profile has no {what}; {how}")
