# SPDX-License-Identifier: Apache-2.0
"""Details of a row that belong together, such as a share by tier: "hit_rate.dram", "hit_rate.ssd".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace._profile.documents import Fields, fields


def details_of(found: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record and of the records in it; anything else is left out."""
    details: dict[str, float] = {}
    for name, each in found.items():
        if isinstance(each, Mapping):
            details |= {f"{name}.{part}": value for part, value in details_of(each).items()}
        elif isinstance(each, int | float) and not isinstance(each, bool):
            details[name] = each
    return details


def nested(row: Mapping[str, Any]) -> Fields:
    """The fields of a row as a document has it, with its records."""
    made = Fields()
    for name, each in fields(row).items():
        record, dot, part = name.partition(".")
        if dot:
            made.setdefault(record, Fields())[part] = each
        else:
            made[name] = each
    return made


def rows_of(document: Mapping[str, Any], experiment: str) -> list[Fields]:
    return [nested(row) for row in document["rows"] if row["experiment"] == experiment]
