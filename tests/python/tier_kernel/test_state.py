# SPDX-License-Identifier: Apache-2.0
"""The state of headrace tier kernel: nobody else can have written it, and it is whole whatever
happens while it is written.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_kernel import FakeKernel, forked, in_memory

import headrace
from headrace._tiering import state, status, switch
from headrace._tiering.damon import KDAMONDS
from headrace._tiering.plan import BALANCING, DEMOTION, Wish

NOBODY = 65534
#: Functions of os that are called while a state is written or removed.
CALLS = ("mkdir", "open", "fchmod", "fsync", "replace", "unlink", "close")


@pytest.fixture
def kernel() -> Iterator[FakeKernel]:
    with in_memory() as made:
        yield made


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_are_the_same_whatever_the_umask(kernel: FakeKernel, umask: int) -> None:
    before = os.umask(umask)
    try:
        switch.on(kernel, Wish())
    finally:
        os.umask(before)
    assert _mode(kernel.path(state.NAME)) == 0o644
    assert _mode(kernel.path(state.FOLDER)) == 0o755
    assert _mode(kernel.path(state.LOCK)) == 0o600  # else anybody could keep it locked


def _moved(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


#: Ways in which another user could have written the state or its folder.
SPOILT: dict[str, Callable[[Path, Path], object]] = {
    "group may write": lambda file, folder: file.chmod(0o664),
    "anybody may write": lambda file, folder: file.chmod(0o646),
    "nobody's": lambda file, folder: os.chown(file, NOBODY, NOBODY),
    "nobody's folder": lambda file, folder: os.chown(folder, NOBODY, NOBODY),
    "anybody may write to the folder": lambda file, folder: folder.chmod(0o777),
    "link": lambda file, folder: _moved(file),
    "loop": lambda file, folder: (file.unlink(), file.symlink_to(file)),
    "linked folder": lambda file, folder: _moved(folder),
    "pipe": lambda file, folder: (file.unlink(), os.mkfifo(file)),
    "directory": lambda file, folder: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("how", SPOILT)
def test_what_somebody_else_may_have_written_is_refused(kernel: FakeKernel, how: str) -> None:
    if how.startswith("nobody") and os.geteuid():
        pytest.skip("only root gives files away")
    switch.on(kernel, Wish())
    SPOILT[how](kernel.path(state.NAME), kernel.path(state.FOLDER))
    before = kernel.everything()
    kernel.written.clear()
    for act in (switch.on, switch.shown, lambda kernel, _: switch.off(kernel)):
        with pytest.raises(headrace.InvalidError, match=r"somebody else.*then remove it$"):
            act(kernel, Wish())
    assert status.switch(kernel)[0] == "unknown"
    assert kernel.everything() == before and kernel.written == []


def test_a_lock_that_is_a_link_is_refused(kernel: FakeKernel) -> None:
    victim = kernel.root / "victim"
    victim.write_text("")
    kernel.path(state.FOLDER).mkdir(0o755, parents=True)
    kernel.path(state.LOCK).symlink_to(victim)
    with pytest.raises(headrace.InvalidError, match="is a link"):
        switch.on(kernel, Wish())
    assert _mode(victim) != 0o600


def _with(**other: Any) -> str:
    setting = {"file": BALANCING, "wanted": "3", "before": "1", "why": ""}
    return json.dumps({
        "schema_version": 2, "boot": "boot-1", "phase": "on", "wish": {}, "left": [],
        "settings": [setting | other],
    })  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\xfe\x00", b"[" * 100_000, b"{}", b"[1]", b"1", b"null", b'"\\ud800"',
        b'{"schema_version": 1, "settings": [{"file": 1}]}',
        _with(file="/etc/passwd"), _with(file="../etc/passwd"), _with(file="etc/passwd"),
        _with(file=f"{KDAMONDS}/../../../../../../etc/passwd"), _with(file=f"{BALANCING}\n"),
        _with(file=f"{BALANCING}\0"), _with(file=f"{KDAMONDS}/0/{'../' * 9}etc/passwd"),
        _with(file=1), _with(wanted=3), _with(before=[1]), _with(before=None), _with(why=3),
        _with(before="root::0:0::/:/bin/sh"), _with(before="1\n2"), _with(more=1),
        _with().replace('"on"', '"off"'), _with().replace('"boot-1"', "1"),
        _with().replace('"wish": {}', '"wish": 1'), _with().replace('"left": []', '"left": [{}]'),
        _with().replace('"left": []', '"left": null'),
    ],
)  # fmt: skip
def test_state_that_headrace_did_not_write_is_refused(
    kernel: FakeKernel, content: str | bytes
) -> None:
    path = kernel.path(state.NAME)
    path.parent.mkdir(0o755, parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o644)
    if content == _with(before="root::0:0::/:/bin/sh"):  # the kernel's to refuse
        assert state.load(kernel) is not None
        return
    for act in (switch.on, switch.shown, lambda kernel, _: switch.off(kernel)):
        with pytest.raises(headrace.InvalidError, match=r"look at what it says, then remove it$"):
            act(kernel, Wish())
    assert status.switch(kernel)[0] == "unknown" and status.kdamonds(kernel) == []
    assert kernel.written == [] and path.exists()


def test_written_state_is_read_back(kernel: FakeKernel) -> None:
    wish = Wish(weights={0: 3, 1: 1}, schemes=("hot", "cold"))
    done = switch.on(kernel, wish)
    found = state.load(kernel)
    assert found == state.State("boot-1", wish.as_json(), done.settings, state.ON)


#: How a child ends that made all calls.
DONE = 3


def _disturbed(at: int, what: Callable[[], None], act: Callable[[], object]) -> int:
    """How a process ends that does `act`, and `what` in place of its call to os by that number."""

    def child() -> None:
        calls = _counted(at, what)
        act()
        if calls() <= at:
            os._exit(DONE)

    return forked(child)


def _counted(at: int, act: Callable[[], None]) -> Callable[[], int]:
    calls = 0

    def instead(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls - 1 == at:
                act()
            return real(*arguments, **named)

        return call

    for name in CALLS:
        setattr(os, name, instead(name))
    return lambda: calls


def _full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _pressed() -> None:
    raise KeyboardInterrupt


def _with_left(kernel: FakeKernel) -> None:
    """A state that has what was left to somebody else."""
    switch.on(kernel, Wish(demotion=False))
    kernel.put(BALANCING, "0")
    switch.off(kernel)


@pytest.mark.parametrize(("what", "left"), [(_killed, False), (_full, True), (_pressed, True)])
def test_it_is_whole_whatever_call_of_on_fails(
    kernel: FakeKernel, what: Callable[[], None], left: bool, times: Callable[[int, int], int]
) -> None:
    for at in range(0, 200, times(2, 1)):  # each second call, or each
        if left:
            _with_left(kernel)
        before = kernel.everything()
        code = _disturbed(at, what, lambda: switch.on(kernel, Wish()))
        if what is _full and code == 1:
            assert kernel.everything() == before, f"call {at}"
        done = status.switch(kernel)[0] == "on" or what is _killed
        switch.off(kernel)
        assert kernel.everything() == before, f"call {at}"
        if left:
            switch.off(kernel, force=True)
            # As it is left to somebody else still, but where --on had set it once more.
            assert kernel.read(BALANCING) == "1" or done, f"call {at}"
            kernel.put(BALANCING, "1")
        assert not kernel.path(state.NAME).exists()
        if code == DONE:
            break
    assert code == DONE and at > 20
    assert {path.name for path in kernel.path(state.FOLDER).iterdir()} == {
        Path(state.LOCK).name, "hint-faults", "hint-faults.lock",
    }  # fmt: skip


@pytest.mark.parametrize("what", [_killed, _full])
def test_it_is_whole_whatever_call_of_off_fails(
    kernel: FakeKernel, what: Callable[[], None], times: Callable[[int, int], int]
) -> None:
    before = kernel.everything()
    for at in range(0, 200, times(2, 1)):
        switch.on(kernel, Wish())
        code = _disturbed(at, what, lambda: switch.off(kernel))
        switch.off(kernel)
        assert kernel.everything() == before, f"call {at}"
        assert not kernel.path(state.NAME).exists()
        if code == DONE:
            break
    assert code == DONE and at > 10


def test_many_at_once(kernel: FakeKernel) -> None:
    before = kernel.everything()
    children = []
    for seed in range(4):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                chance = random.Random(seed)
                for _ in range(20):
                    try:
                        if chance.random() < 0.5:
                            switch.on(kernel, Wish(demotion=chance.random() < 0.5))
                        else:
                            switch.off(kernel)
                    except headrace.InvalidError as refused:
                        assert "with other options" in str(refused)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    switch.off(kernel)
    assert kernel.everything() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_nobody_may_look_at_what_root_switched_on(kernel: FakeKernel) -> None:
    kernel.root.chmod(0o755)
    kernel.path("run").mkdir(0o755)
    before = os.umask(0o077)
    try:
        switch.on(kernel, Wish())
    finally:
        os.umask(before)

    def act() -> None:
        os.setuid(NOBODY)
        assert status.switch(kernel)[0] == "on"
        assert switch.shown(kernel, Wish())[0] is not None
        for attempt in (lambda: switch.off(kernel), lambda: switch.on(kernel, Wish())):
            with pytest.raises(headrace.DeniedError, match="Without root"):
                attempt()
        with pytest.raises(PermissionError):
            os.open(kernel.path(state.LOCK), os.O_RDONLY)

    assert forked(act) == 0


def test_where_run_is_read_only(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(kernel, "writable", lambda name: not name.startswith("run"))
    kernel.path("run").mkdir()
    with pytest.raises(headrace.DeniedError, match=r"/run cannot be written, not even by root"):
        switch.on(kernel, Wish())
    assert kernel.written == [] and kernel.read(DEMOTION) == "0"
