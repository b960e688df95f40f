# SPDX-License-Identifier: Apache-2.0
"""Settings of plug-ins, as the configurations of engines give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from headrace._core import InvalidError

T = TypeVar("T")


def settings_of(kind: type[T], given: Mapping[str, Any], who: str) -> T:
    """A dataclass from its fields by name. InvalidError: an unknown or a missing name, or a word
    that its Literal does not have.
    """
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise InvalidError(f"{who} has no setting {name!r}; there are {', '.join(known)}")
    for name, each in known.items():
        if each.default is MISSING and name not in given:
            raise InvalidError(f"{who} needs the setting {name!r}")
    for name, hint in get_type_hints(kind).items():
        if name in given:
            _check(who, name, given[name], hint)
    return kind(**given)


def _check(who: str, name: str, value: Any, hint: Any) -> None:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            words = ", ".join(get_args(hint))
            raise InvalidError(f"{who}: {name} is {value!r}; there are {words}")
        return
    kinds = get_args(hint) or (hint,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join("none" if each is NoneType else each.__name__ for each in kinds)
        raise InvalidError(f"{who}: {name} is {value!r}; give {wanted}")
    if value == "" and name == "folder":
        raise InvalidError(f"{who}: folder is empty; give a path")
    if name in ("workers", "sizes", "in_flight") and isinstance(value, int) and value < 1:
        raise InvalidError(f"{who}: {name} is {value}; give at least 1")
