# SPDX-License-Identifier: Apache-2.0
"""Details of a row that belong together, such as a share by tier: "hit_rate.dram", "hit_rate.ssd".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace._profile.documents import Fields, fields


def details_of(found: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record and of its nested records; other values are left out."""
    details: dict[str, float] = {}
    for name, each in found.items():
        if isinstance(each, Mapping):
            details |= {f"{name}.{part}": value for part, value in details_of(each).items()}
        elif isinstance(each, int | float) and not isinstance(each, bool):
            details[name] = each
    return details


def nested(row: Mapping[str, Any]) -> Fields:
    """The fields of a row of a document, with nested records."""
    made = Fields()
    for name, each in fields(row).items():
        *records, part = name.split(".")
        record = made
        for one in records:
            record = record.setdefault(one, Fields())
        record[part] = each
    return made


def rows_of(document: Mapping[str, Any], experiment: str) -> list[Fields]:
    return [nested(row) for row in document["rows"] if row["experiment"] == experiment]


def unified_memory_runs(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of a document: modelled ones, or measured ones and the published ones beside them."""
    if document["basis"] == "modelled":
        return list(document["rows"])
    own = (row for row in rows_of(document, "um") if row["run"] != "after 1")
    return [*(Fields(row, measured=row["median"]) for row in own), *document["published"]]
