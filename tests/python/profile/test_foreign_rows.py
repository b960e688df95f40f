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
from headrace._report.figure import Figure
from headrace._report.profile import profile_figures

Row = dict[str, Any]


def use(document: Row) -> list[Figure]:
    """All that reads rows; errors of ours are answers."""
    profile = headrace.Profile.from_json(json.dumps(document))
    for form in exports.FORMATS.values():
        with contextlib.suppress(headrace.Error):
            form(profile)
    for convention in (None, *conventions.CONVENTIONS):
        tables.profile_text(profile, convention)
    return profile_figures(profile)


def experiments() -> list[str]:
    return list(dict.fromkeys(row["experiment"] for row in documents.profile()["rows"]))


def broken(row: Row) -> Iterator[Row]:
    """The row without one of its parameters or details, or with an odd value there, in turn."""
    for field, odd in (("parameters", "odd"), ("details", 0)):
        for name in row.get(field, {}):
            left = {key: value for key, value in row[field].items() if key != name}
            yield row | {field: left}
            yield row | {field: left | {name: odd}}


def readable(document: Row) -> bool:
    try:
        headrace.Profile.from_json(json.dumps(document))
    except headrace.InvalidError:
        return False
    return True


@pytest.mark.parametrize("experiment", experiments())
def test_a_row_may_lack_anything(experiment: str) -> None:
    pytest.importorskip("altair")
    whole = documents.profile()
    row = next(
        row
        for row in whole["rows"]
        if row["experiment"] == experiment and row.get("median") is not None
    )
    # A machine of two nodes, since the picture of it takes most of the time.
    whole["nodes"] = whole["nodes"][:2]
    rows = [each for each in broken(row) if readable(whole | {"rows": [each]})]
    assert rows
    # Alone, and among others of its kind.
    for each in rows:
        use(whole | {"rows": [each]})
    use(whole | {"rows": [row, *rows]})


def test_what_cannot_be_drawn_is_told() -> None:
    pytest.importorskip("altair")
    whole = documents.profile()
    row = next(row for row in whole["rows"] if row["experiment"] == "copy")
    row = copy.deepcopy(row) | {"parameters": {"engine": "cpu"}}
    figures = use(whole | {"rows": [row]})
    assert "copy, 1 row: has a number, but not all that says what of" in figures[-1].items
