# SPDX-License-Identifier: Apache-2.0
"""numa_balancing while headrace tier attach or run has its bit 1 set: each puts back its own bit,
whoever begins and whoever ends first.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fake_kernel import FakeKernel, in_memory

import headrace
from headrace._tiering import state, switch
from headrace._tiering.plan import BALANCING, DEMOTION, Wish

NOTE = f"{state.FOLDER}/hint-faults"


@pytest.fixture
def kernel() -> Iterator[FakeKernel]:
    with in_memory() as made:
        made.put(BALANCING, "0")
        yield made


def _raw(kernel: FakeKernel) -> str | None:
    return kernel.read(BALANCING)


class Attached:
    """Does the same as src/host/settings/hint_faults.cpp."""

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel
        folder = kernel.path(state.FOLDER)
        folder.mkdir(0o755, parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.note = os.open(kernel.path(NOTE), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.note, fcntl.LOCK_SH)
        was = kernel.read(BALANCING) or ""
        os.pwrite(self.note, was.encode(), 0)
        kernel.put(BALANCING, str(int(was) | 1))

    def end(self) -> None:
        now = int(self.kernel.read(BALANCING) or "")
        self.kernel.put(BALANCING, str(now & ~1))
        os.ftruncate(self.note, 0)
        self.killed()

    def killed(self) -> None:
        os.close(self.note)


def test_attach_ends_before_off(kernel: FakeKernel) -> None:
    attached = Attached(kernel)
    (setting,) = switch.on(kernel, Wish(demotion=False, rate=65536 << 20)).settings
    assert (setting.before, setting.wanted, _raw(kernel)) == ("0", "2", "3")
    attached.end()
    assert _raw(kernel) == "2"
    assert [each.outcome for each in switch.off(kernel).undone] == ["put back"]
    assert _raw(kernel) == "0"


def test_off_comes_before_attach_ends(kernel: FakeKernel) -> None:
    switch.on(kernel, Wish())
    attached = Attached(kernel)
    assert _raw(kernel) == "3"
    assert switch.on(kernel, Wish()).notes == ("it is on already; nothing was changed",)
    assert {each.outcome for each in switch.off(kernel).undone} == {"put back"}
    assert _raw(kernel) == "1"  # attach goes on to see
    attached.end()
    assert _raw(kernel) == "0"


def test_what_a_killed_attach_left_goes_with_off(kernel: FakeKernel) -> None:
    attached = Attached(kernel)
    switch.on(kernel, Wish())
    attached.killed()
    switch.off(kernel)
    assert _raw(kernel) == "0" and kernel.path(NOTE).read_bytes() == b""


def test_show_and_off_see_what_somebody_else_set_meanwhile(kernel: FakeKernel) -> None:
    attached = Attached(kernel)
    switch.on(kernel, Wish())
    kernel.put(BALANCING, "1")
    with pytest.raises(headrace.InvalidError, match=f"somebody else has set /{BALANCING} to 0"):
        switch.on(kernel, Wish())
    outcomes = {each.setting.file: each.outcome for each in switch.off(kernel).undone}
    assert outcomes[BALANCING] == "unchanged" and outcomes[DEMOTION] == "put back"
    attached.end()
    assert _raw(kernel) == "0"


def test_a_refused_write_puts_back_and_leaves_the_bit(kernel: FakeKernel) -> None:
    attached = Attached(kernel)
    kernel.refuse = {DEMOTION}
    with pytest.raises(headrace.InvalidError, match="all else was put back"):
        switch.on(kernel, Wish())
    assert _raw(kernel) == "1"
    attached.end()
    assert _raw(kernel) == "0"


@contextmanager
def _locked(kernel: FakeKernel) -> Iterator[None]:
    handle = os.open(kernel.path(f"{NOTE}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield
    os.close(handle)


def test_an_attach_that_is_about_to_set_it_is_waited_for(kernel: FakeKernel) -> None:
    kernel.lock_bound = 0.0
    kernel.path(state.FOLDER).mkdir(0o755, parents=True)
    with _locked(kernel), pytest.raises(headrace.TimedOutError, match=r"hint-faults\.lock"):
        switch.on(kernel, Wish())
    assert _raw(kernel) == "0" and not kernel.path(state.NAME).exists()
