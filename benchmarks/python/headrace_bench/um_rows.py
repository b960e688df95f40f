# SPDX-License-Identifier: Apache-2.0
"""What a model gives beside what was published, as rows and as figures that are met or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import headrace
from headrace._unified_memory import case as um
from headrace._unified_memory import model as um_model

#: A figure is met within this.
WITHIN = 0.15


def model(name: str, case: um.Case | None) -> dict[str, Any]:
    """The fields of a document: this case on the machine, or all that is published of it.

    InvalidError: a prefetch block that the model has not. UnsupportedError: nothing is known of it.
    """
    machine = um_model.machine_named(name)
    if case is not None and (case.prefetch_block or 0) % um_model.BLOCK:
        raise headrace.InvalidError(
            "prefetch blocks of a model are whole 2MiB; give --prefetch-block 2MiB, or 16MiB"
        )
    if case is None:
        asked = um.published_of(name)
    else:
        told = (p for p in um.PUBLISHED if p.machine == name and same(p.case, case))
        asked = [next(told, um.Published(name, case, (), ""))]
    rows: list[dict[str, Any]] = []
    cases: list[dict[str, Any]] = []
    for published in asked:
        made, summary = modelled(published, case or published.case)
        rows += made
        cases.append(summary)
    if case is not None and all(row["modelled"] is row["published"] is None for row in rows):
        raise headrace.UnsupportedError(rows[0]["reason"])
    names = dict.fromkeys(each.machine for each in asked)
    kernel = asked[0].case.kernel if case is None else case.kernel
    return {
        "model": machine.name,
        "device_number": 0,
        "blocks": machine.blocks(kernel),
        "threads_per_block": um_model.THREADS[kernel],
        "machines": described(names),
        "rows": rows,
        "cases": cases,
        "unit": um.UNIT,
    }


def same(published: um.Case, asked: um.Case, *, sizes: bool = True) -> bool:
    """But for runs, of which there may be fewer or more; without `sizes` of any, by any kernel and
    from any node.
    """
    if not sizes:
        published = replace(published, size=asked.size, kernel=asked.kernel)
        published = replace(published, cpu_node=asked.cpu_node)
    return replace(published, runs=0) == replace(asked, runs=0)


def described(names: Iterable[str]) -> list[dict[str, Any]]:
    return [asdict(um_model.machine_named(name)) for name in names]


def modelled(
    published: um.Published, case: um.Case
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    machine = um_model.machine_named(published.machine)
    reason: str | None = None
    found: Sequence[float | None]
    try:
        found = um_model.rates(machine, case)
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
            **head, "run": run, "published": told, "modelled": rate, "error": error_of(rate, told),
            "basis": "modelled", "reason": reason,
        })  # fmt: skip
    rates = [rate for rate in found if rate is not None]
    first = (published.runs[0], published.runs[0]) if published.runs else None
    late = um.steady(published.runs)
    steady = published.steady if late is None else (late, late)
    summary = {
        **head, "options": asdict(case), "source": published.source or None, "reason": reason,
        "first": _figure(rates[0] if rates else None, first),
        "steady": _figure(um.steady(rates), steady),
    }  # fmt: skip
    return rows, summary


def _figure(rate: float | None, told: tuple[float, float] | None) -> dict[str, Any]:
    """Against what was told, which may be two figures with anything between."""
    error = None
    if rate is not None and told is not None:
        error = error_of(rate, min(max(rate, told[0]), told[1]))
    return {
        "published": None if told is None else told[0] if told[0] == told[1] else list(told),
        "modelled": rate,
        "error": error,
        "met": None if error is None else abs(error) <= WITHIN,
    }


def error_of(rate: float | None, told: float | None) -> float | None:
    return None if rate is None or told is None else rate / told - 1


def figures(document: dict[str, Any]) -> list[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Those that are judged: of each case run 1 and the rest."""
    return [
        (case, which, case[which])
        for case in document["cases"]
        for which in ("first", "steady")
        if case[which]["published"] is not None
    ]
