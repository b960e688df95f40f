# SPDX-License-Identifier: Apache-2.0
"""The model of a GPU's driver: states, constants, published figures beside modelled ones."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

import headrace
from headrace._model import um, um_cases
from headrace._model.um import Array, Machine
from headrace._model.um_cases import GIB, KIB, MIB, Case, steady

AC922, X86, GH200 = map(um.machine_named, um.NAMES)
#: A machine whose figures are easily added: 1 s for a block over the link, 2 s out of it.
PLAIN = replace(
    AC922, device_bytes=3 * um.BLOCK, device_latency=1e-15, device_rate=1e15, link_in=2 * MIB,
    link_out=1 * MIB, fault_batch=100.0, eviction=10.0, counters=None,
)  # fmt: skip


def seconds(machine: Machine, case: Case) -> list[float]:
    """Seconds by run of a case without a kernel's own time."""
    return [round(case.size / GIB / rate, 3) for rate in um.rates(machine, case)]


def blocks(count: int, **case: object) -> Case:
    return replace(Case(size=count * um.BLOCK, runs=3), **case)  # type: ignore[arg-type]


def test_batches_until_a_block_is_there() -> None:
    # A leaf a time: of 32 those numbered 0, 1, 2, 4, 8 and 16 fault; the tree brings the others.
    assert um.fault_batches(64 * KIB) == (6,) * 8
    # 0 and 1 at once; what begins within a leaf asks for two, and windows straddle blocks.
    assert um.fault_batches(128 * KIB) == (5,) * 8
    assert set(um.fault_batches(80 * KIB)) == {5, 6}
    assert um.fault_batches(um.BLOCK) == (1,) * 8


def test_bytes_in_flight_are_those_of_blocks_that_run_at_once() -> None:
    assert AC922.in_flight("reprex") == 80 * KIB
    assert AC922.in_flight("wide") == 80 * 4 * 256 * 64  # 4 blocks: a thread has 58 registers


def test_states_by_hand() -> None:
    window = um.fault_batches(PLAIN.in_flight("reprex"))
    faults = [100.0 * count for count in window]
    # Brought once, then near.
    assert seconds(PLAIN, blocks(2)) == [faults[0] + faults[1] + 2, 0, 0]
    # One block more than there is room for: the last evicts the first, and then each the next.
    fourth = 2 + 10  # out at the same time as in, and what evicting takes
    run = sum(faults[:4])
    assert seconds(PLAIN, blocks(4)) == [run + 3 + fourth, run + 4 * fourth, run + 4 * fourth]
    mapping = um.BLOCK / PLAIN.in_flight("reprex") * 100
    stays = seconds(PLAIN, blocks(4, preferred_location_cpu=True))
    assert stays == pytest.approx([4 * (mapping + 1), 4, 4])
    mapped = seconds(PLAIN, blocks(4, accessed_by=True))
    assert mapped == [4, 4, 4] == seconds(PLAIN, blocks(4, memory="system"))
    assert seconds(PLAIN, blocks(4, memory="system", op="write")) == [8, 8, 8]
    touched = seconds(PLAIN, blocks(2, touch_on_host=True))
    assert touched == [faults[0] + faults[1] + 2] * 3
    # A block that is read mostly is still in host memory: nothing goes out.
    assert seconds(PLAIN, blocks(4, read_mostly=True))[1] == run + 4 * (1 + 10)
    fetched = seconds(PLAIN, blocks(4, prefetch_block=um.BLOCK))
    assert fetched == [3 + fourth, 4 * fourth, 4 * fourth]


def test_counters_bring_what_was_read_over_the_link() -> None:
    counted = replace(PLAIN, counters=um.Counters(delay=1.5, service=7.0))
    # Reports at 1, 2 and 3 s; from 1.5 s after the first on they are served, the oldest first.
    first, second, third = seconds(counted, blocks(3, accessed_by=True))
    assert first == 3 + 7
    # The first has lost its mapping and faults; the others were reported and come whole.
    assert second == um.fault_batches(80 * KIB)[0] * 100 + 1 + 2 * (100 + 1)
    assert third == 0
    kept = seconds(counted, blocks(3, accessed_by=True, preferred_location_cpu=True))
    assert kept == [3, 3, 3]


