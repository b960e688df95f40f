# SPDX-License-Identifier: Apache-2.0
"""Profiles of other programs: rows without what those of their experiment hold are no traceback."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import profile_documents as documents
import pytest

import headrace
from headrace._cli import tables
from headrace._profile import conventions, exports
from headrace._report import profile
from headrace._report.figure import Figure

Row = dict[str, Any]


def use(document: Row) -> list[Figure]:
    """All that reads rows; errors of ours are answers."""
    read = headrace.Profile.from_json(json.dumps(document))
    for form in exports.FORMATS.values():
        with contextlib.suppress(headrace.Error):
            form(read)
    for convention in (None, *conventions.CONVENTIONS):
        tables.profile_text(read, convention)
    return profile.profile_figures(read)


def experiments() -> list[str]:
    return list(dict.fromkeys(row["experiment"] for row in documents.profile()["rows"]))


def broken(row: Row) -> Iterator[tuple[str, Row]]:
    """The row that lacks one of its parameters or details, or has an odd value there, in turn."""
    for field, odd in (("parameters", "odd"), ("details", 0)):
        for name in row.get(field, {}):
            left = {key: value for key, value in row[field].items() if key != name}
            yield "lacks", row | {field: left}
            yield "odd", row | {field: left | {name: odd}}


def readable(document: Row) -> bool:
    try:
        headrace.Profile.from_json(json.dumps(document))
    except headrace.InvalidError:
        return False
    return True


@pytest.mark.parametrize("alone", ["lacks", pytest.param("odd", marks=pytest.mark.slow)])
@pytest.mark.parametrize("experiment", experiments())
def test_a_row_may_lack_anything(
    experiment: str, alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("altair")
    whole = documents.profile()
    row = next(
        row
        for row in whole["rows"]
        if row["experiment"] == experiment and row.get("median") is not None
    )
    # The picture of the machine takes most of the time: it has two nodes, and one row of what the
    # picture does not read is drawn without it.
    whole["nodes"] = whole["nodes"][:2]
    rows = [each for each in broken(row) if readable(whole | {"rows": [each[1]]})]
    assert rows
    # Alone, and among others of its kind.
    with monkeypatch.context() as patch:
        if experiment not in ("latency", "bandwidth", "storage"):
            patch.setattr(profile, "machine_figure", lambda *_: Figure("The machine"))
        for how, each in rows:
            if how == alone:
                use(whole | {"rows": [each]})
    use(whole | {"rows": [row, *(each for _, each in rows)]})


def test_undrawable_rows_are_reported() -> None:
    pytest.importorskip("altair")
    whole = documents.profile()
    row = next(row for row in whole["rows"] if row["experiment"] == "copy")
    row = copy.deepcopy(row) | {"parameters": {"engine": "cpu"}}
    figures = use(whole | {"rows": [row]})
    assert "copy, 1 row: has a number, but not all that says what of" in figures[-1].items
