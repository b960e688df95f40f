# SPDX-License-Identifier: Apache-2.0
"""The promises about copies on a GPU, and whether the rows of a profile keep them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import headrace


@dataclass(frozen=True)
class Promise:
    """The smallest promised ratio to the driver's own rate, for rows with these parameters."""

    name: str
    least: float
    detail: str  #: the ratio in a row
    where: Mapping[str, int | str]


#: Documented in docs/howto/measure-reference.md.
PROMISES = (
    Promise("fragments of 64 KiB in runs of 16, against a call for each", 3.0, "ratio_to_single",
            {"part": "fragments", "by": "headrace", "bytes": 64 << 10, "count": 16}),
    Promise("64 MiB of pinned memory, against the driver alone", 0.95, "ratio_to_pinned",
            {"part": "copy", "by": "headrace", "memory": "pinned", "bytes": 64 << 20}),
)  # fmt: skip


def verdicts(profile: headrace.Profile) -> list[dict[str, Any]]:
    """A verdict for each row with a promise. `kept` is None if the GPU is emulated."""
    return [
        {
            "promise": promise.name, "least": promise.least,
            **{name: row.parameters[name] for name in ("direction", "gpu", "node")},
            "ratio": row.details[promise.detail], "basis": row.basis,
            "kept": None if row.basis == "emulated" else
            row.details[promise.detail] >= promise.least,
        }
        for promise in PROMISES for row in profile.rows
        if row.experiment == "gpu" and promise.where.items() <= row.parameters.items()
        and promise.detail in row.details
    ]  # fmt: skip


def document_of(profile: headrace.Profile) -> str:
    """The profile's JSON, with verdicts if there are any. Readers of profiles ignore them."""
    text, found = profile.to_json(), verdicts(profile)
    if not found:
        return text
    return json.dumps(json.loads(text) | {"promises": found}, indent=2) + "\n"


def lines(profile: headrace.Profile) -> list[tuple[str, ...]]:
    """Lines of a table: the copy, its nodes, the ratio, the promise and the verdict."""
    words = {None: "emulated: says nothing", True: "kept", False: "NOT KEPT"}
    return [
        (each["promise"], f"{each['direction']} {each['gpu']}", str(each["node"]),
         f"{each['ratio']:.2f}", f"{each['least']:g}", words[each["kept"]])
        for each in verdicts(profile)
    ]  # fmt: skip
