"""What `headrace tier kernel --on` notes before it changes anything, so that --off can undo it
whatever happened in between.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from headrace import InvalidError, TimedOutError
from headrace._errors import error_of
from headrace._files import write_whole
from headrace._tiering.files import Files
from headrace._tiering.setting import Setting

FOLDER = "run/headrace"
NAME = f"{FOLDER}/tier-kernel.json"
LOCK = f"{FOLDER}/tier-kernel.lock"
_BOOT = "proc/sys/kernel/random/boot_id"
_SCHEMA = 1
#: How long one waits for another that switches.
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class State:
    """`complete`: every setting was written. `left`: what --off left to somebody else, nothing
    else; --on need not mind.
    """

    boot: str
    wish: dict[str, Any]
    settings: tuple[Setting, ...]
    complete: bool = False
    left: bool = False


def boot_id(files: Files) -> str:
    return files.read(_BOOT) or ""


def load(files: Files) -> State | None:
    """None if there is none. InvalidError: a file that is not ours."""
    try:
        text = files.path(NAME).read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise error_of(error, f"cannot read /{NAME}") from None
    try:
        found = json.loads(text)
        if found["schema_version"] != _SCHEMA:
            raise ValueError
        settings = tuple(Setting(**each) for each in found["settings"])
        if not all(isinstance(each.file, str) for each in settings):
            raise ValueError
        return State(
            str(found["boot"]), found["wish"], settings, found["complete"] is True,
            found["left"] is True,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        raise InvalidError(
            f"/{NAME} is not what this version of headrace writes; look at what it says, then "
            "remove it"
        ) from None


def save(files: Files, state: State) -> None:
    """On return it is on the disk, if /run were one."""
    content = {
        "schema_version": _SCHEMA,
        "boot": state.boot,
        "complete": state.complete,
        "left": state.left,
        "wish": state.wish,
        "settings": [asdict(setting) for setting in state.settings],
    }
    write_whole(files.path(NAME), json.dumps(content, indent=1) + "\n")
    _sync_folder(files)


def forget(files: Files) -> None:
    files.path(NAME).unlink(missing_ok=True)
    _sync_folder(files)


def _sync_folder(files: Files) -> None:
    handle = os.open(files.path(FOLDER), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(files: Files, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    """Only one switches at a time. The kernel lets go of the lock of one that dies. TimedOutError:
    another held it all the time.
    """
    try:
        files.path(FOLDER).mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(files.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise error_of(error, f"cannot make /{LOCK}", "to do it as root (sudo)") from None
    try:
        _take(handle, seconds)
        yield
    finally:
        os.close(handle)


def _take(handle: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimedOutError(
                    f"another headrace tier kernel has been at work for {seconds:g} s (/{LOCK}); "
                    "try again when it has ended"
                ) from None
            time.sleep(0.02)
