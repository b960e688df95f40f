# SPDX-License-Identifier: Apache-2.0
"""Modelled runs beside the published ones, which the constants were fitted to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import headrace
from headrace._model import um
from headrace._model.constants import Constant
from headrace._model.um_cases import PUBLISHED, UNIT, Case, Published, figure, published_of, steady

Row = dict[str, Any]


def model(name: str, case: Case | None) -> Row:
    """The fields of a document: this case on the machine, or all that is published of it.

    InvalidError: a prefetch block that the model has not. UnsupportedError: nothing is known of it.
    """
    um.machine_named(name)
    if case is not None and (case.prefetch_block or 0) % um.BLOCK:
        raise headrace.InvalidError(
            "prefetch blocks of a model are whole 2MiB; give --prefetch-block 2MiB, or 16MiB"
        )
    if case is None:
        asked = published_of(name)
    else:
        told = (each for each in PUBLISHED if each.machine == name and each.matches(case))
        asked = [next(told, Published(name, case, (), ""))]
    made = [modelled(published, case or published.case) for published in asked]
    rows = [row for found, _ in made for row in found]
    if case is not None and all(row["modelled"] is row["published"] is None for row in rows):
        raise headrace.UnsupportedError(rows[0]["reason"])
    return {
        "model": name,
        "machines": [
            asdict(um.machine_named(each)) for each in dict.fromkeys(each.machine for each in asked)
        ],
        "rows": rows,
        "cases": [summary for _, summary in made],
        "unit": UNIT,
    }


def modelled(published: Published, case: Case) -> tuple[list[Row], Row]:
    machine = um.machine_named(published.machine)
    reason: str | None = None
    found: Sequence[float | None]
    try:
        found = um.rates(machine, case)
    except headrace.UnsupportedError as error:
        found, reason = [None] * case.runs, str(error)
    head = {
        "machine": machine.name, "case": case.name, "size": case.size, "kernel": case.kernel,
        "bytes_in_flight": machine.in_flight(case.kernel),
    }  # fmt: skip
    rows = []
    for run, rate in enumerate(found, 1):
        told = published.runs[run - 1] if run <= len(published.runs) else None
        rows.append({
            **head, "run": run, "published": told, "modelled": rate, "error": _error(rate, told),
            "basis": "modelled", "reason": reason,
        })  # fmt: skip
    rates = [rate for rate in found if rate is not None]
    summary = {
        **head, "options": asdict(case), "source": published.source or None, "reason": reason,
        "first": _figure(rates[0] if rates else None, published.first),
        "steady": _figure(steady(rates), published.steady),
    }  # fmt: skip
    return rows, summary


def _figure(rate: float | None, told: tuple[float, float] | None) -> Row:
    """The model beside a published figure, or beside the nearer end of a published range."""
    error = None
    if rate is not None and told is not None:
        error = _error(rate, min(max(rate, told[0]), told[1]))
    return {"published": figure(told), "modelled": rate, "error": error}


def _error(rate: float | None, told: float | None) -> float | None:
    return None if rate is None or told is None else rate / told - 1


def constants(machines: Iterable[str]) -> list[Constant]:
    """The fitted ones of these machines."""
    found = []
    for machine in map(um.machine_named, machines):
        for name, source in machine.fitted.items():
            owner, _, part = name.rpartition(".")
            value = getattr(getattr(machine, owner) if owner else machine, part)
            link = name.startswith("link")
            found.append(Constant(
                f"{machine.name} {name.replace('_', ' ')}", value if link else 1e6 * value,
                "B/s" if link else "us", "fitted", source,
            ))  # fmt: skip
    return found
