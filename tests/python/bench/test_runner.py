# SPDX-License-Identifier: Apache-2.0
"""The runner of benchmarks: orders, the discarded round, stops, errors, rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from headrace_bench.runner import Runner, Variant, check, median_of, orders, row_of

import headrace
from headrace._errors import WrongAnswer

ROUNDS = 6


def never() -> bool:
    return False


def variants(names: str = "abcd") -> list[Variant]:
    return [Variant({"name": name}) for name in names]


def name_of(variant: Variant) -> str:
    return str(variant.parameters["name"])


def check_orders(ran: Sequence[Any], alternatives: int, rounds: int = ROUNDS) -> None:
    """All alternatives in each round, not always in one order."""
    assert len(ran) == rounds * alternatives
    of_round = [tuple(ran[at : at + alternatives]) for at in range(0, len(ran), alternatives)]
    assert all(len(set(each)) == alternatives for each in of_round)
    assert len({each[0] for each in of_round}) > 1, "one is always first"


def test_OneSeed_GivesOneOrder() -> None:
    check_orders([each for order in orders("abcd", ROUNDS) for each in order], 4)
    assert orders("abcd", 3, 7) == orders("abcd", 3, 7)
    assert orders("abcd", 9, 7) != orders("abcd", 9, 8)


def test_EachRound_DrawsItsOrder_AndTheFirstIsNotCounted() -> None:
    ran: list[tuple[str, int]] = []
    runner = Runner(variants(), ROUNDS)

    def once(variant: Variant, number: int) -> float:
        ran.append((name_of(variant), number))
        return float(number)

    steps: list[tuple[int, int, str]] = []
    runner.run(once, never, lambda *step: steps.append(step))
    check_orders([name for name, _ in ran], 4, ROUNDS + 1)
    assert [number for _, number in ran] == [n for n in range(-1, ROUNDS) for _ in range(4)]
    assert all(each.results == [*map(float, range(ROUNDS))] for each in runner.variants)
    assert [(done, total) for done, total, _ in steps] == [(n, 28) for n in range(28)]
    assert [name for *_, name in steps] == [name for name, _ in ran]
    order = runner.order()
    written = [*order["not_counted"], *order["rounds"]]
    assert ["abcd"[int(at)] for each in written for at in each.split()] == [n for n, _ in ran]
    assert (order["seed"], len(order["not_counted"])) == (1, 1)


def test_AnotherSeed_GivesAnotherOrder() -> None:
    assert Runner(variants(), 9, 1).order()["rounds"] != Runner(variants(), 9, 2).order()["rounds"]


def test_ErrorOfOneVariant_BecomesItsReason_AndOthersGoOn() -> None:
    runner = Runner(variants("ab"), 3)

    def once(variant: Variant, number: int) -> float:
        if name_of(variant) == "a" and number == 1:
            raise headrace.DeniedError("not allowed; run it as root")
        return 1.0

    runner.run(once, never)
    a, b = (runner.row("x", each, "s", each.results) for each in runner.variants)
    assert len(b.samples) == 3 and "note" not in b.words
    assert a.median == 1.0 and a.words["note"] == "1 of 3 rounds: not allowed; run it as root"
    runner = Runner(variants("a"), 3)
    ran: list[int] = []

    def fail(variant: Variant, number: int) -> Any:
        ran.append(number)
        raise OSError(13, "Permission denied")

    runner.run(fail, never)
    row = runner.row("x", runner.variants[0], "s", [])
    assert (row.median, row.words["code"], ran) == (None, "denied", [-1])
    assert row.reason.startswith("a could not run: Permission denied")


def cancel(*_: Any) -> Any:
    raise headrace.CancelledError("stopped")


@pytest.mark.parametrize("end", ["stop", "none", "cancelled"])
def test_StoppedRun_KeepsWhatItMeasured(end: str) -> None:
    runner = Runner(variants("ab"), 5)
    steps = iter(range(100))
    last = {"none": lambda *_: None, "cancelled": cancel}

    def once(variant: Variant, number: int) -> Any:
        return 1.0 if next(steps) < 7 or end == "stop" else last[end]()

    looks = iter([False] * 7)
    stop: Callable[[], bool] = (lambda: next(looks, True)) if end == "stop" else never
    runner.run(once, stop)
    assert runner.interrupted and sum(len(each.results) for each in runner.variants) == 5
    row = runner.row("x", runner.variants[0], "s", runner.variants[0].results)
    assert row.words["note"].endswith("of 5 rounds: interrupted")
    assert not Runner(variants(), 1).interrupted


def test_VariantWithAReason_IsNotRun() -> None:
    found = variants("ab")
    found[0].fail("absent", "no such memory")
    runner = Runner(found, 2)
    runner.run(lambda variant, _: name_of(variant), never)
    assert [each.results for each in found] == [[], ["b", "b"]]


def test_Row_HasMedianIntervalAndTime() -> None:
    variant = Variant({"name": "a", "threads": 2}, results=[3.0, 1.0, 2.0], seconds=0.5)
    row = Runner([variant], 3).row(
        "x", variant, "ns", variant.results, details={"known": 1, "unknown": None}
    )
    assert (row.experiment, row.unit, row.basis) == ("x", "ns", "measured")
    assert row.parameters == {"name": "a", "threads": 2}
    assert (row.median, row.low, row.high, row.interval) == (2.0, 1.0, 3.0, "range of 3")
    assert row.samples == [3.0, 1.0, 2.0]
    assert row.details == {"known": 1.0, "elapsed_seconds": 0.5}
    of_six = row_of("x", {}, "ns", [*map(float, range(6))])
    assert of_six.interval == "95 %"


def test_RowWithoutSamples_HasItsReason() -> None:
    variant = Variant({"name": "a"})
    row = Runner([variant], 3).row("x", variant, "ns", [])
    assert (row.median, row.reason, row.flags) == (None, "interrupted", ["stopped"])
    variant.fail("absent", "no HBM here")
    row = Runner([variant], 3).row("x", variant, "ns", [])
    assert (row.reason, row.words, row.flags) == ("no HBM here", {"code": "absent"}, [])


def test_MedianOf_LeavesOutRoundsWithoutTheField() -> None:
    assert median_of([{"a": 1}, {}, {"a": 3}, {"a": None}], "a") == 2
    assert median_of([{}], "a") is None


def document(*rows: headrace.Row, interrupted: bool = False) -> dict[str, Any]:
    return {"rows": [row.asdict() for row in rows], "interrupted": interrupted}


def test_Check_RaisesForAWrongResult_AndForNoResultAtAll() -> None:
    good = row_of("x", {"a": 1}, "s", [1.0], details={"wrong": 0})
    wrong = row_of("x", {"a": 2}, "s", [1.0], details={"wrong": 1})
    none = row_of("x", {"a": 3}, "s", [], code="absent", reason="no HBM here")
    check(document(good, none))
    check(document(none, interrupted=True))
    with pytest.raises(WrongAnswer, match="a=2: the result is wrong"):
        check(document(good, wrong))
    with pytest.raises(headrace.AbsentError, match="no HBM here"):
        check(document(none))
    with pytest.raises(headrace.IoError, match="nothing was measured"):
        check(document())
