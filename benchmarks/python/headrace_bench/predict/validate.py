# SPDX-License-Identifier: Apache-2.0
"""Scores: every published figure beside the prediction, with the part that it plays.

input: the machine's constants are this figure. fitted: some constant was chosen with the figure, or
its group, in view. predicted: neither. words: published in words; counted, but in no median.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import Any

import headrace
from headrace._model import um
from headrace._model.um_cases import GIB, PUBLISHED, steady
from headrace_bench.predict import whatif
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Workload
from headrace_bench.predict.target import LINE, Estimate, Target, exactly

UNIFIED_MEMORY = "Unified Memory"
ROLES = ("input", "fitted", "predicted", "words", "not predicted")


@dataclass(frozen=True)
class Figure:
    group: str
    name: str
    role: str
    unit: str
    published: float | None
    predicted: Estimate | None
    words: str = ""  #: that were published instead of a number, or the reason for no prediction
    least: float | None = None  #: the words mean at least this
    most: float | None = None  #: and at most this

    @property
    def error(self) -> float | None:
        if self.published is None or self.predicted is None:
            return None
        return self.predicted.value / self.published - 1

    @property
    def as_told(self) -> bool:
        """Whether the prediction is what the words say: within 15 % of a number, or of a bound."""
        if self.predicted is None:
            return False
        value = self.predicted.value
        if self.least is None and self.most is None:
            return self.error is not None and abs(self.error) <= 0.15
        return (self.least or value) <= value <= (self.most or value)

    @property
    def inside(self) -> bool | None:
        """Whether the interval holds the figure."""
        if self.published is None or self.predicted is None:
            return None
        return self.predicted.low <= self.published <= self.predicted.high


@dataclass(frozen=True)
class Group:
    name: str
    source: str
    note: str
    figures: tuple[Figure, ...]
    miss: str = ""  #: reason for figures that are far off
    #: Hundreds of alike figures: they have a line per part, and do not count with the others.
    parts: bool = False

    def by_part(self) -> Mapping[str, list[Figure]]:
        """Figures by what their names begin with."""
        found: dict[str, list[Figure]] = {}
        for each in self.figures:
            found.setdefault(each.name.partition(",")[0], []).append(each)
        return found


def groups() -> Iterator[Group]:
    """All of published.json, predicted."""
    solver = _Predictor()
    for group in _document()["groups"]:
        figures = tuple(solver.figure(group["group"], each) for each in group["figures"])
        if group["group"] == UNIFIED_MEMORY:
            figures = tuple(_unified_memory())
        yield Group(group["group"], group["source"], group.get("note", ""), figures,
                    group.get("miss", ""))  # fmt: skip


def _unified_memory() -> Iterator[Figure]:
    """The model's runs beside those that its constants were fitted to."""
    for published in PUBLISHED:
        rates = um.rates(um.machine_named(published.machine), published.case)
        pairs = [("run 1", published.first, rates[0]), ("steady", published.steady, steady(rates))]
        for part, told, rate in pairs:
            if told is None or rate is None:
                continue
            near = min(max(rate, told[0]), told[1])
            name = f"{published.machine}, {published.case.name}, {published.case.size >> 30} GiB, "
            found = exactly(rate * GIB)
            yield Figure(UNIFIED_MEMORY, name + part, "fitted", "B/s", near * GIB, found)


@dataclass(frozen=True)
class Aim:
    words: str
    reached: float | None  #: a share, or a tau; None: no figure is predicted
    met: bool | None


def aims(found: Sequence[Group]) -> Iterator[Aim]:
    for each in _document()["aims"]:
        groups = [group for group in found if group.name in each["groups"]]
        figures = [f for group in groups for f in group.figures if f.role == "predicted"]
        reached = _reached(each["metric"], figures, [f for g in groups for f in g.figures])
        met = None
        if reached is not None:
            met = reached <= each["most"] if "most" in each else reached >= each["least"]
        yield Aim(each["aim"], reached, met)


def _reached(metric: str, figures: Sequence[Figure], every: Sequence[Figure]) -> float | None:
    errors = [abs(f.error) for f in figures if f.error is not None]
    if not errors:
        return None
    if metric == "tau":
        return tau([f for f in every if f.role in ("predicted", "input")])
    if metric == "points":
        return statistics.median(
            abs(f.predicted.value - f.published) for f in figures if f.predicted and f.published
        )
    return max(errors) if metric == "worst" else statistics.median(errors)


