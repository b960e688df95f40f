# SPDX-License-Identifier: Apache-2.0
"""headrace advise um: what it advises is among the best of what was published."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Run

from headrace._cli import app
from headrace._model import um, um_advice, um_cases
from headrace._model.um_cases import GIB, Case
from headrace_bench.commands import um as bench_um

#: Compared is, of each machine and size, all that was published.
GROUPS = sorted({(each.machine, each.case.size) for each in um_cases.PUBLISHED if each.runs})


def recipe_of(case: Case) -> str | None:
    """The recipe with the options of a published case."""
    for each in um_advice.RECIPES:
        if replace(each.case, size=case.size, runs=case.runs, kernel=case.kernel) == case:
            return each.name
    return None


def published(machine: str, size: int) -> dict[str | None, float]:
    """Recipes with a published case: bytes over time of all its runs."""
    return {
        recipe_of(each.case): len(each.runs) / sum(1 / rate for rate in each.runs)
        for each in um_cases.PUBLISHED
        if (each.machine, each.case.size) == (machine, size)
    }


@pytest.mark.parametrize(("machine", "size"), GROUPS)
def test_the_advised_is_among_the_best_published(machine: str, size: int) -> None:
    told = published(machine, size)
    assert len(told) > 1 and None not in told
    advice = um_advice.advise(um.machine_named(machine), Case(size=size))
    if advice["advised"] in told:
        assert told[advice["advised"]] >= 0.98 * max(told.values())
    rates = {row["recipe"]: row["rate"] for row in advice["rows"] if row["recipe"] in told}
    # And where something is advised that nobody published, the best of the rest is.
    assert told[max(rates, key=lambda name: rates[name])] >= 0.98 * max(told.values())
    for name in told:
        assert rates[name] == pytest.approx(told[name], rel=0.15), name


def test_a_host_that_touches_it_on_gh200() -> None:
    """Published: 331 to 339 GB/s of system memory, 18 to 29 of managed memory touched by both."""
    advice = um_advice.advise(um.machine_named("gh200"), Case(size=4 * GIB, touch_on_host=True))
    assert advice["advised"] == "system"


@pytest.mark.parametrize("machine", um.NAMES)
def test_nothing_is_advised_that_is_evicted(machine: str) -> None:
    found = um.machine_named(machine)
    for size in (GIB, found.device_bytes, found.device_bytes + GIB, 3 * found.device_bytes):
        for op in um_cases.OPS:
            for touched in (False, True):
                asked = Case(size=size, op=op, touch_on_host=touched, runs=2)
                advice = um_advice.advise(found, asked)
                best = next(each for each in um_advice.RECIPES if each.name == advice["advised"])
                case = replace(best.case, size=size, op=op, touch_on_host=touched, runs=2)
                assert not any(each.evicted for each in um.runs(found, case))


@pytest.mark.parametrize("machine", um.NAMES)
def test_what_checks_it_is_the_same_case(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line under the advice runs the recipe's own case: bench um parses it as such."""
    size, asked = 3 * GIB + 4096, []
    for op in um_cases.OPS:
        for touched in (False, True):
            asked.append(Case(size=size, op=op, touch_on_host=touched, runs=3))
    ran: list[Case] = []
    monkeypatch.setattr(bench_um, "measured", lambda case, *_: ran.append(case))
    found = um.machine_named(machine)
    for case in [*asked, Case(size=GIB)]:
        for row in um_advice.advise(found, case)["rows"]:
            if row["rate"] is None:
                continue
            program, group, *words = row["check"].split()
            assert (program, group) == ("headrace", "bench") and "--oversubscribe" not in words
            app.run([group, *words])
            rates = um.rates(found, ran.pop())
            assert rates[0] == row["run_1"] and um_cases.steady(rates) == row["after_1"]


def test_what_checks_it_beyond_the_card_says_so() -> None:
    advice = um_advice.advise(um.machine_named("x86-pcie3"), Case(size=40 * GIB))
    checks = {row["recipe"]: row["check"] for row in advice["rows"]}
    assert checks["managed"] == "headrace bench um --size 40GiB --oversubscribe"
    assert checks["system"] == "headrace bench um --size 40GiB --memory system"


def test_as_a_document(run: Run, tmp_path: Path) -> None:
    result = run("advise", "um", "--size", "40GiB", "--machine", "x86-pcie3", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["kind"] == "advise_um" and document["basis"] == "modelled"
    assert document["advised"] == "accessed-by" and document["beyond_the_card"]
    rows = {row["recipe"]: row for row in document["rows"]}
    assert rows["system"]["rate"] is None and "not registered" in rows["system"]["because"]
    assert rows["managed"]["slower"] > 5
