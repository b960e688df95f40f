# SPDX-License-Identifier: Apache-2.0
"""The runner of all benchmarks: runs variants in rounds and makes a row of each.

    runner = Runner([Variant({"mode": name}) for name in names], rounds=5)
    runner.run(lambda variant, number: seconds_of(variant.parameters["mode"]), stop, progress)
    rows = [runner.row("query", each, "s", each.results) for each in runner.variants]

Each round runs every variant once, in an order that is drawn anew. A variant that always runs after
the same other one finds the machine as that one left it, and the median of all rounds does not show
it. The first round is not counted: it brings disk, files and libraries to their usual state.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar, Unpack

from headrace import _core
from headrace._errors import WrongAnswer, error_of, kind_of

#: The seed of the order where a benchmark has none of its own.
SEED = 1
#: Reason of a variant that no counted round has measured.
INTERRUPTED = "interrupted"

T = TypeVar("T")
Stop = Callable[[], bool]
#: Called before each step: steps done, of how many, and the name of the next one.
Progress = Callable[[int, int, str], object]
#: Draws the order of each round: variants, number of rounds, seed.
Draw = Callable[[Sequence[T], int, int], Iterable[Sequence[T]]]


class RowExtras(TypedDict, total=False):
    """Parts of a row besides its samples."""

    details: Mapping[str, float | None]
    words: Mapping[str, str]
    flags: Iterable[str]
    basis: str  #: measured by default
    code: str  #: of the error that is the reason
    reason: str  #: why there are no samples


@dataclass(eq=False)
class Variant:
    """One alternative, which becomes one row."""

    parameters: dict[str, int | str]
    results: list[Any] = field(default_factory=list)  #: of its counted rounds
    seconds: float = 0.0  #: spent in its counted rounds
    code: str = ""  #: why it is left out of the remaining rounds: an error's code
    reason: str = ""  #: and its words

    @property
    def name(self) -> str:
        return " ".join(map(str, self.parameters.values()))

    def fail(self, code: str, reason: str) -> None:
        self.code, self.reason = code, reason


def orders(items: Sequence[T], rounds: int, seed: int = SEED) -> list[list[T]]:
    """All items once per round; the same seed gives the same orders."""
    generator = random.Random(seed)
    return [generator.sample(items, len(items)) for _ in range(rounds)]


class Runner:
    """Runs variants in rounds. Keeps what was measured when it is stopped."""

    def __init__(
        self, variants: Sequence[Variant], rounds: int, seed: int = SEED, *, warm_up: int = 1,
        draw: Draw[Variant] = orders,
    ) -> None:  # fmt: skip
        self.variants, self.rounds, self.seed, self.warm_up = variants, rounds, seed, warm_up
        self.interrupted = False
        self._orders = [list(each) for each in draw(variants, warm_up + rounds, seed)]

    def run(
        self, once: Callable[[Variant, int], Any], stop: Stop, progress: Progress | None = None
    ) -> None:
        """Calls `once(variant, round)`. Round 0 is the first counted one; discarded rounds have
        negative numbers. `once` returns None if the run has been stopped.

        An error leaves its variant out of the remaining rounds, and is the reason in its row.
        CancelledError stops the run.
        """
        steps = [
            (number, variant)
            for number, order in enumerate(self._orders, -self.warm_up)
            for variant in order if not variant.reason
        ]  # fmt: skip
        for done, (number, variant) in enumerate(steps):
            if variant.reason:
                continue
            if progress is not None:
                progress(done, len(steps), variant.name)
            if stop() or not self._step(once, variant, number):
                self.interrupted = True
                return

    def _step(self, once: Callable[[Variant, int], Any], variant: Variant, number: int) -> bool:
        """False: the run has been stopped."""
        begun = time.monotonic()
        try:
            found = once(variant, number)
        except _core.CancelledError:
            return False
        except _core.Error as error:
            variant.fail(error.code, str(error))
            return True
        except OSError as error:
            failed = error_of(error, f"{variant.name} could not run")
            variant.fail(failed.code, str(failed))
            return True
        if found is None:
            return False
        if number >= 0:
            variant.results.append(found)
            variant.seconds += time.monotonic() - begun
        return True

    def order(self, rows: Sequence[Variant] | None = None) -> dict[str, Any]:
        """The order of the runs for the document, by the numbers of `rows` (default: all)."""
        at = {id(each): str(i) for i, each in enumerate(self.variants if rows is None else rows)}
        words = [" ".join(at[id(each)] for each in order) for order in self._orders]
        return {
            "seed": self.seed, "not_counted": words[: self.warm_up],
            "rounds": words[self.warm_up :],
        }  # fmt: skip

    def row(
        self, experiment: str, variant: Variant, unit: str, samples: Sequence[float],
        **more: Unpack[RowExtras],
    ) -> _core.Row:  # fmt: skip
        """The row of a variant, as row_of(). Fewer samples than rounds have a note."""
        if samples and len(samples) < self.rounds:
            why = variant.reason or INTERRUPTED
            note = f"{len(samples)} of {self.rounds} rounds: {why}"
            more["words"] = {**more.get("words", {}), "note": note}
        more["details"] = {"elapsed_seconds": variant.seconds or None, **more.get("details", {})}
        more |= {"code": variant.code, "reason": variant.reason or INTERRUPTED}
        return row_of(experiment, variant.parameters, unit, samples, **more)


def row_of(
    experiment: str, parameters: Mapping[str, int | str], unit: str, samples: Sequence[float],
    **more: Unpack[RowExtras],
) -> _core.Row:  # fmt: skip
    """A row with the median of the samples and its interval, or with a reason for none. Details
    and words that are None or empty are left out.
    """
    words = {name: each for name, each in more.get("words", {}).items() if each}
    flags, code, reason = [*more.get("flags", ())], more.get("code"), more.get("reason", "")
    found = _core.summarize(list(samples))
    numbers: dict[str, Any] = {"median": None, "reason": reason}
    if found is not None:
        numbers = {
            "median": found.median, "mad": found.mad, "min": found.min, "max": found.max,
            "low": found.interval.low, "high": found.interval.high,
            "interval": found.interval_words, "samples": list(samples),
        }  # fmt: skip
    else:
        flags += ["stopped"] if reason == INTERRUPTED else []
        words |= {"code": code} if code else {}
    details = more.get("details", {}).items()
    return _core.Row.fromdict({
        "experiment": experiment, "parameters": dict(parameters), "unit": unit, **numbers,
        "details": {name: float(each) for name, each in details if each is not None},
        "words": words, "flags": flags, "basis": more.get("basis", "measured"),
    })  # fmt: skip


def median_of(found: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """The median of a field over the rounds that have it."""
    summary = _core.summarize([each[name] for each in found if each.get(name) is not None])
    return None if summary is None else summary.median


def wrong_of(wrong: int, found: Sequence[Any]) -> dict[str, float]:
    """The detail `wrong` of a row: the number of rounds with a wrong result; none: unknown."""
    return {"wrong": wrong} if found else {}


def check(document: Mapping[str, Any], who: str = "the result is") -> None:
    """Raises when a result was wrong, or when nothing was measured at all. Call it after the
    document is written. `who` begins the message, such as "Spark's answer is".
    """
    rows = document["rows"]
    for row in rows:
        if row["details"].get("wrong"):
            name = " ".join(f"{name}={each}" for name, each in row["parameters"].items())
            raise WrongAnswer(f"{name}: {who} wrong; trust no number of this run")
    if not document["interrupted"] and all(row["median"] is None for row in rows):
        first: Mapping[str, Any] = rows[0] if rows else {"reason": "nothing was measured"}
        raise kind_of(first.get("words", {}).get("code", "io"))(first["reason"])