def _document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        files(__package__).joinpath("published.json").read_text("utf-8")
    )
    return found


def workload(name: str) -> Workload:
    found: Workload = import_module(f"headrace_bench.predict.{name}").WORKLOAD
    return found


class _Predictor:
    def __init__(self) -> None:
        self._rows: dict[str, Sequence[Row]] = {}

    def figure(self, group: str, each: Mapping[str, Any]) -> Figure:
        predicted = self.value(each["predict"]) if "predict" in each else None
        return Figure(
            group, each["name"], each["role"], each["unit"], each["figure"], predicted,
            each.get("words") or each.get("reason", ""), each.get("least"), each.get("most"),
        )  # fmt: skip

    def value(self, how: Mapping[str, Any]) -> Estimate:
        if "quotient" in how:
            above, below = (self.value(each) for each in how["quotient"])
            return Estimate(
                above.value / below.value, *sorted((above.low / below.low, above.high / below.high))
            )
        return self._flows(how) if "flows" in how else self._row(how)

    def _target(self, how: Mapping[str, Any]) -> Target:
        machine = headrace.Machine.load(how["machine"]).asdict()
        return Target(whatif.changed(machine, how.get("set", ()), ()))

    def _row(self, how: Mapping[str, Any]) -> Estimate:
        key = json.dumps([how.get(k) for k in ("workload", "machine", "set", "settings")])
        if key not in self._rows:
            used = workload(how["workload"])
            settings = {axis.name: axis.value(how["settings"].get(axis.name, axis.default))
                        for axis in used.axes}  # fmt: skip
            self._rows[key] = used.predict(self._target(how), settings | {"seed": 0})
        row = next(row for row in self._rows[key] if row.placement == how["placement"])
        found = row.values[how["column"]]
        assert found is not None
        return found

    def _flows(self, how: Mapping[str, Any]) -> Estimate:
        """Sum of the rates of flows that run together."""
        target = self._target(how)
        flows = []
        for flow in how["flows"]:
            made = {k: v for k, v in flow.items() if k not in ("in_flight", "open")}
            if "in_flight" in flow:
                lines, doubt = target.lines(flow["initiator"], flow["in_flight"])
                made |= {"in_flight_bytes": lines * LINE, "in_flight_uncertainty": doubt}
            else:
                made["cap_bytes_per_second"] = flow["open"]
            flows.append(made)
        speeds = target.solve(flows)
        used = [s.rate for s, f in zip(speeds, flows, strict=True)
                if how.get("only") in (None, f["name"])]  # fmt: skip
        return Estimate(
            sum(r.value for r in used), sum(r.low for r in used), sum(r.high for r in used)
        )


@dataclass(frozen=True)
class Score:
    """Errors of some figures, taken together."""

    count: int
    median: float
    p90: float
    within_10: float  #: share of figures
    inside: float  #: share of figures in their intervals


def score(figures: Sequence[Figure]) -> Score | None:
    """None: there is no error."""
    errors = sorted(abs(each.error) for each in figures if each.error is not None)
    if not errors:
        return None
    held = [each.inside for each in figures if each.inside is not None]
    p90 = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    return Score(
        len(errors), statistics.median(errors), p90,
        sum(error <= 0.1 for error in errors) / len(errors), sum(held) / len(held),
    )  # fmt: skip


def tau(figures: Sequence[Figure]) -> float | None:
    """Kendall's tau-b of published and predicted order; None: no order."""
    pairs = [(f.published, f.predicted.value) for f in figures
             if f.published is not None and f.predicted is not None]  # fmt: skip
    agree = ties_a = ties_b = 0.0
    count = 0
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[:i]:
            x, y = _order(a, c), _order(b, d)
            agree += x * y
            ties_a += x == 0
            ties_b += y == 0
            count += 1
    below = ((count - ties_a) * (count - ties_b)) ** 0.5
    return agree / below if below else None


def _order(a: float, b: float) -> int:
    """Equal within half a percent: what repetitions cannot tell apart."""
    if abs(a / b - 1) < 0.005:
        return 0
    return 1 if a > b else -1


def text(figure: Figure, value: float | None) -> str:
    if value is None:
        return "-"
    if figure.unit == "ns":
        return f"{value:.0f} ns"
    if figure.unit == "x":
        return f"{value:.3f}"
    return Column("", figure.unit).text(Estimate(value, value, value)) + " GB/s"
