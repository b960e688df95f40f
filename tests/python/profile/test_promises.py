# SPDX-License-Identifier: Apache-2.0
"""Promises about copies on a GPU: judged by rows, printed as text and JSON."""

from __future__ import annotations

import json
from typing import Any

import profile_documents as documents
import pytest

import headrace
from headrace._cli import tables
from headrace._profile import promises

FRAGMENTS = {"part": "fragments", "direction": "to_gpu", "gpu": 2000, "node": 0, "by": "headrace",
             "memory": "pinned", "bytes": 64 << 10, "count": 16}  # fmt: skip
COPIES = FRAGMENTS | {"part": "copy", "bytes": 64 << 20, "count": 1}


def row(parameters: dict[str, Any], details: dict[str, float], basis: str) -> dict[str, Any]:
    return {
        "experiment": "gpu", "parameters": parameters, "unit": "B/s", "median": 1e9, "mad": 0,
        "min": 1e9, "max": 1e9, "samples": [1e9], "details": details, "basis": basis,
    }  # fmt: skip


def profile(rows: list[dict[str, Any]]) -> headrace.Profile:
    return headrace.Profile.from_json(json.dumps(documents.machine() | {"rows": rows}))


@pytest.mark.parametrize(
    ("parameters", "detail", "least"),
    [(FRAGMENTS, "ratio_to_single", 3), (COPIES, "ratio_to_pinned", 0.95)],
)
@pytest.mark.parametrize(("part", "basis", "kept", "word"), [
    (1.0, "measured", True, "  kept"), (0.99, "measured", False, "NOT KEPT"),
    (2.0, "emulated", None, "emulated: says nothing"),
])  # fmt: skip
def test_a_row_keeps_a_promise_or_does_not(
    parameters: dict[str, Any], detail: str, least: float, part: float, basis: str,
    kept: bool | None, word: str,
) -> None:  # fmt: skip
    found = profile([row(parameters, {detail: part * least}, basis)])
    (verdict,) = promises.verdicts(found)
    assert (verdict["least"], verdict["kept"], verdict["basis"]) == (least, kept, basis)
    assert verdict["ratio"] == pytest.approx(part * least)
    assert json.loads(promises.document_of(found))["promises"] == [verdict]
    text = tables.profile_text(found)
    assert "what is promised on a GPU" in text and word in text
    # A reader of the document ignores the promises.
    again = headrace.Profile.from_json(promises.document_of(found))
    assert again.to_json() == found.to_json()


def test_other_rows_are_no_verdict() -> None:
    other = [
        row(FRAGMENTS | {"by": "engine"}, {"ratio_to_single": 1.0}, "measured"),
        row(FRAGMENTS | {"count": 15}, {"ratio_to_single": 1.0}, "measured"),
        row(COPIES | {"memory": "pageable"}, {"ratio_to_pinned": 0.1}, "measured"),
        row(COPIES | {"direction": "from_gpu"}, {}, "measured"),
    ]
    found = profile(other)
    assert promises.verdicts(found) == [] and promises.document_of(found) == found.to_json()
    assert "promised" not in tables.profile_text(found)
