# SPDX-License-Identifier: Apache-2.0
"""A memory cgroup for one program, so that the kernel can keep it within a budget."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace import DeniedError, UnsupportedError
from headrace._core import HostFiles as Files
from headrace._errors import error_of

#: Prefix of a group's name, before the PID of its maker; src/host/settings/group_hold.cpp knows it.
_NAME = "headrace-tier-"
#: Limits that a program loses when it moves to the new group, and their values without a limit.
_LIMITS = {
    "memory.high": "max",
    "memory.max": "max",
    "memory.swap.max": "max",
    "cpu.max": "max",
    "pids.max": "max",
    "cpuset.cpus": "",
    "cpuset.mems": "",
}


@contextmanager
def made(files: Files) -> Iterator[Path]:
    """Makes a group for a program to enter (`enter`): below this process's group, or beside it with
    version 2, which has processes in leaves only. The group is removed when it is empty, or when
    the next one is made.

    UnsupportedError, DeniedError: why there can be none.
    """
    parent = _parent(files)
    for left in parent.glob(f"{_NAME}*"):
        maker = left.name.removeprefix(_NAME)
        # A group with our PID was made by an earlier process.
        if maker == str(os.getpid()) or not Path("/proc", maker).exists():
            with suppress(OSError):
                left.rmdir()
    group = parent / f"{_NAME}{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise error_of(error, f"cannot make the cgroup {group}", "root, or no --hold") from None
    try:
        yield group
    finally:
        with suppress(OSError):  # what the program has started goes on in it
            group.rmdir()


def enter(group: Path) -> None:
    """Moves the calling process to the group. OSError: it may not."""
    with open(group / "cgroup.procs", "wb", buffering=0) as file:
        file.write(b"0")


def _parent(files: Files) -> Path:
    own = files.memory_group()
    if own is None:
        raise UnsupportedError("the kernel has no memory cgroups here; leave --hold out")
    folder = files.path(own.folder)
    if own.version == 1:
        return _there(folder)
    parent = folder.parent if own.name else folder
    for name, none in _LIMITS.items() if own.name else ():
        limit = files.read(f"{own.folder}/{name}") or none
        if limit.partition(" ")[0] != none:
            raise DeniedError(
                f"the cgroup of this shell has a limit ({name} is {limit}), which a program in one "
                "of its own would leave; lift that, or leave --hold out"
            )
    name = str(_there(parent).relative_to(files.root) / "cgroup.subtree_control")
    if "memory" not in (files.read(name) or "").split():
        raise UnsupportedError(
            f"cgroups in {parent} have no limit of memory (cgroup.subtree_control has no memory); "
            "start headrace by systemd-run --scope, or leave --hold out"
        )
    return parent


def _there(path: Path) -> Path:
    if not path.is_dir():
        raise UnsupportedError(f"there is no {path}, as in some containers; leave --hold out")
    return path
