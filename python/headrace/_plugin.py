# SPDX-License-Identifier: Apache-2.0
"""Settings that the plug-ins of engines share, and the store that these open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from headrace import kvcache
from headrace._core import AbsentError, InvalidError, Mover
from headrace._errors import error_of
from headrace._format import size

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """Keys of a plug-in's configuration that all plug-ins have.

    `folder`, `budget`: where blocks are kept, and at most how many bytes of them; numbers, or as
    "500GiB". `memory`: DRAM before the folder; blocks that are used again stay there.
    `revision`: a string that changes whenever the weights of the model do.
    `other`: what becomes of blocks of another model, dtype, layout or revision in the folder.
    `verify`: see headrace.kvcache.Folder. `workers`: threads that compute checksums.
    `in_flight`: most bytes of stores that have not ended; more are refused.
    """

    folder: str
    budget: int | str
    memory: int | str = 0
    revision: str = ""
    other: Literal["refuse", "discard"] = "refuse"
    verify: Literal["all", "found"] = "all"
    workers: int = 2
    in_flight: int | str = "1GiB"

    def open(
        self,
        mover: Mover,
        name: str,
        block_bytes: int,
        folder: Path,
        *,
        layers: int = 1,
        share: float = 1,
        list_dropped: bool = False,
    ) -> kvcache.Store:
        """A store of blocks of `layers` equal fragments in `folder`, with this share of budget and
        memory. Errors: as of headrace.kvcache.Store.
        """
        tiers: list[kvcache.Memory | kvcache.Folder] = [
            kvcache.Folder(
                folder, int(bytes_of(self.budget) * share), verify=self.verify, other=self.other
            )
        ]
        if memory := bytes_of(self.memory):
            tiers.insert(0, kvcache.Memory("dram", int(memory * share)))
        return kvcache.Store(
            mover,
            kvcache.opaque(name, block_bytes, layers=layers, revision=self.revision),
            tiers,
            in_flight=bytes_of(self.in_flight),
            workers=self.workers,
            list_dropped=list_dropped,
        )


def bytes_of(setting: int | str) -> int:
    """InvalidError: a text that is no size."""
    return size(setting) if isinstance(setting, str) else setting


def make_folder(path: Path) -> None:
    """Makes a folder in one that exists. Error of headrace: it cannot be made; it says why."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        raise AbsentError(f"no folder {path.parent}; make it, or mount the disk there") from None
    except OSError as error:
        raise error_of(error, f"cannot make the folder {path}", "another folder") from None


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
