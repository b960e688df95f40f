# SPDX-License-Identifier: Apache-2.0
"""The record that `headrace tier kernel --on` saves before it changes anything. With it, --off can
undo the changes whatever happened in between.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from headrace import DeniedError, InvalidError, UnsupportedError
from headrace._core import KDAMONDS, WEIGHTS
from headrace._core import NUMA_BALANCING as BALANCING
from headrace._core import STATE_FOLDER as FOLDER
from headrace._core import HostFiles as Files
from headrace._errors import error_of
from headrace._tiering import folder
from headrace._tiering.plan import DEMOTION, RATE_LIMIT
from headrace._tiering.setting import Setting

_FILE = "tier-kernel.json"
_LOCK = "tier-kernel.lock"
NAME = f"{FOLDER}/{_FILE}"
LOCK = f"{FOLDER}/{_LOCK}"
_BOOT = "proc/sys/kernel/random/boot_id"
_PROCESSES = "proc/self/ns/pid"
#: The host's PID namespace, by its fixed number in the kernel (PROC_PID_INIT_INO).
_ALL_PROCESSES = "pid:[4026531836]"
_SCHEMA = 2
#: Seconds to wait for another switch in progress.
_LOCK_SECONDS = 10.0
#: States: some settings may be written; all are written; --off could not restore all.
BEGUN, ON, ENDING = "begun", "on", "ending"
#: All files that --on may set; no other file is ever written.
_KNOWN = re.compile(
    f"{BALANCING}|{RATE_LIMIT}|{DEMOTION}|{WEIGHTS}/(node[0-9]+|auto|__auto_type)"
    f"|{KDAMONDS}/(nr_kdamonds|[0-9]+(/[a-z0-9_]+)+)"
)
_VALUE = re.compile("[!-~]{1,64}")


@dataclass(frozen=True)
class State:
    """`settings`: settings that --off restores. `left`: settings that an --off left because another
    program had changed them; only --off --force restores them. If a file is in both, `left` counts
    only if --on fails.
    """

    boot: str
    wish: dict[str, Any]
    settings: tuple[Setting, ...]
    phase: str = BEGUN
    left: tuple[Setting, ...] = ()


def boot_id(files: Files) -> str:
    found = files.read(_BOOT)
    if not found:
        raise UnsupportedError(
            f"the kernel does not say which boot this is (/{_BOOT}), as in some containers; run "
            "this on the host"
        )
    return found


def check_host(files: Files) -> None:
    """DeniedError: /run belongs to a container. The settings are the host's, but the state would
    vanish with the container.
    """
    try:
        ours = os.readlink(files.path(_PROCESSES)) == _ALL_PROCESSES
        # A container may see all processes. Then process 1 is the host's.
        ours = ours and os.path.samefile(files.path("proc/1/root/run"), files.path("run"))
    except OSError:
        return  # a kernel without containers, or somebody who may not set anything
    if not ours:
        raise DeniedError(
            "this is a container, and what --on notes in /run would go with it, while the settings "
            "are the host's; do this on the host"
        )


def load(files: Files) -> State | None:
    """Loads the state; None if there is none. InvalidError: the file is not Headrace's."""
    try:
        with folder.opened(files.path(FOLDER), f"/{FOLDER}") as handle:
            content = folder.read(handle, _FILE, f"/{NAME}")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise error_of(error, f"cannot read /{NAME}", "to do it as root (sudo)") from None
    try:
        return _parsed(json.loads(content))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidError(
            f"/{NAME} is not what this version of headrace writes; look at what it says, then "
            "remove it"
        ) from None


def _parsed(found: Any) -> State:
    """Parses a state. ValueError, KeyError or TypeError: `save` did not write it."""
    if found["schema_version"] != _SCHEMA or found["phase"] not in (BEGUN, ON, ENDING):
        raise ValueError
    if not isinstance(found["boot"], str) or not isinstance(found["wish"], dict):
        raise ValueError
    settings, left = (
        tuple(_setting(each) for each in found[name]) for name in ("settings", "left")
    )
    return State(found["boot"], found["wish"], settings, found["phase"], left)


def _setting(found: Any) -> Setting:
    setting = Setting(**found)
    if not _KNOWN.fullmatch(setting.file) or not isinstance(setting.why, str):
        raise ValueError
    if not _VALUE.fullmatch(setting.wanted):
        raise ValueError
    if setting.before is None:
        if not setting.file.startswith(KDAMONDS):
            raise ValueError
    elif not _VALUE.fullmatch(setting.before):
        raise ValueError
    return setting


def save(files: Files, state: State) -> None:
    """Saves the state and flushes it, as /run might be on a disk. On an Error the earlier state
    stays, unless the disk itself failed.
    """
    content = {
        "schema_version": _SCHEMA,
        "boot": state.boot,
        "phase": state.phase,
        "wish": state.wish,
        "settings": [asdict(setting) for setting in state.settings],
        "left": [asdict(setting) for setting in state.left],
    }
    text = json.dumps(content, indent=1) + "\n"
    try:
        with folder.opened(files.path(FOLDER), f"/{FOLDER}") as handle:
            folder.replace(handle, _FILE, text.encode())
    except OSError as error:
        raise error_of(error, f"cannot write /{NAME}", "to enlarge /run") from None


def forget(files: Files) -> None:
    try:
        with folder.opened(files.path(FOLDER), f"/{FOLDER}") as handle:
            folder.remove(handle, _FILE)
    except OSError as error:
        raise error_of(error, f"cannot remove /{NAME}", "to remove it by hand") from None


@contextmanager
def locked(files: Files, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    """Lets one process switch at a time. TimedOutError: another process held the lock all the time.
    """
    try:
        with folder.opened(files.path(FOLDER), f"/{FOLDER}", make=True) as at:
            handle = folder.lock(at, _LOCK, f"/{LOCK}")
    except OSError as error:
        raise error_of(error, f"cannot make /{LOCK}", "to do it as root (sudo)") from None
    try:
        folder.take(handle, seconds, f"another headrace tier kernel (/{LOCK})")
        yield
    finally:
        os.close(handle)
