# SPDX-License-Identifier: Apache-2.0
"""The kernel's table of weights as `headrace run --set-system-weights` sets it: all or none."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_kernel import FakeKernel, in_memory

import headrace
from headrace._cli import run as run_command
from headrace._run.plan import Plan
from headrace._tiering import switch
from headrace._tiering.plan import WEIGHTS


@pytest.fixture
def kernel() -> Iterator[FakeKernel]:
    with in_memory() as made:
        yield made


def planned(weights: dict[int, int]) -> Plan:
    return Plan(table=weights)


def test_all_weights_are_set_and_can_be_put_back(kernel: FakeKernel) -> None:
    before = kernel.everything()
    done = run_command._apply(planned({0: 7, 1: 9}), kernel)
    assert [kernel.read(f"{WEIGHTS}/node{node}") for node in (0, 1)] == ["7", "9"]
    assert switch.unset_weights(kernel, done) == "all weights are as they were"
    assert kernel.everything() == before


def test_weights_that_are_so_already_are_not_written(kernel: FakeKernel) -> None:
    kernel.put(f"{WEIGHTS}/auto", "false")
    assert run_command._apply(planned({0: 1, 1: 1}), kernel) == [] and kernel.written == []


def test_one_that_the_kernel_refuses_leaves_all_as_they_were(kernel: FakeKernel) -> None:
    before = kernel.everything()
    kernel.refuse.add(f"{WEIGHTS}/node1")
    with pytest.raises(headrace.InvalidError, match="node1.*all weights are as they were"):
        run_command._apply(planned({0: 7, 1: 9}), kernel)
    assert f"{WEIGHTS}/node0" in kernel.written and kernel.everything() == before


def test_a_node_without_a_weight_is_found_before_anything_changes(kernel: FakeKernel) -> None:
    with pytest.raises(headrace.AbsentError, match="no weight of node 2"):
        run_command._apply(planned({0: 7, 1: 5, 2: 9}), kernel)
    assert kernel.written == []


def test_failed_restore_is_reported(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.put(f"{WEIGHTS}/auto", "false")
    write = kernel._write

    def takes_no_ones(name: str, value: str) -> None:
        if value == "1" or name == f"{WEIGHTS}/node1":
            raise OSError(5, "Input/output error")
        write(name, value)

    monkeypatch.setattr(kernel, "_write", takes_no_ones)
    with pytest.raises(headrace.IoError, match="not put back: /.*node0 was 1"):
        run_command._apply(planned({0: 7, 1: 9}), kernel)


def test_ctrl_c_puts_all_back(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernel.everything()
    write = kernel._write

    def interrupted(name: str, value: str) -> None:
        write(name, value)
        if value == "9":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(kernel, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_command._apply(planned({0: 7, 1: 9}), kernel)
    assert kernel.everything() == before


def test_a_program_that_does_not_begin_leaves_the_weights(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its interpreter is not there, which only the kernel finds."""
    before = kernel.everything()
    monkeypatch.setattr(run_command, "Files", lambda: kernel)
    monkeypatch.setattr(run_command, "plan", lambda *_: planned({0: 7, 1: 9}))
    program = tmp_path / "program"
    program.write_text("#!/nowhere/sh\n")
    program.chmod(0o755)
    code = run_command.run(
        run_command.Request(), [str(program)], verbose=False, dry=False, source=None
    )
    assert code == 126 and kernel.written and kernel.everything() == before
