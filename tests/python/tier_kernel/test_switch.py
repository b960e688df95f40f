# SPDX-License-Identifier: Apache-2.0
"""The kernel's tiering switched on and off, on kernels made of files: what was there comes back."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_kernel import FakeKernel, in_memory, killed, slow, xeon_max

import headrace
from headrace._tiering import state, status, switch
from headrace._tiering.damon import COUNT, KDAMONDS
from headrace._tiering.plan import BALANCING, DEMOTION, RATE_LIMIT, WEIGHTS, Wish, plan

#: All that --on can set.
ALL = Wish(weights={0: 3, 1: 1}, schemes=("hot", "cold"))
#: With one kdamond, for tests that do it once for each setting.
MOST = Wish(weights={0: 3, 1: 1}, schemes=("hot",))


@pytest.fixture
def kernel() -> Iterator[FakeKernel]:
    with in_memory() as made:
        yield made


def test_on_sets_all_and_off_restores_all(kernel: FakeKernel) -> None:
    before = kernel.everything()
    done = switch.on(kernel, ALL)
    assert kernel.read(BALANCING) == "3" and kernel.read(DEMOTION) == "1"  # 1 stays on
    assert kernel.read(RATE_LIMIT) == "2560"  # a tenth of 25 GiB/s
    assert [kernel.read(f"{WEIGHTS}/{name}") for name in ("auto", "node0", "node1")] == [
        "0", "3", "1",
    ]  # fmt: skip
    assert [kernel.read(f"{KDAMONDS}/{n}/state") for n in (0, 1)] == ["on", "on"]
    scheme = f"{KDAMONDS}/0/contexts/0/schemes/0"
    assert kernel.read(f"{scheme}/action") == "migrate_hot"
    assert kernel.read(f"{scheme}/target_nid") == "0"
    assert kernel.read(f"{KDAMONDS}/1/contexts/0/schemes/0/target_nid") == "1"
    assert all(setting.is_change for setting in done.settings)
    undone = switch.off(kernel).undone
    assert {each.outcome for each in undone} == {"put back"}
    assert kernel.everything() == before
    assert not kernel.path(state.NAME).exists()


def test_regions_are_the_memory_of_the_node_that_gives(kernel: FakeKernel) -> None:
    switch.on(kernel, Wish(schemes=("hot",)))
    regions = f"{KDAMONDS}/0/contexts/0/targets/0/regions"
    block = 128 << 20
    found = [
        (int(kernel.read(f"{regions}/{n}/start") or 0), int(kernel.read(f"{regions}/{n}/end") or 0))
        for n in range(int(kernel.read(f"{regions}/nr_regions") or 0))
    ]
    assert found == [(4 * block, 6 * block), (7 * block, 8 * block)]


def test_the_state_is_written_before_the_first_setting(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    take = kernel._write

    def look(name: str, value: str) -> None:
        assert len(synced) >= 2  # the file and its folder
        seen.append(json.loads(kernel.path(state.NAME).read_text()))
        take(name, value)

    kernel._write = look  # type: ignore[method-assign]
    switch.on(kernel, ALL)
    first = seen[0]
    assert first["boot"] == "boot-1" and first["phase"] == state.BEGUN
    noted = {each["file"]: (each["before"], each["wanted"]) for each in first["settings"]}
    assert noted[BALANCING] == ("1", "3") and noted[f"{WEIGHTS}/auto"] == ("1", "0")
    assert json.loads(kernel.path(state.NAME).read_text())["phase"] == state.ON


def test_off_restores_all_wherever_on_was_killed(kernel: FakeKernel) -> None:
    before = kernel.everything()
    for after in range(200):
        died = killed(kernel, after, lambda: switch.on(kernel, MOST))
        switch.off(kernel)
        assert kernel.everything() == before, f"killed after {after} writes"
        assert not kernel.path(state.NAME).exists()
        if not died:
            break
    assert not died and after > 25  # every setting was one to die at


def test_off_may_be_killed_as_well(kernel: FakeKernel) -> None:
    before = kernel.everything()
    died = True
    for after in range(20):
        switch.on(kernel, MOST)
        died = killed(kernel, after, lambda: switch.off(kernel))
        switch.off(kernel)
        assert kernel.everything() == before, f"killed after {after} writes"
        if not died:
            break
    assert not died and after > 5


def test_after_an_interrupted_on_one_puts_back_first(kernel: FakeKernel) -> None:
    assert killed(kernel, 2, lambda: switch.on(kernel, MOST))
    with pytest.raises(headrace.InvalidError, match="interrupted; headrace tier kernel --off"):
        switch.on(kernel, ALL)
    noted, _ = switch.shown(kernel, ALL)
    assert noted is not None and noted.phase == state.BEGUN


@pytest.mark.parametrize("refused", [RATE_LIMIT, BALANCING, DEMOTION, f"{WEIGHTS}/node0", COUNT])
def test_a_refused_write_puts_back_the_others(kernel: FakeKernel, refused: str) -> None:
    before = kernel.everything()
    kernel.refuse = {refused}
    with pytest.raises(headrace.InvalidError, match=f"/{refused}.*all else was put back"):
        switch.on(kernel, ALL)
    assert kernel.everything() == before
    assert not kernel.path(state.NAME).exists()


def test_failed_restore_is_reported_and_kept_for_off(kernel: FakeKernel) -> None:
    take = kernel._write

    def stuck(name: str, value: str) -> None:
        take(name, value)
        if name == RATE_LIMIT:
            kernel.refuse = {RATE_LIMIT, DEMOTION}

    kernel._write = stuck  # type: ignore[method-assign]
    with pytest.raises(headrace.InvalidError, match="not all could be put back"):
        switch.on(kernel, ALL)
    with pytest.raises(headrace.InvalidError, match=f"/{RATE_LIMIT}.*not put back: 1 of"):
        switch.off(kernel)
    kernel.refuse = set()
    switch.off(kernel)
    assert kernel.read(RATE_LIMIT) == "65536" and not kernel.path(state.NAME).exists()


@pytest.mark.parametrize("at", [BALANCING, f"{KDAMONDS}/0/contexts/0/schemes/0/action"])
def test_ctrl_c_in_the_middle_puts_back(kernel: FakeKernel, at: str) -> None:
    before = kernel.everything()
    take = kernel._write
    pressed = []

    def press(name: str, value: str) -> None:
        take(name, value)
        if name == at and not pressed:
            pressed.append(name)
            raise KeyboardInterrupt

    kernel._write = press  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        switch.on(kernel, ALL)
    assert kernel.everything() == before and not kernel.path(state.NAME).exists()


def test_files_that_are_busy_for_a_moment_are_tried_again(kernel: FakeKernel) -> None:
    take = kernel._write
    busy = dict.fromkeys([COUNT, f"{KDAMONDS}/0/state"], 2)

    def at_times(name: str, value: str) -> None:
        if busy.get(name):
            busy[name] -= 1
            raise OSError(errno.EBUSY, "Device or resource busy")
        take(name, value)

    kernel._write = at_times  # type: ignore[method-assign]
    switch.on(kernel, ALL)
    assert kernel.read(f"{KDAMONDS}/0/state") == "on" and not any(busy.values())


def test_a_kernel_that_takes_something_else_is_told(kernel: FakeKernel) -> None:
    before = kernel.everything()
    take = kernel._write
    kernel._write = lambda name, value: take(name, "7" if value == "3" else value)  # type: ignore
    with pytest.raises(headrace.InvalidError, match=f"took 3 in /{BALANCING} but reads back 7"):
        switch.on(kernel, Wish())
    assert kernel.everything() == before


def test_a_second_on_changes_nothing(kernel: FakeKernel) -> None:
    switch.on(kernel, ALL)
    on = kernel.everything()
    kernel.written.clear()
    assert switch.on(kernel, ALL).notes == ("it is on already; nothing was changed",)
    with pytest.raises(headrace.InvalidError, match="with other options"):
        switch.on(kernel, Wish())
    assert kernel.everything() == on and kernel.written == []
    kernel.put(DEMOTION, "false")
    with pytest.raises(headrace.InvalidError, match=f"somebody else has set /{DEMOTION} to 0"):
        switch.on(kernel, ALL)


def test_third_party_setting_is_kept_unless_forced(kernel: FakeKernel) -> None:
    before = kernel.everything()
    switch.on(kernel, ALL)
    kernel.put(BALANCING, "0")
    outcomes = {each.setting.file: each.outcome for each in switch.off(kernel).undone}
    assert outcomes.pop(BALANCING) == "left" and set(outcomes.values()) == {"put back"}
    assert kernel.read(BALANCING) == "0" and kernel.read(DEMOTION) == "0"
    assert [each.outcome for each in switch.off(kernel).undone] == ["left"]
    assert [each.outcome for each in switch.off(kernel, force=True).undone] == ["put back"]
    assert kernel.everything() == before and not kernel.path(state.NAME).exists()


def test_after_a_reboot_the_state_is_void(kernel: FakeKernel) -> None:
    switch.on(kernel, Wish())
    kernel.put("proc/sys/kernel/random/boot_id", "boot-2")
    kernel.written.clear()
    assert switch.shown(kernel, Wish())[0] is None
    assert "earlier boot" in switch.off(kernel).notes[0]
    assert kernel.written == [] and not kernel.path(state.NAME).exists()
    kernel.put("proc/sys/kernel/random/boot_id", "boot-1")
    kernel.put(BALANCING, "1")
    switch.on(kernel, Wish(demotion=False))
    kernel.put("proc/sys/kernel/random/boot_id", "boot-3")
    kernel.put(BALANCING, "1")
    assert any("is void" in note for note in switch.on(kernel, Wish(demotion=False)).notes)
    switch.off(kernel)
    assert kernel.read(BALANCING) == "1"


def test_off_where_it_is_not_on(kernel: FakeKernel) -> None:
    before = kernel.everything()
    assert "not on" in switch.off(kernel).notes[0]
    assert kernel.everything() == before and not kernel.path("run").exists()


def test_a_choice_that_the_kernel_cannot_make_again_is_told(kernel: FakeKernel) -> None:
    """Linux 6.18 without bandwidths from firmware says "true", and takes no "true"."""
    before = kernel.everything()
    kernel.knows_bandwidths = False
    (note,) = switch.on(kernel, ALL).notes
    assert "--off puts back the weights" in note and kernel.read(f"{WEIGHTS}/auto") == "0"
    assert {each.outcome for each in switch.off(kernel).undone} == {"put back"}
    assert kernel.everything() == before | {f"{WEIGHTS}/auto": "false\n"}
    assert not kernel.path(state.NAME).exists()


def test_two_at_once_wait_for_each_other(kernel: FakeKernel) -> None:
    take = kernel._write
    tried = []

    def second(name: str, value: str) -> None:
        with pytest.raises(headrace.TimedOutError, match="another headrace tier kernel"):
            with state.locked(kernel, 0.0):
                pass
        tried.append(name)
        take(name, value)

    kernel._write = second  # type: ignore[method-assign]
    switch.on(kernel, Wish())
    switch.off(kernel)
    assert len(tried) == 6


def test_show_touches_nothing(kernel: FakeKernel) -> None:
    before = kernel.everything()
    _, made = switch.shown(kernel, ALL)
    assert len(made.changes) > 40
    assert kernel.everything() == before and not kernel.path("run").exists()


def test_without_root_one_line_says_what_is_possible(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() or 65534)
    monkeypatch.setattr(kernel, "writable", lambda name: False)
    with pytest.raises(headrace.DeniedError, match=r"sudo.*Without root: --show"):
        switch.on(kernel, Wish())
    assert kernel.written == [] and not kernel.path("run").exists()
    monkeypatch.setattr(kernel, "writable", lambda name: not name.startswith("proc/sys"))
    with pytest.raises(headrace.DeniedError, match=f"/{RATE_LIMIT} cannot be written"):
        switch.on(kernel, Wish())  # as in a container
    assert kernel.written == [] and not kernel.path(state.NAME).exists()


class TestTopologies:
    def test_hbm_faster_than_the_cpus_memory_is_refused(self, tmp_path: Path) -> None:
        machine = xeon_max(tmp_path).with_damon()
        with pytest.raises(headrace.UnsupportedError) as refused:
            switch.on(machine, Wish())
        for part in ("node 8-15 (tier 1)", "node 0-7 (tier 4)", "promotes nothing", "pulls hot"):
            assert part in str(refused.value)
        assert machine.written == []
        made = plan(machine, Wish(promotion=False, schemes=("hot",), rate=1e9))
        assert "numa_balancing is 1, which pulls" in made.notes[0]
        targets = {s.file: s.wanted for s in made.settings if s.file.endswith("target_nid")}
        assert list(targets.values()) == [str(node) for node in range(8, 16)]  # equally far

    def test_hbm_beside_slow_memory_is_a_note(self, tmp_path: Path) -> None:
        machine = FakeKernel(tmp_path, {1: "1", 4: "0", 54: "2"}, {0: "0-1", 1: "", 2: ""})
        (note, *_) = plan(machine, Wish()).notes
        assert note.startswith("promoted are pages of node 2 (tier 54) to node 0 (tier 4), not to")

    def test_tiers_that_all_have_cpus_are_all_top(self, tmp_path: Path) -> None:
        machine = FakeKernel(tmp_path, {1: "0", 4: "1"}, {0: "0", 1: "1"})
        with pytest.raises(headrace.UnsupportedError, match="promotes nothing"):
            switch.on(machine, Wish())

    def test_one_tier_is_refused(self, tmp_path: Path) -> None:
        machine = FakeKernel(tmp_path, {4: "0"}, {0: "0-1"})
        with pytest.raises(headrace.UnsupportedError, match=r"one tier.*headrace tier attach"):
            switch.on(machine, Wish())
        weights = Wish(promotion=False, demotion=False, weights={0: 2})
        assert [each.wanted for each in plan(machine, weights).settings] == ["2"]

    def test_a_rate_that_firmware_does_not_say_is_not_set(self, tmp_path: Path) -> None:
        machine = FakeKernel(tmp_path, {4: "0", 54: "1"}, {0: "0-1", 1: ""})
        made = plan(machine, Wish())
        assert RATE_LIMIT not in [each.file for each in made.settings]
        assert any("--rate" in note for note in made.notes)
        with pytest.raises(headrace.InvalidError, match=r"without a limit.*--rate 1GB/s"):
            plan(machine.with_damon(), Wish(promotion=False, schemes=("hot",)))
        made = plan(machine, Wish(rate=200 * (1 << 20)))
        assert made.settings[0].file == RATE_LIMIT and made.settings[0].wanted == "200"

    @pytest.mark.parametrize(
        ("file", "needed"),
        [
            (BALANCING, "CONFIG_NUMA_BALANCING"),
            (RATE_LIMIT, "Linux 6.1"),
            (DEMOTION, "Linux 5.15"),
            ("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "CPUs|one tier"),
        ],
    )
    def test_missing_kernel_feature_is_reported(
        self, kernel: FakeKernel, file: str, needed: str
    ) -> None:
        kernel.path(file).unlink()
        with pytest.raises(headrace.UnsupportedError, match=needed):
            switch.on(kernel, ALL)
        assert kernel.written == []

    @pytest.mark.parametrize(
        ("weights", "told"), [({0: 256}, "give 1 to 255"), ({7: 1}, "no weight of node 7")]
    )
    def test_weights_that_cannot_be(
        self, kernel: FakeKernel, weights: dict[int, int], told: str
    ) -> None:
        with pytest.raises(headrace.Error, match=told):
            switch.on(kernel, Wish(weights=weights))


@pytest.mark.parametrize("shares", ["no processes", "all processes", "/run too"])
def test_a_container_that_may_set_all_is_refused(kernel: FakeKernel, shares: str) -> None:
    """Its /run ends with it, and the settings do not."""
    number = 4026532177 if shares == "no processes" else 4026531836
    for name, target in {
        "proc/self/ns/pid": f"pid:[{number}]",
        "proc/1/root": str(kernel.root / ("host" if shares == "all processes" else "")),
    }.items():
        kernel.path(name).parent.mkdir(parents=True, exist_ok=True)
        kernel.path(name).symlink_to(target)
    for folder in ("run", "host/run"):
        kernel.path(folder).mkdir(parents=True)
    if shares == "/run too":
        switch.on(kernel, Wish())
        switch.off(kernel)
        return
    with pytest.raises(headrace.DeniedError, match="do this on the host"):
        switch.on(kernel, Wish())
    assert kernel.written == [] and not kernel.path(state.FOLDER).exists()


class TestDamon:
    @pytest.mark.parametrize("name", ["stat", "reclaim", "lru_sort"])
    def test_what_the_kernel_runs_itself_is_named(self, kernel: FakeKernel, name: str) -> None:
        holder = f"sys/module/damon_{name}/parameters/enabled"
        kernel.put(holder, "Y")
        with pytest.raises(headrace.DeniedError, match=f"echo N > /{holder}"):
            switch.on(kernel, ALL)
        assert kernel.written == []
        (told,) = (each for each in status.features(kernel) if each.feature == "DAMON")
        assert told.state == "on" and told.why.endswith(f"/{holder}")
        kernel.put(holder, "N")
        switch.on(kernel, ALL)

    def test_a_rate_is_never_no_limit(self, kernel: FakeKernel) -> None:
        switch.on(kernel, Wish(promotion=False, schemes=("hot",), rate=0.1))
        assert kernel.read(f"{KDAMONDS}/0/contexts/0/schemes/0/quotas/bytes") == "1"

    def test_kdamonds_of_others_are_left_alone(self, kernel: FakeKernel) -> None:
        kernel.write(COUNT, "1")
        kernel.put(f"{KDAMONDS}/0/state", "on")
        before = kernel.everything()
        with pytest.raises(headrace.DeniedError, match="somebody else has set up DAMON"):
            switch.on(kernel, ALL)
        switch.on(kernel, Wish())  # all else goes
        switch.off(kernel)
        assert kernel.everything() == before

    def test_kdamonds_that_came_in_place_of_ours_are_left_alone(self, kernel: FakeKernel) -> None:
        switch.on(kernel, ALL)
        for number in (0, 1):
            kernel.write(f"{KDAMONDS}/{number}/state", "off")
        kernel.write(COUNT, "2")
        kernel.put(f"{KDAMONDS}/0/state", "on")
        theirs = {k: v for k, v in kernel.everything().items() if k.startswith(KDAMONDS)}
        for _ in range(2):
            outcomes = {e.setting.file: e.outcome for e in switch.off(kernel).undone}
            assert outcomes[COUNT] == outcomes[f"{KDAMONDS}/0/state"] == "left"
            now = kernel.everything()
            assert {k: v for k, v in now.items() if k.startswith(KDAMONDS)} == theirs
        assert kernel.read(BALANCING) == "1"
        switch.off(kernel, force=True)
        assert kernel.read(COUNT) == "0"

    def test_kdamonds_that_came_after_an_interrupted_on(self, kernel: FakeKernel) -> None:
        assert killed(kernel, 12, lambda: switch.on(kernel, MOST))
        assert kernel.read(f"{KDAMONDS}/0/state") == "off"
        kernel.write(COUNT, "1")
        kernel.write(f"{KDAMONDS}/0/state", "on")
        assert {e.setting.file: e.outcome for e in switch.off(kernel).undone}[COUNT] == "left"
        assert kernel.read(f"{KDAMONDS}/0/state") == "on" and kernel.read(BALANCING) == "1"

    def test_kdamonds_that_come_while_we_plan_are_left_alone(
        self, kernel: FakeKernel
    ) -> None:
        kernel.busy_bound = 0.02
        take = kernel._write
        theirs: dict[str, str] = {}

        def meanwhile(name: str, value: str) -> None:
            if name == COUNT and not theirs:
                take(COUNT, "1")
                take(f"{KDAMONDS}/0/state", "on")
                theirs.update(kernel.everything())
            take(name, value)

        before = kernel.read(BALANCING)
        kernel._write = meanwhile  # type: ignore[method-assign]
        with pytest.raises(headrace.Error, match="all else was put back"):
            switch.on(kernel, MOST)
        now = kernel.everything()
        assert {k: v for k, v in now.items() if k.startswith(KDAMONDS)} == {
            k: v for k, v in theirs.items() if k.startswith(KDAMONDS)
        }
        assert kernel.read(BALANCING) == before and not kernel.path(state.NAME).exists()

    def test_a_kernel_without_the_action_is_told(self, kernel: FakeKernel) -> None:
        before = kernel.everything()
        kernel.actions.remove("migrate_cold")
        with pytest.raises(headrace.InvalidError, match="does not take migrate_cold"):
            switch.on(kernel, ALL)
        assert kernel.everything() == before

    def test_a_kernel_without_damon(self, tmp_path: Path) -> None:
        with pytest.raises(headrace.UnsupportedError, match="CONFIG_DAMON_SYSFS"):
            switch.on(slow(tmp_path), ALL)

    def test_no_such_scheme(self, kernel: FakeKernel) -> None:
        with pytest.raises(headrace.InvalidError, match="no scheme 'warm'"):
            switch.on(kernel, Wish(schemes=("warm",)))
