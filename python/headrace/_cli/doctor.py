"""headrace doctor"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import headrace
from headrace._cli import output
from headrace._cli.options import Json
from headrace._cli.probes import STATES, Finding, Host, as_json, examine

_MARKS = {"ready": "ready", "limited": "limited", "off": "OFF", "absent": "-"}


def command(
    json: Json = False,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIRECTORY", help="Where the data to be moved lies.")
    ] = Path(),
) -> None:
    """Show what is missing for full use, each with its remedy."""
    machine = headrace.Machine.discover()
    findings = examine(Host(machine, data))
    if json:
        output.print_json(output.document("doctor", machine, features=as_json(findings)))
        return
    rows = [(finding.feature, _MARKS[finding.state], finding.why) for finding in findings]
    output.print_table(("feature", "state", "why"), rows, left=3)
    print()
    for finding in findings:
        if finding.remedy is not None:
            print(f"{finding.feature}:\n    {finding.remedy}")
    print(_summary(findings))


def _summary(findings: list[Finding]) -> str:
    counts = {state: sum(f.state == state for f in findings) for state in STATES}
    return ", ".join(f"{count} {state}" for state, count in counts.items())
