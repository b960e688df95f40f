"""Profiles of other programs: rows without what those of their experiment hold are no traceback."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import profile_documents as documents
import pytest

import headrace
from headrace._cli import tables
from headrace._profile import conventions, exports
from headrace._report.figure import Figure
from headrace._report.profile import profile_figures


def use(document: dict[str, Any]) -> list[Figure]:
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


@pytest.mark.parametrize("experiment", experiments())
def test_a_row_may_lack_anything(experiment: str) -> None:
    pytest.importorskip("altair")
    whole = documents.profile()
    row = next(
        row
        for row in whole["rows"]
        if row["experiment"] == experiment and row.get("median") is not None
    )
    for field in ("parameters", "details"):
        for name in list(row.get(field, {})):
            for broken in (None, "odd"):
                one = copy.deepcopy(row)
                if broken is None:
                    del one[field][name]
                elif field == "details":
                    one[field][name] = 0
                else:
                    one[field][name] = broken
                # Alone, and among others of its kind.
                for rows in ([one], [row, one]):
                    with contextlib.suppress(headrace.InvalidError):  # not readable at all
                        use(whole | {"rows": rows})


def test_what_cannot_be_drawn_is_told() -> None:
    pytest.importorskip("altair")
    whole = documents.profile()
    row = next(row for row in whole["rows"] if row["experiment"] == "copy")
    row = copy.deepcopy(row) | {"parameters": {"engine": "cpu"}}
    figures = use(whole | {"rows": [row]})
    assert "copy, 1 row: has a number, but not all that says what of" in figures[-1].items
