# SPDX-License-Identifier: Apache-2.0
"""headrace tier kernel --off where files cannot be read, are hidden, or somebody else has set them:
what is not known to be back stays noted.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_kernel import FakeKernel, in_memory, slow
from headrace._core import HostFiles

import headrace
from headrace._tiering import state, status, switch
from headrace._tiering.damon import COUNT, KDAMONDS
from headrace._tiering.plan import BALANCING, DEMOTION, RATE_LIMIT, WEIGHTS, Wish

ALL = Wish(weights={0: 3, 1: 1}, schemes=("hot", "cold"))


@pytest.fixture
def kernel() -> Iterator[FakeKernel]:
    with in_memory() as made:
        yield made


def _unreadable(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, code: int, *names: str
) -> None:
    read = HostFiles._read

    def refuse(this: HostFiles, name: str) -> str:
        if name in names:
            raise OSError(code, os.strerror(code))
        return read(this, name)

    monkeypatch.setattr(HostFiles, "_read", refuse)


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE, errno.EBUSY, errno.ELOOP])
@pytest.mark.parametrize("name", [DEMOTION, f"{WEIGHTS}/node0"])
def test_unreadable_setting_is_not_forgotten(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, code: int, name: str
) -> None:
    kernel.busy_bound = 0.02
    before = kernel.everything()
    switch.on(kernel, ALL)
    with monkeypatch.context() as broken:
        _unreadable(kernel, broken, code, name)
        with pytest.raises(headrace.Error, match=f"/{name}.*not put back: [12] of .*/{name}"):
            switch.off(kernel)
    assert kernel.read(BALANCING) == "1" and kernel.read(COUNT) == "0"
    assert kernel.read(name) == ("1" if name == DEMOTION else "3")
    assert status.switch(kernel)[0] == "interrupted"
    with pytest.raises(headrace.InvalidError, match="--off could not put back all"):
        switch.on(kernel, ALL)
    switch.off(kernel)
    assert kernel.everything() == before and not kernel.path(state.NAME).exists()


def test_busy_file_is_read_again(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch.on(kernel, ALL)
    read, busy = HostFiles._read, [3]

    def at_times(this: HostFiles, name: str) -> str:
        if name.endswith("/state") and busy[0]:
            busy[0] -= 1
            raise OSError(errno.EBUSY, "Device or resource busy")
        return read(this, name)

    monkeypatch.setattr(HostFiles, "_read", at_times)
    assert {each.outcome for each in switch.off(kernel).undone} == {"put back"}
    assert busy == [0]


@pytest.mark.parametrize("name", [COUNT, f"{KDAMONDS}/1/contexts/0/operations"])
def test_an_error_on_whose_the_kdamonds_are_stops_nothing_else(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = kernel.everything()
    switch.on(kernel, ALL)
    with monkeypatch.context() as broken:
        _unreadable(kernel, broken, errno.EIO, name)
        with pytest.raises(headrace.IoError, match=f"/{name}.*not put back: 3 of 8 .*/{COUNT}"):
            switch.off(kernel)
    now = kernel.everything()
    assert {k: v for k, v in now.items() if not k.startswith(KDAMONDS)} == {
        k: v for k, v in before.items() if not k.startswith(KDAMONDS)
    }
    assert kernel.read(f"{KDAMONDS}/0/state") == "on"
    switch.off(kernel)
    assert kernel.everything() == before and not kernel.path(state.NAME).exists()


def test_an_error_names_some_files_of_many(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch.on(kernel, ALL)
    names = [each.file for each in (state.load(kernel) or pytest.fail()).settings]
    _unreadable(kernel, monkeypatch, errno.EIO, *names)
    with pytest.raises(headrace.IoError, match=r"not put back: 8 of 8 .* and 4 more") as told:
        switch.off(kernel)
    assert len(str(told.value)) < 600


@pytest.mark.parametrize("hidden", ["sys/kernel/mm", "proc/sys"])
def test_what_a_container_hides_is_not_gone(kernel: FakeKernel, hidden: str) -> None:
    before = kernel.everything()
    switch.on(kernel, ALL)
    kernel.path(hidden).rename(kernel.root / "hidden")
    if hidden == "proc/sys":  # with what tells the boot
        with pytest.raises(headrace.UnsupportedError, match="which boot this is"):
            switch.off(kernel)
        kernel.put("proc/sys/kernel/random/boot_id", "boot-1")
    with pytest.raises(headrace.AbsentError, match="is not there, as in some containers"):
        switch.off(kernel)
    assert status.switch(kernel)[0] == "interrupted"
    if hidden == "proc/sys":
        shutil.rmtree(kernel.path(hidden))
    else:
        with pytest.raises(headrace.UnsupportedError, match="no /sys/kernel/mm, as in some"):
            switch.plan(kernel, ALL)
    (kernel.root / "hidden").rename(kernel.path(hidden))
    switch.off(kernel)
    assert kernel.everything() == before and not kernel.path(state.NAME).exists()


def test_what_is_hidden_for_good_can_be_forgotten(kernel: FakeKernel) -> None:
    switch.on(kernel, Wish())
    kernel.path(DEMOTION).unlink()
    with pytest.raises(headrace.AbsentError, match="forget it with --off --force"):
        switch.off(kernel)
    assert [each.outcome for each in switch.off(kernel, force=True).undone] == ["gone"]
    assert not kernel.path(state.NAME).exists()


def test_the_weight_of_a_node_that_went_offline_is_gone(kernel: FakeKernel) -> None:
    switch.on(kernel, Wish(weights={0: 3}))
    kernel.path(f"{WEIGHTS}/node0").unlink()
    outcomes = {each.setting.file: each.outcome for each in switch.off(kernel).undone}
    assert outcomes[f"{WEIGHTS}/node0"] == "gone" and not kernel.path(state.NAME).exists()


def test_the_kernel_does_not_choose_weights_where_one_is_somebody_elses(
    kernel: FakeKernel,
) -> None:
    before = kernel.everything()
    switch.on(kernel, ALL)
    kernel.put(f"{WEIGHTS}/node0", "7")
    outcomes = {each.setting.file: each.outcome for each in switch.off(kernel).undone}
    assert outcomes[f"{WEIGHTS}/node0"] == outcomes[f"{WEIGHTS}/auto"] == "left"
    assert kernel.read(f"{WEIGHTS}/node0") == "7" and kernel.read(f"{WEIGHTS}/auto") == "0"
    switch.on(kernel, Wish(promotion=False, demotion=False, weights={1: 2}))
    kernel.put(f"{WEIGHTS}/node1", "9")
    switch.off(kernel)
    switch.off(kernel, force=True)
    assert kernel.everything() == before and not kernel.path(state.NAME).exists()


@pytest.mark.parametrize("theirs", ["3", "2", "0"])
def test_what_was_left_once_is_somebody_elses_whatever_it_says(
    kernel: FakeKernel, theirs: str
) -> None:
    switch.on(kernel, Wish())
    kernel.put(BALANCING, "0")
    switch.off(kernel)
    kernel.put(BALANCING, theirs)  # 3 is what --on had set
    for _ in range(2):
        (left,) = switch.off(kernel).undone
        assert (left.setting.file, left.outcome) == (BALANCING, "left")
        assert kernel.read(BALANCING) == theirs
    assert status.switch(kernel)[0] == "off" and switch.shown(kernel, Wish())[0] is None
    switch.off(kernel, force=True)
    assert kernel.read(BALANCING) == "1" and not kernel.path(state.NAME).exists()


def test_kdamonds_that_were_left_stay_left(kernel: FakeKernel) -> None:
    switch.on(kernel, ALL)
    action = f"{KDAMONDS}/0/contexts/0/schemes/0/action"
    kernel.put(action, "pageout")
    outcomes = {each.setting.file: each.outcome for each in switch.off(kernel).undone}
    assert outcomes[COUNT] == "left"
    kernel.put(action, "migrate_hot")  # as headrace had set it
    assert {each.outcome for each in switch.off(kernel).undone} == {"left"}
    assert kernel.read(f"{KDAMONDS}/0/state") == "on"
    assert {each["owner"] for each in status.kdamonds(kernel)} == {"somebody else"}
    switch.off(kernel, force=True)
    assert kernel.read(COUNT) == "0" and not kernel.path(state.NAME).exists()


def test_a_kdamond_that_a_tier_of_a_process_noted_is_ours(kernel: FakeKernel) -> None:
    kernel.put(COUNT, "1")
    kernel.put(f"{KDAMONDS}/0/state", "on")
    kernel.put(f"{KDAMONDS}/0/contexts/0/targets/0/pid_target", "4711")
    for noted, owner in (("", "somebody else"), ("4712", "somebody else"), ("4711", "headrace")):
        kernel.put(f"{state.FOLDER}/damon", noted)
        assert [each["owner"] for each in status.kdamonds(kernel)] == [owner]


@pytest.mark.parametrize(("before", "on"), [("0", "2"), ("1", "3"), ("2", "2"), ("3", "3")])
def test_other_balancing_stays_on(tmp_path: Path, before: str, on: str) -> None:
    kernel = slow(tmp_path)
    kernel.put(BALANCING, before)
    (setting,) = [s for s in switch.plan(kernel, Wish()).settings if s.file == BALANCING]
    assert (setting.before, setting.wanted) == (before, on)
    assert ("balancing between nodes stays on" in setting.why) == (before in "13")
    switch.on(kernel, Wish())
    assert kernel.read(BALANCING) == on
    switch.off(kernel)
    assert kernel.read(BALANCING) == before


def test_where_balancing_goes_on_and_empties_faster_memory(tmp_path: Path) -> None:
    machine = FakeKernel(tmp_path, {1: "1", 4: "0", 54: "2"}, {0: "0-1", 1: "", 2: ""})
    machine.put(BALANCING, "3")
    (told,) = [n for n in switch.plan(machine, Wish()).notes if "pulls hot pages" in n]
    assert "numa_balancing is 3" in told and "sysctl kernel.numa_balancing=2 ends that" in told
    (told,) = switch.plan(machine, Wish(promotion=False)).notes
    assert "sysctl kernel.numa_balancing=0 ends that" in told


def test_a_mode_that_is_no_number(tmp_path: Path) -> None:
    kernel = slow(tmp_path)
    kernel.put(BALANCING, "sometimes")
    with pytest.raises(headrace.UnsupportedError, match="says sometimes"):
        switch.plan(kernel, Wish())
    assert kernel.read(RATE_LIMIT) == "65536"