def test_no_state_has_more_than_the_card() -> None:
    drawn = random.Random(1)
    for _ in range(200):
        case = blocks(
            drawn.randrange(1, 9), accessed_by=drawn.random() < 0.5, op=drawn.choice(um_cases.OPS),
            preferred_location_cpu=drawn.random() < 0.3, read_mostly=drawn.random() < 0.3,
            kernel=drawn.choice(um_cases.KERNELS),
            prefetch_block=drawn.choice([None, None, MIB, 4 * MIB]),
        )  # fmt: skip
        counters = drawn.choice([None, um.Counters(drawn.random() * 4, drawn.random())])
        array = Array(replace(PLAIN, counters=counters), case)
        for _ in range(4):
            assert array.run() > 0
            assert sum(array.near) == len(array.oldest) <= array.room
            assert not any(map(lambda near, mapped: near and mapped, array.near, array.mapped))
            if drawn.random() < 0.3:
                array.touch_on_host()


def loss(machine: Machine) -> float:
    """Squares of logarithms, of run 1 and what comes after."""
    total = 0.0
    for published in um_cases.PUBLISHED:
        if published.machine == machine.name and published.runs:
            found = um.rates(machine, published.case)
            total += math.log(found[0] / published.runs[0]) ** 2
            after, told = steady(found), steady(published.runs)
            assert after is not None and told is not None
            total += math.log(after / told) ** 2
    return total


@pytest.mark.parametrize("machine", [AC922, X86])
def test_the_constants_are_the_fit(machine: Machine) -> None:
    best = loss(machine)
    for name in machine.fitted:
        for factor in (0.95, 1.05):
            if name.startswith("counters."):
                assert machine.counters is not None
                part = name.removeprefix("counters.")
                old = getattr(machine.counters, part)
                other = replace(machine, counters=replace(machine.counters, **{part: old * factor}))
            else:
                other = replace(machine, **{name: getattr(machine, name) * factor})
            assert loss(other) > best, (name, factor)


def test_every_published_figure_lies_within_the_fit() -> None:
    figures = 0
    for published in um_cases.PUBLISHED:
        if not published.runs:
            continue
        found = um.rates(um.machine_named(published.machine), published.case)
        late = steady(found), steady(published.runs)
        for modelled, told in ((found[0], published.runs[0]), late):
            assert modelled is not None and told is not None
            assert abs(modelled / told - 1) <= 0.15, published
            figures += 1
    # Far fewer constants than figures.
    assert figures == 24 and len(AC922.fitted) + len(X86.fitted) == 9


def test_costs_are_those_of_the_machines_that_have_them() -> None:
    for name in headrace.presets():
        found = um.machine_of(headrace.Machine.load(name).asdict())
        assert (found is not None) == (name in um.NAMES), name
        assert found is None or (found.name == name and found == um.machine_named(name))
    with pytest.raises(headrace.InvalidError, match="ac922, x86-pcie3"):
        um.machine_named("nowhere")


def test_the_median_of_the_runs_after_the_first() -> None:
    assert steady((53.2, 13.9, 197.7, 198.1, 198.6)) == pytest.approx(197.9)
    assert steady((5.0,)) is None


def test_what_nobody_told_is_a_reason() -> None:
    with pytest.raises(headrace.UnsupportedError, match="beyond the card's"):
        um.rates(GH200, Case(size=100 * GIB))
    with pytest.raises(headrace.UnsupportedError, match="not registered"):
        um.rates(X86, Case(memory="system"))
    with pytest.raises(headrace.UnsupportedError, match="nobody told how fast node:8"):
        um.rates(AC922, Case(memory="node:8"))


def test_costs_of_a_file_are_whole() -> None:
    document = headrace.Machine.load("ac922").asdict()
    document["model"]["unified_memory"].pop("counters")
    with pytest.raises(headrace.InvalidError, match=r"ac922: model\.unified_memory has not all"):
        um.machine_of(document)
