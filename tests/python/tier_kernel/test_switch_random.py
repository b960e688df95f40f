# SPDX-License-Identifier: Apache-2.0
"""Switching on and off at random, between kills, refusals and others who set things, against a
model that knows what each setting was before --on.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fake_kernel import FakeKernel, killed, slow
from hypothesis import example, given
from hypothesis import strategies as st

import headrace
from headrace._tiering import state, switch
from headrace._tiering.plan import BALANCING, DEMOTION, RATE_LIMIT, WEIGHTS, Wish

FILES = (BALANCING, DEMOTION, RATE_LIMIT, f"{WEIGHTS}/node0")
WISHES = (Wish(), Wish(promotion=False, weights={0: 3}), Wish(rate=float(1 << 30), weights={0: 5}))
VALUES = {BALANCING: "0123", DEMOTION: "01", RATE_LIMIT: "79", f"{WEIGHTS}/node0": "2345"}

STEP = st.one_of(
    st.tuples(st.just("on"), st.integers(0, len(WISHES) - 1)),
    st.tuples(st.just("killed"), st.integers(0, 3)),
    st.tuples(st.just("off"), st.booleans()),
    st.tuples(st.just("stuck"), st.booleans(), st.integers(0, len(FILES) - 1)),
    st.tuples(st.just("other"), st.integers(0, len(FILES) - 1), st.integers(0, 3)),
    st.tuples(st.just("refuse"), st.integers(0, len(FILES) - 1)),
)


class Model:
    """For each changed setting, its value before --on and the value that --on wants. Also the
    settings that --off has left to another program.
    """

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel
        self.held: dict[str, tuple[str | None, str]] = {}
        self.left: dict[str, str | None] = {}

    def now(self) -> dict[str, str | None]:
        return {file: self.kernel.read(file) for file in FILES}

    def on(self, wish: Wish, *, dies: int | None = None) -> None:
        before = self.now()
        settable = {s.file: s.wanted for s in switch.plan(self.kernel, wish).changes}
        died = False
        if dies is not None:
            died = killed(self.kernel, dies, lambda: switch.on(self.kernel, wish))
        else:
            try:
                switch.on(self.kernel, wish)
            except headrace.InvalidError:
                assert self.now() == before  # all or nothing
                return
        if died or self.now() != before:
            self.held = {file: (before[file], wanted) for file, wanted in settable.items()}
            self.left = {f: before for f, before in self.left.items() if f not in settable}
            changed = {file for file in FILES if self.now()[file] != before[file]}
            assert changed <= set(settable)
            assert died or changed == set(settable)

    def off(self, force: bool, stuck: str | None = None) -> None:
        """`stuck`: a file in which the kernel takes nothing."""
        expected, held, left = self.now(), {}, {}
        for file, (before, wanted) in self.held.items():
            if expected[file] not in (before, wanted) and not force:
                left[file] = before
            elif file == stuck and expected[file] != before:
                held[file] = (before, wanted)
            else:
                expected[file] = before
        for file, before in self.left.items():
            if expected[file] != before and (not force or file == stuck):
                left[file] = before
            else:
                expected[file] = before
        try:
            switch.off(self.kernel, force=force)
            assert stuck not in held and not (force and left)
        except headrace.InvalidError:
            assert stuck in held or (force and stuck in left)
        assert self.now() == expected
        self.held, self.left = held, left
        assert self.kernel.path(state.NAME).exists() == bool(held or left)


#: Somebody else sets the balancing while it is on.
TAKEN = [("on", 0), ("other", 0, 0), ("off", False)]


@example([*TAKEN, ("on", 0), ("off", False)])
@example([*TAKEN, ("refuse", 0)])
@example([*TAKEN, ("other", 0, 1), ("off", False)])  # as it was
@example([*TAKEN, ("stuck", True, 0)])
@example([("on", 0), ("stuck", False, 1), ("other", 0, 3), ("off", False)])  # put back once
@given(st.lists(STEP, max_size=10))
def test_random_switching_restores_every_setting(steps: list[tuple[object, ...]]) -> None:
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="headrace-") as folder:
        model = Model(slow(Path(folder)))
        for name, *arguments in steps:
            model.kernel.refuse = set()
            if name == "on":
                model.on(WISHES[arguments[0]])
            elif name == "killed":
                model.on(WISHES[2], dies=arguments[0])
            elif name == "off":
                model.off(arguments[0])
            elif name == "stuck":
                model.kernel.refuse = {FILES[arguments[1]]}
                model.off(arguments[0], FILES[arguments[1]])
            elif name == "other":
                file = FILES[arguments[0]]
                choice = VALUES[file]
                text = choice[arguments[1] % len(choice)]
                words = {"0": "false", "1": "true"}
                model.kernel.put(file, words[text] if file == DEMOTION else text)
            else:
                model.kernel.refuse = {FILES[arguments[0]]}
                model.on(WISHES[2])
        model.kernel.refuse = set()
        model.off(True)
