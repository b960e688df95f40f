# SPDX-License-Identifier: Apache-2.0
"""Documents of benchmarks as profiles, so that compare, export and report read their rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._files import read_whole

#: Fields of a document that are not conditions of the measurement: the head and the results.
_NO_CONDITIONS = (
    "schema_version", "kind", "interrupted", "advice_confirmed", "answer_ok", "conclusion",
    "device_free_bytes", "layer_ms", "us_per_token_and_layer", "written",
)  # fmt: skip


class Fields(dict[str, Any]):
    """A row's parameters, details, words and numbers by name; None for a name that it lacks."""

    def __missing__(self, name: str) -> None:
        return None


def fields(row: Mapping[str, Any]) -> Fields:
    """The fields of a row as a document has it."""
    own = {name: each for name, each in row.items() if name not in _PARTS}
    return Fields({**row["parameters"], **row["details"], **row.get("words", {}), **own})


_PARTS = ("parameters", "details", "words")


def all_fields(document: Mapping[str, Any]) -> list[Fields]:
    return [fields(row) for row in document["rows"]]


def find(document: Mapping[str, Any], **wanted: Any) -> Fields:
    """The fields of the first row with these values; empty if there is none."""
    return next(
        (row for row in all_fields(document) if wanted.items() <= row.items()), Fields()
    )


def load(source: str | Path) -> _core.Profile:
    """Loads a profile, a preset, or a benchmark's document. Errors: those of Profile.load."""
    try:
        found = json.loads(read_whole(Path(source)))
    except (_core.Error, OSError, ValueError, RecursionError):
        return _core.Profile.load(source)  # a preset, or the error that says what is wrong
    if isinstance(found, dict) and str(found.get("kind")).startswith("bench "):
        try:
            return profile_of(found)
        except _core.InvalidError as error:
            raise _core.InvalidError(f"{source}: {error}") from None
    return _core.Profile.load(source)


def profile_of(document: Mapping[str, Any]) -> _core.Profile:
    """A profile from a benchmark's document: its rows, and its other fields as conditions."""
    conditions = {
        name: "" if each is None else str(each)
        for name, each in document.items()
        if name not in _NO_CONDITIONS and isinstance(each, str | int | float | None)
    }
    machine = document.get("machine")
    if not isinstance(machine, dict) or not isinstance(document.get("rows"), list):
        raise _core.InvalidError(
            f"a document of '{document['kind']}' without a machine and its rows; run it again"
        )
    head = {**machine, "conditions": dict(document.get("conditions") or {}) | conditions}
    return _core.Profile.fromdict({**head, "kind": document["kind"], "rows": document["rows"]})
