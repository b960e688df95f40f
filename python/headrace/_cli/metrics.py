# SPDX-License-Identifier: Apache-2.0
"""Pages in the OpenMetrics text format, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import typer

#: The option of commands that print such a page.
Metrics = Annotated[bool, typer.Option("--metrics", help="Print OpenMetrics text, for Prometheus.")]

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass
class Family:
    """Samples of one name; `kind` is gauge or counter. The name ends with its `unit`."""

    name: str
    kind: str
    text: str
    unit: str = ""
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: object) -> None:
        """None: unknown, no sample."""
        if value is not None:
            self.samples.append(({name: str(each) for name, each in labels.items()}, value))

    def lines(self) -> Iterable[str]:
        yield f"# TYPE {self.name} {self.kind}"
        if self.unit:
            yield f"# UNIT {self.name} {self.unit}"
        yield f"# HELP {self.name} {self.text}"
        suffix = "_total" if self.kind == "counter" else ""
        for labels, value in self.samples:
            yield f"{self.name}{suffix}{_labels(labels)} {value}"


def page(families: Iterable[Family]) -> str:
    """Families without samples are left out."""
    lines = [line for family in families if family.samples for line in family.lines()]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"
