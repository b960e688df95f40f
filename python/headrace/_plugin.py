# SPDX-License-Identifier: Apache-2.0
"""Settings of plug-ins, as the configurations of engines give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
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
        words = get_args(hint) if get_origin(hint) is Literal else ()
        if words and name in given and given[name] not in words:
            raise InvalidError(f"{who}: {name} is {given[name]!r}; there are {', '.join(words)}")
    return kind(**given)
