# SPDX-License-Identifier: Apache-2.0
"""Settings that the plug-ins of engines share, and the store that these open."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from headrace import kvcache
from headrace._core import AbsentError, InvalidError, Mover
from headrace._errors import error_of
from headrace._format import size
from headrace._serving.client import Attached

T = TypeVar("T")

#: A warning that goes on is repeated this often.
_AGAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    """Keys of a plug-in's configuration that all plug-ins have.

    `folder`, `budget`: the place of the blocks, and the most bytes of them, as a number or as
    "500GiB". `memory`: bytes of DRAM before the folder; blocks that are used again stay there.
    `server`: instead of these, the name of a `headrace serve` that keeps the blocks of several
    engines. `revision`: a string that changes whenever the weights of the model do. `other`: what
    becomes of blocks of another model, dtype, layout or revision in the folder. `verify`: see
    headrace.kvcache.Folder. `workers`: threads that compute checksums. `in_flight`: bytes of stores
    in progress, at most; further stores are refused.
    """

    folder: str = ""
    budget: int | str = 0
    memory: int | str = 0
    server: str = ""
    revision: str = ""
    other: Literal["refuse", "discard"] = "refuse"
    verify: Literal["all", "found"] = "all"
    workers: int = 2
    in_flight: int | str = "1GiB"

    def open_or_attach(
        self, mover: Mover, blocks: kvcache.Geometry, folder: Path, **options: Any
    ) -> kvcache.Store | Attached:
        """The store of `server`, if one is named; otherwise open(). Errors: also those of
        headrace.serving.Attached."""
        if not self.server:
            return self.open(mover, blocks, folder, **options)
        return Attached(self.server, blocks, mover=mover)

    def open(
        self,
        mover: Mover,
        blocks: kvcache.Geometry,
        folder: Path,
        *,
        share: float = 1,
        list_dropped: bool = False,
        shared: bool = False,
    ) -> kvcache.Store:
        """Opens a store in `folder` with this share of budget and memory. `shared`: as a
        SharedStore. Errors: those of headrace.kvcache.Store.
        """
        tiers: list[kvcache.Memory | kvcache.Folder] = [
            kvcache.Folder(
                folder, int(bytes_of(self.budget) * share), verify=self.verify, other=self.other
            )
        ]
        if memory := bytes_of(self.memory):
            tiers.insert(0, kvcache.Memory("dram", int(memory * share)))
        kind = kvcache.SharedStore if shared else kvcache.Store
        return kind(
            mover,
            blocks,
            tiers,
            in_flight=bytes_of(self.in_flight),
            workers=self.workers,
            list_dropped=list_dropped,
        )


class Warner:
    """Warnings of a plug-in, each at most once a minute. Thread-safe."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._again: dict[str, float] = {}  # when each may be repeated
        self._counts = (0, 0)  # blocks kept and not kept until the last warning

    def warn(self, message: str, *arguments: object) -> bool:
        """Whether it was said."""
        now = time.monotonic()
        with self._lock:
            if now < self._again.get(message, 0.0):
                return False
            self._again[message] = now + _AGAIN_SECONDS
        self._log.warning(message, *arguments)
        return True

    def not_kept(self, blocks: str, stats: Any) -> None:
        """Warns if blocks were not kept since the last warning. `stats`: of the store, now."""
        kept = stats.stores.stored
        lost = stats.stores.refused + stats.stores.failed + stats.failed
        kept_before, lost_before = self._counts
        if kept < kept_before or lost < lost_before:  # of a server that was started again
            self._counts = kept_before, lost_before = 0, 0
        if lost == lost_before:
            return
        age = stats.last_error_age
        recent = age is not None and age < _AGAIN_SECONDS
        why = stats.last_error if recent else "all slots are in use, or in_flight is too small"
        told = f"%d {blocks} were not kept, and %d were, since the last warning: %s"
        if self.warn(told, lost - lost_before, kept - kept_before, why):
            self._counts = (kept, lost)


def bytes_of(setting: int | str) -> int:
    """The bytes of a setting. InvalidError: its text is no size."""
    return size(setting) if isinstance(setting, str) else setting


def make_folder(path: Path) -> None:
    """Makes a folder if its parent exists. Error: it cannot be made, with the reason."""
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
    attached = "server" not in known or given.get("server")
    places = () if attached else ("folder", "budget")
    for name, each in known.items():
        if (each.default is MISSING or name in places) and name not in given:
            raise InvalidError(f"{who} needs the setting {name!r}")
    for name in ("folder", "budget", "memory"):
        if given.get("server") and name in given:
            raise InvalidError(f"{who}: the server has its own {name}; leave one of both out")
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
    if name in ("workers", "unit", "in_flight") and isinstance(value, int) and value < 1:
        raise InvalidError(f"{who}: {name} is {value}; give at least 1")
