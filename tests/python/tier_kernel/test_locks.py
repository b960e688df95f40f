# SPDX-License-Identifier: Apache-2.0
"""A wait for a lock of another program lets other threads run: one of them frees the lock here.

If the wait held the interpreter's lock, it would end at its bound, without the setting.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace import _core

T = TypeVar("T")


def with_lock_freed_meanwhile(lock: Path, call: Callable[[], T]) -> T:
    """Returns the result of `call`, which waits for a lock until a thread releases it."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        called = threading.Event()

        def free() -> None:
            called.wait()
            time.sleep(0.1)
            fcntl.flock(file, fcntl.LOCK_UN)

        thread = threading.Thread(target=free)
        thread.start()
        called.set()
        result = call()
        thread.join()
        return result


def test_settings(tmp_path: Path) -> None:
    setting = tmp_path / _core.NUMA_BALANCING
    setting.parent.mkdir(parents=True)
    setting.write_text("0\n")
    state = tmp_path / _core.STATE_FOLDER
    state.mkdir(parents=True)
    files = _core.HostFiles(tmp_path)
    with_lock_freed_meanwhile(
        state / "hint-faults.lock", lambda: files.set(_core.NUMA_BALANCING, "2")
    )
    assert setting.read_text() == "2\n"


def test_restored_groups(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    (group / "memory.high").write_text("4194304\n")
    state = tmp_path / "state"
    state.mkdir()
    (state / f"group-{group.stat().st_ino}").write_text(
        f"{os.readlink('/proc/self/ns/cgroup')}\n{group}\nmemory.high max 4194304 4194304\n\n"
    )
    assert with_lock_freed_meanwhile(
        state / "groups.lock", lambda: _core.restore_after_kill(str(state))
    )
    assert (group / "memory.high").read_text() == "max\n"
