# SPDX-License-Identifier: Apache-2.0
"""Document and text that all models share: the basis, and the origin of every constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import headrace
from headrace._cli import output
from headrace._format import prose
from headrace._model.constants import Constant

Row = dict[str, Any]


def deliver(
    name: str, detail: str, constants: Sequence[Constant], fields: Row, *,
    show: Callable[[Row], object], json: bool, out: Path | None,
) -> None:  # fmt: skip
    """Prints and writes what a model gives. `detail` says what was computed from what."""
    document = {
        **output.head(f"model {name}"),
        "basis": "modelled",
        "rests_on": {"level": "model", "detail": detail},
        "constants": [asdict(each) for each in constants],
        **fields,
    }

    def show_all() -> None:
        output.print_text(prose(f"Modelled, not measured: {detail}.") + "\n\n")
        show(document)
        output.print_text("\n" + _constants_text(constants))

    output.deliver(document, out=out, json=json, show=show_all)


def _constants_text(constants: Sequence[Constant]) -> str:
    table = output.table_text(
        ("constant", "value", "basis", "fitted to, or source"),
        [(each.name, _value(each), each.basis, each.source) for each in constants],
        left=4,
    )
    if not any(each.basis == "fitted" for each in constants):
        return table
    return table + "\n" + prose("The model does not predict figures that it was fitted to.")


def _value(constant: Constant) -> str:
    if constant.unit == "B/s":
        return str(headrace.format_rate(constant.value))
    return f"{constant.value:.5g} {constant.unit}" if constant.unit else f"{constant.value:.0%}"
